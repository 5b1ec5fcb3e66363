"""The simulator: repeatable, conserving, and broken exactly where it was told to be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.app.cli import main
from mycroft.tracer import _simulator, read_export
from mycroft.tracer.simulator import (
    FAULTS,
    Simulated,
    SimulatorError,
    export_tables,
    simulate,
    simulated_traces,
    simulation,
    truth,
)
from mycroft.tracer.simulator.simulate import healthy_prefix
from tests.tracer.frames import Frames, frames

QUICK = {"at_s": 12.0, "after_s": 14.0, "topology": "T16", "rank": 1}
HANGS = ["nic_down", "crash", "sigstop", "absent", "recv_nopost", "gpu_hang"]
SLOW = ["nic_bw", "pcie", "gpu_power", "slow_gpu20", "bg_compute", "bg_traffic", "qp_slow30"]


def config(**values: object) -> _simulator.Config:
    made = _simulator.Config()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def wrong_counters(found: Frames) -> int:
    """State rows whose counters do not stand in the order of the stages."""
    c = pl.col
    send = (c("done") <= c("moved")) & (c("moved") <= c("ready")) & (c("ready") <= c("chunks_total"))
    recv = (
        (c("done") <= c("ready"))
        & (c("ready") <= c("moved"))
        & (c("moved") <= c("posted"))
        & (c("posted") <= c("chunks_total"))
    )
    return found.state.filter(~pl.when(c("dir") == "send").then(send).otherwise(recv)).height


def shapes() -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries(
        {
            "tp": st.integers(1, 3),
            "pp": st.integers(1, 4),
            "dp": st.sampled_from([1, 2, 3, 4, 6]),
            "ranks_per_host": st.integers(1, 4),
            "microbatches": st.integers(1, 5),
            "channels": st.integers(1, 3),
            "tree": st.booleans(),
            "seed": st.integers(0, 1000),
        }
    )


@given(shapes(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_what_is_sent_is_received_and_all_of_it(shape: dict[str, object], experts: bool) -> None:
    made = config(**shape, ep=shape["dp"] if experts else 1)
    job = _simulator.Job(made)
    job.run(2)
    flow = {name: np.asarray(values) for name, values in job.take_rows()["flow"].items()}
    send = flow["send"] == 1
    assert flow["slices"][send].sum() == flow["slices"][~send].sum()
    assert flow["bytes"][send].sum() == flow["bytes"][~send].sum()
    assert send.sum() == (~send).sum()


def test_the_same_seed_gives_the_same_rows_and_another_one_does_not() -> None:
    def rows(seed: int) -> dict[str, dict[str, list[int]]]:
        done = simulate(simulation("nic_bw", seed=seed, **QUICK))
        return {kind: {name: np.asarray(v).tolist() for name, v in part.items()} for kind, part in done.rows.items()}

    assert rows(5) == rows(5)
    assert rows(5) != rows(6)


def test_a_fork_is_the_healthy_job_until_its_fault() -> None:
    prefix = healthy_prefix(simulation("none", **QUICK))
    healthy = frames(simulated_traces(simulate(simulation("none", **QUICK), prefix=prefix)))
    broken = frames(simulated_traces(simulate(simulation("gpu_hang", **QUICK), prefix=prefix)))
    at = pl.lit(_simulator.START_UTC_NS + 11_000_000_000)  # clocks of hosts differ by tens of ms
    for kind, stamp in (("op", "enq_ts"), ("state", "ts"), ("flow", "end_ts")):
        names = [n for n in getattr(healthy, kind).columns if n not in ("position", "op_id", "op_state", "dur_ns")]
        before = [
            getattr(f, kind)
            .filter(pl.col(stamp).cast(pl.Int64) < at)
            .select(names)
            .sort("rank", stamp, "channels" if kind == "op" else "channel", "peer")
            for f in (healthy, broken)
        ]
        assert before[0].height > 0
        assert before[0].equals(before[1])
    alone = frames(simulated_traces(simulate(simulation("gpu_hang", **QUICK))))
    assert alone.op.equals(broken.op)


@pytest.fixture(scope="module")
def healthy() -> Simulated:
    return simulate(simulation("none", **QUICK))


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "none"])
def test_every_fault_keeps_the_order_of_stages_and_harms_the_job(fault: str, healthy: Simulated) -> None:
    severity = 30.0 if fault == "proxy_delay" else 1.0
    done = simulate(simulation(fault, severity=severity, **QUICK))
    found = frames(simulated_traces(done))
    assert wrong_counters(found) == 0
    finished = done.counts["iterations"]
    if fault in HANGS:
        assert finished < healthy.counts["iterations"]
        open_ops = found.op.filter(pl.col("op_state") == "open")
        assert open_ops["rank"].n_unique() >= 15 - (fault == "crash") - (fault == "sigstop")
    elif fault in SLOW:
        healthy_ns = np.median(healthy.iteration_ns[-5:])
        assert np.median(done.iteration_ns[-4:]) > 1.02 * healthy_ns
    else:
        assert max(done.iteration_ns) > max(healthy.iteration_ns[3:]) + 0.4e9


@pytest.mark.parametrize("fault", ["nic_down", "nic_bw", "absent"])
def test_faults_of_a_mixture_of_experts_show_in_its_exchange(fault: str) -> None:
    healthy, broken = (
        simulate(simulation(name, rank=9, at_s=6.0, after_s=8.0, seed=2)) for name in ("moe", f"moe_{fault}")
    )
    assert broken.simulation.topology == "M128"
    found = frames(simulated_traces(broken))
    assert wrong_counters(found) == 0
    exchange = found.op.filter(pl.col("op_kind") == "all_to_all")
    assert exchange["group"].str.starts_with("ep").all()
    assert exchange["rank"].n_unique() == 128
    if fault == "nic_bw":
        late = pl.col("end_ts").cast(pl.Int64) > pl.lit(broken.injected_ns)
        own = (pl.col("rank") == 9) & (pl.col("dir") == "send") & late & (pl.col("op_kind") == "all_to_all")
        busy = [f.flow.filter(own)["net_busy_ns"].mean() for f in (frames(simulated_traces(healthy)), found)]
        assert busy[1] > 1.5 * busy[0]
    else:
        waits = found.op.filter(pl.col("op_state") == "open")
        assert waits["rank"].n_unique() >= 127
        assert broken.counts["iterations"] < healthy.counts["iterations"]
    if fault == "absent":
        # What never goes to the one that does not come holds up nothing that others send each other.
        under_way = (pl.col("dir") == "send") & (pl.col("done") < pl.col("moved"))
        assert found.state.filter((pl.col("idle_ms") > 5000) & under_way).is_empty()


def test_the_network_of_a_dead_link_keeps_what_was_handed_over() -> None:
    found = frames(simulated_traces(simulate(simulation("nic_down", **QUICK))))
    stuck = found.state.filter(
        (pl.col("idle_ms") > 5000) & (pl.col("dir") == "send") & (pl.col("done") < pl.col("moved"))
    )
    assert stuck.height > 0
    # The link's own rank and those it talks to, nobody else.
    assert set(stuck["rank"].unique().to_list()) <= {1, 5, 9}


def test_a_rank_that_is_absent_has_nothing_open_and_its_heart_beats() -> None:
    found = frames(simulated_traces(simulate(simulation("absent", **QUICK))))
    assert found.op.filter((pl.col("rank") == 1) & (pl.col("op_state") == "open")).is_empty()
    last = found.heartbeat.group_by("rank").agg(pl.col("ts").max())
    spread = last["ts"].max() - last.filter(pl.col("rank") == 1)["ts"].item()
    assert spread.total_seconds() < 1.5


def test_a_crashed_rank_writes_nothing_after_its_end() -> None:
    found = frames(simulated_traces(simulate(simulation("crash", **QUICK))))
    end = _simulator.START_UTC_NS + 12_000_000_000
    for frame, stamp in ((found.heartbeat, "ts"), (found.state, "ts"), (found.op, "enq_ts")):
        last = frame.filter(pl.col("rank") == 1)[stamp].cast(pl.Int64).max()
        assert last is not None
        assert last < end + 150_000_000  # its host's clock may be ahead


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_an_exported_trace_reads_as_the_traces_in_memory(tmp_path: Path, format_: str) -> None:
    done = simulate(simulation("qp_slow30", **QUICK))
    path = tmp_path / f"trace.{format_}"
    rows = export_tables(done, path, format_=format_)
    read, made = read_export(path), simulated_traces(done)
    assert rows == sum(t.num_rows for trace in made for t in trace.tables.values()) + sum(
        1 + len(trace.communicators) for trace in made
    )
    assert [t.process for t in read] == [t.process for t in made]
    assert [t.communicators for t in read] == [t.communicators for t in made]
    for kind in ("state", "flow", "op", "heartbeat"):
        assert getattr(frames(read), kind).equals(getattr(frames(made), kind)), kind


def test_command_writes_trace_and_truth_and_does_not_overwrite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = ["simulate", "absent", "--topology", "T16", "--rank", "5", "--out", str(out), "--after", "5"]
    assert main(arguments) == 0
    truth = json.loads((out / "truth.json").read_text())
    assert truth["root_cause"] == {"ranks": [5], "hosts": ["sim1"]}
    assert sorted(path.name for path in out.iterdir()) == ["trace.parquet", "truth.json"]
    assert main(arguments) == 2
    assert "not empty" in capsys.readouterr().err


def test_diagnosis_in_memory_is_that_of_the_file_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["simulate", "nic_down", "--topology", "T16", "--rank", "5", "--after", "12", "--diagnose"]
    assert main(arguments) == 1
    printed = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert "truth     link_fault at rank 5, sim1" in printed
    assert main([*arguments, "--out", "run"]) == 1
    capsys.readouterr()
    assert main(["diagnose", "run"]) == 1
    answer = capsys.readouterr().out.split("\nevidence")[0]
    assert answer in printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["simulate", "meteor"], "scenario 'meteor'"),
        (["simulate", "none", "--topology", "T9"], "topology 'T9'"),
        (["simulate", "none", "--topology", "T16", "--rank", "16"], "ranks 0 to 15"),
        (["simulate", "none", "--topology", "T16", "--no-rows", "--diagnose"], "leaves nothing"),
    ],
)
def test_what_cannot_be_simulated_is_said_in_a_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


def test_two_faults_at_once_are_both_done_and_both_told() -> None:
    both = simulate(simulation("slow_gpu20", topology="T16", rank=2, at_s=5.0, after_s=8.0, also=(("nic_bw", 13),)))
    alone = simulate(simulation("slow_gpu20", topology="T16", rank=2, at_s=5.0, after_s=8.0))

    def busy(simulated: Simulated, rank: int) -> float:
        flow = simulated.rows["flow"]
        late = (flow["trace"] == rank) & (flow["send"] == 1) & (flow["end_ts"] > simulated.injected_ns)
        return float(flow["net_busy_ns"][late].sum() / flow["slices"][late].sum())

    assert busy(both, 13) > 3 * busy(alone, 13)
    assert truth(both)["root_causes"] == [{"ranks": [2], "hosts": ["sim0"]}, {"ranks": [13], "hosts": ["sim3"]}]
    assert "root_causes" not in truth(alone)
    with pytest.raises(SimulatorError, match="at rank 99"):
        simulate(simulation("slow_gpu20", topology="T16", also=(("nic_bw", 99),)))
