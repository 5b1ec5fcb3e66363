"""Runs kept as JSON lines, one a run, so that a long evaluation can be interrupted, added to and written up later."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from mycroft.analysis.evaluation import Run, run_from_json
from mycroft.app.evaluation.simulated import EvaluationError

WORDS_MAX = 160


def append_runs(path: Path, runs: Iterable[Run]) -> None:
    """Add runs to a file, what each report said cut short; it is made where it does not exist."""
    with path.open("a", encoding="utf-8") as out:
        for run in runs:
            short = tuple(replace(a, words=a.words[:WORDS_MAX]) for a in run.answers)
            run = replace(run, answers=short)
            out.write(json.dumps(asdict(run), ensure_ascii=False, separators=(",", ":")) + "\n")


def read_runs(path: Path) -> list[Run]:
    """Return the runs of a file, the newest of those that are the same job under the same rules; none without a file.

    Raises:
        EvaluationError: if a line is no run.
    """
    if not path.exists():
        return []
    found: dict[tuple[str, str, int, str, str], Run] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                run = run_from_json(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise EvaluationError(
                    f"{path}:{number}: is no run of an evaluation ({error}); remove the line"
                ) from error
            found[key(run)] = run
    return list(found.values())


def key(run: Run) -> tuple[str, str, int, str, str]:
    """Return what makes two runs the same job under the same rules."""
    return run.topology, run.truth.fault, run.seed, run.rules, run.variant
