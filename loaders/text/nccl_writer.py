"""Who printed a line of NCCL's log, and which communicators its process has: what all modules on that log share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope, Row

FORMAT: Final = "nccl_log"

# Stands in front of the message; the host is missing in some containers, and `pdsh` may have been taken for it.
WRITER: Final = re.compile(
    r"(?:(?P<host>[A-Za-z0-9][\w.-]{0,254}))?:?(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) (?:\[(?P<dev>-?\d+)\] )?"
    r"(?:(?:[\w./-]+:\d+ )?(?:\([^()\s]{0,80}\) )?)?NCCL (?P<level>INFO|WARN|CALL|TRACE|ERROR) "
)
HEX: Final = r"0x[0-9a-fA-F]{1,16}"
ADDRESS: Final = r"(?P<peer>[\w.:%\[\]-]{1,80}?)(?:<(?P<port>\d+)>)?"


@dataclass(frozen=True, slots=True)
class Writer:
    """The process and thread that printed a message; `at` is where its prefix begins."""

    at: int
    host: str | None
    pid: int | None
    tid: int | None
    dev: int | None
    level: str | None


def writer_of(line: Line, at: int) -> Writer:
    """Return who printed what stands at `at`; None everywhere where the message has no prefix of its own."""
    begin = max(0, at - 400)
    found: re.Match[str] | None = None
    # Only the last prefix counts; `NCCL ` in front of it narrows the search.
    mark = line.text.rfind("NCCL ", begin, at)
    if mark >= 0:
        for prefix in WRITER.finditer(line.text, begin, at):
            found = prefix
    if found is None:
        return Writer(at, line.facts.host, line.facts.pid, None, None, None)
    host = found["host"]
    return Writer(
        found.start(),
        host if host and not host.isdigit() else line.facts.host,
        _number(found["pid"]),
        _number(found["tid"]),
        int(found["dev"]) if found["dev"] else None,
        found["level"],
    )


def _number(digits: str) -> int | None:
    """Return the id of a process or thread; None for what cannot be one, in a damaged line."""
    number = int(digits)
    return number if number < 1 << 32 else None


def say(scope: FileScope, line: Line, match: re.Match[str], kind: str, **columns: Any) -> Row:
    """Add an event of the process that printed the match."""
    writer = writer_of(line, match.start())
    level = columns.pop("level", None) or ("warning" if writer.level == "WARN" else "info")
    if writer.host is not None:
        columns["host"] = writer.host
    if writer.pid is not None:
        columns["pid"] = writer.pid
    return scope.event(line, writer.at, kind, level=level, **columns)


Process = tuple[str, int | None]


@dataclass(slots=True)
class CommFacts:
    """One communicator of one process, from its init line."""

    name: str
    hash: int | None
    rank: int
    size: int
    line: int


def process_of(writer: Writer) -> Process:
    """Return the key of the process that printed a line."""
    return (writer.host or "", writer.pid)


def comms_of(scope: FileScope) -> dict[tuple[Process, str], CommFacts]:
    """Return the communicators of this file by process and pointer."""
    return scope.memory.setdefault("nccl_comms", {})


def threads_of(scope: FileScope) -> dict[tuple[Process, int | None], list[tuple[int, CommFacts]]]:
    """Return what each thread has begun to set up, in order of lines; thread None: the process."""
    return scope.memory.setdefault("nccl_threads", {})


Handler = Callable[[FileScope, Line, "re.Match[str]"], None]


def matcher(name: str, literals: tuple[str, ...], pattern: str, handler: Handler, follow: int = 0) -> Matcher:
    """Return a matcher of NCCL's log."""
    return Matcher(name, FORMAT, literals, re.compile(pattern), handler, follow)
