"""The operations of a trace as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open.

A process is a rank, a thread is one of its groups; operations of a group that overlap get threads of their own, since
that format nests what overlaps. An operation that did not finish begins and never ends. Written piece by piece: the
memory needed does not grow with the trace.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

from mycroft.app import words
from mycroft.app.queries import TraceReader

OPERATIONS_MAX: Final = 1_000_000
"""Operations that are written unless the caller says otherwise: viewers take some hundred MB, not more."""
LANES_MAX: Final = 32
"""Threads of one group of one rank; what overlaps still more is written as instants."""

_COUNT: Final = """
SELECT count(*)::BIGINT AS n, epoch_ns(min(coalesce(start_ts, enq_ts))) AS first_ns
FROM coll_ops
WHERE coalesce(start_ts, enq_ts) IS NOT NULL AND epoch_ns(coalesce(start_ts, enq_ts)) BETWEEN ? AND ?
"""
_UNTIMED: Final = "SELECT count(*)::BIGINT FROM coll_ops WHERE coalesce(start_ts, enq_ts) IS NULL"
# Of more than can be written the newest are taken: a hang is at the end.
_CUTOFF: Final = """
SELECT epoch_ns(coalesce(start_ts, enq_ts)) AS at_ns
FROM coll_ops
WHERE coalesce(start_ts, enq_ts) IS NOT NULL AND epoch_ns(coalesce(start_ts, enq_ts)) BETWEEN ? AND ?
ORDER BY at_ns DESC
LIMIT 1 OFFSET ?
"""
_OPERATIONS: Final = """
SELECT
    o.rank::BIGINT AS rank,
    o.comm_id::BIGINT AS comm_id,
    o.op_seq::BIGINT AS seq,
    o.op_kind::VARCHAR AS kind,
    epoch_ns(coalesce(o.start_ts, o.enq_ts)) AS at_ns,
    o.dur_ns,
    o.state::VARCHAR AS state,
    coalesce(o.retired, FALSE) AS retired,
    o.bytes::BIGINT AS bytes,
    o.dtype,
    o.peer::BIGINT AS peer
FROM coll_ops o
WHERE coalesce(o.start_ts, o.enq_ts) IS NOT NULL AND epoch_ns(coalesce(o.start_ts, o.enq_ts)) BETWEEN ? AND ?
ORDER BY o.rank, o.comm_id, at_ns, o.op_seq
LIMIT ?
"""
_GROUPS: Final = 'SELECT comm_id::BIGINT AS comm_id, key, coalesce("desc", name, key) AS shown FROM communicators'
_HOSTS: Final = "SELECT r.rank::BIGINT AS rank, h.name FROM ranks r JOIN hosts h USING (host_id)"
_ALL: Final = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Extent:
    """What will be written: `written` of `operations`, those from `from_ns` to `to_ns`, ns UTC.

    `untimed` operations have no time in the evidence and cannot be drawn; `zero_ns` is where the file's clock begins.
    """

    operations: int
    written: int
    from_ns: int
    to_ns: int
    untimed: int
    zero_ns: int

    @property
    def said(self) -> str:
        """Return the limits in words; empty where everything is written."""
        parts = []
        if self.written < self.operations:
            parts.append(f"only the newest {self.written:,} of {self.operations:,} operations")
        if self.untimed:
            parts.append(f"{words.plural(self.untimed, 'operation')} without a time left out")
        return "; ".join(parts)


def extent(reader: TraceReader, *, most: int = OPERATIONS_MAX, window: tuple[int, int] | None = None) -> Extent:
    """Return what a file of at most `most` operations will hold; `window` in ns UTC."""
    start, end = window or _ALL
    count, first = reader.frame(_COUNT, [start, end]).row(0)
    if count > most:
        start = reader.frame(_CUTOFF, [start, end, most - 1]).item()
    untimed = reader.frame(_UNTIMED).item()
    return Extent(count, min(count, most), start, end, untimed, start if count > most else first or 0)


def chrome_trace(reader: TraceReader, limits: Extent) -> Generator[str]:
    """Yield the file, text by text. Times are µs after `limits.zero_ns`, with ns after the point."""
    head = {
        "displayTimeUnit": "ms",
        "otherData": {
            "trace": reader.trace,
            "generation": reader.generation,
            "zero_ns_utc": str(limits.zero_ns),
            "operations": limits.operations,
            "written": limits.written,
            "left_out": limits.said,
        },
    }
    yield json.dumps(head)[:-1] + ', "traceEvents": ['
    separator = "\n"
    for event in _events(reader, limits):
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    yield "\n]}\n"


class _Lanes:
    """The threads of one group of one rank: each holds operations that follow one another."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def take(self, start: int, end: float) -> int | None:
        """Return the number of a thread that is free from `start` on; None: all are taken."""
        for lane, busy_until in enumerate(self.ends):
            if busy_until <= start:
                self.ends[lane] = end
                return lane
        if len(self.ends) >= LANES_MAX:
            return None
        self.ends.append(end)
        return len(self.ends) - 1


def _events(reader: TraceReader, limits: Extent) -> Iterator[dict[str, Any]]:
    groups = {row[0]: (row[1], row[2]) for row in reader.frame(_GROUPS).iter_rows()}
    hosts = dict(reader.frame(_HOSTS).iter_rows())
    rank: int | None = None
    comm: int | None = None
    first_thread = thread_count = 0
    lanes = _Lanes()
    with reader.store() as store:
        for piece in store.pieces(_OPERATIONS, [limits.from_ns, limits.to_ns, limits.written]):
            for row in piece.iter_rows(named=True):
                if row["rank"] != rank:
                    rank, comm, thread_count = row["rank"], None, 0
                    host = f" on {hosts[rank]}" if rank in hosts else ""
                    yield _named("process_name", row["rank"], 0, f"rank {rank}{host}")
                    yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": rank}}
                if row["comm_id"] != comm:
                    comm, lanes, first_thread = row["comm_id"], _Lanes(), thread_count
                key, shown = groups.get(row["comm_id"], (str(row["comm_id"]), ""))
                is_open = row["dur_ns"] is None and row["state"] != "completed" and not row["retired"]
                length = row["dur_ns"] or 0
                # Of an operation that ended at an unknown time only the beginning is known.
                is_instant = row["dur_ns"] is None and not is_open
                lane = lanes.take(row["at_ns"], float("inf") if is_open else row["at_ns"] + length)
                if lane is not None and first_thread + lane >= thread_count:
                    thread_count = first_thread + lane + 1
                    name = f"{shown} {key}" + (f" ({lane + 1})" if lane else "")
                    yield _named("thread_name", row["rank"], first_thread + lane + 1, name)
                thread = first_thread + (lane or 0) + 1
                yield _operation(
                    row, key, thread, limits.zero_ns, is_open=is_open, is_instant=is_instant or lane is None
                )


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _operation(
    row: dict[str, Any], key: str, thread: int, zero_ns: int, *, is_open: bool, is_instant: bool
) -> dict[str, Any]:
    dur_ns: int | None = row["dur_ns"]
    state = "open" if is_open else "end unknown" if dur_ns is None else row["state"] or "unknown"
    known = {"bytes": row["bytes"], "dtype": row["dtype"], "peer": row["peer"]}
    event: dict[str, Any] = {
        "ph": "i" if is_instant else "B" if is_open else "X",
        "name": f"{row['kind']} {row['seq']}",
        "cat": key,
        "pid": row["rank"],
        "tid": thread,
        "ts": (row["at_ns"] - zero_ns) / 1000,
        "args": {"state": state, **{name: value for name, value in known.items() if value is not None}},
    }
    if is_instant:
        event["s"] = "t"
    elif dur_ns is not None:
        event["dur"] = dur_ns / 1000
    return event
