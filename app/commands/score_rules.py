"""`mycroft score --simulated` and `--testbed`: what is run, what is printed, what is kept."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mycroft.analysis.evaluation import Row, Run, failures, false_reports, mean_row, rows_by_fault, score
from mycroft.analysis.verdict import RULES_VERSION
from mycroft.app.evaluation import simulated, testbed
from mycroft.app.evaluation.page import page
from mycroft.app.evaluation.results import append_runs, read_runs
from mycroft.app.evaluation.simulated import RULES, VARIANTS, EvaluationError, Variant

# Healthy jobs have seeds of their own: those of the faults begin alike and would be the same job twice.
HEALTHY_FIRST_SEED = 4000


def run(arguments: argparse.Namespace) -> int:
    """Run what is asked for; the exit status is 1 where a report of our rules is wrong and sure, else 0."""
    results = Path(arguments.results) if arguments.results else None
    kept = read_runs(results) if results is not None else []
    # What older rules said of a job says nothing of these.
    current = [r for r in kept if r.rules != "ours" or r.version == RULES_VERSION]
    known = {(r.topology, r.truth.fault, r.seed, r.rules, r.variant) for r in current}

    def done(topology: str, fault: str, seed: int, rules: Sequence[str], variant: str) -> bool:
        return all((topology, fault, seed, name, variant) in known for name in rules)

    fresh: list[Run] = []
    for runs in _runs(arguments, done):
        fresh += runs
        if results is not None:
            append_runs(results, runs)
        for one in runs:
            print(_line(one), file=sys.stderr, flush=True)
    _print(arguments, fresh)
    if arguments.write:
        if results is None:
            raise EvaluationError("--write needs --results FILE: the page is made of the runs that it holds")
        everything = read_runs(results)
        if not everything:
            raise EvaluationError(f"{results}: holds no runs yet")
        Path(arguments.write).write_text(page(everything), encoding="utf-8")
        print(f"{arguments.write}: {len(everything)} runs", file=sys.stderr)
    return 1 if any(score(r).confident_wrong for r in fresh if r.rules == "ours") else 0


def _runs(
    arguments: argparse.Namespace, done: Callable[[str, str, int, Sequence[str], str], bool]
) -> Iterator[list[Run]]:
    if arguments.testbed:
        yield from _testbed_runs(arguments, done)
    if not arguments.simulated:
        return
    topology = arguments.simulated
    rules = rules_of(arguments.rules)
    variants = variants_of(arguments.variants)
    faults = names_of(arguments.faults, simulated.DEFAULT_FAULTS)
    for variant in variants:
        if arguments.hours is not None:
            pieces = simulated.healthy_runs(
                topology,
                arguments.hours,
                first_seed=HEALTHY_FIRST_SEED,
                piece_s=arguments.piece,
                rules=rules,
                variant=variant,
                done=lambda seed, v=variant: done(topology, "none", seed, rules, v.name),
            )
            yield from pieces
            continue
        yield from simulated.fault_runs(
            topology,
            faults,
            seeds_of(arguments.seeds),
            rules=rules,
            variant=variant,
            done=lambda fault, seed, v=variant: done(topology, fault, seed, rules, v.name),
        )


def _testbed_runs(
    arguments: argparse.Namespace, done: Callable[[str, str, int, Sequence[str], str], bool]
) -> Iterator[list[Run]]:
    root = Path(arguments.testbed)
    if arguments.make:
        made = testbed.make_runs(
            root,
            names_of(arguments.faults, testbed.FAULTS),
            times=arguments.times,
            first_seed=seeds_of(arguments.seeds)[0],
            say=lambda text: print(f"mycroft: {text}", file=sys.stderr, flush=True),
        )
    else:
        if not root.is_dir():
            raise EvaluationError(f"{root}: no such folder")
        wanted = set(names_of(arguments.faults, ("none", *testbed.FAULTS)))
        found = sorted(path.parent for path in root.glob(f"*/{testbed.TRUTH}"))
        folders = [f for f in found if not f.name.endswith(testbed.UNFINISHED)]
        made = iter([f for f in folders if f.name.rpartition("-")[0] in wanted or arguments.faults in (None, "all")])
    for folder in made:
        try:
            truth = testbed.read_truth(folder / testbed.TRUTH)
        except EvaluationError as error:
            # One run of a series of hours must not end it.
            print(f"mycroft: left out: {error}", file=sys.stderr, flush=True)
            continue
        if not done("testbed", truth.fault, testbed.seed_of(folder), ("ours",), "plain"):
            yield [testbed.score_run(folder)]


# ---- arguments -------------------------------------------------------------------------------


def seeds_of(text: str) -> list[int]:
    """Return the seeds of `900-919` or `1,5,7-9`.

    Raises:
        EvaluationError: if it is neither.
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise EvaluationError(f"seeds {text!r}: expected numbers and spans, as 900-919 or 1,5,7-9")
        found += range(int(first), int(last or first) + 1)
    return found


def names_of(text: str | None, everything: Sequence[str]) -> list[str]:
    """Return the names of a comma list; None and `all` are everything."""
    return list(everything) if text in (None, "all") else [name.strip() for name in str(text).split(",")]


def rules_of(text: str) -> list[str]:
    """Return the sets of rules of a comma list; `paper` means all its readings, `all` ours as well.

    Raises:
        EvaluationError: if there are no rules of a name.
    """
    found: list[str] = []
    for name in names_of(text, RULES):
        found += [r for r in RULES if r.startswith("paper")] if name == "paper" else [name]
    unknown = [name for name in found if name not in RULES]
    if unknown:
        raise EvaluationError(f"rules {unknown[0]!r}: expected one of {', '.join(RULES)}")
    return list(dict.fromkeys(found))


def variants_of(text: str) -> list[Variant]:
    """Return the variants of a comma list; `all` are all.

    Raises:
        EvaluationError: if there is no variant of a name.
    """
    names = names_of(text, tuple(VARIANTS))
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        raise EvaluationError(f"variant {unknown[0]!r}: expected one of {', '.join(VARIANTS)}")
    return [VARIANTS[name] for name in names]


# ---- what is printed -------------------------------------------------------------------------


def _line(run: Run) -> str:
    """One run on one line, as it ends."""
    injected = run.truth.injected_ns
    head = f"{run.topology} {run.truth.fault} {run.seed} {run.rules} {run.variant}:"
    if injected is None:
        told = "; ".join(f"{a.component} {list(a.ranks) or list(a.hosts)}" for a in run.answers)
        return f"{head} {len(run.answers)} reports in {run.watched_s / 3600:.2f} h {told} ({run.cpu_s:.1f} CPU-s)"
    got = score(run)
    answer = next((a for a in run.answers if a.at_ns >= injected), None)
    if answer is None:
        return f"{head} not detected, {got.early} early ({run.cpu_s:.1f} CPU-s)"
    who = list(answer.ranks) or list(answer.hosts)
    after = "after the job" if got.delay_s is None else f"after {got.delay_s:.1f} s"
    marks = f"rank {got.rank:.2f} component {'right' if got.component else 'wrong'}, {got.early} early"
    sure = "" if answer.certainty is None else f" {answer.certainty:.2f}"
    return f"{head} {answer.component} {who[:8]} {answer.confidence}{sure} {after}: {marks} ({run.cpu_s:.1f} CPU-s)"


def _print(arguments: argparse.Namespace, runs: Sequence[Run]) -> None:
    if arguments.json:
        print(json.dumps(_summary(runs), indent=2, ensure_ascii=False))
        return
    for rules in dict.fromkeys(r.rules for r in runs):
        for variant in dict.fromkeys(r.variant for r in runs):
            some = [r for r in runs if (r.rules, r.variant) == (rules, variant)]
            lines = rows_by_fault(some)
            if lines:
                print(f"{rules}, {variant}")
                print(text_table([*lines, mean_row("mean", lines)]))
            told = false_reports(some)
            if told.hours:
                print(
                    f"{rules}, {variant}: {told.reports} false reports in {told.hours:.2f} h of healthy jobs, "
                    f"{told.per_hour:.2f}/h, upper 95 % bound {told.upper:.2f}/h"
                )


def _summary(runs: Sequence[Run]) -> dict[str, object]:
    healthy = false_reports(runs)
    return {
        "faults": [asdict(line) for line in rows_by_fault(runs)],
        "healthy": asdict(healthy) if healthy.hours else None,
        "failures": [{"run": asdict(one), "why": why} for one, why in failures(runs)],
        "runs": [asdict(one) for one in runs],
    }


def text_table(lines: Sequence[Row]) -> str:
    """Return lines of results as a table of plain text."""
    head = f"{'fault':<12} {'runs':>4} {'found':>6} {'p50 s':>6} {'p90 s':>6}"
    head += f" {'rank':>5} {'set':>5} {'host':>5} {'part':>5} early"
    rows = [head]
    for line in lines:
        p50 = "" if line.delay_p50_s is None else f"{line.delay_p50_s:.1f}"
        p90 = "" if line.delay_p90_s is None else f"{line.delay_p90_s:.1f}"
        rows.append(
            f"{line.name:<12} {line.runs:>4} {100 * line.detected:>5.0f}% {p50:>6} {p90:>6} {100 * line.rank:>4.0f}% "
            f"{100 * line.in_set:>4.0f}% {100 * line.host:>4.0f}% {100 * line.component:>4.0f}% {line.early:>5}"
        )
    return "\n".join(rows) + "\n"
