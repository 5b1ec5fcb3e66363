"""Stuck, or caught in flight? A dump of a running job has open operations too.

A dump does not say when it was taken, so this looks for a witness: a line that says so, a rank that went on after it,
stacks that are somewhere else by now. Without a witness the answer is `unknown`: dumps are taken when a job hangs, but
that is a habit, not evidence.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import polars as pl

from mycroft.analysis.absence import Life
from mycroft.analysis.config import NS_PER_S, Thresholds
from mycroft.analysis.facts import Facts
from mycroft.analysis.matching import Matched
from mycroft.analysis.stacks import Place

# Logs are written in local time: a shift of whole quarter hours is a time zone, not a delay.
QUARTER_NS: Final = 900 * NS_PER_S
# The first step compiles, allocates and connects: it may take this many usual steps, and this long.
FIRST_STEP: Final = 20
FIRST_STEP_LEAST_NS: Final = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Liveness:
    """`state`: `stuck`, `in_flight` or `unknown`, and the reason in words."""

    state: Literal["stuck", "in_flight", "unknown"]
    why: str


def judge(
    facts: Facts,
    matched: Matched,
    places: Mapping[int, Place],
    found: Mapping[int, Life],
    waiting: tuple[int, ...],
    limits: Thresholds,
) -> Liveness:
    """Say whether the waits of `waiting` are over by now, still on, or unknown."""
    if not waiting:
        return Liveness("in_flight", "no rank waits")
    oldest = {r: min((o.enq for o in matched.opens[r] if o.enq is not None), default=None) for r in waiting}
    went_on = [r for r in waiting if _later_steps(facts, r, oldest[r], found.get(r))]
    if 2 * len(went_on) > len(waiting):
        return Liveness(
            "in_flight", f"{len(went_on)} of the {len(waiting)} waiting ranks logged further steps after it"
        )
    if matched.passed:
        return Liveness(
            "in_flight", "ranks went past operations that others had not issued when their dumps were written"
        )
    older = facts.older()
    if 2 * len(older) >= len(facts.dumps):
        return Liveness("in_flight", f"the dumps of {len(older)} ranks are older than those of their peers")
    complaining = [r for r, life in found.items() if life.victim_error is not None or life.size_complaint is not None]
    if complaining:
        return Liveness("stuck", f"{len(complaining)} ranks report a timeout or a lost connection")
    if any(o.failed for opens in matched.opens.values() for o in opens):
        return Liveness("stuck", "operations ended although not every member had joined: they failed")
    age = _age_at_dump(facts, oldest, found)
    if age is not None:
        period = step_period_ns(facts, matched)
        limit = max(limits.in_flight_least_ns, limits.in_flight_steps * (period or 0))
        state = "stuck" if age >= limit else "in_flight"
        usual = "" if period is None else f"; a step takes {period / NS_PER_S:.2f} s"
        return Liveness(state, f"the oldest wait was {age / NS_PER_S:.1f} s old when the dump was written{usual}")
    seen = [places[r] for r in waiting if r in places]
    moved = [p for p in seen if not _still_there(matched, p)]
    if seen and 2 * len(moved) > len(seen):
        return Liveness(
            "in_flight", f"{len(moved)} of {len(seen)} waiting ranks were at work when their stacks were taken"
        )
    if len(seen) > 1:
        return Liveness(
            "stuck", f"the stacks of {len(seen) - len(moved)} of {len(seen)} waiting ranks are still in the wait"
        )
    return Liveness("unknown", "nothing says how old the waits were when the dumps were written")


def _still_there(matched: Matched, place: Place) -> bool:
    """Say whether a stack can be of the wait that the dump shows."""
    if not place.waits:
        return False
    # Where sends are not recorded, a main thread in one is past the collective that its dump shows open.
    return place.kind != "p2p" or any(o.p2p for o in matched.opens[place.rank])


def _later_steps(facts: Facts, rank: int, since: int | None, life: Life | None) -> bool:
    """Say whether the rank logged a finished step, or its end, after it issued its oldest open operation."""
    if since is None:
        return False
    logged = facts.steps.filter((pl.col("rank") == rank) & pl.col("ts").is_not_null())["ts"].sort().to_list()
    steps = [ts - _zone_shift(facts, rank, ts) for ts in logged]
    if steps and not _same_stretch(steps, since):
        return False
    last = logged[-1] if logged else None
    if life is not None and life.finished is not None and life.finished.ts is not None:
        last = max(last or 0, life.finished.ts)
    return last is not None and last - _zone_shift(facts, rank, last) > since


def _same_stretch(steps: Sequence[int], since: int) -> bool:
    """Say whether a log is of the time of the dump: it began before, or as soon as the first step may take.

    `steps` rising, ns, on the clock of the dump. A log that begins long after it may be of another run.
    """
    gaps = [b - a for a, b in pairwise(steps) if b > a]
    first = FIRST_STEP * statistics.median(gaps) if gaps else 0
    return steps[0] - since <= max(FIRST_STEP_LEAST_NS, first)


def _zone_shift(facts: Facts, rank: int, ts: int) -> int:
    dump = facts.dumps.get(rank)
    if dump is None or dump.last_ns is None:
        return 0
    difference = ts - dump.last_ns
    return round(difference / QUARTER_NS) * QUARTER_NS if abs(difference) > QUARTER_NS else 0


def _age_at_dump(facts: Facts, oldest: Mapping[int, int | None], found: Mapping[int, Life]) -> int | None:
    """Return the age of the oldest wait at the moment its rank wrote the dump, ns; None without such a line."""
    ages: list[int] = []
    for rank, since in oldest.items():
        life = found.get(rank)
        if since is None or life is None or life.dump_written is None or life.dump_written.ts is None:
            continue
        moment = life.dump_written.ts
        ages.append(moment - _zone_shift(facts, rank, moment) - since)
    return max(ages) if ages else None


def step_period_ns(facts: Facts, matched: Matched) -> float | None:
    """Return the usual time between steps, ns: from logged steps, else from operations that everybody takes part in."""
    steps = (
        facts.steps.filter(pl.col("ts").is_not_null())
        .sort("rank", "ts")
        .select((pl.col("ts") - pl.col("ts").shift(1).over("rank")).alias("gap"))
        .filter(pl.col("gap") > 0)["gap"]
    )
    if len(steps):
        return float(statistics.median(steps.to_list()))
    widest = max(facts.groups.values(), key=lambda g: (len(g.members), g.kind == "world", g.key), default=None)
    if widest is None:
        return None
    times = matched.counts.filter((pl.col("comm") == widest.comm) & (pl.col("done") > 0))["last_enq"].drop_nulls()
    gaps = [b - a for a, b in zip(times.to_list(), times.to_list()[1:], strict=False) if b > a]
    return float(statistics.median(gaps)) if gaps else None
