"""Decoded traces: one process each, read from a trace file (a ring) or from an export of some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta

from mycroft.tracer import _core
from mycroft.tracer.arrow import RecordBatch, Table, pa, pc
from mycroft.tracer.names import CODED, FLAGS

TABLES: Final = ("state", "flow", "op", "heartbeat", "gap", "foreign")
# Communicator number of operations that another process posted.
FOREIGN_COMM: Final = 0xFFFF
# Agents tell of these over the network; what is no such number is refused when it is read.
MOST_NUMBER: Final = 1 << 62
Number = Annotated[int, Meta(ge=0, le=MOST_NUMBER)]
Number32 = Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]
Unsigned = Annotated[int, Meta(ge=0)]
Text = Annotated[str, Meta(max_length=1000)]


@dataclass(frozen=True, slots=True)
class Process:
    """Who wrote a trace. What could not be had is None (text: empty)."""

    pid: Number32
    host: Text = ""
    rank: Number32 | None = None
    world_size: Number32 | None = None
    local_rank: Number32 | None = None
    local_world_size: Number32 | None = None
    device: Number32 | None = None
    bus_id: Text = ""
    rank_source: Text = ""
    addresses: Text = ""
    boot_id: Text = ""
    proc_start: Number = 0
    pid_namespace: Unsigned = 0
    salt: Unsigned = 0
    started_ns: Number = 0


@dataclass(frozen=True, slots=True)
class Communicator:
    """One communicator as one process knows it. `comm` is the number that its records carry.

    `last_seq` is the newest collective that was started (None: none) and `last_enq_ns` the time of the newest
    start of anything; both are live words, true up to the moment a process was killed. `abi` is the version of
    NCCL's profiler interface, 0 for anything else; 1 counts raw steps instead of transfers.
    """

    comm: Number32
    hash: Unsigned
    name: Text = ""
    backend: Text = ""
    rank: Number32 | None = None
    size: Number32 | None = None
    nodes: Number32 | None = None
    abi: Number32 = 0
    opened_ns: Number = 0
    closed_ns: Number | None = None
    last_seq: Number | None = None
    last_enq_ns: Number | None = None
    p2p_started: Number = 0


@dataclass(frozen=True, slots=True)
class ProcessState:
    """What the process' own machine said of it. `letter` is the kernel's: R, S, D, T, Z, …; empty if it is gone."""

    exists: bool
    letter: Text = ""

    @property
    def stopped(self) -> bool:
        """Stopped by a signal or a debugger."""
        return self.letter in ("T", "t")


@dataclass(frozen=True, slots=True)
class Trace:
    """What was read of one process: dimensions, one Arrow table per kind of record, and what was lost.

    `tables` has every name of `TABLES`. Codes are dictionaries of text, flags booleans, times UTC ns.
    `closed`: the writer ended in order; `last_tick_ns`: time of the sampler's last tick (None: none). `state`: what the
    agent beside it saw of the process, None where no agent looked. `unheard`: nothing comes from that agent any more.
    """

    name: str
    process: Process
    communicators: tuple[Communicator, ...]
    tables: Mapping[str, Table]
    losses: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())
    closed: bool = False
    last_tick_ns: int | None = None
    interval_ms: int = 100
    next: int = 0
    state: ProcessState | None = None
    unheard: bool = False


@dataclass(frozen=True, slots=True)
class Coded:
    """Records as they lie in the file, one Arrow batch per kind; `next` is the position to go on from."""

    batches: Mapping[str, RecordBatch]
    losses: Mapping[str, int]
    next: int


def named(batch: RecordBatch) -> Table:
    """Replace codes by text and 0/1 by booleans; a code without a name becomes NULL."""
    columns: list[object] = []
    names: list[str] = []
    for name in batch.schema.names:
        column = batch.column(name)
        if name in CODED:
            new_name, words = CODED[name]
            valid = pc.if_else(pc.less(column, len(words)), column, pa.scalar(None, pa.uint8()))
            column = pa.DictionaryArray.from_arrays(valid, pa.array(words, pa.string()))
            name = new_name
        elif name in FLAGS:
            column = pc.not_equal(column, 0)
        columns.append(column)
        names.append(name)
    return pa.table(columns, names=names)


class TraceFile:
    """A trace file on disk or in /dev/shm, live or not. Read only.

    Raises:
        TraceError: if it is no trace of ours, of an unknown layout version, or damaged in its header.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._core = _core.Trace(str(path))

    @property
    def header(self) -> dict[str, Any]:
        """The header as it is now: head, ticks, closed, interval and so on."""
        return self._core.header

    @property
    def process(self) -> Process:
        """Who writes it."""
        return Process(**self._core.process)

    @property
    def communicators(self) -> tuple[Communicator, ...]:
        """Every communicator that is still in the directory, oldest number first."""
        found = (Communicator(**entry) for entry in self._core.communicators)
        return tuple(sorted(found, key=lambda entry: entry.comm))

    def coded(self, since: int = 0, *, most: int | None = None, live: bool = False) -> Coded:
        """Decode without naming the codes, at most `most` records."""
        decoded = self._core.read(since, most, live=live)
        batches = {name: pa.record_batch(batch) for name, batch in decoded["batches"].items()}
        return Coded(batches, {k: n for k, n in decoded["losses"].items() if n}, decoded["next"])

    def batches(self, since: int = 0, *, live: bool = False) -> dict[str, RecordBatch]:
        """Decode without naming the codes: the fast path, no copy between C++ and Arrow."""
        return {name: pa.record_batch(batch) for name, batch in self._core.read(since, live=live)["batches"].items()}

    def read(self, since: int = 0, *, most: int | None = None, live: bool = False) -> Trace:
        """Decode everything from position `since` on; go on later with the result's `next`."""
        decoded = self._core.read(since, most, live=live)
        header = self._core.header
        return Trace(
            name=str(self.path),
            process=self.process,
            communicators=self.communicators,
            tables={name: named(pa.record_batch(batch)) for name, batch in decoded["batches"].items()},
            losses={reason: count for reason, count in decoded["losses"].items() if count},
            closed=header["closed"],
            last_tick_ns=header["tick_ns"] or None,
            interval_ms=header["interval_ms"],
            next=decoded["next"],
        )

    def follow(self, since: int = 0) -> Iterator[Trace]:
        """Yield what has come since the last turn, again and again, empty turns included; ends with the trace.

        The caller decides how long to wait between turns. Records that are being written are left for the
        next turn.
        """
        position = since
        while True:
            closed = self._core.header["closed"]
            trace = self.read(position, live=not closed)
            position = trace.next
            yield trace
            if closed:
                return


def open_trace(path: str | Path) -> Trace:
    """Read a whole trace file."""
    return TraceFile(path).read()
