"""Traces as files that any tool reads: Parquet, Arrow IPC or JSON lines.

One wide table for all kinds of records and all processes: `kind` says what a row is and `trace` whose it is;
columns that a kind does not have are NULL (absent in JSON). docs/record-format.md lists the columns.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from mycroft.tracer import _core
from mycroft.tracer.arrow import Schema, Table, ipc, pa, pc, pq
from mycroft.tracer.names import CODED, FLAGS
from mycroft.tracer.trace import TABLES, Communicator, Process, ProcessState, Trace

FORMATS: Final = ("parquet", "arrow", "jsonl")
MARK: Final = b"mycroft.trace"
EXPORT_VERSION: Final = 1

# Names inside the wide table of what would clash: both dimensions have a `rank`, a `hash` and a `name`.
_PROCESS_NAMES: Final = {field.name: field.name for field in fields(Process)}
_COMM_NAMES: Final = {
    field.name: f"comm_{field.name}" if field.name in ("hash", "name", "rank", "size", "nodes") else field.name
    for field in fields(Communicator)
}
_ARROW_OF: Final = {"C": pa.uint8(), "S": pa.uint16(), "I": pa.uint32(), "L": pa.uint64(), "l": pa.int64()}
_MOST_LINE: Final = 1 << 20


class ExportError(ValueError):
    """An exported trace that cannot be read; the message names the file and what to do."""


def plain_type(format_: str) -> Any:
    """Return the Arrow type of a decoded column, by its format of the C interface."""
    return pa.timestamp("ns") if format_.startswith("ts") else _ARROW_OF[format_]


def _column_type(name: str, format_: str) -> tuple[str, Any]:
    if name in CODED:
        return CODED[name][0], pa.dictionary(pa.uint8(), pa.string())
    if name in FLAGS:
        return name, pa.bool_()
    return name, plain_type(format_)


def record_schema(kind: str) -> Schema:
    """Return the schema of the named records of one kind, as `Trace.tables` has them."""
    return pa.schema([pa.field(*_column_type(name, fmt)) for name, fmt, _ in _core.batch_columns()[kind]])


def export_schema() -> Schema:
    """Return the schema of the wide table; texts are dictionaries."""
    found: dict[str, Any] = {"kind": pa.dictionary(pa.uint8(), pa.string()), "trace": pa.uint32()}
    for kind in TABLES:
        for field in record_schema(kind):
            found.setdefault(field.name, field.type)
    for dimension, names in ((Process, _PROCESS_NAMES), (Communicator, _COMM_NAMES)):
        for field in fields(dimension):
            text = field.type in ("str", "Text")
            found.setdefault(names[field.name], pa.string() if text else pa.uint64())
    found |= {"closed": pa.bool_(), "last_tick_ns": pa.uint64(), "interval_ms": pa.uint32()}
    found |= {"state_exists": pa.bool_(), "state_letter": pa.string(), "unheard": pa.bool_()}
    return pa.schema(list(found.items()), metadata={MARK: str(EXPORT_VERSION).encode()})


def _dimension_rows(index: int, trace: Trace) -> list[dict[str, Any]]:
    process = {_PROCESS_NAMES[key]: value for key, value in asdict(trace.process).items()}
    extra: dict[str, Any] = {
        "closed": trace.closed,
        "last_tick_ns": trace.last_tick_ns,
        "interval_ms": trace.interval_ms,
    }
    if trace.state is not None:
        extra |= {"state_exists": trace.state.exists, "state_letter": trace.state.letter}
    if trace.unheard:
        extra["unheard"] = True
    rows: list[dict[str, Any]] = [{"kind": "process", "trace": index, **process, **extra}]
    for comm in trace.communicators:
        named = {_COMM_NAMES[key]: value for key, value in asdict(comm).items()}
        rows.append({"kind": "communicator", "trace": index, **named})
    return rows


def wide_table(traces: Sequence[Trace]) -> Table:
    """Return all traces as one table; process and communicator rows come before the records of each."""
    schema = export_schema()
    parts: list[Table] = []
    for index, trace in enumerate(traces):
        parts.append(pa.Table.from_pylist(_dimension_rows(index, trace), schema=schema))
        for kind, table in trace.tables.items():
            if table.num_rows == 0:
                continue
            columns: list[object] = []
            for field in schema:
                if field.name == "kind":
                    codes = pa.repeat(pa.scalar(0, pa.uint8()), table.num_rows)
                    columns.append(pa.DictionaryArray.from_arrays(codes, pa.array([kind])))
                elif field.name == "trace":
                    columns.append(pa.repeat(pa.scalar(index, pa.uint32()), table.num_rows))
                elif field.name in table.schema.names:
                    columns.append(table.column(field.name).cast(field.type))
                else:
                    columns.append(pa.nulls(table.num_rows, field.type))
            parts.append(pa.table(columns, schema=schema))
    return pa.concat_tables(parts).unify_dictionaries() if parts else schema.empty_table()


def _json_rows(table: Table) -> Iterable[dict[str, Any]]:
    plain: list[object] = []
    for field in table.schema:
        column = table.column(field.name)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        elif pa.types.is_dictionary(field.type):
            column = column.cast(pa.string())
        plain.append(column)
    for batch in pa.table(plain, names=table.schema.names).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            yield {key: value for key, value in row.items() if value is not None}


def export_trace(traces: Sequence[Trace], path: str | Path, *, format_: str) -> int:
    """Write traces to one file and return the number of rows.

    Raises:
        ExportError: if `format_` is none of `FORMATS`.
    """
    table = wide_table(traces)
    path = Path(path)
    if format_ == "parquet":
        _write_parquet(table, path)
    elif format_ == "arrow":
        with ipc.new_file(str(path), table.schema) as sink:
            sink.write_table(table)
    elif format_ == "jsonl":
        with path.open("w", encoding="utf-8") as sink:
            sink.write(json.dumps({"schema": MARK.decode(), "version": EXPORT_VERSION}) + "\n")
            for row in _json_rows(table):
                sink.write(json.dumps(row, ensure_ascii=False) + "\n")
    else:
        raise ExportError(f"format {format_!r}: expected one of {', '.join(FORMATS)}")
    return table.num_rows


def export_bytes(traces: Sequence[Trace]) -> bytes:
    """Return traces as the bytes of a Parquet export, for who may write to no folder."""
    sink = io.BytesIO()
    _write_parquet(wide_table(traces), sink)
    return sink.getvalue()


def _write_parquet(table: Table, sink: Path | io.BytesIO) -> None:
    # The kinds stay readable at the head of the file: that is how a loader recognises it.
    codecs = {name: "none" if name == "kind" else "zstd" for name in table.schema.names}
    pq.write_table(table, sink, compression=codecs)


def _parse_lines(path: Path, losses: Counter[str]) -> Table:
    schema = export_schema()
    by_name: dict[str, list[Any]] = {field.name: [] for field in schema}
    rows = 0
    with path.open("rb") as source:
        first = source.readline(_MOST_LINE)
        try:
            head = json.loads(first)
        except (ValueError, RecursionError):
            head = None
        if not isinstance(head, dict) or head.get("schema") != MARK.decode():
            raise ExportError(f'{path}: line 1 is not {{"schema": "{MARK.decode()}", …}}; it is no exported trace')
        _check_version(path, head.get("version"))
        while line := source.readline(_MOST_LINE):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                # Nested thousands deep: no export, and not worth the stack of the process.
                losses["damaged"] += 1
                continue
            if not isinstance(row, dict) or not _fits(row, schema):
                losses["damaged"] += 1
                continue
            for name, column in by_name.items():
                column.append(row.get(name))
            rows += 1
    arrays = [pa.array(by_name[field.name], _plain(field.type)).cast(field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def _plain(type_: Any) -> Any:
    if pa.types.is_dictionary(type_):
        return pa.string()
    return pa.int64() if pa.types.is_timestamp(type_) else type_


def _fits(row: dict[str, Any], schema: Schema) -> bool:
    """Whether every value of a JSON row can stand in its column."""
    for field in schema:
        value = row.get(field.name)
        if value is None:
            continue
        if pa.types.is_boolean(field.type):
            good = isinstance(value, bool)
        elif pa.types.is_dictionary(field.type) or pa.types.is_string(field.type):
            good = isinstance(value, str)
        else:
            plain = _plain(field.type)
            low = 0 if pa.types.is_unsigned_integer(plain) else -(1 << 63)
            high = (1 << plain.bit_width) if low == 0 else 1 << 63
            good = isinstance(value, int) and not isinstance(value, bool) and low <= value < high
        if not good:
            return False
    return True


def _check_version(path: Path, version: object) -> None:
    if str(version) != str(EXPORT_VERSION):
        raise ExportError(
            f"{path}: export version {version!s}, this build reads {EXPORT_VERSION}; install the release that wrote it"
        )


def _read_table(path: Path, losses: Counter[str]) -> Table:
    with path.open("rb") as source:
        magic = source.read(8)
    try:
        if magic.startswith(b"PAR1"):
            table = pq.read_table(path)
        elif magic.startswith(b"ARROW1"):
            with pa.memory_map(str(path)) as source, ipc.open_file(source) as reader:
                table = reader.read_all()
        else:
            return _parse_lines(path, losses)
    except pa.ArrowException as error:
        raise ExportError(f"{path}: {str(error).splitlines()[0]}; export the trace again") from error
    mark = (table.schema.metadata or {}).get(MARK)
    if mark is None:
        raise ExportError(f"{path}: has no {MARK.decode()} in its metadata; it is no exported trace")
    _check_version(path, mark.decode("ascii", "replace"))
    return table


def _dimension(kind: type[Any], names: dict[str, str], row: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for field in fields(kind):
        value = row.get(names[field.name])
        if value is not None:
            values[field.name] = value
        elif field.name in ("pid", "comm", "hash"):
            values[field.name] = 0
    return kind(**values)


def read_export(path: str | Path) -> list[Trace]:
    """Read the traces of an exported file; losses are counted on the first.

    Raises:
        ExportError: if it is no export of ours, of an unknown version, or damaged.
    """
    path = Path(path)
    losses: Counter[str] = Counter()
    table = _read_table(path, losses)
    missing = {"kind", "trace"} - set(table.schema.names)
    if missing:
        raise ExportError(f"{path}: lacks the column {sorted(missing)[0]}; it is no exported trace")
    kinds = table.column("kind").cast(pa.string())
    owner = table.column("trace")
    traces: list[Trace] = []
    for index in sorted(pc.unique(owner).drop_null().to_pylist()):
        mine = table.filter(pc.equal(owner, index))
        mine_kinds = kinds.filter(pc.equal(owner, index))
        tables: dict[str, Table] = {}
        for kind in TABLES:
            part = mine.filter(pc.equal(mine_kinds, kind))
            schema = record_schema(kind)
            lacking = [name for name in schema.names if name not in part.schema.names]
            if lacking and part.num_rows:
                raise ExportError(f"{path}: {kind} rows lack the column {lacking[0]}; export the trace again")
            tables[kind] = part.select(schema.names).cast(schema) if not lacking else schema.empty_table()
        dimensions = mine.filter(pc.is_in(mine_kinds, pa.array(["process", "communicator"])))
        rows = dimensions.cast(_undictionaried(dimensions.schema)).to_pylist() if dimensions.num_rows else []
        process_row = next((row for row in rows if row["kind"] == "process"), {})
        traces.append(
            Trace(
                name=f"{path}#{index}",
                process=_dimension(Process, _PROCESS_NAMES, process_row),
                communicators=tuple(
                    _dimension(Communicator, _COMM_NAMES, row) for row in rows if row["kind"] == "communicator"
                ),
                tables=tables,
                losses=dict(losses) if not traces else {},
                closed=bool(process_row.get("closed")),
                last_tick_ns=process_row.get("last_tick_ns"),
                interval_ms=process_row.get("interval_ms") or 100,
                state=None
                if process_row.get("state_exists") is None
                else ProcessState(process_row["state_exists"], process_row.get("state_letter") or ""),
                unheard=bool(process_row.get("unheard")),
            )
        )
    return traces


def _undictionaried(schema: Schema) -> Schema:
    return pa.schema([pa.field(f.name, _plain(f.type)) for f in schema])
