"""Stacks as text: py-spy, gdb, pstack and eu-stack, fed line by line.

`StackReader` takes the lines of one dump and hands out a `Thread` for every thread it has seen to its end. It knows no
files and no prefixes: whoever feeds it has taken those off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from mycroft.loaders.frames import short_file

_MAX_FRAMES: Final = 1_024

# Process 51235: python -u pretrain.py --cfg big.yaml
PROCESS: Final = re.compile(r"^\s*Process (?P<pid>\d{1,10}): (?P<command>.*)$")
# Python v3.11.9 (/opt/env/bin/python3.11)
_PYTHON: Final = re.compile(r"^\s*Python v\d+\.\d+")
# Thread 51235 (idle): "MainThread"     Thread 0x7F1 (active+gil)
PY_SPY_THREAD: Final = re.compile(
    r"^\s*Thread (?P<id>0x[0-9A-Fa-f]+|\d{1,20})(?: \((?P<state>active\+gil|active|idle|[a-z+]{1,20})\))?"
    r'(?::\s*"(?P<name>.*)")?\s*$'
)
# Thread 7 (Thread 0x7f1ac8b3f740 (LWP 71) "python"):     Thread 1 (LWP 71):
GDB_THREAD: Final = re.compile(
    r"^\s*Thread (?P<n>\d{1,6}) \((?:Thread (?P<id>0x[0-9a-fA-F]+) \()?LWP (?P<lwp>\d{1,10})\)?"
    r'(?: "(?P<name>[^"]{1,64})")?[^"]{0,80}$'
)
# TID 71:     (eu-stack)
_TID: Final = re.compile(r"^\s*TID (?P<lwp>\d{1,10})(?: \"(?P<name>[^\"]{1,64})\")?:?\s*$")
# PID 71 - process     (eu-stack)
_EU_PID: Final = re.compile(r"^\s*PID (?P<pid>\d{1,10}) - process\s*$")
# Attaching to process 71     [New LWP 72]
_ATTACH: Final = re.compile(r"^\s*(?:Attaching to (?:program: .{1,400}, )?process|Process) (?P<pid>\d{1,10})\s*$")
# #0  0x00007f… in poll () from /lib64/libc.so.6     #1 ncclGroupEnd (x=0) at group.cc:300     #0  0x00007f31 poll
GDB_FRAME: Final = re.compile(
    r"^\s*#(?P<n>\d{1,5})\s+(?:(?P<address>0x[0-9a-fA-F]+)\s+)?(?:in )?(?P<fn>.+?)"
    r"(?: \((?P<args>.{0,2000})\))?(?: at (?P<file>[^()\s]+?):(?P<line>\d{1,9}))?(?: from (?P<lib>\S+))?\s*$"
)
PY_SPY_FRAME: Final = re.compile(r"^\s+(?P<fn>\S.{0,400}?) \((?P<file>[^()]{1,1000}?)(?::(?P<line>\d{1,9}))?\)\s*$")
# The block of --locals under a frame: `Arguments:`, `Locals:` and what they list, indented further.
_LOCALS: Final = re.compile(r"^\s+(?:Arguments|Locals):\s*$")


@dataclass(slots=True)
class Thread:
    """One thread. `frames` are innermost first; `number` is the line of its header, from 1."""

    number: int
    pid: int | None = None
    thread_id: str | None = None
    name: str | None = None
    state: str | None = None
    tool: str = "py_spy"
    command: str | None = None
    frames: list[str] = field(default_factory=lambda: list[str]())

    @property
    def label(self) -> str | None:
        """Name of the thread, else its id."""
        return self.name or self.thread_id

    @property
    def is_main(self) -> bool | None:
        """Whether it is the main thread; None: the dump does not say."""
        if self.pid is not None and self.thread_id == str(self.pid):
            return True
        if self.name is not None and self.tool == "py_spy":
            return self.name == "MainThread"
        return False if self.pid is not None and self.thread_id is not None else None


class StackReader:
    """Puts the lines of a dump together to threads."""

    def __init__(self, *, pid: int | None = None) -> None:
        self.pid = pid
        self.command: str | None = None
        self._thread: Thread | None = None
        self._indent: int | None = None

    def feed(self, number: int, text: str) -> tuple[bool, Thread | None]:
        """Take a line; returns whether it belongs to a dump, and the thread that it ended, if any."""
        process = PROCESS.match(text) or _ATTACH.match(text) or _EU_PID.match(text)
        if process is not None:
            done = self.finish()
            self.pid = int(process["pid"])
            self.command = process.groupdict().get("command")
            return True, done
        if _PYTHON.match(text):
            return True, None
        begun = self._header(number, text)
        if begun is not None:
            done, self._thread, self._indent = self.finish(), begun, None
            return True, done
        return self._frame(number, text)

    def _header(self, number: int, text: str) -> Thread | None:
        found = GDB_THREAD.match(text)
        if found is not None:
            return Thread(number, self.pid, found["lwp"], found["name"], tool="gdb", command=self.command)
        found = PY_SPY_THREAD.match(text)
        if found is not None and (found["state"] or found["name"]):
            return Thread(
                number, self.pid, found["id"], found["name"], found["state"], tool="py_spy", command=self.command
            )
        found = _TID.match(text)
        if found is not None:
            return Thread(number, self.pid, found["lwp"], found["name"], tool="gdb", command=self.command)
        return None

    def _frame(self, number: int, text: str) -> tuple[bool, Thread | None]:
        native = GDB_FRAME.match(text) if "#" in text[:16] else None
        if native is not None:
            done: Thread | None = None
            if self._thread is None or (int(native["n"]) == 0 and self._thread.frames and self._thread.tool == "gdb"):
                # A single-threaded process, or pstack without headers.
                done, self._thread = self.finish(), Thread(number, self.pid, tool="gdb", command=self.command)
            self._add(_native(native))
            return True, done
        if self._thread is None:
            return False, None
        frame = PY_SPY_FRAME.match(text) if self._thread.tool == "py_spy" else None
        if frame is not None:
            indent = len(text) - len(text.lstrip())
            if self._indent is None:
                self._indent = indent
            # Values of --locals stand deeper than the frames and may look like one.
            if indent <= self._indent:
                where = short_file(frame["file"])
                self._add(f"{frame['fn']} ({where}:{frame['line']})" if frame["line"] else f"{frame['fn']} ({where})")
            return True, None
        if _LOCALS.match(text):
            return True, None
        if self._indent is not None and text.strip() and len(text) - len(text.lstrip()) > self._indent:
            return True, None
        return False, None

    def _add(self, frame: str) -> None:
        if self._thread is not None and len(self._thread.frames) < _MAX_FRAMES:
            self._thread.frames.append(frame)

    def finish(self) -> Thread | None:
        """Return the thread being read, which ends here; None if it has no frames."""
        thread, self._thread = self._thread, None
        return thread if thread is not None and thread.frames else None


def _native(match: re.Match[str]) -> str:
    name = match["fn"].strip()
    # gdb prints `fn<T>(args) (this=…)`; the arguments of a template are kept, those of the call are not.
    where = f"{short_file(match['file'])}:{match['line']}" if match["file"] else match["lib"]
    return f"{name} ({where})" if where else name


_RANK_OPTION: Final = re.compile(r"(?:(?<![\w-])--(?:global[-_])?rank[= ]|(?<![A-Z_])RANK=)(\d{1,7})\b")


def rank_of_command(command: str | None) -> int | None:
    """Return the global rank that a command line names."""
    if not command:
        return None
    match = _RANK_OPTION.search(command)
    return int(match[1]) if match is not None else None
