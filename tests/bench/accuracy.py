"""How often the verdict is right: by fault on generated NCCL dumps, and on real captures with dumps lost.

    python -m tests.bench.accuracy [--seeds 10] [--draws 50] [--results FILE] [--write docs/accuracy.md]

Generated: every fault x layout x with and without timing x single and batched sends x seeds; the fault rank differs
from seed to seed, and no topology file is given. Real: every capture of `tests/data`, one to three random dumps taken
away. With `--results` every case is kept as it is judged, and a second run goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from mycroft.analysis import diagnose
from mycroft.analysis.scoring import CaseScore, score_case
from mycroft.loaders import load, open_store
from tests.generated_dumps import FAULTS, Recipe, generate, recipe
from tests.sample_cases import SampleCase, cases, draws, score, without_dumps

LAYOUTS = ("TP8xDP8", "TP8xPP4xDP2")
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
LOST = (1, 2, 3)


@dataclass(frozen=True)
class Result:
    """What came of one case."""

    table: str
    """`grid`, `beside` or `lost`."""
    row: str
    column: str
    number: int
    """Seed, or number of the draw."""
    outcome: str
    confidence: str
    wrong_confident: bool
    identifiable: bool
    said: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Return what tells the case from all others."""
        return (self.table, self.row, self.column, self.number)


def grid(seeds: int) -> Iterator[tuple[str, Recipe]]:
    """Yield every recipe of the table with its configuration, seed by seed."""
    for seed in range(seeds):
        for layout in LAYOUTS:
            for timing in (False, True):
                for batched in (False, True):
                    for fault in FAULTS:
                        made = recipe(fault, layout, seed, timing=timing, batched=batched, **STEPS[seed % 2])
                        if made.possible:
                            words = f"{layout}, {'timing' if timing else 'no timing'}{', batched' if batched else ''}"
                            yield words, made


def variations(seeds: int) -> Iterator[tuple[str, Recipe]]:
    """Yield the recipes beside the grid: one layout with a pipeline, no timing."""
    for seed in range(seeds):
        for name, changes in VARIATIONS:
            for fault in FAULTS:
                made = replace(recipe(fault, "TP8xPP4xDP2", 1000 + seed), **changes)
                if made.possible:
                    yield name, made


def judge(made: Recipe, scratch: Path) -> CaseScore:
    """Generate one case, load it, diagnose it and score the verdict."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name)
        truth = generate(made, folder / "case")
        load([folder / "case"], folder / "trace.duckdb")
        with open_store(folder / "trace.duckdb") as store:
            return score_case(f"{made.fault} {made.seed}", diagnose(store), truth)


def _result(table: str, row: str, column: str, number: int, found: CaseScore) -> Result:
    said = f"{found.category} {found.answer} {found.confidence}, truth {found.truth}"
    return Result(
        table, row, column, number, found.outcome, found.confidence, found.wrong_confident, found.identifiable, said
    )


class Sweep:
    """Judges cases and keeps what came of them; a case that is already known is not judged again."""

    def __init__(self, kept: Path | None, scratch: Path) -> None:
        self._file = kept
        self._scratch = scratch
        self.results: dict[tuple[str, str, str, int], Result] = {}
        if kept is not None and kept.exists():
            for line in kept.read_text().splitlines():
                known = Result(**json.loads(line))
                self.results[known.key] = known

    def _keep(self, result: Result) -> None:
        self.results[result.key] = result
        if self._file is not None:
            with self._file.open("a") as out:
                out.write(json.dumps(asdict(result)) + "\n")
        if result.outcome != "right":
            print(f"{result.column}: {result.row} {result.number}: {result.outcome}: {result.said}", file=sys.stderr)

    def generated(self, table: str, recipes: Iterator[tuple[str, Recipe]], fault: str | None) -> None:
        """Judge generated cases."""
        for column, made in recipes:
            known = (table, made.fault, column, made.seed) in self.results
            if not known and fault in (None, made.fault):
                self._keep(_result(table, made.fault, column, made.seed, judge(made, self._scratch)))

    def lost(self, case: SampleCase, count: int) -> None:
        """Judge one capture with one to three dumps taken away; equal draws are judged once and counted each."""
        for lost in LOST:
            seen: dict[frozenset[int], CaseScore] = {}
            for number, gone in enumerate(islice(draws(case, lost), count)):
                if ("lost", case.name, str(lost), number) in self.results:
                    continue
                key = frozenset(gone)
                if key not in seen:
                    seen[key] = score(case, without_dumps(case.files, gone), self._scratch)
                self._keep(_result("lost", case.name, str(lost), number, seen[key]))


def _rows(results: Sequence[Result], columns: Sequence[str]) -> list[str]:
    cells: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        cells[result.row, result.column].append(result)
    lines = ["| fault | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for fault in FAULTS:
        row: list[str] = []
        for column in columns:
            found = cells.get((fault, column), [])
            right = sum(r.outcome == "right" for r in found)
            apart = "" if all(r.identifiable for r in found) else " (apart)"
            row.append(f"{right}/{len(found)}{apart}" if found else "")
        lines.append(f"| {fault} | " + " | ".join(row) + " |")
    return lines


def _lost_rows(results: Sequence[Result]) -> list[str]:
    lines = [
        "| capture | draws | right | a set or another, unsure | cannot tell | wrong and confident |",
        "|---|" + "---|" * 5,
    ]
    for name in sorted({r.row for r in results}):
        found = [r for r in results if r.row == name]
        count = Counter(r.outcome for r in found)
        wrong = sum(r.wrong_confident for r in found)
        unsure = len(found) - count["right"] - count["abstained"] - wrong
        lines.append(f"| {name} | {len(found)} | {count['right']} | {unsure} | {count['abstained']} | {wrong} |")
    return lines


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / max(1, whole):.1%})"


def report(results: Sequence[Result]) -> str:
    """Return the page."""
    by_table: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_table[result.table].append(result)
    everything, beside, lost = by_table["grid"], by_table["beside"], by_table["lost"]
    main = [r for r in everything if r.identifiable]
    apart = [r for r in everything if not r.identifiable]
    healthy = [r for r in everything if r.row == "none"]
    seeds = len({r.number for r in everything})
    words: dict[str, Counter[str]] = defaultdict(Counter)
    for r in [*everything, *beside]:
        if r.confidence and r.identifiable:
            words[r.confidence][r.outcome] += 1
    lines = [
        "# Accuracy",
        "",
        "Made by `python -m tests.bench.accuracy --write docs/accuracy.md`; do not edit.",
        "",
        "## Generated jobs",
        "",
        "Dumps of 64 ranks from `tests/data/flight_recorder/make_nccl_fr.py`, a model of an NCCL job. The fault rank",
        f"differs from seed to seed (here: {seeds}) and no topology file is given. A case is right when exactly",
        "the guilty ranks are named, or health is said of a healthy job. Where the dumps cannot name the one",
        "(`fr_identifiable` false in the truth), right is `cannot_tell` or a candidate set that holds it at no more",
        "than medium confidence; these are counted apart.",
        "",
        f"Right: **{_share(sum(r.outcome == 'right' for r in main), len(main))}**. Wrong with high confidence, or a",
        f"finding on a healthy job: **{sum(r.wrong_confident for r in everything)}** of {len(everything)}.",
        f"Counted apart: {_share(sum(r.outcome == 'right' for r in apart), len(apart))} right.",
        f"Findings on healthy jobs: {sum(bool(r.confidence) for r in healthy)} of {len(healthy)}.",
        "",
        "Dumps without timing show neither a slow rank nor a slow group, so a healthy job and a slow one look the same",
        "in them: of both the verdict is `cannot_tell`, with the words that nothing hangs and what would show",
        "slowness. A healthy job without timing therefore counts as not right here, although nobody is accused.",
        "",
        *_rows(everything, sorted({r.column for r in everything})),
        "",
        "## Other versions and buffers",
        "",
        "TP8xPP4xDP2, no timing. A bare list (torch 2.2) names no groups, so only what can be told without them is",
        "told; version 1.4 has no dtypes and no group names: there two ranks remain, and both are named as candidates.",
        "",
        *_rows(beside, [name for name, _ in VARIATIONS]),
        "",
        "## What the words mean",
        "",
        "Over both tables, without the cases counted apart.",
        "",
        "| confidence | cases | right |",
        "|---|---|---|",
    ]
    for word in ("high", "medium", "low"):
        total = sum(words[word].values())
        share = f"{words[word]['right'] / total:.1%}" if total else ""
        lines.append(f"| {word} | {total} | {share} |")
    wrong = sum(r.wrong_confident for r in lost)
    lines += [
        "",
        "## Real captures with dumps lost",
        "",
        "Every capture of `tests/data/flight_recorder` and `tests/data/nccl_flight_recorder_16_ranks` with one, two",
        "and three random dumps taken away, everything else left. A guilty rank may be among those that lost theirs.",
        "",
        f"Wrong with high confidence: **{_share(wrong, len(lost))}**.",
        "",
        *_lost_rows(lost),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the sweep, print what is wrong as it comes, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--beside", type=int, default=1, help="seeds of the other versions and buffers")
    parser.add_argument("--draws", type=int, default=50, help="draws of lost dumps, for each number of them")
    parser.add_argument("--fault", choices=FAULTS, help="of the generated jobs only these")
    parser.add_argument("--results", type=Path, help="keep every result here, and go on from what is there")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="accuracy-") as name:
        sweep = Sweep(arguments.results, Path(name))
        for case in cases() if arguments.draws else ():
            sweep.lost(case, arguments.draws)
        sweep.generated("grid", grid(arguments.seeds), arguments.fault)
        sweep.generated("beside", variations(arguments.beside), arguments.fault)
    page = report(list(sweep.results.values()))
    if arguments.write:
        arguments.write.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
