from __future__ import annotations

import pytest

from mycroft.analysis.scoring import score_case, summarise, table
from mycroft.analysis.verdict import Confidence, EvidenceSummary, Finding, RootCause, Status, Verdict


def finding(
    ranks: tuple[int, ...] = (5,),
    *,
    category: str = "dataloader",
    confidence: Confidence = "high",
    hosts: tuple[str, ...] = (),
    one_of: bool = False,
    summary: str = "Rank 5 never entered all_reduce 1843.",
) -> Finding:
    cause = RootCause(ranks=ranks, hosts=hosts, one_of=one_of)
    return Finding("f1", "hang", category, "code", confidence, cause, summary)


def verdict(*findings: Finding, status: Status | None = None) -> Verdict:
    return Verdict("0/1", EvidenceSummary(), status or (findings[0].status if findings else "healthy"), "s", findings)


RANK_5 = {"root_cause": {"ranks": [5], "hosts": []}, "category": "rank_missing", "hang": True}
HEALTHY = {"root_cause": {"ranks": [], "hosts": []}, "category": "healthy", "hang": False}


def test_the_first_finding_is_the_answer() -> None:
    assert score_case("a", verdict(finding()), RANK_5).outcome == "right"
    assert score_case("a", verdict(finding((4,)), finding((5,))), RANK_5).outcome == "wrong"


def test_all_guilty_ranks_and_nobody_else() -> None:
    both = {"root_cause": {"ranks": [9, 14]}, "category": "gpu_fault"}
    assert score_case("a", verdict(finding((9, 14))), both).outcome == "right"
    assert score_case("a", verdict(finding((9,))), both).outcome == "wrong"
    assert score_case("a", verdict(finding((9, 13, 14))), both).outcome == "wrong"


def test_hosts_count_where_the_truth_has_no_ranks() -> None:
    truth = {"root_cause": {"ranks": [], "hosts": ["gpu-b07"]}, "category": "NIC or IB link error", "hang": True}
    assert score_case("a", verdict(finding((), hosts=("gpu-b07",))), truth).outcome == "right"
    assert score_case("a", verdict(finding((8,), hosts=("gpu-b07",))), truth).outcome == "right"
    assert score_case("a", verdict(finding((), hosts=("gpu-b06",))), truth).outcome == "wrong"


def test_whoever_must_not_be_blamed_spoils_the_case() -> None:
    truth = {**RANK_5, "must_not_blame": {"ranks": [2]}}
    assert score_case("a", verdict(finding()), truth).outcome == "right"
    assert score_case("a", verdict(finding(), finding((2,))), truth).outcome == "wrong"


def test_a_healthy_case_is_right_without_a_finding() -> None:
    assert score_case("a", verdict(), HEALTHY).outcome == "right"
    assert score_case("a", verdict(status="cannot_tell"), HEALTHY).outcome == "abstained"
    low = score_case("a", verdict(finding(confidence="low")), HEALTHY)
    assert (low.outcome, low.wrong_confident) == ("wrong", True)


def test_calling_a_faulty_job_healthy_is_a_miss() -> None:
    missed = score_case("a", verdict(), RANK_5)
    assert (missed.outcome, missed.wrong_confident) == ("missed", False)


def test_wrong_counts_double_when_it_is_confident() -> None:
    assert score_case("a", verdict(finding((4,))), RANK_5).wrong_confident
    assert not score_case("a", verdict(finding((4,), confidence="medium")), RANK_5).wrong_confident


def test_where_nobody_can_be_named_a_set_or_silence_is_right() -> None:
    truth = {**RANK_5, "fr_identifiable": False}
    assert score_case("a", verdict(status="cannot_tell"), truth).outcome == "right"
    wide = finding((4, 5, 6), confidence="medium", one_of=True)
    assert score_case("a", verdict(wide), truth).outcome == "right"
    assert score_case("a", verdict(finding((5,))), truth).outcome == "wrong"
    assert score_case("a", verdict(finding((4, 6), confidence="low")), truth).outcome == "wrong"


def test_independent_faults_need_one_finding_each() -> None:
    truth = {"root_causes": [{"ranks": [5]}, {"ranks": [2]}], "category": "two faults"}
    assert score_case("a", verdict(finding((2,)), finding((5,))), truth).outcome == "right"
    assert score_case("a", verdict(finding((2, 5))), truth).outcome == "wrong"
    assert score_case("a", verdict(finding((2,)), finding((5,)), finding((1,))), truth).outcome == "wrong"


@pytest.mark.parametrize(
    ("truth", "answer", "right"),
    [
        ("rank_missing", "absent", True),
        ("rank_missing", "dataloader", True),
        ("straggler", "slow_compute", True),
        ("straggler", "dataloader", False),
        ("OOM", "out_of_memory", True),
        ("process died", "process_died", True),
        ("gpu_fault", "device_hang", True),
        ("group_order", "code_divergence", False),
    ],
)
def test_a_more_specific_category_counts(truth: str, answer: str, right: bool) -> None:
    scored = score_case("a", verdict(finding(category=answer)), {**RANK_5, "category": truth})
    assert scored.category_right is right


def test_facts_are_looked_for_by_their_telling_words() -> None:
    truth = {**RANK_5, "must_mention": ["rank 5", "never entered 1843", "NCCL_SOCKET_IFNAME", "the data loader"]}
    scored = score_case("a", verdict(finding()), truth)
    assert (scored.mentioned, scored.mentionable) == (2, 3)
    assert scored.not_mentioned == ("NCCL_SOCKET_IFNAME",)
    assert scored.for_a_reader == ("the data loader",)


def test_the_summary_counts_unnameable_cases_apart() -> None:
    scores = [
        score_case("a", verdict(finding()), RANK_5),
        score_case("b", verdict(status="cannot_tell"), RANK_5),
        score_case("c", verdict(status="cannot_tell"), {**RANK_5, "fr_identifiable": False}),
    ]
    total = summarise(scores)
    assert (total.cases, total.right, total.abstained, total.apart, total.apart_right) == (2, 1, 1, 1, 1)


def test_the_table_has_a_row_for_every_case() -> None:
    text = table([score_case("first", verdict(finding((4,))), RANK_5, seconds=0.5)])
    assert "first" in text
    assert "right 0 of 1, wrong and confident 1" in text
