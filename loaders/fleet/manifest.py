"""The manifest of a fleet's store: which files it has, whose rows they hold, and up to where their writers had come.

    facts/<table>/hour=…/group=…/….parquet       immutable, written before a version names them
    manifest/<version>.json                      whole, made only where there is none of that number
    manifest/HEAD                                a hint where to begin to look for the newest
    trash/<time>-….json                          files that are left out from then on, and are deleted a while later
    incidents/<collector>.json                   what its watch has found, whole, written over at each push

Any number of writers add to one store without a lock: each makes the version after the newest, and whoever is told that
there is one already reads that and tries again. A writer that dies leaves files that no version names.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from mycroft.errors import MycroftError
from mycroft.loaders.fleet.place import Place

KEPT: Final = 64
_MOST_TRIES: Final = 60
_INCIDENTS: Final = "incidents"
_TRASH: Final = "trash"
_ORPHAN_S: Final = 86_400.0
_MOST_ORIGINS: Final = 4096


class FleetStoreError(MycroftError):
    """A store that cannot be read or written: names it and says why."""


class FleetSegment(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable Parquet file. Times are UTC ns of its rows, by the clocks of their hosts."""

    table: str
    path: str
    first_ns: int
    last_ns: int
    rows: int
    size_bytes: int
    made: float
    """When it was written, seconds since the epoch."""
    group: str = ""
    """Of hosts: the unit of work. Empty: of all that its writer has."""
    origin: str = ""
    """Who added it, and what it was called there, as `collector/path`."""


class FleetManifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version.

    `floors`: of each table the time before which rows were left out for their age, so that nobody pushes them again.
    `offsets`: up to where each partition of a stream is in the segments, as `topic/partition`. `seqs`: last batch of
    each `host/boot`, `positions`: position after the last row of each process, with when that was. `merged`: of each
    collector, which of its segments are parts of others now, so that it does not push them again.
    """

    version: int = 0
    schema: int = 1
    segments: tuple[FleetSegment, ...] = ()
    offsets: dict[str, int] = {}
    seqs: dict[str, tuple[int, float]] = {}
    positions: dict[str, tuple[int, float]] = {}
    floors: dict[str, int] = {}
    merged: dict[str, tuple[str, ...]] = {}

    @property
    def origins(self) -> set[str]:
        """Whatever collectors have pushed, as `collector/path`."""
        parts = {f"{name}/{path}" for name, paths in self.merged.items() for path in paths}
        return parts | {segment.origin for segment in self.segments if segment.origin}

    def of(self, table: str, *, since_ns: int = 0, until_ns: int = 1 << 63) -> list[FleetSegment]:
        """Return the segments of a table that may hold rows from `since_ns` on and before `until_ns`."""
        return [s for s in self.segments if s.table == table and s.last_ns >= since_ns and s.first_ns < until_ns]


class Retained(msgspec.Struct, frozen=True):
    """What one call of `FleetStore.retain` did."""

    left_out: tuple[FleetSegment, ...]
    deleted: int
    """Files, of earlier calls or of writers that died."""


class FleetStore:
    """The versions of a store at a place. Any thread and process, at any number of machines."""

    def __init__(self, place: Place, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.place = place
        self._sleep = sleep

    def read(self) -> FleetManifest:
        """Return the newest version; an empty one where there is none yet.

        Raises:
            FleetStoreError: it is damaged.
            PlaceError: the place cannot be read.
        """
        newest: bytes | None = None
        number = self._hint()
        data = self.place.get(_name(number)) if number else None
        if data is None:
            numbers = [_number(name) for name in self.place.names("manifest")]
            number = max((n for n in numbers if n is not None), default=0)
            data = self.place.get(_name(number)) if number else None
        while data is not None:
            newest = data
            number += 1
            data = self.place.get(_name(number))
        if newest is None:
            return FleetManifest()
        try:
            found = msgspec.json.decode(newest, type=FleetManifest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FleetStoreError(
                f"{self.place.url}/{_name(number - 1)}: is no manifest ({error}); without it, the one before counts"
            ) from error
        if found.schema != 1:
            raise FleetStoreError(f"{self.place.url}: written by a release that this one cannot read; use one release")
        return found

    def _hint(self) -> int:
        text = (self.place.get("manifest/HEAD") or b"").strip()
        return int(text) if text.isdigit() and len(text) < 19 else 0

    def change(self, make: Callable[[FleetManifest], FleetManifest | None]) -> FleetManifest:
        """Publish a version made from the newest one; return it.

        Args:
            make: is given the newest version and returns the next, or None: there is nothing to change. Called again
                where another writer was faster.

        Raises:
            FleetStoreError: others were faster again and again, or the newest version is damaged.
            PlaceError: the place does not take it; then it is as before, or has the new version.
        """
        for attempt in range(_MOST_TRIES):
            old = self.read()
            new = make(old)
            if new is None:
                return old
            new = msgspec.structs.replace(new, version=old.version + 1)
            if self.place.create(_name(new.version), msgspec.json.encode(new)) and not self._late(new.version):
                self._point_at(new.version)
                return new
            self._sleep(random.uniform(0, min(2.0, 0.01 * 2 ** min(attempt, 8))))  # noqa: S311 - so that writers part
        raise FleetStoreError(f"{self.place.url}: {_MOST_TRIES} times another writer was faster; are there too many?")

    def _late(self, version: int) -> bool:
        """Say whether a version was made when its number had been used and removed: of a writer that slept for long."""
        numbers = [_number(name) for name in self.place.names("manifest")]
        if max(n for n in (*numbers, version) if n is not None) < version + KEPT:
            return False
        self.place.delete(_name(version))
        return True

    def _point_at(self, version: int) -> None:
        # A hint only: one that is behind, as of a writer that was held up, costs a few more looks.
        self.place.put("manifest/HEAD", f"{version}\n".encode())
        if version > KEPT:
            self.place.delete(_name(version - KEPT))

    def add(self, segments: Iterable[FleetSegment]) -> FleetManifest:
        """Publish segments that lie at the place already; those that are listed are left as they are.

        One of an origin that is there is left out, too: two pushes of one collector may be at work.
        """
        made = tuple(segments)

        def make(old: FleetManifest) -> FleetManifest | None:
            listed = {segment.path for segment in old.segments}
            origins = old.origins
            fresh = tuple(s for s in made if s.path not in listed and s.origin not in origins)
            return msgspec.structs.replace(old, segments=(*old.segments, *fresh)) if fresh else None

        return self.change(make)

    def forget_before(self, before_ns: int, *, tables: Iterable[str] | None = None) -> tuple[FleetSegment, ...]:
        """Leave out the segments whose rows are all older; return them. Their files stay until `delete`."""
        wanted = None if tables is None else set(tables)

        def old(segment: FleetSegment) -> bool:
            return segment.last_ns < before_ns and (wanted is None or segment.table in wanted)

        gone: list[FleetSegment] = []

        def make(manifest: FleetManifest) -> FleetManifest | None:
            gone[:] = [segment for segment in manifest.segments if old(segment)]
            kept = tuple(segment for segment in manifest.segments if not old(segment))
            floors = dict(manifest.floors)
            for table in {segment.table for segment in gone}:
                floors[table] = max(before_ns, floors.get(table, 0))
            return msgspec.structs.replace(manifest, segments=kept, floors=floors) if gone else None

        self.change(make)
        return tuple(gone)

    def orphans(self, *, older_than_s: float, now: float | None = None) -> list[str]:
        """Return files that no version names, of writers that died; those of a writer at work are younger."""
        now = time.time() if now is None else now
        listed = {segment.path for segment in self.read().segments}
        found: list[str] = []
        for name in self.place.names("facts"):
            made = name.rpartition("/")[2].partition("-")[0]
            if name not in listed and made.isdigit() and now - int(made) > older_than_s:
                found.append(name)
        return found

    def old(self, before_ns: int, *, tables: Iterable[str] | None = None) -> tuple[FleetSegment, ...]:
        """Return the segments that `forget_before` would leave out."""
        wanted = None if tables is None else set(tables)
        return tuple(s for s in self.read().segments if s.last_ns < before_ns and (wanted is None or s.table in wanted))

    def retain(
        self, before_ns: int, *, tables: Iterable[str] | None = None, grace_s: float = 3600.0, now: float | None = None
    ) -> Retained:
        """Leave out segments whose rows are all older, and delete files that nobody can be reading any more.

        What a call leaves out is deleted by the first call after `grace_s`: a reader may be at it until then. Deleted
        are also files that no version ever named and that are older than a day, of writers that died.

        Raises:
            FleetStoreError: others were faster again and again, or the newest version is damaged.
            PlaceError: the place does not take it; calling again goes on from there.
        """
        now = time.time() if now is None else now
        # Before they are left out: else one that dies in between leaves files that are deleted under their readers.
        if leaving := self.old(before_ns, tables=tables):
            self.to_trash([segment.path for segment in leaving], now=now)
        gone = self.forget_before(before_ns, tables=tables)
        listed = {segment.path for segment in self.read().segments}
        notes = [(name, self._trash(name)) for name in self.place.names(_TRASH)]
        old = [(name, paths) for name, paths in notes if self._is_older(name, grace_s, now)]
        done = {name for name, _ in old}
        # One may be in an older note, too, of a compactor that died before it left the file out.
        waiting = {path for name, paths in notes if name not in done for path in paths}
        deleted = 0
        for name, paths in old:
            for path in paths:
                # Whoever writes to the place could name anything here.
                if path.startswith("facts/") and path not in listed and path not in waiting:
                    self.place.delete(path)
                    deleted += 1
            self.place.delete(name)
        for path in self.orphans(older_than_s=max(grace_s, _ORPHAN_S), now=now):
            if path not in waiting:
                self.place.delete(path)
                deleted += 1
        deleted += self.place.sweep(older_than_s=max(grace_s, _ORPHAN_S), now=now)
        return Retained(gone, deleted)

    @staticmethod
    def _is_older(name: str, seconds: float, now: float) -> bool:
        made = name.rpartition("/")[2].partition("-")[0]
        return made.isdigit() and now - int(made) >= seconds

    def to_trash(self, paths: Iterable[str], *, now: float) -> str:
        """Note files that are about to be left out of the manifest; return the name of the note.

        `retain` deletes them a grace period later, unless the manifest lists them.

        Raises:
            PlaceError: the place does not take it.
        """
        name = f"{_TRASH}/{int(now)}-{random.getrandbits(48):012x}.json"
        self.place.put(name, msgspec.json.encode(list(paths)))
        return name

    def _trash(self, name: str) -> list[str]:
        try:
            return msgspec.json.decode(self.place.get(name) or b"[]", type=list[str])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FleetStoreError(f"{self.place.url}/{name}: is no list of files ({error}); remove it") from error

    def put_incidents(self, origin: str, data: bytes) -> None:
        """Keep what the watch of one collector found, in place of what it had found before.

        Raises:
            PlaceError: the place does not take it, or the name cannot be one of a file.
        """
        self.place.put(f"{_INCIDENTS}/{origin}.json", data)

    def incidents(self) -> list[tuple[str, bytes]]:
        """Return what the watches have found, with the name of each collector; as it was written, nothing is believed.

        Raises:
            PlaceError: the place cannot be read.
        """
        found: list[tuple[str, bytes]] = []
        for name in self.place.names(_INCIDENTS)[:_MOST_ORIGINS]:
            data = self.place.get(name)
            if data is not None:
                found.append((name.rpartition("/")[2].removesuffix(".json"), data))
        return found


def _name(version: int) -> str:
    return f"manifest/{version:012}.json"


def _number(name: str) -> int | None:
    stem = name.rpartition("/")[2].removesuffix(".json")
    return int(stem) if stem.isdigit() else None
