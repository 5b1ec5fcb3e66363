"""The timeline of a trace: who is in it, tiles of its heat map, bars of a window, and what is under the pointer."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.app.queries import TraceReader
from mycroft.app.reads import verdicts
from mycroft.errors import MycroftError
from mycroft.loaders import pyramid, schema
from mycroft.loaders.pyramid import METRICS, SIDE, Plan, Rows
from mycroft.loaders.timeline_blocks import Ops, joined, unpack

BARS_MAX: Final = 12_000
BARS_VERSION: Final = 1
HEADER: Final = struct.Struct("<4I")
"""Version, bars that follow, bars that the window holds, 1 where that number is an estimate."""
HITS_MAX: Final = 12
BLOCKS_MAX: Final = 40
"""Blocks that one answer unpacks, some 650,000 operations; a window of more has far more than bars can be drawn."""

_TILE: Final = "SELECT cells FROM timeline_tiles WHERE metric = ? AND level = ? AND y = ? AND x = ?"
_BLOCKS: Final = """
SELECT band, from_us, end_us, ops
FROM timeline_blocks
WHERE band BETWEEN $low // 256 AND $high // 256 AND from_us <= $last AND end_us >= $first
"""
# All blocks of a window at once: each further query would pass over the blocks before its own again.
_CONTENT: Final = """
SELECT content
FROM timeline_blocks
WHERE band BETWEEN $low // 256 AND $high // 256 AND from_us <= $last AND end_us >= $first
ORDER BY rowid
LIMIT $most
"""
_ALL: Final = 2**62
_HOSTS: Final = "SELECT r.rank::BIGINT AS rank, h.name FROM ranks r JOIN hosts h USING (host_id)"
_FROM: Final = """
SELECT rank::BIGINT AS rank, epoch_ns(min(first_ts) FILTER (WHERE first_record > 0)) AS from_ns
FROM rank_dumps
WHERE rank IS NOT NULL
GROUP BY rank
"""
_COMMS: Final = """
SELECT comm_id::BIGINT AS comm_id, key, coalesce("desc", key) AS "desc", kind
FROM communicators
ORDER BY comm_id
LIMIT 20000
"""
_POSITIONS: Final = """
SELECT m.rank::BIGINT AS rank, m.comm_rank::BIGINT AS comm_rank
FROM members m
JOIN communicators c USING (comm_id)
WHERE c.comm_id = (SELECT comm_id FROM members GROUP BY comm_id ORDER BY count(*) DESC, comm_id LIMIT 1)
"""
_CLOCK: Final = "SELECT max(clock_error_ns)::BIGINT FROM hosts"


class NoTimelineError(MycroftError):
    """A trace that was published without a timeline."""

    http_status = 404


class TileError(MycroftError):
    """A tile or window that the timeline does not have."""

    http_status = 404


def has_timeline(reader: TraceReader) -> bool:
    """Whether the trace holds a timeline."""
    with reader.store() as store:
        return pyramid.META_KEY in store.meta


def plan_of(reader: TraceReader) -> Plan:
    """Return the levels of the trace's timeline.

    Raises:
        NoTimelineError: it holds none.
    """
    with reader.store() as store:
        found = store.meta.get(pyramid.META_KEY)
    if found is None:
        raise NoTimelineError(f"{reader.trace} holds no timeline; load the evidence again")
    return Plan.from_json(found)


def describe(reader: TraceReader) -> dict[str, Any]:
    """Return what a timeline is drawn with: extent, levels, ranks, groups, and what the verdict marks.

    Times are µs after the start of the timeline.
    """
    plan = plan_of(reader)
    # What all operations would have to be read for stands beside the plan.
    with reader.store() as store:
        found = store.meta.get(pyramid.ROWS_KEY)
    if found is None:
        raise NoTimelineError(f"{reader.trace} holds the timeline of an older version; load the evidence again")
    rows: dict[str, list[int]] = json.loads(found)
    host_of: dict[int, str] = dict(reader.frame(_HOSTS).iter_rows())
    from_ns: dict[int, int | None] = dict(reader.frame(_FROM).iter_rows())
    hosts = sorted({host for rank in rows["ranks"] if (host := host_of.get(rank))})
    number = {host: at for at, host in enumerate(hosts)}
    return {
        "start_ns": str(plan.first_ns),
        "span_us": -(-plan.span_ns // 1000),
        "levels": [
            {"bin_us": length / 1000, "bins": plan.bins(level), "stored": level < plan.stored}
            for level, length in enumerate(plan.bins_ns)
        ],
        "metrics": list(METRICS),
        "scale": {"least_ns": pyramid.LEAST_NS, "most_ns": pyramid.MOST_NS, "top": pyramid.TOP},
        "states": list(pyramid.STATES),
        "kinds": list(schema.OP_KINDS),
        "bars_max": BARS_MAX,
        "ranks": rows["ranks"],
        "hosts": hosts,
        "host_of": [number.get(host_of.get(rank, ""), -1) for rank in rows["ranks"]],
        "silent": [at for at, entered in enumerate(rows["entered"]) if not entered],
        "from_us": [max(0, ((from_ns.get(rank) or plan.first_ns) - plan.first_ns) // 1000) for rank in rows["ranks"]],
        "late_ns": [late * 1000 for late in rows["late_us"]],
        "positions": {
            str(rank): position for rank, position in reader.frame(_POSITIONS).iter_rows() if position is not None
        },
        "comms": {
            str(row["comm_id"]): [row["key"], row["desc"], row["kind"]] for row in reader.frame(_COMMS).to_dicts()
        },
        "clock_us": _clock(reader),
        "incidents": _incidents(reader, plan),
    }


def _clock(reader: TraceReader) -> float | None:
    error = reader.frame(_CLOCK).item(0, 0)
    return None if error is None else error / 1000


def _incidents(reader: TraceReader, plan: Plan) -> list[dict[str, Any]]:
    """Return the findings of the verdict: since when, and which ranks are to blame."""
    verdict = verdicts.verdict_of(reader)
    found: list[dict[str, Any]] = []
    for finding in verdict["findings"] if verdict else ():
        since = finding.get("since")
        at: int | None = None
        if since:
            try:
                moment = datetime.fromisoformat(since)
            except ValueError:
                moment = None
            if moment is not None:
                aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                at = (int(aware.timestamp() * 1_000_000) * 1000 - plan.first_ns) // 1000
        cause = finding["root_cause"]
        inside = at is not None and 0 <= at <= plan.span_ns // 1000
        found.append(
            {
                "id": finding["id"],
                "since_us": at if inside else None,
                "ranks": cause["ranks"],
                "sure": not cause["one_of"],
                "summary": finding["summary"],
            }
        )
    return found


def tile(reader: TraceReader, metric: str, level: int, y: int, x: int) -> bytes | None:
    """Return a tile, gzip of 256 rows of 256 bytes; None where all of it is empty.

    Raises:
        NoTimelineError: the trace holds no timeline.
        TileError: the timeline has no such tile.
    """
    plan = plan_of(reader)
    if metric not in METRICS:
        raise TileError(f"no metric {metric[:40]}; there are {', '.join(METRICS)}")
    if level >= len(plan.bins_ns) or y * SIDE >= plan.ranks or x * SIDE >= plan.bins(level):
        raise TileError(f"the timeline of {reader.trace} has no tile {level}/{y}/{x}")
    if level < plan.stored:
        with reader.store() as store:
            found = store.frame(_TILE, [metric, level, y, x])
        return bytes(found.item(0, 0)) if found.height else None
    return pyramid.packed(_fresh(reader, plan, metric, level, y, x))


def _fresh(reader: TraceReader, plan: Plan, metric: str, level: int, y: int, x: int) -> pyramid.Cells:
    """Return the cells of a level that is not kept, from the operations."""
    bin_ns = plan.bins_ns[level]
    first_us = x * SIDE * bin_ns // 1000
    last_us = -(-(x + 1) * SIDE * bin_ns // 1000)
    height = min(SIDE, plan.ranks - y * SIDE)
    bins = min(SIDE, plan.bins(level) - x * SIDE)
    picture = pyramid.Picture((metric,), bin_ns=bin_ns, first_bin=x * SIDE, bins=bins, height=height)
    for content in _contents(reader, _window(first_us, last_us, y * SIDE, y * SIDE + SIDE - 1)):
        # All rows of the band are in the tile, and the picture leaves out what does not reach into it.
        ops = unpack(content, named=False, compared=metric == "wait")
        picture.add(Rows.of(ops, y, (metric,)))
    return picture.cells(metric)


def _window(first_us: int, last_us: int, low: int, high: int) -> dict[str, object]:
    return {"first": first_us, "last": last_us, "low": low, "high": high}


def _contents(reader: TraceReader, window: dict[str, object], *, most: int = _ALL) -> list[bytes]:
    """Return the blocks that may reach into a window, `most` at most."""
    with reader.store() as store:
        return store.frame(_CONTENT, {**window, "most": most})["content"].to_list()


def _inside(contents: list[bytes], first_us: int, last_us: int, low: int, high: int) -> Ops:
    """Return the operations of blocks that reach into a window of times and rows, ends included."""
    parts: list[Ops] = []
    for content in contents:
        ops = unpack(content)
        # What begins later than the window may still have been missing in it.
        reaches = (ops.from_us <= last_us) & (ops.end_us >= first_us) & (ops.y >= low) & (ops.y <= high)
        parts.append(ops.take(np.flatnonzero(reaches)))
    return joined(parts)


def bars(reader: TraceReader, first_us: int, last_us: int, low: int, high: int) -> bytes:
    """Return the bars of a window as columns after a header; no bars, only their count, where they are too many.

    Little-endian: start and end as float32 µs after `first_us`, row after `low` as uint16, kind and state as uint8, a
    gap to a multiple of 4, number of the operation and communicator as uint32. The count of a window that would have
    far too many is an estimate, and marked as one.
    """
    plan = plan_of(reader)
    window = _window(first_us, last_us, low, high)
    contents = _contents(reader, window, most=BLOCKS_MAX + 1)
    if len(contents) > BLOCKS_MAX:
        with reader.store() as store:
            found = store.frame(_BLOCKS, window)
        return HEADER.pack(BARS_VERSION, 0, _estimate(found, plan, first_us, last_us, low, high), 1)
    ops = _inside(contents, first_us, last_us, low, high)
    total = len(ops)
    if total > BARS_MAX or high - low > 0xFFFF:
        return HEADER.pack(BARS_VERSION, 0, total, 0)
    ops = ops.take(np.lexsort((ops.y, ops.start_us, ops.state)))
    parts = [
        (ops.start_us - first_us).astype("<f4").tobytes(),
        (ops.end_us - first_us).astype("<f4").tobytes(),
        (ops.y - low).astype("<u2").tobytes(),
        ops.kind.astype("u1").tobytes(),
        ops.state.astype("u1").tobytes(),
        np.maximum(ops.seq, 0).astype("<u4").tobytes(),
        ops.comm.astype("<u4").tobytes(),
    ]
    # Four columns of 4 bytes, one of 2 and two of 1: every column begins at a multiple of its width.
    return HEADER.pack(BARS_VERSION, total, total, 0) + b"".join(parts)


def _estimate(blocks: pl.DataFrame, plan: Plan, first_us: int, last_us: int, low: int, high: int) -> int:
    """Return how many operations a window has, were those of a block spread evenly over its time and its ranks."""
    begin = blocks["from_us"].to_numpy()
    end = np.maximum(blocks["end_us"].to_numpy(), begin + 1)
    shared = np.maximum(np.minimum(end, last_us + 1) - np.maximum(begin, first_us), 1) / (end - begin)
    floor = blocks["band"].to_numpy().astype(np.int64) * SIDE
    above = np.minimum(floor + SIDE, plan.ranks)
    rows = (np.minimum(above, high + 1) - np.maximum(floor, low)) / (above - floor)
    return min(int((blocks["ops"].to_numpy() * np.minimum(shared, 1) * np.maximum(rows, 0)).sum()), 0xFFFFFFFF)


def hits(reader: TraceReader, first_us: int, last_us: int, row: int) -> dict[str, Any]:
    """Return the operations of one row within a window, the nearest to its middle first, and how many there are."""
    plan = plan_of(reader)
    window = _window(first_us, last_us, row, row)
    contents = _contents(reader, window, most=BLOCKS_MAX + 1)
    ops = _inside(contents[:BLOCKS_MAX], first_us, last_us, row, row)
    total = len(ops)
    if len(contents) > BLOCKS_MAX:
        with reader.store() as store:
            found = store.frame(_BLOCKS, window)
        total = max(total, _estimate(found, plan, first_us, last_us, row, row))
    middle = (first_us + last_us) // 2
    away = np.abs(np.maximum(ops.start_us, middle) - np.minimum(ops.end_us, middle))
    nearest = ops.take(np.lexsort((ops.comm, ops.end_us - ops.start_us, away))[:HITS_MAX])
    late, wait, known = nearest.late_us, nearest.wait_us, nearest.late_is_known
    return {
        "total": total,
        "ops": [
            {
                "start_us": int(nearest.start_us[at]),
                "end_us": int(nearest.end_us[at]),
                "kind": schema.OP_KINDS[int(nearest.kind[at])],
                "state": int(nearest.state[at]),
                "seq": int(nearest.seq[at]) if nearest.seq[at] >= 0 else None,
                "comm": int(nearest.comm[at]),
                "late_ns": int(late[at]) * 1000 if known[at] else None,
                "wait_ns": int(wait[at]) * 1000 if wait[at] >= 0 else None,
            }
            for at in range(len(nearest))
        ],
    }
