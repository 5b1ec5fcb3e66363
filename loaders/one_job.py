"""A further job of a trace as a trace of its own: whoever looks at it need not know that there were others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.store import OtherJob, StoreWriter

_PIECE_ROWS: Final = 200_000
# Row numbers of a table that was written once and never changed have no gaps.
_PIECE: Final = 'FROM "{0}" WHERE rowid BETWEEN ? AND ? ORDER BY rowid'


def extract_job(job: OtherJob, path: Path) -> None:
    """Write the tables of `job` into a new trace file, a piece at a time.

    Raises:
        StoreError: `path` exists or cannot be written.
    """
    writer = StoreWriter(path)
    try:
        for table in schema.TABLES:
            for piece in _pieces(job, table.name):
                writer.append(table.name, _alone(piece) if table.name == "trace_meta" else piece)
    except BaseException:
        writer.abandon()
        raise
    writer.finish()


def _pieces(job: OtherJob, table: str) -> Iterator[pl.DataFrame]:
    first = 0
    while True:
        # Names of tables come from the schema alone.
        piece = job.frame(_PIECE.format(table), [first, first + _PIECE_ROWS - 1])
        if piece.is_empty():
            return
        yield piece
        first += _PIECE_ROWS


def _alone(meta: pl.DataFrame) -> pl.DataFrame:
    return meta.with_columns(
        pl.when(pl.col("key") == "jobs").then(pl.lit("1")).otherwise(pl.col("value")).alias("value")
    )
