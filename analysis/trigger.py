"""When something is wrong: three detectors over summaries of all ranks, evaluated at each second of trace time.

Mycroft (SOSP'25) 4.2 samples ten ranks and compares throughput and intervals with fixed factors. Here every rank is
summarised and victims are excluded by construction: a stall is silence (`heartbeat`, `coll_ops`), slowness is a CUSUM
over own service time (`own_service`, `cusum`), an intermittent stall is one slice that one stage held (`intermittent`).

A stall that fires only starts the walk; it is reported when the sink's own age limit is passed (`follow`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from mycroft.analysis.attribution import Slowness, culprits
from mycroft.analysis.case import count_words
from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_S, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.grouped import Groups, Ints, looked_up
from mycroft.analysis.host_clocks import RANK_HOSTS, clock_offsets
from mycroft.analysis.intermittent import events
from mycroft.analysis.slow_findings import find_slowness

Detector = Literal["stall", "slow", "intermittent"]
DETECTORS: Final[tuple[Detector, ...]] = ("stall", "slow", "intermittent")

BEATS: Final = """
SELECT rank, epoch_ns(ts) AS ts, epoch_ns(last_progress_ts) AS progress
FROM heartbeat
WHERE ts >= make_timestamp_ns($1) AND ts < make_timestamp_ns($2) AND last_progress_ts IS NOT NULL
    AND (sampler_ts IS NULL OR ts <= sampler_ts)
"""
SPAN: Final = "SELECT min(epoch_ns(ts)) AS first, max(epoch_ns(ts)) AS last FROM heartbeat"
# An operation that is or was open for long, of one communicator; most are not.
LONG_OPS: Final = """
SELECT comm_id AS comm, rank, CAST(coalesce(pair_seq, op_seq) AS BIGINT) AS seq, epoch_ns(enq_ts) AS enq,
       CASE WHEN dur_ns IS NOT NULL THEN epoch_ns(start_ts) + dur_ns END AS "end"
FROM coll_ops
WHERE enq_ts IS NOT NULL AND enq_ts < make_timestamp_ns($2) AND NOT coalesce(retired, FALSE)
    AND file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
    AND (dur_ns IS NULL OR epoch_ns(start_ts) + dur_ns - epoch_ns(enq_ts) > $1)
"""
# Heartbeats from before the window that say how things stood at its start.
BEFORE_NS: Final = 12 * NS_PER_S
# Usual ages are learnt from operations that ended; of them, this many per communicator may be exceptions.
_FOREVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Firing:
    """A detector fired. Nothing later than `at_ns` of the trace was looked at, but for what clocks are off."""

    at_ns: int
    """Tick, ns UTC, by the clock that most hosts share."""
    detector: Detector
    ranks: tuple[int, ...]
    """Whom it is about: of a stall the ranks that stand (victims as well), else the accused."""
    comm: int | None
    """Communicator; None: the whole job."""
    value: float
    """What was measured: s of silence or of one slice, or the ratio to the peers."""
    limit: float
    """What it passed, in the same unit."""
    what: str
    """In words."""
    row: int | None = None
    """Of slowness, the iteration."""


def scan(
    store: Frames,
    *,
    limits: FlowLimits = FLOW_DEFAULTS,
    since_ns: int | None = None,
    until_ns: int | None = None,
    detectors: Collection[Detector] = DETECTORS,
    offsets: Mapping[int, int] | None = None,
) -> tuple[Firing, ...]:
    """Return every firing from `since_ns` to `until_ns` in order of time; empty: no tracer left rows, or all is well.

    A detector that stays in alarm fires once, and again only after it has been quiet (`rearm_ns`). Who looks every
    second asks the detector of slowness, which reads all iterations anew, once an iteration or every ten seconds, and
    brings the `offsets` of the clocks (`clock_offsets`) from then.
    """
    span = store.frame(SPAN).row(0)
    if span[0] is None:
        return ()
    first = int(span[0]) if since_ns is None else since_ns
    last = int(span[1]) if until_ns is None else until_ns
    if offsets is None:
        offsets = clock_offsets(store, at=last)
    found: list[Firing] = []
    if "stall" in detectors:
        found += once(stall_ticks(store, limits, first, last, offsets), limits)
    if "slow" in detectors:
        found += slow_firings(store, limits, first, last, find_slowness(store, limits, at=last, offsets=offsets))
    if "intermittent" in detectors:
        found += intermittent_firings(store, limits, first, last, offsets)
    return tuple(sorted(found, key=lambda f: (f.at_ns, f.detector, f.comm if f.comm is not None else -1, f.ranks)))


def once(firings: Sequence[Firing], limits: FlowLimits) -> Iterator[Firing]:
    """Leave out firings of what has not been quiet since its last one."""
    last: dict[tuple[str, int | None], int] = {}
    for one in firings:
        key = one.detector, one.comm
        if key not in last or one.at_ns - last[key] > limits.rearm_ns:
            yield one
        last[key] = one.at_ns


# ---- stalls ---------------------------------------------------------------------------------------


def stall_ticks(
    store: Frames,
    limits: FlowLimits,
    first: int,
    last: int,
    offsets: Mapping[int, int],
    *,
    only_last: bool = False,
) -> list[Firing]:
    """Return each tick at which the job, or a communicator of it, is silent.

    `only_last`: `last` is the only tick; who follows a job as it is told of need not wait for the next whole second.
    """
    slack = max((abs(v) for v in offsets.values()), default=0)
    ticks = np.arange(first // limits.tick_ns + 1, last // limits.tick_ns + 1, dtype=np.int64) * limits.tick_ns
    if only_last:
        ticks = np.array([last] if last > first else [], dtype=np.int64)
    if not len(ticks):
        return []
    beats = store.frame(BEATS, (max(0, first - BEFORE_NS - slack), last + slack))
    if beats.is_empty():
        return []
    rank, ts, moved = (beats[name].cast(pl.Int64).to_numpy() for name in ("rank", "ts", "progress"))
    ahead = looked_up(rank, offsets, missing=0)
    progress, ranks = _progress_at(rank, ts - ahead, moved - ahead, ticks)
    found: list[Firing] = []
    for n, tick in enumerate(ticks):
        found += _job_silent(int(tick), progress[n], ranks, limits)
    return sorted([*found, *_comm_silent(store, limits, ticks, progress, ranks, offsets)], key=lambda f: f.at_ns)


def _progress_at(rank: Ints, ts: Ints, moved: Ints, ticks: Ints) -> tuple[Ints, Ints]:
    """Return each rank's last progress as known at each tick, -1 where nothing was known yet, and the ranks.

    Rows, in any order: at `ts` a rank had last `moved`.
    """
    of_rank = Groups(rank)
    tick = np.searchsorted(ticks, ts, side="left")
    each = Groups(tick, of_rank.of_row)
    progress = np.full((len(ticks) + 1, len(of_rank)), -1, dtype=np.int64)
    progress[tick[each.first], of_rank.of_row[each.first]] = np.maximum(each.largest(moved), -1)
    return np.maximum.accumulate(progress[:-1], axis=0), rank[of_rank.first]


def _job_silent(
    tick: int, progress: np.ndarray[Any, Any], ranks: np.ndarray[Any, Any], limits: FlowLimits
) -> list[Firing]:
    known = progress >= 0
    if known.sum() < 2:
        return []
    silence = tick - progress[known]
    middle = float(np.median(silence))
    long = silence > limits.silence_half_ns
    if middle <= limits.silence_median_ns or 2 * int(long.sum()) < len(silence):
        return []
    standing = tuple(int(r) for r in ranks[known][long])
    what = f"half of {len(silence)} ranks have made no progress for {middle / NS_PER_S:.1f} s"
    return [Firing(tick, "stall", standing, None, middle / NS_PER_S, limits.silence_median_ns / NS_PER_S, what)]


def _comm_silent(
    store: Frames,
    limits: FlowLimits,
    ticks: np.ndarray[Any, Any],
    progress: np.ndarray[Any, Any],
    ranks: np.ndarray[Any, Any],
    offsets: Mapping[int, int],
) -> list[Firing]:
    """An operation older than any healthy one before it, whose ranks do not move: a stall that most do not feel."""
    rows = store.frame(LONG_OPS, (limits.open_ns // 2, int(ticks[-1]) + 1))
    if rows.is_empty():
        return []
    comm, rank, enq = (rows[name].cast(pl.Int64).to_numpy() for name in ("comm", "rank", "enq"))
    finish = rows["end"].fill_null(_FOREVER).to_numpy()
    ahead = looked_up(rank, offsets, missing=0)
    enq, end = enq - ahead, np.where(finish == _FOREVER, _FOREVER, finish - ahead)
    # Most communicators have nothing open for so long at any tick that is looked at.
    slow = np.unique(comm[np.minimum(end, int(ticks[-1])) - enq > limits.open_ns])
    of_slow = np.isin(comm, slow)
    comm, rank, enq, end = comm[of_slow], rank[of_slow], enq[of_slow], end[of_slow]
    per_comm = Groups(comm)
    column = np.minimum(np.searchsorted(ranks, rank), len(ranks) - 1)
    heard = ranks[column] == rank
    found: list[Firing] = []
    for n, tick in enumerate(ticks):
        healthy = per_comm.largest(np.where(end <= tick, end - enq, 0))
        limit = np.maximum(limits.open_ns, np.rint(limits.open_ages * healthy).astype(np.int64))[per_comm.of_row]
        old = (end > tick) & (tick - enq > limit)
        still = np.flatnonzero(old & heard & (tick - progress[n, column] > limits.silence_half_ns))
        of_comm = Groups(comm[still], within=rank[still])
        for begun, ended in of_comm.spans():
            some = still[of_comm.order[begun:ended]]
            age = int(tick - enq[some].min()) / NS_PER_S
            who = tuple(dict.fromkeys(rank[some].tolist()))
            what = f"{count_words(who)} inside an operation of one communicator for {age:.1f} s without progress"
            one = int(comm[some[0]])
            found.append(Firing(int(tick), "stall", who, one, float(age), int(limit[some[0]]) / NS_PER_S, what))
    return found


# ---- slowness and intermittent stalls --------------------------------------------------------------


def slow_firings(store: Frames, limits: FlowLimits, first: int, last: int, found: Slowness | None) -> list[Firing]:
    """Return each confirmed alarm once, at the first tick after the iteration that confirmed it."""
    if found is None:
        return []
    hosts: dict[int, list[int]] = {}
    for rank, host in store.frame(RANK_HOSTS).iter_rows():
        hosts.setdefault(int(host), []).append(int(rank))
    firings: list[Firing] = []
    told: set[object] = set()
    alarms = np.zeros(len(found.service.ends), dtype=bool)
    for w in found.watches.values():
        alarms |= w.alarm.any(axis=1)
    for row in np.nonzero(alarms)[0]:
        tick = (int(found.service.ends[row]) // limits.tick_ns + 1) * limits.tick_ns
        for one in culprits(found, int(row)):
            if one.key in told:
                continue
            told.add(one.key)
            if not first <= tick <= last + limits.tick_ns:
                continue
            who = one.ranks or tuple(hosts.get(one.host, ())) if one.host is not None else one.ranks
            what = f"{one.component} of {count_words(who)}: {one.ratio:.2f} times its usual time"
            firings.append(Firing(tick, "slow", who, None, one.ratio, limits.eff_gpu, what, int(row)))
    return firings


def intermittent_firings(
    store: Frames, limits: FlowLimits, first: int, last: int, offsets: Mapping[int, int]
) -> list[Firing]:
    """Return each time that one stage held a slice for too long, at the tick after it was over."""
    return [
        Firing(
            (e.end_ns // limits.tick_ns + 1) * limits.tick_ns,
            "intermittent",
            e.ranks,
            None,
            e.held_s,
            limits.slice_ns / NS_PER_S,
            f"{e.component} of {count_words(e.ranks)} held one slice for {e.held_s:.2f} s",
        )
        for e in events(store, limits, since_ns=first, until_ns=last, offsets=offsets)
    ]
