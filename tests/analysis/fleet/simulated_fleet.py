"""A simulated job as relays of hosts have it: raw rows by relay, statuses of processes, and what each tier sends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mycroft.analysis.fleet.summaries import DIMENSIONS
from mycroft.tracer.export import record_schema
from mycroft.tracer.names import OP_KINDS, OP_STATES
from mycroft.tracer.simulator import Simulated, simulate, simulation
from mycroft.tracer.simulator.tables import _trace, record_tables  # pyright: ignore[reportPrivateUsage]
from mycroft.tracer.trace import TABLES, Trace

OPEN, COMPLETED = OP_STATES.index("open"), OP_STATES.index("completed")


@dataclass
class Fleet:
    """A simulated job. `ranks_per_relay`: of consecutive ranks, whole hosts."""

    simulated: Simulated
    ranks_per_relay: int

    def __post_init__(self) -> None:
        config = self.simulated.config
        self.world = config.tp * config.pp * config.dp
        self.tables = record_tables(self.simulated)
        self.bounds = {
            kind: np.searchsorted(ranks, np.arange(self.world + 1)) for kind, (_, ranks) in self.tables.items()
        }
        self.empty = {kind: record_schema(kind).empty_table() for kind in TABLES}
        beats = self.tables["heartbeat"][0].column("ts").cast(pa.int64())
        self.last_ns = int(pc.max(beats).as_py())

    @property
    def relays(self) -> list[range]:
        step = self.ranks_per_relay
        return [range(first, min(first + step, self.world)) for first in range(0, self.world, step)]

    def trace(self, rank: int) -> Trace:
        tables = self.empty | {
            kind: table.slice(int(self.bounds[kind][rank]), int(self.bounds[kind][rank + 1] - self.bounds[kind][rank]))
            for kind, (table, _) in self.tables.items()
        }
        return _trace(self.simulated, rank, tables)

    def traces(self, ranks: Sequence[int]) -> list[Trace]:
        return [self.trace(rank) for rank in ranks]

    def bare(self, rank: int) -> Trace:
        return _trace(self.simulated, rank, self.empty)

    def dimensions(self, ranks: Sequence[int]) -> pa.Table:
        rows = [
            (f"p{rank}", rank, comm.comm, comm.hash, comm.rank, comm.size)
            for rank in ranks
            for comm in self.bare(rank).communicators
        ]
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, DIMENSIONS, strict=True)], schema=DIMENSIONS)

    def operations(self, ranks: range) -> pa.Table:
        """Rows of operations as a segment has them: coded, with the name of the process."""
        table, owners = self.tables["op"]
        first, last = int(self.bounds["op"][ranks.start]), int(self.bounds["op"][ranks.stop])
        part = table.slice(first, last - first)
        names = pa.array([f"p{rank}" for rank in ranks]).take(pa.array(owners[first:last] - ranks.start))
        words = pa.array(OP_KINDS)
        return pa.table(
            {
                "process": names,
                "position": part.column("position"),
                "enq_ts": part.column("enq_ts"),
                "comm": part.column("comm"),
                "op_seq": part.column("op_seq"),
                "op_kind": pc.index_in(part.column("op_kind").cast(pa.string()), words).cast(pa.uint8()),
                "p2p": part.column("p2p").cast(pa.uint8()),
                "op_state": pc.if_else(pc.is_valid(part.column("dur_ns")), COMPLETED, OPEN).cast(pa.uint8()),
                "peer": part.column("peer"),
                "op_id": part.column("op_id"),
            }
        )


def small_fleet(
    fault: str,
    *,
    topology: str,
    rank: int,
    ranks_per_relay: int,
    at_s: float = 8.0,
    after_s: float = 14.0,
    seed: int = 1,
    **settings: Any,
) -> Fleet:
    made = simulate(
        simulation(fault, topology=topology, rank=rank, at_s=at_s, after_s=after_s, seed=seed, settings=settings)
    )
    return Fleet(made, ranks_per_relay)
