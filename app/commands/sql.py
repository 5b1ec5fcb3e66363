"""`mycroft sql`: one read-only query over a trace, limited in rows, time and memory."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from typing import Any

from mycroft.app.commands import options
from mycroft.app.commands.command import Command


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a trace file, or the id of a trace in --data")
    parser.add_argument(
        "query", metavar="QUERY", help='one SELECT, such as "SELECT kind, count(*) FROM events GROUP BY 1"'
    )
    options.add_data(parser)
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="(default: %(default)s)")
    parser.add_argument(
        "--max-rows", type=options.count, default=10_000, metavar="N", help="rows at most (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout", type=options.seconds, default=60.0, metavar="S", help="seconds at most (default: %(default)s)"
    )
    parser.add_argument(
        "--max-memory",
        type=options.count,
        default=1024,
        metavar="MIB",
        help="memory at most, MiB (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Answer the query; a cut answer is said on standard error."""
    from mycroft.app.data_folder import locate
    from mycroft.app.plain_rows import plain_rows

    with locate(arguments.trace, options.data_dir_if_any(arguments)).store() as store:
        answer = store.guarded_sql(
            arguments.query,
            row_limit=arguments.max_rows,
            time_limit_s=arguments.timeout,
            memory_limit=f"{arguments.max_memory}MiB",
        )
    names, rows = answer.frame.columns, plain_rows(answer.frame)
    write_rows(arguments.format, names, rows)
    if answer.cut:
        print(f"mycroft: only the first {len(rows):,} rows are shown; see --max-rows", file=sys.stderr)
    return 0


def write_rows(form: str, names: list[str], rows: list[list[Any]]) -> None:
    """Print an answer as a `table`, as `csv`, or as `json`, an object a line."""
    _WRITERS[form](names, rows)


def _write_csv(names: list[str], rows: list[list[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if value is None else value for value in row] for row in rows])


def _write_json(names: list[str], rows: list[list[Any]]) -> None:
    for row in rows:
        print(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False))


def _write_table(names: list[str], rows: list[list[Any]]) -> None:
    cells = [names, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    for number, row in enumerate(cells):
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  ".join("─" * width for width in widths))


def _cell(value: Any) -> str:
    # Text from the evidence must not speak to the terminal.
    return "".join(char if char.isprintable() else "·" for char in ("NULL" if value is None else str(value)))


_WRITERS = {"csv": _write_csv, "json": _write_json, "table": _write_table}

COMMAND = Command(
    name="sql",
    summary="answer one SELECT over a trace, read-only and limited in rows, time and memory",
    configure=configure,
    run=run,
    epilog="docs/schema.md describes the tables",
)
