"""Generated NCCL dumps, every fault once or twice: the sweep over seeds is `python -m tests.bench.accuracy`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mycroft.analysis import diagnose
from mycroft.analysis.scoring import CaseScore, score_case
from mycroft.loaders import load, open_store
from tests.generated_dumps import FAULTS, Recipe, generate, recipe

# (layout, options, seed): every option is met by every fault that can have it.
SETTINGS: dict[str, tuple[str, dict[str, Any], int]] = {
    "pipeline, no timing, batched": ("TP4xPP2xDP2", {"batched": True}, 1),
    "no pipeline, timing, JSON beside": ("TP4xDP4", {"timing": True, "as_json": True}, 2),
    "pipeline, timing": ("TP4xPP2xDP2", {"timing": True, "microbatches": 4, "entries": 400}, 3),
}
RECIPES = {
    f"{fault}, {name}": made
    for name, (layout, options, seed) in SETTINGS.items()
    for fault in FAULTS
    if (made := recipe(fault, layout, seed, **options)).possible
}


def judged(made: Recipe, folder: Path) -> CaseScore:
    truth = generate(made, folder / "case")
    load([folder / "case"], folder / "trace.duckdb")
    with open_store(folder / "trace.duckdb") as store:
        return score_case(made.fault, diagnose(store), truth)


@pytest.mark.parametrize("name", RECIPES)
def test_the_guilty_rank_of_a_generated_job_is_named_or_nobody_is(name: str, tmp_path: Path) -> None:
    made = RECIPES[name]
    found = judged(made, tmp_path)
    assert not found.wrong_confident, found
    if made.fault == "none" and not made.timing:
        # Without timing a healthy job and a slow one look the same.
        assert found.outcome == "abstained", found
    else:
        assert found.outcome == "right", found


@pytest.mark.parametrize("fault", ["straggler", "slow_group", "device_hang"])
def test_what_shows_only_in_time_is_not_called_healthy_without_it(fault: str, tmp_path: Path) -> None:
    found = judged(recipe(fault, "TP4xDP4", 5), tmp_path)
    assert not found.identifiable
    assert found.outcome == "right", found
    assert found.category != "healthy"


@pytest.mark.parametrize("version", ["list", "1.4", "2.1", "2.4", "2.9"])
def test_every_layout_of_the_file_names_nobody_else(version: str, tmp_path: Path) -> None:
    found = judged(recipe("missing_dp", "TP4xPP2xDP2", 4, version=version), tmp_path)
    assert not found.wrong_confident, found
    assert found.outcome in ("right", "abstained") if version == "list" else found.outcome == "right", found
