"""Which processes were alive when somebody looked, and with what code the others had ended.

A JSON object such as `{"snapshot_unix": …, "alive_at_snapshot": [0, 1], "exit_code_before_cleanup": {"2": -9}}`; the
keys are known by their words, since every script has its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, cast

import polars as pl

from mycroft.loaders import json_values as jv
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport

MAX_BYTES: Final = 64 << 20
_ALIVE: Final = re.compile(r"(?:ranks_)?(?:alive|running|live)(?:_ranks)?(?:_.*)?")
_FINISHED: Final = re.compile(r"(?:ranks_)?(?:done|finished|completed)(?:_ranks)?(?:_.*)?")
_CODES: Final = re.compile(r"(?:exit|return)_?codes?(?:_.*)?")
_TIME: Final = re.compile(r"(?:.*_)?(?:unix|timestamp|time|ts)(?:_(?P<unit>s|ms|us|ns))?")
_HEAD: Final = re.compile(
    rb'"(?:ranks_)?(?:alive|running|live)(?:_\w*)?"\s*:\s*\[|"(?:exit|return)_?codes?(?:_\w*)?"\s*:\s*\{'
)
_UNITS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}


class ProcessStateLoader:
    """Reads snapshots of the state of the job's processes."""

    name = "process_state"
    title = "state of the job's processes (JSON: alive ranks, exit codes)"
    recognised_by = "a JSON object with a list of alive ranks or a table of exit codes"
    yields = "events alive, exit and finished of each rank"

    def sniff(self, file: EvidenceFile) -> bool:
        """A small JSON object with one of the two."""
        starts = file.head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        return starts and file.size_bytes <= MAX_BYTES and bool(_HEAD.search(file.head))

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read each file into events."""
        return [_load_one(file, context) for file in files]


def _load_one(file: EvidenceFile, context: LoadContext) -> LoadReport:
    report = LoadReport(file.file_id, ProcessStateLoader.name)
    try:
        state = jv.object_of(file.path.read_bytes())
    except (OSError, ValueError) as error:
        report.problems.append(str(error))
        return report
    ts = _time(state)
    rows: list[tuple[int, str, int | None, str]] = []
    for key, value in state.items():
        if _ALIVE.fullmatch(key) or _FINISHED.fullmatch(key):
            kind = "alive" if _ALIVE.fullmatch(key) else "finished"
            for rank in cast("list[object]", value) if isinstance(value, list) else []:
                if (number := _rank(rank)) is None:
                    report.drop(f"{kind}: rank that is none")
                else:
                    rows.append((number, kind, None, f"{key}: rank {number}"))
        elif _CODES.fullmatch(key) and isinstance(value, dict):
            for rank, code in cast("dict[str, object]", value).items():
                number = _rank(rank)
                if number is None or not isinstance(code, int) or isinstance(code, bool) or abs(code) >= 2**31:
                    report.drop("exit code that is none")
                else:
                    rows.append((number, "exit", code, f"{key}: rank {number} ended with code {code}"))
    _emit(rows, ts, file, context)
    report.rows = len(rows)
    return report


def _emit(
    rows: list[tuple[int, str, int | None, str]], ts: int | None, file: EvidenceFile, context: LoadContext
) -> None:
    for rank, _, _, _ in rows:
        context.rank(rank)
    levels = {"alive": "info", "finished": "info", "exit": "error"}
    frame = pl.DataFrame(
        {
            "rank": [row[0] for row in rows],
            "kind": [row[1] for row in rows],
            "level": [levels[row[1]] if row[2] != 0 else "info" for row in rows],
            "code": [row[2] for row in rows],
            "text": [row[3] for row in rows],
        },
        schema={"rank": pl.UInt32, "kind": pl.String, "level": pl.String, "code": pl.Int32, "text": pl.String},
    )
    context.emit(
        "events",
        frame.with_columns(
            pl.lit(ts, dtype=pl.Int64).cast(pl.Datetime("ns")).alias("ts"),
            pl.lit("exact" if ts is not None else None, dtype=pl.String).alias("time_quality"),
            pl.lit(ProcessStateLoader.name).alias("source"),
            pl.lit(file.file_id).alias("file_id"),
            pl.lit(1).alias("line"),
        ),
    )


def _rank(value: object) -> int | None:
    """Return a rank, given as a number or as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 9:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32 - 1 else None


def _time(state: dict[str, Any]) -> int | None:
    """Return the time of the snapshot in ns since 1970, None where the file gives none; seconds unless it says so."""
    for key, value in state.items():
        match = _TIME.fullmatch(key)
        if not match or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        ns = round(value * 1000) * 1_000_000 if match["unit"] in (None, "s") else round(value * _UNITS[match["unit"]])
        if 631_152_000_000_000_000 <= ns <= 7_258_118_400_000_000_000:
            return ns
    return None
