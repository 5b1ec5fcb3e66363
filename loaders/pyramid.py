"""The timeline of a trace at every zoom: blocks of operations near in time, and tiles of cells that keep their worst.

Built once, before a trace is published. A level has bins four times as long as the next finer one; a tile is 256 ranks
by 256 bins of one byte each. Levels that are too fine to be worth keeping are made from the blocks when asked for, by
the same function, so that no zoom level can lose what another shows.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.store import StoreWriter
from mycroft.loaders.timeline_blocks import ABSENT, BLOCK_ROWS, UNKNOWN, Int, Ops, pack

SIDE: Final = 256
"""Ranks and bins of a tile."""
STEP: Final = 4
"""How many bins of a level make one of the next coarser level."""
BINS: Final = (16_384, 4_096, 1_024, 256)
OPS_A_CELL: Final = 4
"""The finest level that is kept has this many operations a cell at least: a tile of a finer one has few to read."""
METRICS: Final = ("late", "wait", "state", "busy")
STATES: Final = ("", "completed", "open", "aborted", "not entered")
"""Names of the states, the worst last."""
OVERFLOW: Final = 255
TOP: Final = 254
LEAST_NS: Final = 10_000
"""Times below are code 1; above, the scale is logarithmic."""
MOST_NS: Final = 1_000_000_000_000
_PER_DECADE: Final = (TOP - 2) / math.log10(MOST_NS / LEAST_NS)
_SLICED: Final = 2_048
_PIECE_ROWS: Final = 1_000_000
_EXPANDED: Final = 4_000_000

Cells = npt.NDArray[np.uint8]
Tell = Callable[[int, int], None]

_EXTENT: Final = """
SELECT
    (SELECT epoch_ns(min(coalesce(start_ts, enq_ts))) FROM coll_ops) AS first,
    greatest(
        (SELECT max(epoch_ns(coalesce(start_ts, enq_ts)) + coalesce(dur_ns, 0)) FROM coll_ops),
        (SELECT epoch_ns(max(seen_end_ts)) FROM coll_ops),
        (SELECT epoch_ns(max(ts)) FROM flow_state),
        (SELECT epoch_ns(max(ts)) FROM heartbeat),
        (SELECT epoch_ns(max(ts)) FROM events WHERE kind = 'watchdog_timeout' AND rank IS NOT NULL)
    ) AS last
"""
_LAST_START: Final = "SELECT epoch_ns(max(coalesce(start_ts, enq_ts))) FROM coll_ops"
_RANKS: Final = """
CREATE TEMP TABLE timeline_ranks AS
SELECT rank, row_number() OVER (ORDER BY rank) - 1 AS y
FROM (
    SELECT rank FROM ranks
    UNION
    SELECT rank FROM members
    UNION
    SELECT rank FROM coll_ops
    UNION
    SELECT range FROM range((SELECT least(coalesce(max(world_size), 0), 200000) FROM jobs))
)
"""
_OPS: Final = """
CREATE TEMP TABLE timeline_ops AS
SELECT
    rank, comm_id, op_seq, enum_code(op_kind)::UTINYINT AS kind, coalesce(is_p2p, FALSE) AS p2p,
    CASE
        WHEN state = 'completed' OR coalesce(retired, FALSE) OR coalesce(coalesced, FALSE) THEN 1
        WHEN state = 'aborted' THEN 3
        ELSE 2
    END::UTINYINT AS state,
    (epoch_ns(coalesce(start_ts, enq_ts)) - $first) // 1000 AS start_us,
    (epoch_ns(coalesce(start_ts, enq_ts)) - $first + greatest(dur_ns, 0)) // 1000 AS timed_us,
    (epoch_ns(seen_end_ts) - $first) // 1000 AS seen_us
FROM coll_ops
WHERE coalesce(start_ts, enq_ts) IS NOT NULL
"""
_PER_OP: Final = """
CREATE TEMP TABLE timeline_per_op AS
SELECT comm_id, op_seq, quantile_disc(start_us, 0.5) AS median_us, min(timed_us - start_us) AS fastest_us,
    count(*) AS entered
FROM timeline_ops
WHERE NOT p2p
GROUP BY comm_id, op_seq
"""
# A member that left a dump and is not in the operation that others entered after its last one.
_ABSENT: Final = """
WITH reached AS (
    SELECT comm_id, rank, max(op_seq) AS op_seq
    FROM timeline_ops
    WHERE NOT p2p AND rank IN (SELECT rank FROM rank_dumps)
    GROUP BY comm_id, rank
),
next AS (
    SELECT r.comm_id, r.rank, min(p.op_seq) AS op_seq
    FROM reached r
    JOIN timeline_per_op p ON p.comm_id = r.comm_id AND p.op_seq > r.op_seq
    GROUP BY ALL
),
kinds AS (
    SELECT comm_id, op_seq, mode(kind) AS kind
    FROM timeline_ops
    SEMI JOIN next USING (comm_id, op_seq)
    WHERE NOT p2p
    GROUP BY comm_id, op_seq
)
SELECT n.rank, n.comm_id, n.op_seq, k.kind, 4::UTINYINT AS state, p.median_us, p.median_us AS start_us,
    $last AS end_us, CAST(NULL AS BIGINT) AS fastest_us
FROM next n
JOIN timeline_per_op p USING (comm_id, op_seq)
JOIN kinds k USING (comm_id, op_seq)
"""
_ENTERED: Final = """
SELECT
    o.rank, o.comm_id, o.op_seq, o.kind, o.state,
    CASE WHEN o.p2p OR p.entered < 2 THEN NULL ELSE p.median_us END AS median_us,
    o.start_us,
    CASE WHEN o.state = 2 THEN $last ELSE coalesce(o.timed_us, greatest(o.seen_us, o.start_us), o.start_us) END
        AS end_us,
    CASE WHEN o.state = 2 OR o.timed_us IS NULL THEN NULL ELSE p.fastest_us END AS fastest_us
FROM timeline_ops o
LEFT JOIN timeline_per_op p ON p.comm_id = o.comm_id AND p.op_seq = o.op_seq AND NOT o.p2p
"""
# Long ones stand apart, so that a window need not look through all that began long before it.
_FROM_BOTH: Final = """)
SELECT t.y::UINTEGER AS y, e.* EXCLUDE (rank)
FROM (FROM entered UNION ALL FROM absent) e
JOIN timeline_ranks t USING (rank)
ORDER BY t.y // 256, end_us - coalesce(least(median_us, start_us), start_us) > $long,
    coalesce(median_us, start_us), comm_id, op_seq, t.y
"""
_ALL: Final = "".join(
    ("CREATE TEMP TABLE timeline_all AS WITH entered AS (", _ENTERED, "), absent AS (", _ABSENT, _FROM_BOTH)
)
_PIECE: Final = """
SELECT y, comm_id AS comm, op_seq AS seq, kind, state, median_us, start_us, end_us, fastest_us
FROM timeline_all
WHERE rowid BETWEEN $low AND $high
"""
_COUNT: Final = "SELECT count(*) FROM timeline_all"
_OPS_COUNT: Final = "SELECT count(*) FROM timeline_ops"
_RANKS_OF_ROWS: Final = """
SELECT rank::BIGINT AS rank, rank IN (SELECT rank FROM coll_ops) AS entered
FROM timeline_ranks
ORDER BY y
"""
_RANK_COUNT: Final = "SELECT count(*) FROM timeline_ranks"
META_KEY: Final = "timeline_plan"
"""Key of `trace_meta` under which the plan stands."""
ROWS_KEY: Final = "timeline_rows"
"""Key of `trace_meta` under which the ranks of the rows stand, their most lateness in µs, and which have operations."""
_CLEAR: Final = (
    "DROP TABLE timeline_all",
    "DROP TABLE timeline_ops",
    "DROP TABLE timeline_per_op",
    "DROP TABLE timeline_ranks",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Which levels a timeline has. Level 0 is the coarsest; the first `stored` are kept as tiles.

    Times are ns after `first_ns`, itself ns since the epoch. `bins_ns` is the length of a bin at each level.
    """

    first_ns: int
    last_ns: int
    ranks: int
    bins_ns: tuple[int, ...]
    stored: int
    long_ns: int

    @property
    def span_ns(self) -> int:
        """Length of the timeline, ns; at least 1."""
        return max(1, self.last_ns - self.first_ns)

    def bins(self, level: int) -> int:
        """Return how many bins a level has."""
        return -(-self.span_ns // self.bins_ns[level])

    def to_json(self) -> str:
        """Return the plan as it stands in the trace."""
        fields = {"first_ns": self.first_ns, "last_ns": self.last_ns, "ranks": self.ranks, "stored": self.stored}
        return json.dumps({**fields, "bins_ns": list(self.bins_ns), "long_ns": self.long_ns})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        fields["bins_ns"] = tuple(fields["bins_ns"])
        return cls(**fields)


def plan(first_ns: int, last_ns: int, ranks: int, ops: int = 0) -> Plan:
    """Return the levels for an extent: how fine the finest that is kept is depends on how many operations there are."""
    span = max(1, last_ns - first_ns)
    bins = next((count for count in BINS if count * max(ranks, 1) * OPS_A_CELL <= ops), BINS[-1])
    # Below a microsecond nothing is to be seen; every length of a bin is a whole number of ns.
    deeper = max(0, int(math.log(max(span / bins / 1000, 1), STEP)))
    least = -(-span // (bins * STEP**deeper))
    stored = round(math.log(bins / BINS[-1], STEP)) + 1
    lengths = tuple(least * STEP**power for power in range(deeper + stored - 1, -1, -1))
    return Plan(first_ns, last_ns, ranks, lengths, stored, long_ns=lengths[stored - 1] * 64)


# ---- cells -----------------------------------------------------------------------------------


def code_of_ns(values: Int) -> Cells:
    """Return the codes of times: 1 below `LEAST_NS`, then logarithmic to 254, 255 above `MOST_NS`."""
    scaled = np.log10(np.maximum(values, LEAST_NS) / LEAST_NS) * _PER_DECADE
    codes = np.where(values < LEAST_NS, 1, 2 + np.floor(scaled))
    return np.where(values > MOST_NS, OVERFLOW, np.minimum(codes, TOP)).astype(np.uint8)


def ns_of_code(code: int) -> float:
    """Return the least time of a code, ns; 0 for codes below the scale."""
    return 0.0 if code < 2 else LEAST_NS * 10 ** ((code - 2) / _PER_DECADE)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a band of ranks: times in ns after the start, `y` within the band, -1 where a value is not known."""

    from_ns: Int
    start_ns: Int
    end_ns: Int
    y: Int
    state: Int
    late_ns: Int
    wait_ns: Int

    @classmethod
    def of(cls, ops: Ops, band: int) -> Rows:
        """Return the operations of a band."""
        late = np.where(ops.late_is_known, ops.late_us * 1000, UNKNOWN)
        wait = np.where(ops.wait_us >= 0, ops.wait_us * 1000, UNKNOWN)
        return cls(
            from_ns=ops.from_us * 1000,
            start_ns=ops.start_us * 1000,
            end_ns=ops.end_us * 1000,
            y=ops.y - band * SIDE,
            state=ops.state,
            late_ns=late,
            wait_ns=wait,
        )


def cells(rows: Rows, *, metric: str, bin_ns: int, first_bin: int, bins: int, height: int = SIDE) -> Cells:
    """Return the cells of one metric, ranks by bins: the worst of the rows that reach into each; 0: none does.

    A row reaches into every bin from its start to its end, ends not included. `late` also reaches back to when the
    median of the members had arrived: that is when the rank was missing.
    """
    if metric == "busy":
        return _busy(rows, bin_ns, first_bin, bins, height)
    made = np.zeros((height, bins), np.uint8)
    low = rows.start_ns // bin_ns - first_bin
    high = np.maximum(rows.end_ns - 1, rows.start_ns) // bin_ns - first_bin
    if metric == "state":
        _paint(made, rows.y, low, high, rows.state.astype(np.uint8))
    elif metric == "wait":
        _paint(made, rows.y, low, high, np.where(rows.state == ABSENT, 0, code_of_ns(rows.wait_ns)).astype(np.uint8))
    else:
        absent = rows.state == ABSENT
        codes = code_of_ns(rows.late_ns)
        _paint(made, rows.y, low, high, np.where(absent, codes, 1).astype(np.uint8))
        some = (codes > 1) & ~absent
        back = rows.from_ns // bin_ns - first_bin
        _paint(made, rows.y[some], back[some], low[some], codes[some])
    return made


def _paint(made: Cells, y: Int, low: Int, high: Int, values: Cells) -> None:
    """Raise each cell from bin `low` to bin `high` of row `y` to at least the value."""
    bins = made.shape[1]
    inside = (high >= 0) & (low < bins) & (values > 0)
    y, values = y[inside], values[inside]
    low, high = np.clip(low[inside], 0, bins - 1), np.clip(high[inside], 0, bins - 1)
    lengths = high - low + 1
    flat = made.reshape(-1)
    for at in np.flatnonzero(lengths > _SLICED):
        part = made[y[at], low[at] : high[at] + 1]
        np.maximum(part, values[at], out=part)
    single = np.flatnonzero(lengths == 1)
    np.maximum.at(flat, y[single] * bins + low[single], values[single])
    short = np.flatnonzero((lengths > 1) & (lengths <= _SLICED))
    for piece in _pieces(short, lengths[short]):
        count = lengths[piece]
        np.maximum.at(flat, _spread(y[piece] * bins + low[piece], count), np.repeat(values[piece], count))


def _busy(rows: Rows, bin_ns: int, first_bin: int, bins: int, height: int) -> Cells:
    """Return the share of each bin inside of operations; operations at once count once each, up to the whole bin."""
    return busy_codes(_busy_ns(rows, bin_ns, first_bin, bins, height), bin_ns)


def busy_codes(sums: Int, bin_ns: int) -> Cells:
    """Return the codes of times inside of operations per bin: 0 none, 1 to 254 the share."""
    share = np.minimum(sums, bin_ns) * (TOP - 1) // bin_ns
    return np.where(sums > 0, 1 + share, 0).astype(np.uint8)


def _busy_ns(rows: Rows, bin_ns: int, first_bin: int, bins: int, height: int) -> Int:
    sums = np.zeros((height, bins), np.int64)
    origin = first_bin * bin_ns
    start = np.maximum(rows.start_ns - origin, 0)
    end = np.minimum(rows.end_ns - origin, bins * bin_ns)
    keep = (rows.state != ABSENT) & (end > start)
    y, start, end = rows.y[keep], start[keep], end[keep]
    low, high = start // bin_ns, (end - 1) // bin_ns
    lengths = high - low + 1
    flat = sums.reshape(-1)
    for piece in _pieces(np.arange(len(y)), lengths):
        count = lengths[piece]
        at = _spread(y[piece] * bins + low[piece], count)
        np.add.at(flat, at, np.full(len(at), bin_ns, np.int64))
    np.subtract.at(flat, y * bins + low, start - low * bin_ns)
    np.subtract.at(flat, y * bins + high, (high + 1) * bin_ns - end)
    return sums


def _pieces(at: npt.NDArray[np.int64], lengths: Int) -> list[npt.NDArray[np.int64]]:
    """Split rows so that no part covers many more than `_EXPANDED` cells."""
    if not len(at):
        return []
    marks = np.cumsum(lengths) // _EXPANDED
    return np.split(at, np.flatnonzero(np.diff(marks)) + 1)


def _spread(first: Int, count: Int) -> Int:
    """Return the runs `first, first + 1, …` of `count` members each, one after the other."""
    ends = np.cumsum(count)
    return np.repeat(first - ends + count, count) + np.arange(ends[-1] if len(ends) else 0)


def coarser(made: Cells) -> Cells:
    """Return the next coarser level of cells whose worst counts."""
    height, bins = made.shape
    wide = -(-bins // STEP) * STEP
    padded = np.zeros((height, wide), made.dtype)
    padded[:, :bins] = made
    return padded.reshape(height, wide // STEP, STEP).max(axis=2)


def packed(part: Cells) -> bytes | None:
    """Return a tile as it is kept and sent: 256 by 256 bytes, gzip; None where all of it is empty."""
    if not part.any():
        return None
    whole = np.zeros((SIDE, SIDE), np.uint8)
    whole[: part.shape[0], : part.shape[1]] = part
    return gzip.compress(whole.tobytes(), 1, mtime=0)


# ---- building ---------------------------------------------------------------------------------


def build(path: Path, *, tell: Tell | None = None) -> Plan | None:
    """Add the timeline to a trace that nobody has open yet; None where none of its operations has a time.

    Raises:
        StoreError: the trace cannot be written.
    """
    writer = StoreWriter(path, reopen=True)
    try:
        return _build(writer, tell or (lambda done, total: None))
    finally:
        writer.finish()


def _build(writer: StoreWriter, tell: Tell) -> Plan | None:
    first, last = writer.frame(_EXTENT).row(0)
    if first is None or last is None:
        return None
    latest = int(writer.frame(_LAST_START).item(0, 0))
    # What is open when the evidence ends must have a length to be seen; the whole is a whole number of µs.
    last = max(int(last), latest + max(1_000_000, (latest - first) // 32))
    last_us = -(-(last - int(first)) // 1000)
    writer.run(_RANKS)
    ranks = int(writer.frame(_RANK_COUNT).item(0, 0))
    writer.run(_OPS, {"first": int(first)})
    ops = int(writer.frame(_OPS_COUNT).item(0, 0))
    made = plan(int(first), int(first) + last_us * 1000, ranks, ops)
    writer.run(_PER_OP)
    writer.run(_ALL, {"last": last_us, "long": made.long_ns // 1000})
    # In one transaction: a block that is written again leaves a hole in the file, and each commit may do that.
    writer.run("BEGIN TRANSACTION")
    rows = _add_bands(writer, made, tell)
    writer.run("COMMIT")
    meta = {META_KEY: made.to_json(), ROWS_KEY: json.dumps(rows)}
    writer.append("trace_meta", pl.DataFrame({"key": list(meta), "value": list(meta.values())}))
    for statement in _CLEAR:
        writer.run(statement)
    return made


def _add_bands(writer: StoreWriter, made: Plan, tell: Tell) -> dict[str, Any]:
    """Write blocks and tiles, a piece of the operations at a time; return what is known of each row."""
    count = int(writer.frame(_COUNT).item(0, 0))
    late_us = np.zeros(made.ranks, np.int64)
    band: _Band | None = None
    for low in range(0, count, _PIECE_ROWS):
        tell(low, count)
        ops = Ops.of(writer.frame(_PIECE, {"low": low, "high": low + _PIECE_ROWS - 1}))
        np.maximum.at(late_us, ops.y, ops.late_us)
        bands = ops.y // SIDE
        for part in np.split(np.arange(len(ops)), np.flatnonzero(np.diff(bands)) + 1):
            number = int(bands[part[0]])
            if band is None or band.number != number:
                if band is not None:
                    band.finish(writer)
                band = _Band(made, number)
            band.add(writer, ops.take(slice(int(part[0]), int(part[-1]) + 1)))
    if band is not None:
        band.finish(writer)
    tell(count, count)
    rows = writer.frame(_RANKS_OF_ROWS)
    return {"ranks": rows["rank"].to_list(), "late_us": late_us.tolist(), "entered": rows["entered"].to_list()}


class _Band:
    """The cells of the finest kept level of one band while its operations come."""

    def __init__(self, made: Plan, number: int) -> None:
        self.number = number
        self._plan = made
        self._level = made.stored - 1
        self._shape = (min(SIDE, made.ranks - number * SIDE), made.bins(self._level))
        self._busy = np.zeros(self._shape, np.int64)
        self._worst = {metric: np.zeros(self._shape, np.uint8) for metric in METRICS if metric != "busy"}

    def add(self, writer: StoreWriter, ops: Ops) -> None:
        """Paint the operations, and write them as blocks."""
        rows = Rows.of(ops, self.number)
        height, bins = self._shape
        bin_ns = self._plan.bins_ns[self._level]
        for metric, worst in self._worst.items():
            fresh = cells(rows, metric=metric, bin_ns=bin_ns, first_bin=0, bins=bins, height=height)
            np.maximum(worst, fresh, out=worst)
        self._busy += _busy_ns(rows, bin_ns, 0, bins, height)
        from_us = ops.from_us
        # Long ones come last; a block of both would be read for nearly every window.
        is_long = ops.end_us - from_us > self._plan.long_ns // 1000
        marks = [0, *(np.flatnonzero(np.diff(is_long)) + 1).tolist(), len(ops)]
        blocks: list[tuple[int, int, int, int, bytes]] = []
        for begin, end in itertools.pairwise(marks):
            for at in range(begin, end, BLOCK_ROWS):
                some = slice(at, min(at + BLOCK_ROWS, end))
                content = pack(ops.take(some))
                first, last = int(from_us[some].min()), int(ops.end_us[some].max())
                blocks.append((self.number, first, last, some.stop - some.start, content))
        _append(writer, schema.TIMELINE_BLOCKS, blocks)

    def finish(self, writer: StoreWriter) -> None:
        """Write the tiles of every level that is kept."""
        found: list[tuple[str, int, int, int, bytes]] = []
        for level in range(self._level, -1, -1):
            busy = {"busy": busy_codes(self._busy, self._plan.bins_ns[level])}
            for metric, made in (self._worst | busy).items():
                for x in range(-(-made.shape[1] // SIDE)):
                    content = packed(made[:, x * SIDE : (x + 1) * SIDE])
                    if content is not None:
                        found.append((metric, level, self.number, x, content))
            self._worst = {metric: coarser(made) for metric, made in self._worst.items()}
            self._busy = _summed(self._busy)
        _append(writer, schema.TIMELINE_TILES, found)


def _append(writer: StoreWriter, table: schema.Table, rows: Sequence[tuple[object, ...]]) -> None:
    writer.append(table.name, pl.DataFrame(rows, schema=schema.polars_schema(table), orient="row"))


def _summed(sums: Int) -> Int:
    height, bins = sums.shape
    wide = -(-bins // STEP) * STEP
    padded = np.zeros((height, wide), np.int64)
    padded[:, :bins] = sums
    return padded.reshape(height, wide // STEP, STEP).sum(axis=2)
