"""Reading a store of whichever kind: a collector's own folder, or a fleet's at a place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mycroft.loaders.collector.manifest import read_manifest
from mycroft.loaders.collector.peaks import PEAK_NS, Peaks, keys_of, read_peaks
from mycroft.loaders.collector.rollups import SCHEMAS
from mycroft.loaders.collector.segments import ALL_TABLES, table_schema
from mycroft.loaders.fleet.manifest import FleetManifest, FleetSegment, FleetStore
from mycroft.loaders.fleet.pieces import FilesPiece, pieces_of
from mycroft.loaders.fleet.place import PlaceError, open_place
from mycroft.loaders.store import GuardedResult, guarded_files_sql
from mycroft.tracer.arrow import Table, pa

TABLES: Final = tuple(dict.fromkeys((*ALL_TABLES, *SCHEMAS)))
# More files than that are a query over more than was meant; each costs a few ms to open.
MOST_FILES: Final = 20_000


class NoStoreError(PlaceError):
    """A place that can be reached, and where no store lies yet."""


@dataclass(frozen=True, slots=True)
class FleetReader:
    """One version of a store. Later versions do not change it; its files stay for a grace period."""

    url: str
    manifest: FleetManifest
    is_collectors: bool = False
    """It is what one collector has, kept to its limits by that collector."""

    def pieces(self, table: str, *, since_ns: int, until_ns: int) -> list[FilesPiece]:
        """Return the rows of a table in a window as pieces of work; by the bounds of files, nothing is opened.

        Raises:
            PlaceError: the window has too many files.
        """
        return self.pieces_of(self.segments(table, since_ns=since_ns, until_ns=until_ns))

    def segments(self, table: str, *, since_ns: int, until_ns: int) -> list[FleetSegment]:
        """Return the segments of a table that may hold rows of a window.

        Raises:
            PlaceError: they are too many to be asked at once.
        """
        found = self.manifest.of(table, since_ns=since_ns, until_ns=until_ns)
        if len(found) > MOST_FILES:
            raise PlaceError(f"{table}: {len(found):,} files in this window; ask for a shorter one (--last)")
        return found

    def pieces_of(self, segments: Iterable[FleetSegment]) -> list[FilesPiece]:
        """Return segments of one table as pieces of work."""
        return pieces_of(self.url, segments)

    def rows(self, segment: FleetSegment, needed: Sequence[str], *, more: Sequence[str] = ()) -> Iterator[Table]:
        """Yield columns of one segment, some rows at a time, those of text as dictionaries.

        Args:
            segment: of this version.
            needed: names of columns.
            more: of columns that files of older releases may lack: unknown where that is so.

        Raises:
            PlaceError: it is missing or damaged, or lacks a column.
        """
        schema = table_schema(segment.table)
        for batch in open_place(self.url).rows(segment.path, (*needed, *more)):
            there = set(batch.schema.names)
            if lacking := [name for name in needed if name not in there]:
                raise PlaceError(f"{self.url}/{segment.path}: has no column {lacking[0]}; it is no {segment.table}")
            try:
                arrays = [_column(batch, schema.field(name)) for name in (*needed, *more)]
            except pa.ArrowException as error:
                text = str(error).strip()[:300]
                raise PlaceError(f"{self.url}/{segment.path}: is no {segment.table} ({text})") from error
            yield pa.table(arrays, names=[*needed, *more])

    def peaks(self, segment: FleetSegment, column: str, bin_ns: int) -> Peaks | None:
        """Return the greatest of each ten minutes of a column of one segment of `host_minute`.

        See `loaders.collector.peaks`. None: the file has none, or they do not fit into bins of `bin_ns`, and its
        minutes have to be read.

        Raises:
            PlaceError: it is missing or damaged.
        """
        if bin_ns % PEAK_NS:
            return None
        return read_peaks(open_place(self.url).notes(segment.path, keys_of(column)), column)

    def guarded_sql(
        self,
        sql: str,
        tables: Mapping[str, Any],
        *,
        since_ns: int,
        until_ns: int,
        row_limit: int,
        time_limit_s: float,
        memory_limit: str,
    ) -> GuardedResult:
        """Answer a user's SQL over the files of a window, and `tables` in memory beside them.

        Rows of other times may be in it: files are chosen, not rows.

        Raises:
            PlaceError: the window has too many files, or they cannot be reached.
            QueryRefusedError: it is not a single SELECT, or passes a limit.
            StoreError: it is wrong SQL, or a file is damaged.
        """
        place = open_place(self.url)
        relations: dict[str, Any] = dict(tables)
        for name in TABLES:
            segments = self.segments(name, since_ns=since_ns, until_ns=until_ns)
            empty = (SCHEMAS[name] if name in SCHEMAS else table_schema(name)).empty_table()
            relations[name] = place.relation([s.path for s in segments]) if segments else empty
        return guarded_files_sql(
            sql, relations, row_limit=row_limit, time_limit_s=time_limit_s, memory_limit=memory_limit
        )


def _column(batch: Any, field: Any) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    found = batch.column(field.name)
    if pa.types.is_dictionary(found.type) and found.type.value_type == field.type:
        return found
    return found.cast(field.type)


def open_fleet(url: str) -> FleetReader:
    """Return the newest version of a store: of a fleet's at a place, or of a collector's data folder.

    Raises:
        NoStoreError: there is none yet.
        PlaceError: the place cannot be reached.
        FleetStoreError: its manifest is damaged.
        ManifestError: the same of a collector's.
    """
    if "://" not in url:
        for root in (Path(url) / "live" / "store", Path(url)):
            if (root / "log").is_dir():
                return FleetReader(str(root), of_collector(root), is_collectors=True)
    manifest = FleetStore(open_place(url)).read()
    if manifest.version == 0:
        raise NoStoreError(
            f"{url}: no store there. Give the data folder of a collector, or a place that one was pushed to "
            "(`mycroft fleet push`)"
        )
    return FleetReader(open_place(url).url, manifest)


def of_collector(root: Path) -> FleetManifest:
    """Return the manifest of a collector's own store in the form of a fleet's.

    Raises:
        ManifestError: it cannot be read.
    """
    manifest = read_manifest(root / "manifest")
    return FleetManifest(
        version=manifest.version,
        segments=tuple(
            FleetSegment(
                table=s.table,
                path=s.path,
                first_ns=s.first_ns,
                last_ns=s.last_ns,
                rows=s.rows,
                size_bytes=s.size_bytes,
                made=s.made,
            )
            for s in manifest.segments
        ),
    )
