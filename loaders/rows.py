"""Rows on their way from a loader to the store: collected in plain Python, handed over in frames."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from mycroft.loaders.base import LoadContext, LoadReport
from mycroft.loaders.schema import BY_NAME, Table, polars_schema

_LIMIT: Final = 20_000
MAX_TEXT: Final = 2000
_BOUNDS: Final = {
    "UTINYINT": (0, 2**8 - 1),
    "USMALLINT": (0, 2**16 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "UINTEGER": (0, 2**32 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "UBIGINT": (0, 2**64 - 1),
    "TIMESTAMP_NS": (-(2**63) + 1, 2**63 - 1),
}


def _fitting(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """Return `row` with every value that its column cannot hold set to NULL."""
    kept: dict[str, Any] = {}
    for column in table.columns:
        value = row.get(column.name)
        if value is None:
            continue
        if column.values is not None:
            fits = value in column.values
        elif column.type in _BOUNDS:
            low, high = _BOUNDS[column.type]
            fits = isinstance(value, int) and low <= value <= high
        elif column.type in ("DOUBLE", "FLOAT"):
            fits = isinstance(value, int | float)
        elif column.type == "BOOLEAN":
            fits = isinstance(value, bool)
        else:
            fits = isinstance(value, str | bytes | list)
        if fits:
            kept[column.name] = value
    return kept


class RowBuffer:
    """Collects rows of one table and hands them to the context in frames of bounded size.

    Times are integer ns. A value that its column cannot hold (evidence may say anything) becomes NULL and is
    counted in the report; a row whose required columns are missing then is dropped and counted.
    """

    def __init__(self, context: LoadContext, table: str, report: LoadReport | None = None) -> None:
        self._context = context
        self._table = BY_NAME[table]
        self._schema = polars_schema(self._table)
        self._required = tuple(c.name for c in self._table.columns if not c.nullable)
        self._rows: list[dict[str, Any]] = []
        self.report = report

    def add(self, **values: Any) -> None:
        """Add one row; columns that are not named are NULL."""
        self._rows.append(values)
        if self.report is not None:
            self.report.rows += 1
        if len(self._rows) >= _LIMIT:
            self.flush()

    def flush(self) -> None:
        """Hand over what is held."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        names = {name for row in rows for name in row}
        schema = {name: dtype for name, dtype in self._schema.items() if name in names}
        unknown = names - schema.keys()
        assert not unknown, f"{self._table.name} has no column {sorted(unknown)}"
        try:
            frame = pl.from_dicts(rows, schema=schema, strict=True)
        except (pl.exceptions.PolarsError, TypeError, OverflowError, ValueError):
            frame = pl.from_dicts(self._repaired(rows), schema=schema)
        if frame.height:
            self._context.emit(self._table.name, frame)

    def _repaired(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept: list[dict[str, Any]] = []
        for row in rows:
            fitting = _fitting(self._table, row)
            lost = len([v for v in row.values() if v is not None]) - len(fitting)
            if any(name not in fitting for name in self._required):
                if self.report is not None:
                    self.report.rows -= 1
                    self.report.drop("a required value is out of range")
                continue
            if lost and self.report is not None:
                self.report.drop("value out of range", lost)
            kept.append(fitting)
        return kept


def clip(text: str) -> str:
    """Return `text` cut at the length that the events table keeps."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
