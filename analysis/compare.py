"""What changed between two traces, or two windows of one: per rank, and per shape of operation.

Each side is summed up on its own (`profile`), and the sums are compared (`compare`), so that one side can be kept while
the other changes. A change stands out where it is large *and* beyond what the spread of its own values explains; all
else is in the tables and is not called a change. Nothing here says whose fault anything is.

Arrivals are compared with the median of the same operation, by each host's own clock: an offset that stays the same
cancels between windows of one trace, and does not between traces of different hosts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

import polars as pl

LEAST_COUNT: Final = 5
"""Values that each side must have before a change of its median is looked at."""
LEAST_RATIO: Final = 1.25
"""Ratio of medians, or its inverse, from which a change is large."""
LEAST_ERRORS: Final = 4.0
"""Standard errors of the medians that a change must be beyond."""
LEAST_LATE_NS: Final = 1_000_000
"""Change of a rank's median arrival, ns, below which nobody is helped by knowing of it."""
LEAST_RATE_RATIO: Final = 1.1
"""Ratio of the rates of a shape from which it is called more or less frequent."""

# Of each operation the median arrival; alone or in a pair there is nobody to be late against.
_ARRIVALS: Final = """
WITH ops AS (
    SELECT
        o.comm_id,
        o.op_seq,
        o.rank,
        o.op_kind::VARCHAR AS op_kind,
        coalesce(c.kind, '') AS role,
        o.bytes,
        o.dtype,
        coalesce(o.is_p2p, FALSE) AS is_p2p,
        epoch_ns(coalesce(o.start_ts, o.enq_ts)) AS at_ns,
        o.dur_ns
    FROM coll_ops o
    LEFT JOIN communicators c USING (comm_id)
    WHERE $1 IS NULL OR epoch_ns(coalesce(o.start_ts, o.enq_ts)) BETWEEN $1 AND $2
),
medians AS (
    SELECT comm_id, op_seq, quantile_disc(at_ns, 0.5) AS median_ns
    FROM ops
    WHERE NOT is_p2p AND at_ns IS NOT NULL
    GROUP BY ALL
    HAVING count(DISTINCT rank) >= 3
),
timed AS (
    SELECT ops.*, at_ns - median_ns AS late_ns
    FROM ops
    LEFT JOIN medians USING (comm_id, op_seq)
)
"""
_SUMS: Final = """
    count(*)::BIGINT AS n,
    count(dur_ns)::BIGINT AS n_dur,
    quantile_cont(dur_ns, 0.25)::DOUBLE AS dur_p25,
    quantile_cont(dur_ns, 0.5)::DOUBLE AS dur_p50,
    quantile_cont(dur_ns, 0.75)::DOUBLE AS dur_p75,
    quantile_cont(dur_ns, 0.95)::DOUBLE AS dur_p95,
    count(late_ns)::BIGINT AS n_late,
    quantile_cont(late_ns, 0.25)::DOUBLE AS late_p25,
    quantile_cont(late_ns, 0.5)::DOUBLE AS late_p50,
    quantile_cont(late_ns, 0.75)::DOUBLE AS late_p75,
    quantile_cont(late_ns, 0.95)::DOUBLE AS late_p95
FROM timed
"""
_BY_RANK: Final = f"""{_ARRIVALS}
SELECT rank::BIGINT AS rank,{_SUMS}GROUP BY rank
ORDER BY rank
"""
_BY_SHAPE: Final = f"""{_ARRIVALS}
SELECT role, op_kind, bytes::BIGINT AS bytes, dtype,{_SUMS}GROUP BY ALL
ORDER BY role, op_kind, bytes, dtype
"""
_SPAN: Final = f"""{_ARRIVALS}
SELECT min(at_ns)::BIGINT AS first_ns, max(at_ns + coalesce(dur_ns, 0))::BIGINT AS last_ns
FROM ops
"""  # noqa: S608 - of constants only


class Source(Protocol):
    """What is asked: a store."""

    def frame(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query as a frame."""
        ...


@dataclass(frozen=True, slots=True)
class Sums:
    """What is known of some operations; times in ns, None where nothing of the kind was measured.

    `late_…` are arrivals after the median of the same operation.
    """

    n: int
    n_dur: int
    dur_p25: float | None
    dur_p50: float | None
    dur_p75: float | None
    dur_p95: float | None
    n_late: int
    late_p25: float | None
    late_p50: float | None
    late_p75: float | None
    late_p95: float | None


@dataclass(frozen=True, slots=True)
class Profile:
    """One side of a comparison: sums by rank, and by shape (`role`, operation, bytes, type); its span, ns UTC."""

    ranks: Mapping[int, Sums]
    shapes: Mapping[tuple[str, str, int | None, str | None], Sums]
    first_ns: int | None
    last_ns: int | None

    @property
    def span_ns(self) -> int | None:
        """Return how long it is from the first arrival to the last end; None without times."""
        return None if self.first_ns is None or self.last_ns is None else self.last_ns - self.first_ns

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain lists, to be kept."""
        return {
            "ranks": [[rank, asdict(sums)] for rank, sums in self.ranks.items()],
            "shapes": [[list(shape), asdict(sums)] for shape, sums in self.shapes.items()],
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
        }

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> Profile:
        """Return the profile that `to_dict` gave."""
        return cls(
            {rank: Sums(**sums) for rank, sums in kept["ranks"]},
            {(role, kind, size, dtype): Sums(**sums) for (role, kind, size, dtype), sums in kept["shapes"]},
            kept["first_ns"],
            kept["last_ns"],
        )


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that stands out. `what`: rank or shape; `measure`: late, duration, tail, count, or only (one side).

    `a` and `b` are ns for times, entries a second for `rate`, entries for `only`, None where a side has none; `weight`
    sorts the strongest first.
    """

    what: str
    key: int | tuple[str, str, int | None, str | None]
    measure: str
    a: float | None
    b: float | None
    weight: float


def profile(store: Source, window: tuple[int, int] | None = None) -> Profile:
    """Return the sums of a trace, or of the operations that arrive in `window` (ns UTC, both ends inside)."""
    bounds = list(window) if window else [None, None]
    first, last = store.frame(_SPAN, bounds).row(0)
    ranks: dict[int, Sums] = {}
    for row in store.frame(_BY_RANK, bounds).iter_rows(named=True):
        rank = row.pop("rank")
        ranks[rank] = Sums(**row)
    shapes: dict[tuple[str, str, int | None, str | None], Sums] = {}
    for row in store.frame(_BY_SHAPE, bounds).iter_rows(named=True):
        key = (row.pop("role"), row.pop("op_kind"), row.pop("bytes"), row.pop("dtype"))
        shapes[key] = Sums(**row)
    return Profile(ranks, shapes, first, last)


def compare(a: Profile, b: Profile) -> tuple[Change, ...]:
    """Return what stands out between two sides, the strongest first; empty where nothing does."""
    found = [*_ranks(a, b), *_shapes(a, b)]
    return tuple(sorted(found, key=lambda change: (-change.weight, change.what, str(change.key), change.measure)))


def _ranks(a: Profile, b: Profile) -> list[Change]:
    found: list[Change] = []
    for rank in sorted(a.ranks.keys() | b.ranks.keys()):
        one, other = a.ranks.get(rank), b.ranks.get(rank)
        if one is None or other is None:
            # A side without any rank at all has nothing to compare, which the page says once.
            if a.ranks and b.ranks:
                found.append(Change("rank", rank, "only", _n(one), _n(other), math.inf))
            continue
        late = _moved(one.late_p50, _spread(one, "late"), other.late_p50, _spread(other, "late"))
        if late is not None and abs((other.late_p50 or 0) - (one.late_p50 or 0)) >= LEAST_LATE_NS:
            found.append(Change("rank", rank, "late", one.late_p50, other.late_p50, late))
    return found


def _shapes(a: Profile, b: Profile) -> list[Change]:
    found: list[Change] = []
    for key in sorted(a.shapes.keys() | b.shapes.keys(), key=str):
        one, other = a.shapes.get(key), b.shapes.get(key)
        if one is None or other is None:
            if a.shapes and b.shapes:
                found.append(Change("shape", key, "only", _n(one), _n(other), _n(one) or _n(other) or 0.0))
            continue
        moved = _moved(one.dur_p50, _spread(one, "dur"), other.dur_p50, _spread(other, "dur"))
        if moved is not None and _is_large(one.dur_p50, other.dur_p50):
            found.append(Change("shape", key, "duration", one.dur_p50, other.dur_p50, moved))
        elif min(one.n_dur, other.n_dur) >= 4 * LEAST_COUNT and _is_large(one.dur_p95, other.dur_p95, 2 * LEAST_RATIO):
            # A tail rests on few values, hence more of them and twice the ratio.
            found.append(Change("shape", key, "tail", one.dur_p95, other.dur_p95, LEAST_ERRORS))
        rates = _rates(one.n, a, other.n, b)
        if rates is not None:
            found.append(Change("shape", key, "rate", *rates, LEAST_ERRORS))
    return found


def _n(sums: Sums | None) -> float | None:
    return None if sums is None else float(sums.n)


def _spread(sums: Sums, name: str) -> float | None:
    """Return the standard error of a median, from the quartiles; None where there are too few values."""
    count = sums.n_dur if name == "dur" else sums.n_late
    low, high = (sums.dur_p25, sums.dur_p75) if name == "dur" else (sums.late_p25, sums.late_p75)
    if count < LEAST_COUNT or low is None or high is None:
        return None
    # Of normal values the quartiles are 1.349 standard deviations apart, and the median's error is 1.253 of the mean's.
    return 1.253 * (high - low) / 1.349 / math.sqrt(count)


def _moved(one: float | None, one_error: float | None, other: float | None, other_error: float | None) -> float | None:
    """Return by how many standard errors a median moved; None where that is no more than its spread explains."""
    if one is None or other is None or one_error is None or other_error is None:
        return None
    error = math.hypot(one_error, other_error)
    if one == other:
        return None
    # Values without any spread are of a clock that is coarser than they: a thousand errors stand for "certainly".
    errors = abs(other - one) / error if error > 0 else 1000.0
    return errors if errors >= LEAST_ERRORS else None


def _is_large(one: float | None, other: float | None, ratio: float = LEAST_RATIO) -> bool:
    if one is None or other is None or one <= 0 or other <= 0:
        return False
    return max(one / other, other / one) >= ratio


def _rates(one: int, a: Profile, other: int, b: Profile) -> tuple[float, float] | None:
    """Return the entries a second of both sides where they differ by more than chance; else None.

    Counts alone say how long each side was. What a side does a few times, such as at its start, has no rate.
    """
    if not a.span_ns or not b.span_ns or min(one / len(a.ranks), other / len(b.ranks)) < LEAST_COUNT:
        return None
    rates = one / a.span_ns * 1e9, other / b.span_ns * 1e9
    share = a.span_ns / (a.span_ns + b.span_ns)
    error = math.sqrt((one + other) * share * (1 - share))
    is_beyond = abs(one - (one + other) * share) >= LEAST_ERRORS * error
    return rates if is_beyond and _is_large(*rates, LEAST_RATE_RATIO) else None
