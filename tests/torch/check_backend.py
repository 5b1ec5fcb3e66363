"""The testbed as a backend of torch.distributed. Needs torch, so it is not among the tests that always run:

    python -m pytest tests/torch/check_backend.py

The recorder is compiled the first time, which takes a minute, a compiler and the header of nlohmann-json.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
import torch.distributed as dist

from mycroft.loaders import load, open_store
from mycroft.tracer import _testbed
from mycroft.tracer.testbed import run_job, scenario, torch_backend
from tests.tracer.frames import frames

WORLD = 3


@pytest.fixture(scope="module", autouse=True)
def recorder() -> None:
    assert torch_backend.load_recorder() == ""


def on_all_ranks(folder: Path, body: Callable[[int], None]) -> None:
    """Run `body` in one process per rank; its failure fails the test."""
    children: list[int] = []
    for rank in range(WORLD):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                engine = _testbed.Engine(rank=rank)
                torch_backend.use(engine, host=f"host{rank}")
                torch_backend.register()
                store = dist.FileStore(str(folder / "store"), WORLD)
                dist.init_process_group("mycroft", store=store, rank=rank, world_size=WORLD)
                body(rank)
                dist.barrier()
                (folder / f"trace_rank_{rank}").write_bytes(torch_backend.dump())
                engine.drain(10_000_000_000)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * WORLD


def test_every_operation_gives_what_torch_says_it_does(tmp_path: Path) -> None:
    def body(rank: int) -> None:
        total = torch.full((10,), float(rank + 1))
        dist.all_reduce(total)
        assert total.tolist() == [6.0] * 10
        gathered = torch.zeros(30)
        dist.all_gather_into_tensor(gathered, torch.full((10,), float(rank)))
        assert gathered.tolist() == [0.0] * 10 + [1.0] * 10 + [2.0] * 10
        listed = [torch.zeros(2, 2) for _ in range(WORLD)]
        dist.all_gather(listed, torch.full((2, 2), float(rank)))
        assert [one.sum().item() for one in listed] == [0.0, 4.0, 8.0]
        part = torch.zeros(2)
        dist.reduce_scatter_tensor(part, torch.arange(6.0))
        assert part.tolist() == [6.0 * rank, 6.0 * rank + 3.0]
        mixed = torch.zeros(9)
        dist.all_to_all_single(mixed, torch.arange(9.0) + 100 * rank)
        assert mixed.tolist() == [float(100 * s + 3 * rank + k) for s in range(3) for k in range(3)]
        told = torch.full((3,), float(rank))
        dist.broadcast(told, 1)
        assert told.tolist() == [1.0] * 3
        pair = dist.new_group([0, 2], group_desc="pair")
        if rank != 1:
            both = torch.ones(5)
            dist.all_reduce(both, group=pair)
            assert both.tolist() == [2.0] * 5
        if rank == 0:
            dist.send(torch.full((4,), 7.0), 1)
        if rank == 1:
            received = torch.zeros(4)
            dist.recv(received, 0)
            assert received.tolist() == [7.0] * 4
        with pytest.raises(TypeError, match="float32"):
            dist.all_reduce(torch.zeros(1, dtype=torch.int64))
        with pytest.raises(ValueError, match="only sum"):
            dist.all_reduce(torch.zeros(1), op=dist.ReduceOp.MAX)

    on_all_ranks(tmp_path, body)
    (tmp_path / "store").unlink()
    load([tmp_path], tmp_path / "trace.duckdb")
    with open_store(tmp_path / "trace.duckdb") as store:
        kinds = store.frame("SELECT op_kind, count(*) AS n FROM coll_ops GROUP BY 1 ORDER BY 1")
    counted = dict(kinds.iter_rows())
    # Rank 2 and rank 0 are in the pair as well; what was refused was not recorded.
    assert (counted["all_reduce"], counted["all_to_all"], counted["broadcast"]) == (3 + 2, 3, 3)
    assert (counted["send"], counted["recv"]) == (1, 1)


def test_dumps_and_trace_of_one_broken_job_tell_of_the_same_operations(tmp_path: Path) -> None:
    chosen = replace(scenario("absent"), torch=True, rank=5, at_iteration=4, patience_s=4.0, stacks=False)
    outcome = run_job(replace(chosen, layout=replace(chosen.layout, hosts=2)), tmp_path / "run")
    assert outcome.ended == "stood"
    dumps = sorted(path.name for path in (tmp_path / "run/flight_recorder").iterdir())
    assert dumps == [f"testbed_trace_rank_{rank}" for rank in range(8)]
    load([tmp_path / "run/flight_recorder"], tmp_path / "dumps.duckdb")
    with open_store(tmp_path / "dumps.duckdb") as store:
        dumped = store.frame(
            """
            SELECT o.rank, count(*) AS n
            FROM coll_ops AS o
            WHERE o.op_kind NOT IN ('send', 'recv')
            GROUP BY 1
            ORDER BY 1
            """
        )
    traced = frames(tmp_path / "run/trace.parquet").op.filter(~pl.col("p2p"))
    newest = traced.unique(["rank", "group", "op_seq"]).group_by("rank").len().sort("rank")
    assert dumped["n"].to_list() == newest["len"].to_list()
