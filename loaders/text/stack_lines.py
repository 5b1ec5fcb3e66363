"""Stacks inside consoles: py-spy and gdb dumps that a framework or a person made in between."""

from __future__ import annotations

import re
from typing import Final

from mycroft.loaders.stack_text import GDB_THREAD, PROCESS, PY_SPY_THREAD, StackReader, Thread, rank_of_command
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope

FORMAT: Final = "stacks"
_MAX_LINES: Final = 100_000


class _Dump:
    """The threads of one process, up to a line that is no part of a dump."""

    def __init__(self, pid: int | None) -> None:
        self._reader = StackReader(pid=pid)
        self._lines: dict[int, Line] = {}
        self._header: Line | None = None
        self._left = _MAX_LINES

    def feed(self, scope: FileScope, line: Line) -> bool:
        self._left -= 1
        if not line.text.strip():
            return self._left > 0
        taken, done = self._reader.feed(line.number, line.text)
        if done is not None and self._header is not None:
            self._thread(scope, self._header, done)
        if taken and (PROCESS.match(line.text) or _is_header(line.text) or self._header is None):
            self._header = line
        return taken and self._left > 0

    def _thread(self, scope: FileScope, line: Line, thread: Thread) -> None:
        rank = rank_of_command(thread.command)
        columns = {"rank": rank} if rank is not None else {}
        if rank is not None and thread.pid is not None:
            scope.know(rank, line, pid=thread.pid)
        scope.stack(
            Line(thread.number, line.text, line.facts),
            thread.frames,
            pid=thread.pid if thread.pid is not None else line.facts.pid,
            thread=(thread.label or "")[:200] or None,
            is_main=thread.is_main,
            state=thread.state,
            tool=thread.tool,
            **columns,
        )

    def close(self, scope: FileScope) -> None:
        last = self._reader.finish()
        if last is not None and self._header is not None:
            self._thread(scope, self._header, last)


def _is_header(text: str) -> bool:
    return PY_SPY_THREAD.match(text) is not None or GDB_THREAD.match(text) is not None


def _dump(scope: FileScope, line: Line, match: re.Match[str]) -> bool:
    if scope.continues(line):
        return True
    block = _Dump(scope.memory.pop(("dump_pid", line.facts.key()), None))
    scope.open(line, block)
    return block.feed(scope, line)


def _announced(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    pid = int(match["pid"])
    scope.memory[("dump_pid", line.facts.key())] = pid if pid < 2**32 else None


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "dump_announced",
        FORMAT,
        ("spy dump for ", "spy dump of "),
        re.compile(r"[Pp]y-?spy dump (?:for|of) (?:PID|pid|process) (?P<pid>\d{1,10})"),
        _announced,
        follow=4,
    ),
    Matcher("process", FORMAT, ("Process ",), re.compile(r"^\s*Process \d{1,10}: \S"), _dump, follow=4),
    Matcher(
        "py_spy_thread",
        FORMAT,
        ("(idle)", "(active)", "(active+gil)"),
        re.compile(r"^\s*Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:idle|active|active\+gil)\)"),
        _dump,
        follow=160,
    ),
    Matcher(
        "gdb_thread",
        FORMAT,
        ("(LWP ",),
        re.compile(r"^\s*Thread \d+ \((?:Thread 0x[0-9a-fA-F]+ \()?LWP \d+"),
        _dump,
        follow=160,
    ),
)
