"""Judges every incident under every outer layer, with every file lost in turn, and beside every other incident.

    python -m tests.bench.wrappers [layers] [losses] [pairs] [flat] [--case NAME]

Each prints what did not come out right, and a line of counts. `layers`, `losses` and `pairs` where nothing is named.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mycroft.analysis import scoring
from mycroft.analysis.scoring import CaseScore
from mycroft.analysis.verdict import Verdict
from tests import log_cases
from tests.analysis.incidents import verdict_of

Judged = tuple[str, str]
"""What was judged, and how it came out."""


def judge(files: log_cases.Files) -> Verdict:
    """Return the verdict on files in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as folder:
        return verdict_of(Path(folder), files)


def outcome(found: CaseScore) -> str:
    """Return one word for a score."""
    return "wrong and confident" if found.wrong_confident else found.outcome


def layers(cases: Sequence[str]) -> Iterator[Judged]:
    """Every change made to every case."""
    for case in cases:
        files, truth = log_cases.files_of(case), log_cases.truth_of(case)
        for change in log_cases.changes():
            verdict = judge(log_cases.changed(files, change))
            yield f"{case} under {change}", outcome(scoring.score_case(case, verdict, truth))


def without_a_file(case: str, verdict: Verdict) -> str:
    """Return one word for a verdict on a case that has lost a file: the same culprit, or what would decide."""
    truth = log_cases.truth_of(case)
    found = scoring.score_case(case, verdict, truth)
    if verdict.status == "cannot_tell":
        return "says what is missing" if verdict.unknown else "abstained"
    if log_cases.same_place(verdict, truth):
        return "same host, asks for the rank"
    return outcome(found)


def losses(cases: Sequence[str]) -> Iterator[Judged]:
    """Every case without one of its files."""
    for case in cases:
        for lost, files in log_cases.without(log_cases.files_of(case)):
            yield f"{case} without {lost}", without_a_file(case, judge(files))


Named = tuple[str, tuple[int, ...], tuple[str, ...]]
"""What a finding says: category, ranks, hosts."""


def named_in(verdict: Verdict, cases: Sequence[str] = (), *, sure: bool = False) -> set[Named]:
    """Return whom a verdict names. A host that is known by the name of a file alone has none of the case before it."""

    def plain(host: str) -> str:
        return next((host.removeprefix(f"{case}-") for case in cases if host.startswith(f"{case}-")), host)

    return {
        (f.category, f.root_cause.ranks, tuple(plain(host) for host in f.root_cause.hosts))
        for f in verdict.findings
        if not sure or f.confidence == "high"
    }


def alike(found: Named, truth: Named) -> bool:
    """Say whether one culprit is meant: the same ranks, or hosts where there are none, and no other host."""
    if set(found[2]) - set(truth[2]) and truth[2]:
        return False
    return found[1] == truth[1] if found[1] or not found[2] else found[2] == truth[2]


def compared(found: set[Named], sure: set[Named], one: set[Named], two: set[Named]) -> str:
    """Return how a verdict on two cases compares with those on each alone.

    `less is said`: the same culprits, of one no host or a more general category.
    """
    both = one | two
    if found == both:
        return "right"
    if any(not any(alike(f, truth) for truth in both) for f in sure):
        return "wrong and confident"
    if any(not any(alike(f, truth) for truth in both) for f in found):
        return "another is named"
    # One finding does not stand for two culprits.
    known = min(sum(any(alike(f, truth) for f in found) for truth in both), len(found))
    return "less is said" if known == len(both) else f"{known} of {len(both)} named"


def pairs(cases: Sequence[str], *, flat: bool = False) -> Iterator[Judged]:
    """Two cases in one folder: right where both are named as each is alone, and nobody else is."""
    alone = {case: named_in(judge(log_cases.files_of(case))) for case in cases}
    for one, two in itertools.combinations(cases, 2):
        verdict = judge(log_cases.together(one, two, flat=flat))
        found = named_in(verdict, (one, two))
        said = compared(found, named_in(verdict, (one, two), sure=True), alone[one], alone[two])
        yield f"{one} + {two}: {sorted(found, key=str) if said != 'right' else ''}", said


GOOD = ("right", "says what is missing", "same host, asks for the rank")
PARTS: dict[str, Callable[[Sequence[str]], Iterator[Judged]]] = {
    "layers": layers,
    "losses": losses,
    "pairs": pairs,
    "flat": lambda cases: pairs(cases, flat=True),
}


def main() -> None:
    """Print what is not right, and the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.wrappers", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="what to judge")
    parser.add_argument("--case", action="append", help="a case; all where none is named")
    options = parser.parse_args()
    cases = options.case or list(log_cases.folders())
    for part in options.parts or ("layers", "losses", "pairs"):
        began, counts = time.process_time(), Counter[str]()
        for what, said in PARTS[part](cases):
            counts[said] += 1
            if said not in GOOD:
                print(f"  {said:20} {what}", flush=True)
        told = ", ".join(f"{n} {said}" for said, n in counts.most_common())
        print(f"{part}: {told} of {counts.total()}; {time.process_time() - began:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
