"""What a table is: its columns with their types, and what Arrow and polars call those types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column: DuckDB type (or an ENUM's values), whether NULL may stand in it, and a sentence with its unit."""

    name: str
    type: str
    doc: str
    nullable: bool = True
    values: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """One table; `sort` is the order rows are written in."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...] = ()


def optional(name: str, type_: str, doc: str) -> Column:
    """Return a column that may be NULL: not known."""
    return Column(name, type_, doc)


def key(name: str, type_: str, doc: str) -> Column:
    """Return a column that is never NULL."""
    return Column(name, type_, doc, nullable=False)


def one_of(name: str, values: tuple[str, ...], doc: str) -> Column:
    """Return a column that holds one of some words, or NULL."""
    return Column(name, "ENUM", doc, values=values)


_ARROW: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "INTEGER": pa.int32(),
    "UINTEGER": pa.uint32(),
    "BIGINT": pa.int64(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "VARCHAR[]": pa.list_(pa.string()),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "ENUM": pa.dictionary(pa.uint32(), pa.string()),
}
_POLARS: Final[dict[str, pl.DataType]] = {
    "BOOLEAN": pl.Boolean(),
    "UTINYINT": pl.UInt8(),
    "USMALLINT": pl.UInt16(),
    "INTEGER": pl.Int32(),
    "UINTEGER": pl.UInt32(),
    "BIGINT": pl.Int64(),
    "UBIGINT": pl.UInt64(),
    "FLOAT": pl.Float32(),
    "DOUBLE": pl.Float64(),
    "VARCHAR": pl.String(),
    "BLOB": pl.Binary(),
    "VARCHAR[]": pl.List(pl.String()),
    "TIMESTAMP_NS": pl.Datetime("ns"),
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of `table`; ENUM columns are dictionaries of text."""
    return pa.schema([pa.field(c.name, _ARROW[c.type], c.nullable) for c in table.columns])


def polars_schema(table: Table) -> pl.Schema:
    """Return the polars schema of `table`; ENUM columns are `pl.Enum` of exactly the listed values."""
    return pl.Schema({c.name: pl.Enum(c.values) if c.values else _POLARS[c.type] for c in table.columns})
