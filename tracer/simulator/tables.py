"""Simulated rows as the tables of the tracer's decoder, as traces in memory, or as an exported trace."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import numpy as np

from mycroft.tracer import _simulator
from mycroft.tracer.arrow import Table, ipc, pa, pc, pq
from mycroft.tracer.export import export_schema, record_schema, wide_table
from mycroft.tracer.names import ALGOS, DIRS, DTYPES, OP_KINDS, OP_STATES, PROTOS
from mycroft.tracer.simulator.simulate import Simulated
from mycroft.tracer.trace import TABLES, Communicator, Process, Trace

_COMMS: Final = {"tp": 1, "pp": 2, "dp": 3, "ep": 4}
_LISTS: Final = {
    "op_kind": OP_KINDS,
    "dir": DIRS,
    "op_state": OP_STATES,
    "dtype": DTYPES,
    "algo": ALGOS,
    "proto": PROTOS,
}
_OPEN, _COMPLETED = OP_STATES.index("open"), OP_STATES.index("completed")
_SEND, _RECV = OP_KINDS.index("send"), OP_KINDS.index("recv")


def _nullable(values: np.ndarray[Any, Any], unknown: int = -1) -> Any:
    return pa.array(values, mask=values == unknown)


def _complete(kind: str, columns: dict[str, Any], rows: int) -> Table:
    """Cast to the schema of the kind; what is not given is false for flags and NULL else."""
    arrays: list[Any] = []
    schema = record_schema(kind)
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            fill = pa.scalar(False) if pa.types.is_boolean(field.type) else pa.scalar(None, field.type)
            arrays.append(pa.repeat(fill, rows))
        elif field.name in _LISTS:
            codes = pa.array(np.asarray(values, dtype=np.uint8))
            arrays.append(pa.DictionaryArray.from_arrays(codes, pa.array(_LISTS[field.name], pa.string())))
        else:
            array = values if isinstance(values, pa.Array) else pa.array(values)
            arrays.append(array.cast(field.type, safe=False) if array.type != field.type else array)
    return pa.table(arrays, schema=schema)


def _state(rows: dict[str, Any]) -> dict[str, Any]:
    return {**rows, "dir": rows["send"], "running": np.ones(len(rows["trace"]), dtype=bool)}


def _flow(rows: dict[str, Any]) -> dict[str, Any]:
    send = rows["send"] == 1
    sums = [rows[name] for name in ("net_busy_ns", "net_max_ns", "peer_wait_ns", "peer_wait_max_ns")]
    columns = {**rows, "dir": rows["send"]}
    for name, values in zip(("net_busy_ns", "net_max_ns", "peer_wait_ns", "peer_wait_max_ns"), sums, strict=True):
        columns[name] = pa.array(values, mask=~send)
    for name, values in zip(("post_delay_ns", "post_delay_max_ns", "flush_ns", "gpu_hold_ns"), sums, strict=True):
        columns[name] = pa.array(values, mask=send)
    return columns


def _op(rows: dict[str, Any], config: _simulator.Config) -> dict[str, Any]:
    count = len(rows["trace"])
    p2p = (rows["op_kind"] == _SEND) | (rows["op_kind"] == _RECV)
    # NCCL's own number of a send or receive: in the order in which the rank called them.
    source = np.zeros(count, dtype=np.int64)
    order = np.lexsort((rows["enq_ts"], rows["trace"]))
    order = order[p2p[order]]
    owners = rows["trace"][order]
    first = np.searchsorted(owners, owners, side="left")
    source[order] = np.arange(len(order)) - first
    ended = rows["dur_ns"] >= 0
    algo = np.full(count, ALGOS.index("TREE" if config.tree else "RING"), dtype=np.uint8)
    return {
        **rows,
        "p2p": p2p,
        "source_seq": pa.array(source, mask=~p2p),
        "op_state": np.where(ended, _COMPLETED, _OPEN),
        "dtype": np.full(count, DTYPES.index("bfloat16"), dtype=np.uint8),
        "algo": algo,
        "proto": np.full(count, PROTOS.index("SIMPLE"), dtype=np.uint8),
        "peer": _nullable(rows["peer"]),
        "kstart_ts": _nullable(rows["kstart_ts"]),
        "dur_ns": _nullable(rows["dur_ns"]),
        "kernel_end": ended,
        "op_id": np.arange(count, dtype=np.uint32),
    }


def _heartbeat(rows: dict[str, Any]) -> dict[str, Any]:
    count = len(rows["trace"])
    zero = np.zeros(count, dtype=np.uint32)
    return {
        **rows,
        "comm": np.zeros(count, dtype=np.uint16),
        "oldest_open_ts": _nullable(rows["oldest_open_ts"]),
        "progress_ts": _nullable(rows["progress_ts"]),
        "open_flows": zero,
        "lost": zero,
        # Simulated samplers are never late; whoever tests what follows from one that was puts it into the rows.
        "late_ms": rows.get("late_ms", zero),
        "ticks": zero.astype(np.uint64),
    }


def record_tables(simulated: Simulated) -> dict[str, tuple[Table, np.ndarray[Any, Any]]]:
    """Return the decoder's tables of all ranks together, each with the rank of every row, ordered by rank."""
    made = {
        "state": _state(simulated.rows["state"]),
        "flow": _flow(simulated.rows["flow"]),
        "op": _op(simulated.rows["op"], simulated.config),
        "heartbeat": _heartbeat(simulated.rows["heartbeat"]),
    }
    found: dict[str, tuple[Table, np.ndarray[Any, Any]]] = {}
    for kind, columns in made.items():
        ranks = np.asarray(simulated.rows[kind]["trace"])
        order = np.argsort(ranks, kind="stable")
        columns["position"] = np.arange(len(ranks), dtype=np.uint64)
        found[kind] = (_complete(kind, columns, len(ranks)).take(pa.array(order)), ranks[order])
    return found


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"simulated {name}".encode()).digest()[:8], "little") | 1


def _trace(simulated: Simulated, rank: int, tables: dict[str, Table]) -> Trace:
    config = simulated.config
    tp, dp, pp = rank % config.tp, rank // config.tp % config.dp, rank // (config.tp * config.dp)
    host, local = divmod(rank, config.ranks_per_host)
    world = config.tp * config.pp * config.dp
    groups = [
        ("tp", f"tp{pp * config.dp + dp}", tp, config.tp),
        ("pp", f"pp{dp * config.tp + tp}", pp, config.pp),
        ("dp", f"dp{pp * config.tp + tp}", dp, config.dp),
        ("ep", f"ep{pp * config.tp + tp}_{dp // config.ep}", dp % config.ep, config.ep),
    ]
    comms = tuple(
        Communicator(
            comm=_COMMS[use],
            hash=_hash(name),
            name=name,
            backend="simulator",
            rank=place,
            size=size,
            abi=7,
            opened_ns=_simulator.START_UTC_NS - 1_000_000_000,
        )
        for use, name, place, size in groups
        if size > 1
    )
    beats = tables["heartbeat"].column("ts")
    last = pc.max(beats.cast(pa.int64())).as_py() if len(beats) else None
    return Trace(
        name=f"simulated rank {rank}",
        process=Process(
            pid=10_000 + rank,
            host=f"sim{host}",
            rank=rank,
            world_size=world,
            local_rank=local,
            local_world_size=min(config.ranks_per_host, world - host * config.ranks_per_host),
            device=local,
            rank_source="simulator",
            started_ns=_simulator.START_UTC_NS - 1_000_000_000,
        ),
        communicators=comms,
        tables=tables,
        last_tick_ns=last,
        interval_ms=int(config.interval_ns / 1e6),
    )


def simulated_traces(simulated: Simulated) -> list[Trace]:
    """Return one trace per rank, as the tracer's loader takes them in memory."""
    config = simulated.config
    world = config.tp * config.pp * config.dp
    tables = record_tables(simulated)
    empty = {kind: record_schema(kind).empty_table() for kind in TABLES}
    bounds = {kind: np.searchsorted(ranks, np.arange(world + 1)) for kind, (_, ranks) in tables.items()}
    return [
        _trace(
            simulated,
            rank,
            empty
            | {
                kind: table.slice(int(bounds[kind][rank]), int(bounds[kind][rank + 1] - bounds[kind][rank]))
                for kind, (table, _) in tables.items()
            },
        )
        for rank in range(world)
    ]


def export_tables(simulated: Simulated, path: Path, *, format_: str) -> int:
    """Write the exported trace of all ranks (`parquet` or `arrow`) and return its number of rows.

    The same file as `export_trace` writes, with the records of each kind in one piece.
    """
    schema = export_schema()
    empty = {kind: record_schema(kind).empty_table() for kind in TABLES}
    config = simulated.config
    tables = record_tables(simulated)
    beats, owners = tables["heartbeat"]
    bounds = np.searchsorted(owners, np.arange(config.tp * config.pp * config.dp + 1))
    dimensions = [
        _trace(
            simulated, rank, empty | {"heartbeat": beats.slice(int(bounds[rank]), int(bounds[rank + 1] - bounds[rank]))}
        )
        for rank in range(len(bounds) - 1)
    ]
    bare = [Trace(**{**_fields(trace), "tables": empty}) for trace in dimensions]
    parts = [wide_table(bare)]
    for kind, (table, ranks) in tables.items():
        columns: list[Any] = []
        for field in schema:
            if field.name == "kind":
                codes = pa.repeat(pa.scalar(0, pa.uint8()), table.num_rows)
                columns.append(pa.DictionaryArray.from_arrays(codes, pa.array([kind])))
            elif field.name == "trace":
                columns.append(pa.array(ranks, pa.uint32()))
            elif field.name in table.schema.names:
                columns.append(table.column(field.name).cast(field.type))
            else:
                columns.append(pa.nulls(table.num_rows, field.type))
        parts.append(pa.table(columns, schema=schema))
    whole = pa.concat_tables(parts).unify_dictionaries()
    if format_ == "parquet":
        pq.write_table(whole, path, compression="zstd")
    else:
        with ipc.new_file(str(path), whole.schema) as sink:
            sink.write_table(whole)
    return whole.num_rows


def _fields(trace: Trace) -> dict[str, Any]:
    return {name: getattr(trace, name) for name in Trace.__dataclass_fields__}
