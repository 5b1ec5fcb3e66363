"""The timeline of a trace at every zoom: rows in the order of time, and tiles of cells that keep the worst of theirs.

Built once, before a trace is published. A level has bins four times as long as the next finer one; a tile is 256 ranks
by 256 bins of one byte each. Levels that are too fine to be worth keeping are made from the rows when asked for, by
the same function, so that no zoom level can lose what another shows.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.store import StoreWriter

SIDE: Final = 256
"""Ranks and bins of a tile."""
STEP: Final = 4
"""How many bins of a level make one of the next coarser level."""
CELLS_MAX: Final = 16_000_000
BINS: Final = (16_384, 4_096, 1_024, 256)
METRICS: Final = ("late", "wait", "state", "busy")
STATES: Final = ("", "completed", "open", "aborted", "not entered")
"""Codes of `timeline_rows.state`, the worst last."""
COMPLETED, OPEN, ABORTED, ABSENT = 1, 2, 3, 4
OVERFLOW: Final = 255
TOP: Final = 254
LEAST_NS: Final = 10_000
"""Times below are code 1; above, the scale is logarithmic."""
MOST_NS: Final = 1_000_000_000_000
_PER_DECADE: Final = (TOP - 2) / math.log10(MOST_NS / LEAST_NS)
_SLICED: Final = 2_048
_EXPANDED: Final = 4_000_000

Int = npt.NDArray[np.int64]
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
    rank, comm_id, op_seq, enum_code(op_kind) AS kind, coalesce(is_p2p, FALSE) AS p2p,
    CASE
        WHEN state = 'completed' OR coalesce(retired, FALSE) OR coalesce(coalesced, FALSE) THEN 1
        WHEN state = 'aborted' THEN 3
        ELSE 2
    END AS state,
    epoch_ns(coalesce(start_ts, enq_ts)) - $first AS start_ns,
    dur_ns,
    epoch_ns(seen_end_ts) - $first AS seen_end_ns
FROM coll_ops
WHERE coalesce(start_ts, enq_ts) IS NOT NULL
"""
_PER_OP: Final = """
CREATE TEMP TABLE timeline_per_op AS
SELECT comm_id, op_seq, mode(kind) AS kind, quantile_disc(start_ns, 0.5) AS median_ns, min(dur_ns) AS fastest_ns,
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
)
SELECT p.median_ns AS from_ns, p.median_ns AS start_ns, $last - $first AS end_ns, n.rank, n.comm_id, n.op_seq, p.kind,
    4 AS state, $last - $first - p.median_ns AS late_ns, CAST(NULL AS BIGINT) AS wait_ns
FROM next n
JOIN timeline_per_op p USING (comm_id, op_seq)
"""
_ENTERED: Final = """
SELECT
    o.start_ns - CASE WHEN o.p2p OR p.entered < 2 THEN 0 ELSE greatest(o.start_ns - p.median_ns, 0) END AS from_ns,
    o.start_ns,
    CASE
        WHEN o.state = 2 THEN $last - $first
        ELSE o.start_ns + coalesce(o.dur_ns, greatest(o.seen_end_ns - o.start_ns, 0), 0)
    END AS end_ns,
    o.rank, o.comm_id, o.op_seq, o.kind, o.state,
    CASE WHEN o.p2p OR p.entered < 2 THEN NULL ELSE o.start_ns - p.median_ns END AS late_ns,
    CASE WHEN o.state = 2 THEN $last - $first - o.start_ns WHEN o.p2p THEN NULL ELSE o.dur_ns - p.fastest_ns END
        AS wait_ns
FROM timeline_ops o
LEFT JOIN timeline_per_op p ON p.comm_id = o.comm_id AND p.op_seq = o.op_seq AND NOT o.p2p
"""
_FROM_BOTH: Final = """)
SELECT e.*, t.y::UINTEGER AS y
FROM (FROM entered UNION ALL FROM absent) e
JOIN timeline_ranks t USING (rank)
ORDER BY from_ns, rank, comm_id, op_seq
"""
_ALL: Final = "".join(
    ("CREATE TEMP TABLE timeline_all AS WITH entered AS (", _ENTERED, "), absent AS (", _ABSENT, _FROM_BOTH)
)
_ROWS: Final = """
INSERT INTO timeline_rows
    (from_ns, start_ns, end_ns, rank, y, comm_id, op_seq, kind, state, late_ns, wait_ns)
SELECT from_ns, start_ns, end_ns, rank, y, comm_id, op_seq, kind, state, late_ns, wait_ns
FROM timeline_all
WHERE end_ns - from_ns <= $long
"""
_LONG: Final = """
INSERT INTO timeline_long
    (from_ns, start_ns, end_ns, rank, y, comm_id, op_seq, kind, state, late_ns, wait_ns)
SELECT from_ns, start_ns, end_ns, rank, y, comm_id, op_seq, kind, state, late_ns, wait_ns
FROM timeline_all
WHERE end_ns - from_ns > $long
"""
_BAND: Final = """
SELECT from_ns, start_ns, end_ns, y - $band AS y, state, late_ns, wait_ns
FROM timeline_all
WHERE y BETWEEN $band AND $band + 255
"""
_RANK_COUNT: Final = "SELECT count(*) FROM timeline_ranks"
META_KEY: Final = "timeline"
"""Key of `trace_meta` under which the plan stands."""
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


def plan(first_ns: int, last_ns: int, ranks: int) -> Plan:
    """Return the levels for an extent: the finest that is kept has at most `CELLS_MAX` cells."""
    span = max(1, last_ns - first_ns)
    bins = next((count for count in BINS if count * max(ranks, 1) <= CELLS_MAX), BINS[-1])
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
    def of(cls, frame: pl.DataFrame) -> Rows:
        """Return the rows of a frame with these columns."""

        def column(name: str) -> Int:
            return frame[name].cast(pl.Int64).fill_null(-1).to_numpy().astype(np.int64)

        names = ("from_ns", "start_ns", "end_ns", "y", "state", "late_ns", "wait_ns")
        return cls(*(column(name) for name in names))


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
    short = np.flatnonzero(lengths <= _SLICED)
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
    # What is open when the evidence ends must have a length to be seen.
    last = max(int(last), latest + max(1_000_000, (latest - first) // 32))
    writer.run(_RANKS)
    ranks = int(writer.frame(_RANK_COUNT).item(0, 0))
    made = plan(int(first), last, ranks)
    writer.run(_OPS, {"first": made.first_ns})
    writer.run(_PER_OP)
    writer.run(_ALL, {"first": made.first_ns, "last": made.last_ns})
    for statement in (_ROWS, _LONG):
        writer.run(statement, {"long": made.long_ns})
    bands = -(-ranks // SIDE)
    for band in range(bands):
        tell(band, bands)
        _add_tiles(writer, made, band)
    tell(bands, bands)
    writer.append("trace_meta", pl.DataFrame({"key": [META_KEY], "value": [made.to_json()]}))
    for statement in _CLEAR:
        writer.run(statement)
    return made


def _add_tiles(writer: StoreWriter, made: Plan, band: int) -> None:
    rows = Rows.of(writer.frame(_BAND, {"band": band * SIDE}))
    height = min(SIDE, made.ranks - band * SIDE)
    finest = made.stored - 1
    found: list[tuple[str, int, int, int, bytes]] = []
    for metric in METRICS:
        bin_ns, bins = made.bins_ns[finest], made.bins(finest)
        sums = _busy_ns(rows, bin_ns, 0, bins, height) if metric == "busy" else None
        level_cells = (
            cells(rows, metric=metric, bin_ns=bin_ns, first_bin=0, bins=bins, height=height)
            if sums is None
            else busy_codes(sums, bin_ns)
        )
        for level in range(finest, -1, -1):
            for x in range(-(-level_cells.shape[1] // SIDE)):
                content = packed(level_cells[:, x * SIDE : (x + 1) * SIDE])
                if content is not None:
                    found.append((metric, level, band, x, content))
            if level == 0:
                break
            if sums is None:
                level_cells = coarser(level_cells)
            else:
                sums = _summed(sums)
                level_cells = busy_codes(sums, made.bins_ns[level - 1])
    names = ("metric", "level", "y", "x", "cells")
    wanted = schema.polars_schema(schema.TIMELINE_TILES)
    writer.append("timeline_tiles", pl.DataFrame(found, schema={name: wanted[name] for name in names}, orient="row"))


def _summed(sums: Int) -> Int:
    height, bins = sums.shape
    wide = -(-bins // STEP) * STEP
    padded = np.zeros((height, wide), np.int64)
    padded[:, :bins] = sums
    return padded.reshape(height, wide // STEP, STEP).sum(axis=2)
