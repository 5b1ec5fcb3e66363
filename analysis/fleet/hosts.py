"""Hosts over time, from the roll-ups of minutes: the heat map of a fleet, and who stands out in job after job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np
import pyarrow

from mycroft.analysis.fleet.seam import Measure, Reduction, Table, Window

pa: Any = pyarrow

ROLLUP: Final = "host_minute"
HEAT_COLUMNS: Final = ("idle_max_ms", "late_max_ms", "open_ops_max", "errors", "lost_rows", "net_max_ns")
MOST_BINS: Final = 200
_MINUTE_NS: Final = 60_000_000_000
_SINGLE_MINUTES: Final = 5
# A host needs this many operations or flows in a job for its means to say anything.
_LEAST: Final = 100
_LEAST_HOSTS: Final = 4
_RATIO: Final = 1.3
_DEVIATIONS: Final = 5.0
# Median absolute deviation to standard deviation, of a normal distribution.
_SIGMA: Final = 1.4826
_MOST: Final = (1 << 63) - 1
_NEVER: Final = -1
_AT_ONCE: Final = 8192


def bin_width_ns(span_ns: int) -> int:
    """Return the width of a bin that cuts a span into at most `MOST_BINS`: whole minutes, or tens of minutes.

    Of long spans it is tens, for files have the greatest of ten minutes ready.
    """
    minutes = max(1, -(-span_ns // (_MINUTE_NS * MOST_BINS)))
    return (minutes if minutes <= _SINGLE_MINUTES else -(-minutes // 10) * 10) * _MINUTE_NS


_SUMS: Final = (
    "ops",
    "timed",
    "dur_sum_ns",
    "flows",
    "flow_bytes",
    "net_sum_ns",
    "peer_wait_sum_ns",
    "post_delay_sum_ns",
    "gpu_hold_sum_ns",
    "lost_rows",
    "errors",
)
HEALTH: Final = Reduction(
    name="health",
    table=ROLLUP,
    time="minute",
    keys=("host", "job"),
    measures=(
        Measure("minutes", "count"),
        Measure("processes", "max", "processes"),
        *(Measure(name, "sum", name) for name in _SUMS),
        Measure("idle_max_ms", "max", "idle_max_ms"),
    ),
    types={
        "host": pa.string(),
        "job": pa.string(),
        "minutes": pa.int64(),
        "processes": pa.uint32(),
        **{name: pa.uint64() for name in _SUMS},
        "idle_max_ms": pa.uint32(),
    },
)
"""What a host did and waited in each job."""


@dataclass(frozen=True, slots=True)
class _Trait:
    """A ratio that is about the same for all hosts of a job; `slow_is_low`: who is slow makes the others wait."""

    name: str
    what: str
    over: str
    under: str
    slow_is_low: bool = False


TRAITS: Final = (
    _Trait("compute", "the others of its job wait for it", "dur_sum_ns", "timed", slow_is_low=True),
    _Trait("gpu", "its GPUs hold what has come longer than those of its peers", "gpu_hold_sum_ns", "flows"),
    _Trait("proxy", "its proxies post buffers later than those of its peers", "post_delay_sum_ns", "flows"),
    _Trait("network", "a byte takes its network longer than that of its peers", "net_sum_ns", "flow_bytes"),
)


@dataclass(frozen=True, slots=True)
class StandsOut:
    """A host that differs from its peers in several jobs. `ratio`: to the median host, in the job where it is least."""

    host: str
    trait: str
    what: str
    jobs: tuple[str, ...]
    of_jobs: int
    """Jobs it was in, of those that can be compared."""
    ratio: float


def stand_out(health: Iterable[Mapping[str, Any]]) -> tuple[StandsOut, ...]:
    """Return the hosts that stand out in at least two jobs, and in more than half of those they were in.

    One job is not enough: which stage of a pipeline a host works on makes as large a difference as a slow GPU. Hosts
    that have the same place in every job can look alike, so this says where to look and blames nobody.

    Args:
        health: rows of `HEALTH`.
    """
    by_job: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in health:
        if row["job"]:
            by_job[row["job"]].append(row)
    found: dict[tuple[str, _Trait], dict[str, float]] = defaultdict(dict)
    compared: dict[tuple[str, _Trait], int] = defaultdict(int)
    for job, rows in by_job.items():
        for trait in TRAITS:
            values = {row["host"]: value for row in rows if (value := _value(row, trait)) is not None}
            if len(values) < _LEAST_HOSTS:
                continue
            for host in values:
                compared[host, trait] += 1
            for host, ratio in _outliers(values, slow_is_low=trait.slow_is_low).items():
                found[host, trait][job] = ratio
    said = [
        StandsOut(host, trait.name, trait.what, tuple(sorted(jobs)), compared[host, trait], min(jobs.values()))
        for (host, trait), jobs in found.items()
        if len(jobs) >= 2 and 2 * len(jobs) > compared[host, trait]
    ]
    return tuple(sorted(said, key=lambda s: (-len(s.jobs), -s.ratio, s.host, s.trait)))


def _value(row: Mapping[str, Any], trait: _Trait) -> float | None:
    count = row["timed" if trait.under == "timed" else "flows"] or 0
    over, under = row[trait.over], row[trait.under]
    if count < _LEAST or over is None or not under:
        return None
    return float(over) / float(under)


def _outliers(values: Mapping[str, float], *, slow_is_low: bool) -> dict[str, float]:
    ordinary = median(values.values())
    spread = _SIGMA * median(abs(value - ordinary) for value in values.values())
    found: dict[str, float] = {}
    for host, value in values.items():
        far = (ordinary - value) if slow_is_low else (value - ordinary)
        low, high = (value, ordinary) if slow_is_low else (ordinary, value)
        if far > _DEVIATIONS * spread and high >= _RATIO * low and high > 0:
            found[host] = high / low if low > 0 else float("inf")
    return found


@dataclass(frozen=True, slots=True)
class Grid:
    """A value of each host, in the order of names, in each bin of time from bin `first` on; -1: nothing was told."""

    hosts: tuple[str, ...]
    first: int
    values: Any
    """NumPy, hosts by bins, int64."""


EMPTY: Final = Grid((), 0, np.full((0, 0), -1, dtype=np.int64))


def grid_of(rows: Table, column: str, bin_ns: int, window: Window) -> Grid:
    """Return the greatest value of each host in each bin of time, of the rows of a window.

    Of sums the greatest minute is shown, too: a mean would hide the one minute that matters. Not a query, for a picture
    of a day is 1.8 M rows and should be there at once.

    Args:
        rows: `host`, `minute` and the column, of the roll-up; rows without a host or a minute are left out.
        column: one of `HEAT_COLUMNS`.
        bin_ns: width of a bin; bins begin at multiples of it.
        window: of minutes.
    """
    if column not in HEAT_COLUMNS or bin_ns <= 0:
        raise ValueError(f"no heat map of {column!r} in bins of {bin_ns} ns")
    named = rows.column("host").combine_chunks()
    if not pa.types.is_dictionary(named.type):
        named = named.dictionary_encode()
    minutes = _numbers(rows.column("minute").combine_chunks().cast(pa.int64()), _NEVER)
    owner = _numbers(named.indices, _NEVER)
    values = _numbers(rows.column(column).combine_chunks(), -1)
    names: list[str] = named.dictionary.to_pylist()
    since, until = max(window.since_ns, 0), window.until_ns
    is_whole = len(minutes) > 0 and minutes.min() >= since and minutes.max() < until and not named.null_count
    if not is_whole:
        kept = (minutes >= since) & (minutes < until) & (owner >= 0)
        minutes, owner, values = minutes[kept], owner[kept], values[kept]
        if not len(minutes):
            return EMPTY
    told: list[int] = np.unique(owner).tolist()
    hosts = sorted(set(names) if is_whole else {names[number] for number in told})
    first, last = int(minutes.min()) // bin_ns, int(minutes.max()) // bin_ns
    width = last - first + 1
    row_of = np.arange(len(names))
    if hosts != names:
        # A file may have its hosts in any order, and one twice.
        place = {host: number for number, host in enumerate(hosts)}
        row_of = np.array([place.get(name, 0) for name in names])
    begin_of = row_of * width - first
    found = np.full(len(hosts) * width, -1, dtype=np.int64)
    # Some at a time: large arrays that come and go cost more in pages of memory than what is done with them.
    for part in (slice(at, at + _AT_ONCE) for at in range(0, len(minutes), _AT_ONCE)):
        cells = minutes[part] // bin_ns
        cells += begin_of[owner[part]]
        np.maximum.at(found, cells, values[part].astype(np.int64))
    return Grid(tuple(hosts), first, found.reshape(len(hosts), width))


def grid_of_peaks(
    hosts: tuple[str, ...], owner: Table, begin: Table, values: Table, bin_ns: int, window: Window
) -> Grid:
    """Return the greatest value of each host in each bin, where those of smaller bins are known.

    Args:
        hosts: names, sorted, each once.
        owner: NumPy, the place of each value's host among them.
        begin: NumPy, when its smaller bin begins, UTC ns; `bin_ns` is a multiple of its width.
        values: NumPy, -1: nothing was told.
        bin_ns: width of a bin.
        window: of beginnings; others are left out.
    """
    kept = (begin >= window.since_ns) & (begin < window.until_ns)
    if not kept.all():
        owner, begin, values = owner[kept], begin[kept], values[kept]
        if not len(begin):
            return EMPTY
    bins = begin // bin_ns
    first = int(bins.min())
    found = np.full((len(hosts), int(bins.max()) - first + 1), -1, dtype=np.int64)
    np.maximum.at(found.reshape(-1), owner * found.shape[1] + (bins - first), values)
    return Grid(hosts, first, found)


def _numbers(column: Any, unknown: int) -> Any:
    """Return a column of integers as NumPy; without a copy where all are known and fit into int64."""
    known = column.is_valid() if column.null_count else None
    found = np.asarray(column if known is None else column.fill_null(0))
    if found.dtype == np.uint64:
        found = np.minimum(found, _MOST).astype(np.int64)
    if known is not None:
        found = found.astype(np.int64)
        found[~np.asarray(known)] = unknown
    return found


def together(grids: Iterable[Grid]) -> Grid:
    """Return several grids of equal bins as one: the greater value where two have one. Any order gives the same."""
    some = [grid for grid in grids if grid.hosts]
    if len(some) < 2:
        return some[0] if some else EMPTY
    hosts = tuple(sorted(set[str]().union(*{grid.hosts for grid in some})))
    place = {host: number for number, host in enumerate(hosts)}
    first = min(grid.first for grid in some)
    bins = max(grid.first + grid.values.shape[1] for grid in some) - first
    values = np.full((len(hosts), bins), -1, dtype=np.int64)
    for grid in some:
        # Mostly all files have the same hosts.
        rows = slice(None) if grid.hosts == hosts else np.array([place[host] for host in grid.hosts])
        columns = slice(grid.first - first, grid.first - first + grid.values.shape[1])
        values[rows, columns] = np.maximum(values[rows, columns], grid.values)
    return Grid(hosts, first, values)


@dataclass(frozen=True, slots=True)
class Worst:
    """The greatest value that a host has, in which bin it first had it."""

    host: str
    value: int
    bin: int


def worst(grid: Grid, count: int) -> tuple[Worst, ...]:
    """Return the hosts with the greatest values, at most so many; those that were told nothing but zeros are left out.

    Args:
        grid: of one column.
        count: at most so many.
    """
    if not grid.hosts:
        return ()
    greatest = grid.values.max(axis=1)
    bins = grid.values.argmax(axis=1)
    order: list[int] = np.argsort(-greatest, kind="stable")[:count].tolist()
    return tuple(
        Worst(grid.hosts[row], int(greatest[row]), grid.first + int(bins[row])) for row in order if greatest[row] > 0
    )


def bands(grid: Grid, most: int) -> tuple[tuple[tuple[int, int], ...], Any]:
    """Return hosts beside each other as one row, so that there are at most `most` rows.

    The greatest value of them is kept in each bin: what one host shows, its row shows.

    Args:
        grid: of one column.
        most: rows, at least 1.

    Returns:
        The first and the last host of each row, by their places in `grid.hosts`; and the values, -1: nothing was told.
    """
    count = len(grid.hosts)
    if not count:
        return (), grid.values
    size = -(-count // most)
    starts = np.arange(0, count, size)
    rows = tuple((int(start), min(int(start) + size, count) - 1) for start in starts)
    return rows, np.maximum.reduceat(grid.values, starts, axis=0)


def between(grid: Grid, first: int, last: int) -> Grid:
    """Return a part of the hosts, from one place to another; places that are none are left out."""
    return Grid(grid.hosts[max(first, 0) : last + 1], grid.first, grid.values[max(first, 0) : last + 1])
