"""From ranks inside communicators to global ranks, for the sources that know only processes and communicators.

NCCL, its profilers and RAS name a process by (host, pid) and give its rank inside each communicator. The greatest
communicator is the world if it holds every process that was seen; its ranks are the global ranks. A job that was
restarted has a world per start: they are told from two halves of one job by the GPUs, which two halves never share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

# Host and process id. An empty host stands for a process of which no more is known than its file (the number).
Process = tuple[str, int]
MAX_RANKS: Final = 1 << 20


def hash_name(hash_: int) -> str:
    """Return the name we give to a communicator that is known by its hash only."""
    return f"0x{hash_:x}"


class Names(Protocol):
    """What is asked of the context of a load; `LoadContext` has it."""

    def comm(
        self,
        name: str,
        *,
        ranks: Sequence[int] | None = None,
        desc: str | None = None,
        hash_: int | None = None,
        backend: str | None = None,
        source: str = "dump",
        of_rank: int | None = None,
    ) -> int:
        """Return the provisional id of a communicator."""
        ...

    def rank(self, rank: int, **facts: int | str | None) -> None:
        """Add what is known of a rank."""
        ...

    def job(self, **facts: int | str | None) -> None:
        """Add what is known of the job."""
        ...


@dataclass(slots=True)
class _Comm:
    size: int | None = None
    hash: int | None = None
    desc: str | None = None
    ranks: dict[int, Process] = field(default_factory=lambda: dict[int, Process]())
    devices: set[tuple[str, str]] = field(default_factory=lambda: set[tuple[str, str]]())
    conflicts: set[int] = field(default_factory=lambda: set[int]())


class CommRanks:
    """Collects who has which rank in which communicator and answers with global ranks where that is certain.

    Communicators are named by `hash_name` or by any other name that is the same on all members.
    """

    def __init__(self) -> None:
        self._comms: dict[str, _Comm] = {}
        self._world: tuple[str, ...] | None = None
        self._ranks: dict[Process, int] | None = None
        self._ids: dict[str, int] = {}
        self._told: dict[Process, int] = {}
        self._at_least = 0

    def see(
        self,
        name: str | int,
        size: int | None,
        comm_rank: int,
        process: Process | None,
        *,
        desc: str | None = None,
        device: str | None = None,
    ) -> None:
        """Note one member of one communicator, named by text or by hash. What does not fit is ignored."""
        if comm_rank < 0 or comm_rank >= MAX_RANKS or (size is not None and not comm_rank < size <= MAX_RANKS):
            return
        key = hash_name(name) if isinstance(name, int) else name
        comm = self._comms.setdefault(key, _Comm())
        if isinstance(name, int):
            comm.hash = name
        elif name.startswith("0x") and "/" not in name:
            comm.hash = int(name, 16)
        comm.size = max(comm.size or 0, size) if size is not None else comm.size
        comm.desc = comm.desc or desc
        if process is not None:
            known = comm.ranks.setdefault(comm_rank, process)
            if known != process:
                comm.conflicts.add(comm_rank)
            if device is not None:
                comm.devices.add((process[0], device))
        self._world = self._ranks = None

    def told(self, process: Process, rank: int) -> None:
        """Note that another source knows the global rank of a process."""
        self._told.setdefault(process, rank)
        self._at_least = max(self._at_least, rank + 1)
        self._world = self._ranks = None

    def at_least(self, size: int) -> None:
        """Note that the job has at least `size` ranks, whoever they are."""
        self._at_least = max(self._at_least, size)
        self._world = self._ranks = None

    def world(self) -> tuple[str, ...]:
        """Return the names of the communicators that hold everybody; empty where none is sure."""
        if self._world is None:
            self._world = self._find_world()
        return self._world

    def _find_world(self) -> tuple[str, ...]:
        # Where no source gives the size, the highest rank seen is the least it can be.
        sizes = {name: c.size or max(c.ranks, default=-1) + 1 for name, c in self._comms.items()}
        if not sizes:
            return ()
        greatest = max(sizes.values())
        found = sorted(name for name, size in sizes.items() if size == greatest)
        if greatest < max(self._at_least, 1):
            return ()
        runs: list[tuple[dict[Process, int], set[tuple[str, str]]]] = []
        for name in found:
            comm = self._comms[name]
            ranks = {p: r for r, p in comm.ranks.items()}
            if any(self._told.get(p, r) != r for p, r in ranks.items()):
                # A group as large as the world that counts in another order.
                found = [other for other in found if other != name]
                continue
            same = next((run for run in runs if run[0].keys() & ranks.keys()), None)
            if same is None:
                runs.append((dict(ranks), set(comm.devices)))
            elif any(same[0].get(p, r) != r for p, r in ranks.items()):
                return ()
            else:
                same[0].update(ranks)
                same[1].update(comm.devices)
        for i, (_ranks, devices) in enumerate(runs):
            # Two that share nobody are two starts of one job if they share a GPU, else two jobs or two halves of one.
            if any(not devices & others for _other, others in runs[:i]):
                return ()
        seen = {p for c in self._comms.values() for p in c.ranks.values()}
        if len(seen) > greatest * max(len(runs), 1):
            return ()
        return tuple(found)

    def ranks(self) -> dict[Process, int]:
        """Return the global rank of every process of which it is certain."""
        if self._ranks is None:
            self._ranks = {}
            for name in self.world():
                comm = self._comms[name]
                for rank, process in comm.ranks.items():
                    if rank not in comm.conflicts:
                        self._ranks[process] = rank
            self._ranks.update(self._told)
        return self._ranks

    def rank_of(self, process: Process) -> int | None:
        """Return the global rank of a process, None where it is not certain."""
        return self.ranks().get(process)

    def global_rank(self, name: str | int, comm_rank: int) -> int | None:
        """Return the global rank of a member, None where it is not certain."""
        key = hash_name(name) if isinstance(name, int) else name
        if key in self.world():
            return comm_rank
        comm = self._comms.get(key)
        process = comm.ranks.get(comm_rank) if comm and comm_rank not in comm.conflicts else None
        return self.rank_of(process) if process else None

    def members(self, name: str | int) -> list[int] | None:
        """Return all members as global ranks in order of their rank inside; None where one is not known."""
        key = hash_name(name) if isinstance(name, int) else name
        comm = self._comms.get(key)
        if comm is None or not comm.size:
            return None
        if key in self.world():
            return list(range(comm.size))
        if len(comm.ranks) < comm.size:
            return None
        known = [r for i in range(comm.size) if (r := self.global_rank(key, i)) is not None]
        return known if len(set(known)) == comm.size else None

    def names(self) -> list[str]:
        """Return the names of all communicators that were seen."""
        return sorted(self._comms)

    def comm_id(self, context: Names, name: str | int, *, source: str = "log") -> int:
        """Return the trace's id of a communicator, with its members where all are known."""
        key = hash_name(name) if isinstance(name, int) else name
        if key not in self._ids:
            comm = self._comms.get(key)
            self._ids[key] = context.comm(
                key,
                ranks=self.members(key),
                desc=comm.desc if comm else None,
                hash_=comm.hash if comm else name if isinstance(name, int) else None,
                backend="nccl",
                source=source,
            )
        return self._ids[key]

    def tell(self, context: Names, reason: str) -> None:
        """Hand the hosts and processes of the ranks that are certain to the trace."""
        for name in self.world():
            context.job(world_size=self._comms[name].size)
            for rank, (host, pid) in sorted(self._comms[name].ranks.items()):
                if host and rank not in self._comms[name].conflicts:
                    context.rank(rank, host=host, pid=pid, reason=reason)

    def processes(self, names: Iterable[str] | None = None) -> list[tuple[str, int, Process]]:
        """Return (communicator, rank inside, process) of every member that was seen."""
        chosen = self.names() if names is None else list(names)
        return [(n, r, p) for n in chosen for r, p in sorted(self._comms[n].ranks.items())]
