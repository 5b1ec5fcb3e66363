"""How processes ended, as their launchers say: torchrun, Slurm, Open MPI, MPICH, Kubernetes, Ray.

A launcher's line is of another process than its own, so no rank is taken from the file it stands in. Exit codes are
negative for signals (-9: SIGKILL), also where the launcher writes 137. torchrun's "root cause" is the first process
of one node that its agent saw end: often a victim. Log-format notes, section 3.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.text.clock import ISO, Moment, moment_of
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.runs import name_runs
from mycroft.loaders.text.scope import TEXT_LIMIT, FileScope, Row
from mycroft.loaders.text.torch_errors import SIGNALS
from mycroft.loaders.text.torch_log import noise, rank_number
from mycroft.loaders.text.tracebacks import exception_of, write_exception

FORMAT: Final = "launcher_log"
_MAX_TASKS: Final = 1_024

_SIGNAL_NUMBERS: Final = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGQUIT": 3,
    "SIGILL": 4,
    "SIGTRAP": 5,
    "SIGABRT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGUSR1": 10,
    "SIGSEGV": 11,
    "SIGUSR2": 12,
    "SIGPIPE": 13,
    "SIGTERM": 15,
    "SIGXCPU": 24,
}


def signed(code: str) -> int | None:
    """Return an exit code with signals negative: `137` and `-9` are both -9."""
    if len(code) > 6:
        return None
    value = int(code)
    return 128 - value if 129 <= value <= 192 else value


def said(scope: FileScope, line: Line, at: int, kind: str, **columns: Any) -> Row:
    """Add a row that speaks of another process than the writer of the line."""
    defaults: Row = {"rank": None, "local_rank": None, "pid": None, "level": "error", "_foreign": True}
    return scope.event(line, at, kind, **{**defaults, **columns})


def _elastic_failed(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    pid = rank_number(match["pid"])
    if scope.once(("failed", line.facts.key(), pid, match["code"])):
        said(
            scope,
            line,
            match.start(),
            "launcher_failure",
            name="failed",
            code=signed(match["code"]),
            local_rank=rank_number(match["lr"]),
            pid=pid,
            text=line.text[:TEXT_LIMIT],
        )


def _elastic_signal(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    number = _SIGNAL_NUMBERS.get(match["sig"])
    said(
        scope,
        line,
        match.start(),
        "launcher_signal",
        name=match["sig"],
        code=-number if number else None,
        pid=rank_number(match["pid"]),
        level="warning",
    )


def _agent_signal(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    name = (match["name"] or "").removeprefix("Signals.")
    number = rank_number(match["n"]) or _SIGNAL_NUMBERS.get(name) or (int(name) if name.isdigit() else None)
    if scope.once(("agent_signal", line.facts.key(), number)):
        said(
            scope,
            line,
            match.start(),
            "launcher_signal",
            name="agent",
            code=-number if number and number < 65 else None,
        )


_FIELD: Final = re.compile(r"\s*(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)")
_ENTRY: Final = re.compile(r"\s*\[(?P<i>\d+)\]:\s*$")


class _ChildFailed:
    """The block of `ChildFailedError`: one row per failure, `root_cause` for the one that the agent saw first."""

    # The traceback of a process that wrote an error file stands inside the block.
    owns_tracebacks: Final = True

    def __init__(self) -> None:
        self._left = 4_000
        self._root = False
        self._fields: dict[str, str] = {}
        self._line: Line | None = None
        self._begun = False
        self._in_traceback = False

    def feed(self, scope: FileScope, line: Line) -> bool:
        self._left -= 1
        text = line.text.strip()
        if self._left < 0:
            return False
        if text.startswith("====") or text.startswith("----") or text.startswith("****"):
            if text.startswith("====") and self._fields:
                self._entry(scope)
                return False
            self._entry(scope)
            return True
        if text.endswith("FAILED") or text in ("Failures:", "Other Failures:", "<NO_OTHER_FAILURES>", ""):
            self._begun = True
            return True
        if text.startswith("Root Cause"):
            self._entry(scope)
            self._root = self._begun = True
            return True
        if _ENTRY.match(line.text):
            self._entry(scope)
            self._line, self._in_traceback = line, False
            return True
        field = _FIELD.match(line.text)
        if field is not None:
            if field["key"] == "time" and self._fields:
                self._entry(scope)
            if self._line is None or not self._fields:
                self._line = line
            self._fields[field["key"]] = field["value"].strip()
            self._in_traceback = field["key"] == "traceback"
            return True
        if self._in_traceback and (line.text[:1] in " \t" or not text):
            if len(self._fields["traceback"]) < TEXT_LIMIT:
                self._fields["traceback"] += "\n" + text
            return True
        if _FIELD_OLD.search(line.text):
            return True
        return not self._begun and self._left > 3_990

    def _entry(self, scope: FileScope) -> None:
        fields, line = self._fields, self._line
        self._fields, self._line, self._in_traceback = {}, None, False
        if not fields or line is None:
            return
        rank = re.match(r"(?P<r>\d+)(?: \(local_rank: (?P<lr>\d+)\))?", fields.get("rank", ""))
        code = re.match(r"(?P<c>-?\d+)(?: \(pid: (?P<pid>\d+)\))?(?: \((?P<sig>SIG\w+)\))?", fields.get("exitcode", ""))
        stamp = ISO.match(fields.get("time", ""))
        moment: Moment | None = moment_of(stamp) if stamp is not None else None
        host = fields.get("host") or None
        pid = rank_number(code["pid"]) if code and code["pid"] else None
        local = rank_number(rank["lr"]) if rank and rank["lr"] else None
        number = rank_number(rank["r"]) if rank else None
        key = ("child", number, pid, host, fields.get("exitcode"))
        if not scope.once((*key, self._root)):
            return
        columns: Row = {"moment": moment} if moment else {}
        traceback = fields.get("traceback", "")
        said(
            scope,
            line,
            0,
            "launcher_failure",
            name="root_cause" if self._root else "failure",
            rank=number,
            local_rank=local,
            pid=pid,
            code=signed(code["c"]) if code else None,
            host=host,
            text=(f"exitcode {fields.get('exitcode', '?')}: {traceback}")[:TEXT_LIMIT],
            **columns,
        )
        found = exception_of(traceback) if "Traceback" in traceback else None
        if found is not None and number is not None:
            target = Line(line.number, found[1] or found[0], line.facts, claimed=True)
            write_exception(scope, target, *found, **columns, rank=number, local_rank=local, pid=pid, host=host)
        if number is not None:
            scope.know(number, line, host=host, pid=pid, local_rank=local)

    def close(self, scope: FileScope) -> None:
        self._entry(scope)


# Boxes of torch 1.9: lines of stars and text that say nothing more.
_FIELD_OLD: Final = re.compile(r"^\s*(?:\*+|CHILD PROCESS FAILED|Root Cause|Other Failures)")


def _child_failed(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if isinstance(scope.block_of(line), _ChildFailed):
        return
    block = _ChildFailed()
    scope.open(line, block)
    if "ChildFailedError" not in match[0]:
        # Only the summary was handed over, or a launcher of another name printed it.
        block.feed(scope, line)


def tasks_of(text: str) -> list[int]:
    """Return the task ids of `0-3,7`, at most 1,024."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or len(first) > 7 or (last and (not last.isdigit() or len(last) > 7)):
            continue
        found += range(int(first), min(int(last or first), int(first) + _MAX_TASKS) + 1)
        if len(found) >= _MAX_TASKS:
            break
    return found[:_MAX_TASKS]


def _srun(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    what = match["what"]
    code: int | None = None
    kind = "exit"
    if match["code"]:
        code = signed(match["code"])
    elif what.startswith("Out"):
        kind, code = "oom_kill", -9
    else:
        kind = "signal"
        code = SIGNALS.get(re.sub(r" \(core dumped\)", "", what).strip())
    for task in tasks_of(match["tasks"]):
        said(
            scope,
            line,
            match.start(),
            kind,
            name="task",
            value=float(task),
            code=code,
            host=match["node"],
            level="error",
        )


def nodes_of(text: str) -> list[str]:
    """Return the names of `a1,b[02-04,7]`, at most 1,024."""
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        stem, _, inner = part.rstrip("]").partition("[")
        if not inner:
            found.append(stem)
            continue
        for piece in inner.split(","):
            first, _, last = piece.partition("-")
            numbers = tasks_of(piece)
            found += (
                [f"{stem}{n:0{len(first)}d}" for n in numbers] if first.isdigit() and last != "" else [stem + piece]
            )
    return found[:_MAX_TASKS]


def _node_failure(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    for node in nodes_of(match["nodes"]):
        if scope.once(("node_failure", node)):
            detail = match[0][:120]
            said(scope, line, match.start(), "host_fault", name="node_failure", host=node, detail=detail, level="fatal")


def _shell_signal(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Bash says by which signal a command of a script ended."""
    pid = rank_number(match["pid"])
    said(scope, line, match.start(), "signal", name="command", pid=pid, code=SIGNALS.get(match["what"]))


def _slurm_cancelled(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    stamp = ISO.search(match["at"] or "")
    moment = moment_of(stamp) if stamp is not None else None
    columns: Row = {"moment": moment} if moment else {}
    said(
        scope,
        line,
        match.start(),
        "launcher_signal",
        name=(match["why"] or "cancelled").strip(),
        peer=match["step"],
        host=match["node"],
        **columns,
    )


def _mpi_signal(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    number = rank_number(match["sig"])
    pid = rank_number(match["pid"])
    said(
        scope,
        line,
        match.start(),
        "signal",
        name="process",
        rank=rank_number(match["rank"]),
        pid=pid or None,
        host=match["node"],
        code=-number if number and number < 65 else None,
    )


def _mpi_exit(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.memory[("mpi_exit", line.facts.key())] = rank_number(match["rank"])


def _mpi_code(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    rank = scope.memory.pop(("mpi_exit", line.facts.key()), None)
    if rank is not None:
        said(scope, line, match.start(), "exit", name="process", rank=rank, code=signed(match["code"]))


def _mpich(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.memory[("mpich", line.facts.key())] = (rank_number(match["pid"]), match["node"])


def _mpich_code(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    known = scope.memory.pop(("mpich", line.facts.key()), None)
    if known is not None:
        number = int(match["code"])
        # Hydra prints the raw wait status: below 65 it is a signal.
        code = -number if 0 < number < 32 else signed(match["code"])
        said(scope, line, match.start(), "exit", name="process", pid=known[0], host=known[1], code=code)


def _job_end(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if line.facts.stream == "end":
        code = signed(match["code"])
        said(
            scope,
            line,
            match.start(),
            "exit",
            name="job",
            code=code,
            level="info" if code == 0 else "error",
        )


def _torch_spawn(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """`torch.multiprocessing.spawn`: the number is the index of the process, which is the local rank."""
    signal = match["sig"]
    number = _SIGNAL_NUMBERS.get(signal) if signal else None
    code = -number if number else signed(match["code"]) if match["code"] else None
    if scope.once(("spawn", match["lr"], signal, match["code"])):
        said(
            scope,
            line,
            match.start(),
            "signal" if signal else "launcher_failure",
            name="process",
            local_rank=rank_number(match["lr"]),
            code=code,
        )


def _run_starts(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Note that a launcher begins here: a file may hold several runs."""
    starts: list[int] = scope.memory.setdefault("run_starts", [])
    starts.append(line.number)


def _restart(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _run_starts(scope, line, match)
    left = match.groupdict().get("left")
    said(scope, line, match.start(), "other", name="restart", value=float(left) if left else None, level="warning")


def finish(scope: FileScope) -> None:
    """Name the runs of a file that holds several."""
    name_runs(scope.pending_events(), scope.memory.pop("run_starts", []))


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "elastic_failed",
        FORMAT,
        ("failed (exitcode:",),
        re.compile(r"failed \(exitcode: (?P<code>-?\d{1,6})\) local_rank: (?P<lr>\d+) \(pid: (?P<pid>\d+)\)"),
        _elastic_failed,
    ),
    Matcher(
        "elastic_signal",
        FORMAT,
        ("closing signal SIG",),
        re.compile(r"Sending process (?P<pid>\d+) closing signal (?P<sig>SIG\w+)"),
        _elastic_signal,
    ),
    Matcher(
        "agent_signal",
        FORMAT,
        ("death signal, shutting down workers", " got signal: "),
        re.compile(
            r"(?:Received (?P<name>[\w.]{1,40}) death signal, shutting down workers|Process \d+ got signal: (?P<n>\d+))"
        ),
        _agent_signal,
    ),
    Matcher(
        "child_failed",
        FORMAT,
        ("ChildFailedError", "Root Cause (first observed failure)", "Failures:"),
        re.compile(
            r"ChildFailedError:?\s*$|ChildFailedError: |^\s*Failures:\s*$|^\s*Root Cause \(first observed failure\)"
        ),
        _child_failed,
        follow=48,
    ),
    Matcher(
        "child_fields",
        FORMAT,
        ("exitcode  :", "Failures:", "exitcode :"),
        re.compile(r"(?!)"),
        noise,
        follow=24,
    ),
    Matcher(
        "elastic_banner",
        FORMAT,
        ("Setting OMP_NUM_THREADS environment variable for each process",),
        re.compile(r"Setting OMP_NUM_THREADS environment variable for each process"),
        _run_starts,
    ),
    Matcher(
        "elastic_restart",
        FORMAT,
        ("restart worker group", "estarting worker group"),
        re.compile(
            r"(?:(?P<left>\d{1,6})/\d{1,6} attempts left; )?will restart worker group|[Rr]estarting worker group"
        ),
        _restart,
    ),
    Matcher(
        "torch_spawn",
        FORMAT,
        ("terminated with signal SIG", "terminated with the following error", "terminated with exit code"),
        re.compile(
            r"process (?P<lr>\d+) terminated with (?:signal (?P<sig>SIG\w+)|exit code (?P<code>-?\d{1,6})"
            r"|the following error)"
        ),
        _torch_spawn,
    ),
    Matcher(
        "srun",
        FORMAT,
        ("srun: error: ",),
        re.compile(
            r"srun: error: (?P<node>[\w.-]+): tasks? (?P<tasks>[\d,\s-]+): "
            r"(?P<what>Exited with exit code (?P<code>\d{1,3})|Killed|Aborted(?: \(core dumped\))?"
            r"|Segmentation fault(?: \(core dumped\))?|Bus error(?: \(core dumped\))?|Out Of Memory|Terminated"
            r"|[A-Z][\w ]{3,40})"
        ),
        _srun,
    ),
    Matcher(
        "node_failure",
        FORMAT,
        ("Node failure on ", "Node fail on "),
        re.compile(
            r"Node fail(?:ure)? on (?P<nodes>[\w.-]+(?:\[[\d,-]{1,200}\])?(?:,[\w.-]+(?:\[[\d,-]{1,200}\])?){0,64})"
        ),
        _node_failure,
    ),
    Matcher(
        "orte_lost",
        FORMAT,
        ("Remote daemon: [[",),
        re.compile(r"Remote daemon: \[\[\d{1,10},\d{1,10}\],\d{1,10}\] on node (?P<nodes>[\w.-]{1,253})"),
        _node_failure,
    ),
    Matcher(
        "shell_signal",
        FORMAT,
        (" Segmentation fault", " Aborted  ", " Killed  ", " Bus error", " (core dumped)"),
        re.compile(
            r": line \d{1,7}: {1,12}(?P<pid>\d{1,10}) (?P<what>Segmentation fault|Aborted|Killed|Bus error"
            r"|Illegal instruction|Floating point exception)\b"
        ),
        _shell_signal,
    ),
    Matcher(
        "slurm_cancelled",
        FORMAT,
        (" CANCELLED AT ", " CANCELLED DUE TO "),
        re.compile(
            r"(?:STEP|JOB) (?P<step>[\w.+]+) ON (?P<node>\S+) CANCELLED(?: AT (?P<at>\S+))?"
            r"(?: DUE (?:TO|to) (?P<why>[^*]{1,60}))?"
        ),
        _slurm_cancelled,
    ),
    Matcher(
        "mpi_signal",
        FORMAT,
        ("exited on signal",),
        re.compile(
            r"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node (?P<node>\S+) exited on signal (?P<sig>\d+)"
        ),
        _mpi_signal,
    ),
    Matcher(
        "mpi_exit",
        FORMAT,
        ("Process name: [",),
        re.compile(r"Process name: \[\[?[\w-]+,\d+\],(?P<rank>\d+)\]"),
        _mpi_exit,
        follow=2,
    ),
    Matcher(
        "mpi_code",
        FORMAT,
        ("Exit code:",),
        re.compile(r"^\s*Exit code: +(?P<code>-?\d{1,4})\s*$"),
        _mpi_code,
    ),
    Matcher(
        "mpich",
        FORMAT,
        ("RUNNING AT ",),
        re.compile(r"PID (?P<pid>\d+) RUNNING AT (?P<node>\S+)"),
        _mpich,
        follow=2,
    ),
    Matcher(
        "mpich_code",
        FORMAT,
        ("EXIT CODE: ",),
        re.compile(r"EXIT CODE: (?P<code>-?\d{1,4})"),
        _mpich_code,
    ),
    Matcher(
        "job_end",
        FORMAT,
        ("[end]",),
        re.compile(r"^rc=(?P<code>-?\d{1,4})\b"),
        _job_end,
    ),
)
