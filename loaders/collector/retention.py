"""What a store keeps and for how long: by table, by bytes, and the windows of incidents for longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mycroft.loaders.collector.manifest import Segment

DAY_S: Final = 86_400.0
# Raw rows are the bulk and are read for a day; operations tell of a week; sums of minutes are small and tell of a year.
KEEP_S: Final[Mapping[str, float]] = {
    "state": DAY_S,
    "foreign": DAY_S,
    "flow": DAY_S,
    "heartbeat": DAY_S,
    "summary": DAY_S,
    "gap": 7 * DAY_S,
    "op": 7 * DAY_S,
    "rings": 30 * DAY_S,
    "facts": 30 * DAY_S,
    "gaps": 365 * DAY_S,
    "host_minute": 365 * DAY_S,
    "op_minute": 365 * DAY_S,
}
# How much older a table counts than it is, seconds, when the oldest has to go: the largest and least telling first.
_COUNTS_OLDER_S: Final = {"state": 3600.0, "foreign": 3600.0, "flow": 1800.0}
# Small and kept for long: they go after all rows, as long as they do not outgrow them.
_SUMS: Final = ("gaps", "facts", "host_minute", "op_minute")
_SUMS_SHARE: Final = 0.25
_PINNED_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A time that an incident rests on, UTC ns; its rows stay as long as the incident is known."""

    name: str
    since_ns: int
    until_ns: int


def pinned(segments: Sequence[Segment], pins: Iterable[Pin], *, most_bytes: float) -> set[str]:
    """Return the paths of what incidents keep; the newest first, as many as have `most_bytes` together.

    One that would keep more than is left keeps nothing, and takes nothing from the others.
    """
    # As columns: a store has tens of thousands of segments, and may have a thousand incidents.
    firsts = np.array([segment.first_ns for segment in segments], dtype=np.int64)
    lasts = np.array([segment.last_ns for segment in segments], dtype=np.int64)
    sizes = np.array([segment.size_bytes for segment in segments], dtype=np.int64)
    kept = np.zeros(len(segments), dtype=np.bool_)
    size = 0
    for pin in sorted(pins, key=lambda pin: (-pin.until_ns, pin.name)):
        mine = (firsts <= pin.until_ns) & (lasts >= pin.since_ns) & ~kept
        more = int(sizes[mine].sum())
        if size + more <= most_bytes:
            size += more
            kept |= mine
    return {segments[number].path for number in np.flatnonzero(kept).tolist()}


def leaving(
    segments: Sequence[Segment],
    *,
    now: float,
    most_bytes: int,
    keep_s: Mapping[str, float],
    pins: Iterable[Pin] = (),
    excess: int = 0,
) -> list[Segment]:
    """Return the segments that have to go: those that are too old, and the oldest until the rest is small enough.

    Args:
        segments: all that there are.
        now: seconds since the epoch.
        most_bytes: of all segments; a quarter of it may be kept by incidents.
        keep_s: seconds by table; what it lacks is kept for ever.
        pins: times that incidents rest on; their rows go last, and only where the disk is full.
        excess: bytes that have to go even within the limit, as on a full disk.
    """
    kept = pinned(segments, pins, most_bytes=_PINNED_SHARE * most_bytes)
    over = max(excess, sum(segment.size_bytes for segment in segments) - most_bytes)
    sums = sum(segment.size_bytes for segment in segments if segment.table in _SUMS)
    late = _SUMS if sums <= _SUMS_SHARE * most_bytes else ()
    order = sorted(
        segments,
        key=lambda s: (s.path in kept, s.table in late, s.made - _COUNTS_OLDER_S.get(s.table, 0.0), s.path),
    )
    gone: list[Segment] = []
    for segment in order:
        too_old = segment.path not in kept and now - segment.made > keep_s.get(segment.table, float("inf"))
        if over > 0 or too_old:
            gone.append(segment)
            over -= segment.size_bytes
    return gone
