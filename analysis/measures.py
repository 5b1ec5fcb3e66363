"""Measures of ranks and of operations that a person looks at to judge for himself: nothing here accuses anybody.

Arrivals are compared inside one operation, by each host's own clock. Bus bandwidth follows the convention of NCCL's
tests: bytes over the time of the last to arrive, times what the algorithm must move per byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import polars as pl

RANK_MEASURES: Final = ("late", "wait", "duration", "busbw")
BAND_MADS: Final = 3.0
"""Half the width of the healthy band, in median absolute deviations scaled to standard deviations."""
BAND_LEAST: Final = 8
"""Operations that a band must rest on."""
BAND_LEAST_SHARE: Final = 0.02
"""Least half width of a band, of its middle: values that are all alike do not make a band of no height."""
BAND_MOST_OUTSIDE: Final = 0.25
"""Share of the values that may lie outside of a band; with more there is none."""
_MAD_TO_SIGMA: Final = 1.4826

# Of an operation: the median arrival, and the time of the last to arrive, which is what the transfer itself took.
_OPERATIONS: Final = """
WITH entries AS (
    SELECT
        o.comm_id,
        o.op_seq,
        o.rank,
        o.op_kind::VARCHAR AS op_kind,
        o.bytes,
        o.dtype,
        epoch_ns(coalesce(o.start_ts, o.enq_ts)) AS at_ns,
        o.dur_ns,
        coalesce(c.size, c.seen_size) AS size
    FROM coll_ops o
    LEFT JOIN communicators c USING (comm_id)
    WHERE NOT coalesce(o.is_p2p, FALSE)
),
operations AS (
    SELECT
        comm_id,
        op_seq,
        any_value(op_kind) AS op_kind,
        max(bytes) AS bytes,
        any_value(dtype) AS dtype,
        count(DISTINCT rank) AS ranks,
        any_value(entries.size) AS size,
        quantile_disc(at_ns, 0.5) AS median_ns,
        min(at_ns) AS first_ns,
        max(at_ns) AS last_ns,
        min(dur_ns) AS least_ns,
        count(dur_ns) AS timed,
        CASE any_value(op_kind)
            WHEN 'all_reduce' THEN 2.0 * (any_value(entries.size) - 1) / any_value(entries.size)
            WHEN 'all_gather' THEN 1.0 * (any_value(entries.size) - 1) / any_value(entries.size)
            WHEN 'reduce_scatter' THEN 1.0 * (any_value(entries.size) - 1) / any_value(entries.size)
            WHEN 'all_to_all' THEN 1.0 * (any_value(entries.size) - 1) / any_value(entries.size)
            WHEN 'broadcast' THEN 1.0
            WHEN 'reduce' THEN 1.0
        END AS factor
    FROM entries
    GROUP BY comm_id, op_seq
)
"""
_BY_RANK: Final = (
    _OPERATIONS
    + """
SELECT
    e.rank::BIGINT AS rank,
    quantile_cont(CASE WHEN o.ranks >= 3 THEN e.at_ns - o.median_ns END, 0.5)::DOUBLE AS late,
    quantile_cont(CASE WHEN o.timed >= 2 THEN e.dur_ns - o.least_ns END, 0.5)::DOUBLE AS wait,
    quantile_cont(e.dur_ns, 0.5)::DOUBLE AS duration,
    quantile_cont(CASE WHEN o.least_ns > 0 AND o.bytes > 0 THEN o.bytes / o.least_ns * o.factor END, 0.5)::DOUBLE
        AS busbw
FROM entries e
JOIN operations o USING (comm_id, op_seq)
GROUP BY e.rank
ORDER BY e.rank
"""
)
_SHAPES: Final = (
    _OPERATIONS
    + """
SELECT op_kind, bytes::BIGINT AS bytes, dtype, count(*)::BIGINT AS n
FROM operations
WHERE comm_id = ?
GROUP BY ALL
ORDER BY n DESC, op_kind, bytes, dtype
"""
)
_HISTORY: Final = (
    _OPERATIONS
    + """
SELECT
    op_seq::BIGINT AS seq,
    last_ns::BIGINT AS at_ns,
    CASE WHEN ranks >= size OR size IS NULL THEN least_ns END AS duration,
    CASE WHEN ranks >= 2 THEN last_ns - first_ns END AS arrival,
    CASE WHEN least_ns > 0 AND bytes > 0 AND (ranks >= size OR size IS NULL) THEN bytes / least_ns * factor END AS busbw
FROM operations
WHERE comm_id = ? AND op_kind = ? AND bytes IS NOT DISTINCT FROM ? AND dtype IS NOT DISTINCT FROM ?
ORDER BY op_seq DESC
LIMIT ?
"""
)


class Source(Protocol):
    """What is asked: a store, or a reader of one."""

    def frame(self, sql: str, params: Sequence[Any] = ()) -> pl.DataFrame:
        """Answer a query as a frame."""
        ...


@dataclass(frozen=True, slots=True)
class Band:
    """What is usual for a measure of one shape: `low` to `high` around `middle`, from `n` operations."""

    low: float
    middle: float
    high: float
    n: int


def rank_measures(source: Source) -> list[dict[str, Any]]:
    """Return one row per rank with collectives: medians over them, None where nothing of the kind was measured.

    `late` and `wait` in ns: arrival after the median of an operation of three and more, and time inside beyond the
    member that was inside for the shortest. `duration` in ns. `busbw` in GB/s, of the operations that it took part in.
    """
    return source.frame(_BY_RANK).to_dicts()


def shapes_of(source: Source, comm_id: int) -> list[dict[str, Any]]:
    """Return the shapes of a communicator's collectives (`op_kind`, `bytes`, `dtype`), the most frequent first."""
    return source.frame(_SHAPES, [comm_id]).to_dicts()


def history_of(
    source: Source, comm_id: int, *, op_kind: str, size: int | None, dtype: str | None, limit: int
) -> list[dict[str, Any]]:
    """Return the newest `limit` collectives of one shape, the oldest first: `seq`, `at_ns` (last arrival), measures.

    `duration` (ns) is that of the last to arrive, and with `busbw` (GB/s) None where a member's entry is missing: its
    time might be the shortest. `arrival` (ns) is from the first to the last member that is in the evidence.
    """
    return source.frame(_HISTORY, [comm_id, op_kind, size, dtype, limit]).to_dicts()[::-1]


def band_of(values: Sequence[float | None]) -> Band | None:
    """Return the healthy band of a measure: its median and three scaled median absolute deviations to both sides.

    None for fewer than eight values, and where more than a quarter of them would lie outside: values that fall apart
    into groups have no usual range.
    """
    known = pl.Series("value", [value for value in values if value is not None], dtype=pl.Float64)
    middle = known.median()
    if known.len() < BAND_LEAST or not isinstance(middle, float):
        return None
    deviation = (known - middle).abs().median()
    spread = BAND_MADS * _MAD_TO_SIGMA * deviation if isinstance(deviation, float) else 0.0
    half = max(spread, BAND_LEAST_SHARE * abs(middle))
    # All measures here are of zero and more.
    low, high = max(0.0, middle - half), middle + half
    is_usual = ((known >= low) & (known <= high)).sum() >= (1 - BAND_MOST_OUTSIDE) * known.len()
    return Band(low, middle, high, known.len()) if is_usual else None
