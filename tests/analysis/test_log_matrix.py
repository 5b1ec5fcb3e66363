"""Every outer layer over every kind of incident, every file lost in turn, and two incidents in one folder.

The full matrices take minutes: `python -m tests.bench.wrappers` runs them. Here each change meets an eighth of the
cases and each case an eighth of the changes, always the same ones; each file is lost once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mycroft.analysis import scoring
from tests import log_cases
from tests.analysis.incidents import verdict_of

CASES = tuple(log_cases.folders())
CHANGES = log_cases.changes()
SHARE = 8
COVER = [
    (case, change)
    for i, case in enumerate(CASES)
    for j, change in enumerate(CHANGES)
    # The three named were once not undone: a kernel's journal passed on by another log, a paste behind a redrawn
    # prefix, one kernel's log behind the name of who collected it.
    if (i + j) % SHARE == 0
    or (case, change)
    in {
        ("ray-vllm-nvlink-xid74", "syslog"),
        ("evaluation-on-rank-zero-only", "redrawn+stern"),
        ("deepspeed-pdsh-oom", "pdsh"),
    }
]
LOSSES = [(case, lost) for case in CASES for lost, _files in log_cases.without(log_cases.files_of(case))]
SICK = [case for case in CASES if log_cases.truth_of(case)["category"] != "healthy"]
PAIRS = [*zip(SICK[::2], SICK[1::2], strict=False)]


@pytest.mark.parametrize(("case", "change"), COVER)
def test_an_outer_layer_changes_no_verdict(tmp_path: Path, case: str, change: str) -> None:
    verdict = verdict_of(tmp_path, log_cases.changed(log_cases.files_of(case), change))
    assert scoring.score_case(case, verdict, log_cases.truth_of(case)).outcome == "right", verdict.summary


@pytest.mark.parametrize(("case", "lost"), LOSSES)
def test_without_a_file_it_is_the_same_culprit_or_says_what_is_missing(tmp_path: Path, case: str, lost: str) -> None:
    files = {name: content for name, content in log_cases.files_of(case).items() if name != lost}
    verdict = verdict_of(tmp_path, files)
    truth = log_cases.truth_of(case)
    same = scoring.score_case(case, verdict, truth).outcome == "right" or log_cases.same_place(verdict, truth)
    asks = verdict.status == "cannot_tell" and all(u.would_decide for u in verdict.unknown) and verdict.unknown
    assert same or asks, verdict.summary


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_two_incidents_in_one_folder_come_out_as_two(tmp_path: Path, one: str, two: str) -> None:
    verdict = verdict_of(tmp_path, log_cases.together(one, two, flat=False))
    for case in (one, two):
        wanted = log_cases.truth_of(case)
        alone = [scoring.score_case(case, replace(verdict, findings=(f,)), wanted) for f in verdict.findings]
        assert "right" in [score.outcome for score in alone], (case, verdict.summary)
