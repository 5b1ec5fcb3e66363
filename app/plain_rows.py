"""Rows of a frame as plain values that JSON, CSV and a terminal can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

MAX_JS_INT: Final = 2**53 - 1


def plain_rows(frame: pl.DataFrame, *, for_browser: bool = False) -> list[list[Any]]:
    """Return the rows: times as ISO 8601 text with nanoseconds in UTC, bytes as hexadecimal, NaN and infinity as None.

    With `for_browser`, whole numbers that JavaScript cannot hold are text.
    """
    times = [
        pl.col(name).dt.to_string("%Y-%m-%dT%H:%M:%S%.9fZ")
        for name, kind in frame.schema.items()
        if isinstance(kind, pl.Datetime)
    ]
    return [[_plain(value, for_browser) for value in row] for row in frame.with_columns(times).iter_rows()]


def _plain(value: Any, for_browser: bool) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return str(value) if for_browser and abs(value) > MAX_JS_INT else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _plain(item, for_browser) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item, for_browser) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
