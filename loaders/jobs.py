"""Which files belong to one job: evidence of several, put into one folder, must not be mixed.

A rank is a number, and every job counts from 0. Files are of different jobs only where they contradict each other: they
lie days apart, one rank is two processes on two hosts, or it stopped in two operations of one group. Where nothing
contradicts, all is one job. Folders and archives are taken as wholes; what names no rank goes with those that share
a host with it, else with all.

Files that do not contradict may still share nothing: a console without hosts, and logs of another job. `Jobs.parts` are
the sides of a job that nothing joins although both speak of the same ranks; the analysis judges them apart as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import polars as pl

# Clocks without a zone differ by up to 14 h, and a job's evidence is collected on the day after.
APART_NS: Final = 36 * 3_600_000_000_000
# Before this a time counts from the start of a process or a machine.
_EPOCH_NS: Final = 978_307_200_000_000_000
# Sides of one job that have this many ranks in common and share no host, communicator or time may be two jobs.
_LEAST_SHARED: Final = 2
# Evidence of one trouble is written within hours of it.
_NEAR_NS: Final = 3_600_000_000_000
MOST_PARTS: Final = 4
_MOST_FACTS: Final = 1_000_000
_MOST_UNITS: Final = 400
_TIMES: Final = {"events": "ts", "coll_ops": "start_ts", "stacks": "ts"}
_NOWHERE: Final = re.compile(r"localhost|127\..*|ip6-.*")


@dataclass(slots=True)
class Facts:
    """What rows of a file, or of several, tell about their job."""

    first: int | None = None
    last: int | None = None
    ranked: bool = False
    ranks: set[int] = field(default_factory=lambda: set[int]())
    pids: set[tuple[int, int]] = field(default_factory=lambda: set[tuple[int, int]]())
    """(rank, process id), whatever the host."""
    hosts: set[str] = field(default_factory=lambda: set[str]())
    comms: set[str] = field(default_factory=lambda: set[str]())
    processes: dict[int, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))
    """rank -> (host, pid); pid -1: not known."""
    size: int = 0
    """Members of the largest communicator."""
    members: dict[int, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))
    """The same for ranks inside that."""
    stops: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """rank -> numbers of operations that timed out."""

    def add(self, other: Facts) -> None:
        """Take in what another file says."""
        self.first = min(_known(self.first, other.first), default=None)
        self.last = max(_known(self.last, other.last), default=None)
        self.ranked |= other.ranked
        self.ranks |= other.ranks
        self.pids |= other.pids
        self.hosts |= other.hosts
        self.comms |= other.comms
        for rank, found in other.processes.items():
            self.processes[rank] |= found
        for rank, numbers in other.stops.items():
            self.stops[rank] |= numbers
        if other.size > self.size:
            self.size = other.size
            self.members.clear()
        if other.size == self.size:
            for rank, found in other.members.items():
                self.members[rank] |= found

    def contradicts(self, other: Facts) -> bool:
        """Say whether both cannot be of one job."""
        begins, ends = _known(self.first, other.first), _known(self.last, other.last)
        if len(begins) == 2 and max(begins) - min(ends) > APART_NS:
            return True
        if self.comms & other.comms:
            return False
        # A rank may wait in several groups, but then each of its logs tells of the first.
        if any(not numbers & other.stops[rank] for rank, numbers in self.stops.items() if rank in other.stops):
            return True
        if _other_processes(self.processes, other.processes):
            return True
        # Where hosts are shared, ranks inside groups may have been taken for ranks of the job.
        return not self.hosts & other.hosts and (
            _other_layout(self.places(), other.places())
            or _other_processes(self.processes, other.members)
            or _other_processes(self.members, other.processes)
            or (self.size == other.size and _other_processes(self.members, other.members))
        )

    def places(self) -> dict[int, set[str]]:
        """Return the hosts of each rank; where no line names one, of each rank inside the greatest communicator."""
        return {rank: {host for host, _ in found} for rank, found in (self.processes or self.members).items()}

    def related(self, other: Facts) -> bool:
        """Say whether both speak of one host, communicator or process."""
        return bool(self.hosts & other.hosts or self.comms & other.comms or self.pids & other.pids)

    def joined(self, other: Facts) -> bool:
        """Say whether anything joins both: a host, communicator, process, a time, or the ranks that the other lacks."""
        if self.related(other) or len(self.ranks & other.ranks) < _LEAST_SHARED:
            return True
        begins, ends = _known(self.first, other.first), _known(self.last, other.last)
        return len(begins) == 2 and max(begins) - min(ends) <= _NEAR_NS


@dataclass(frozen=True, slots=True)
class Jobs:
    """Which files belong together, each list in the order of the numbers of files."""

    jobs: list[list[int]]
    """The files of each job; one that names no rank may be in several."""
    parts: list[list[int]] = field(default_factory=lambda: list[list[int]]())
    """Of the first job: the sides that nothing joins; empty where all are joined."""


Processes = Mapping[int, set[tuple[str, int]]]


def _other_processes(mine: Processes, theirs: Processes) -> bool:
    """Say whether one rank is two processes on two hosts."""
    for rank, found in mine.items():
        other = theirs.get(rank, set())
        pids = {pid for _, pid in found if pid >= 0}
        there = {pid for _, pid in other if pid >= 0}
        apart = {host for host, _ in found}.isdisjoint(host for host, _ in other)
        if apart and pids and there and pids.isdisjoint(there):
            return True
    return False


def _other_layout(mine: Mapping[int, set[str]], theirs: Mapping[int, set[str]]) -> bool:
    """Say whether ranks share a host here and not there: other names of the same hosts would keep them together."""
    pairs = {
        (next(iter(mine[rank])), next(iter(theirs[rank])))
        for rank in mine.keys() & theirs.keys()
        if len(mine[rank]) == 1 and len(theirs[rank]) == 1
    }
    return len({here for here, _ in pairs}) != len(pairs) or len({there for _, there in pairs}) != len(pairs)


def _known(*times: int | None) -> list[int]:
    return [time for time in times if time is not None]


class JobFinder:
    """Collects facts while rows arrive; `jobs` tells which files belong together."""

    def __init__(self) -> None:
        self._facts: dict[int, Facts] = defaultdict(Facts)
        self._host_ids: dict[int, set[int]] = defaultdict(set)
        self._writers: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
        self._members: dict[int, set[tuple[int, int, int, int]]] = defaultdict(set)
        self._count = 0

    def see(self, table: str, frame: pl.DataFrame) -> None:
        """Take what rows of `table` say; ids of hosts are provisional."""
        if table not in _TIMES or "file_id" not in frame.columns or self._count > _MOST_FACTS:
            return
        columns = set(frame.columns)
        time = _TIMES[table]
        if time in columns:
            stamp = pl.col(time).cast(pl.Int64)
            known = frame.filter(stamp > _EPOCH_NS)
            spans = known.group_by("file_id").agg(stamp.min().alias("first"), stamp.max().alias("last"))
            for file_id, first, last in spans.iter_rows():
                self._facts[file_id].add(Facts(first, last))
        inside = [name for name in ("rank", "comm_rank", "local_rank") if name in columns]
        for name in {"rank", "comm_rank"} & columns:
            for file_id, rank in frame.select("file_id", name).drop_nulls().unique().iter_rows():
                self._facts[file_id].ranks.add(rank)
                self._count += 1
        if {"rank", "pid"} <= columns:
            for file_id, rank, pid in frame.select("file_id", "rank", "pid").drop_nulls().unique().iter_rows():
                self._facts[file_id].pids.add((rank, int(pid)))
                self._count += 1
        if inside:
            named = frame.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in inside))
            for file_id in named["file_id"].unique():
                self._facts[file_id].ranked = True
        if table == "events":
            self._see_events(frame, columns)

    def _see_events(self, frame: pl.DataFrame, columns: set[str]) -> None:
        if "host_id" in columns:
            for file_id, host in frame.select("file_id", "host_id").drop_nulls().unique().iter_rows():
                self._host_ids[file_id].add(host)
                self._count += 1
        if {"rank", "host_id"} <= columns:
            pid = pl.col("pid").cast(pl.Int64).fill_null(-1) if "pid" in columns else pl.lit(-1, pl.Int64).alias("pid")
            said = frame.select("file_id", "rank", "host_id", pid).drop_nulls().unique()
            for file_id, rank, host, number in said.iter_rows():
                self._writers[file_id].add((rank, host, number))
                self._count += 1
        if {"kind", "comm_rank", "host_id", "pid", "value"} <= columns:
            born = frame.filter(pl.col("kind").cast(pl.String) == "comm_init")
            for file_id, size, rank, host, number in (
                born.select("file_id", "value", "comm_rank", "host_id", "pid").drop_nulls().unique().iter_rows()
            ):
                self._members[file_id].add((int(size), rank, host, number))
                self._count += 1
        if "group_name" in columns:
            hashes = frame.filter(pl.col("group_name").str.contains(r"^0x[0-9a-f]{7,}$"))
            for file_id, name in hashes.select("file_id", "group_name").unique().iter_rows():
                self._facts[file_id].comms.add(name)
                self._count += 1
        if {"kind", "seq"} <= columns and columns & {"rank", "comm_rank"}:
            who = pl.coalesce(name for name in ("rank", "comm_rank") if name in columns)
            stops = frame.filter(pl.col("kind").cast(pl.String) == "watchdog_timeout").select(
                "file_id", who.alias("who"), "seq"
            )
            for file_id, rank, seq in stops.drop_nulls().unique().iter_rows():
                self._facts[file_id].stops[rank].add(seq)
                self._count += 1

    def jobs(self, files: Mapping[int, str], hosts: Sequence[str]) -> Jobs:
        """Return which files belong together; one job where nothing contradicts."""
        whole = sorted(files)
        if self._count > _MOST_FACTS:
            return Jobs([whole])
        units = self._units(files, hosts)
        ranked = [name for name in sorted(units) if units[name][1].ranked]
        if len(ranked) < 2 or len(ranked) > _MOST_UNITS:
            return Jobs([whole])
        sides = _gathered([units[name] for name in ranked], closely=True)
        jobs = _gathered(sides, closely=False)
        unranked = [units[name] for name in sorted(units) if name not in ranked]
        parts: list[Side] = []
        if len(jobs) == 1:
            parts = _gathered(sides, closely=False, joined=True)
            parts = parts if len(parts) <= MOST_PARTS else []
        return Jobs(_with_unranked(jobs, unranked) or [whole], _with_unranked(parts, unranked))

    def _units(self, files: Mapping[int, str], hosts: Sequence[str]) -> dict[str, tuple[list[int], Facts]]:
        """Return files and facts by folder or archive at the first level where names differ, else by file."""
        paths = {file_id: re.split(r"[/!]", name) for file_id, name in files.items()}
        shared = 0
        shortest = min((len(parts) for parts in paths.values()), default=0)
        while shared < shortest - 1 and len({parts[shared] for parts in paths.values()}) == 1:
            shared += 1
        units: dict[str, tuple[list[int], Facts]] = {}
        for file_id, parts in sorted(paths.items()):
            unit = units.setdefault(parts[shared] if parts else "", (list[int](), Facts()))
            unit[0].append(file_id)
            unit[1].add(self._of_file(file_id, hosts))
        return units

    def _of_file(self, file_id: int, hosts: Sequence[str]) -> Facts:
        facts = self._facts[file_id]
        facts.hosts |= {_short(hosts[i]) for i in self._host_ids[file_id]} - {""}
        for rank, host, pid in self._writers[file_id]:
            facts.processes[rank].add((_short(hosts[host]), pid))
        for size, rank, host, pid in sorted(self._members[file_id], reverse=True):
            facts.size = max(facts.size, size)
            if size == facts.size:
                facts.members[rank].add((_short(hosts[host]), pid))
        return facts


Side = tuple[list[int], Facts]
"""Files, and what they tell together."""


def _gathered(units: Sequence[Side], *, closely: bool, joined: bool = False) -> list[Side]:
    """Put what does not contradict together, in the order given.

    `closely`: only what speaks of one host or communicator, for together they say more against others. `joined`: only
    what anything joins.
    """
    found: list[Side] = []
    for members, facts in units:
        fitting = [side for side in found if not side[1].contradicts(facts)]
        if joined:
            fitting = [side for side in fitting if side[1].joined(facts)]
        near = [side for side in fitting if side[1].related(facts)]
        side = next(iter(near if closely else [*near, *fitting]), None)
        if side is None:
            side = (list[int](), Facts())
            found.append(side)
        side[0].extend(members)
        side[1].add(facts)
    return found


def _with_unranked(sides: Sequence[Side], unranked: Sequence[Side]) -> list[list[int]]:
    """Return the files of each side and what goes with it without naming a rank; empty where there is one side only."""
    if len(sides) < 2:
        return []
    found = [list(members) for members, _ in sides]
    for members, facts in unranked:
        near = [i for i, (_, side) in enumerate(sides) if side.related(facts)]
        for i in near or range(len(sides)):
            found[i].extend(members)
    return [sorted(members) for members in found]


def _short(host: str) -> str:
    """Return the name of a host without its domain; empty for one that every machine has."""
    name = host if re.fullmatch(r"[\d.]+", host) else host.partition(".")[0].lower()
    return "" if _NOWHERE.fullmatch(name) else name
