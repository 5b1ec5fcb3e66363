"""Python tracebacks, fatal errors of the interpreter and uncaught C++ exceptions, per writer, with their stacks."""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.frames import short_file
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import TEXT_LIMIT, FileScope, Row
from mycroft.loaders.text.torch_log import PEER

FORMAT: Final = "traceback"
_MAX_FRAMES: Final = 512
_MAX_MESSAGE_LINES: Final = 6
# So near behind `Exception ignored in: …` its traceback begins, other writers' lines between.
_IGNORED_LINES: Final = 16

_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"]{1,1000})", line (?P<n>\d+)(?:,? in (?P<fn>.{1,300}?))?\s*$')
# The last line of a traceback: a dotted name, alone or with a message. Library names may hold `<locals>`.
_EXCEPTION: Final = re.compile(r"(?P<name>[A-Za-z_][\w.]{0,200}(?:<locals>[\w.]{0,100})?)(?:: ?(?P<text>.*))?$")
_CHAINED: Final = ("During handling of the above exception", "The above exception was the direct cause")

# What a failed collective raises when the other side is gone: victims, not causes.
_CONNECTION: Final = re.compile(
    r"Connection closed by (?:remote )?peer|Connection reset by peer|ncclRemoteError"
    r"|remote process exited or there was a network error|Broken pipe"
    r"|Socket closed|recvValue failed|sendBytes failed|Connection was likely closed"
)
# Raised by the elastic agent about its workers; the block that follows says which.
_LAUNCHER_ERRORS: Final = ("ChildFailedError", "SignalException")

_FATAL: Final = {
    "Segmentation fault": ("SIGSEGV", -11),
    "Aborted": ("SIGABRT", -6),
    "Bus error": ("SIGBUS", -7),
    "Floating point exception": ("SIGFPE", -8),
    "Floating-point exception": ("SIGFPE", -8),
    "Illegal instruction": ("SIGILL", -4),
}


_DIGIT: Final = re.compile(r"\d")


class _Traceback:
    """From `Traceback (most recent call last):` to the line that names the exception and a few that go on with it.

    A logger may put its own head (level, time, place in the code) before every line of it; that is taken off.
    """

    def __init__(self, line: Line, at: int, *, of_rank: int | None = None, ignored: bool = False) -> None:
        self._line, self._at, self._of_rank, self._ignored = line, at, of_rank, ignored
        self._head = _DIGIT.sub("0", line.text[:at])
        self._frames: list[str] = []
        self._blank = 0
        self._name: str | None = None
        self._message: list[str] = []
        self._last = line
        self._source = 0

    def feed(self, scope: FileScope, line: Line) -> bool:
        text = self._without_head(line.text)
        if self._name is not None:
            return self._more(text)
        frame = _FRAME.match(text)
        if frame is not None:
            self._source = 0
            if len(self._frames) < _MAX_FRAMES:
                function = frame["fn"] or "?"
                self._frames.append(f"{function} ({short_file(frame['file'])}:{frame['n']})")
            return True
        if not text.strip():
            return bool(self._frames) is False
        if text[0] in " \t":
            # Source lines and markers; more than a few mean that something else has begun.
            self._source += 1
            return self._source <= 6
        found = _EXCEPTION.match(text.strip())
        if found is None or not self._frames:
            return text.strip().startswith("[Previous line repeated")
        self._name = found["name"]
        self._message.append(found["text"] or "")
        self._last = line
        return True

    def _without_head(self, text: str) -> str:
        end = len(self._head)
        return text[end:] if end and _DIGIT.sub("0", text[:end]) == self._head else text

    def _more(self, text: str) -> bool:
        """Take further lines of a message: `Last error:` and what NCCL said, or an indented remark."""
        stripped = text.strip()
        if not stripped or len(self._message) > _MAX_MESSAGE_LINES:
            return False
        joined = "\n".join(self._message)
        goes_on = (
            stripped.startswith(("nccl", "Last error", "CUDA kernel errors", "For debugging consider", "Compile with"))
            or self._message[-1].startswith("Last error")
            or (text[0] in " \t" and not stripped.startswith("File "))
            or joined == ""
        )
        if goes_on:
            self._message.append(stripped)
        return goes_on

    def close(self, scope: FileScope) -> None:
        line, at = self._line, self._at
        if self._ignored or (self._name is None and not self._frames):
            return
        name = self._name or "unfinished traceback"
        if name.rpartition(".")[2] in _LAUNCHER_ERRORS:
            return
        message = "\n".join(self._message).strip()
        stack = scope.context.stack(list(reversed(self._frames))) if self._frames else None
        rank = self._last.rank_at(0) if self._last.rank_at(0) is not None else line.rank_at(at)
        writer: object = line.facts.key()
        if self._of_rank is not None:
            rank, writer = self._of_rank, None
        # A log may repeat one traceback (logger and interpreter); the message and the stack tell them apart.
        if not scope.once(("exception", rank, writer, name, message, stack)):
            return
        moment = scope.moment_at(line, at) or scope.moment_at(self._last)
        target = Line(self._last.number, message or name, line.facts, claimed=True)
        columns: Row = {"rank": rank, "stack_id": stack}
        if moment is not None:
            columns["moment"] = moment
        write_exception(scope, target, name, message, **columns)


def write_exception(scope: FileScope, line: Line, name: str, message: str, **columns: Any) -> None:
    """Add an `exception`, and a `connection_closed` beside it when the other side had gone: such are consequences."""
    row = scope.event(line, 0, "exception", name=name, level="error", text=(message or name)[:TEXT_LIMIT], **columns)
    told: Row | None = scope.memory.pop(("nccl_error", line.facts.key()), None)
    connection = _CONNECTION.search(message)
    if connection is None:
        return
    peer = _peer(message)
    row["peer"] = peer
    if told is not None:
        told["peer"] = peer
    if peer is None or scope.once(("closed", row["rank"], peer, connection[0])):
        by = "gloo" if "gloo" in message else "nccl" if "nccl" in message.lower() else "store"
        columns.pop("stack_id", None)
        scope.event(
            line, 0, "connection_closed", level="error", name=by, peer=peer, text=message[:TEXT_LIMIT], **columns
        )


_EXCEPTION_LINE: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Failure))(?:: ?(?P<text>.*))?$"
)


def exception_of(text: str) -> tuple[str, str] | None:
    """Return class and message of the exception that a whole traceback ends in."""
    lines = text.splitlines()
    for at in range(len(lines) - 1, -1, -1):
        match = _EXCEPTION_LINE.match(lines[at].strip())
        if match is not None:
            return match["name"], "\n".join([match["text"] or "", *lines[at + 1 :]]).strip()
    return None


_ADDRESSES: Final = (
    re.compile(r"\[(?P<host>[^\]\s]{1,255})\]:(?P<port>\d{1,5})(?!\S*, remote)"),
    PEER,
)


def _peer(message: str) -> str | None:
    remote = re.search(r"remote=(?P<peer>[^)\s]{1,255})\)", message)
    if remote is not None:
        return remote["peer"]
    named = PEER.search(message)
    if named is not None:
        return named["peer"]
    address = _ADDRESSES[0].search(message)
    return f"{address['host']}:{address['port']}" if address is not None else None


def _traceback(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if not getattr(scope.block_of(line), "owns_tracebacks", False):
        # The interpreter says before it that nothing came of it, as of errors while objects are destroyed.
        ignored = line.number - scope.memory.pop(("ignored", line.facts.key()), -_IGNORED_LINES) < _IGNORED_LINES
        of_rank = int(match["of"]) if match["of"] else None
        scope.open(line, _Traceback(line, match.start(), of_rank=of_rank, ignored=ignored))


def _ignored(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.memory["ignored", line.facts.key()] = line.number


def _frame(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Begin in the middle of a traceback whose start is cut away: the tail of a log is often all there is."""
    if not scope.continues(line):
        block = _Traceback(line, 0)
        scope.open(line, block)
        block.feed(scope, line)


class _Fault:
    """`Fatal Python error: …` and the stacks of faulthandler, one per thread, innermost first."""

    def __init__(self, line: Line, text: str, *, fatal: bool) -> None:
        self._line, self._text, self._fatal = line, text, fatal
        self._header: Line | None = None
        self._current = False
        self._thread: str | None = None
        self._frames: list[str] = []
        self._left = 400
        self._stack: int | None = None

    def feed(self, scope: FileScope, line: Line) -> bool:
        self._left -= 1
        text = line.text
        if self._left < 0:
            return False
        thread = THREAD.match(text)
        if thread is not None:
            self._thread_done(scope)
            self._header, self._current = line, thread["current"] is not None
            self._thread = thread["id"]
            return True
        frame = _FRAME.match(text)
        if frame is not None and self._header is not None:
            if len(self._frames) < _MAX_FRAMES:
                function = frame["fn"] or "?"
                self._frames.append(f"{function} ({short_file(frame['file'])}:{frame['n']})")
            return True
        if not text.strip():
            return self._header is None or not self._frames or self._fatal
        return text.strip().startswith(("Python runtime state", "...", "<no Python frame>", "Extension modules:"))

    def _thread_done(self, scope: FileScope) -> None:
        if self._header is None or not self._frames:
            self._frames = []
            return
        stack = scope.stack(
            self._header,
            self._frames,
            thread=self._thread,
            is_main=self._current or None,
            state="active" if self._current else "idle",
            tool="faulthandler",
        )
        if self._current or self._stack is None:
            self._stack = stack
        self._frames = []

    def close(self, scope: FileScope) -> None:
        self._thread_done(scope)
        if not self._fatal:
            return
        known = next((value for key, value in _FATAL.items() if self._text.startswith(key)), None)
        if not scope.once(("fatal", self._line.facts.key(), self._text, self._stack)):
            return
        scope.event(
            self._line,
            0,
            "signal" if known else "exception",
            level="fatal",
            name=known[0] if known else f"Fatal Python error: {self._text}"[:200],
            code=known[1] if known else None,
            stack_id=self._stack,
        )


THREAD: Final = re.compile(
    r"[ \t]{0,16}(?P<current>Current thread|current thread)? ?(?:Thread )?(?P<id>0x[0-9a-fA-F]+)(?: \[[^\]]{1,64}\])? "
    r"\(most recent call first\):"
)


def _fatal(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Fault(line, match["what"].strip(), fatal=True))


def _fault(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    block = _Fault(line, "", fatal=False)
    if not scope.continues(line):
        scope.open(line, block)
        block.feed(scope, line)


class _Terminate:
    """`terminate called after throwing an instance of 'X'` and its `what():`."""

    def __init__(self, line: Line, at: int, name: str) -> None:
        self._line, self._at, self._name = line, at, name
        self._text = ""

    def feed(self, scope: FileScope, line: Line) -> bool:
        stripped = line.text.strip()
        if not self._text and stripped.startswith("what():"):
            self._text = stripped.removeprefix("what():").strip()
            return True
        return False

    def close(self, scope: FileScope) -> None:
        rank = self._line.rank_at(self._at)
        if "Watchdog caught collective operation timeout" in self._text:
            # The watchdog takes its process down; the timeout has a row of its own.
            return
        if scope.once(("terminate", rank, self._line.facts.key(), self._name, self._text)):
            text = self._text or self._line.text
            scope.event(self._line, self._at, "exception", level="fatal", name=self._name, text=text[:TEXT_LIMIT])


def _terminate(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Terminate(line, match.start(), match["name"]))


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "ignored",
        FORMAT,
        ("Exception ignored ", "Error in atexit."),
        re.compile(r"Exception ignored (?:in|on|while)\b|Error in atexit\._run_exitfuncs"),
        _ignored,
    ),
    Matcher(
        "traceback",
        FORMAT,
        ("Traceback (most recent call last)",),
        # torch's checkpoints repeat on every rank what went wrong on one: `(RANK 4)`.
        re.compile(r"Traceback \(most recent call last\):(?: \(RANK (?P<of>\d{1,7})\))?"),
        _traceback,
        follow=8,
    ),
    Matcher("frame", FORMAT, ('File "',), re.compile(r'^\s{0,16}File "[^"]{1,1000}", line \d+, in '), _frame, follow=8),
    Matcher(
        "fatal",
        FORMAT,
        ("Fatal Python error: ",),
        re.compile(r"Fatal Python error: (?P<what>[^\n]{1,160})"),
        _fatal,
        follow=12,
    ),
    Matcher("fault", FORMAT, ("(most recent call first):",), THREAD, _fault, follow=12),
    Matcher(
        "terminate",
        FORMAT,
        ("terminate called after throwing",),
        re.compile(r"terminate called after throwing an instance of '(?P<name>[^'\n]{1,200})'"),
        _terminate,
        follow=3,
    ),
)
