"""A simulated job into a store, all ranks at once: the rows of the tracer's loader without its work per process.

The loader takes one trace after the other, because files come so; ten thousand of them take minutes. Here the layout of
the job is known, so every table is made in one piece. A test compares it with what the loader makes of the same job.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.context import conform
from mycroft.loaders.groups import role_of
from mycroft.loaders.ring import operation_columns
from mycroft.loaders.store import MemoryStore, MemoryWriter, StoreWriter
from mycroft.tracer.arrow import Table, pa
from mycroft.tracer.simulator import Simulated, record_tables

_NUMBERS: Final = {"tp": 1, "pp": 2, "dp": 3, "ep": 4}


class _Layout:
    """Which communicators a job has, who is in them, and which rank a peer is."""

    def __init__(self, simulated: Simulated) -> None:
        config = simulated.config
        self.tp, self.pp, self.dp, self.ep = config.tp, config.pp, config.dp, config.ep
        self.per_host = config.ranks_per_host
        self.world = self.tp * self.pp * self.dp
        rank = np.arange(self.world)
        t, d, p = rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)
        split = self.dp // self.ep
        # Of each kind: index of the rank's group, its place inside, members of a group.
        found = {
            "tp": (p * self.dp + d, t, self.tp),
            "pp": (d * self.tp + t, p, self.pp),
            "dp": (p * self.tp + t, d, self.dp),
            "ep": ((p * self.tp + t) * split + d // self.ep, d % self.ep, self.ep),
        }
        self.kinds = {use: of for use, of in found.items() if of[2] > 1}
        self.first: dict[str, int] = {}
        count = 0
        for use, (_, _, size) in self.kinds.items():
            self.first[use] = count
            count += self.world // size
        self.comms = count

    def members(self) -> pl.DataFrame:
        """Return (comm_id, rank, comm_rank) of everybody."""
        parts = [
            pl.DataFrame({"comm_id": index + self.first[use], "rank": np.arange(self.world), "comm_rank": place})
            for use, (index, place, _) in self.kinds.items()
        ]
        return pl.concat(parts).sort("comm_id", "comm_rank").with_columns(source=pl.lit("trace"))

    def communicators(self) -> pl.DataFrame:
        """Return the communicators under the names of the simulator."""
        rows: list[dict[str, Any]] = []
        for use, (_, _, size) in self.kinds.items():
            for index in range(self.world // size):
                split = self.dp // self.ep
                name = f"ep{index // split}_{index % split}" if use == "ep" else f"{use}{index}"
                rows.append(
                    {"comm_id": self.first[use] + index, "job_id": 0, "key": f"{use}-{index}", "name": name}
                    | {"desc": name, "kind": role_of(name), "backend": "nccl", "size": size, "seen_size": size}
                )
        return pl.DataFrame(rows)

    def ids(self, ranks: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the communicators of ranks by the numbers that their traces use."""
        table = np.zeros((max(_NUMBERS.values()) + 1, self.world), dtype=np.int64)
        for use, (index, _, _) in self.kinds.items():
            table[_NUMBERS[use]] = index + self.first[use]
        return table[numbers, ranks]

    def peers(
        self, ranks: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any], inside: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """Return the global ranks of peers, given as ranks inside the communicator."""
        block = self.dp * self.tp
        t, d, p = ranks % self.tp, ranks // self.tp % self.dp, ranks // block
        return np.select(
            [numbers == _NUMBERS["tp"], numbers == _NUMBERS["pp"], numbers == _NUMBERS["dp"]],
            [ranks - t + inside, inside * block + d * self.tp + t, (p * self.dp + inside) * self.tp + t],
            (p * self.dp + d // self.ep * self.ep + inside) * self.tp + t,
        )

    def sizes(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the sizes of communicators by their numbers."""
        table = np.ones(max(_NUMBERS.values()) + 1, dtype=np.int64)
        for use, (_, _, size) in self.kinds.items():
            table[_NUMBERS[use]] = size
        return table[numbers]


def store_of(simulated: Simulated, *, threads: int = 1, memory_limit: str = "4GiB") -> MemoryStore:
    """Load a simulated job into a store in memory."""
    writer = MemoryWriter(threads=threads, memory_limit=memory_limit)
    write_job(simulated, writer)
    return writer.store()


def write_job(simulated: Simulated, writer: StoreWriter) -> None:
    """Write all tables of a simulated job; whoever made the writer finishes it."""
    layout = _Layout(simulated)
    tables = record_tables(simulated)
    _dimensions(writer, layout)
    ops = _operations(*tables.pop("op"), layout)
    _dumps(writer, ops, layout)
    _append(writer, "coll_ops", ops)
    _append(writer, "flow_state", _flows(*tables.pop("state"), layout))
    _append(writer, "flow_ops", _flows(*tables.pop("flow"), layout))
    _append(writer, "heartbeat", _heartbeats(*tables.pop("heartbeat")))


def _append(writer: StoreWriter, table: str, frame: pl.DataFrame) -> None:
    known = schema.BY_NAME[table]
    names = [c.name for c in known.columns if c.name in frame.columns]
    ready = conform(table, frame.select(names))
    writer.append(table, ready.sort([name for name in known.sort if name in names], maintain_order=True))


def _frame(table: Table) -> pl.DataFrame:
    plain = pa.schema(
        [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema]
    )
    return pl.DataFrame(table.cast(plain))


def _dimensions(writer: StoreWriter, layout: _Layout) -> None:
    ranks = np.arange(layout.world)
    hosts = sorted(f"sim{h}" for h in range(-(-layout.world // layout.per_host)))
    number = {name: i for i, name in enumerate(hosts)}
    host_of = [number[f"sim{r // layout.per_host}"] for r in range(layout.world)]
    meta = {
        "schema_version": str(schema.SCHEMA_VERSION),
        "engine": metadata.version("mycroft-trace"),
        "digest": "",
        "files": "1",
        "jobs": "1",
    }
    local = ranks % layout.per_host
    for table, frame in (
        ("trace_meta", pl.DataFrame({"key": list(meta), "value": list(meta.values())})),
        ("files", pl.DataFrame({"file_id": [0], "job_id": [0], "loader": ["mycroft_trace"], "path": ["simulated"]})),
        ("jobs", pl.DataFrame({"job_id": [0], "world_size": [layout.world], "source": ["evidence"]})),
        ("hosts", pl.DataFrame({"host_id": range(len(hosts)), "name": hosts})),
        (
            "ranks",
            pl.DataFrame({"rank": ranks, "host_id": host_of, "local_rank": local, "pid": 10_000 + ranks}).with_columns(
                job_id=pl.lit(0), gpu=pl.col("local_rank").cast(pl.String)
            ),
        ),
        ("communicators", layout.communicators()),
        ("members", layout.members()),
    ):
        _append(writer, table, frame)


def _flows(table: Table, ranks: np.ndarray[Any, Any], layout: _Layout) -> pl.DataFrame:
    frame = _frame(table)
    numbers, inside = frame["comm"].to_numpy().astype(np.int64), frame["peer"].to_numpy().astype(np.int64)
    return frame.with_columns(
        rank=ranks, comm_id=layout.ids(ranks, numbers), peer=layout.peers(ranks, numbers, inside)
    ).drop("comm")


def _operations(table: Table, ranks: np.ndarray[Any, Any], layout: _Layout) -> pl.DataFrame:
    frame = _frame(table)
    numbers = frame["comm"].to_numpy().astype(np.int64)
    inside = frame["peer"].fill_null(0).to_numpy().astype(np.int64)
    made = frame.with_columns(
        rank=ranks,
        comm_id=layout.ids(ranks, numbers),
        size=layout.sizes(numbers),
        peer_rank=layout.peers(ranks, numbers, inside),
    ).with_columns(peer_rank=pl.when(pl.col("peer").is_not_null()).then(pl.col("peer_rank")))
    return operation_columns(made).with_columns(retired=pl.lit(value=False), file_id=pl.lit(0)).drop("size")


def _heartbeats(table: Table, ranks: np.ndarray[Any, Any]) -> pl.DataFrame:
    return _frame(table).select(
        "ts",
        rank=ranks,
        pid_alive=pl.lit(value=True),
        sampler_ts=pl.col("ts"),
        n_open=pl.col("open_ops"),
        oldest_open_enq_ts=pl.col("oldest_open_ts"),
        last_progress_ts=pl.col("progress_ts"),
        last_op_seq=pl.col("op_seq"),
        late_ms=pl.col("late_ms"),
    )


def _dumps(writer: StoreWriter, ops: pl.DataFrame, layout: _Layout) -> None:
    """One dump per rank that has a trace; a rank without operations has one as well."""
    per = ops.group_by("rank").agg(
        pl.len().alias("entries"),
        pl.col("record_id").max().alias("last_record"),
        pl.col("enq_ts").min().alias("first_ts"),
        pl.col("enq_ts").max().alias("last_ts"),
        (pl.col("kstart_ts").null_count() < pl.len()).alias("has_timing"),
    )
    frame = pl.DataFrame({"rank": np.arange(layout.world)}).join(per, on="rank", how="left")
    _append(
        writer,
        "rank_dumps",
        frame.with_columns(
            pl.col("entries").fill_null(0),
            pl.col("has_timing").fill_null(value=False),
            file_id=pl.lit(0),
            kind=pl.lit("ring"),
            version=pl.lit("1"),
            backend=pl.lit("nccl"),
            lib_version=pl.lit("NCCL profiler ABI v7"),
            first_record=pl.lit(0),
            has_events=pl.lit(value=True),
            only_active=pl.lit(value=False),
        ),
    )
