"""The arithmetic of the evaluation: ties, delays, bounds, confusion, calibration."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest

from mycroft.analysis.evaluation import (
    NOT_LIVE_NS,
    Answer,
    Run,
    Truth,
    all_listed,
    answer_of,
    calibration,
    component_of,
    confusion,
    failures,
    false_reports,
    mean_row,
    poisson_upper,
    quantile,
    row,
    rows_by_fault,
    run_from_json,
    score,
    share,
)
from mycroft.analysis.verdict import Finding, Flow, RootCause

S = 1_000_000_000
TRUTH = Truth(fault="nic_down", components=("nic",), ranks=(5,), hosts=("h0",), injected_ns=100 * S)
HEALTHY = Truth(fault="none", components=())


def answer(
    at_s: float, *ranks: int, component: str = "nic", hosts: tuple[str, ...] = ("h0",), **more: object
) -> Answer:
    made = Answer(at_ns=int(at_s * S), component=component, ranks=ranks, hosts=hosts)
    return replace(made, **more)  # pyright: ignore[reportArgumentType]


def run(*answers: Answer, truth: Truth = TRUTH, seed: int = 1, watched_s: float = 60) -> Run:
    return Run(topology="T32", seed=seed, rules="ours", truth=truth, answers=answers, watched_s=watched_s)


def test_a_tie_that_holds_the_culprit_counts_one_nth() -> None:
    got = score(run(answer(106, 5, 7, hosts=("h0", "h1"))))
    assert (got.detected, got.rank, got.in_set, got.host, got.component) == (True, 0.5, True, 0.5, True)
    assert got.delay_s == pytest.approx(6)


def test_a_tie_on_one_host_names_the_host() -> None:
    assert score(run(answer(106, 5, 7, hosts=("h0",)))).host == 1.0


def test_another_rank_is_worth_nothing() -> None:
    got = score(run(answer(106, 6, confidence="high")))
    assert (got.detected, got.rank, got.in_set, got.confident_wrong) == (True, 0.0, False, True)


def test_several_culprits_must_all_be_held() -> None:
    assert share((1, 2), (1, 2)) == 1.0
    assert share((1, 2), (1, 2, 3, 4)) == 0.5
    assert share((1, 2), (1, 3)) == 0.0
    assert share((), (1,)) == 0.0


def test_a_broken_host_is_named_by_its_host() -> None:
    truth = Truth(
        fault="bg_compute", components=("host_gpu",), ranks=(0, 1), hosts=("h0",), on_host=True, injected_ns=100 * S
    )
    assert score(run(answer(110, component="host_gpu"), truth=truth)).rank == 1.0
    assert score(run(answer(110, component="host_gpu", hosts=("h0", "h1")), truth=truth)).rank == 0.5


def test_what_was_reported_before_the_fault_is_early_and_no_answer() -> None:
    got = score(run(answer(90, 5), answer(107, 6)))
    assert (got.early, got.rank) == (1, 0.0)
    assert not score(run(answer(90, 5))).detected


def test_an_answer_that_only_the_whole_evidence_gave_has_no_delay() -> None:
    got = score(run(replace(answer(0, 5), at_ns=NOT_LIVE_NS)))
    assert (got.detected, got.delay_s, got.rank) == (True, None, 1.0)


def test_the_upper_bound_of_nothing_seen_is_three() -> None:
    assert poisson_upper(0) == pytest.approx(-math.log(0.05), abs=1e-6)
    # Tables of the Poisson distribution, 95 % one-sided.
    assert poisson_upper(1) == pytest.approx(4.744, abs=1e-3)
    assert poisson_upper(10) == pytest.approx(16.962, abs=1e-3)


def test_false_reports_are_counted_per_hour_of_healthy_jobs_alone() -> None:
    told = false_reports([run(answer(5, 1), truth=HEALTHY, watched_s=3600), run(truth=HEALTHY, watched_s=3600), run()])
    assert (told.reports, told.hours, told.per_hour) == (1, 2.0, 0.5)
    assert told.upper == pytest.approx(4.744 / 2, abs=1e-3)


def test_quantiles_interpolate() -> None:
    assert quantile([1, 2, 3], 0.5) == 2
    assert quantile([0, 10], 0.9) == pytest.approx(9)
    assert quantile([], 0.5) is None


def test_rows_and_means_weigh_each_fault_alike() -> None:
    other = replace(TRUTH, fault="crash", components=("crash",))
    runs = [run(answer(106, 5)), run(answer(108, 5, 7)), run(truth=other)]
    lines = rows_by_fault(runs)
    assert [(r.name, r.runs, r.detected, r.rank) for r in lines] == [("nic_down", 2, 1.0, 0.75), ("crash", 1, 0.0, 0.0)]
    assert mean_row("mean", lines).rank == pytest.approx(0.375)
    assert row("x", []).detected == 0.0


def test_confusion_has_a_column_for_nothing_reported() -> None:
    table = confusion([run(answer(106, 5)), run(answer(106, 5, component="gpu")), run(), run(truth=HEALTHY)])
    assert table == {"nic_down": {"nic": 1, "gpu": 1, "none": 1}}


def test_certainty_is_compared_with_hits_in_tenths() -> None:
    right = [run(answer(106, 5, certainty=0.95), seed=n) for n in range(19)]
    wrong = [run(answer(106, 6, certainty=0.91), seed=99)]
    tie = [run(answer(106, 5, 7, certainty=0.45))] * 10
    invented = [run(answer(5, 1, certainty=0.85), truth=HEALTHY)] * 10
    bands = calibration([*right, *wrong, *tie, *invented])
    assert [(b.low, b.reports, round(b.hit_rate, 2), b.off) for b in bands] == [
        (0.4, 10, 0.5, False),
        (0.8, 10, 0.0, True),
        (0.9, 20, 0.95, False),
    ]


def test_full_certainty_falls_into_the_last_tenth() -> None:
    assert calibration([run(answer(106, 5, certainty=1.0))])[0].low == 0.9


def test_of_two_faults_either_may_come_first_and_both_must_be_named() -> None:
    truth = replace(TRUTH, also=(9,))
    first = run(answer(106, 9), truth=truth)
    assert score(first).rank == 1.0
    assert not all_listed(first)
    assert all_listed(run(answer(106, 9), answer(110, 5), truth=truth))
    assert all_listed(run(answer(106, 9, others=(("nic", (5,)),)), truth=truth))
    assert run_from_json(json.loads(json.dumps(asdict(first)))) == first


def test_failures_say_what_is_wrong() -> None:
    reasons = [why for _, why in failures([run(), run(answer(106, 6, confidence="high")), run(answer(106, 5))])]
    assert reasons == ["not detected", "another one named, with high confidence"]
    (only,) = failures([run(answer(106, 5, component="gpu"))])
    assert only[1] == "gpu instead of nic"
    assert [why for _, why in failures([run(answer(1, 1), truth=HEALTHY)])] == ["report on a healthy job"]


def test_runs_survive_json() -> None:
    made = run(answer(106, 5, 7, certainty=0.5, others=(("gpu", (3,)),)))
    assert run_from_json(json.loads(json.dumps(asdict(made)))) == made


def finding(category: str, component: str = "nic", flow: Flow | None = None, status: str = "slow") -> Finding:
    return Finding(
        id="f1",
        status=status,  # pyright: ignore[reportArgumentType]
        category=category,
        component=component,  # pyright: ignore[reportArgumentType]
        confidence="medium",
        root_cause=RootCause(ranks=(5,), hosts=("h0",), flow=flow),
        summary="",
    )


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (finding("slow_nic"), "nic"),
        (finding("slow_nic", flow=Flow(channel=1, dir="send")), "qp"),
        (finding("proxy_stall", "process", Flow(dir="recv"), "hang"), "recv_proxy"),
        (finding("proxy_stall", "process", Flow(dir="send"), "hang"), "proxy"),
        (finding("proxy_stall", "process", Flow(dir="recv")), "proxy"),
        (finding("slow_compute", "host"), "host_gpu"),
        (finding("slow_compute", "gpu"), "gpu"),
        (finding("slow_compute", "code"), "app"),
        (finding("network_congestion", "network"), "host_nic"),
        (finding("checkpoint", "code"), "app"),
        (finding("unknown", "unknown"), "other"),
    ],
)
def test_findings_become_words_of_sinks(made: Finding, word: str) -> None:
    assert component_of(made) == word
    assert answer_of(7, [made]).component == word
