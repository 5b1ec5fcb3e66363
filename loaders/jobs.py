"""Which files belong to one job: evidence of several, put into one folder, must not be mixed.

A rank is a number, and every job counts from 0. Files are of different jobs only where they contradict each other: they
lie days apart, one rank is two processes on two hosts, it stopped in two operations of one group, or torchrun has put
them into the folders of two starts of its workers (`attempt_0`, `attempt_1`, …). Where nothing contradicts, all is one
job. Folders and archives are taken as wholes; what fits several jobs goes with those that share a host with it, that
were written within the hour, or whose files are named like it, in this order; what names no rank and fits several still
goes with all.

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

from mycroft.loaders.host_names import hosts_of_files

# Clocks without a zone differ by up to 14 h, and a job's evidence is collected on the day after.
APART_NS: Final = 36 * 3_600_000_000_000
# Before this a time counts from the start of a process or a machine.
_EPOCH_NS: Final = 978_307_200_000_000_000
# Sides of one job that have this many ranks in common and share no host, communicator or time may be two jobs.
_LEAST_SHARED: Final = 2
# Evidence of one trouble is written within hours of it.
_NEAR_NS: Final = 3_600_000_000_000
# A year without its leap day: of a time that names none the year is a guess.
_YEAR_NS: Final = 365 * 86_400_000_000_000
MOST_PARTS: Final = 4
_MOST_FACTS: Final = 1_000_000
_MOST_UNITS: Final = 400
_MOST_NAMES: Final = 16
_TIMES: Final = {"events": "ts", "coll_ops": "start_ts", "stacks": "ts"}
_WORDS: Final = re.compile(r"[^a-z0-9]+")
_DIGITS: Final = re.compile(r"\d+")
# torchrun's folder of logs: one of each start of the workers under the name of the run.
_ATTEMPT: Final = re.compile(r"(?P<run>(?:.*[/!])?)attempt_(?P<n>\d{1,6})[/!]")
_NOWHERE: Final = re.compile(r"localhost|127\..*|ip6-.*")


@dataclass(slots=True)
class Facts:
    """What rows of a file, or of several, tell about their job."""

    first: int | None = None
    last: int | None = None
    guessed: tuple[int, int] | None = None
    """First and last of the times whose year is a guess."""
    names: set[tuple[str, ...]] = field(default_factory=lambda: set[tuple[str, ...]]())
    """The words of the names of its files."""
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
    groups: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Size of a communicator of which a profiler tells members -> their ranks in it."""
    stops: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """rank -> numbers of operations that timed out."""
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    """Folder of an elastic run -> which start of its workers."""

    def add(self, other: Facts) -> None:
        """Take in what another file says."""
        self.first = min(_known(self.first, other.first), default=None)
        self.last = max(_known(self.last, other.last), default=None)
        guesses = [span for span in (self.guessed, other.guessed) if span is not None]
        self.guessed = (min(a for a, _ in guesses), max(b for _, b in guesses)) if guesses else None
        self.names |= set(sorted(other.names)[: _MOST_NAMES - len(self.names)])
        self.ranked |= other.ranked
        self.ranks |= other.ranks
        self.pids |= other.pids
        self.hosts |= other.hosts
        self.comms |= other.comms
        self.attempts |= other.attempts
        for rank, found in other.processes.items():
            self.processes[rank] |= found
        for rank, numbers in other.stops.items():
            self.stops[rank] |= numbers
        for size, ranks in other.groups.items():
            self.groups[size] |= ranks
        if other.size > self.size:
            self.size = other.size
            self.members.clear()
        if other.size == self.size:
            for rank, found in other.members.items():
                self.members[rank] |= found

    def contradicts(self, other: Facts) -> bool:
        """Say whether both cannot be of one job, or not of one start of it."""
        if any(other.attempts.get(run, attempt) != attempt for run, attempt in self.attempts.items()):
            return True
        if (apart := self.apart_ns(other)) is not None and apart > APART_NS:
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
            or 0 < self.whole() != other.whole() > 0
        )

    def apart_ns(self, other: Facts) -> int | None:
        """Return how far apart both lie in time, 0 where they overlap; None where one of them has no times.

        Where the year of one is a guess, it is moved into the year of the other.
        """
        mine, theirs = self._span(), other._span()
        if mine is None or theirs is None:
            return None
        shift = 0
        if self.first is None or other.first is None:
            shift = round((sum(mine) - sum(theirs)) / 2 / _YEAR_NS) * _YEAR_NS
        return max(0, max(mine[0], theirs[0] + shift) - min(mine[1], theirs[1] + shift))

    def _span(self) -> tuple[int, int] | None:
        if self.first is None or self.last is None:
            return self.guessed
        return self.first, self.last

    def whole(self) -> int:
        """Return the size of its largest communicator where all members are known, else 0.

        Groups of one job that share no host are of one size; two such of different sizes are two jobs.
        """
        if self.size and self.size >= max(self.groups, default=0):
            return self.size if self.size > 1 and len(self.members) == self.size else 0
        size = max(self.groups, default=0)
        return size if size > 1 and len(self.groups[size]) == size else 0

    def lacks(self, other: Facts) -> bool:
        """Say whether all members of its largest communicator are known and the other has a rank beyond them."""
        return 0 < self.whole() <= max(other.ranks, default=0)

    def affinity(self, other: Facts) -> tuple[bool, bool, int]:
        """Return how much speaks for one job of both, more is greater: relation, nearness in time, names alike."""
        apart = self.apart_ns(other)
        return self.related(other), apart is not None and apart <= _NEAR_NS, self.alike(other)

    def alike(self, other: Facts) -> int:
        """Return how many words the names of two files of theirs begin with, at most."""
        return max((_shared_words(one, two) for one in self.names for two in other.names), default=0)

    def places(self) -> dict[int, set[str]]:
        """Return the hosts of each rank; where no line names one, of each rank inside the greatest communicator."""
        return {rank: {host for host, _ in found} for rank, found in (self.processes or self.members).items()}

    def related(self, other: Facts) -> bool:
        """Say whether both speak of one host, communicator or process, or are of one series: a file for each rank."""
        if self.hosts & other.hosts or self.comms & other.comms or self.pids & other.pids:
            return True
        return bool(self.series() & other.series()) and not self.ranks & other.ranks

    def series(self) -> set[tuple[str, ...]]:
        """Return the names of files without their numbers."""
        return {tuple(_DIGITS.sub("#", word) for word in name) for name in self.names if _DIGITS.search(" ".join(name))}

    def joined(self, other: Facts) -> bool:
        """Say whether anything joins both: a host, communicator, process, a time, or the ranks that the other lacks."""
        if self.related(other):
            return True
        # With hosts of its own, each side has a rank 0 of its own; a whole world has no ranks outside.
        hosts = bool(self.hosts and other.hosts)
        outside = hosts and (self.lacks(other) or other.lacks(self))
        if not outside and len(self.ranks & other.ranks) < (1 if hosts else _LEAST_SHARED):
            return True
        return (apart := self.apart_ns(other)) is not None and apart <= _NEAR_NS


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


def _shared_words(one: Sequence[str], two: Sequence[str]) -> int:
    """Return how many words both begin with."""
    return next(
        (i for i, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), min(len(one), len(two))
    )


def _known(*times: int | None) -> list[int]:
    return [time for time in times if time is not None]


class JobFinder:
    """Collects facts while rows arrive; `jobs` tells which files belong together."""

    def __init__(self) -> None:
        # Facts of files that tell about a rank alone: a bundle may hold a million others.
        self._facts: dict[int, Facts] = defaultdict(Facts)
        self._ranked: set[int] = set()
        self._spans: dict[tuple[int, bool], tuple[int, int]] = {}
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
            guess = (
                (pl.col("time_quality").cast(pl.String) == "year_assumed").fill_null(value=False)
                if "time_quality" in columns
                else pl.lit(value=False)
            ).alias("guess")
            known = frame.filter(stamp > _EPOCH_NS)
            spans = known.group_by("file_id", guess).agg(stamp.min().alias("first"), stamp.max().alias("last"))
            for file_id, guessed, first, last in spans.iter_rows():
                before = self._spans.get((file_id, guessed), (first, last))
                self._spans[file_id, guessed] = min(before[0], first), max(before[1], last)
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
            self._ranked.update(named["file_id"].unique())
        if table == "events":
            self._see_events(frame, columns)

    def process(self, file_id: int, rank: int, pid: int) -> None:
        """Take that a file says which process a rank is, where no row says it."""
        if self._count <= _MOST_FACTS:
            self._facts[file_id].pids.add((rank, pid))
            self._count += 1

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
        if {"kind", "detail", "group_name", "comm_rank"} <= columns:
            size = pl.col("detail").str.extract(r"^(\d{1,7}) ranks$").cast(pl.Int64).alias("size")
            members = frame.filter(pl.col("kind").cast(pl.String) == "op_perf").select(
                "file_id", "group_name", "comm_rank", size
            )
            for file_id, group, rank, ranks in members.drop_nulls().unique().iter_rows():
                self._facts[file_id].groups[ranks].add(rank)
                self._facts[file_id].comms.add(group)
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
        if self._count > _MOST_FACTS or len(self._ranked & files.keys()) < 2:
            return Jobs([whole])
        units = self._units(files, hosts)
        ranked = [name for name in sorted(units) if units[name][1].ranked]
        if len(ranked) < 2 or len(ranked) > _MOST_UNITS:
            return Jobs([whole])
        sides = _gathered([units[name] for name in ranked], closely=True)
        # What contradicts another goes first, so that what fits several finds all of them.
        contested = [any(one is not two and one[1].contradicts(two[1]) for two in sides) for one in sides]
        ordered = [
            side for wanted in (True, False) for side, is_so in zip(sides, contested, strict=True) if is_so == wanted
        ]
        jobs = _gathered(ordered, closely=False)
        unranked = [units[name] for name in sorted(units) if name not in ranked]
        parts: list[Side] = []
        if len(jobs) == 1:
            parts = _gathered(sides, closely=False, joined=True)
            parts = parts if len(parts) <= MOST_PARTS else []
        return Jobs(_with_unranked(jobs, unranked) or [whole], _with_unranked(parts, unranked))

    def _units(self, files: Mapping[int, str], hosts: Sequence[str]) -> dict[str, tuple[list[int], Facts]]:
        """Return files and facts by folder or archive at the first level where names differ, else by file.

        The starts of an elastic job, each in a folder of its own, are units of their own wherever they lie.
        """
        named = hosts_of_files(files, hosts)
        paths = {file_id: re.split(r"[/!]", name) for file_id, name in files.items()}
        shared = 0
        shortest = min((len(parts) for parts in paths.values()), default=0)
        while shared < shortest - 1 and len({parts[shared] for parts in paths.values()}) == 1:
            shared += 1
        units: dict[str, tuple[list[int], Facts]] = {}
        for file_id, parts in sorted(paths.items()):
            start = _ATTEMPT.match(files[file_id])
            name = start[0] if start is not None else parts[shared] if parts else ""
            unit = units.setdefault(name, (list[int](), Facts()))
            if start is not None:
                unit[1].attempts[start["run"]] = int(start["n"])
            unit[0].append(file_id)
            facts = self._of_file(file_id, hosts)
            if not facts.hosts and file_id in named:
                facts.hosts |= {_short(hosts[named[file_id]])} - {""}
            facts.names = {tuple(_WORDS.split(parts[shared].lower() if parts else ""))}
            unit[1].add(facts)
        return units

    def _of_file(self, file_id: int, hosts: Sequence[str]) -> Facts:
        facts = self._facts.get(file_id) or Facts()
        facts.ranked = file_id in self._ranked
        facts.first, facts.last = self._spans.get((file_id, False), (None, None))
        facts.guessed = self._spans.get((file_id, True))
        facts.hosts |= {_short(hosts[i]) for i in self._host_ids.get(file_id, ())} - {""}
        for rank, host, pid in self._writers.get(file_id, ()):
            facts.processes[rank].add((_short(hosts[host]), pid))
        for size, rank, host, pid in sorted(self._members.get(file_id, ()), reverse=True):
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
    # Words that all names begin with say nothing of any two.
    common = min((one.alike(two) for _, one in units for _, two in units), default=0) if joined else 0
    for members, facts in units:
        fitting = [side for side in found if not side[1].contradicts(facts)]
        if joined:
            fitting = [side for side in fitting if side[1].joined(facts) or side[1].alike(facts) > common]
        if closely:
            fitting = [side for side in fitting if side[1].related(facts)]
        side = max(fitting, key=lambda side: side[1].affinity(facts), default=None)
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
        fits = [side.affinity(facts) for _, side in sides]
        best = max(fits)
        for i, fit in enumerate(fits):
            if fit == best or (best[0] and fit[0]):
                found[i].extend(members)
    return [sorted(members) for members in found]


def _short(host: str) -> str:
    """Return the name of a host without its domain; empty for one that every machine has."""
    name = host if re.fullmatch(r"[\d.]+", host) else host.partition(".")[0].lower()
    return "" if _NOWHERE.fullmatch(name) else name
