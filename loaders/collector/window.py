"""The last minutes of every process, read from what the collector has acknowledged; for the trigger and the pages.

Starts from the segments, then follows the log: a second after an agent has sent a batch, it is here. Memory is bounded
by time, by processes, by rows of each and by rows of all: a fleet whose rows are too many is looked at for a shorter
time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from mycroft.loaders.collector.log import log_numbers, log_path, read_log
from mycroft.loaders.collector.manifest import Segment, read_manifest
from mycroft.loaders.collector.segments import GAPS, RINGS, TIME_OF, Slots, new_rows, read_segments, table_schema
from mycroft.tracer.agent.batch import Batch, BatchError, BatchKey, Gap, RingStatus, decode
from mycroft.tracer.agent.summary import Summary
from mycroft.tracer.arrow import RecordBatch, Schema, Table, pa, pc
from mycroft.tracer.export import record_schema
from mycroft.tracer.trace import TABLES, Trace, named

LOG: Final = logging.getLogger("mycroft.watch")
_MOST_GAPS: Final = 1000
# A host's processes with those that were started anew since; a kilobyte each.
MOST_OF_HOST: Final = 1024
MOST_PROCESSES: Final = 200_000
_SAY_S: Final = 60.0
# Kinds in the order in which they go when a process has more rows than are kept.
_GO_FIRST: Final = ("state", "foreign", "flow", "heartbeat", "op", "gap")
# Chunks of a kind that are put together once there are as many: many small ones make every use slow.
_JOINED: Final = 32
# Batches that are looked at together: their rows are in memory twice for a moment.
_MOST_AT_ONCE: Final = 2000
# Summaries of a relay that are kept for their measures until somebody looks.
_MOST_MEASURED: Final = 2
_LEAST_SPAN_NS: Final = 20_000_000_000


@dataclass(slots=True)
class _Chunk:
    """Some rows of what a fleet told at once; taken out of it only when they are used."""

    whole: RecordBatch
    start: int
    count: int
    last_ns: int

    @property
    def rows(self) -> RecordBatch:
        return self.whole.slice(self.start, self.count)


@dataclass(slots=True)
class _Chunks:
    """Rows of one kind of one process, oldest first: those that were put together, and then those as they came.

    What was put together stays so: work follows what is new, and each piece is as old as what it was made of.
    """

    joined: deque[_Chunk] = field(default_factory=lambda: deque[_Chunk]())
    fresh: deque[_Chunk] = field(default_factory=lambda: deque[_Chunk]())

    def add(self, chunk: _Chunk) -> None:
        self.fresh.append(chunk)
        if len(self.fresh) >= 2 * _JOINED:
            older = [self.fresh.popleft() for _ in range(_JOINED)]
            whole = _joined(older)
            self.joined.append(_Chunk(whole, 0, whole.num_rows, max(c.last_ns for c in older)))

    def since(self, since_ns: int) -> list[_Chunk]:
        """Return the pieces that hold rows of that time or later."""
        return [chunk for part in (self.joined, self.fresh) for chunk in part if chunk.last_ns >= since_ns]

    def oldest(self) -> _Chunk | None:
        for part in (self.joined, self.fresh):
            if part:
                return part[0]
        return None

    def drop_oldest(self) -> int:
        """Forget the oldest piece, and return how many rows that were."""
        return (self.joined or self.fresh).popleft().count

    def __len__(self) -> int:
        return len(self.joined) + len(self.fresh)


@dataclass
class Process:
    """One process: its newest status, and its rows by kind."""

    key: str
    host: str
    status: RingStatus
    told_ns: int = 0
    """When its agent last spoke of it, by the clock of its host."""
    arrived_s: float = 0.0
    """The same by our clock, seconds since the epoch."""
    position: int = 0
    chunks: dict[str, _Chunks] = field(default_factory=lambda: dict[str, _Chunks]())
    rows: int = 0
    unheard: bool = False
    """Nothing comes from its agent any more."""

    @property
    def ended(self) -> bool:
        """Whether it closed its trace, or its host says that it is gone."""
        return self.status.closed or (self.status.state is not None and not self.status.state.exists)

    @property
    def exists(self) -> bool | None:
        """Whether its host says that it runs; None: it cannot say."""
        return None if self.status.state is None else self.status.state.exists


@dataclass(frozen=True, slots=True)
class RelaySeen:
    """A relay: the newest of its summaries, and when that came, by our clock.

    `measured`: the last that have measures, oldest first: each has those of a window that no other has.
    """

    name: str
    seq: int
    made_ns: int
    arrived_s: float
    summary: Summary
    measured: tuple[Summary, ...] = ()


@dataclass(frozen=True, slots=True)
class GapSeen:
    """Something that did not get through, and who said so."""

    host: str
    told_ns: int
    gap: Gap


class Window:
    """What one folder of a collector holds of the last `span_s` seconds. One thread."""

    def __init__(
        self,
        root: Path,
        *,
        span_s: float = 600.0,
        most_rows: int = 200_000,
        most_in_all: int = 30_000_000,
        follow: Callable[[str, Table], None] | None = None,
    ) -> None:
        """Nothing is read before `refresh`. `most_rows` is of each process; a row takes about 100 bytes.

        `follow` is given what comes in, by kind, as it comes: rows with `process`, a dictionary. After the log had to
        be begun anew it may be given rows again.
        """
        self._follow = follow
        self._root = root
        self._log_folder = root / "log"
        self._span_ns = int(span_s * 1e9)
        self._most_rows = most_rows
        self._most_in_all = most_in_all
        self._kept_ns = self._span_ns
        self._number = -1
        self._offset = 0
        self._resync = True
        self.processes: dict[str, Process] = {}
        self.relays: dict[str, RelaySeen] = {}
        self.gaps: deque[GapSeen] = deque(maxlen=_MOST_GAPS)
        self.unreadable = 0
        self.batches = 0
        self.left_out: Counter[str] = Counter()
        """By host: how often a batch told of a process for which there is no place."""
        self._of_host: Counter[str] = Counter()
        self._said = -_SAY_S

    # ---- reading -------------------------------------------------------------------

    def refresh(self) -> int:
        """Take what has come since the last call; return how many batches that was."""
        if self._resync:
            self._begin()
        taken = 0
        found: list[Batch] = []
        numbers = [n for n in log_numbers(self._log_folder) if n >= self._number]
        if self._number not in numbers and read_manifest(self._root / "manifest").log_done >= self._number:
            # The file that we would read next is gone, and what it held is in segments.
            self._begin()
            numbers = [n for n in numbers if n >= self._number]
        for n in numbers:
            if n > self._number:
                self._number, self._offset = n, 0
            try:
                for body, after in read_log(log_path(self._log_folder, n), self._offset):
                    self._offset = after
                    taken += 1
                    if (batch := self._decoded(body)) is not None:
                        found.append(batch)
                    if len(found) >= _MOST_AT_ONCE:
                        self._take_all(found)
                        found = []
            except FileNotFoundError:
                self._resync = True
                break
        self._take_all(found)
        self._evict()
        return taken

    def _begin(self) -> None:
        """Read the window from the segments; the log goes on after them."""
        manifest = read_manifest(self._root / "manifest")
        # A segment put together from several is as old as its first: take those that may hold something recent.
        since = time.time() - self._span_ns / 1e9
        recent = [s for s in manifest.segments if s.made >= since or s.last_ns / 1e9 >= since]
        self._number, self._offset = manifest.log_done + 1, 0
        self._resync = False
        now = time.time()
        for name in (RINGS, *TABLES, GAPS):
            mine = [segment for segment in recent if segment.table == name]
            if not mine:
                continue
            tables = [table for segment in mine if (table := self._read(segment)) is not None]
            if not tables:
                continue
            table = pa.concat_tables(tables)
            if name == RINGS:
                for row in table.cast(_INTEGER_RINGS).sort_by("ts").to_pylist():
                    self._take_status(row, now)
            elif name == GAPS:
                for row in table.cast(_INTEGER_GAPS).to_pylist():
                    self._take_gap_row(row)
            else:
                table = table.sort_by([("process", "ascending"), ("position", "ascending")])
                encoded = table.column("process").combine_chunks().dictionary_encode()
                self._spread(name, table.set_column(0, "process", encoded), known=True)
        for process in self.processes.values():
            process.position = max(process.position, process.status.next)

    def _read(self, segment: Segment) -> Table | None:
        """Return the rows of a segment; None: it is damaged or gone, which must not cost those of the others."""
        try:
            return read_segments(self._root, [segment])
        except (OSError, pa.ArrowException) as error:
            LOG.warning("%s cannot be read: %s", segment.path, (str(error).splitlines() or [""])[0])
            return None

    def _take_status(self, row: Mapping[str, Any], now: float) -> None:
        try:
            status = msgspec.json.decode(row["status"], type=RingStatus)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.unreadable += 1
            return
        told = int(row["ts"])
        known = self.processes.get(status.key)
        if known is None:
            self._place(Process(status.key, row["host"], status, told, min(now, told / 1e9)))
        else:
            known.status, known.told_ns = status, told

    def _take_gap_row(self, row: Mapping[str, Any]) -> None:
        gap = Gap(
            why=row["why"],
            since_ns=row["since"] or 0,
            until_ns=row["until"] or 0,
            rows=row["rows"],
            batches=row["batches"],
            ring=row["process"] or "",
        )
        self.gaps.append(GapSeen(row["host"], row["ts"], gap))

    def _decoded(self, body: bytes) -> Batch | None:
        try:
            return decode(body)
        except BatchError as error:
            self.unreadable += 1
            LOG.warning("a batch is left out: %s", error)
            return None

    def take(self, batch: Batch) -> None:
        """Add one batch; rows that are here already are left out."""
        self._take_all([batch])

    def _take_all(self, batches: Sequence[Batch]) -> None:
        """Add batches in their order; what is done with rows is done once for all of them."""
        now = time.time()
        slots = Slots()
        parts: dict[str, list[tuple[int, RecordBatch]]] = {}
        for batch in batches:
            self.batches += 1
            host = batch.key.host
            self.gaps.extend(GapSeen(host, batch.key.made_ns, gap) for gap in batch.gaps)
            if batch.summary is not None:
                self._take_summary(batch.key, batch.summary, now)
            base = len(slots.floor)
            for ring in batch.rings:
                process = self.processes.get(ring.key) or self._place(Process(ring.key, host, ring))
                if process is None:
                    slots.add(ring.key, 0)
                    continue
                slots.add(ring.key, process.position)
                process.position = max(process.position, ring.next)
                if batch.key.made_ns >= process.told_ns:
                    process.status, process.told_ns, process.arrived_s = ring, batch.key.made_ns, now
            for kind, table in batch.tables.items():
                parts.setdefault(kind, []).extend((base, part) for part in table.to_batches())
        for kind, mine in parts.items():
            table, _ = new_rows(kind, mine, slots)
            if table.num_rows:
                self._spread(kind, table)

    def _place(self, process: Process) -> Process | None:
        """Keep a new process; None: its host, or all together, have as many as can be.

        Who may speak for a host may tell of processes that are none: they must not take the memory of the others.
        """
        if len(self.processes) >= MOST_PROCESSES or self._of_host[process.host] >= MOST_OF_HOST:
            if process.host in self.left_out or len(self.left_out) < _MOST_GAPS:
                self.left_out[process.host] += 1
            return None
        self._of_host[process.host] += 1
        self.processes[process.key] = process
        return process

    def _take_summary(self, key: BatchKey, summary: Summary, now: float) -> None:
        known = self.relays.get(key.host)
        # A relay that was away sends what waited, the oldest first: what is newest counts.
        if known is None or key.made_ns >= known.made_ns:
            measured = known.measured if known is not None else ()
            if any(part.window for part in summary.parts):
                measured = (*measured, summary)[-_MOST_MEASURED:]
            self.relays[key.host] = RelaySeen(key.host, key.seq, key.made_ns, now, summary, measured)

    def _spread(self, kind: str, table: Table, *, known: bool = False) -> None:
        """Give every process its rows of a table that is sorted by process; `known`: leave out what it has already."""
        process = table.column("process").combine_chunks()
        names = process.dictionary.to_pylist()
        numbers = process.indices.to_numpy()
        if self._follow is not None:
            self._follow(kind, table)
        # Codes become text here, once, and not whenever somebody looks.
        rows = named(table.drop_columns(["process"]).combine_chunks().to_batches()[0]).to_batches()[0]
        times = rows.column(TIME_OF[kind]).cast(pa.int64()).fill_null(0).to_numpy()
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        ends = [*starts[1:].tolist(), len(numbers)]
        lasts = np.maximum.reduceat(times, starts).tolist()
        for start, end, last in zip(starts.tolist(), ends, lasts, strict=True):
            mine = self.processes.get(names[numbers[start]])
            if mine is None:
                continue  # no status of it is left
            if known and mine.position:
                part = rows.slice(start, end - start)
                part = part.filter(pc.greater_equal(part.column("position"), mine.position))
                self._add(mine, kind, _Chunk(part, 0, part.num_rows, last))
            else:
                self._add(mine, kind, _Chunk(rows, start, end - start, last))

    def _add(self, process: Process, kind: str, chunk: _Chunk) -> None:
        if not chunk.count:
            return
        process.chunks.setdefault(kind, _Chunks()).add(chunk)
        process.rows += chunk.count

    # ---- bounds --------------------------------------------------------------------

    def _evict(self) -> None:
        now = time.time()
        rows = self.rows
        if rows > self._most_in_all:
            # A fleet too large for its window: all of them keep less, so that they can still be compared.
            self._kept_ns = max(_LEAST_SPAN_NS, int(self._kept_ns * 0.9 * self._most_in_all / rows))
        elif rows < self._most_in_all // 2:
            self._kept_ns = min(self._span_ns, self._kept_ns + self._kept_ns // 10)
        for name, relay in list(self.relays.items()):
            if now - relay.arrived_s > self._span_ns / 1e9:
                del self.relays[name]
        if self.left_out and time.monotonic() - self._said >= _SAY_S:
            self._said = time.monotonic()
            hosts = ", ".join(sorted(self.left_out)[:4])
            LOG.warning("%d hosts tell of more processes than are kept: %s", len(self.left_out), hosts)
        for key, process in list(self.processes.items()):
            if now - process.arrived_s > self._span_ns / 1e9:
                del self.processes[key]
                self._of_host[process.host] -= 1
                continue
            oldest = process.told_ns - self._kept_ns
            for chunks in process.chunks.values():
                while (first := chunks.oldest()) is not None and first.last_ns < oldest:
                    process.rows -= chunks.drop_oldest()
            for kind in _GO_FIRST:
                chunks = process.chunks.get(kind)
                while process.rows > self._most_rows and chunks is not None and len(chunks) > 1:
                    process.rows -= chunks.drop_oldest()

    @property
    def rows(self) -> int:
        """Rows of all processes."""
        return sum(process.rows for process in self.processes.values())

    # ---- use -----------------------------------------------------------------------

    def jobs(self) -> list[list[Process]]:
        """Return the processes that belong together: those that share a communicator, directly or through others.

        Processes without a communicator belong to no job yet. Ordered by their first process.
        """
        parent: dict[str, str] = {}

        def top(key: str) -> str:
            while parent[key] != key:
                parent[key] = parent[parent[key]]
                key = parent[key]
            return key

        by_comm: dict[int, str] = {}
        for key, process in self.processes.items():
            hashes = [comm.hash for comm in process.status.communicators if comm.hash]
            if not hashes:
                continue
            parent[key] = key
            for hash_ in hashes:
                other = by_comm.setdefault(hash_, key)
                parent[top(key)] = top(other)
        found: dict[str, list[Process]] = {}
        for key in parent:
            found.setdefault(top(key), []).append(self.processes[key])
        return [sorted(group, key=_by_rank) for group in found.values()]


def _joined(chunks: Iterable[_Chunk]) -> RecordBatch:
    """Return the rows of chunks as one, of its own: a chunk may be a part of what a fleet told at once."""
    return pa.Table.from_batches([chunk.rows for chunk in chunks]).combine_chunks().to_batches()[0]


def _by_rank(process: Process) -> tuple[bool, int, int, str]:
    who = process.status.process
    return (who.rank is None, who.rank or 0, who.started_ns, process.key)


def _integer_times(name: str) -> Schema:
    """Return the schema of a table with times as integers: Python has no time of a nanosecond."""
    fields = table_schema(name)
    return pa.schema([pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in fields])


_INTEGER_RINGS: Final = _integer_times(RINGS)
_INTEGER_GAPS: Final = _integer_times(GAPS)


def traces_of(processes: Iterable[Process], *, since_ns: int = 0) -> list[Trace]:
    """Return processes as traces, as if their files had been read at this moment.

    `since_ns` (by each host's clock): pieces of older rows are left out, but not heartbeats, of which there are few and
    which say how long a healthy job may pause.
    """
    return [_trace(process, since_ns) for process in processes]


def _trace(process: Process, since_ns: int) -> Trace:
    status = process.status
    tables: dict[str, Table] = {}
    for kind in TABLES:
        chunks = process.chunks.get(kind)
        pieces = chunks.since(since_ns if kind != "heartbeat" else 0) if chunks is not None else []
        if not pieces:
            tables[kind] = record_schema(kind).empty_table()
            continue
        tables[kind] = pa.Table.from_batches([_joined(pieces)])
    return Trace(
        name=process.key,
        # Its machine has been asked already; ours must not be.
        process=replace(status.process, boot_id=""),
        communicators=status.communicators,
        tables=tables,
        losses=dict(status.losses),
        closed=status.closed,
        last_tick_ns=status.last_tick_ns,
        interval_ms=status.interval_ms,
        next=status.next,
        state=status.state,
        unheard=process.unheard,
    )


def fresh_until(processes: Sequence[Process], *, patience_s: float, now: float | None = None) -> tuple[int, list[str]]:
    """Return up to when all hosts have told what happened, ns by their clocks, and the hosts that are silent.

    A host that has said nothing for `patience_s` is silent and not waited for. What one host has told and another could
    not yet must not look like a difference between them.
    """
    now = time.time() if now is None else now
    by_host: dict[str, Process] = {}
    # One that has ended is not spoken of any more, however long its host goes on to speak, or does not.
    for process in (process for process in processes if not process.ended):
        known = by_host.get(process.host)
        if known is None or process.arrived_s > known.arrived_s:
            by_host[process.host] = process
    silent = sorted(h for h, p in by_host.items() if now - p.arrived_s > patience_s)
    told = [p.told_ns for h, p in by_host.items() if h not in silent]
    return (min(told) if told else max((p.told_ns for p in processes), default=0)), silent
