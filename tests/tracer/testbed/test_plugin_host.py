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

# Shapes of every kind and algorithm, drawn by a seed; most sizes divide neither by ranks nor by slots.
MANY = """
import random, sys
from mycroft.tracer import _testbed
from tests.tracer.testbed.ranks import engines, members, on_every_rank, totals
draw = random.Random(7)
with engines(5, plugin=sys.argv[1], slot_bytes=512) as made:
    for number in range(int(sys.argv[2])):
        ranks, channels = draw.randint(2, 5), draw.randint(1, 3)
        kind = draw.choice(["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"])
        algo, elements = draw.choice(["RING", "TREE"]), draw.randint(1, 2999)
        name, ends, connections = f"g{number}", members(made)[:ranks], draw.randint(1, 2)
        comms = on_every_rank(ranks, lambda r: made[r].open(
            name, hash_=100 + number, rank=r, members=ends, channels=channels, connections=connections))
        buffers = [_testbed.Buffer(elements * ranks) for _ in range(ranks)]
        ops = on_every_rank(ranks, lambda r: made[r].enqueue(
            comms[r], kind, buffers[r], buffers[r], elements=elements, algo=algo, peer=ranks - 1))
        on_every_rank(ranks, lambda r: made[r].wait(ops[r], 60_000_000_000))
    print(sum(totals(made)[name] for name in ("bytes_sent",)))
"""


def test_every_slice_and_byte_that_a_trace_says_was_sent_it_says_was_received(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(plugin_path()), "40"],
        capture_output=True,
        text=True,
        env={**clean_environment(), "MYCROFT_DIR": str(tmp_path), "MYCROFT_RING_MB": "4"},
        cwd=Path(__file__).resolve().parents[3],
    )
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = (p for p in tmp_path.iterdir() if p.name != "control")
    trace = open_trace(path)
    names = pl.DataFrame(
        [(c.comm, c.name, c.rank) for c in trace.communicators], schema=["comm", "group", "rank"], orient="row"
    )
    flow = pl.from_arrow(trace.tables["flow"])
    assert isinstance(flow, pl.DataFrame)
    assert not flow["partial"].any()
    flow = flow.with_columns(pl.col("comm").cast(pl.Int64)).join(names, on="comm")
    assert flow["group"].n_unique() == 40
    send = pl.col("dir").cast(pl.String) == "send"
    edge = flow.select(
        "group",
        "channel",
        "slices",
        "bytes",
        send=send,
        source=pl.when(send).then("rank").otherwise("peer"),
        target=pl.when(send).then("peer").otherwise("rank"),
    )
    sums = edge.group_by("group", "channel", "source", "target", "send").agg(pl.col("slices", "bytes").sum())
    sent, received = (
        sums.filter(pl.col("send") == side).drop("send").sort("group", "channel", "source", "target")
        for side in (True, False)
    )
    assert sent.height > 200
    assert sent.equals(received)
    assert sent["bytes"].sum() == int(done.stdout)


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
