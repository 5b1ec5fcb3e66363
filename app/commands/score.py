"""`mycroft score`: diagnose cases whose truth is known, and compare."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mycroft.app.commands import options
from mycroft.app.commands.command import Command
from mycroft.app.terminal import Progress
from mycroft.scratch import scratch_folder

if TYPE_CHECKING:
    from mycroft.analysis.scoring import CaseScore

TRUTH = "truth.json"
TRUTH_BYTES_MAX = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", help=f"folder of cases: folders that hold a {TRUTH}")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    jobs = parser.add_argument_group("evaluation of the rules, without FOLDER")
    jobs.add_argument("--simulated", metavar="TOPOLOGY", nargs="?", const="T32", help="simulate jobs (default: T32)")
    jobs.add_argument("--testbed", metavar="RUNS", help="score a folder of runs of the testbed")
    jobs.add_argument("--make", action="store_true", help="with --testbed: make the runs first, one after the other")
    jobs.add_argument("--faults", metavar="A,B", help="faults, or all (default); `none` is a healthy run")
    jobs.add_argument("--seeds", metavar="A-B", default="925-934", help="seeds of the jobs (default: %(default)s)")
    jobs.add_argument("--times", metavar="N", type=options.count, default=10, help="with --make: runs of each fault")
    jobs.add_argument("--rules", metavar="A,B", default="ours", help="ours, paper (all its readings), paper-0.1s, …")
    jobs.add_argument("--variants", metavar="A,B", default="plain", help="how jobs or rows are spoilt, or all")
    jobs.add_argument("--hours", metavar="H", type=options.seconds, help="healthy jobs of so many simulated hours")
    jobs.add_argument("--piece", metavar="S", type=options.seconds, default=600.0, help="length of a healthy job, s")
    jobs.add_argument("--results", metavar="FILE", help="add the runs to this file; what it holds is not run again")
    jobs.add_argument("--write", metavar="PAGE", help="write the page of all runs in --results, as docs/evaluation.md")


def run(arguments: argparse.Namespace) -> int:
    """Score every case; the exit status is 1 where one is wrong and confident, else 0."""
    if arguments.simulated or arguments.testbed or arguments.write:
        from mycroft.app.commands.score_rules import run as evaluate

        return evaluate(arguments)
    if arguments.folder is None:
        raise options.PathError("score: name a FOLDER of cases, --simulated or --testbed RUNS")
    return _run_folder(arguments)


def _run_folder(arguments: argparse.Namespace) -> int:
    from mycroft.analysis import scoring

    root = Path(arguments.folder)
    if not root.is_dir():
        raise options.PathError(f"{root}: no such folder")
    cases = list(find_cases(root))
    if not cases:
        raise options.PathError(f"{root}: no folder in it holds a {TRUTH}")
    scores: list[CaseScore] = []
    with Progress() as progress:
        for number, (name, folder) in enumerate(cases):
            progress.show("score", number, len(cases), "cases")
            scores.append(score(name, folder, progress))
    total = scoring.summarise(scores)
    if arguments.json:
        body = {"cases": [asdict(one) for one in scores], "summary": asdict(total)}
        print(json.dumps(body, indent=2, ensure_ascii=False))
    else:
        print(scoring.table(scores), end="")
    return 1 if total.wrong_confident else 0


def find_cases(root: Path) -> Iterator[tuple[str, Path]]:
    """Return the cases at or below `root` in the order of their names; a case has no cases inside."""
    if (root / TRUTH).is_file():
        yield root.resolve().name, root
        return
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        below = sorted((entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()), reverse=True)
        if folder != root and (folder / TRUTH).is_file():
            yield folder.relative_to(root).as_posix(), folder
        else:
            waiting += below


def read_truth(path: Path) -> Mapping[str, Any]:
    """Return the truth of a case.

    Raises:
        PathError: it is no JSON object.
    """
    try:
        truth = json.loads(path.read_bytes()[:TRUTH_BYTES_MAX])
    except (OSError, ValueError) as error:
        raise options.PathError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(truth, dict):
        raise options.PathError(f"{path}: a JSON object was expected")
    return truth


def score(name: str, folder: Path, progress: Progress) -> CaseScore:
    """Diagnose one case and compare; `diagnose` never sees the truth, since loading ignores files of that name."""
    from mycroft.analysis import scoring
    from mycroft.analysis.verdict import EvidenceSummary, Verdict
    from mycroft.app.ingest import NothingReadableError, Stages, prepare

    truth = read_truth(folder / TRUTH)
    started = time.perf_counter()
    with scratch_folder() as scratch:
        try:
            verdict = prepare([folder], scratch, Stages(lambda *_: None)).verdict
        except NothingReadableError as error:
            progress.warn(f"{name}: {error}")
            verdict = Verdict("", EvidenceSummary(), "cannot_tell", str(error))
    return scoring.score_case(name, verdict, truth, seconds=time.perf_counter() - started)


COMMAND = Command(
    name="score",
    summary=f"diagnose every case below a folder that has a {TRUTH}, simulated jobs or testbed runs, and compare",
    configure=configure,
    run=run,
    epilog="exit status: 0 no case is wrong and confident, 1 one is, 2 wrong usage",
)
