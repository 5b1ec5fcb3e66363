"""From ranks inside communicators to global ranks, for the sources that know only processes and communicators.

NCCL, its profilers and RAS name a process by (host, pid) and give its rank inside each communicator. The greatest
communicator is the world if it holds every process that was seen; its ranks are the global ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mycroft.loaders.base import LoadContext

# Host and process id. An empty host stands for a process of which no more is known than its file (the number).
Process = tuple[str, int]
MAX_RANKS: Final = 1 << 20


def hash_name(hash_: int) -> str:
    """Return the name we give to a communicator that is known by its hash only."""
    return f"0x{hash_:x}"


@dataclass(slots=True)
class _Comm:
    size: int | None = None
    desc: str | None = None
    ranks: dict[int, Process] = field(default_factory=lambda: dict[int, Process]())
    conflicts: set[int] = field(default_factory=lambda: set[int]())


class CommRanks:
    """Collects who has which rank in which communicator and answers with global ranks where that is certain."""

    def __init__(self) -> None:
        self._comms: dict[int, _Comm] = {}
        self._world: tuple[int, ...] | None = None
        self._ids: dict[int, int] = {}

    def see(
        self, hash_: int, size: int | None, comm_rank: int, process: Process | None, desc: str | None = None
    ) -> None:
        """Note one member of one communicator. What does not fit (negative, over the size) is ignored."""
        if comm_rank < 0 or comm_rank >= MAX_RANKS or (size is not None and not comm_rank < size <= MAX_RANKS):
            return
        comm = self._comms.setdefault(hash_, _Comm())
        comm.size = max(comm.size or 0, size) if size is not None else comm.size
        comm.desc = comm.desc or desc
        if process is not None:
            known = comm.ranks.setdefault(comm_rank, process)
            if known != process:
                comm.conflicts.add(comm_rank)
        self._world = None

    def world(self) -> tuple[int, ...]:
        """Return the hashes of the communicators that hold everybody in the same order; empty where none is sure."""
        if self._world is None:
            self._world = self._find_world()
        return self._world

    def _find_world(self) -> tuple[int, ...]:
        # Where no source gives the size, the highest rank seen is the least it can be.
        sizes = {h: c.size or max(c.ranks, default=-1) + 1 for h, c in self._comms.items()}
        if not sizes:
            return ()
        greatest = max(sizes.values())
        processes = {p for c in self._comms.values() for p in c.ranks.values()}
        if greatest < 1 or greatest < len(processes):
            return ()
        found = [h for h, size in sizes.items() if size == greatest]
        first = {p: r for r, p in self._comms[found[0]].ranks.items()}
        for other in found[1:]:
            ranks = {p: r for r, p in self._comms[other].ranks.items()}
            shared = first.keys() & ranks.keys()
            # Two of the greatest that share nobody are two jobs, or two halves of one: neither is the world.
            if not shared or any(first[p] != ranks[p] for p in shared):
                return ()
            first |= ranks
        return tuple(sorted(found))

    def global_rank(self, hash_: int, comm_rank: int) -> int | None:
        """Return the global rank of a member, None where it is not certain."""
        world = self.world()
        if hash_ in world:
            return comm_rank
        comm = self._comms.get(hash_)
        process = comm.ranks.get(comm_rank) if comm and comm_rank not in comm.conflicts else None
        return self.rank_of(process) if process else None

    def rank_of(self, process: Process) -> int | None:
        """Return the global rank of a process, None where it is not certain."""
        for hash_ in self.world():
            comm = self._comms[hash_]
            found = [r for r, p in comm.ranks.items() if p == process]
            if len(found) == 1 and found[0] not in comm.conflicts:
                return found[0]
        return None

    def members(self, hash_: int) -> list[int] | None:
        """Return all members as global ranks in order of their rank inside; None where one is not known."""
        comm = self._comms.get(hash_)
        if comm is None or not comm.size:
            return None
        if hash_ in self.world():
            return list(range(comm.size))
        if len(comm.ranks) < comm.size:
            return None
        known = [r for i in range(comm.size) if (r := self.global_rank(hash_, i)) is not None]
        return known if len(set(known)) == comm.size else None

    def comm_id(self, context: LoadContext, hash_: int, *, source: str = "log") -> int:
        """Return the trace's id of a communicator, with its members where all are known."""
        if hash_ not in self._ids:
            comm = self._comms.get(hash_)
            self._ids[hash_] = context.comm(
                hash_name(hash_),
                ranks=self.members(hash_),
                desc=comm.desc if comm else None,
                hash_=hash_,
                backend="nccl",
                source=source,
            )
        return self._ids[hash_]

    def tell(self, context: LoadContext) -> None:
        """Hand the hosts and processes of the ranks that are certain to the trace."""
        for hash_ in self.world():
            for rank, (host, pid) in sorted(self._comms[hash_].ranks.items()):
                if host and rank not in self._comms[hash_].conflicts:
                    context.rank(rank, host=host, pid=pid)
