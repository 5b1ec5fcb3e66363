"""How often the verdict is right, by fault, on generated NCCL dumps: the table of `docs/accuracy.md`.

    python -m tests.bench.accuracy [--seeds 10] [--write docs/accuracy.md]

Every fault x layout x with and without timing x single and batched sends x seeds; the fault rank differs from seed to
seed. `job.json` is not given to the analysis.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from mycroft.analysis import diagnose
from mycroft.analysis.scoring import CaseScore, score_case
from mycroft.loaders import load, open_store
from tests.generated_dumps import FAULTS, LAYOUTS, Recipe, generate, recipe

# Short and long steps take turns.
STEPS = (
    {"microbatches": 2, "layers": 2, "buckets": 2, "entries": 300},
    {"microbatches": 4, "layers": 3, "buckets": 4, "entries": 500},
)
# Beside the grid: versions, small buffers, no frames, other places of the fault. (name, changes)
VARIATIONS = (
    ("version list (torch 2.2)", {"version": "list"}),
    ("version 1.4 (torch 2.3)", {"version": "1.4"}),
    ("version 2.1 (torch 2.4)", {"version": "2.1"}),
    ("version 2.4 (torch 2.5-2.7)", {"version": "2.4"}),
    ("version 2.9 (torch 2.8)", {"version": "2.9"}),
    ("no frames", {"frames": False}),
    ("100 entries", {"entries": 100}),
    ("40 entries", {"entries": 40}),
    ("long steps (4 x 4)", {"microbatches": 4, "layers": 4, "buckets": 4, "entries": 600}),
    ("step 1", {"step": 1}),
)


def grid(seeds: int) -> Iterator[tuple[str, Recipe]]:
    """Yield every recipe of the table with its configuration."""
    for layout in LAYOUTS:
        for timing in (False, True):
            for batched in (False, True):
                for fault in FAULTS:
                    for seed in range(seeds):
                        made = recipe(fault, layout, seed, timing=timing, batched=batched, **STEPS[seed % 2])
                        if made.possible:
                            words = f"{layout}, {'timing' if timing else 'no timing'}{', batched' if batched else ''}"
                            yield words, made


def variations(seeds: int) -> Iterator[tuple[str, Recipe]]:
    """Yield the recipes beside the grid: one layout with a pipeline, no timing."""
    for name, changes in VARIATIONS:
        for fault in FAULTS:
            for seed in range(seeds):
                made = replace(recipe(fault, "TP8xPP4xDP2", 1000 + seed), **changes)
                if made.possible:
                    yield name, made


def judge(made: Recipe, scratch: Path) -> CaseScore:
    """Generate one case, load it, diagnose it and score the verdict."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        truth = generate(made, folder / "case")
        load([folder / "case"], folder / "trace.duckdb")
        started = time.perf_counter()
        verdict = diagnose(open_store(folder / "trace.duckdb"))
        return score_case(f"{made.fault} {made.seed}", verdict, truth, seconds=time.perf_counter() - started)


def _rows(results: dict[tuple[str, str], list[CaseScore]], columns: list[str]) -> list[str]:
    lines = ["| fault | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for fault in FAULTS:
        cells: list[str] = []
        for column in columns:
            scores = results.get((fault, column), [])
            right = sum(s.outcome == "right" for s in scores)
            apart = "" if all(s.identifiable for s in scores) else " (apart)"
            cells.append(f"{right}/{len(scores)}{apart}" if scores else "")
        lines.append(f"| {fault} | " + " | ".join(cells) + " |")
    return lines


def report(results: dict[tuple[str, str], list[CaseScore]], beside: dict[tuple[str, str], list[CaseScore]]) -> str:
    """Return the page."""
    everything = [s for scores in results.values() for s in scores]
    main = [s for s in everything if s.identifiable]
    apart = [s for s in everything if not s.identifiable]
    right = sum(s.outcome == "right" for s in main)
    words: dict[str, Counter[str]] = defaultdict(Counter)
    for s in [*everything, *(s for scores in beside.values() for s in scores)]:
        if s.confidence and s.identifiable:
            words[s.confidence][s.outcome] += 1
    lines = [
        "# Accuracy on generated jobs",
        "",
        "Made by `python -m tests.bench.accuracy --write docs/accuracy.md`; do not edit. Dumps of 64 ranks from",
        "`tests/data/flight_recorder/make_nccl_fr.py`, a model of an NCCL job. The fault rank differs from seed to",
        "seed and no topology file is given. A case is right when exactly the guilty ranks are named. Where the dumps",
        "cannot name the one (`fr_identifiable` false in the truth), right is `cannot_tell` or a candidate set that",
        "holds it at no more than medium confidence; these are counted apart.",
        "",
        f"Right: **{right} of {len(main)}** ({right / max(1, len(main)):.1%}). Wrong with high confidence, or a",
        f"finding on a healthy job: **{sum(s.wrong_confident for s in everything)}** of {len(everything)}.",
        f"Counted apart: {sum(s.outcome == 'right' for s in apart)} of {len(apart)} right.",
        "",
        *_rows(results, sorted({c for _, c in results})),
        "",
        "## Other versions and buffers",
        "",
        "TP8xPP4xDP2, no timing.",
        "",
        *_rows(beside, [name for name, _ in VARIATIONS]),
        "",
        "## What the words mean",
        "",
        "| confidence | cases | right |",
        "|---|---|---|",
    ]
    for word in ("high", "medium", "low"):
        total = sum(words[word].values())
        share = f"{words[word]['right'] / total:.1%}" if total else ""
        lines.append(f"| {word} | {total} | {share} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the sweep, print what is wrong as it comes, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--beside", type=int, default=3, help="seeds of the variations")
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    results: dict[tuple[str, str], list[CaseScore]] = defaultdict(list)
    beside: dict[tuple[str, str], list[CaseScore]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="accuracy-") as name:
        for table, recipes in ((results, grid(arguments.seeds)), (beside, variations(arguments.beside))):
            for column, made in recipes:
                if arguments.fault not in (None, made.fault):
                    continue
                score = judge(made, Path(name))
                table[made.fault, column].append(score)
                if score.outcome != "right":
                    named = f"{score.outcome}: {score.category} {score.answer} {score.confidence}, truth {score.truth}"
                    print(f"{column}: {made.fault} seed {made.seed}: {named}", file=sys.stderr)
    page = report(results, beside)
    if arguments.write:
        arguments.write.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
