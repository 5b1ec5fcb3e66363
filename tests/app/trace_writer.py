"""Writes invented rows as a trace file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.store import StoreWriter


def write_rows(path: Path, made: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write rows by table to a new trace file, with the schema's own types; a column that a row lacks is null in it."""
    writer = StoreWriter(path)
    meta = [
        {"key": "schema_version", "value": str(schema.SCHEMA_VERSION)},
        {"key": "engine", "value": "0.1.0/1"},
    ]
    for table, found in {"trace_meta": meta, **made}.items():
        wanted = schema.polars_schema(schema.BY_NAME[table])
        names = {name for row in found for name in row}
        frame = pl.DataFrame(
            [{name: row.get(name) for name in names} for row in found],
            schema={name: wanted[name] for name in wanted if name in names},
            orient="row",
        )
        writer.append(table, frame)
    writer.finish()
