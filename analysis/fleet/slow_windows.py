"""Who became slow, as summaries show it: own service of all ranks, window by window, under the rules' own CUSUM.

The centre holds of each entity a short series of two bytes a window. Windows take the place of iterations: the oldest
are learnt from, the others are watched. While nothing is wrong the oldest window is forgotten; while something may be,
what was learnt stays, and the fault is not learnt. Peers are compared here, where all of them are.

What this can tell is what lasts for minutes. A fault that was there from the beginning, that comes and goes within a
window or creeps over many, is not in it; and nobody is named of a job that gets as much done as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.analysis.attribution import Culprit, Slowness, culprits, slowness
from mycroft.analysis.config import FLOW_DEFAULTS, FlowLimits
from mycroft.analysis.fleet.own_windows import COLLECTIVE, EXCHANGE, FLUSH, GPU, HOST, PAIR, time_of
from mycroft.analysis.fleet.seam import Table
from mycroft.analysis.grouped import Floats, Groups, Ints
from mycroft.analysis.iterations import Iterations, Operations
from mycroft.analysis.own_service import Metric, OwnService, median_of_others

# A window is worth several iterations: fewer of them say as much. What must last is a time (`least_span_ns`).
WINDOW_LIMITS: Final[FlowLimits] = replace(FLOW_DEFAULTS, warm=1, learn=6, confirm=1, effect_over=3, effect_over_host=4)
# Windows that are watched beside those that are learnt.
WATCHED: Final = 10
KEPT: Final = WINDOW_LIMITS.warm + WINDOW_LIMITS.learn + WATCHED
# A job that gets done nearly as much as before is not slow, whatever one of its parts does.
PACE_LOST: Final = 0.01
PACE_OVER: Final = 3
# Who has fewer peers than this is compared with nobody.
_LEAST_PEERS: Final = 3
# What is kept of a job at most: more were not told by anybody honest.
MOST_ENTITIES: Final = 40_000_000
# A job of which fewer entities than this share go on has begun anew.
_SAME: Final = 0.5
# Entities that are not told of any more are forgotten once they are this share.
_STALE: Final = 0.5

_KEY: Final = pl.Schema(
    {"what": pl.UInt8, "rank": pl.UInt32, "comm": pl.UInt64, "channel": pl.UInt8, "peer": pl.UInt32}
)
# What is sent, and the same where it is received.
_FLOWS: Final = ((COLLECTIVE, "S", "Rv"), (PAIR, "PS", "PR"), (EXCHANGE, "ES", "ER"))
Values = np.ndarray[Any, np.dtype[np.uint16]]
Counts = np.ndarray[Any, np.dtype[np.uint32]]
NO_MEMBERS: Final = pl.DataFrame(schema={"comm": pl.UInt64, "comm_rank": pl.UInt32, "rank": pl.UInt32})


@dataclass
class ServiceSeries:
    """The last windows of one job. Entities are in the order of their keys."""

    window_ns: int
    keys: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_KEY))
    counts: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.uint32))
    values: list[Values] = field(default_factory=lambda: list[Values]())
    numbers: list[int] = field(default_factory=lambda: list[int]())
    paces: list[float] = field(default_factory=lambda: list[float]())
    holds: bool = False
    """Something may be wrong: what was learnt is kept."""

    def restart(self) -> None:
        """Forget everything: what was learnt is of another job than goes on."""
        self.keys = pl.DataFrame(schema=_KEY)
        self.counts = np.zeros(0, dtype=np.uint32)
        self.values, self.numbers, self.paces, self.holds = [], [], [], False

    @property
    def size_bytes(self) -> int:
        """What is held in memory."""
        return int(self.keys.estimated_size()) + self.counts.nbytes + sum(row.nbytes for row in self.values)

    def take(self, number: int, measured: Table) -> bool:
        """Take the measures of one window, as `merge` of `MEASURED` returned them; older ones than known are left out.

        Returns:
            whether it was taken.
        """
        if self.numbers and number <= self.numbers[-1]:
            return False
        rows = pl.DataFrame(measured)
        keys = rows.select(_KEY.names())
        if not keys.equals(self.keys):
            self._widen(keys)
        if len(self.keys) > MOST_ENTITIES:
            self.restart()
            return False
        value = np.zeros(len(self.keys), dtype=np.uint16)
        if len(keys) == len(self.keys):
            value[:], self.counts[:] = rows["value"].to_numpy(), rows["count"].to_numpy()
        else:
            place = self._places_of(keys)
            value[place] = rows["value"].to_numpy()
            self.counts[place] = rows["count"].to_numpy()
        self.values.append(value)
        self.numbers.append(number)
        self.paces.append(_pace(rows))
        while len(self.numbers) > KEPT:
            oldest = WINDOW_LIMITS.warm + WINDOW_LIMITS.learn if self.holds else 0
            for kept in (self.values, self.numbers, self.paces):
                del kept[oldest]
        return True

    def _widen(self, keys: pl.DataFrame) -> None:
        """Make room for entities that were not known, and forget those of which nothing is left."""
        known = pl.concat([self.keys, keys]).unique().sort(_KEY.names())
        if len(self.keys) and len(known) > len(self.keys) + len(keys) - min(len(self.keys), len(keys)) * _SAME:
            # Other ranks, or others beside them: what was usual for those of before says nothing.
            self.restart()
        if len(known) > len(self.keys) or len(keys) < _STALE * len(known):
            left = np.zeros(len(self.keys), dtype=bool)
            for row in self.values:
                left |= row > 0
            old = self.keys.filter(pl.Series(left, dtype=pl.Boolean))
            known = pl.concat([old, keys]).unique().sort(_KEY.names())
            before, self.keys = self.keys, known
            place = self._places_of(before.filter(pl.Series(left, dtype=pl.Boolean)))
            self.values = [_spread(row[left], place, len(known)) for row in self.values]
            self.counts = _spread(self.counts[left], place, len(known))

    def _places_of(self, keys: pl.DataFrame) -> Ints:
        numbered = self.keys.with_row_index("place")
        found = keys.join(numbered, on=_KEY.names(), how="left", maintain_order="left")["place"]
        return found.cast(pl.Int64).to_numpy()

    @property
    def learnt(self) -> bool:
        """Whether there is anything to compare with."""
        return len(self.numbers) > WINDOW_LIMITS.warm + WINDOW_LIMITS.learn

    def pace(self, begun: int) -> tuple[float, float]:
        """Operations a second that a rank got done while it was learnt, and from a window on; 0: not known.

        A window may have a pause in it, so at least the last three are taken together.
        """
        first = WINDOW_LIMITS.warm
        usual = self.paces[first : first + WINDOW_LIMITS.learn]
        recent = self.paces[min(begun, len(self.paces) - PACE_OVER) :]
        if not usual:
            return 0.0, 0.0
        scale = 1e9 / self.window_ns
        return float(np.median(usual)) * scale, float(np.median(recent)) * scale


def _spread(values: Any, place: Ints, size: int) -> Any:
    found = np.zeros(size, dtype=values.dtype)
    found[place] = values
    return found


def _pace(rows: pl.DataFrame) -> float:
    """Return how many operations of the GPU a rank ended, the median over ranks; 0: nobody tells."""
    found = rows.filter(pl.col("what") == GPU)["count"].median()
    return float(found) if isinstance(found, (int, float)) else 0.0


@dataclass(frozen=True)
class Accused:
    """Who is slow at the newest window, and by what that is told."""

    found: Slowness
    culprits: tuple[Culprit, ...]
    doubts: bool
    """Something is on its way to an alarm: what was learnt must be kept."""
    pace: Callable[[int], tuple[float, float]]
    """Of a window: operations a second that a rank got done before all this, and from that window on; 0: not told."""


def judge(series: ServiceSeries, members: pl.DataFrame) -> Accused | None:
    """Return who is slow at the newest window; None: there is nothing yet to compare with.

    Args:
        series: of the job.
        members: rank of each `comm_rank` of each `comm`, as far as it is told.
    """
    if not series.learnt:
        return None
    build = _Build(series, members)
    found = slowness(build.service(), WINDOW_LIMITS)
    row = found.last()
    # Of a flow of which neither end is slow otherwise windows say too little: its like is seen in healthy jobs.
    blamed = tuple(one for one in _blamed(found, row) if one.component != "path")
    doubts = any(bool((w.score[row] > w.limit / 2).any()) for w in found.watches.values())
    return Accused(found, blamed, doubts, series.pace)


def _blamed(found: Slowness, row: int) -> tuple[Culprit, ...]:
    return culprits(found, row) if any(w.alarm[row].any() for w in found.watches.values()) else ()


class _Build:
    """Metrics of `own_service`, a row per window."""

    def __init__(self, series: ServiceSeries, members: pl.DataFrame) -> None:
        self.series = series
        self.what = series.keys["what"].to_numpy()
        self.columns = {name: series.keys[name] for name in _KEY.names()}
        self.members = members.unique(["comm", "comm_rank"], keep="first", maintain_order=True)
        self.rows = len(series.numbers)

    def service(self) -> OwnService:
        """Return them all."""
        places = self._hosts()
        gpu = self._gpu(places)
        flows, neighbours = self._flows()
        metrics = [*gpu, *self._alone(HOST, "H"), *flows, *self._alone(FLUSH, "FL")]
        numbers = np.array(self.series.numbers, dtype=np.int64)
        starts = numbers * self.series.window_ns
        ends = starts + self.series.window_ns
        found = {metric.name: metric for metric in metrics}
        return OwnService(_windows(numbers, starts, ends), starts, ends, found, places, neighbours)

    def _of(self, what: int) -> tuple[Ints, Floats, Floats]:
        """Return the places of entities of a kind, their logarithms of time, a row per window, and their units."""
        at = np.flatnonzero(self.what == what)
        logs = np.array([time_of(row[at]) for row in self.series.values]).reshape(self.rows, len(at))
        return at, logs, self.series.counts[at].astype(np.float64)

    def _column(self, name: str, at: Ints) -> Ints:
        values = self.columns[name].to_numpy()[at]
        # Hashes of communicators are only compared.
        return values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)

    def _hosts(self) -> dict[int, int]:
        at = np.flatnonzero(self.what == HOST)
        return dict(zip(self._column("rank", at).tolist(), self._column("peer", at).tolist(), strict=True))

    def _alone(self, what: int, name: str) -> list[Metric]:
        """Compare each rank with all others."""
        at, logs, counts = self._of(what)
        if len(at) < _LEAST_PEERS:
            return []
        entity = Groups(self._column("rank", at), self._column("peer", at))
        if len(Groups(self._column("rank", at))) < len(entity):
            # A rank that moved to another host: where it is told of now.
            newest = self._newest(at, logs)
            at, logs, counts = at[newest], logs[:, newest], counts[newest]
        return self._against_all(name, (self._column("rank", at),), logs, counts)

    def _newest(self, at: Ints, logs: Floats) -> Ints:
        """Return one entity per rank, that with the most windows."""
        seen = (~np.isnan(logs)).sum(axis=0)
        rank = self._column("rank", at)
        order = np.lexsort((-seen, rank))
        return order[np.concatenate(([True], rank[order][1:] != rank[order][:-1]))] if len(order) else order

    def _against_all(self, name: str, ids: tuple[Ints, ...], logs: Floats, counts: Floats) -> list[Metric]:
        middle = _medians(logs)
        cost = (np.exp(logs) - np.exp(middle)[:, None]) * counts / 1e9
        return [Metric(name, ids, logs - middle[:, None], np.nan_to_num(cost))]

    def _gpu(self, places: Mapping[int, int]) -> list[Metric]:
        at, logs, counts = self._of(GPU)
        if not len(at):
            return []
        one = self._newest(at, logs)
        at, logs, counts = at[one], logs[:, one], counts[one]
        rank, comm = self._column("rank", at), self._column("comm", at)
        ratio, cost = np.full(logs.shape, np.nan), np.zeros(logs.shape)
        for row in range(self.rows):
            seen = np.flatnonzero(~np.isnan(logs[row]))
            same = Groups(comm[seen])
            peers, mine = same.sizes[same.of_row], logs[row, seen]
            usual = same.medians(mine)[same.of_row]
            # Of two each is the other's only peer.
            usual = np.where(peers == 2, same.sums(mine)[same.of_row] - mine, usual)
            compared = peers > 1
            ratio[row, seen[compared]] = (mine - usual)[compared]
            cost[row, seen[compared]] = ((np.exp(mine) - np.exp(usual)) * counts[seen])[compared] / 1e9
        return [Metric("G", (rank,), ratio, cost), *self._hosts_gpu(rank, logs, counts, places)]

    def _hosts_gpu(self, rank: Ints, logs: Floats, counts: Floats, places: Mapping[int, int]) -> list[Metric]:
        host = np.array([places.get(r, -1) for r in rank.tolist()], dtype=np.int64)
        hosts = np.unique(host[host >= 0])
        if len(hosts) < _LEAST_PEERS:
            return []
        ratio, cost = np.full((self.rows, len(hosts)), np.nan), np.zeros((self.rows, len(hosts)))
        for row in range(self.rows):
            seen = np.flatnonzero(~np.isnan(logs[row]) & (host >= 0))
            of = Groups(host[seen])
            if len(of) < _LEAST_PEERS:
                continue
            # The lower of two middle ones: a single slow GPU of two is not its host.
            mine = of.lower_medians(logs[row, seen].view(np.int64)).view(np.float64)
            usual = median_of_others(mine)
            column = np.searchsorted(hosts, host[seen][of.first])
            ratio[row, column] = mine - usual
            units = of.sums(counts[seen]) / of.sizes
            cost[row, column] = (np.exp(mine) - np.exp(usual)) * units / 1e9
        return [Metric("HG", (hosts,), ratio, cost)]

    def _flows(self) -> tuple[list[Metric], Callable[[], Mapping[int, frozenset[int]]]]:
        found: list[Metric] = []
        pairs: list[tuple[Ints, Ints]] = []
        for what, sent, received in _FLOWS:
            at, logs, counts = self._of(what)
            if len(at) < _LEAST_PEERS:
                continue
            rank, channel = self._column("rank", at), self._column("channel", at)
            found += self._together(sent, Groups(rank, channel), (rank, channel), logs, counts, None)
            keys = pl.DataFrame({"comm": self.columns["comm"][at], "comm_rank": self.columns["peer"][at]})
            told = keys.join(self.members, on=["comm", "comm_rank"], how="left", maintain_order="left")["rank"]
            to = told.cast(pl.Int64).fill_null(-1).to_numpy()
            known = to >= 0
            pairs.append((rank[known], to[known]))
            of = Groups(to[known], within=channel[known])
            if len(of) >= _LEAST_PEERS:
                found += self._together(received, of, (to[known],), logs[:, known], counts[known], of.distinct())
        return found, lambda: _neighbours(pairs)

    def _together(
        self,
        name: str,
        of: Groups,
        ids: tuple[Ints, ...],
        logs: Floats,
        counts: Floats,
        beside: Ints | None,
    ) -> list[Metric]:
        """Compare what several flows took together; `beside`: how many of them run side by side."""
        time, units = np.full((self.rows, len(of)), np.nan), np.zeros((self.rows, len(of)))
        for row in range(self.rows):
            seen = ~np.isnan(logs[row])
            took = of.sums(np.where(seen, np.exp(np.where(seen, logs[row], 0.0)) * counts, 0.0))
            units[row] = of.sums(np.where(seen, counts, 0.0))
            with np.errstate(divide="ignore", invalid="ignore"):
                time[row] = np.where(units[row] > 0, np.log(took / units[row]), np.nan)
        middle = _medians(time)
        cost = np.nan_to_num((np.exp(time) - np.exp(middle)[:, None]) * units) / 1e9
        if beside is not None:
            cost = cost / beside
        return [Metric(name, tuple(part[of.first] for part in ids), time - middle[:, None], cost)]


def _medians(rows: Floats) -> Floats:
    """Return the median of each row; not a number where too few are there to be compared."""
    seen = (~np.isnan(rows)).sum(axis=1)
    found = np.full(len(rows), np.nan)
    some = seen >= _LEAST_PEERS
    if some.any():
        found[some] = np.nanmedian(rows[some], axis=1)
    return found


def _neighbours(pairs: list[tuple[Ints, Ints]]) -> dict[int, frozenset[int]]:
    found: dict[int, set[int]] = {}
    for ranks, others in pairs:
        both = Groups(ranks, others).first
        for one, other in zip(ranks[both].tolist(), others[both].tolist(), strict=True):
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
    return {rank: frozenset(others) for rank, others in found.items()}


def _windows(numbers: Ints, starts: Ints, ends: Ints) -> Iterations:
    none = np.zeros(0, dtype=np.int64)
    nothing = none.astype(np.bool_)
    ops = Operations(none, none, none, none, none, none, nothing, none, none, none, none)
    return Iterations(ops, none, numbers, starts, ends, False, frozenset(), nothing, Groups(none))
