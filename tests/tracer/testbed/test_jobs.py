"""Jobs of real processes: healthy, broken, interrupted. Few, because each takes seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from mycroft.app.cli import main
from mycroft.tracer.simulator import simulate, simulated_traces, simulation
from mycroft.tracer.testbed import Outcome, TestbedError, run_job, scenario
from mycroft.tracer.testbed.layout import Layout
from tests.tracer.frames import Frames, frames
from tests.tracer.signatures import signature

REPOSITORY = Path(__file__).resolve().parents[3]
COLLECTIVES = {"all_reduce", "reduce_scatter", "all_gather", "send", "recv"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Frames]:
    """Sixteen ranks on four hosts, as simulated topology T16."""
    folder = tmp_path_factory.mktemp("healthy") / "run"
    outcome = run_job(replace(scenario("healthy16"), iterations=5), folder)
    return outcome, frames(folder / "trace.parquet")


@pytest.fixture(scope="module")
def simulated() -> Frames:
    return frames(simulated_traces(simulate(simulation("none", topology="T16", at_s=6.0, after_s=2.0))))


def out_of_order(found: Frames) -> int:
    c = pl.col
    send = (c("done") <= c("moved")) & (c("moved") <= c("ready")) & (c("ready") <= c("chunks_total"))
    recv = (
        (c("done") <= c("ready"))
        & (c("ready") <= c("moved"))
        & (c("moved") <= c("posted"))
        & (c("posted") <= c("chunks_total"))
    )
    return found.state.filter(~pl.when(c("dir") == "send").then(send).otherwise(recv)).height


def order_of_operations(found: Frames, rank: int) -> list[tuple[str, str]]:
    """Kinds of groups and operations of a rank's second iteration's end: from the first reduce_scatter on."""
    ops = found.op.filter((pl.col("rank") == rank) & ~pl.col("group").str.starts_with("default")).sort("enq_ts")
    rows = [(group.rstrip("0123456789_"), kind) for group, kind in ops.select("group", "op_kind").iter_rows()]
    first = next(i for i, (_, kind) in enumerate(rows) if kind == "reduce_scatter")
    return [row for row in rows[first:] if row[0] == "dp"][:6]


def test_a_healthy_job_ends_by_itself_with_everything_done(healthy: tuple[Outcome, Frames]) -> None:
    outcome, found = healthy
    assert (outcome.ended, outcome.iterations) == ("finished", 5)
    assert set(outcome.exits.values()) <= {0}
    assert outcome.truth["category"] == "healthy"
    assert found.op["rank"].n_unique() == 16
    assert set(found.op["op_state"].unique().to_list()) == {"completed"}
    sides = found.flow.group_by("dir").agg(pl.col("slices").sum(), pl.col("bytes").sum()).sort("dir")
    assert sides.row(0)[1:] == sides.row(1)[1:]
    assert found.flow["partial"].sum() == 0


def test_testbed_and_simulator_write_the_same_kinds_of_records_in_the_same_order(
    healthy: tuple[Outcome, Frames], simulated: Frames
) -> None:
    found = healthy[1]
    for one in (found, simulated):
        assert out_of_order(one) == 0
        assert set(one.op["op_kind"].unique().to_list()) == COLLECTIVES
        assert min(one.state.height, one.flow.height, one.op.height, one.heartbeat.height) > 0
    for rank in (0, 5, 15):
        assert order_of_operations(found, rank) == order_of_operations(simulated, rank)
    # Groups inside a host make no flows in either, those that cross hosts do.
    for one in (found, simulated):
        crossing = set(one.flow["group"].str.extract(r"^([a-z]+)\d").unique().to_list())
        assert "tp" not in crossing
        assert {"dp", "pp"} <= crossing
        tensor = one.op.filter(pl.col("group").str.starts_with("tp"))
        assert tensor["flows"].sum() == 0
        assert tensor.filter(pl.col("op_state") == "completed")["kstart_ts"].null_count() == 0


def test_experts_exchange_in_both_passes_and_evaluation_runs_forward_only(tmp_path: Path) -> None:
    chosen = scenario("moe")
    work = replace(chosen.work, evaluate_every=2, microbatches=2, kernel_ms=0.5)
    assert run_job(replace(chosen, work=work, iterations=3), tmp_path / "run").ended == "finished"
    found = frames(tmp_path / "run/trace.parquet")
    per_rank = found.op.filter(pl.col("op_kind") == "all_to_all").group_by("rank").len()
    # Three iterations of two forward and two backward passes, one evaluation of two forward passes.
    assert per_rank["len"].to_list() == [3 * 4 + 2] * 8
    losses = found.op.filter((pl.col("group") == "default_pg") & (pl.col("bytes") == 4)).group_by("rank").len()
    assert losses["len"].to_list() == [2] * 8  # of the evaluation, and the barrier at the end
    sides = found.flow.filter(pl.col("op_kind") == "all_to_all").group_by("dir").agg(pl.col("slices", "bytes").sum())
    assert sides.height == 2
    assert sides["slices"].n_unique() == sides["bytes"].n_unique() == 1


def test_a_killed_rank_stops_the_job_and_only_its_heart_stands(tmp_path: Path) -> None:
    chosen = replace(scenario("killed"), rank=3, at_iteration=4, patience_s=4.0, stacks=False)
    outcome = run_job(chosen, tmp_path / "run")
    assert (outcome.ended, outcome.exits) == ("stood", {3: -9})
    groups = {group.name: group.ranks for group in chosen.layout.groups()}
    shown, words = signature(frames(tmp_path / "run/trace.parquet"), outcome.truth, 3, [2, 3], groups)
    assert shown, words
    truth = json.loads((tmp_path / "run/truth.json").read_text())
    assert truth["root_cause"] == {"ranks": [3], "hosts": ["node1"]}
    report = (tmp_path / "run/logs/node1.launcher.log").read_text()
    assert "failed (exitcode: -9) local_rank: 1" in report
    assert "Signal 9 (SIGKILL) received by PID" in report


def marked(mark: str) -> list[tuple[str, bytes]]:
    """Processes with a mark in their arguments; those that only wait to be reaped are gone."""
    found: list[tuple[str, bytes]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line, state = (entry / "cmdline").read_bytes(), (entry / "stat").read_text()
            except OSError:
                continue
            if mark.encode() in line and state.rpartition(")")[2].split()[0] != "Z":
                found.append((entry.name, line))
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process_and_no_memory(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "mycroft.app.cli", "testbed", "run", "none", "--layout", "2x1x2", "--hosts", "2"]
    run = subprocess.Popen(
        [*command, "--iterations", "100000", "--out", str(tmp_path / "run")],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    mark = f"mycroft-testbed-{run.pid}-"
    assert run.stderr is not None
    assert "4 ranks on 2 hosts" in run.stderr.readline()
    log = tmp_path / "run/logs/rank0/stderr.log"
    while not (log.exists() and "iteration 1 " in log.read_text()):
        assert run.poll() is None
    janitors = [pid for pid, line in marked(mark) if b"janitor" in line]
    assert len(janitors) == 1
    assert len(marked(mark)) >= 3  # it and two agents, beside their ranks
    run.send_signal(number)
    run.communicate()
    assert run.returncode == (130 if number == signal.SIGINT else -9)
    if number == signal.SIGKILL:
        # The kernel ends the others at once; the memory goes when the janitor has done its work, which takes a second.
        while janitors[0] in [pid for pid, _ in marked(mark)]:
            os.sched_yield()
    assert [line for _, line in marked(mark)] == []
    assert [path.name for path in Path("/dev/shm").glob(f"{mark}*")] == []


def test_scenarios_that_cannot_be_run_are_said_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TestbedError, match="needs groups that cross hosts"):
        run_job(replace(scenario("nic_down"), layout=Layout(tp=2, dp=2, hosts=1)), tmp_path / "a")
    with pytest.raises(TestbedError, match="2 to 64 processes"):
        run_job(replace(scenario("none"), layout=Layout(tp=8, dp=16, hosts=16)), tmp_path / "b")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TestbedError, match="torch is not installed"):
        run_job(replace(scenario("none"), torch=True), tmp_path / "c")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("")
    with pytest.raises(TestbedError, match="not empty"):
        run_job(scenario("none"), tmp_path / "full")
    assert main(["testbed", "run", "meteor"]) == 2
    assert "scenario 'meteor'" in capsys.readouterr().err
