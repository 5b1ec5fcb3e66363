"""Segments: what batches hold, as immutable Parquet files by kind of record and hour; made from the log, never edited.

Rows carry `process`, the name of their process for ever, and are sorted by it and their position. A row whose position
is below what the manifest has of its process was told before and is left out: agents tell at least once.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from mycroft.loaders.collector.log import sync_folder
from mycroft.loaders.collector.manifest import Segment
from mycroft.tracer.agent.batch import Batch, BatchError, Gap, RingStatus, decode, schema_of
from mycroft.tracer.arrow import Table, pa, pc, pq
from mycroft.tracer.trace import TABLES

RINGS: Final = "rings"
GAPS: Final = "gaps"
ALL_TABLES: Final = (*TABLES, RINGS, GAPS)
TIME_OF: Final = {
    "state": "ts",
    "flow": "end_ts",
    "op": "enq_ts",
    "heartbeat": "ts",
    "gap": "ts",
    "foreign": "ts",
    RINGS: "ts",
    GAPS: "ts",
}
_RINGS_SCHEMA: Final = pa.schema(
    [("process", pa.string()), ("ts", pa.timestamp("ns")), ("host", pa.string()), ("status", pa.binary())]
)
_GAPS_SCHEMA: Final = pa.schema(
    [
        ("ts", pa.timestamp("ns")),
        ("host", pa.string()),
        ("process", pa.string()),
        ("why", pa.string()),
        ("since", pa.timestamp("ns")),
        ("until", pa.timestamp("ns")),
        ("rows", pa.int64()),
        ("batches", pa.int64()),
    ]
)


@dataclass
class Drained:
    """What a file of the log holds: rows by table, and what could not be read."""

    tables: dict[str, Table]
    seqs: dict[str, tuple[int, float]]
    positions: dict[str, tuple[int, float]]
    unreadable: list[str] = field(default_factory=lambda: list[str]())
    repeated_rows: int = 0
    batches: int = 0


def table_schema(name: str) -> Any:
    """Return the schema of a table of the segments."""
    if name == RINGS:
        return _RINGS_SCHEMA
    if name == GAPS:
        return _GAPS_SCHEMA
    columns = [column for column in schema_of(name) if column.name != "ring"]
    return pa.schema([pa.field("process", pa.string()), *columns])


def new_rows(batch: Batch, positions: Mapping[str, int]) -> tuple[dict[str, Table], int]:
    """Return the rows of a batch that are new, by kind with `process` for `ring`, and how many were not."""
    keys = pa.array([ring.key for ring in batch.rings], pa.string())
    floors = pa.array([positions.get(ring.key, 0) for ring in batch.rings], pa.uint64())
    tables: dict[str, Table] = {}
    repeated = 0
    for kind, table in batch.tables.items():
        ring = table.column("ring").combine_chunks()
        fresh = table.filter(pc.greater_equal(table.column("position"), pc.take(floors, ring)))
        repeated += table.num_rows - fresh.num_rows
        if fresh.num_rows:
            names = pc.take(keys, fresh.column("ring").combine_chunks())
            columns = [fresh.column(name) for name in fresh.schema.names if name != "ring"]
            tables[kind] = pa.table([names, *columns], schema=table_schema(kind))
    return tables, repeated


def drain(
    bodies: Iterable[bytes], *, seqs: Mapping[str, tuple[int, float]], positions: Mapping[str, tuple[int, float]]
) -> Drained:
    """Decode batches in order; those and rows that were told before are left out."""
    found = Drained({}, dict(seqs), dict(positions))
    parts: dict[str, list[Table]] = {}
    statuses: dict[str, tuple[int, str, RingStatus]] = {}
    gaps: list[tuple[int, str, Gap]] = []
    now = time.time()
    floors = {key: position for key, (position, _) in positions.items()}
    for body in bodies:
        try:
            batch = decode(body)
        except BatchError as error:
            found.unreadable.append(str(error))
            continue
        identity = f"{batch.key.host}/{batch.key.boot}"
        if batch.key.seq <= found.seqs.get(identity, (-1, 0.0))[0]:
            continue
        found.seqs[identity] = (batch.key.seq, now)
        found.batches += 1
        tables, repeated = new_rows(batch, floors)
        found.repeated_rows += repeated
        for kind, table in tables.items():
            parts.setdefault(kind, []).append(table)
        for ring in batch.rings:
            statuses[ring.key] = (batch.key.made_ns, batch.key.host, ring)
            floors[ring.key] = max(floors.get(ring.key, 0), ring.next)
            found.positions[ring.key] = (floors[ring.key], now)
        gaps += [(batch.key.made_ns, batch.key.host, gap) for gap in batch.gaps]
    for kind, tables_of_kind in parts.items():
        found.tables[kind] = pa.concat_tables(tables_of_kind)
    if statuses:
        found.tables[RINGS] = pa.Table.from_pylist(
            [
                {"process": key, "ts": made, "host": host, "status": msgspec.json.encode(ring)}
                for key, (made, host, ring) in statuses.items()
            ],
            schema=_RINGS_SCHEMA,
        )
    if gaps:
        found.tables[GAPS] = pa.Table.from_pylist([_gap_row(*gap) for gap in gaps], schema=_GAPS_SCHEMA)
    return found


def _gap_row(made_ns: int, host: str, gap: Gap) -> dict[str, Any]:
    return {
        "ts": made_ns,
        "host": host,
        "process": gap.ring or None,
        "why": gap.why,
        "since": gap.since_ns or None,
        "until": gap.until_ns or None,
        "rows": gap.rows,
        "batches": gap.batches,
    }


def write_segment(root: Path, name: str, table: Table, *, level: int = 0, made: float | None = None) -> Segment:
    """Write one segment; it is on disk when this returns, and exists for nobody until a manifest lists it.

    `made`: time of writing of the oldest segment that it is put together from; None: now. Its folder is of that hour:
    the clock of a host may be off by years.

    Raises:
        OSError: if the disk does not take it; nothing is left then.
    """
    keys = [(key, "ascending") for key in ("process", "position", "ts") if key in table.schema.names]
    table = table.sort_by(keys).combine_chunks()
    span = pc.min_max(table.column(TIME_OF[name]).cast(pa.int64())).as_py()
    first, last = int(span["min"] or 0), int(span["max"] or 0)
    made = time.time() if made is None else made
    hour = time.strftime("%Y%m%d%H", time.gmtime(made))
    folder = root / "facts" / name / f"hour={hour}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{'c' if level else 'seg'}-{max(first, 0)}-{uuid.uuid4().hex[:12]}.parquet"
    part = path.with_suffix(".tmp")
    try:
        with part.open("wb") as sink:
            pq.write_table(table, sink, compression="zstd", compression_level=3, row_group_size=131_072)
            sink.flush()
            _sync(sink.fileno())
        part.replace(path)
        sync_folder(folder)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return Segment(
        table=name,
        path=str(path.relative_to(root)),
        first_ns=first,
        last_ns=last,
        rows=table.num_rows,
        size_bytes=path.stat().st_size,
        made=made,
        level=level,
    )


def _sync(descriptor: int) -> None:
    import os

    os.fsync(descriptor)


def newest_statuses(rows: Table) -> Table:
    """Return the last status of each process: those before it are only of use until then."""
    newest = rows.append_column("row", pa.array(range(rows.num_rows), pa.int64())).sort_by("ts")
    keep = newest.group_by("process", use_threads=False).aggregate([("row", "last")]).column("row_last")
    return rows.take(keep)


def read_segments(root: Path, segments: Sequence[Segment]) -> Table:
    """Return the rows of segments of one table, in the order of the list.

    Raises:
        OSError: if one cannot be read.
        pa.ArrowException: if one is damaged.
    """
    schema = table_schema(segments[0].table)
    return pa.concat_tables(
        [pq.read_table(root / segment.path, partitioning=None).cast(schema) for segment in segments]
    )
