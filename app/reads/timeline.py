"""The timeline of a trace: who is in it, tiles of its heat map, bars of a window, and what is under the pointer."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from mycroft.app.queries import TraceReader
from mycroft.app.reads import verdicts
from mycroft.errors import MycroftError
from mycroft.loaders import pyramid, schema
from mycroft.loaders.pyramid import METRICS, SIDE, Plan, Rows

BARS_MAX: Final = 12_000
BARS_VERSION: Final = 1
HEADER: Final = struct.Struct("<4I")
"""Version, bars that follow, bars that the window holds, reserved."""
HITS_MAX: Final = 12

_PLAN: Final = "SELECT value FROM trace_meta WHERE key = 'timeline'"
_TILE: Final = "SELECT cells FROM timeline_tiles WHERE metric = ? AND level = ? AND y = ? AND x = ?"
_ROWS: Final = """
SELECT from_ns, start_ns, end_ns, y - $band AS y, state, late_ns, wait_ns
FROM (
    FROM timeline_rows WHERE from_ns BETWEEN $first - $long AND $last
    UNION ALL
    FROM timeline_long WHERE from_ns <= $last
)
WHERE end_ns >= $first AND y BETWEEN $band AND $band + 255
"""
_COUNT: Final = """
SELECT
    (SELECT count(*) FROM timeline_rows WHERE from_ns BETWEEN $first - $long AND $last AND end_ns >= $first
        AND y BETWEEN $low AND $high)
    + (SELECT count(*) FROM timeline_long WHERE from_ns <= $last AND end_ns >= $first AND y BETWEEN $low AND $high)
"""
_BARS: Final = """
SELECT start_ns, end_ns, (y - $low)::USMALLINT AS y, kind, state, coalesce(op_seq, 0)::UINTEGER AS seq, comm_id
FROM (
    FROM timeline_rows WHERE from_ns BETWEEN $first - $long AND $last
    UNION ALL
    FROM timeline_long WHERE from_ns <= $last
)
WHERE end_ns >= $first AND y BETWEEN $low AND $high
ORDER BY state, start_ns, y
"""
_HITS: Final = """
SELECT start_ns, end_ns, kind, state, op_seq::BIGINT AS seq, comm_id::BIGINT AS comm_id, late_ns, wait_ns
FROM (
    FROM timeline_rows WHERE from_ns BETWEEN $first - $long AND $last
    UNION ALL
    FROM timeline_long WHERE from_ns <= $last
)
WHERE end_ns >= $first AND y = $low
ORDER BY abs(greatest(start_ns, $middle) - least(end_ns, $middle)), end_ns - start_ns, comm_id
LIMIT $most
"""
_PEOPLE: Final = """
SELECT t.rank::BIGINT AS rank, h.name AS host, EXISTS (FROM coll_ops o WHERE o.rank = t.rank) AS has_ops,
    d.from_ns AS from_ns
FROM (
    SELECT rank FROM ranks
    UNION
    SELECT rank FROM members
    UNION
    SELECT rank FROM coll_ops
    UNION
    SELECT range FROM range((SELECT least(coalesce(max(world_size), 0), 200000) FROM jobs))
) t
LEFT JOIN ranks r ON r.rank = t.rank
LEFT JOIN hosts h USING (host_id)
LEFT JOIN (
    SELECT rank, epoch_ns(min(first_ts) FILTER (WHERE first_record > 0)) AS from_ns FROM rank_dumps GROUP BY rank
) d ON d.rank = t.rank
ORDER BY t.rank
"""
_LATE: Final = """
SELECT y::BIGINT AS y, max(late_ns)::BIGINT AS late_ns
FROM (FROM timeline_rows UNION ALL FROM timeline_long)
WHERE late_ns > 0
GROUP BY y
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
    return reader.frame(_PLAN).height > 0


def plan_of(reader: TraceReader) -> Plan:
    """Return the levels of the trace's timeline.

    Raises:
        NoTimelineError: it holds none.
    """
    found = reader.frame(_PLAN)
    if found.is_empty():
        raise NoTimelineError(f"{reader.trace} holds no timeline; load the evidence again")
    return Plan.from_json(found.item(0, 0))


def describe(reader: TraceReader) -> dict[str, Any]:
    """Return what a timeline is drawn with: extent, levels, ranks, groups, and what the verdict marks.

    Times are µs after the start of the timeline.
    """
    plan = plan_of(reader)
    people = reader.frame(_PEOPLE).to_dicts()
    late = dict(reader.frame(_LATE).iter_rows())
    hosts = sorted({row["host"] for row in people if row["host"]})
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
        "ranks": [row["rank"] for row in people],
        "hosts": hosts,
        "host_of": [number.get(row["host"], -1) for row in people],
        "silent": [at for at, row in enumerate(people) if not row["has_ops"]],
        "from_us": [
            0 if row["from_ns"] is None else max(0, (row["from_ns"] - plan.first_ns) // 1000) for row in people
        ],
        "late_ns": [late.get(at, 0) for at in range(len(people))],
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
    """Return the cells of a level that is not kept, from the rows."""
    bin_ns = plan.bins_ns[level]
    first = x * SIDE * bin_ns
    window: dict[str, object] = {"first": first, "last": first + SIDE * bin_ns, "long": plan.long_ns, "band": y * SIDE}
    with reader.store() as store:
        rows = Rows.of(store.frame(_ROWS, window))
    height = min(SIDE, plan.ranks - y * SIDE)
    bins = min(SIDE, plan.bins(level) - x * SIDE)
    return pyramid.cells(rows, metric=metric, bin_ns=bin_ns, first_bin=x * SIDE, bins=bins, height=height)


def bars(reader: TraceReader, first_us: int, last_us: int, low: int, high: int) -> bytes:
    """Return the bars of a window as columns after a header; no bars, only their count, where they are too many.

    Little-endian: start and end as float32 µs after `first_us`, row after `low` as uint16, kind and state as uint8, a
    gap to a multiple of 4, number of the operation and communicator as uint32.
    """
    plan = plan_of(reader)
    window: dict[str, object] = {
        "first": first_us * 1000,
        "last": last_us * 1000,
        "long": plan.long_ns,
        "low": low,
        "high": high,
    }
    with reader.store() as store:
        total = int(store.frame(_COUNT, window).item(0, 0))
        if total > BARS_MAX or high - low > 0xFFFF:
            return HEADER.pack(BARS_VERSION, 0, total, 0)
        found = store.frame(_BARS, window)

    def column(name: str, kind: str) -> np.ndarray[Any, Any]:
        return found[name].to_numpy().astype(kind)

    first = first_us * 1000
    parts = [
        ((column("start_ns", "<i8") - first) / 1000).astype("<f4").tobytes(),
        ((column("end_ns", "<i8") - first) / 1000).astype("<f4").tobytes(),
        column("y", "<u2").tobytes(),
        column("kind", "u1").tobytes(),
        column("state", "u1").tobytes(),
        column("seq", "<u4").tobytes(),
        column("comm_id", "<u4").tobytes(),
    ]
    # Four columns of 4 bytes, one of 2 and two of 1: every column begins at a multiple of its width.
    return HEADER.pack(BARS_VERSION, total, total, 0) + b"".join(parts)


def hits(reader: TraceReader, first_us: int, last_us: int, row: int) -> dict[str, Any]:
    """Return the operations of one row within a window, the nearest to its middle first, and how many there are."""
    plan = plan_of(reader)
    first, last = first_us * 1000, last_us * 1000
    window: dict[str, object] = {"first": first, "last": last, "long": plan.long_ns, "low": row}
    with reader.store() as store:
        found = store.frame(_HITS, {**window, "middle": (first + last) // 2, "most": HITS_MAX}).to_dicts()
        total = int(store.frame(_COUNT, {**window, "high": row}).item(0, 0))
    return {
        "total": total,
        "ops": [
            {
                "start_us": op["start_ns"] / 1000,
                "end_us": op["end_ns"] / 1000,
                "kind": schema.OP_KINDS[op["kind"]],
                "state": op["state"],
                "seq": op["seq"],
                "comm": op["comm_id"],
                "late_ns": op["late_ns"],
                "wait_ns": op["wait_ns"],
            }
            for op in found
        ],
    }
