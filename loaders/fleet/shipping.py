"""From a collector's own store to a fleet's: segments that will not change any more are copied and published.

A collector puts thirty small segments of an hour together as they come; what has been put together is final at once,
and what is left of an hour is when the hour is over. A fleet's store thus is minutes behind where a segment comes every
ten seconds, never more than an hour and a quarter, and holds nothing twice.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from mycroft.loaders.collector.manifest import Segment, read_manifest
from mycroft.loaders.fleet.manifest import FleetManifest, FleetSegment, FleetStore

# After the end of its hour a segment waits this long for others to be put together with: a collector looks for them
# every few seconds, and writes none into an hour that is over.
SETTLED_S: Final = 900.0
_HOUR_S: Final = 3_600.0
# Of one table and hour; a collector puts so many together (`loaders.collector.keeper`).
_COMPACT_AT: Final = 30
# Versions are published after this many files, so that a long copy that is cut off need not begin again.
_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Shipped:
    """What one call has copied."""

    segments: int
    size_bytes: int
    waiting: int
    """Segments that are not final yet."""


def final_segments(segments: Iterable[Segment], *, now: float) -> list[Segment]:
    """Return those that their collector will not put together with others any more."""
    known = list(segments)
    small = Counter((s.table, _hour(s)) for s in known if s.level == 0)
    return [
        s for s in known if s.level > 0 or (now > _hour_ends(s) + SETTLED_S and small[s.table, _hour(s)] < _COMPACT_AT)
    ]


def _hour_ends(segment: Segment) -> float:
    # Its folder is of the hour in which it was written, by the clock of the collector.
    return (segment.made // _HOUR_S + 1) * _HOUR_S


def _hour(segment: Segment) -> str:
    return segment.path.rpartition("/")[0]


def ship(root: Path, store: FleetStore, *, origin: str, now: float | None = None, everything: bool = False) -> Shipped:
    """Copy what is final and not there yet, and publish it.

    Args:
        root: of the collector's store.
        store: of the fleet.
        origin: name of the collector; two must not have the same.
        now: seconds since the epoch.
        everything: the collector is at rest for good: what it has is final.

    Raises:
        MycroftError: a store cannot be read or written. What was published before stays.
    """
    now = time.time() if now is None else now
    segments = read_manifest(root / "manifest").segments
    ready = list(segments) if everything else final_segments(segments, now=now)
    fleet = store.read()
    there = fleet.origins
    todo = [s for s in ready if f"{origin}/{s.path}" not in there and s.last_ns >= fleet.floors.get(s.table, 0)]
    size = 0
    for first in range(0, len(todo), _AT_ONCE):
        added = [_copied(root, store, segment, origin) for segment in todo[first : first + _AT_ONCE]]
        size += sum(segment.size_bytes for segment in added)
        store.add(added)
    _forget_merged(store, origin, {segment.path for segment in segments})
    return Shipped(len(todo), size, len(segments) - len(ready))


def _forget_merged(store: FleetStore, origin: str, has: set[str]) -> None:
    """Take out of the manifest what became a part of others there and what the collector itself has no more."""

    def make(old: FleetManifest) -> FleetManifest | None:
        known = old.merged.get(origin, ())
        kept = tuple(path for path in known if path in has)
        if len(kept) == len(known):
            return None
        return msgspec.structs.replace(old, merged=old.merged | {origin: kept})

    store.change(make)


def _copied(root: Path, store: FleetStore, segment: Segment, origin: str) -> FleetSegment:
    # Another name at every try, with its time: a file that an earlier one has left is told by it, and deleted.
    hour = segment.path.split("/")[-2]
    name = f"facts/{segment.table}/{hour}/group={origin}/{int(time.time())}-{uuid.uuid4().hex}.parquet"
    store.place.put(name, root / segment.path)
    return FleetSegment(
        table=segment.table,
        path=name,
        first_ns=segment.first_ns,
        last_ns=segment.last_ns,
        rows=segment.rows,
        size_bytes=segment.size_bytes,
        made=segment.made,
        group=origin,
        origin=f"{origin}/{segment.path}",
    )
