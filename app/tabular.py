"""Answers and tables as files: CSV for people, Parquet for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import polars as pl

from mycroft.app.plain_rows import plain_rows

# A spreadsheet takes text that begins like this for a formula and runs it.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV; unknown is empty.

    Text from the evidence that a spreadsheet would run as a formula gets an apostrophe before it.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow([_cell(name) for name in names])
    writer.writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def frame_csv(frame: pl.DataFrame) -> str:
    """Return a frame as CSV, times as ISO 8601 in UTC."""
    return csv_text(frame.columns, plain_rows(frame))


def frame_parquet(frame: pl.DataFrame) -> bytes:
    """Return a frame as a Parquet file; types are those of the trace."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
