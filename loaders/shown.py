"""Traces that are looked at once and forgotten: the engine reads their rows where they are, and copies none of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.store import MemoryWriter

# An engine with all tables, empty, is kept in each thread: to make one costs more than a look at a small job.
_KEPT: Final = threading.local()


class ShownStore:
    """A trace of which the engine holds no copy; answers like `Store`. Use it as a context, one at a time in a thread.

    It takes rows from `TraceContext.write` as a writer of a file does.
    """

    def __init__(self) -> None:
        engine: MemoryWriter | None = getattr(_KEPT, "engine", None)
        if engine is None:
            engine = _KEPT.engine = MemoryWriter()
        self._engine = engine
        self._shown: list[str] = []

    @property
    def meta(self) -> dict[str, str]:
        """What is known of the trace as a whole."""
        return {str(key): str(value) for key, value in self.frame("SELECT key, value FROM trace_meta").iter_rows()}

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Show the rows of a table, in the order given; columns that the frame lacks are NULL."""
        if frame.is_empty():
            return
        wanted = schema.polars_schema(schema.BY_NAME[table])
        missing = [pl.lit(None, kind).alias(name) for name, kind in wanted.items() if name not in frame.columns]
        # Hides the empty table of that name.
        self._engine.show(table, frame.with_columns(missing).select(list(wanted)))
        self._shown.append(table)

    def append_pieces(self, table: str, pieces: Iterable[pl.DataFrame]) -> None:
        """Show rows in the order of the table; rows that are equal in its sort columns stay in the order given."""
        whole = pl.concat(pieces, how="diagonal")
        keys = [name for name in schema.BY_NAME[table].sort if name in whole.columns]
        self.append(table, whole.sort(keys, maintain_order=True) if keys else whole)

    def frame(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query as a frame; see `Store.frame`."""
        return self._engine.ask(sql, params)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for table in self._shown:
            self._engine.hide(table)
        self._shown.clear()
