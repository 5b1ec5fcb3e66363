"""A simulated job as the hosts of relays tell it, window by window, and its measures many times over."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mycroft.tracer.agent.batch import Batch, BatchKey, RingStatus
from mycroft.tracer.agent.summary import MEASURES, What
from mycroft.tracer.trace import TABLES
from tests.analysis.fleet.simulated_fleet import Fleet
from tests.app.live.simulated import arrivals, coded


class Replay:
    """What the agents of the hosts of one relay send, window by window."""

    def __init__(self, fleet: Fleet, ranks: range, statuses: dict[int, RingStatus]) -> None:
        self.per_host = fleet.simulated.config.ranks_per_host
        self.hosts = [
            range(h, min(h + self.per_host, ranks.stop)) for h in range(ranks.start, ranks.stop, self.per_host)
        ]
        self.rings = [tuple(statuses[rank] for rank in mine) for mine in self.hosts]
        self.tables: dict[str, tuple[pa.Table, np.ndarray, np.ndarray]] = {}
        for kind in TABLES:
            if kind in fleet.tables:
                table, owners = fleet.tables[kind]
                first, last = int(fleet.bounds[kind][ranks.start]), int(fleet.bounds[kind][ranks.stop])
                part = table.slice(first, last - first)
                self.tables[kind] = (part, owners[first:last], arrivals(kind, part).to_numpy())

    def batches(self, seq: int, since_ns: int, until_ns: int) -> list[Batch]:
        """Everything that was written in a window, one batch a host."""
        parts: list[dict[str, pa.Table]] = [{} for _ in self.hosts]
        for kind, (table, owners, when) in self.tables.items():
            now = np.flatnonzero((when >= since_ns) & (when < until_ns))
            part, whose = table.take(pa.array(now)), owners[now]
            rows = coded(kind, part, 0)
            place = rows.schema.get_field_index("position")
            rows = rows.set_column(place, rows.schema.field("position"), part.column("position").cast(pa.uint64()))
            ring = pa.array((whose % self.per_host).astype(np.uint16))
            rows = rows.set_column(0, rows.schema.field(0), ring).combine_chunks()
            cuts = np.searchsorted(whose, [mine.start for mine in self.hosts] + [self.hosts[-1].stop]).tolist()
            for number, (first, last) in enumerate(itertools.pairwise(cuts)):
                if last > first:
                    parts[number][kind] = rows.slice(first, last - first)
        found = []
        for mine, rings, tables in zip(self.hosts, self.rings, parts, strict=True):
            count = sum(table.num_rows for table in tables.values())
            key = BatchKey(host=f"sim{mine.start // self.per_host}", boot="sim", seq=seq, made_ns=until_ns, rows=count)
            found.append(Batch(key=key, rings=rings, tables=tables, agent="bench"))
        return found


def repeated_measures(
    measures: pa.Table, copy: int, fleet: Fleet, shared_comms: pa.Array, at_fault: list[int]
) -> pa.Table:
    """Measures of a copy, as `repeated` copies summaries. Only the first has somebody who is slow."""
    if not copy:
        return measures
    dp_ranks = fleet.simulated.config.dp
    rows = measures.filter(pc.invert(pc.is_in(measures.column("rank"), pa.array(at_fault, pa.uint32()))))
    for rank in at_fault:
        # What is sent to it is slow, too.
        for comm in fleet.bare(rank).communicators:
            to = pc.and_(
                pc.equal(rows.column("comm"), pa.scalar(comm.hash, pa.uint64())),
                pc.equal(rows.column("peer"), comm.rank),
            )
            rows = rows.filter(pc.invert(pc.and_(to, pc.not_equal(rows.column("what"), int(What.GPU)))))
    comm, peer, what = rows.column("comm"), rows.column("peer"), rows.column("what")
    shared = pc.is_in(comm, shared_comms)
    columns = {name: rows.column(name) for name in MEASURES.names}
    columns["rank"] = pc.add(rows.column("rank"), pa.scalar(copy * fleet.world, pa.uint32()))
    fresh = pc.bit_wise_xor(comm, pa.scalar(copy << 32, pa.uint64()))
    none = pc.or_(shared, pc.equal(comm, pa.scalar(0, pa.uint64())))
    columns["comm"] = pc.if_else(none, comm, fresh)
    moved = pc.if_else(shared, pc.add(peer, pa.scalar(copy * dp_ranks, pa.uint32())), peer)
    on_host = pc.add(peer, pa.scalar(copy * fleet.world, pa.uint32()))
    columns["peer"] = pc.if_else(pc.equal(what, pa.scalar(int(What.HOST), pa.uint8())), on_host, moved)
    return pa.table(columns, schema=MEASURES)
