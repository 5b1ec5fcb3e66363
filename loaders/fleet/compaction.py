"""Small segments of a fleet's store put together, so that the manifest stays short and readers open few files.

What is put together is written beside its parts and published in one version in their place; the parts stay for whoever
reads an older version, until `FleetStore.retain` deletes them. Any number of compactors and writers may be at work: one
whose parts another has put together meanwhile publishes nothing. One that dies leaves the old version or the new one.
"""

from __future__ import annotations

import logging
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from mycroft.loaders.collector.segments import put_together, table_schema, write_segment
from mycroft.loaders.fleet.manifest import FleetManifest, FleetSegment, FleetStore
from mycroft.loaders.fleet.place import Place, PlaceError
from mycroft.tracer.arrow import Table, pa, pq

LOG: Final = logging.getLogger("mycroft.fleet")
AT_LEAST: Final = 8
# One of this size is large enough: reading it takes longer than opening it.
_SMALL_BYTES: Final = 16 << 20
_MOST_BYTES: Final = 64 << 20
# Of one file, unpacked: what is far larger than its rows can be would take all memory.
_MOST_PLAIN: Final = 512 << 20
# In memory at once: a row of `state` takes 150 bytes, and sorting needs them twice.
_MOST_ROWS: Final = 2_000_000


class _DamagedError(PlaceError):
    """A segment that is left as it is: says why."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What one call has put together."""

    parts: int
    """Segments that are in others now."""
    made: int
    overtaken: int
    """Sets of parts that another compactor, or retention, was faster with."""
    problems: tuple[str, ...]
    """Segments that cannot be put together, and why; they stay as they are."""


def parts_of(manifest: FleetManifest, *, at_least: int = AT_LEAST) -> list[tuple[FleetSegment, ...]]:
    """Return what should become one segment each: small ones of one table, group of hosts and hour."""
    folders: dict[tuple[str, str, str], list[FleetSegment]] = defaultdict(list)
    for segment in manifest.segments:
        if segment.size_bytes < _SMALL_BYTES and segment.rows <= _MOST_ROWS:
            folders[segment.table, segment.group, segment.path.rpartition("/")[0]].append(segment)
    found: list[tuple[FleetSegment, ...]] = []
    for _, small in sorted(folders.items()):
        if len(small) >= max(2, at_least):
            found += [some for some in _portions(small) if len(some) > 1]
    return found


def _portions(small: Iterable[FleetSegment]) -> list[tuple[FleetSegment, ...]]:
    found: list[tuple[FleetSegment, ...]] = []
    some: list[FleetSegment] = []
    size = rows = 0
    for segment in sorted(small, key=lambda s: (s.first_ns, s.path)):
        if some and (size + segment.size_bytes > _MOST_BYTES or rows + segment.rows > _MOST_ROWS):
            found.append(tuple(some))
            some, size, rows = [], 0, 0
        some.append(segment)
        size += segment.size_bytes
        rows += segment.rows
    return [*found, tuple(some)]


def compact(store: FleetStore, *, at_least: int = AT_LEAST, now: float | None = None) -> Compacted:
    """Put small segments together.

    Args:
        store: of a fleet.
        at_least: segments of a table, a group of hosts and an hour; fewer are left alone.
        now: seconds since the epoch.

    Raises:
        FleetStoreError: others were faster again and again, or the newest version is damaged.
        PlaceError: the place does not give or take files. What was published before stays; calling again goes on.
    """
    parts = made = overtaken = 0
    problems: list[str] = []
    for some in parts_of(store.read(), at_least=at_least):
        try:
            is_published = _compact(store, some, now=time.time() if now is None else now)
        except _DamagedError as error:
            LOG.warning("%s", error)
            problems.append(str(error))
            continue
        if is_published:
            parts += len(some)
            made += 1
        else:
            overtaken += 1
    return Compacted(parts, made, overtaken, tuple(problems))


def _compact(store: FleetStore, some: tuple[FleetSegment, ...], *, now: float) -> bool:
    """Put some together and publish it; say whether that came about."""
    first = some[0]
    rows = put_together(first.table, pa.concat_tables([_rows(store.place, segment) for segment in some]))
    with tempfile.TemporaryDirectory(prefix="mycroft-compact-") as folder:
        written = write_segment(Path(folder), first.table, rows, level=1, made=min(s.made for s in some))
        del rows
        # By the time in its name `orphans` knows how long ago it was written.
        name = f"{first.path.rpartition('/')[0]}/{int(now)}-c-{uuid.uuid4().hex}.parquet"
        store.place.put(name, Path(folder) / written.path)
    whole = FleetSegment(
        table=first.table,
        path=name,
        first_ns=min(s.first_ns for s in some),
        last_ns=max(s.last_ns for s in some),
        rows=written.rows,
        size_bytes=written.size_bytes,
        made=written.made,
        group=first.group,
    )
    gone = {segment.path for segment in some}

    def make(old: FleetManifest) -> FleetManifest | None:
        if not gone <= {segment.path for segment in old.segments}:
            return None
        rest = tuple(segment for segment in old.segments if segment.path not in gone)
        return msgspec.structs.replace(old, segments=(*rest, whole), merged=old.merged | _merged(old, some))

    # Before the version that leaves them out: else one that dies in between leaves files that nobody deletes in time.
    trash = store.to_trash(sorted(gone), now=now)
    published = store.change(make)
    if name in {segment.path for segment in published.segments}:
        return True
    store.place.delete(name)
    store.place.delete(trash)
    return False


def _merged(old: FleetManifest, some: Iterable[FleetSegment]) -> dict[str, tuple[str, ...]]:
    """Return, by collector, what it pushed and what is in others now: it must not push it again."""
    found: dict[str, tuple[str, ...]] = {}
    for segment in some:
        if segment.group and segment.origin.startswith(f"{segment.group}/"):
            known = found.get(segment.group, old.merged.get(segment.group, ()))
            found[segment.group] = (*known, segment.origin.removeprefix(f"{segment.group}/"))
    return found


def _rows(place: Place, segment: FleetSegment) -> Table:
    where = f"{place.url}/{segment.path}"
    data = place.get(segment.path)
    if data is None:
        raise _DamagedError(f"{where}: the manifest names it and it is not there")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if file.metadata.num_rows != segment.rows:
            raise _DamagedError(
                f"{where}: has {file.metadata.num_rows:,} rows where the manifest says {segment.rows:,}"
            )
        plain = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
        if plain > _MOST_PLAIN:
            raise _DamagedError(f"{where}: has {plain >> 20:,} MiB unpacked, more than {_MOST_PLAIN >> 20}")
        return _as_declared(file.read(use_threads=False), table_schema(segment.table), where)
    except (pa.ArrowException, OSError, KeyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise _DamagedError(f"{where}: cannot be read ({first})") from error


def _as_declared(table: Table, schema: Any, where: str) -> Table:
    """Return the columns that this release knows; what an older one did not write is unknown."""
    more = [name for name in table.schema.names if name not in schema.names]
    if more:
        # It would be lost.
        raise _DamagedError(f"{where}: has a column that this release does not know ({more[0][:80]})")
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
