"""Relays: summaries of all ranks, raw rows of suspects; bytes at each tier and time by stage of a simulated fault.

`python -m tests.bench.hierarchy [--topology T10240] [--fault nic_down] [--rank N] [--times 1]`
`python -m tests.bench.hierarchy --topology T102400 --times 10`: judge the summaries of ten times as many ranks as well.

A relay has 256 hosts. It sees raw rows, makes summaries of them, and sends these on as Arrow IPC with zstd; the centre
merges them and looks for what stands; raw rows of the suspects are fetched and diagnosed. With `--times N` the
summaries are repeated for N times as many data-parallel replicas: merged and judged, nothing is fetched. CPU seconds.
"""

from __future__ import annotations

import argparse
import io
import resource
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from mycroft.analysis import diagnose
from mycroft.analysis.fleet import Window, merge, partial
from mycroft.analysis.fleet.summaries import OP_STATES, SUMMARY, find_suspects, summarise
from mycroft.loaders.memory import load_traces
from mycroft.tracer import export_trace
from mycroft.tracer.simulator import truth
from tests.analysis.fleet.pieces import TablePiece
from tests.analysis.fleet.simulated_fleet import Fleet, small_fleet

RECORD_BYTES = 64
HOSTS_PER_RELAY = 256
WHOLE = Window(0, 1 << 62)


class Clock:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._since = time.process_time()

    def lap(self, stage: str) -> None:
        now = time.process_time()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._since
        self._since = now


def on_the_wire(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return sink.getvalue()


def repeated(summaries: pa.Table, times: int, *, world: int, dp_ranks: int) -> pa.Table:
    """Summaries of a job of `times` as many data-parallel replicas. Communicators of a replica are new in each copy."""
    sizes = summaries.column("comm_size")
    shared = pc.equal(sizes, dp_ranks)
    copies = []
    for copy in range(times):
        fresh = pc.bit_wise_xor(summaries.column("comm"), pa.scalar(copy << 32, pa.uint64()))
        columns = {name: summaries.column(name) for name in summaries.schema.names}
        columns["rank"] = pc.add(summaries.column("rank"), pa.scalar(copy * world, pa.uint32()))
        columns["comm"] = pc.if_else(shared, summaries.column("comm"), fresh)
        moved = pc.add(summaries.column("comm_rank"), pa.scalar(copy * dp_ranks, pa.uint32()))
        columns["comm_rank"] = pc.if_else(shared, moved, summaries.column("comm_rank"))
        columns["comm_size"] = pc.if_else(shared, pa.scalar(dp_ranks * times, pa.uint32()), sizes)
        copies.append(pa.table(columns, schema=summaries.schema))
    return pa.concat_tables(copies)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topology", default="T10240")
    parser.add_argument("--fault", default="nic_down")
    parser.add_argument("--rank", type=int, default=5003)
    parser.add_argument("--times", type=int, default=1)
    arguments = parser.parse_args()
    clock = Clock()
    fleet = small_fleet(
        arguments.fault,
        topology=arguments.topology,
        rank=arguments.rank,
        ranks_per_relay=HOSTS_PER_RELAY * 8,
        microbatches=2,
        interval_ns=5e8,
    )
    rows = {kind: table.num_rows for kind, (table, _) in fleet.tables.items()}
    clock.lap("simulate")
    parts, sent = relay_tier(fleet, clock)
    merged = merge(SUMMARY, [pa.ipc.open_stream(data).read_all() for data in parts])
    clock.lap("merge")
    suspects = find_suspects(merged, at_ns=fleet.last_ns)
    clock.lap("find suspects")
    print(f"{fleet.world:,} ranks, {len(parts)} relays, {arguments.fault} at rank {arguments.rank}; rows {rows}")
    raw = sum(rows.values()) * RECORD_BYTES
    print(f"tier 1, in rings and relays: {raw / 1e6:,.0f} MB of records")
    each = sent / merged.num_rows
    print(f"tier 2, to the centre: {merged.num_rows:,} summaries, {sent / 1e6:,.2f} MB, {each:.1f} B each")
    ends = len(suspects.standing)
    print(f"{suspects.ranks_waiting:,} ranks wait, {ends} operations at the end; fetch {len(suspects.ranks)} ranks")
    right = judge(fleet, suspects.ranks, clock)
    judge_many(merged, fleet, arguments.times, clock, expected=set(suspects.ranks))
    print("CPU s by stage: " + ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in clock.stages.items()))
    print(f"largest memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    return 0 if right else 1


def relay_tier(fleet: Fleet, clock: Clock) -> tuple[list[bytes], int]:
    parts: list[bytes] = []
    for ranks in fleet.relays:
        dimensions = fleet.dimensions(ranks)
        operations = TablePiece(fleet.operations(ranks))
        clock.lap("make rows")
        summary = summarise(partial(OP_STATES, operations, WHOLE), dimensions, at_ns=fleet.last_ns)
        parts.append(on_the_wire(summary))
        clock.lap("summarise, all relays")
    return parts, sum(len(part) for part in parts)


def judge(fleet: Fleet, ranks: tuple[int, ...], clock: Clock) -> bool:
    import tempfile
    from pathlib import Path

    traces = fleet.traces(ranks)
    clock.lap("make rows")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pulled.parquet"
        export_trace(traces, path, format_="parquet")
        print(f"fetched: {len(ranks)} ranks ({len(ranks) / fleet.world:.2%}), {path.stat().st_size / 1e6:,.2f} MB")
    clock.lap("fetch")
    with load_traces(traces, name="fetched") as store:
        verdict = diagnose(store, at=fleet.last_ns)
    clock.lap("diagnose")
    cause = truth(fleet.simulated)["root_cause"]
    said = verdict.findings[0] if verdict.findings else None
    named = list(said.root_cause.ranks) if said is not None else []
    # One of several candidates, the right one among them, is not wrong; to name another is.
    how = (
        "right" if named == cause["ranks"] else "right, one of several" if set(cause["ranks"]) < set(named) else "WRONG"
    )
    print(f"verdict: {verdict.status}, {verdict.summary[:200]}")
    print(f"truth: {cause}; named {named} {said.category if said else ''} {said.confidence if said else ''}: {how}")
    return how != "WRONG"


def judge_many(merged: pa.Table, fleet: Fleet, times: int, clock: Clock, *, expected: set[int]) -> None:
    if times <= 1:
        return
    config = fleet.simulated.config
    many = repeated(merged, times, world=fleet.world, dp_ranks=config.dp)
    step = fleet.ranks_per_relay * 3
    parts = [many.slice(first, step) for first in range(0, many.num_rows, step)]
    size = sum(len(on_the_wire(part)) for part in parts)
    clock.lap("make summaries of many")
    together = merge(SUMMARY, parts)
    clock.lap("merge of many")
    suspects = find_suspects(together, at_ns=fleet.last_ns)
    clock.lap("find suspects of many")
    same = expected <= set(suspects.ranks)
    print(
        f"{suspects.ranks_told:,} ranks, summaries only: {together.num_rows:,} rows of {len(parts)} relays, "
        f"{size / 1e6:,.1f} MB; {suspects.ranks_waiting:,} wait, {len(suspects.standing)} operations at the end, "
        f"{len(suspects.ranks):,} ranks would be fetched, {suspects.left_out:,} left out; "
        f"suspects of the smaller job among them: {same}"
    )


if __name__ == "__main__":
    sys.exit(main())
