"""The sample incidents: named rightly, and never wrongly with confidence when cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mycroft.analysis import scoring
from mycroft.analysis.scoring import CaseScore
from tests.analysis.incidents import verdict_of
from tests.log_cases import files_of, truth_of

LOGS = Path(__file__).parents[1] / "data" / "logs"
CASES = sorted(path.name for path in LOGS.iterdir() if path.is_dir())
PER_CASE = 3


def score(folder: Path, case: str, files: dict[str, bytes]) -> CaseScore:
    return scoring.score_case(case, verdict_of(folder, files), truth_of(case))


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> list[CaseScore]:
    """The samples as they were handed over."""
    found: list[CaseScore] = []
    for case in CASES:
        files = {
            str(p.relative_to(LOGS / case)): p.read_bytes() for p in sorted((LOGS / case).rglob("*")) if p.is_file()
        }
        files.pop("truth.json")
        found.append(score(tmp_path_factory.mktemp(case), case, files))
    return found


def test_the_samples_are_named_rightly(scores: list[CaseScore]) -> None:
    wrong = [f"{s.name}: {s.answer} ({s.category})" for s in scores if s.outcome != "right"]
    assert len(wrong) <= 1, wrong
    assert not [s.name for s in scores if s.wrong_confident]


def test_their_categories_are_right(scores: list[CaseScore]) -> None:
    assert not [f"{s.name}: {s.category}" for s in scores if not s.category_right]


def damaged(files: dict[str, bytes], dice: random.Random) -> tuple[str, dict[str, bytes]]:
    """Return evidence of which a part is missing, and what was done."""
    match dice.randrange(4):
        case 0 if len(files) > 1:
            lost = dice.choice(sorted(files))
            return f"without {lost}", {name: content for name, content in files.items() if name != lost}
        case 1:
            share = dice.choice((0.3, 0.5, 0.7, 0.9))
            return f"cut at {share}", {n: c[: int(len(c) * share)] for n, c in files.items()}
        case 2:
            share = dice.choice((0.3, 0.5, 0.7))
            return f"from {share}", {n: c[int(len(c) * share) :] for n, c in files.items()}
        case _:
            share = dice.choice((0.02, 0.1, 0.3))
            kept = {
                n: b"".join(line for line in c.splitlines(keepends=True) if dice.random() > share)
                for n, c in files.items()
            }
            return f"{share} of the lines lost", kept


@pytest.mark.parametrize("case", CASES)
def test_missing_parts_make_no_confident_error(tmp_path: Path, case: str) -> None:
    dice = random.Random(f"{case} 2")
    for number in range(PER_CASE):
        what, files = damaged(files_of(case), dice)
        found = score(tmp_path / str(number), case, files)
        assert not found.wrong_confident, f"{what}: {found.answer} ({found.category})"
