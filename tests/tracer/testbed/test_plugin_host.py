"""The testbed as a host of the plugin: every version of NCCL's ABI gives the same trace of the same job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from mycroft.tracer import open_trace, plugin_path
from tests.tracer.tools import clean_environment

# A process of its own: a plugin is set up once per process.
PROGRAM = """
import sys
from mycroft.tracer import _testbed
from tests.tracer.testbed.ranks import engines, members, on_every_rank, totals
with engines(2, plugin=sys.argv[1], abi=int(sys.argv[2]), slot_bytes=1024) as made:
    comms = on_every_rank(2, lambda r: made[r].open("pair", hash_=77, rank=r, members=members(made)))
    buffers = [_testbed.Buffer(9000) for _ in range(2)]
    for kind in ("all_reduce", "reduce_scatter"):
        ops = on_every_rank(2, lambda r: made[r].enqueue(comms[r], kind, buffers[r], buffers[r], elements=4001))
        on_every_rank(2, lambda r: made[r].wait(ops[r], 60_000_000_000))
    totals(made)
"""


@pytest.mark.parametrize("abi", range(1, 8))
def test_every_abi_gives_the_same_trace(tmp_path: Path, abi: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(plugin_path()), str(abi)],
        capture_output=True,
        text=True,
        env={**clean_environment(), "MYCROFT_DIR": str(tmp_path), "MYCROFT_RING_MB": "4"},
        cwd=Path(__file__).resolve().parents[3],
    )
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = (p for p in tmp_path.iterdir() if p.name != "control")
    trace = open_trace(path)
    assert sorted((c.rank, c.name, c.hash) for c in trace.communicators) == [(0, "pair", 77), (1, "pair", 77)]
    flow = pl.from_arrow(trace.tables["flow"])
    assert isinstance(flow, pl.DataFrame)
    sides = flow.group_by(pl.col("dir").cast(pl.String)).agg(pl.col("slices").sum(), pl.col("bytes").sum(), pl.len())
    send, recv = (sides.filter(pl.col("dir") == side).row(0)[1:] for side in ("send", "recv"))
    assert send == recv
    # Two operations, two ranks, two channels; ABI 1 counts steps, of which a slice has two.
    slices, size, halves = send
    assert halves == 8
    assert size == 4001 * 4 * 4
    assert slices == 8 * (8 if abi == 1 else 4)
    op = pl.from_arrow(trace.tables["op"])
    assert isinstance(op, pl.DataFrame)
    newest = op.unique("op_id", keep="last")
    assert newest["op_state"].cast(pl.String).to_list() == ["completed"] * 4
    assert newest["flows"].to_list() == [4] * 4
