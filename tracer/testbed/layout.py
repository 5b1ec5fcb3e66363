"""Which rank is where: coordinates in TP x PP x DP, groups, hosts.

rank = (pp * DP + dp) * TP + tp, as in the simulator. Hosts hold consecutive ranks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One communicator: its name, what it is for, and the global ranks in order."""

    name: str
    use: str
    ranks: tuple[int, ...]

    @property
    def hash(self) -> int:
        """A number that is equal on all members, as NCCL's commHash; never 0."""
        return int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "little") | 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the parallel dimensions; `ep` consecutive data-parallel ranks share experts (1: none)."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    hosts: int = 1

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.pp * self.dp

    @property
    def ranks_per_host(self) -> int:
        """Ranks of each host; the last one may hold fewer."""
        return -(-self.world // self.hosts)

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """Return (tp, pp, dp) of a global rank."""
        return rank % self.tp, rank // (self.tp * self.dp), rank // self.tp % self.dp

    def rank(self, *, tp: int, pp: int, dp: int) -> int:
        """Return the global rank at some coordinates."""
        return (pp * self.dp + dp) * self.tp + tp

    def host(self, rank: int) -> int:
        """Return the index of the host of a rank."""
        return rank // self.ranks_per_host

    def ranks_of_host(self, host: int) -> tuple[int, ...]:
        """Return the global ranks of one host."""
        first = host * self.ranks_per_host
        return tuple(range(first, min(first + self.ranks_per_host, self.world)))

    def groups(self) -> tuple[Group, ...]:
        """Return every communicator of the job with more than one member, the world first."""
        found = [Group(name="default_pg", use="world", ranks=tuple(range(self.world)))]
        for pp in range(self.pp):
            for dp in range(self.dp):
                ranks = tuple(self.rank(tp=tp, pp=pp, dp=dp) for tp in range(self.tp))
                found.append(Group(name=f"tp{pp * self.dp + dp}", use="tp", ranks=ranks))
            for tp in range(self.tp):
                ranks = tuple(self.rank(tp=tp, pp=pp, dp=dp) for dp in range(self.dp))
                found.append(Group(name=f"dp{pp * self.tp + tp}", use="dp", ranks=ranks))
                for first in range(0, self.dp, self.ep) if self.ep > 1 else ():
                    part = ranks[first : first + self.ep]
                    found.append(Group(name=f"ep{pp * self.tp + tp}_{first}", use="ep", ranks=part))
        for dp in range(self.dp):
            for tp in range(self.tp):
                ranks = tuple(self.rank(tp=tp, pp=pp, dp=dp) for pp in range(self.pp))
                found.append(Group(name=f"pp{dp * self.tp + tp}", use="pp", ranks=ranks))
        return tuple(group for group in found if len(group.ranks) > 1)
