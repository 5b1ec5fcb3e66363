"""Stacks of living processes: `py-spy dump` as text or JSON, gdb, pstack, eu-stack, faulthandler files.

Dumps inside a console are read by the text loader with the same reader. Of a thread that was dumped as text and as
JSON one is kept: the text, which names the main thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
import polars as pl

from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.frames import short_file
from mycroft.loaders.rank_names import pieces
from mycroft.loaders.schema import STACKS, polars_schema
from mycroft.loaders.stack_text import (
    GDB_FRAME,
    GDB_THREAD,
    PROCESS,
    PY_SPY_THREAD,
    StackReader,
    Thread,
    rank_of_command,
)
from mycroft.loaders.text.blocks import BlockWriter
from mycroft.loaders.text.lines import encoding_of
from mycroft.loaders.text.paths import path_facts

_SCHEMA: Final = polars_schema(STACKS)
_MAX_BYTES: Final = 64 << 20
_SPACE: Final = " \t\r\n\f\v\ufeff"
_NO_STACK: Final = (
    ("Permission denied", "py-spy may not look into the process: it needs root or SYS_PTRACE in the container"),
    ("Failed to copy Py_Version symbol", "py-spy found no Python in the process (stripped, or it was ending)"),
    ("Failed to find python version", "py-spy found no Python in the process"),
    ("No such process", "the process was gone"),
    ("ptrace: Operation not permitted", "gdb may not attach: it needs root or SYS_PTRACE in the container"),
)
_PID_IN_NAME: Final = re.compile(r"(?:pid|py-?spy|stack|gdb|pstack|dump)[-_.]?(?P<pid>\d{2,10})(?!\d)", re.IGNORECASE)


class StacksLoader:
    """Files that are stack dumps from their first line on."""

    name = "stacks"
    title = "Stacks of processes"
    recognised_by = "the header of py-spy, gdb, pstack or eu-stack, or py-spy's JSON list of threads"
    yields = "stacks"

    def sniff(self, file: EvidenceFile) -> bool:
        """Say whether the first lines are those of a stack dump."""
        head = _decoded(file.head)
        if _is_json(head):
            return True
        lines = [line for line in head[:8192].splitlines() if line.strip()][:12]
        if any(PROCESS.match(line) for line in lines[:4]) and any(
            PY_SPY_THREAD.match(line) or line.startswith("Python v") for line in lines
        ):
            return True
        if any(GDB_THREAD.match(line) for line in lines):
            return True
        frames = [line for line in lines if line.lstrip().startswith("#") and GDB_FRAME.match(line)]
        if len(frames) >= 3 and "0x" in frames[0]:
            return True
        return bool(lines) and any(text in lines[0] for text, _ in _NO_STACK) and "py-spy" in head[:4096].lower()

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all dumps; the rank is that of the file name or of the command line, else unknown beside the pid."""
        blocks = BlockWriter(context)
        reports: list[LoadReport] = []
        threads: list[tuple[EvidenceFile, LoadReport, Thread, bool]] = []
        for file in files:
            report = LoadReport(file.file_id, self.name, rank=path_facts(file.name).rank)
            reports.append(report)
            content = _content(file, report)
            if content is None:
                continue
            text = _decoded(content)
            json = _is_json(text)
            found = _from_json(text, file, report) if json else _from_text(text, report)
            report.loader = "py_spy" if all(thread.tool == "py_spy" for thread in found) else "gdb"
            if not found:
                report.problems += _reasons(text) or [f"{file.name}: no thread with frames in it"]
            for thread in found:
                if thread.pid is None:
                    thread.pid = _pid_of_name(file.name)
                threads.append((file, report, thread, json))
            blocks.add_text(file.file_id, content, [thread.number for thread in found])
        blocks.flush()
        self._emit(threads, context)
        return reports

    def _emit(self, threads: list[tuple[EvidenceFile, LoadReport, Thread, bool]], context: LoadContext) -> None:
        rows: list[dict[str, Any]] = []
        told = {_key(file, thread) for file, _, thread, json in threads if not json}
        for file, report, thread, json in threads:
            if json and _key(file, thread) in told:
                report.drop("thread that the text of the same dump has as well")
                continue
            rank = report.rank
            named = rank_of_command(thread.command)
            if named is not None:
                rank = named if rank is None else rank
                context.rank(named, pid=thread.pid, reason="command line of a stack dump", file_id=file.file_id, line=1)
            elif rank is not None and thread.pid is not None:
                context.rank(
                    rank,
                    pid=thread.pid,
                    reason="process of a stack dump named after the rank",
                    file_id=file.file_id,
                    line=1,
                )
            report.rows += 1
            rows.append(
                {
                    "rank": rank,
                    "pid": thread.pid,
                    "thread": (thread.label or "")[:200] or None,
                    "is_main": thread.is_main,
                    "state": thread.state,
                    "stack_id": context.stack(thread.frames),
                    "tool": thread.tool,
                    "file_id": file.file_id,
                    "line": thread.number,
                }
            )
        if rows:
            context.emit("stacks", pl.DataFrame(rows, schema={k: v for k, v in _SCHEMA.items() if k in rows[0]}))


def _key(file: EvidenceFile, thread: Thread) -> tuple[object, ...]:
    return (path_facts(file.name).rank, thread.pid, thread.thread_id)


def _content(file: EvidenceFile, report: LoadReport) -> bytes | None:
    try:
        with file.path.open("rb") as handle:
            content = handle.read(_MAX_BYTES + 1)
    except OSError as error:
        report.problems.append(f"{file.name}: cannot be read: {error.strerror or error}; give it again")
        return None
    if len(content) > _MAX_BYTES:
        report.problems.append(f"{file.name}: only the first {_MAX_BYTES >> 20} MiB were read")
        content = content[:_MAX_BYTES]
    return content


def _decoded(content: bytes) -> str:
    encoding, mark = encoding_of(content)
    return content[mark:].decode(encoding, "replace")


def _is_json(text: str) -> bool:
    start = text[:4096].lstrip(_SPACE)
    return (
        start.startswith("[") and '"frames"' in text[:8192] and ('"thread_id"' in text[:8192] or '"pid"' in text[:8192])
    )


def _from_text(text: str, report: LoadReport) -> list[Thread]:
    reader = StackReader()
    found: list[Thread] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        taken, done = reader.feed(number, line)
        if done is not None:
            found.append(done)
        if not taken and line.strip():
            report.drop("line not understood")
    last = reader.finish()
    return [*found, last] if last is not None else found


class _Frame(msgspec.Struct):
    name: str = "?"
    filename: str | None = None
    short_filename: str | None = None
    line: int | None = None


class _PySpyThread(msgspec.Struct):
    frames: list[_Frame] = []
    pid: int | None = None
    thread_id: int | None = None
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    process_info: object = None


def _from_json(text: str, file: EvidenceFile, report: LoadReport) -> list[Thread]:
    try:
        listed = msgspec.json.decode(text.strip(_SPACE), type=list[Any])
    except msgspec.DecodeError as error:
        report.problems.append(f"{file.name}: not whole JSON ({error}); dump it again or give the text dump")
        return []
    found: list[Thread] = []
    for item in listed:
        try:
            thread = msgspec.convert(item, _PySpyThread)
        except msgspec.ValidationError as error:
            report.drop(f"thread of another shape: {error}"[:120])
            continue
        frames = [_json_frame(frame) for frame in thread.frames[:1024]]
        if not frames:
            continue
        state = None
        if thread.active is not None:
            state = "active+gil" if thread.owns_gil else "active" if thread.active else "idle"
        number = thread.os_thread_id if thread.os_thread_id is not None else thread.thread_id
        pid = thread.pid if thread.pid is not None and 0 <= thread.pid < 2**32 else None
        command: str | None = None
        info = thread.process_info
        if isinstance(info, dict):
            value = cast("dict[str, object]", info).get("command_line")
            command = value if isinstance(value, str) else None
        found.append(
            Thread(
                1,
                pid,
                str(number) if number is not None else None,
                thread.thread_name,
                state,
                "py_spy",
                command,
                frames,
            )
        )
    return found


def _json_frame(frame: _Frame) -> str:
    where = frame.short_filename or (short_file(frame.filename) if frame.filename else "")
    if frame.line:
        where = f"{where}:{frame.line}"
    return f"{frame.name} ({where})" if where else frame.name


def _reasons(text: str) -> list[str]:
    return [why for sign, why in _NO_STACK if sign in text]


def _pid_of_name(name: str) -> int | None:
    match = _PID_IN_NAME.search(pieces(name)[-1])
    pid = int(match["pid"]) if match is not None else None
    return pid if pid is not None and pid < 2**32 else None
