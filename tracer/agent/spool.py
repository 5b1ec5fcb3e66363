"""What waits for the collector: one file per batch, oldest first, bounded by bytes.

Files survive the agent; a name tells all that has to be said of a batch that is dropped. Two threads use it: one puts,
one takes. A batch that is being sent is never dropped.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mycroft.tracer.agent.batch import BatchKey, Gap

_SUFFIX: Final = ".batch"
# A name is `<made_ns>-<boot>-<seq>-<rows>-<lost batches>-<lost rows>.batch`. What the batch says is lost is in its
# name, for that news must not be lost with it.
_PARTS: Final = 6


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size: int
    made_ns: int
    rows: int
    lost_batches: int = 0
    lost_rows: int = 0

    @property
    def boot(self) -> str:
        return self.path.name.split("-")[1]

    @property
    def seq(self) -> int:
        return int(self.path.name.split("-")[2])


class Spool:
    """The waiting batches of one agent, in `folder`."""

    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        """Take over what an earlier agent left there.

        Raises:
            OSError: if the folder cannot be made or read.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._most = most_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self._sending: str | None = None
        self._dropped_batches = 0
        self._dropped_rows = 0
        self._dropped_since = 0
        self._dropped_until = 0
        for path in folder.glob("*.part"):
            path.unlink(missing_ok=True)
        for entry in _in_order(entry for path in folder.iterdir() if (entry := _entry(path)) is not None):
            self._entries[entry.path.name] = entry
            self._bytes += entry.size

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Bytes that wait."""
        with self._lock:
            return self._bytes

    def put(self, key: BatchKey, wire: bytes, *, lost_batches: int = 0, lost_rows: int = 0) -> None:
        """Add a batch; the oldest go where there is no room. `lost_…`: what the gaps in it tell of.

        Raises:
            OSError: if the disk does not take it; then nothing was added.
        """
        name = f"{key.made_ns:020}-{key.boot}-{key.seq:012}-{key.rows}-{lost_batches}-{lost_rows}{_SUFFIX}"
        path = self.folder / name
        part = path.with_suffix(".part")
        with self._lock:
            self._make_room(len(wire))
        try:
            part.write_bytes(wire)
            part.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        with self._lock:
            self._entries[name] = _Entry(path, len(wire), key.made_ns, key.rows, lost_batches, lost_rows)
            self._bytes += len(wire)

    def _make_room(self, size: int) -> None:
        for name in list(self._entries):
            if self._bytes + size <= self._most:
                return
            if name != self._sending:
                self._drop(name)

    def _drop(self, name: str) -> None:
        entry = self._forget(name)
        self._dropped_batches += 1 + entry.lost_batches
        self._dropped_rows += entry.rows + entry.lost_rows
        self._dropped_since = min(self._dropped_since or entry.made_ns, entry.made_ns)
        self._dropped_until = max(self._dropped_until, entry.made_ns)

    def _forget(self, name: str) -> _Entry:
        entry = self._entries.pop(name)
        self._bytes -= entry.size
        with contextlib.suppress(OSError):
            entry.path.unlink(missing_ok=True)
        return entry

    def gap(self) -> Gap | None:
        """Return what was dropped since the last call; None: nothing."""
        with self._lock:
            if not self._dropped_batches:
                return None
            found = Gap(
                why="spool full",
                since_ns=self._dropped_since,
                until_ns=self._dropped_until,
                rows=self._dropped_rows,
                batches=self._dropped_batches,
            )
            self._dropped_batches = self._dropped_rows = self._dropped_since = self._dropped_until = 0
            return found

    def owe(self, gap: Gap) -> None:
        """Count again what could not be told: the batch that was to say it was not kept."""
        with self._lock:
            self._dropped_batches += gap.batches
            self._dropped_rows += gap.rows
            self._dropped_since = min(self._dropped_since or gap.since_ns, gap.since_ns)
            self._dropped_until = max(self._dropped_until, gap.until_ns)

    def take(self) -> tuple[str, bytes] | None:
        """Lend the oldest batch for sending, with its name; None: nothing waits. Ends with `sent` or `keep`."""
        while True:
            with self._lock:
                if not self._entries:
                    return None
                name, entry = next(iter(self._entries.items()))
                self._sending = name
            try:
                return name, entry.path.read_bytes()
            except OSError:
                # It was removed from outside, or the disk is broken: the rest goes on.
                with self._lock:
                    self._sending = None
                    if name in self._entries:
                        self._drop(name)

    def sent(self, name: str) -> None:
        """Forget a batch that the collector has."""
        with self._lock:
            self._sending = None
            if name in self._entries:
                self._forget(name)

    def refused(self, name: str) -> None:
        """Drop a batch that the collector will never take; it counts as lost."""
        with self._lock:
            self._sending = None
            if name in self._entries:
                self._drop(name)

    def keep(self) -> None:
        """Leave the lent batch for a later try."""
        with self._lock:
            self._sending = None


def _in_order(entries: Iterable[_Entry]) -> list[_Entry]:
    """Return batches in the order in which they were made: those of one agent by number, for its clock may be set back.

    A collector takes a lower number that comes after a higher one for a batch that it has.
    """
    found = list(entries)
    began: dict[str, int] = {}
    for entry in found:
        began[entry.boot] = min(entry.made_ns, began.get(entry.boot, entry.made_ns))
    return sorted(found, key=lambda entry: (began[entry.boot], entry.boot, entry.seq))


def _entry(path: Path) -> _Entry | None:
    parts = path.name.removesuffix(_SUFFIX).split("-")
    numbers = [parts[0], *parts[2:]]
    if path.suffix != _SUFFIX or len(parts) != _PARTS or not all(text.isdigit() for text in numbers):
        return None
    try:
        size = path.stat().st_size
    except OSError:
        return None
    made_ns, _, *counts = (int(text) for text in numbers)
    return _Entry(path, size, made_ns, *counts)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a small file in one step.

    Raises:
        OSError: if the disk does not take it; the old content stays.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
