"""Traces as text: every record as a JSON line, a summary, and what comes in while one looks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from mycroft.tracer import _core
from mycroft.tracer.arrow import pa
from mycroft.tracer.export import MARK, read_export
from mycroft.tracer.trace import TABLES, Trace, TraceFile, open_trace

SUFFIX: Final = ".ring"
_NS: Final = 1_000_000_000
_BATCH: Final = 4096


def find_traces(path: str | Path) -> list[Path]:
    """Return the trace files that a path means: itself, or those in a folder, by name."""
    path = Path(path)
    return sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]


def read_traces(path: str | Path) -> list[Trace]:
    """Read a trace file, the trace files of a folder, or an export.

    Raises:
        TraceError: if a file is none, or damaged in its header.
        ExportError: if it is an export that cannot be read.
    """
    traces: list[Trace] = []
    for file in find_traces(path):
        with file.open("rb") as source:
            head = source.read(256)
        exported = head.startswith((b"PAR1", b"ARROW1")) or MARK in head
        traces += read_export(file) if exported else [open_trace(file)]
    return traces


def record_lines(trace: Trace, kinds: Sequence[str] = TABLES) -> Iterator[str]:
    """Yield the records of a trace as JSON, in the order they were written; NULLs are left out."""
    rows = [row for kind in kinds for row in _rows(trace, kind)]
    rows.sort(key=lambda row: int(row["position"]))
    for row in rows:
        yield json.dumps(row, ensure_ascii=False)


def _rows(trace: Trace, kind: str) -> Iterable[dict[str, Any]]:
    table = trace.tables[kind]
    plain = {}
    for name in table.schema.names:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        plain[name] = column
    for batch in pa.table(plain).to_batches(max_chunksize=_BATCH):
        for row in batch.to_pylist():
            yield {"kind": kind, **{key: value for key, value in row.items() if value is not None}}


def stat_lines(trace: Trace) -> list[str]:
    """Return a summary of one trace: who, how long, how many records, what was lost, and each communicator."""
    who = trace.process
    rank = "?" if who.rank is None else str(who.rank)
    state = "ended in order" if trace.closed else "not closed: live, or its writer was killed"
    counts = ", ".join(f"{trace.tables[kind].num_rows} {kind}" for kind in TABLES if trace.tables[kind].num_rows)
    lost = ", ".join(f"{count} {reason}" for reason, count in sorted(trace.losses.items()))
    lines = [
        f"{trace.name}",
        f"  rank {rank} of {who.world_size or '?'}, pid {who.pid} on {who.host or '?'}, {state}",
        f"  {_moment(who.started_ns)} to {_moment(trace.last_tick_ns)}, one sample every {trace.interval_ms} ms",
        f"  records: {counts or 'none'}",
    ]
    if lost:
        lines.append(f"  not readable: {lost}")
    for comm in trace.communicators:
        place = f"rank {comm.rank} of {comm.size or '?'}" if comm.rank is not None else "rank unknown"
        last = "nothing enqueued" if comm.last_seq is None else f"last enqueued {comm.last_seq}"
        p2p = f", {comm.p2p_started} send/recv" if comm.p2p_started else ""
        ended = ", closed" if comm.closed_ns is not None else ""
        lines.append(f"  {comm.name or 'communicator'} 0x{comm.hash:x}: {place}, {last}{p2p}{ended}")
    return lines


def _moment(ns: int | None) -> str:
    if not ns:
        return "?"
    return f"{datetime.fromtimestamp(ns // _NS, UTC):%Y-%m-%dT%H:%M:%S}.{ns % _NS // 1_000_000:03d}Z"


def tail_lines(path: str | Path, wait: Callable[[], bool], kinds: Sequence[str] = TABLES) -> Iterator[str]:
    """Yield the records of a live trace as they come; `wait` is called between looks and says whether to go on.

    Ends with the trace, or when `wait` returns False.
    """
    file = TraceFile(path)
    for trace in file.follow(int(file.header["head"])):
        yield from record_lines(trace, kinds)
        if trace.closed or not wait():
            return


def layout_version() -> int:
    """Return the version of the layout that this build writes and reads."""
    return _core.LAYOUT_VERSION
