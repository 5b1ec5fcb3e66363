"""Keeps the segments of a store: publishes what was made of the log, puts small ones together, lets the old ones go.

The only writer of the manifest. What a version no longer lists is deleted after a grace period, when nobody can be
reading it any more; on a full disk at once.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from mycroft.loaders.collector.log import log_path
from mycroft.loaders.collector.maker import Maker, MakerError
from mycroft.loaders.collector.manifest import Manifest, Segment, Trash, read_manifest, write_manifest
from mycroft.loaders.collector.retention import Pin, leaving, pinned
from mycroft.tracer.arrow import pa

LOG: Final = logging.getLogger("mycroft.collector")
COMPACT_AT: Final = 30
_COMPACT_BYTES: Final = 64 << 20
# Put together in memory: 2 M rows are a few hundred MB. A segment of a large fleet is that large as it is.
_COMPACT_ROWS: Final = 2_000_000
# After that no agent tells again what it has told.
NUMBERS_KEPT_S: Final = 7 * 86_400.0
# Each start of an agent and each process has one, and every version of the manifest has all of them.
MOST_NUMBERS: Final = 200_000
_AGE_EVERY_S: Final = 60.0


class Keeper:
    """The segments and the manifest of one store; one thread at a time."""

    def __init__(
        self,
        root: Path,
        maker: Maker,
        *,
        most_bytes: int,
        keep_s: Mapping[str, float],
        grace_s: float,
        pins: Callable[[], Iterable[Pin]],
    ) -> None:
        """Read the manifest; a segment that it does not list was left by a crash and goes.

        Raises:
            OSError: if the store cannot be read or written.
            ManifestError: if the manifest cannot be read.
        """
        self._root = root
        self._folder = root / "manifest"
        self._maker = maker
        self._most_bytes = most_bytes
        self._keep_s = keep_s
        self._grace_s = grace_s
        self._pins = pins
        self.manifest = read_manifest(self._folder)
        self._damaged: set[str] = set()
        self._age_at = 0.0
        """When it is next looked whether anything is too old."""
        listed = {segment.path for segment in self.manifest.segments} | {item.path for item in self.manifest.trash}
        for path in (root / "facts").glob("*/*/*"):
            if str(path.relative_to(root)) not in listed:
                path.unlink(missing_ok=True)

    def take_log(self, number: int) -> tuple[int, list[str], int]:
        """Turn one file of the log into segments and publish them; return segments, what was unreadable, rows twice.

        Raises:
            OSError: if the disk does not take them; the log stays.
            MakerError: if they could not be made.
        """
        made = self._maker.of_log(number)
        now = time.time()
        self._publish(
            segments=[*self.manifest.segments, *made.segments],
            log_done=number,
            seqs=recent_numbers(made.seqs, now=now),
            positions=recent_numbers(made.positions, now=now),
            gone=[f"log/{log_path(self._root / 'log', number).name}"],
        )
        return len(made.segments), made.unreadable, made.repeated_rows

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
        after = time.time() + self._grace_s
        manifest = Manifest(
            version=old.version + 1,
            segments=segments,
            log_done=old.log_done if log_done is None else log_done,
            seqs=old.seqs if seqs is None else seqs,
            positions=old.positions if positions is None else positions,
            trash=[*old.trash, *(Trash(path=path, after=after) for path in gone)],
            dropped=old.dropped if dropped is None else dropped,
        )
        write_manifest(self._folder, manifest)
        self.manifest = manifest

    def compact(self) -> int:
        """Put small segments of one table and hour together, so that readers open few files; return how many went.

        Those that an incident keeps are not put together with others: they would keep them.

        Raises:
            OSError: if the disk does not take it; the small ones stay.
        """
        small_ones = [
            segment
            for segment in self.manifest.segments
            if segment.level == 0 and segment.rows < _COMPACT_ROWS // 2 and segment.path not in self._damaged
        ]
        if len(small_ones) < COMPACT_AT:
            return 0
        groups: dict[tuple[str, str, bool], list[Segment]] = defaultdict(list)
        kept = pinned(small_ones, self._pins(), most_bytes=float("inf"))
        for segment in small_ones:
            groups[segment.table, segment.path.rpartition("/")[0], segment.path in kept].append(segment)
        merged = 0
        for _, group in sorted(groups.items()):
            if len(group) < COMPACT_AT:
                continue
            small = group[: 4 * COMPACT_AT]
            while len(small) > 1 and not _fit(small):
                small = small[:-1]
            if len(small) < 2:
                continue
            try:
                whole = self._maker.of_segments(small)
            except (MakerError, pa.ArrowException) as error:
                # One that was damaged on disk must not be tried for ever, nor keep the others from being put together.
                LOG.warning("segments from %s on stay as they are: %s", small[0].path, error)
                self._damaged.update(segment.path for segment in small)
                continue
            gone = {segment.path for segment in small}
            rest = [segment for segment in self.manifest.segments if segment.path not in gone]
            self._publish(segments=[whole, *rest], gone=sorted(gone))
            merged += len(gone)
        return merged

    def keep_to_limits(self, *, press_bytes: int | None = None) -> int:
        """Drop what is too old or too much, delete what nobody can be reading any more; return how many segments went.

        Args:
            press_bytes: the disk is full and so much should be free: drop even within the limit, and delete at once.

        Raises:
            OSError: if the manifest cannot be written.
        """
        now = time.time()
        press = press_bytes is not None
        self._empty_trash(now, press=press)
        segments = self.manifest.segments
        excess = press_bytes - shutil.disk_usage(self._root).free if press_bytes is not None else 0
        if excess <= 0 and self.manifest.size_bytes <= self._most_bytes and now < self._age_at:
            return 0
        self._age_at = now + _AGE_EVERY_S
        gone = leaving(
            segments,
            now=now,
            most_bytes=self._most_bytes,
            keep_s=self._keep_s,
            pins=self._pins(),
            excess=excess,
        )
        if not gone:
            return 0
        dropped = dict(self.manifest.dropped)
        for segment in gone:
            dropped[segment.table] = dropped.get(segment.table, 0) + segment.rows
        names = {segment.path for segment in gone}
        LOG.info("%d of %d segments go: the oldest, and those beyond the limits", len(gone), len(segments))
        if press:
            # The new version needs room itself; those who read these files keep them open.
            for name in names:
                (self._root / name).unlink(missing_ok=True)
        self._publish(segments=[s for s in segments if s.path not in names], gone=sorted(names), dropped=dropped)
        return len(gone)

    def _empty_trash(self, now: float, *, press: bool) -> None:
        due = [item for item in self.manifest.trash if press or item.after <= now]
        if not due:
            return
        for item in due:
            (self._root / item.path).unlink(missing_ok=True)
        left = {item.path for item in due}
        # The next version says so; until then unlinking again is harmless.
        self.manifest.trash = [item for item in self.manifest.trash if item.path not in left]

    def close(self) -> None:
        """End who makes segments."""
        self._maker.close()


def recent_numbers(numbers: Mapping[str, tuple[int, float]], *, now: float) -> dict[str, tuple[int, float]]:
    """Return the numbers of batches, or positions, that somebody may tell again; the second of each is its time.

    Of more than `MOST_NUMBERS` the newest: whoever speaks is among them, however many names somebody makes up.
    """
    kept = {name: (number, at) for name, (number, at) in numbers.items() if now - at < NUMBERS_KEPT_S}
    if len(kept) > MOST_NUMBERS:
        kept = dict(sorted(kept.items(), key=lambda item: item[1][1])[-MOST_NUMBERS:])
    return kept


def _fit(segments: list[Segment]) -> bool:
    return (
        sum(segment.size_bytes for segment in segments) <= _COMPACT_BYTES
        and sum(segment.rows for segment in segments) <= _COMPACT_ROWS
    )
