"""The real captures from files to verdict: who is named, and that nothing about the form of the files changes it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mycroft.analysis.verdict import Verdict
from tests.sample_cases import (
    FORMS,
    LESS,
    SampleCase,
    cases,
    draws,
    dump_rank,
    judge,
    score,
    without,
    without_dumps,
)

CASES = {case.name: case for case in cases()}
GLOO = [name for name in CASES if "job.json" in CASES[name].files]
RNG = random.Random(0)
NCCL = [name for name in CASES if name not in GLOO]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> SampleCase:
    return CASES[request.param]


@pytest.fixture(scope="module")
def nccl_verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    return {name: judge(CASES[name].files, tmp_path_factory.mktemp("nccl")) for name in NCCL}


def guilty(verdict: Verdict) -> list[tuple[int, ...]]:
    return [finding.root_cause.ranks for finding in verdict.findings]


def test_the_samples_are_all_there() -> None:
    assert (len(GLOO), len(NCCL)) == (9, 2)


def test_the_guilty_ranks_of_a_capture_are_named(case: SampleCase, tmp_path: Path) -> None:
    found = score(case, case.files, tmp_path)
    assert (found.outcome, found.wrong_confident) == ("right", False), found
    assert found.category_right or found.category == "absent", found


@pytest.mark.parametrize("name", NCCL)
def test_all_guilty_ranks_and_nobody_else_are_in_one_finding(nccl_verdicts: dict[str, Verdict], name: str) -> None:
    verdict = nccl_verdicts[name]
    assert guilty(verdict) == [tuple(CASES[name].truth["root_cause"]["ranks"])]
    assert not verdict.findings[0].root_cause.one_of


def test_a_failed_gpu_is_told_from_a_process_that_does_not_come(nccl_verdicts: dict[str, Verdict]) -> None:
    components = {name: verdict.findings[0].component for name, verdict in nccl_verdicts.items()}
    assert components == {"gpu_error": "gpu", "lock_gil": "process"}


@pytest.mark.parametrize("name", GLOO)
def test_no_topology_file_is_needed(name: str, tmp_path: Path) -> None:
    files = LESS["no topology"](CASES[name].files, random.Random(0))
    assert len(files) == len(CASES[name].files) - 2
    assert score(CASES[name], files, tmp_path).outcome == "right"


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_the_files_changes_nothing(case: SampleCase, form: str, tmp_path: Path) -> None:
    rng = random.Random(f"{case.name} {form}")
    files = FORMS[form](case.files, rng)
    order = rng if form in ("shuffled", "renamed", "gz") else None
    found = score(case, files, tmp_path, order=order)
    assert (found.outcome, found.wrong_confident) == ("right", False), found


@pytest.mark.parametrize(("name", "less"), [(n, v) for n in CASES for v in LESS if LESS[v](CASES[n].files, RNG)])
def test_with_less_evidence_the_answer_is_the_same_or_open(name: str, less: str, tmp_path: Path) -> None:
    found = score(CASES[name], LESS[less](CASES[name].files, RNG), tmp_path)
    assert not found.wrong_confident, found
    assert found.outcome in ("right", "abstained") or found.confidence in ("medium", "low"), found


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_lost_dumps_do_not_accuse_somebody_else(case: SampleCase, lost: int, tmp_path: Path) -> None:
    """The first draw of the fifty that `python -m tests.bench.accuracy` makes (docs/accuracy.md)."""
    gone = next(draws(case, lost))
    found = score(case, without_dumps(case.files, gone), tmp_path)
    assert not found.wrong_confident, (sorted(gone), found)


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_dump_cut_short_accuses_nobody_else(case: SampleCase, share: float, tmp_path: Path) -> None:
    """What a rank did last is not in such a file: it is not what the rank did not do."""
    for rank in {*case.truth["root_cause"]["ranks"][:1], case.ranks[1]}:
        files = {
            name: content[: int(len(content) * share)] if dump_rank(name) == rank else content
            for name, content in without("fr_json")(case.files, RNG).items()
        }
        found = score(case, files, tmp_path)
        assert not found.wrong_confident, (rank, found)
        if found.truth == "healthy":
            assert found.outcome == "abstained", found
