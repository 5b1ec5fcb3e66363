"""Nsight Systems reports exported to SQLite: NCCL kernels, the calls that launched them, NVTX ranges of NCCL.

Tables exist only where they have rows, and columns differ between releases, so both are looked up first. The file
is hostile: it is opened read-only and immutable, views and triggers are never used, and a query may not run for ever.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.json_values import as_int
from mycroft.loaders.kineto import kernel_shape, rank_of_name
from mycroft.loaders.op_names import op_kind
from mycroft.loaders.rows import RowBuffer, clip

_MAGIC: Final = b"SQLite format 3\x00"
_MAX_ROWS: Final = 1_000_000
_STEPS: Final = 1_000_000
_MAX_CALLS: Final = 20_000
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_KERNELS: Final = """
SELECT k.start, k.end, k.deviceId, k.streamId, k.correlationId, s.value, {pid}
FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
JOIN StringIds AS s ON s.id = k.{name}
WHERE s.value LIKE 'nccl%Kernel%'
ORDER BY k.start, k.end
LIMIT ?
"""
_LAUNCHES: Final = """
SELECT r.correlationId, r.start
FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r
WHERE r.correlationId IN (
  SELECT k.correlationId
  FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
  JOIN StringIds AS s ON s.id = k.{name}
  WHERE s.value LIKE 'nccl%Kernel%'
)
LIMIT ?
"""
_RANGES: Final = """
SELECT n.start, n.end, {text}, {tid}
FROM NVTX_EVENTS AS n {join}
WHERE n.eventType IN (59, 60) AND {text} LIKE 'nccl%'
ORDER BY n.start
LIMIT ?
"""


class NsightLoader:
    """Reads SQLite exports of Nsight Systems."""

    name = "nsight"
    title = "Nsight Systems report (SQLite export)"
    recognised_by = "SQLite with tables of CUPTI, NVTX or TARGET_INFO"
    yields = "coll_ops with kernel start and duration; op_perf events of NCCL's NVTX ranges; host and GPUs"

    def sniff(self, file: EvidenceFile) -> bool:
        """The magic, and a name of one of the tables in the first pages."""
        return file.head.startswith(_MAGIC) and any(
            word in file.head for word in (b"CUPTI_ACTIVITY", b"NVTX_EVENTS", b"TARGET_INFO", b"StringIds")
        )

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read every export."""
        reports: list[LoadReport] = []
        for file in files:
            report = LoadReport(file.file_id, self.name)
            reports.append(report)
            try:
                uri = f"file:{quote(str(file.path))}?mode=ro&immutable=1"
                with closing(sqlite3.connect(uri, uri=True)) as db:
                    db.text_factory = _text
                    db.execute("PRAGMA trusted_schema = OFF")
                    _read(db, file, context, report)
            except (sqlite3.Error, OverflowError, UnicodeError) as error:
                report.problems.append(f"SQLite: {error}; export the report again with `nsys export --type sqlite`")
        return reports


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _rows(db: sqlite3.Connection, sql: str, *values: int) -> Iterator[tuple[Any, ...]]:
    """Run a query that is stopped when it takes more than a bounded number of steps."""
    calls = 0

    def too_long() -> int:
        nonlocal calls
        calls += 1
        return int(calls > _MAX_CALLS)

    db.set_progress_handler(too_long, _STEPS)
    yield from db.execute(sql, values)


def _columns(db: sqlite3.Connection, tables: set[str], table: str) -> set[str]:
    if table not in tables:
        return set()
    return {str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")}


def _read(db: sqlite3.Connection, file: EvidenceFile, context: LoadContext, report: LoadReport) -> None:
    tables = {str(row[0]) for row in _rows(db, _TABLES)}
    base, known_base = 0, False
    if "utcEpochNs" in _columns(db, tables, "TARGET_INFO_SESSION_START_TIME"):
        for row in _rows(db, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1"):
            base, known_base = as_int(row[0]) or 0, True
    host = _host(db, tables)
    kernels = _kernels(db, tables)
    pids = {pid for *_rest, pid in kernels if pid is not None}
    rank = rank_of_name(file.name) if len(pids) <= 1 else None
    report.rank = rank
    host_id = context.host(host) if host else None
    if rank is not None:
        facts: dict[str, int | str | None] = {"host": host, "pid": next(iter(pids), None)}
        context.rank(rank, **{k: v for k, v in facts.items() if v is not None})
    launches = _launches(db, tables) if kernels else {}
    events, ops = RowBuffer(context, "events", report), RowBuffer(context, "coll_ops", report)
    numbers: dict[tuple[Any, ...], int] = {}
    for index, (start, end, device, stream, correlation, name, pid) in enumerate(kernels):
        shape = kernel_shape(name)
        slot = (pid, device, stream)
        seq = numbers.get(slot, 0)
        numbers[slot] = seq + 1
        shared: dict[str, Any] = {
            "rank": rank,
            "op_kind": op_kind(name.partition("(")[0]),
            "file_id": file.file_id,
            "line": index,
        }
        events.add(
            **shared,
            ts=base + start if known_base else None,
            time_quality="exact" if known_base else "order_only",
            host_id=host_id,
            pid=pid,
            level="info",
            kind="op_perf",
            source=NsightLoader.name,
            seq=seq,
            dur_ms=(end - start) / 1e6,
            device=f"GPU {device}",
            name=clip(name.partition("(")[0]),
        )
        if rank is None:
            continue
        ops.add(
            **shared,
            # A report has no communicators; a group has its own stream, and the same one on every rank.
            comm_id=context.comm(f"stream {stream}", backend="nccl", source="trace"),
            op_seq=seq,
            op_name=clip(name.partition("(")[0]),
            start_ts=base + start,
            enq_ts=base + launches[correlation] if correlation in launches else None,
            kstart_ts=base + start,
            dur_ns=end - start,
            end_is_derived=False,
            state="completed",
            algo=shape[0],
            proto=shape[1],
            stream=stream,
        )
    if not kernels:
        _ranges(db, tables, file, events, base if known_base else None, rank, host_id)
    events.flush()
    ops.flush()
    if not report.rows:
        report.problems.append("no NCCL kernels and no NCCL ranges; was the report made with --trace=cuda,nvtx?")


def _host(db: sqlite3.Connection, tables: set[str]) -> str | None:
    if not {"name", "value"} <= _columns(db, tables, "TARGET_INFO_SYSTEM_ENV"):
        return None
    sql = "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE lower(name) IN ('hostname', 'host name') LIMIT 1"
    for row in _rows(db, sql):
        if isinstance(row[0], str) and re.fullmatch(r"[\w.-]{1,255}", row[0]):
            return row[0]
    return None


def _name_column(columns: set[str]) -> str | None:
    return next((c for c in ("shortName", "demangledName") if c in columns), None)


def _kernels(db: sqlite3.Connection, tables: set[str]) -> list[tuple[int, int, int, int, int, str, int | None]]:
    columns = _columns(db, tables, "CUPTI_ACTIVITY_KIND_KERNEL")
    name = _name_column(columns)
    if name is None or not {"start", "end", "deviceId", "streamId", "correlationId"} <= columns:
        return []
    if not {"id", "value"} <= _columns(db, tables, "StringIds"):
        return []
    # The short name drops the algorithm; the demangled one keeps it.
    if "demangledName" in columns:
        name = "demangledName"
    pid = "k.globalPid" if "globalPid" in columns else "NULL"
    found: list[tuple[int, int, int, int, int, str, int | None]] = []
    for row in _rows(db, _KERNELS.format(name=name, pid=pid), _MAX_ROWS):
        numbers = [as_int(v) for v in row[:5]]
        text = row[5]
        if any(n is None for n in numbers) or not isinstance(text, str):
            continue
        start, end, device, stream, correlation = (n or 0 for n in numbers)
        if end >= start:
            process = as_int(row[6])
            found.append(
                (start, end, device, stream, correlation, text, (process >> 24) & 0xFFFFFF if process else None)
            )
    return found


def _launches(db: sqlite3.Connection, tables: set[str]) -> dict[int, int]:
    """Return the start of the runtime call for each correlation id."""
    name = _name_column(_columns(db, tables, "CUPTI_ACTIVITY_KIND_KERNEL"))
    if name is None or not {"start", "correlationId"} <= _columns(db, tables, "CUPTI_ACTIVITY_KIND_RUNTIME"):
        return {}
    pairs = _rows(db, _LAUNCHES.format(name=name), _MAX_ROWS)
    return {c: s for c, s in pairs if isinstance(c, int) and isinstance(s, int)}


def _ranges(
    db: sqlite3.Connection,
    tables: set[str],
    file: EvidenceFile,
    events: RowBuffer,
    base: int | None,
    rank: int | None,
    host_id: int | None,
) -> None:
    """Without kernels the ranges of NCCL's own NVTX domain say at least when it was called."""
    columns = _columns(db, tables, "NVTX_EVENTS")
    if not {"start", "eventType"} <= columns or not columns & {"text", "textId"}:
        return
    joined = "textId" in columns and {"id", "value"} <= _columns(db, tables, "StringIds")
    text = "COALESCE(n.text, s.value)" if joined and "text" in columns else "s.value" if joined else "n.text"
    if not joined and "text" not in columns:
        return
    sql = _RANGES.format(
        text=text,
        tid="n.globalTid" if "globalTid" in columns else "NULL",
        join="LEFT JOIN StringIds AS s ON s.id = n.textId" if joined else "",
    )
    if "end" not in columns:
        return
    for index, (start, end, label, tid) in enumerate(_rows(db, sql, _MAX_ROWS)):
        begun, ended, thread = as_int(start), as_int(end), as_int(tid)
        if begun is None or not isinstance(label, str):
            continue
        events.add(
            ts=base + begun if base is not None else None,
            time_quality="exact" if base is not None else "order_only",
            rank=rank,
            host_id=host_id,
            pid=(thread >> 24) & 0xFFFFFF if thread else None,
            level="info",
            kind="op_perf",
            source=NsightLoader.name,
            op_kind=op_kind(label),
            dur_ms=(ended - begun) / 1e6 if ended is not None and ended >= begun else None,
            name=clip(label),
            file_id=file.file_id,
            line=index,
        )
