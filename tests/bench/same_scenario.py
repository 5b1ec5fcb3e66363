"""The same 16-rank job in testbed and simulator: records by kind, order of stages, counters; prints a table.

`python -m tests.bench.same_scenario`
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl

from mycroft.tracer.simulator import simulate, simulated_traces, simulation
from mycroft.tracer.testbed import run_job, scenario
from tests.tracer.frames import Frames, frames

ITERATIONS = 12


def wrong(found: Frames, side: str) -> str:
    c = pl.col
    rows = found.state.filter(c("dir") == side)
    if side == "send":
        good = (c("done") <= c("moved")) & (c("moved") <= c("ready")) & (c("ready") <= c("chunks_total"))
    else:
        good = (
            (c("done") <= c("ready"))
            & (c("ready") <= c("moved"))
            & (c("moved") <= c("posted"))
            & (c("posted") <= c("chunks_total"))
        )
    return f"{rows.filter(~good).height} of {rows.height}"


def describe(found: Frames, iterations: int) -> dict[str, str]:
    c = pl.col
    op = found.op.filter(~c("group").str.starts_with("default"))
    rows: dict[str, str] = {}
    for kind in ("all_reduce", "reduce_scatter", "all_gather", "send", "recv"):
        rows[f"`op` {kind}, per rank and iteration"] = f"{op.filter(c('op_kind') == kind).height / 16 / iterations:.2f}"
    for side in ("send", "recv"):
        halves = found.flow.filter((c("dir") == side) & ~c("group").str.starts_with("default")).height
        rows[f"`flow` {side} rows, per rank and iteration"] = f"{halves / 16 / iterations:.2f}"
    seconds = (found.heartbeat["ts"].max() - found.heartbeat["ts"].min()).total_seconds()
    rows["`state` rows, per rank and second"] = f"{found.state.height / 16 / max(seconds, 1):.1f}"
    rows["`heartbeat` rows, per rank and second"] = f"{found.heartbeat.height / 16 / max(seconds, 1):.2f}"
    rows["send rows out of order done <= moved <= ready <= total"] = wrong(found, "send")
    rows["recv rows out of order consumed <= flushed <= received <= posted <= total"] = wrong(found, "recv")
    lead = found.state.filter((c("dir") == "send") & (c("ready") > c("moved") + 1)).height
    rows["send rows with ready > moved + 1"] = str(lead)
    slices = found.flow.filter(~c("partial")).group_by("dir").agg(c("slices").sum(), c("bytes").sum()).sort("dir")
    recv, send = slices.row(0), slices.row(1)
    rows["slices sent = received, bytes sent = received (finished flows)"] = (
        f"{send[1] == recv[1]}, {send[2] == recv[2]}"
    )
    flows = sorted(
        {g.rstrip("0123456789") for g in found.flow["group"].unique().to_list() if not g.startswith("default")}
    )
    rows["groups with flows"] = ", ".join(flows)
    rows["slices of a reduce_scatter flow"] = str(
        found.flow.filter(c("op_kind") == "reduce_scatter")["slices"].unique().sort().to_list()
    )
    rows["slices of a send flow"] = str(found.flow.filter(c("op_kind") == "send")["slices"].unique().sort().to_list())
    return rows


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as folder:
        outcome = run_job(replace(scenario("healthy16"), iterations=ITERATIONS), Path(folder) / "run")
        real = describe(frames(Path(folder) / "run" / "trace.parquet"), outcome.iterations)
    job = simulate(simulation("none", topology="T16", at_s=10.0, after_s=0.0))
    virtual = describe(frames(simulated_traces(job)), job.counts["iterations"])
    print("| | testbed | simulator |\n|---|---|---|")
    for name, value in real.items():
        print(f"| {name} | {value} | {virtual[name]} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
