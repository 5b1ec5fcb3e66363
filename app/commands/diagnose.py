"""`mycroft diagnose`: from evidence to a verdict, on standard output and in the exit status."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from mycroft.app.commands import options
from mycroft.app.commands.command import Command
from mycroft.app.terminal import Progress
from mycroft.scratch import scratch_folder

REASONS_SHOWN = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_paths(parser)
    printed = parser.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the verdict as JSON (schema mycroft.verdict/1)")
    printed.add_argument(
        "--markdown", action="store_true", help="print a summary in Markdown, to paste into an incident's channel"
    )
    parser.add_argument("--trace-out", metavar="FILE", help="keep the loaded trace in FILE.duckdb")
    parser.add_argument(
        "--expect-ranks", metavar="N", type=options.positive_ranks, help="ranks that the job should have had"
    )


def run(arguments: argparse.Namespace) -> int:
    """Load, diagnose, print; the exit status is the verdict's."""
    from mycroft.app.ingest import Stages, prepare

    trace_out = None if arguments.trace_out is None else Path(arguments.trace_out)
    if trace_out is not None and trace_out.exists():
        raise options.PathError(f"{trace_out}: exists already; a trace is never overwritten, remove it or name another")
    sources, _ = options.evidence(arguments.paths)
    with scratch_folder() as folder, Progress() as progress:
        stages = Stages.on_terminal(progress)
        draft = prepare(sources, folder, stages, ranks_expected=arguments.expect_ranks)
        if trace_out is not None:
            draft.keep(trace_out)
        progress.clear()
        _warn(progress, draft.verdict.evidence.unread)
    if arguments.json:
        print(draft.verdict.to_json())
    elif arguments.markdown:
        from mycroft.app.markdown_summary import to_markdown

        print(to_markdown(draft.verdict.to_dict()), end="")
    else:
        from mycroft.analysis.report import render

        print(render(draft.verdict))
    return draft.verdict.exit_code


def _warn(progress: Progress, unread: tuple[dict[str, str], ...]) -> None:
    """Say what was not read, one line for each reason: a job leaves many empty logs, and the verdict comes after."""
    names: dict[str, list[str]] = defaultdict(list)
    for entry in unread:
        names[entry["why"]].append(entry["file"])
    for why, files in list(names.items())[:REASONS_SHOWN]:
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        progress.warn(f"not read: {files[0]}{more}: {why}")
    if len(names) > REASONS_SHOWN:
        progress.warn(f"{len(names) - REASONS_SHOWN} more reasons not to read files; --json lists them all")


COMMAND = Command(
    name="diagnose",
    summary="say who stalls or slows the job, why, how sure that is, and what to do next",
    configure=configure,
    run=run,
    epilog="exit status: 0 healthy, 1 a finding, 2 wrong usage or nothing readable, 3 cannot tell",
)
