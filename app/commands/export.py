"""`mycroft export`: a diagnosis as files for people, or the trace as files for programs."""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mycroft.app.commands import options
from mycroft.app.commands.command import Command

if TYPE_CHECKING:
    from mycroft.app.queries import TraceReader

KINDS: Final = ("html", "json", "markdown", "csv", "perfetto", "bundle")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a trace file, or the id of a trace in --data")
    options.add_data(parser)
    parser.add_argument("--html", metavar="FILE", help="write the diagnosis as one self-contained HTML file")
    parser.add_argument("--json", metavar="FILE", help="write the verdict with ranks and lines as JSON")
    parser.add_argument("--markdown", metavar="FILE", help="write a summary to paste into an incident's channel")
    parser.add_argument("--csv", metavar="FILE", help="write the ranks with their roles as CSV")
    parser.add_argument(
        "--perfetto", metavar="FILE", help="write the operations as Chrome trace JSON for ui.perfetto.dev (.gz: packed)"
    )
    parser.add_argument(
        "--max-operations",
        type=options.count,
        default=1_000_000,
        metavar="N",
        help="operations in --perfetto at most, the newest of more (default: %(default)s)",
    )
    parser.add_argument("--bundle", metavar="FILE", help="write the whole trace as one DuckDB file")
    parser.add_argument(
        "--redact", action="store_true", help="replace names of hosts, addresses, users and directories"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the files that are asked for; their names go to standard output."""
    wanted = {kind: getattr(arguments, kind) for kind in KINDS}
    targets = {kind: Path(name) for kind, name in wanted.items() if name is not None}
    if not targets:
        raise options.PathError(f"name at least one of {', '.join(f'--{kind}' for kind in KINDS)}")
    whole = {"bundle", "perfetto"} & targets.keys()
    if arguments.redact and whole:
        raise options.PathError(
            f"--redact does not reach into --{sorted(whole)[0]}: it holds the evidence itself; use --html or --json"
        )
    for target in targets.values():
        if target.exists():
            raise options.PathError(f"{target}: exists already; remove it or name another file")

    from mycroft.app import export
    from mycroft.app.data_folder import locate
    from mycroft.app.export_data import collect
    from mycroft.app.state import State

    reader = locate(arguments.trace, options.data_dir_if_any(arguments))
    writers = {
        "html": export.to_html,
        "json": export.to_json,
        "markdown": export.to_markdown,
        "csv": export.to_csv,
    }
    if writers.keys() & targets.keys():
        # A trace file that somebody sent has no notes beside it.
        state = None if Path(arguments.trace).is_file() else State(options.data_dir_if_any(arguments))
        data = collect(reader, state=state, pictures="html" in targets)
        for kind in writers.keys() & targets.keys():
            _write(targets[kind], writers[kind](data, redact=arguments.redact))
    if "perfetto" in targets:
        _write_operations(reader, targets["perfetto"], arguments.max_operations)
    if "bundle" in targets:
        shutil.copyfile(reader.path, targets["bundle"])
    for target in targets.values():
        print(target)
    return 0


def _write_operations(reader: TraceReader, target: Path, most: int) -> None:
    from mycroft.app import chrome_trace

    limits = chrome_trace.extent(reader, most=most)
    if limits.said:
        print(f"mycroft: {limits.said}", file=sys.stderr)
    is_packed = target.suffix == ".gz"
    try:
        with (
            target.open("xb") as file,
            gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if is_packed else file as stream,
        ):
            for text in chrome_trace.chrome_trace(reader, limits):
                stream.write(text.encode())
    except OSError as error:
        raise options.PathError(f"{target}: cannot be written ({error.strerror})") from error


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8", newline="") as stream:
            stream.write(text)
    except OSError as error:
        raise options.PathError(f"{target}: cannot be written ({error.strerror})") from error


COMMAND = Command(
    name="export",
    summary="write a diagnosis as HTML, Markdown, JSON or CSV, its operations for Perfetto, or the trace as one file",
    configure=configure,
    run=run,
)
