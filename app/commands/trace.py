"""`mycroft trace`: look into trace files of the tracer."""

from __future__ import annotations

import argparse
import sys
import time

from mycroft.app.commands.command import Command
from mycroft.errors import MycroftError

_LOOKS_PER_S = 10


class TraceCommandError(MycroftError):
    """A trace that cannot be read or written: says which and what to do."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="trace_verb", metavar="cat|stat|tail", required=True)
    cat = verbs.add_parser("cat", help="print every record as a JSON line, or write them to a file")
    cat.add_argument("path", nargs="+", help="trace file, folder of trace files, or exported trace")
    cat.add_argument("--out", metavar="FILE", help="write an export that `mycroft diagnose` reads back")
    cat.add_argument("--format", choices=("jsonl", "parquet", "arrow"), help="of --out; default: by its suffix")
    stat = verbs.add_parser("stat", help="print who wrote a trace, how many records it holds, what was lost")
    stat.add_argument("path", nargs="+", help="trace file, folder of trace files, or exported trace")
    tail = verbs.add_parser("tail", help="print the records of a live trace as they come, until it ends")
    tail.add_argument("path", help="trace file")
    for verb in (cat, tail):
        verb.add_argument(
            "--kind",
            action="append",
            choices=("state", "flow", "op", "heartbeat", "gap", "foreign"),
            help="only this kind of record; may be given again",
        )


def run(arguments: argparse.Namespace) -> int:
    """Run one of the verbs."""
    from mycroft.tracer import TraceError
    from mycroft.tracer.export import ExportError

    try:
        return {"cat": _cat, "stat": _stat, "tail": _tail}[arguments.trace_verb](arguments)
    except (TraceError, ExportError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise TraceCommandError(str(error)) from error


def _cat(arguments: argparse.Namespace) -> int:
    from mycroft.tracer import export_trace
    from mycroft.tracer.show import read_traces, record_lines
    from mycroft.tracer.trace import TABLES

    traces = [trace for path in arguments.path for trace in read_traces(path)]
    if arguments.out is not None:
        suffix = arguments.out.rpartition(".")[2].lower()
        by_suffix = {"ipc": "arrow", "feather": "arrow", "json": "jsonl"}.get(suffix, suffix)
        format_ = str(arguments.format or by_suffix)
        rows = export_trace(traces, arguments.out, format_=format_)
        print(f"{arguments.out}: {rows} rows of {len(traces)} traces", file=sys.stderr)
        return 0
    for trace in traces:
        for line in record_lines(trace, arguments.kind or TABLES):
            print(line)
    return 0


def _stat(arguments: argparse.Namespace) -> int:
    from mycroft.tracer.show import read_traces, stat_lines

    for path in arguments.path:
        for trace in read_traces(path):
            print("\n".join(stat_lines(trace)))
    return 0


def _tail(arguments: argparse.Namespace) -> int:
    from mycroft.tracer.show import tail_lines
    from mycroft.tracer.trace import TABLES

    def wait() -> bool:
        time.sleep(1 / _LOOKS_PER_S)
        return True

    for line in tail_lines(arguments.path, wait, arguments.kind or TABLES):
        print(line, flush=True)
    return 0


COMMAND = Command(
    name="trace",
    summary="look into trace files: cat, stat, tail",
    configure=configure,
    run=run,
    epilog="example: mycroft trace stat /dev/shm/mycroft-$UID",
)
