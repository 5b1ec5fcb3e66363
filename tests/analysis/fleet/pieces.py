"""Rows of every table of a collector's store, made up with what is awkward: ties, unknown values, equal rows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mycroft.loaders.collector.segments import TIME_OF, table_schema
from mycroft.loaders.store import aggregate

START = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class TablePiece:
    """A piece whose rows lie in memory."""

    table: pa.Table

    def reduce(self, sql: str, params: Mapping[str, object], *, threads: int) -> pa.Table:
        return aggregate(sql, {"rows": self.table}, params, threads=threads)


def made_up(kind: str, rows: int, *, seed: int) -> pa.Table:
    """Rows of a kind. Few values, so that groups have many rows and many rows are equal in what they are ordered by."""
    draw = random.Random(f"{kind} {seed}")
    schema = table_schema(kind)
    columns = [pa.array([_value(draw, kind, field) for _ in range(rows)], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _value(draw: random.Random, kind: str, field: pa.Field) -> Any:
    if field.name == "process":
        return f"host{draw.randrange(3)}/{draw.randrange(2)}"
    if field.name == TIME_OF[kind]:
        return START + draw.randrange(4) * 40_000_000_000
    if field.name in ("comm", "op_seq", "channel", "send", "peer", "flow_id"):
        return draw.randrange(2)
    if field.name != "position" and draw.random() < 0.2:
        return None
    if pa.types.is_timestamp(field.type):
        return START + draw.randrange(5)
    return draw.randrange(4)


def split(table: pa.Table, count: int, *, seed: int) -> Sequence[TablePiece]:
    """Deal the rows of a table out at random; a piece may have none."""
    draw = random.Random(seed)
    of = [draw.randrange(count) for _ in range(table.num_rows)]
    return [
        TablePiece(table.take(pa.array([i for i, p in enumerate(of) if p == piece], pa.int64())))
        for piece in range(count)
    ]
