"""A reader of one trace for tests of what is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from mycroft.loaders.store import GuardedResult, Store, open_store


class PlainReader:
    """A reader without a cache: what `TraceReader` is to the functions under test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trace = "job"
        self.title = "Job"
        self.generation = 1

    @contextmanager
    def store(self) -> Iterator[Store]:
        with open_store(self.path) as store:
            yield store

    def frame(self, sql: str, params: Any = ()) -> pl.DataFrame:
        with self.store() as store:
            return store.frame(sql, list(params))

    def sql(self, query: str, *, rows_max: int, timeout_s: float) -> GuardedResult:
        with self.store() as store:
            return store.guarded_sql(query, row_limit=rows_max, time_limit_s=timeout_s)
