"""Scoring of testbed runs, on folders of the same form that a simulation wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mycroft.analysis.evaluation import score
from mycroft.app.evaluation import testbed
from mycroft.app.evaluation.simulated import EvaluationError
from mycroft.app.evaluation.testbed import (
    COMPONENTS_OF,
    LEARNT_ITERATIONS,
    make_runs,
    read_truth,
    scenario_for,
    score_run,
    seed_of,
)
from mycroft.tracer.simulator import export_tables, simulate, simulation
from mycroft.tracer.testbed import Scenario, TestbedError
from mycroft.tracer.testbed.faults import FAULTS


def write_run(folder: Path, fault: str, *, truth_rank: int | None = None) -> Path:
    """A folder as the testbed leaves it; the fault is of a simulated job of 16 ranks."""
    folder.mkdir(parents=True)
    job = simulate(simulation(fault, topology="T16", seed=3, rank=5, at_s=4.0, after_s=9.0))
    export_tables(job, folder / "trace.parquet", format_="parquet")
    rank = 5 if truth_rank is None else truth_rank
    hit = fault != "none"
    body = {
        "root_cause": {"ranks": [rank] if hit else [], "hosts": [f"sim{rank // 4}"] if hit else []},
        "fault": fault,
        "injected_ns": job.injected_ns,
    }
    (folder / "truth.json").write_text(json.dumps(body))
    return folder


def test_a_run_is_diagnosed_and_compared(tmp_path: Path) -> None:
    run = score_run(write_run(tmp_path / "recv_nopost-7", "recv_nopost"))
    got = score(run)
    assert (run.topology, run.seed, run.truth.fault) == ("testbed", 7, "recv_nopost")
    assert (got.detected, got.rank, got.component, got.early) == (True, 1.0, True, 0)
    assert got.delay_s is not None and 4 < got.delay_s < 9


def test_another_truth_makes_the_same_verdict_wrong(tmp_path: Path) -> None:
    got = score(score_run(write_run(tmp_path / "recv_nopost-8", "recv_nopost", truth_rank=9)))
    assert (got.detected, got.rank) == (True, 0.0)


def test_every_fault_of_the_testbed_has_its_words() -> None:
    assert set(COMPONENTS_OF) == {fault.name for fault in FAULTS} - {"none"}


def test_slow_faults_come_after_what_is_learnt_from() -> None:
    scenario = scenario_for("gpu_power", 3)
    assert scenario.at_iteration is not None
    assert LEARNT_ITERATIONS <= scenario.at_iteration < scenario.iterations - 20
    assert scenario_for("gpu_power", 3) == scenario
    assert scenario_for("killed", 3).at_iteration is None


def test_a_series_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    done = tmp_path / "killed-900"
    done.mkdir()
    (done / "truth.json").write_text("{}")
    said: list[str] = []
    assert list(make_runs(tmp_path, ["killed"], times=1, first_seed=900, say=said.append)) == [done]
    assert said == []
    with pytest.raises(EvaluationError, match="'no_such'"):
        list(make_runs(tmp_path, ["no_such"], times=1, first_seed=900, say=said.append))


def test_what_an_interrupted_run_left_is_made_anew_and_a_run_that_fails_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "killed-900.unfinished"
    left.mkdir()
    (left / "trace.parquet").write_text("half")

    def run_job(made: Scenario, folder: Path, *, say: Callable[[str], None]) -> None:
        assert not folder.exists()
        if made.seed == 901:
            raise TestbedError("no hosts")
        folder.mkdir()
        (folder / "truth.json").write_text("{}")

    monkeypatch.setattr(testbed, "run_job", run_job)
    said: list[str] = []
    made = list(make_runs(tmp_path, ["killed"], times=3, first_seed=900, say=said.append))

    assert [f.name for f in made] == ["killed-900", "killed-902"]
    assert not left.exists()
    assert "killed-901: left out: no hosts" in said
    monkeypatch.setattr(testbed, "FAILED_MOST", 1)
    with pytest.raises(TestbedError):
        list(make_runs(tmp_path, ["killed"], times=3, first_seed=900, say=said.append))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("not json", "is no truth"),
        ('{"fault": "killed"}', "is no truth"),
        ('{"root_cause": {"ranks": [1], "hosts": []}, "fault": "no_such", "injected_ns": 5}', "none of the testbed's"),
        ('{"root_cause": {"ranks": [1], "hosts": []}, "fault": "killed", "injected_ns": null}', "never injected"),
    ],
)
def test_a_truth_that_says_nothing_is_refused(tmp_path: Path, body: str, message: str) -> None:
    path = tmp_path / "truth.json"
    path.write_text(body)
    with pytest.raises(EvaluationError, match=message):
        read_truth(path)


def test_the_seed_is_in_the_name_of_the_folder() -> None:
    assert (seed_of(Path("runs/nic_down-904")), seed_of(Path("runs/mine"))) == (904, 0)
