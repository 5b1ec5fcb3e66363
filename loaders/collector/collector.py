"""The collector: takes batches, says so once they are on disk, and turns its log into segments.

Any number of threads call `take`; one commits what has come by then with one `fdatasync`. A second makes segments,
puts small ones together, and keeps to the byte limit. Nothing in here knows HTTP.

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
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mycroft.errors import MycroftError
from mycroft.loaders.collector.log import LogFile, cut_torn_tail, log_numbers, log_path, read_log
from mycroft.loaders.collector.manifest import Manifest, Segment, Trash, read_manifest, write_manifest
from mycroft.loaders.collector.segments import RINGS, drain, newest_statuses, read_segments, write_segment
from mycroft.tracer.agent.batch import BatchKey, key_of

LOG: Final = logging.getLogger("mycroft.collector")
_SEGMENTS: Final = "segments cannot be written"
_COMPACT_AT: Final = 30
_COMPACT_BYTES: Final = 64 << 20
_SEQS_KEPT_S: Final = 7 * 86_400.0
# How much older a table counts than it is, seconds, when the oldest has to go: the largest and least telling first.
_COUNTS_OLDER_S: Final = {"state": 3600.0, "foreign": 3600.0, "flow": 1800.0, "gaps": -6 * 3600.0}


class CollectorError(MycroftError):
    """A store that cannot be used: names the folder and says why."""


class BusyError(CollectorError):
    """More waits than may; trying again later helps."""


class FullError(CollectorError):
    """The disk does not take the batch; it was not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorSettings:
    """What a collector is told. Sizes are bytes, times seconds.

    `most_bytes`: of segments; the oldest go first. `pending_bytes`: that may wait for the disk.
    """

    folder: Path
    most_bytes: int = 20 << 30
    segment_s: float = 10.0
    segment_bytes: int = 32 << 20
    pending_bytes: int = 64 << 20
    grace_s: float = 120.0
    keep_s: float = 7 * 86_400.0
    reserve_bytes: int = 256 << 20


@dataclass(slots=True)
class _Ticket:
    key: BatchKey
    identity: str
    wire: bytes
    done: threading.Event = field(default_factory=threading.Event)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch that is safe. `repeated`: it was already."""

    key: BatchKey
    repeated: bool


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

    def __init__(self, settings: CollectorSettings) -> None:
        """Open the store: cut the torn tail of the log, and learn from it what is safe already.

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
            self.manifest = read_manifest(self.manifest_folder)
            self._seqs = {identity: seq for identity, (seq, _) in self.manifest.seqs.items()}
            self.last_seen: dict[str, float] = {}
            self._number = self.manifest.log_done
            self._recover()
            self._log: LogFile | None = None
        except OSError as error:
            raise CollectorError(f"{self.root}: cannot be used for the store ({error.strerror or error})") from error
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._pending: list[_Ticket] = []
        self._pending_bytes = 0
        self._in_flight: dict[str, _Ticket] = {}
        self._log_lock = threading.Lock()
        self._log_since = time.monotonic()
        self._keeping = threading.RLock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def _recover(self) -> None:
        """Learn which batches the log holds; a tail that was never acknowledged goes, as do segments nobody lists."""
        listed = {segment.path for segment in self.manifest.segments} | {item.path for item in self.manifest.trash}
        for path in (self.root / "facts").glob("*/*/*"):
            if str(path.relative_to(self.root)) not in listed:
                path.unlink(missing_ok=True)
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
        key = key_of(wire)
        identity = f"{key.host}/{key.boot}"
        with self._lock:
            self.last_seen[key.host] = time.time()
            ticket = self._in_flight.get(identity)
            if ticket is not None and ticket.key.seq == key.seq:
                repeated = True
            elif key.seq <= self._seqs.get(identity, -1):
                self.counters.repeated += 1
                return Taken(key, repeated=True)
            else:
                if ticket is not None or self._pending_bytes + len(wire) > self.settings.pending_bytes:
                    self.counters.refused_busy += 1
                    raise BusyError("too much waits for the disk; send it again in a moment")
                ticket = _Ticket(key, identity, wire)
                self._in_flight[identity] = ticket
                self._pending.append(ticket)
                self._pending_bytes += len(wire)
                self._arrived.notify()
                repeated = False
        if not ticket.done.wait(timeout_s):
            raise BusyError("the disk takes longer than the batch may wait; send it again")
        if ticket.error:
            self.counters.refused_full += 1
            raise FullError(ticket.error)
        return Taken(key, repeated=repeated)

    def _commit_loop(self) -> None:
        while True:
            with self._lock:
                while not self._pending and not self._stopping.is_set():
                    self._arrived.wait(1.0)
                tickets, self._pending = self._pending, []
                if not tickets and self._stopping.is_set():
                    return
            self._commit(tickets)

    def _commit(self, tickets: list[_Ticket]) -> None:
        error = self._full()
        try:
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
        except OSError as failure:
            error = error or f"the collector's disk does not take batches: {failure.strerror or failure}"
        with self._lock:
            for ticket in tickets:
                self._pending_bytes -= len(ticket.wire)
                if self._in_flight.get(ticket.identity) is ticket:
                    del self._in_flight[ticket.identity]
                ticket.error = error
                if not error:
                    self._seqs[ticket.identity] = ticket.key.seq
                    self.counters.batches += 1
                    self.counters.wire_bytes += len(ticket.wire)
                    self.counters.rows += ticket.key.rows
            self.counters.commits += 1
            if error != self.problem:
                LOG.warning("%s", error or "the disk takes batches again")
            self.problem = error
        for ticket in tickets:
            ticket.done.set()

    @property
    def reserve_bytes(self) -> int:
        """What batches must leave free: without it no segments could be made of them, and nothing could ever go."""
        return min(self.settings.reserve_bytes, shutil.disk_usage(self.root).total // 8)

    def _full(self) -> str:
        """Say that the disk is full but for the reserve; empty: it is not."""
        free = shutil.disk_usage(self.root).free
        # What waits in the log needs about its own size once more, as segments.
        if free - sum(self._waiting.copy().values()) >= self.reserve_bytes:
            return ""
        return f"the collector's disk is full but for its reserve ({free >> 20} MiB are free); the oldest rows go"

    # ---- segments ------------------------------------------------------------------

    def _segment_loop(self) -> None:
        while not self._stopping.wait(0.5):
            self._housekeep()
        self._housekeep(final=True)

    def _housekeep(self, *, final: bool = False) -> None:
        try:
            waiting = sum(self._waiting.copy().values())
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
            if not (final or old or log.size >= self.settings.segment_bytes):
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
        """
        with self._keeping:
            for number in self._unconsumed():
                self._make_of(number)
            self._compact()

    def _make_of(self, number: int) -> None:
        bodies = (body for body, _ in read_log(log_path(self.log_folder, number)))
        found = drain(bodies, seqs=self.manifest.seqs, positions=self.manifest.positions)
        made = [write_segment(self.root, name, table) for name, table in sorted(found.tables.items())]
        now = time.time()
        keep = {i: (s, at) for i, (s, at) in found.seqs.items() if now - at < _SEQS_KEPT_S}
        positions = {k: (p, at) for k, (p, at) in found.positions.items() if now - at < _SEQS_KEPT_S}
        self._publish(
            segments=[*self.manifest.segments, *made],
            log_done=number,
            seqs=keep,
            positions=positions,
            gone=[f"log/{log_path(self.log_folder, number).name}"],
        )
        self._waiting.pop(number, None)
        self.counters.segments += len(made)
        self.counters.unreadable += len(found.unreadable)
        self.counters.repeated_rows += found.repeated_rows
        for text in found.unreadable[:5]:
            LOG.warning("a batch was left out: %s", text)

    def _publish(
        self,
        *,
        segments: list[Segment],
        gone: list[str],
        log_done: int | None = None,
        seqs: dict[str, tuple[int, float]] | None = None,
        positions: dict[str, tuple[int, float]] | None = None,
        dropped: dict[str, int] | None = None,
    ) -> None:
        old = self.manifest
        after = time.time() + self.settings.grace_s
        manifest = Manifest(
            version=old.version + 1,
            segments=segments,
            log_done=old.log_done if log_done is None else log_done,
            seqs=old.seqs if seqs is None else seqs,
            positions=old.positions if positions is None else positions,
            trash=[*old.trash, *(Trash(path=path, after=after) for path in gone)],
            dropped=old.dropped if dropped is None else dropped,
        )
        write_manifest(self.manifest_folder, manifest)
        self.manifest = manifest

    def _compact(self) -> None:
        """Put small segments of one table and hour together, so that readers open few files."""
        groups: dict[tuple[str, str], list[Segment]] = defaultdict(list)
        for segment in self.manifest.segments:
            if segment.level == 0:
                groups[segment.table, segment.path.rpartition("/")[0]].append(segment)
        for (name, _), group in sorted(groups.items()):
            small = group[: 4 * _COMPACT_AT]
            while len(small) > 1 and sum(s.size_bytes for s in small) > _COMPACT_BYTES:
                small = small[:-1]
            if len(group) < _COMPACT_AT or len(small) < 2:
                continue
            rows = read_segments(self.root, small)
            if name == RINGS:
                rows = newest_statuses(rows)
            whole = write_segment(self.root, name, rows, level=1, made=small[0].made)
            merged = {segment.path for segment in small}
            kept = [segment for segment in self.manifest.segments if segment.path not in merged]
            self._publish(segments=[whole, *kept], gone=sorted(merged))

    # ---- limits --------------------------------------------------------------------

    def keep_to_limits(self, *, press: bool = False) -> None:
        """Drop what is too old or too much, and delete what nobody can be reading any more.

        Args:
            press: the disk is full: drop the oldest even within the limit, and delete at once.

        Raises:
            OSError: if the manifest cannot be written.
        """
        with self._keeping:
            self._keep_to_limits(press=press)

    def _keep_to_limits(self, *, press: bool) -> None:
        now = time.time()
        self._empty_trash(now, press=press)
        segments = self.manifest.segments
        order = sorted(segments, key=lambda s: (s.made - _COUNTS_OLDER_S.get(s.table, 0.0), s.path))
        excess = self.manifest.size_bytes - self.settings.most_bytes
        if press:
            excess = max(excess, 2 * self.reserve_bytes - shutil.disk_usage(self.root).free)
        gone: list[Segment] = []
        for segment in order:
            too_old = now - segment.made > self.settings.keep_s
            if excess > 0 or too_old:
                gone.append(segment)
                excess -= segment.size_bytes
        if not gone:
            return
        dropped = dict(self.manifest.dropped)
        for segment in gone:
            dropped[segment.table] = dropped.get(segment.table, 0) + segment.rows
        names = {segment.path for segment in gone}
        LOG.info("%d of %d segments go: the oldest, and those beyond the limits", len(gone), len(segments))
        if press:
            # The new version needs room itself; those who read these files keep them open.
            for name in names:
                (self.root / name).unlink(missing_ok=True)
        self._publish(segments=[s for s in segments if s.path not in names], gone=sorted(names), dropped=dropped)
        self.counters.dropped_segments += len(gone)

    def _empty_trash(self, now: float, *, press: bool) -> None:
        due = [item for item in self.manifest.trash if press or item.after <= now]
        if not due:
            return
        for item in due:
            (self.root / item.path).unlink(missing_ok=True)
        left = {item.path for item in due}
        # The next version says so; until then unlinking again is harmless.
        self.manifest.trash = [item for item in self.manifest.trash if item.path not in left]

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
        os.close(self._lock_fd)
