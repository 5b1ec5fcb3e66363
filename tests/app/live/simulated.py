"""A simulated job as its agents would have sent it: batches of each host, second by second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from mycroft.tracer.agent.batch import Batch, BatchKey, RingStatus, schema_of
from mycroft.tracer.names import CODED, FLAGS
from mycroft.tracer.simulator import simulate, simulated_traces, simulation
from mycroft.tracer.trace import ProcessState, Trace

SECOND = 1_000_000_000
TIME = {"state": "ts", "flow": "end_ts", "heartbeat": "ts", "gap": "ts", "foreign": "ts"}


def coded(kind: str, table: pa.Table, first: int) -> pa.Table:
    """A table with names as the ring has it: codes, numbers for flags, positions from `first` on."""
    schema = schema_of(kind)
    columns = []
    for field in schema:
        named = CODED[field.name][0] if field.name in CODED else field.name
        if field.name == "ring":
            columns.append(pa.repeat(pa.scalar(0, pa.uint16()), table.num_rows))
        elif field.name == "position":
            columns.append(pa.array(range(first, first + table.num_rows), pa.uint64()))
        elif field.name in CODED:
            words = pa.array(CODED[field.name][1])
            codes = pc.index_in(table.column(named).cast(pa.string()), words).cast(pa.uint8())
            columns.append(pc.fill_null(codes, 255))
        elif field.name in FLAGS:
            columns.append(table.column(named).cast(pa.uint8()))
        else:
            columns.append(table.column(named).cast(field.type))
    return pa.table(columns, schema=schema)


def arrivals(kind: str, table: pa.Table) -> pa.ChunkedArray:
    """When each row was written, ns: an operation at its end, one that stays open at its beginning."""
    if kind == "op":
        return pc.add(table.column("enq_ts").cast(pa.int64()), pc.fill_null(table.column("dur_ns").cast(pa.int64()), 0))
    return table.column(TIME[kind]).cast(pa.int64())


class Job:
    """The traces of a simulated job, told second by second. Their times are moved so that the end is `until_ns`."""

    def __init__(self, fault: str, *, rank: int, until_ns: int, topology: str = "T16", after_s: float = 14.0) -> None:
        self.simulated = simulate(simulation(fault, topology=topology, rank=rank, after_s=after_s, settings={}))
        self.traces = simulated_traces(self.simulated)
        self.first = min(pc.min(trace.tables["heartbeat"].column("ts")).value for trace in self.traces)
        self.last = max(pc.max(trace.tables["heartbeat"].column("ts")).value for trace in self.traces)
        self.shift = until_ns - self.last

    def batches(self, *, first_ns: int, step_ns: int = SECOND) -> Iterator[tuple[int, list[Batch]]]:
        """Yield (time, one batch per host): all of the first `first_ns` at once, then each step."""
        hosts = sorted({trace.process.host for trace in self.traces})
        told: dict[tuple[str, str], int] = {}
        positions = dict.fromkeys((trace.name for trace in self.traces), 0)
        for seq, at in enumerate(range(self.first + first_ns, self.last + step_ns, step_ns), 1):
            found = []
            for host in hosts:
                mine = [trace for trace in self.traces if trace.process.host == host]
                found.append(self._batch(host, seq, at, mine, told, positions))
            yield at + self.shift, found

    def _batch(
        self,
        host: str,
        seq: int,
        at: int,
        traces: list[Trace],
        told: dict[tuple[str, str], int],
        positions: dict[str, int],
    ) -> Batch:
        rings: list[RingStatus] = []
        parts: dict[str, list[pa.Table]] = {}
        for index, trace in enumerate(traces):
            for kind in ("state", "flow", "op", "heartbeat"):
                table = trace.tables[kind]
                when = arrivals(kind, table)
                since = told.get((trace.name, kind), -1)
                fresh = table.filter(pc.and_(pc.greater(when, since), pc.less_equal(when, at)))
                told[trace.name, kind] = at
                if fresh.num_rows:
                    rows = coded(kind, self._moved(fresh), positions[trace.name])
                    positions[trace.name] += fresh.num_rows
                    ring = pa.repeat(pa.scalar(index, pa.uint16()), rows.num_rows)
                    parts.setdefault(kind, []).append(rows.set_column(0, rows.schema.field(0), ring))
            beats = arrivals("heartbeat", trace.tables["heartbeat"])
            last = pc.max(beats.filter(pc.less_equal(beats, at))).as_py()
            gone = pc.max(beats).as_py() < at - 2 * SECOND
            comms = tuple(
                replace(comm, opened_ns=comm.opened_ns + self.shift, last_enq_ns=(last or at) + self.shift)
                for comm in trace.communicators
            )
            rings.append(
                RingStatus(
                    key=f"{trace.process.rank:04}",
                    process=trace.process,
                    communicators=comms,
                    last_tick_ns=None if last is None else last + self.shift,
                    state=ProcessState(exists=not gone, letter="" if gone else "S"),
                    job="simulated",
                    next=positions[trace.name],
                )
            )
        tables = {kind: pa.concat_tables(found).combine_chunks() for kind, found in parts.items()}
        rows = sum(table.num_rows for table in tables.values())
        key = BatchKey(host=host, boot="sim", seq=seq, made_ns=at + self.shift, rows=rows)
        return Batch(key=key, rings=tuple(rings), tables=tables)

    def _moved(self, table: pa.Table) -> pa.Table:
        for number, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                moved = pc.add(table.column(number).cast(pa.int64()), self.shift).cast(field.type)
                table = table.set_column(number, field, moved)
        return table
