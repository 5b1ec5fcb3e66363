"""The collector: takes batches, says so once they are on disk, and turns its log into segments.

Any number of threads call `take`, or `offer` where they cannot wait; one commits what has come by then with one
`fdatasync`. A second has segments made, and keeps to the limits. Nothing in here knows HTTP.

    folder/log/log-<n>            acknowledged batches
    folder/facts/<table>/hour=…/  segments
    folder/manifest/              versions and HEAD
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from mycroft.errors import MycroftError
from mycroft.loaders.collector.keeper import MOST_NUMBERS, Keeper
from mycroft.loaders.collector.log import LogFile, cut_torn_tail, log_numbers, log_path, read_log
from mycroft.loaders.collector.maker import HelperMaker, LocalMaker
from mycroft.loaders.collector.manifest import Manifest
from mycroft.loaders.collector.retention import KEEP_S, Pin
from mycroft.tracer.agent.batch import BatchKey, key_of

LOG: Final = logging.getLogger("mycroft.collector")
_SEGMENTS: Final = "segments cannot be written"
# Of agents and their starts.
_MOST_REMEMBERED: Final = 2 * MOST_NUMBERS
_Kept = TypeVar("_Kept", int, float)


class CollectorError(MycroftError):
    """A store that cannot be used: names the folder and says why."""


class BusyError(CollectorError):
    """More waits than may; trying again later helps."""


class FullError(CollectorError):
    """The disk does not take the batch; it was not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """What a collector is told. Sizes are bytes, times seconds.

    `most_bytes`: of segments; the oldest go first. `pending_bytes`: that may wait for the disk. `keep_s`: by table.
    `helper`: segments are made by a process of their own, so that acknowledging does not wait for them.
    """

    folder: Path
    most_bytes: int = 20 << 30
    segment_s: float = 10.0
    segment_bytes: int = 16 << 20
    pending_bytes: int = 64 << 20
    grace_s: float = 120.0
    keep_s: Mapping[str, float] = field(default_factory=lambda: dict(KEEP_S))
    reserve_bytes: int = 256 << 20
    helper: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch that is safe. `repeated`: it was already."""

    key: BatchKey
    repeated: bool


@dataclass(slots=True)
class Ticket:
    """A batch that waits for the disk; `tell` hears when that is over."""

    key: BatchKey
    identity: str
    wire: bytes
    tell: Tell
    repeated: bool = False
    error: str = ""
    others: list[Ticket] = field(default_factory=lambda: list[Ticket]())
    """The same batch once more, come while the first waits."""

    def taken(self) -> Taken:
        """Return what has become of it, once it was told.

        Raises:
            FullError: if the disk did not take it.
        """
        if self.error:
            raise FullError(self.error)
        return Taken(self.key, self.repeated)


Tell = Callable[[Sequence[Ticket]], None]


@dataclass(slots=True)
class Counters:
    """What has happened since the start."""

    batches: int = 0
    repeated: int = 0
    wire_bytes: int = 0
    rows: int = 0
    refused_full: int = 0
    refused_busy: int = 0
    unreadable: int = 0
    repeated_rows: int = 0
    commits: int = 0
    segments: int = 0
    dropped_segments: int = 0


class Collector:
    """One store, held by one process."""

    def __init__(self, settings: CollectorSettings, *, pins: Callable[[], Iterable[Pin]] = tuple) -> None:
        """Open the store: cut the torn tail of the log, and learn from it what is safe already.

        `pins`: asked for the times that incidents rest on, whenever rows have to go.

        Raises:
            CollectorError: if another collector has it, or it cannot be read or written.
        """
        self.settings = settings
        self.root = settings.folder
        self.log_folder = self.root / "log"
        self.manifest_folder = self.root / "manifest"
        self.counters = Counters()
        self._waiting: dict[int, int] = {}
        """Bytes of the files of the log that are not in segments yet, by number."""
        self.problem = ""
        """Why the disk does not take batches, in words; empty: it does."""
        try:
            for folder in (self.root, self.log_folder, self.manifest_folder):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock_fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock_fd)
                raise CollectorError(f"{self.root}: another collector uses this folder") from None
            maker = HelperMaker(self.root) if settings.helper else LocalMaker(self.root)
            self._keeper = Keeper(
                self.root,
                maker,
                most_bytes=settings.most_bytes,
                keep_s=settings.keep_s,
                grace_s=settings.grace_s,
                pins=pins,
            )
            self._seqs = OrderedDict((identity, seq) for identity, (seq, _) in self.manifest.seqs.items())
            self.last_seen: OrderedDict[str, float] = OrderedDict()
            """When each host spoke last, the longest ago first; of a bounded number."""
            self._number = self.manifest.log_done
            self._recover()
            self._log: LogFile | None = None
        except OSError as error:
            raise CollectorError(f"{self.root}: cannot be used for the store ({error.strerror or error})") from error
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._pending: list[Ticket] = []
        self._pending_bytes = 0
        self._in_flight: dict[str, Ticket] = {}
        self._log_lock = threading.Lock()
        self._log_since = time.monotonic()
        self._keeping = threading.RLock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def _recover(self) -> None:
        """Learn which batches the log holds; a tail that was never acknowledged goes."""
        for number in log_numbers(self.log_folder):
            path = log_path(self.log_folder, number)
            self._number = max(self._number, number)
            if number <= self.manifest.log_done:
                continue  # in the segments already; the window may still read it
            torn = cut_torn_tail(path)
            if torn:
                LOG.warning("%s: %d bytes of a batch that was never acknowledged are cut off", path.name, torn)
            self._waiting[number] = path.stat().st_size
            for body, _ in read_log(path):
                key = key_of(body)
                identity = f"{key.host}/{key.boot}"
                self._seqs[identity] = max(self._seqs.get(identity, -1), key.seq)

    # ---- taking --------------------------------------------------------------------

    def start(self) -> None:
        """Begin to commit and to make segments."""
        for name, work in (("commit", self._commit_loop), ("segments", self._segment_loop)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def take(self, wire: bytes, *, timeout_s: float = 30.0) -> Taken:
        """Return once a batch is on disk, or was before.

        Raises:
            BatchError: if it is none.
            BusyError: if too much waits for the disk, or it takes too long.
            FullError: if the disk does not take it.
        """
        done = threading.Event()
        offered = self.offer(wire, lambda _: done.set())
        if isinstance(offered, Taken):
            return offered
        if not done.wait(timeout_s):
            raise BusyError("the disk takes longer than the batch may wait; send it again")
        return offered.taken()

    def offer(self, wire: bytes, tell: Tell, *, key: BatchKey | None = None) -> Taken | Ticket:
        """Give a batch to be kept, and return without waiting.

        A ticket is told of from the committing thread, which calls `tell` once for all tickets of a commit that came
        with the same `tell`. `key`: that of the batch, where it was read already.

        Raises:
            BatchError: if it is none.
            BusyError: if too much waits for the disk.
        """
        key = key_of(wire) if key is None else key
        identity = f"{key.host}/{key.boot}"
        with self._lock:
            _remember(self.last_seen, key.host, time.time())
            known = self._in_flight.get(identity)
            if known is not None and known.key.seq == key.seq:
                again = Ticket(key, identity, b"", repeated=True, tell=tell)
                known.others.append(again)
                return again
            if key.seq <= self._seqs.get(identity, -1):
                self.counters.repeated += 1
                return Taken(key, repeated=True)
            if known is not None or self._pending_bytes + len(wire) > self.settings.pending_bytes:
                self.counters.refused_busy += 1
                raise BusyError("too much waits for the disk; send it again in a moment")
            ticket = Ticket(key, identity, wire, tell=tell)
            self._in_flight[identity] = ticket
            self._pending.append(ticket)
            self._pending_bytes += len(wire)
            self._arrived.notify()
            return ticket

    def _commit_loop(self) -> None:
        while True:
            with self._lock:
                while not self._pending and not self._stopping.is_set():
                    self._arrived.wait(1.0)
                tickets, self._pending = self._pending, []
                if not tickets and self._stopping.is_set():
                    return
            self._commit(tickets)

    def _commit(self, tickets: list[Ticket]) -> None:
        error = ""
        try:
            error = self._full()
            with self._log_lock:
                if error:
                    raise OSError(28, error)
                if self._log is None:
                    # A number is never used twice, also where making the file failed half-way.
                    self._number += 1
                    self._log = LogFile(self.log_folder, self._number)
                    self._log_since = time.monotonic()
                self._log.append([ticket.wire for ticket in tickets])
                self._waiting[self._log.number] = self._log.size
                # Here, for those who make segments may be busy: what they take at once has to fit into memory.
                if self._log.size >= self.settings.segment_bytes:
                    self._log.close()
                    self._log = None
        except OSError as failure:
            error = error or f"the collector's disk does not take batches: {failure.strerror or failure}"
            self._leave_log()
        with self._lock:
            for ticket in tickets:
                self._pending_bytes -= len(ticket.wire)
                if self._in_flight.get(ticket.identity) is ticket:
                    del self._in_flight[ticket.identity]
                ticket.error = error
                if error:
                    self.counters.refused_full += 1
                else:
                    _remember(self._seqs, ticket.identity, ticket.key.seq)
                    self.counters.batches += 1
                    self.counters.wire_bytes += len(ticket.wire)
                    self.counters.rows += ticket.key.rows
            self.counters.commits += 1
            if error != self.problem:
                LOG.warning("%s", error or "the disk takes batches again")
            self.problem = error
        told: dict[Tell, list[Ticket]] = {}
        for ticket in tickets:
            told.setdefault(ticket.tell, []).append(ticket)
            # Nobody adds to them any more: it is not in flight.
            for other in ticket.others:
                other.error = error
                told.setdefault(other.tell, []).append(other)
        for tell, mine in told.items():
            tell(mine)

    def _leave_log(self) -> None:
        """Go on in another file: who follows this one may have read what was just taken back, and stand behind it."""
        with self._log_lock:
            if self._log is not None and self._log.size:
                self._log.close()
                self._log = None

    @property
    def manifest(self) -> Manifest:
        """The newest version."""
        return self._keeper.manifest

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the log that are not in segments yet."""
        return sum(self._waiting.copy().values())

    @property
    def reserve_bytes(self) -> int:
        """What batches must leave free: without it no segments could be made of them, and nothing could ever go."""
        return min(self.settings.reserve_bytes, shutil.disk_usage(self.root).total // 8)

    def _full(self) -> str:
        """Say that the disk is full but for the reserve; empty: it is not."""
        free = shutil.disk_usage(self.root).free
        # What waits in the log needs about its own size once more, as segments.
        if free - self.waiting_bytes >= self.reserve_bytes:
            return ""
        return f"the collector's disk is full but for its reserve ({free >> 20} MiB are free); the oldest rows go"

    # ---- segments ------------------------------------------------------------------

    def _segment_loop(self) -> None:
        while not self._stopping.wait(0.5):
            self._housekeep()
        if not self.settings.helper:
            # With a helper there may be much to do; what is in the log is safe, and the next start goes on with it.
            self._housekeep(final=True)

    def _housekeep(self, *, final: bool = False) -> None:
        try:
            waiting = self.waiting_bytes
            free = shutil.disk_usage(self.root).free
            press = bool(self.problem) or free - waiting < 2 * self.reserve_bytes
            if self._rotate(final=final or press) or self._unconsumed():
                self.make_segments()
            self.keep_to_limits(press=press)
        except (OSError, MycroftError) as error:
            said = f"{_SEGMENTS}: {error}"
            if said != self.problem:
                LOG.warning("%s", said)
            self.problem = said
            # Room is made even so: old rows go before new ones are refused.
            with contextlib.suppress(OSError):
                self.keep_to_limits(press=True)
        except Exception:
            LOG.exception("making segments failed")
        else:
            with self._lock:
                if self.problem.startswith(_SEGMENTS):
                    self.problem = ""

    def flush(self) -> None:
        """Turn everything that is acknowledged into segments now.

        Raises:
            OSError: if the disk does not take them; the log stays.
        """
        with self._keeping:
            self._rotate(final=True)
            self.make_segments()

    def _rotate(self, *, final: bool) -> bool:
        with self._log_lock:
            log = self._log
            if log is None:
                return False
            old = time.monotonic() - self._log_since >= self.settings.segment_s
            if not (final or old):
                return False
            log.close()
            self._log = None
            return True

    def _unconsumed(self) -> list[int]:
        # Both under the lock: a file that is begun in between is being written, and must not be taken for a whole one.
        with self._log_lock:
            current = self._log.number if self._log is not None else None
            numbers = log_numbers(self.log_folder)
        return [n for n in numbers if n > self.manifest.log_done and n != current]

    def make_segments(self) -> None:
        """Turn every closed file of the log into segments, one version of the manifest each.

        Raises:
            OSError: if the disk does not take them; the log stays.
            MakerError: if they could not be made; the log stays.
        """
        with self._keeping:
            for number in self._unconsumed():
                segments, unreadable, repeated = self._keeper.take_log(number)
                self._waiting.pop(number, None)
                self.counters.segments += segments
                self.counters.unreadable += len(unreadable)
                self.counters.repeated_rows += repeated
                for text in unreadable[:5]:
                    LOG.warning("a batch was left out: %s", text)
            self._keeper.compact()

    def keep_to_limits(self, *, press: bool = False) -> None:
        """Drop what is too old or too much, and delete what nobody can be reading any more.

        Args:
            press: the disk is full: drop the oldest even within the limit, and delete at once.

        Raises:
            OSError: if the manifest cannot be written.
        """
        with self._keeping:
            gone = self._keeper.keep_to_limits(press_bytes=2 * self.reserve_bytes if press else None)
            self.counters.dropped_segments += gone

    def close(self) -> None:
        """Commit what waits, make segments of it, and give the store back."""
        self._stopping.set()
        with self._lock:
            self._arrived.notify_all()
        for thread in self._threads:
            thread.join(30.0)
        with self._log_lock:
            if self._log is not None:
                self._log.close()
                self._log = None
        self._keeper.close()
        os.close(self._lock_fd)


def _remember(known: OrderedDict[str, _Kept], name: str, value: _Kept) -> None:
    """Put something at the end, and forget what was there longest: names are of who sends."""
    known[name] = value
    known.move_to_end(name)
    if len(known) > _MOST_REMEMBERED:
        known.popitem(last=False)
