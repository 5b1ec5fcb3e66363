"""The seam: an analysis over raw rows is a `Reduction`, done piece by piece and merged in any order, with one result.

    partial(reduction, piece, window) -> table        where the files of the piece are
    merge(reduction, tables) -> table                 associative and commutative

A reduction is declared, not programmed: it may count, add integers, take least and greatest values, and pick a row by a
total order. Those are the operations for which the order of the pieces cannot matter; averages, exact medians and
"first" are not among them. Averages are made from sums at the end; distributions are counts of fixed bins.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial as bound
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import pyarrow

from mycroft.loaders.store import aggregate

if TYPE_CHECKING:
    from mycroft.analysis.fleet.executors import Executor

# The stubs of pyarrow lack most of what its classes can do.
pa: Any = pyarrow
pc: Any = importlib.import_module("pyarrow.compute")
ipc: Any = importlib.import_module("pyarrow.ipc")
Table = Any

# Results of pieces that are merged at a time: what is held in memory while many pieces come in.
_MERGE_AT: Final = 16


@dataclass(frozen=True, slots=True)
class Window:
    """From `since_ns` on and before `until_ns`, UTC, by the clocks of the hosts."""

    since_ns: int
    until_ns: int

    def __post_init__(self) -> None:
        if not 0 <= self.since_ns <= self.until_ns < 1 << 63:
            raise ValueError(f"no window: from {self.since_ns} until {self.until_ns}")


class Piece(Protocol):
    """Some files of one table, wherever they lie. It can be sent to another process, and holds no rows itself."""

    def reduce(self, sql: str, params: Mapping[str, object], *, threads: int) -> Table:
        """Answer a query over `rows`, the rows of these files."""
        ...


@dataclass(frozen=True, slots=True)
class Measure:
    """A number per group: how it is made of rows, and how of numbers."""

    name: str
    kind: Literal["count", "count_if", "sum", "min", "max"]
    expression: str = ""
    """In SQL, over the columns of the table; integers or times. Empty for `count`."""

    def of_rows(self) -> str:
        """Return the SQL that makes it from rows."""
        if self.kind == "count":
            return f'count(*) AS "{self.name}"'
        return f'{self.kind}({self.expression}) AS "{self.name}"'

    def of_parts(self) -> str:
        """Return the SQL that makes it from results of pieces."""
        together = "sum" if self.kind in ("count", "count_if", "sum") else self.kind
        return f'{together}("{self.name}") AS "{self.name}"'


@dataclass(frozen=True, slots=True)
class Pick:
    """The row that is greatest by the columns `by`, then by those it takes: a total order, so that ties do not matter.

    Groups of which no row fulfils `where` pick nothing.
    """

    by: tuple[str, ...]
    take: tuple[str, ...]
    prefix: str = "last_"
    where: str = "TRUE"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it makes."""
        return tuple(self.prefix + name for name in (*self.by, *self.take))

    def of_rows(self) -> str:
        """Return the SQL that makes it from rows."""
        packed = ", ".join(f'"{self.prefix}{name}" := "{name}"' for name in (*self.by, *self.take))
        return f'max(struct_pack({packed})) FILTER ({self.where}) AS "picked_{self.prefix}"'

    def of_parts(self) -> str:
        """Return the SQL that makes it from results of pieces."""
        packed = ", ".join(f'"{name}" := "{name}"' for name in self.columns)
        some = " OR ".join(f'"{name}" IS NOT NULL' for name in self.columns)
        return f'max(struct_pack({packed})) FILTER ({some}) AS "picked_{self.prefix}"'

    def unpacked(self) -> str:
        """Return the SQL that makes its columns from what the two above made."""
        return ", ".join(f'"picked_{self.prefix}"."{name}" AS "{name}"' for name in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """An analysis over one table. `keys`: columns, or (name, expression in SQL) for what is made of them."""

    name: str
    table: str
    time: str
    keys: tuple[str | tuple[str, str], ...]
    measures: tuple[Measure, ...]
    picks: tuple[Pick, ...] = ()
    where: str = "TRUE"
    types: Mapping[str, Any]
    """Of every column of the result, in its order."""

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names of the columns that name a group."""
        return tuple(key if isinstance(key, str) else key[0] for key in self.keys)

    def _selected(self, made: Sequence[str]) -> str:
        keys = [f'"{name}"' for name in self.key_names]
        plain = [f'"{measure.name}"' for measure in self.measures]
        columns = ", ".join([*keys, *plain, *(pick.unpacked() for pick in self.picks)])
        return f"SELECT {columns} FROM ({' '.join(made)})"  # noqa: S608 - declared names, no data

    @property
    def partial_sql(self) -> str:
        """Return the query over `rows`, with `$since` and `$until`."""
        keys = [f'"{k}"' if isinstance(k, str) else f'{k[1]} AS "{k[0]}"' for k in self.keys]
        made = [*keys, *(m.of_rows() for m in self.measures), *(p.of_rows() for p in self.picks)]
        return self._selected(
            [
                f"SELECT {', '.join(made)} FROM rows",  # noqa: S608 - the same
                f'WHERE "{self.time}" >= make_timestamp_ns($since) AND "{self.time}" < make_timestamp_ns($until)',
                f"AND ({self.where}) GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}",
            ]
        )

    @property
    def merge_sql(self) -> str:
        """Return the query over `parts`."""
        keys = [f'"{name}"' for name in self.key_names]
        made = [*keys, *(m.of_parts() for m in self.measures), *(p.of_parts() for p in self.picks)]
        return self._selected([f"SELECT {', '.join(made)} FROM parts GROUP BY {', '.join(keys)}"])  # noqa: S608

    @property
    def schema(self) -> Any:
        """Return the schema of the result."""
        return pa.schema(list(self.types.items()))


def _finished(reduction: Reduction, table: Table) -> Table:
    """Bring a result into its one form: columns of the declared types, rows in the order of the groups."""
    table = table.select(reduction.schema.names).cast(reduction.schema)
    order: list[tuple[str, Any]] = [(name, "ascending") for name in reduction.key_names]
    return table.sort_by(order).combine_chunks()


def partial(reduction: Reduction, piece: Piece, window: Window, *, threads: int = 1) -> Table:
    """Return what one piece says of the window."""
    params = {"since": window.since_ns, "until": window.until_ns}
    return _finished(reduction, piece.reduce(reduction.partial_sql, params, threads=threads))


def merge(reduction: Reduction, parts: Sequence[Table]) -> Table:
    """Return what several results say together; of none, an empty one."""
    if not parts:
        return reduction.schema.empty_table()
    return _finished(reduction, aggregate(reduction.merge_sql, {"parts": pa.concat_tables(parts)}))


def run(reduction: Reduction, pieces: Iterable[Piece], window: Window, executor: Executor) -> Table:
    """Return what all pieces say of the window; the same bytes whatever the executor and the cut into pieces."""
    held: list[Table] = []
    for part in executor.map(bound(_partial_of, reduction, window, executor.threads), pieces):
        held.append(part)
        if len(held) == _MERGE_AT:
            held = [merge(reduction, held)]
    return held[0] if len(held) == 1 else merge(reduction, held)


def _partial_of(reduction: Reduction, window: Window, threads: int, piece: Piece) -> Table:
    return partial(reduction, piece, window, threads=threads)


def digest(table: Table) -> str:
    """Return the SHA-256 of a table: of its schema, and of each column's values and which of them are unknown."""
    found = hashlib.sha256(str(table.schema.remove_metadata()).encode())
    for field, column in zip(table.schema, table.columns, strict=True):
        # What lies in memory under an unknown value is anything; so it is not what is compared.
        known = pc.is_valid(column)
        values = column.filter(known)
        for part in (known, values):
            whole = pa.table({field.name: part.combine_chunks()})
            sink = pa.BufferOutputStream()
            with ipc.new_stream(sink, whole.schema) as stream:
                stream.write_table(whole)
            found.update(sink.getvalue())
    return found.hexdigest()
