"""Roll-ups: what every minute was like, by host and by shape of operation; kept long after the rows are gone.

A file of the log ends in the middle of a minute, so several rows may stand for one key. Every column has a rule (sum,
min or max) by which they are put together; the rules are associative, so that it does not matter where and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from mycroft.loaders.collector.manifest import Segment, read_manifest
from mycroft.tracer.arrow import Schema, Table, pa, pc, pq
from mycroft.tracer.names import ALGOS, OP_KINDS, OP_STATES, PROTOS
from mycroft.tracer.trace import Communicator

HOST_MINUTE: Final = "host_minute"
OP_MINUTE: Final = "op_minute"
MINUTE_NS: Final = 60_000_000_000
_OPEN: Final = OP_STATES.index("open")

Rule = Literal["key", "sum", "min", "max"]

_COLUMNS: Final[dict[str, tuple[tuple[str, Any, Rule], ...]]] = {
    HOST_MINUTE: (
        ("minute", pa.timestamp("ns"), "key"),
        ("host", pa.string(), "key"),
        ("job", pa.string(), "key"),
        ("processes", pa.uint32(), "max"),
        ("ops", pa.uint64(), "sum"),
        ("op_bytes", pa.uint64(), "sum"),
        ("timed", pa.uint64(), "sum"),
        ("dur_sum_ns", pa.uint64(), "sum"),
        ("dur_min_ns", pa.int64(), "min"),
        ("dur_max_ns", pa.int64(), "max"),
        ("flows", pa.uint64(), "sum"),
        ("flow_bytes", pa.uint64(), "sum"),
        ("net_sum_ns", pa.uint64(), "sum"),
        ("net_max_ns", pa.uint64(), "max"),
        ("peer_wait_sum_ns", pa.uint64(), "sum"),
        ("peer_wait_max_ns", pa.uint64(), "max"),
        ("post_delay_sum_ns", pa.uint64(), "sum"),
        ("post_delay_max_ns", pa.uint64(), "max"),
        ("gpu_hold_sum_ns", pa.uint64(), "sum"),
        ("idle_max_ms", pa.uint32(), "max"),
        ("open_ops_max", pa.uint32(), "max"),
        ("late_max_ms", pa.uint32(), "max"),
        ("lost_rows", pa.uint64(), "sum"),
        ("errors", pa.uint32(), "sum"),
    ),
    OP_MINUTE: (
        ("minute", pa.timestamp("ns"), "key"),
        ("job", pa.string(), "key"),
        ("comm", pa.uint64(), "key"),
        ("op_kind", pa.string(), "key"),
        ("bytes", pa.uint64(), "key"),
        ("algo", pa.string(), "key"),
        ("proto", pa.string(), "key"),
        ("comm_name", pa.string(), "max"),
        ("comm_size", pa.uint32(), "max"),
        ("ops", pa.uint64(), "sum"),
        ("timed", pa.uint64(), "sum"),
        ("dur_sum_ns", pa.uint64(), "sum"),
        ("dur_min_ns", pa.int64(), "min"),
        ("dur_max_ns", pa.int64(), "max"),
        ("first_seq", pa.uint64(), "min"),
        ("last_seq", pa.uint64(), "max"),
    ),
}
SCHEMAS: Final[dict[str, Schema]] = {
    name: pa.schema([(column, kind) for column, kind, _ in columns]) for name, columns in _COLUMNS.items()
}
# Kinds of readings that count as errors of a host: see mycroft.tracer.agent.devices.
ERROR_KINDS: Final = ("xid", "oom_kill", "port_down")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose rows a process writes."""

    host: str
    job: str
    communicators: tuple[Communicator, ...]


def merge(name: str, tables: Sequence[Table]) -> Table:
    """Return one row a key, in the order of the keys; the tables in any order give the same result."""
    columns = _COLUMNS[name]
    keys = [column for column, _, rule in columns if rule == "key"]
    sums = [(column, rule) for column, _, rule in columns if rule != "key"]
    present = pa.concat_tables(tables)
    columns_there = set(present.schema.names)
    keys = [key for key in keys if key in columns_there]
    sums = [(column, rule) for column, rule in sums if column in columns_there]
    grouped = present.group_by(keys, use_threads=False).aggregate(sums)
    order = [(key, "ascending") for key in keys]
    found = grouped.rename_columns([name.removesuffix(f"_{rule}") for name, rule in _aggregated(keys, sums)])
    schema = pa.schema([field for field in SCHEMAS[name] if field.name in columns_there])
    return found.select(schema.names).cast(schema).sort_by(order)


def _aggregated(keys: Sequence[str], sums: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names of the columns of an Arrow aggregate, with what was put behind each."""
    return [(key, "") for key in keys] + [(f"{column}_{rule}", rule) for column, rule in sums]


def rollup_files(root: Path, name: str, *, since_ns: int = 0, until_ns: int | None = None) -> list[Path]:
    """Return the files that hold minutes of a time, as the manifest of this moment has them.

    Raises:
        ManifestError: if the manifest cannot be read.
    """
    return [
        root / segment.path
        for segment in read_manifest(root / "manifest").segments
        if segment.table == name and _touches(segment, since_ns, until_ns)
    ]


def _touches(segment: Segment, since_ns: int, until_ns: int | None) -> bool:
    return segment.last_ns >= since_ns and (until_ns is None or segment.first_ns < until_ns)


def read_rollup(
    root: Path, name: str, *, since_ns: int = 0, until_ns: int | None = None, columns: Sequence[str] | None = None
) -> Table:
    """Return one row a key of the minutes that begin in `since_ns` to `until_ns` (UTC; None: no end).

    `columns`: those wanted, the keys always; None: all. A file that is gone or damaged is an error, for what it holds
    would be missing without a word.

    Raises:
        ManifestError: if the manifest cannot be read.
        OSError: if a file cannot be read.
        pa.ArrowException: if one is damaged.
    """
    keys = [column for column, _, rule in _COLUMNS[name] if rule == "key"]
    wanted = None if columns is None else [*keys, *(column for column in columns if column not in keys)]
    schema = SCHEMAS[name] if wanted is None else pa.schema([SCHEMAS[name].field(column) for column in wanted])
    tables = [schema.empty_table()]
    for path in rollup_files(root, name, since_ns=since_ns, until_ns=until_ns):
        rows = pq.read_table(path, columns=wanted, partitioning=None).cast(schema)
        minute = rows.column("minute").cast(pa.int64())
        inside = pc.greater_equal(minute, since_ns)
        if until_ns is not None:
            inside = pc.and_(inside, pc.less(minute, until_ns))
        tables.append(rows.filter(inside))
    return merge(name, tables)


# ---- making them ------------------------------------------------------------------


def rollups_of(tables: Mapping[str, Table], owners: Mapping[str, Owner]) -> dict[str, Table]:
    """Return the roll-ups of rows: `tables` as segments have them, `owners` by process. Tables without rows lack."""
    if "op" in tables:
        tables = {**tables, "op": _ended(tables["op"])}
    parts = [_host_rows(kind, tables[kind], owners) for kind in _HOST_SUMS if kind in tables]
    parts += [_lost_rows(tables["gaps"], owners)] if "gaps" in tables else []
    parts += [_error_rows(tables["facts"])] if "facts" in tables else []
    found: dict[str, Table] = {}
    if any(part.num_rows for part in parts):
        found[HOST_MINUTE] = merge(HOST_MINUTE, [_filled(HOST_MINUTE, part) for part in parts])
    if "op" in tables:
        ops = _op_rows(tables["op"], owners)
        if ops.num_rows:
            found[OP_MINUTE] = merge(OP_MINUTE, [ops])
    return found


# kind of record -> column of its time, and (column, rule, name in the roll-up).
_HOST_SUMS: Final[dict[str, tuple[str, tuple[tuple[str, str, str], ...]]]] = {
    "op": (
        "enq_ts",
        (
            ("position", "count", "ops"),
            ("bytes", "sum", "op_bytes"),
            ("dur_ns", "count", "timed"),
            ("dur_ns", "sum", "dur_sum_ns"),
            ("dur_ns", "min", "dur_min_ns"),
            ("dur_ns", "max", "dur_max_ns"),
        ),
    ),
    "flow": (
        "end_ts",
        (
            ("position", "count", "flows"),
            ("bytes", "sum", "flow_bytes"),
            ("net_busy_ns", "sum", "net_sum_ns"),
            ("net_max_ns", "max", "net_max_ns"),
            ("peer_wait_ns", "sum", "peer_wait_sum_ns"),
            ("peer_wait_max_ns", "max", "peer_wait_max_ns"),
            ("post_delay_ns", "sum", "post_delay_sum_ns"),
            ("post_delay_max_ns", "max", "post_delay_max_ns"),
            ("gpu_hold_ns", "sum", "gpu_hold_sum_ns"),
        ),
    ),
    "state": ("ts", (("idle_ms", "max", "idle_max_ms"),)),
    "heartbeat": ("ts", (("open_ops", "max", "open_ops_max"), ("late_ms", "max", "late_max_ms"))),
}


def _minutes(times: Table) -> Table:
    """Return the beginnings of the minutes of a column of times, as integers of minutes; NULL where there is none."""
    return pc.divide(times.cast(pa.int64()), MINUTE_NS)


def _processes(table: Table) -> tuple[Table, list[str]]:
    """Return the column `process` as numbers, and the names of the numbers."""
    column = table.column("process").combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.indices, column.dictionary.to_pylist()


def _ended(ops: Table) -> Table:
    """Return operations once each: open ones are told again and again, and one that a late part opened ends twice."""
    once = pc.and_(pc.not_equal(ops.column("op_state"), _OPEN), pc.equal(ops.column("reopened"), 0))
    return ops.filter(once)


def _host_rows(kind: str, table: Table, owners: Mapping[str, Owner]) -> Table:
    """Return partial rows of `host_minute` of one kind of record."""
    time_column, sums = _HOST_SUMS[kind]
    process, names = _processes(table)
    columns = sorted({column for column, _, _ in sums})
    small = pa.table(
        {"minute": _minutes(table.column(time_column)), "process": process}
        | {column: table.column(column) for column in columns}
    ).filter(pc.is_valid(table.column(time_column)))
    by_process = small.group_by(["minute", "process"], use_threads=False).aggregate(
        [(column, rule) for column, rule, _ in sums]
    )
    by_process = by_process.rename_columns(["minute", "process", *(name for _, _, name in sums)])
    # From here on there is one row a process and minute; few enough for Python's names.
    mine = [owners[names[number]] for number in by_process.column("process").to_pylist()]
    rows = by_process.drop_columns(["process"])
    rows = rows.append_column("host", pa.array([owner.host for owner in mine], pa.string()))
    rows = rows.append_column("job", pa.array([owner.job for owner in mine], pa.string()))
    rows = _with_times(rows)
    counted = rows.append_column("processes", pa.array(np.ones(rows.num_rows, dtype=np.uint32)))
    told = counted.group_by(["minute", "host", "job"], use_threads=False).aggregate([("processes", "sum")])
    told = told.rename_columns(["minute", "host", "job", "processes"])
    return pa.concat_tables([_filled(HOST_MINUTE, rows), _filled(HOST_MINUTE, told)])


def _with_times(rows: Table) -> Table:
    """Turn the column `minute` from numbers of minutes into times."""
    times = pc.multiply(rows.column("minute"), MINUTE_NS).cast(pa.timestamp("ns"))
    return rows.set_column(rows.schema.get_field_index("minute"), "minute", times)


def _filled(name: str, rows: Table) -> Table:
    """Return rows with all columns of a roll-up; those that it lacks are NULL."""
    schema = SCHEMAS[name]
    columns = [
        rows.column(field.name).cast(field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _lost_rows(gaps: Table, owners: Mapping[str, Owner]) -> Table:
    nobody = Owner("", "", ())
    jobs = [owners.get(key or "", nobody).job for key in gaps.column("process").to_pylist()]
    return _filled(
        HOST_MINUTE,
        _with_times(
            pa.table(
                {
                    "minute": _minutes(gaps.column("ts")),
                    "host": gaps.column("host"),
                    "job": pa.array(jobs, pa.string()),
                    "lost_rows": gaps.column("rows"),
                }
            )
        ),
    )


def _error_rows(facts: Table) -> Table:
    bad = facts.filter(pc.is_in(facts.column("kind"), pa.array(ERROR_KINDS, pa.string())))
    return _filled(
        HOST_MINUTE,
        _with_times(
            pa.table(
                {
                    "minute": _minutes(bad.column("ts")),
                    "host": bad.column("host"),
                    "job": pa.array([""] * bad.num_rows, pa.string()),
                    "errors": pa.array(np.ones(bad.num_rows, dtype=np.uint32)),
                }
            )
        ),
    )


def _op_rows(ops: Table, owners: Mapping[str, Owner]) -> Table:
    """Return rows of `op_minute`."""
    process, names = _processes(ops)
    keys = ["minute", "process", "comm", "op_kind", "bytes", "algo", "proto"]
    small = pa.table(
        {"minute": _minutes(ops.column("enq_ts")), "process": process}
        | {column: ops.column(column) for column in ("comm", "op_kind", "bytes", "algo", "proto", "dur_ns", "op_seq")}
    ).filter(pc.is_valid(ops.column("enq_ts")))
    sums = [("op_seq", "count"), ("dur_ns", "count"), ("dur_ns", "sum"), ("dur_ns", "min"), ("dur_ns", "max")]
    sums += [("op_seq", "min"), ("op_seq", "max")]
    grouped = small.group_by(keys, use_threads=False).aggregate([*sums, ("minute", "count")])
    grouped = grouped.rename_columns(
        [*keys, "_", "timed", "dur_sum_ns", "dur_min_ns", "dur_max_ns", "first_seq", "last_seq", "ops"]
    )
    comms = {(key, comm.comm): comm for key, owner in owners.items() for comm in owner.communicators}
    writers: list[str] = [names[number] for number in grouped.column("process").to_pylist()]
    numbers: list[int] = grouped.column("comm").to_pylist()
    who = [(owners[key], comms.get((key, number))) for key, number in zip(writers, numbers, strict=True)]
    replaced = {
        "job": pa.array([owner.job for owner, _ in who], pa.string()),
        "comm": pa.array([comm.hash if comm is not None else None for _, comm in who], pa.uint64()),
        "comm_name": pa.array([comm.name or None if comm is not None else None for _, comm in who], pa.string()),
        "comm_size": pa.array([comm.size if comm is not None else None for _, comm in who], pa.uint32()),
        "op_kind": _named(grouped.column("op_kind"), OP_KINDS),
        "algo": _named(grouped.column("algo"), ALGOS),
        "proto": _named(grouped.column("proto"), PROTOS),
    }
    rows = grouped.drop_columns(["_", "process", *(name for name in replaced if name in grouped.schema.names)])
    for name, column in replaced.items():
        rows = rows.append_column(name, column)
    return _filled(OP_MINUTE, _with_times(rows))


def _named(codes: Table, names: Sequence[str]) -> Table:
    """Return what codes mean; NULL for those that mean nothing."""
    known = pc.less(codes, len(names))
    return pc.take(pa.array(names, pa.string()), pc.if_else(known, codes, None))
