"""The timeline of a trace at every zoom: blocks of operations near in time, and tiles of cells that keep their worst.

Built once, before a trace is published. A level has bins four times as long as the next finer one; a tile is 256 ranks
by 256 bins of one byte each. Levels that are too fine to be worth keeping are made from the blocks when asked for, by
the same function, so that no zoom level can lose what another shows.
"""

from __future__ import annotations

import gzip
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
_PIECE_ROWS: Final = 2_000_000
_SHARE_ROWS: Final = 16_000_000
_STRETCHES: Final = 1_024
_MOST_SEQ: Final = 2**63 - 1
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
CREATE TEMP TABLE timeline_per_op (
    comm_id UINTEGER, op_seq UBIGINT, median_us BIGINT, fastest_us BIGINT, entered BIGINT
)
"""
# A share of the operations at a time: what a median is made from cannot go to disk.
_SHARE_PER_OP: Final = """
INSERT INTO timeline_per_op
SELECT comm_id, op_seq, quantile_disc(start_us, 0.5) AS median_us, min(timed_us - start_us) AS fastest_us,
    count(*) AS entered
FROM timeline_ops
WHERE NOT p2p AND coalesce(op_seq, 0) % $shares = $share
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
# A part is a band, its short operations before its long ones, and a stretch of time. Long ones stand apart, so that a
# window need not look through all that began long before it. Rows are not sorted here: one part after another is.
_FROM_BOTH: Final = """)
SELECT t.y::UINTEGER AS y, e.* EXCLUDE (rank), (
        (t.y // 256 * 2 + (end_us - coalesce(least(median_us, start_us), start_us) > $long)::INTEGER) * $stretches
        + least(greatest(coalesce(median_us, start_us), 0) * $stretches // ($last + 1), $stretches - 1)
    )::UINTEGER AS part
FROM (FROM entered UNION ALL FROM absent) e
JOIN timeline_ranks t USING (rank)
"""
_ALL: Final = "".join(
    ("CREATE TEMP TABLE timeline_all AS WITH entered AS (", _ENTERED, "), absent AS (", _ABSENT, _FROM_BOTH)
)
_PARTS: Final = "SELECT part::BIGINT AS part, count(*) AS rows FROM timeline_all GROUP BY part ORDER BY part"
_PIECE: Final = """
SELECT
    y::BIGINT AS y, coalesce(comm_id, -1)::BIGINT AS comm, least(coalesce(op_seq, -1), $most)::BIGINT AS seq,
    coalesce(kind, -1)::BIGINT AS kind, state::BIGINT AS state, coalesce(median_us, -1) AS median_us, start_us, end_us,
    coalesce(fastest_us, -1) AS fastest_us, part::BIGINT AS part
FROM timeline_all
WHERE part BETWEEN $low AND $high AND rowid % $shares = $share
"""
_OPS_COUNT: Final = "SELECT count(*) FROM timeline_ops"
_RANKS_OF_ROWS: Final = """
SELECT rank::BIGINT AS rank, rank IN (SELECT DISTINCT rank FROM timeline_ops) AS entered
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
    def of(cls, ops: Ops, band: int, metrics: Sequence[str] = METRICS) -> Rows:
        """Return the operations of a band; what none of the metrics asks for is left unknown."""
        start = ops.start_us * 1000
        nothing = np.broadcast_to(np.int64(UNKNOWN), start.shape)
        late = wait = nothing
        begin = start
        if "late" in metrics:
            late_us = ops.late_us
            late = np.where(ops.late_is_known, late_us * 1000, UNKNOWN)
            begin = start - np.where(ops.state == ABSENT, 0, np.maximum(late_us, 0)) * 1000
        if "wait" in metrics:
            wait_us = ops.wait_us
            wait = np.where(wait_us >= 0, wait_us * 1000, UNKNOWN)
        return cls(
            from_ns=begin,
            start_ns=start,
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
    picture = Picture((metric,), bin_ns=bin_ns, first_bin=first_bin, bins=bins, height=height)
    picture.add(rows)
    return picture.cells(metric)


class Picture:
    """The cells of some metrics, ranks by bins, while rows come; see `cells`."""

    def __init__(self, metrics: Sequence[str], *, bin_ns: int, first_bin: int, bins: int, height: int = SIDE) -> None:
        self._bin_ns = bin_ns
        self._first = first_bin
        self._bins = bins
        shape = (height, bins)
        self.worst: Final = {metric: np.zeros(shape, np.uint8) for metric in metrics if metric != "busy"}
        self.busy_ns: Final = np.zeros(shape, np.int64) if "busy" in metrics else None

    def cells(self, metric: str) -> Cells:
        """Return what has been painted of a metric."""
        if metric == "busy" and self.busy_ns is not None:
            return busy_codes(self.busy_ns, self._bin_ns)
        return self.worst[metric]

    def add(self, rows: Rows) -> None:
        """Paint rows: a cell keeps the worst, or sums the time inside up."""
        if self.busy_ns is not None:
            _add_busy(self.busy_ns, rows, self._bin_ns, self._first)
        if not self.worst:
            return
        low = rows.start_ns // self._bin_ns - self._first
        high = np.maximum(rows.end_ns - 1, rows.start_ns) // self._bin_ns - self._first
        spans = _Spans(rows.y, low, high, self._bins)
        absent = rows.state == ABSENT
        if "state" in self.worst:
            spans.paint(self.worst["state"], rows.state.astype(np.uint8))
        if "wait" in self.worst:
            spans.paint(self.worst["wait"], np.where(absent, np.uint8(0), code_of_ns(rows.wait_ns)))
        if "late" in self.worst:
            codes = code_of_ns(rows.late_ns)
            spans.paint(self.worst["late"], np.where(absent, codes, np.uint8(1)))
            some = np.flatnonzero((codes > 1) & ~absent)
            back = rows.from_ns[some] // self._bin_ns - self._first
            _Spans(rows.y[some], back, low[some], self._bins).paint(self.worst["late"], codes[some])


class _Spans:
    """Runs of cells: from bin `low` to bin `high` of row `y` each, as far as they are inside of the picture."""

    def __init__(self, y: Int, low: Int, high: Int, bins: int) -> None:
        inside = (high >= 0) & (low < bins)
        self._chosen = None if inside.all() else np.flatnonzero(inside)
        if self._chosen is not None:
            y, low, high = y[self._chosen], low[self._chosen], high[self._chosen]
        low, high = np.maximum(low, 0), np.minimum(high, bins - 1)
        steps = high - low
        self._first = y * bins + low
        # Most are one or two bins long: their ends are all there is to paint.
        self._longer = np.flatnonzero(steps > 0)
        self._last = (self._first + steps)[self._longer]
        self._inner = np.flatnonzero((steps > 1) & (steps <= _SLICED))
        self._far = np.flatnonzero(steps > _SLICED)
        self._steps = steps

    def paint(self, made: Cells, values: Cells) -> None:
        """Raise each cell of a run to at least the value of its row."""
        if self._chosen is not None:
            values = values[self._chosen]
        flat = made.reshape(-1)
        np.maximum.at(flat, self._first, values)
        np.maximum.at(flat, self._last, values[self._longer])
        for at in self._far:
            part = flat[self._first[at] : self._first[at] + self._steps[at]]
            np.maximum(part, values[at], out=part)
        for piece in _pieces(self._inner, self._steps[self._inner]):
            count = self._steps[piece] - 1
            np.maximum.at(flat, _spread(self._first[piece] + 1, count), np.repeat(values[piece], count))


def busy_codes(sums: Int, bin_ns: int) -> Cells:
    """Return the codes of times inside of operations per bin: 0 none, 1 to 254 the share."""
    share = np.minimum(sums, bin_ns) * (TOP - 1) // bin_ns
    return np.where(sums > 0, 1 + share, 0).astype(np.uint8)


def _add_busy(sums: Int, rows: Rows, bin_ns: int, first_bin: int) -> None:
    """Add the time inside of operations to each bin; operations at once count once each."""
    bins = sums.shape[1]
    origin = first_bin * bin_ns
    start = np.maximum(rows.start_ns - origin, 0)
    end = np.minimum(rows.end_ns - origin, bins * bin_ns)
    keep = (rows.state != ABSENT) & (end > start)
    y = rows.y
    if not keep.all():
        y, start, end = y[keep], start[keep], end[keep]
    low, high = start // bin_ns, (end - 1) // bin_ns
    flat = sums.reshape(-1)
    row = y * bins
    np.add.at(flat, row + low, np.minimum(end, (low + 1) * bin_ns) - start)
    longer = np.flatnonzero(high > low)
    np.add.at(flat, row[longer] + high[longer], end[longer] - high[longer] * bin_ns)
    steps = high - low
    inner = np.flatnonzero(steps > 1)
    for piece in _pieces(inner, steps[inner]):
        count = steps[piece] - 1
        at = _spread(row[piece] + low[piece] + 1, count)
        np.add.at(flat, at, np.full(len(at), bin_ns, np.int64))


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
    shares = -(-ops // _SHARE_ROWS)
    for share in range(shares):
        writer.run(_SHARE_PER_OP, {"shares": shares, "share": share})
    writer.run(_ALL, {"last": last_us, "long": made.long_ns // 1000, "stretches": _STRETCHES})
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
    late_us = np.zeros(made.ranks, np.int64)
    band: _Band | None = None
    parts = writer.frame(_PARTS)
    count, done = int(parts["rows"].sum()), 0
    for low, high, shares in _plan_pieces(parts["part"].to_list(), parts["rows"].to_list()):
        for share in range(shares):
            tell(done, count)
            values = {"low": low, "high": high, "shares": shares, "share": share, "most": _MOST_SEQ}
            frame = writer.frame(_PIECE, values)
            if frame.is_empty():
                continue
            ops = Ops.of(frame)
            done += len(ops)
            np.maximum.at(late_us, ops.y, ops.late_us)
            # Bands, and of each the short before the long.
            group = frame["part"].to_numpy() // _STRETCHES
            order = _in_time(ops, group)
            marks = np.flatnonzero(np.diff(group[order])) + 1
            for chosen in np.split(order, marks):
                number = int(group[chosen[0]]) // 2
                if band is None or band.number != number:
                    if band is not None:
                        band.finish(writer)
                    band = _Band(made, number)
                band.add(writer, ops, chosen)
    if band is not None:
        band.finish(writer)
    tell(count, count)
    rows = writer.frame(_RANKS_OF_ROWS)
    return {"ranks": rows["rank"].to_list(), "late_us": late_us.tolist(), "entered": rows["entered"].to_list()}


def _plan_pieces(parts: list[int], rows: list[int]) -> list[tuple[int, int, int]]:
    """Return runs of parts of about `_PIECE_ROWS` rows: first, last, and in how many shares to read them."""
    found: list[tuple[int, int, int]] = []
    begin, held = 0, 0
    for at, count in enumerate(rows):
        if held and held + count > _PIECE_ROWS:
            found.append((parts[begin], parts[at - 1], 1))
            begin, held = at, 0
        held += count
        if held > _PIECE_ROWS:
            # More at about one moment than fits: in any order then, a block may hold what it likes.
            found.append((parts[begin], parts[at], -(-held // _PIECE_ROWS)))
            begin, held = at + 1, 0
    if held:
        found.append((parts[begin], parts[-1], 1))
    return found


def _in_time(ops: Ops, group: Int) -> Int:
    """Return the order of operations by group, then by when the median of the members came, members together."""
    when = np.where(ops.median_us >= 0, ops.median_us, ops.start_us)
    # Stable: what comes at one moment stays in the order of the trace, which is by group and operation.
    order = np.argsort(when, kind="stable")
    if (group != group[0]).any():
        order = order[np.argsort(group[order], kind="stable")]
    return order


class _Band:
    """The cells of the finest kept level of one band while its operations come."""

    def __init__(self, made: Plan, number: int) -> None:
        self.number = number
        self._plan = made
        self._level = made.stored - 1
        shape = (min(SIDE, made.ranks - number * SIDE), made.bins(self._level))
        bin_ns = made.bins_ns[self._level]
        self._picture = Picture(METRICS, bin_ns=bin_ns, first_bin=0, bins=shape[1], height=shape[0])

    def add(self, writer: StoreWriter, ops: Ops, order: Int) -> None:
        """Paint the operations in this order, and write them as blocks."""
        blocks: list[tuple[int, int, int, int, bytes]] = []
        # A block at a time: what is worked on stays in the processor's cache.
        for at in range(0, len(order), BLOCK_ROWS):
            some = ops.take(order[at : at + BLOCK_ROWS])
            self._picture.add(Rows.of(some, self.number))
            first, last = int(some.from_us.min()), int(some.end_us.max())
            blocks.append((self.number, first, last, len(some), pack(some)))
        _append(writer, schema.TIMELINE_BLOCKS, blocks)

    def finish(self, writer: StoreWriter) -> None:
        """Write the tiles of every level that is kept."""
        found: list[tuple[str, int, int, int, bytes]] = []
        worst, sums = self._picture.worst, self._picture.busy_ns
        assert sums is not None
        for level in range(self._level, -1, -1):
            busy = {"busy": busy_codes(sums, self._plan.bins_ns[level])}
            for metric, made in (worst | busy).items():
                for x in range(-(-made.shape[1] // SIDE)):
                    content = packed(made[:, x * SIDE : (x + 1) * SIDE])
                    if content is not None:
                        found.append((metric, level, self.number, x, content))
            worst = {metric: coarser(made) for metric, made in worst.items()}
            sums = _summed(sums)
        _append(writer, schema.TIMELINE_TILES, found)


def _append(writer: StoreWriter, table: schema.Table, rows: Sequence[tuple[object, ...]]) -> None:
    writer.append(table.name, pl.DataFrame(rows, schema=schema.polars_schema(table), orient="row"))


def _summed(sums: Int) -> Int:
    height, bins = sums.shape
    wide = -(-bins // STEP) * STEP
    padded = np.zeros((height, wide), np.int64)
    padded[:, :bins] = sums
    return padded.reshape(height, wide // STEP, STEP).sum(axis=2)
