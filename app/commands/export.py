"""`mycroft export`: a diagnosis as one file for people, or the trace as one file for programs."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from mycroft.app.commands import options
from mycroft.app.commands.command import Command


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a trace file, or the id of a trace in --data")
    options.add_data(parser)
    parser.add_argument("--html", metavar="FILE", help="write the diagnosis as one self-contained HTML file")
    parser.add_argument("--json", metavar="FILE", help="write the verdict with ranks and lines as JSON")
    parser.add_argument("--bundle", metavar="FILE", help="write the whole trace as one DuckDB file")
    parser.add_argument(
        "--redact", action="store_true", help="replace names of hosts, addresses, users and directories (HTML and JSON)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the files that are asked for; their names go to standard output."""
    wanted = {kind: getattr(arguments, kind) for kind in ("html", "json", "bundle")}
    targets = {kind: Path(name) for kind, name in wanted.items() if name is not None}
    if not targets:
        raise options.PathError("name at least one of --html, --json and --bundle")
    if arguments.redact and "bundle" in targets:
        raise options.PathError(
            "--redact does not reach into a bundle: it holds the evidence itself; use --html or --json"
        )
    for target in targets.values():
        if target.exists():
            raise options.PathError(f"{target}: exists already; remove it or name another file")

    from mycroft.app import export
    from mycroft.app.data_folder import locate
    from mycroft.app.export_data import collect

    reader = locate(arguments.trace, options.data_dir_if_any(arguments))
    writers = {"html": export.to_html, "json": export.to_json}
    if writers.keys() & targets.keys():
        data = collect(reader)
        for kind in writers.keys() & targets.keys():
            _write(targets[kind], writers[kind](data, redact=arguments.redact))
    if "bundle" in targets:
        shutil.copyfile(reader.path, targets["bundle"])
    for target in targets.values():
        print(target)
    return 0


def _write(target: Path, text: str) -> None:
    try:
        with target.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise options.PathError(f"{target}: cannot be written ({error.strerror})") from error


COMMAND = Command(
    name="export",
    summary="write a diagnosis as one HTML or JSON file, or the trace as one DuckDB file",
    configure=configure,
    run=run,
)
