"""The written incidents: other versions, launchers and wrappers than the samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycroft.analysis import scoring
from tests import log_cases
from tests.analysis.incidents import verdict_of
from tests.data.log_cases import make

WRITTEN = sorted(make.CASES)


@pytest.mark.parametrize("case", WRITTEN)
def test_a_written_incident_is_named_rightly(tmp_path: Path, case: str) -> None:
    found = scoring.score_case(case, verdict_of(tmp_path, log_cases.files_of(case)), log_cases.truth_of(case))
    assert (found.outcome, found.category_right) == ("right", True), found


@pytest.mark.parametrize("case", WRITTEN)
def test_the_files_are_those_that_their_maker_writes(case: str) -> None:
    made, _truth = make.CASES[case]()
    assert log_cases.files_of(case) == {name: text.encode() for name, text in made.items()}
