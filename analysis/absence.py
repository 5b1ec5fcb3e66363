"""Signs of life: what logs, exit codes and the launcher say about a rank that is not where it should be.

A rank that complains is usually a victim: "connection closed by peer", a timeout, an abort by the watchdog all mean
that somebody else stopped. Those lines are kept apart from a rank's own errors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from mycroft.analysis.aftermath import Past
from mycroft.analysis.claims import Claim, Ref
from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.facts import Event, Facts

# An error about communication says that the other end is gone or late: it does not accuse the rank that prints it.
COMMUNICATION: Final = re.compile(
    r"closed by peer|reset by peer|connection (refused|aborted|was likely closed)|broken pipe|timed? ?out|timeout|"
    r"gloo|nccl|c10d|processgroup|distbackenderror|diststoreerror|distnetworkerror|tcpstore|socket|watchdog|"
    r"unbound_buffer|collective|monitoredbarrier|rendezvous|sigterm|signalexception|received death signal",
    re.IGNORECASE,
)
# What a process fails at before any other takes part: its own port, file, right or limit.
LOCAL: Final = re.compile(
    r"failed to listen|address already in use|EADDRINUSE|cannot assign requested address|EADDRNOTAVAIL|"
    r"permission denied|too many open files|no space left|read-only file system|no such file|"
    r"creating shared memory segment|posix_fallocate|"
    # Numbers that went bad are the rank's own, whatever it would have sent next.
    r"\bfound (?:nan|inf)|\bnan (?:in|found|detected)\b|\b(?:non-|not )finite\b",
    re.IGNORECASE,
)
# Somebody pressed Ctrl-C or stopped the job: what ends by that did nothing.
INTERRUPTS: Final = ("KeyboardInterrupt", "SignalException")
# Errors of a device that its rank alone reports, be it by its watchdog, are its own.
_OF_THE_DEVICE: Final = (
    "an illegal memory access was encountered",
    "device-side assert triggered",
    "misaligned address",
    "an illegal instruction was encountered",
    "uncorrectable ECC error encountered",
)
# Every rank raises it when any of them failed at its part.
_OF_OTHERS: Final = ("CheckpointException",)
_FAILED_PARTS: Final = re.compile(r"ranks:dict_keys\(\[([\d, ]{1,2000})\]\)")
ADDRESS: Final = re.compile(r"address already in use|EADDRINUSE|EADDRNOTAVAIL|cannot assign requested", re.IGNORECASE)
# What a communication library prints when the sizes of two ends disagree: the printing process is the receiver.
SIZE_COMPLAINT: Final = re.compile(
    r"received data size doesn't match|enforce fail .*preamble|mismatch in your code", re.I
)
FATAL_SIGNALS: Final[Mapping[int, str]] = {
    -9: "SIGKILL",
    -11: "SIGSEGV",
    -7: "SIGBUS",
    -4: "SIGILL",
    -8: "SIGFPE",
}
# Signals that libraries die of when everything is taken down, after the work.
_TEARDOWN: Final = (-6, -7, -11)
# A process that is asked to stop, or that its own watchdog aborts, is a victim.
SOFT_SIGNALS: Final[Mapping[int, str]] = {-6: "SIGABRT", -15: "SIGTERM", -2: "SIGINT", -1: "SIGHUP"}


# Signs that accuse the rank they are of, unless they came after the end or before the job went on.
_ACCUSING: Final = ("own_error", "out_of_memory", "killed", "exit")
# A rank that swallows an exception and calls something else than its peers is held up long before that.
_WENT_ON_NS: Final = 60 * NS_PER_S


def signal_of(code: int | None) -> int | None:
    """Return the signal (negative) behind an exit code; shells and containers write 128 + signal."""
    if code is None:
        return None
    if code < 0:
        return code
    return 128 - code if 128 < code < 160 else None


@dataclass(frozen=True, slots=True)
class Life:
    """What is known of one rank's process. None: no source says anything of the kind."""

    rank: int
    killed: Event | None = None
    exit: Event | None = None
    finished: Event | None = None
    own_error: Event | None = None
    victim_error: Event | None = None
    size_complaint: Event | None = None
    out_of_memory: Event | None = None
    alive: Event | None = None
    dump_written: Event | None = None
    log_end: Event | None = None
    last_ts: int | None = None

    @property
    def ended_well(self) -> bool:
        """Say whether it finished its work: it says so, or left with exit code 0."""
        return self.finished is not None or (self.exit is not None and self.exit.code == 0)

    @property
    def spoke_at_the_end(self) -> bool:
        """Say whether anything explains why its log ends."""
        return any((self.finished, self.own_error, self.victim_error, self.dump_written, self.size_complaint))


def left_by_itself(life: Life) -> bool:
    """Say whether its launcher saw a process end with an error, of which it says nothing that blames others."""
    spoke = life.victim_error or life.own_error or life.size_complaint or life.finished or life.out_of_memory
    return life.exit is not None and 0 < (life.exit.code or 0) < 128 and spoke is None and life.killed is None


def aborted_alone(found: Mapping[int, Life]) -> int | None:
    """Return the only rank that aborted, where no rank reports that others stopped; its watchdog would have said so."""
    if any(life.victim_error or life.own_error or life.out_of_memory or life.killed for life in found.values()):
        return None
    ended = [r for r, life in found.items() if life.exit is not None and life.exit.code not in (0, None, -15)]
    first = found[ended[0]].exit if len(ended) == 1 else None
    seen = first is not None and first.kind == "launcher_failure" and signal_of(first.code) == -6
    return ended[0] if seen else None


def lives(facts: Facts) -> dict[int, Life]:
    """Return the signs of life of every rank that any event speaks of."""
    found: dict[int, dict[str, Event]] = defaultdict(dict)
    last: dict[int, int] = {}
    at_work = _at_work(facts)
    past = Past(facts)
    broken = {e.rank for e in facts.events if e.kind == "cuda_error" and e.rank is not None}
    starved = _starved_workers(facts)
    for event in facts.events:
        if event.rank is None:
            continue
        role = _role(event)
        if event.kind == "cuda_error" and role == "victim_error" and len(broken) == 1 and event.name in _OF_THE_DEVICE:
            role = "own_error"
        caught = role == "own_error" and _caught(event, at_work)
        over = role == "killed" and signal_of(event.code) in _TEARDOWN and past.came_at_the_end(event)
        if caught or over or (role in _ACCUSING and (past.ended_before(event) or past.went_on_after(event))):
            found[event.rank]
        elif role is not None:
            kept = found[event.rank].setdefault(role, event)
            if _earlier(event, kept):
                found[event.rank][role] = event
        else:
            found[event.rank]
        if role == "own_error" and event.pid in starved and event.name == "dataloader_worker":
            found[event.rank].setdefault("out_of_memory", starved[event.pid])
        if event.ts is not None:
            last[event.rank] = max(last.get(event.rank, event.ts), event.ts)
    for rank, ts in facts.steps.select("rank", "ts").iter_rows():
        if ts is not None:
            last[rank] = max(last.get(rank, ts), ts)
            found[rank]
    for rank, event in _failed_parts(facts).items():
        # The error itself, where it is printed, says more.
        if rank in found and "own_error" not in found[rank]:
            found[rank]["own_error"] = event
    _forget_exits(found)
    for signs in found.values():
        _forget_aftermath(signs)
    return {rank: Life(rank=rank, last_ts=last.get(rank), **signs) for rank, signs in sorted(found.items())}


def _failed_parts(facts: Facts) -> dict[int, Event]:
    """Return by rank a report of its own that lists it among those that failed at a common task."""
    found: dict[int, Event] = {}
    for event in facts.events:
        listed = _FAILED_PARTS.search(event.text) if event.name.rpartition(".")[2] in _OF_OTHERS else None
        if listed is not None and event.rank is not None and str(event.rank) in re.findall(r"\d+", listed[1]):
            found.setdefault(event.rank, event)
    return found


def _starved_workers(facts: Facts) -> dict[int | None, Event]:
    """Return by process what the kernel killed for memory: a data loader's worker has no rank of its own."""
    return {e.pid: e for e in facts.events if e.kind == "oom_kill" and e.pid is not None}


@dataclass(slots=True)
class _Work:
    """When each rank last shows itself at work, ns: it logged a step, or called what it timed out in."""

    times: dict[int, int] = field(default_factory=dict[int, int])
    lines: dict[tuple[int, int | None], int] = field(default_factory=dict[tuple[int, int | None], int])
    """The last line of a file that shows it."""
    shared: dict[int, int] = field(default_factory=dict[int, int])
    """When each rank called the operation that most of those that timed out wait in."""

    def see(self, rank: int, ts: int, file: int | None, line: int | None) -> None:
        self.times[rank] = max(self.times.get(rank, ts), ts)
        self.lines[rank, file] = max(self.lines.get((rank, file), 0), line or 0)


def _at_work(facts: Facts) -> _Work:
    work = _Work()
    for rank, ts, file, line in facts.steps.select("rank", "ts", "file_id", "line").iter_rows():
        if ts is not None:
            work.see(rank, ts, file, line)
    calls: dict[tuple[object, ...], dict[int, int]] = defaultdict(dict)
    for event in facts.events:
        if event.kind == "watchdog_timeout" and event.rank is not None and event.ts is not None and event.dur_ms:
            called = event.ts - int(event.dur_ms * 1e6)
            work.see(event.rank, called, event.file, event.line)
            calls[event.comm, event.seq, event.name, event.numel][event.rank] = called
    most = max(calls.values(), key=len, default=dict[int, int]())
    work.shared = most if len(most) > 2 else {}
    return work


def _caught(event: Event, work: _Work) -> bool:
    """Say whether an exception was caught: its rank is seen at work a minute later and more.

    In one file the order of the lines is surer than a clock, which may have been set back.
    """
    if event.kind != "exception" or event.ts is None or event.rank is None:
        return False
    if event.timed and work.shared.get(event.rank, event.ts) > event.ts:
        return True  # it went on to the very call that the others made, and waits in it with them
    if work.lines.get((event.rank, event.file), event.line or 0) < (event.line or 0):
        return False
    return work.times.get(event.rank, event.ts) > event.ts + _WENT_ON_NS


def _forget_exits(found: Mapping[int, dict[str, Event]]) -> None:
    """Take `sys.exit` for the answer to an error of another rank, where one has an error that is none of these."""
    left = {r for r, signs in found.items() if "own_error" in signs and signs["own_error"].name == "SystemExit"}
    if any(("own_error" in signs and r not in left) or "out_of_memory" in signs for r, signs in found.items()):
        for rank in left:
            event = found[rank].pop("own_error")
            found[rank].setdefault("victim_error", event)


def _forget_aftermath(signs: dict[str, Event]) -> None:
    """Drop an error that came after the dump: what a rank raises while it is taken down did not stop the job.

    And a signal that ended a rank which had timed out: whoever waited was held up by somebody else.
    """
    waited, killed = signs.get("victim_error"), signs.get("killed")
    if waited is not None and killed is not None and waited.kind == "watchdog_timeout" and _earlier(waited, killed):
        del signs["killed"]
    dumped, raised = signs.get("dump_written"), signs.get("own_error")
    if dumped is None or raised is None or dumped.ts is None or raised.ts is None:
        return
    if raised.ts > dumped.ts + NS_PER_S // 10:
        del signs["own_error"]


def _earlier(a: Event, b: Event) -> bool:
    if a.ts is None or b.ts is None:
        return False
    return a.ts < b.ts


def _role(event: Event) -> str | None:
    """Return which sign of life an event is."""
    text = f"{event.name} {event.text}"
    if event.kind in ("alive", "finished", "dump_written", "log_end"):
        return event.kind
    if event.kind in ("exit", "launcher_failure", "signal", "pod_state"):
        if event.name == "dataloader_worker":
            # Who ends the job ends the workers of its loaders too.
            return "victim_error" if signal_of(event.code) in SOFT_SIGNALS else "own_error"
        signal = signal_of(event.code)
        if signal in FATAL_SIGNALS:
            return "killed"
        return "exit" if event.kind != "pod_state" and signal != -15 else None
    if event.kind in ("out_of_memory", "oom_kill"):
        return "out_of_memory"
    if event.kind == "nccl_abort" and event.name.startswith("destroy"):
        return None  # that is how a communicator ends when all is well
    if event.kind in ("connection_closed", "store_error", "watchdog_timeout", "nccl_error", "nccl_abort"):
        return "size_complaint" if SIZE_COMPLAINT.search(text) else "victim_error"
    if event.kind == "fingerprint_mismatch":
        return "size_complaint"
    if event.kind == "exception" and event.name.endswith("OutOfMemoryError"):
        return "out_of_memory"
    if event.kind in ("exception", "cuda_error"):
        if event.name == event.text.strip() and " " in event.name:
            return None  # a traceback that was cut before its last line: what was raised is not known
        if SIZE_COMPLAINT.search(text):
            return "size_complaint"
        if event.name.rpartition(".")[2] in (*INTERRUPTS, *_OF_OTHERS):
            return "victim_error"
        return "victim_error" if COMMUNICATION.search(text) and not LOCAL.search(text) else "own_error"
    return None


def life_claims(facts: Facts, found: Mapping[int, Life], waiting: Container[int] = ()) -> tuple[Claim, ...]:
    """Turn the signs of life into claims. Victims' lines become no claims against those who print them.

    `waiting`: ranks whose stack is in an operation with others; such a process runs, whatever became of its dump.
    """
    claims: list[Claim] = []
    complainers = [r for r, life in found.items() if life.victim_error is not None]
    said = [life.victim_error.ts for life in found.values() if life.victim_error is not None]
    first_said = min((ts for ts in said if ts is not None), default=None)
    ends = _Ends(aborted_alone(found), sum(left_by_itself(life) for life in found.values()), _only_unnamed_error(facts))
    for rank, life in found.items():
        claims += _endings(rank, life, ends)
        if life.alive is not None and rank not in waiting and _wrote_nothing(facts, life):
            told = life.log_end is not None and any(other.dump_written is not None for other in found.values())
            text = f"rank {rank} was alive and wrote no dump, as every running process did"
            if not told:
                text = f"rank {rank} was alive, and no dump of it was found"
            strength = "strong" if told else "weak"
            claims.append(Claim("snapshot", "stopped", (rank,), strength, text, (_ref(text, life.alive),)))
        elif life.log_end is not None and _stops_early(life, first_said) and len(complainers) > 1:
            text = f"the log of rank {rank} stops without an error, while {len(complainers)} ranks report one"
            claims.append(Claim("logs", "silent", (rank,), "strong", text, (_ref(text, life.log_end),), life.last_ts))
            shown = found[complainers[0]].victim_error
            text = f"rank {complainers[0]} lost its connection to a peer"
            if shown is not None and re.search(r"closed|reset", f"{shown.name} {shown.text}"):
                claims.append(Claim("logs", "closed_by", (rank,), "weak", text, (_ref(text, shown),), shown.ts))
    return tuple(claims)


def _wrote_nothing(facts: Facts, life: Life) -> bool:
    """Say whether a rank left no dump, nor a line that it wrote one, although it did not end."""
    if not facts.dumps or life.rank in facts.dumps or life.dump_written is not None:
        return False
    return life.killed is None and life.exit is None and not life.ended_well


def _stops_early(life: Life, first_said: int | None) -> bool:
    """Say whether a log just ends, before the others complain. One that goes on after that was no dead process's."""
    if life.spoke_at_the_end or life.alive is not None:
        return False
    return life.last_ts is None or first_said is None or life.last_ts < first_said


def _only_unnamed_error(facts: Facts) -> Event | None:
    """Return the only exception that no line ties to a rank, if it is none of communication."""
    raised = [e for e in facts.events if e.kind == "exception" and e.rank is None]
    own = [
        e
        for e in raised
        if e.name.rpartition(".")[2] not in INTERRUPTS and not COMMUNICATION.search(f"{e.name} {e.text}")
    ]
    return own[0] if len(own) == 1 else None


# Who keeps the processes, by the name of the event in which it says that it lost one.
_KEEPERS: Final = {"ray_worker": "Ray", "engine_worker": "the executor of vLLM"}


def _lost_without_a_word(life: Life) -> bool:
    return life.exit is not None and life.exit.name in _KEEPERS and not life.spoke_at_the_end and life.killed is None


@dataclass(frozen=True, slots=True)
class _Ends:
    """What the ends of all ranks show together."""

    aborted: int | None
    """The only rank that did, where nobody reports that others stopped."""
    left: int
    """How many left by themselves."""
    unnamed: Event | None
    """The only exception that no line ties to a rank."""


def _endings(rank: int, life: Life, ends: _Ends) -> list[Claim]:
    claims: list[Claim] = []
    if life.out_of_memory is not None:
        text = f"rank {rank} ran out of memory"
        claims.append(
            Claim(
                "logs",
                "out_of_memory",
                (rank,),
                "proof",
                text,
                (_ref(text, life.out_of_memory),),
                life.out_of_memory.ts,
            )
        )
    if life.killed is not None:
        name = FATAL_SIGNALS[signal_of(life.killed.code) or -9]
        of_process = f" (process {life.killed.pid})" if life.killed.pid is not None else ""
        text = f"rank {rank}{of_process} was ended by {name}"
        claims.append(
            Claim("launcher", "killed", (rank,), "proof", text, (_ref(text, life.killed),), life.killed.ts, detail=name)
        )
    if _lost_without_a_word(life):
        assert life.exit is not None
        text = f"{_KEEPERS[life.exit.name]} lost the worker of rank {rank} without a word of it"
        claims.append(Claim("launcher", "exited", (rank,), "strong", text, (_ref(text, life.exit),), life.exit.ts))
    elif left_by_itself(life):
        assert life.exit is not None
        raised = ends.unnamed
        text = f"rank {rank} ended with exit code {life.exit.code} and reports no lost connection"
        claims.append(Claim("launcher", "exited", (rank,), "strong", text, (_ref(text, life.exit),), life.exit.ts))
        if raised is not None and ends.left == 1:
            text = f"the only exception without a rank is {raised.name}: {_short(raised.text)}"
            refs = (_ref(text, raised),)
            claims.append(Claim("logs", "exception", (rank,), "weak", text, refs, raised.ts, detail=raised.name))
    elif ends.aborted == rank and life.exit is not None:
        text = f"rank {rank} aborted, and no rank reports a timeout or a lost connection"
        refs = (_ref(text, life.exit),)
        claims.append(Claim("launcher", "exited", (rank,), "strong", text, refs, life.exit.ts, detail="SIGABRT"))
    if life.own_error is not None:
        what = life.own_error.name or "an exception"
        text = f"rank {rank} raised {what}" + (f": {_short(life.own_error.text)}" if life.own_error.text else "")
        if life.own_error.kind == "cuda_error":
            text = f"rank {rank} reports an error of its device: {what}"
        claims.append(
            Claim(
                "logs",
                "exception",
                (rank,),
                "strong",
                text,
                (_ref(text, life.own_error),),
                life.own_error.ts,
                detail=what,
            )
        )
        if ADDRESS.search(f"{life.own_error.name} {life.own_error.text}"):
            text = f"rank {rank} could not listen on its address, which another process holds"
            refs = (_ref(text, life.own_error),)
            claims.append(Claim("logs", "address_in_use", (rank,), "strong", text, refs, life.own_error.ts))
    if life.ended_well:
        event = life.finished or life.exit
        text = f"rank {rank} finished normally"
        if event is not None:
            claims.append(Claim("logs", "finished", (rank,), "strong", text, (_ref(text, event),), event.ts))
    return claims


def _short(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 120 else text[:119] + "…"


def _ref(text: str, event: Event) -> Ref:
    return Ref(text, event.file, event.line, "events", (("rank", event.rank), ("kind", event.kind)), "logs")
