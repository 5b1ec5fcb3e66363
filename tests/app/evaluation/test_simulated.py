"""The evaluation end to end on few simulated jobs, and the ways in which rows are spoilt."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mycroft.analysis.evaluation import Run, score
from mycroft.app.commands.score_rules import names_of, rules_of, seeds_of, variants_of
from mycroft.app.evaluation import simulated
from mycroft.app.evaluation.page import page
from mycroft.app.evaluation.results import WORDS_MAX, append_runs, read_runs
from mycroft.app.evaluation.simulated import (
    EVALUATION_SEEDS,
    TUNING_SEEDS,
    VARIANTS,
    EvaluationError,
    evaluate,
    fault_runs,
    healthy_runs,
)
from mycroft.tracer.simulator import Simulated, simulate, simulation

SEED = 3


def job(**options: object) -> Simulated:
    settings = {"topology": "T16", "seed": SEED, "at_s": 4.0, "after_s": 4.0, **options}
    return simulate(simulation("nic_down", **settings))


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Two faults of one seed, our rules and the paper's, and the same of one with rows in another order."""
    found: list[Run] = []
    for some in fault_runs("T32", ["nic_down", "slow_gpu20"], [SEED], rules=("ours", "paper-0.1s")):
        found += some
    for some in fault_runs("T32", ["slow_gpu20"], [SEED], variant=VARIANTS["shuffled"]):
        found += some
    return found


def of(runs: list[Run], fault: str, rules: str, variant: str = "plain") -> Run:
    return next(r for r in runs if (r.truth.fault, r.rules, r.variant) == (fault, rules, variant))


def test_a_stall_and_a_slow_rank_are_found_and_named(runs: list[Run]) -> None:
    for fault in ("nic_down", "slow_gpu20"):
        got = score(of(runs, fault, "ours"))
        assert (got.detected, got.in_set, got.component, got.early) == (True, True, True, 0), fault
        assert got.delay_s is not None and 0 < got.delay_s < 20


def test_the_paper_answers_the_same_jobs(runs: list[Run]) -> None:
    assert score(of(runs, "nic_down", "paper-0.1s")).detected
    # A fifth slower is neither half the throughput nor twice the interval.
    assert not score(of(runs, "slow_gpu20", "paper-0.1s")).detected


def test_the_order_of_rows_changes_nothing(runs: list[Run]) -> None:
    assert of(runs, "slow_gpu20", "ours", "shuffled").answers == of(runs, "slow_gpu20", "ours").answers


def test_all_faults_of_a_seed_hit_the_same_rank_at_the_same_time(runs: list[Run]) -> None:
    one, other = of(runs, "nic_down", "ours").truth, of(runs, "slow_gpu20", "ours").truth
    assert (one.ranks, one.injected_ns) == (other.ranks, other.injected_ns)


def test_a_healthy_job_has_no_truth_to_find() -> None:
    (some,) = healthy_runs("T16", 40 / 3600, first_seed=SEED, piece_s=40)
    assert some[0].truth.injected_ns is None
    assert some[0].answers == ()
    assert some[0].watched_s == pytest.approx(40)


def test_runs_are_kept_and_written_up(runs: list[Run], tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    append_runs(path, runs)
    append_runs(path, runs[:1])
    kept = read_runs(path)
    assert [score(r) for r in kept] == [score(r) for r in runs]
    assert max(len(a.words) for r in kept for a in r.answers) <= WORDS_MAX
    text = page(read_runs(path))
    assert "| nic_down | 1 | 100 |" in text
    assert "### T32: confusion, ours" in text
    assert "| rows in another order | T32 | 1 |" in text
    assert "| false reports, healthy T32 | 0 in >= 8 h | not run |" in text


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"topology": "T32"}\n')
    with pytest.raises(EvaluationError, match=r"runs\.jsonl:1: is no run"):
        read_runs(path)
    assert read_runs(tmp_path / "none.jsonl") == []


def test_a_tenth_of_the_rows_is_lost() -> None:
    whole, spoilt = job(), job()
    simulated.lose_rows(spoilt)
    for kind, columns in whole.rows.items():
        share = len(spoilt.rows[kind]["trace"]) / len(columns["trace"])
        assert 0.8 < share < 0.97, kind


def test_clocks_of_every_second_host_are_shifted_and_unknown_times_stay() -> None:
    whole, spoilt = job(), job()
    host = np.asarray(whole.rows["op"]["trace"]) // whole.config.ranks_per_host
    unknown = int(np.argmax(host == 1))
    spoilt.rows["op"]["kstart_ts"][unknown] = -1
    simulated.shift_clocks(spoilt)
    moved = spoilt.rows["op"]["enq_ts"] - whole.rows["op"]["enq_ts"]
    assert set(moved[host % 2 == 0]) == {0}
    assert set(moved[host % 4 == 1]) == {2_000_000_000}
    assert set(moved[host % 4 == 3]) == {-2_000_000_000}
    assert spoilt.rows["op"]["kstart_ts"][unknown] == -1


def test_receiving_halves_are_left_out() -> None:
    spoilt = job()
    simulated.send_side_only(spoilt)
    assert set(spoilt.rows["state"]["send"]) == {1}
    assert set(spoilt.rows["flow"]["send"]) == {1}


def test_ten_ranks_are_kept() -> None:
    spoilt = job(topology="T32")
    simulated.keep_ten_ranks(spoilt)
    for columns in spoilt.rows.values():
        assert len(set(columns["trace"])) <= 10
    assert len(set(spoilt.rows["op"]["trace"])) == 10


def test_seeds_for_tuning_and_for_evaluation_are_apart() -> None:
    assert not set(TUNING_SEEDS) & set(EVALUATION_SEEDS)


def test_what_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(EvaluationError, match="'no_such'"):
        list(fault_runs("T16", ["no_such"], [1]))
    with pytest.raises(EvaluationError, match="'no_such'"):
        evaluate(job(), rules=("no_such",))
    for parse in (rules_of, variants_of):
        with pytest.raises(EvaluationError, match="'no_such'"):
            parse("no_such")
    with pytest.raises(EvaluationError, match="expected numbers"):
        seeds_of("9-x")


def test_lists_of_the_command_line() -> None:
    assert seeds_of("900-902,7") == [900, 901, 902, 7]
    assert rules_of("ours,paper") == ["ours", "paper", "paper-0.1s", "paper-all"]
    assert names_of("all", ("a", "b")) == ["a", "b"]
    assert [v.name for v in variants_of("plain,noise2")] == ["plain", "noise2"]


def test_the_command_runs_prints_and_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mycroft.app.cli import main

    monkeypatch.chdir(tmp_path)
    asked = ["score", "--simulated", "T16", "--faults", "nic_down", "--seeds", "3", "--rules", "paper-0.1s"]
    asked += ["--results", "runs.jsonl", "--write", "page.md", "--json"]
    assert main(asked) == 0
    body = json.loads(capsys.readouterr().out)
    assert [line["name"] for line in body["faults"]] == ["nic_down"]
    assert "# Evaluation of the rules" in (tmp_path / "page.md").read_text()
    # What the file holds is not run again.
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == []
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1


def test_the_page_in_the_documents_is_that_of_the_runs_kept_beside_it() -> None:
    docs = Path(__file__).parents[3] / "docs"
    written = (docs / "evaluation.md").read_text()
    assert written == page(read_runs(docs / "evaluation-runs.jsonl")), "run `mycroft score --results … --write …`"
