"""The store of one trace: an immutable DuckDB file. The only module that knows DuckDB.

A file is written once by a `StoreWriter`, in one process, and then only read. Across processes DuckDB allows one
writer *or* many readers; inside a process all readers of a file share one root connection and use a cursor per thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import duckdb
import polars as pl
import pyarrow as pa

from mycroft.errors import MycroftError
from mycroft.loaders import moment, schema

# Evidence is strangers' text: no SQL of ours or theirs ever reads a file, loads an extension or sees a Python variable.
_CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "enable_external_access": "false",
}
# DuckDB draws a bar on standard output, which belongs to the verdict. A setting of each connection and each cursor.
_NO_BAR: Final = "SET enable_progress_bar = false"
_READ_META: Final = "SELECT key, value FROM trace_meta ORDER BY key"
_HAS_META: Final = """
SELECT count(*)
FROM duckdb_tables()
WHERE table_name = 'trace_meta' AND database_name = current_database()
"""
MAX_RESULT_BYTES: Final = 64 << 20
GUARDED_MEMORY: Final = "512MiB"
"""What a user's query may work in."""
_IN_MEMORY: Final = ":memory:"


class StoreError(MycroftError):
    """A trace file that cannot be opened, or a query that cannot be answered: says which and what to do."""


class QueryRefusedError(StoreError):
    """SQL of a user that is not a single SELECT, or that asked for too much time or memory."""


@dataclass(frozen=True, slots=True)
class GuardedResult:
    """Answer to a user's SQL; `cut` says that there were more rows than the limits allow."""

    frame: pl.DataFrame
    cut: bool


@dataclass(slots=True)
class _Root:
    connection: duckdb.DuckDBPyConnection
    users: int


_roots: dict[tuple[int, str], _Root] = {}
_roots_lock = threading.Lock()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def open_store(path: str | Path, *, threads: int = 2, memory_limit: str = "1GiB") -> Store:
    """Open a trace file for reading.

    All stores of one file in one process share a root connection; its threads and memory limit are those of the first.

    Raises:
        StoreError: if the file is missing, is no trace, or was written with another version of the schema.
    """
    return Store(path, threads=threads, memory_limit=memory_limit)


def _open_root(path: str, threads: int, memory_limit: str) -> duckdb.DuckDBPyConnection:
    if not Path(path).is_file():
        raise StoreError(f"{path}: there is no such trace file; load the evidence first")
    config = {**_CLOSED, "threads": str(threads), "memory_limit": memory_limit}
    try:
        return duckdb.connect(path, read_only=True, config=config)
    except duckdb.Error as error:
        raise StoreError(f"{path}: cannot be opened as a trace: {_one_line(error)}") from error


class Store:
    """A trace, read-only. Every method may be called from any thread."""

    def __init__(self, path: str | Path, *, threads: int = 2, memory_limit: str = "1GiB") -> None:
        self.path: Final = Path(path)
        self._key = (os.getpid(), str(self.path.resolve()))
        self._local = threading.local()
        self._closed = False
        with _roots_lock:
            root = _roots.get(self._key)
            if root is None:
                root = _Root(_open_root(self._key[1], threads, memory_limit), 0)
                _roots[self._key] = root
            root.users += 1
            self._root = root
        try:
            self.meta: Final[dict[str, str]] = self._read_meta()
        except BaseException:
            self.close()
            raise

    def _read_meta(self) -> dict[str, str]:
        if self.frame(_HAS_META).item() == 0:
            raise StoreError(f"{self.path}: is a DuckDB file but no trace")
        meta = {str(key): str(value) for key, value in self.frame(_READ_META).iter_rows()}
        found = meta.get("schema_version")
        if found != str(schema.SCHEMA_VERSION):
            raise StoreError(
                f"{self.path}: has schema version {found}, this build reads {schema.SCHEMA_VERSION}; "
                "load the evidence again"
            )
        return meta

    @contextmanager
    def _cursor(self) -> Generator[duckdb.DuckDBPyConnection]:
        if self._closed:
            raise StoreError(f"{self.path}: the store is closed")
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._root.connection.cursor()
            cursor.execute(_NO_BAR)
            self._local.cursor = cursor
        try:
            yield cursor
        except duckdb.Error as error:
            raise StoreError(f"{self.path}: {_one_line(error)}") from error

    def arrow(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pa.Table:
        """Answer a query as an Arrow table; ENUM columns are dictionaries."""
        with self._cursor() as cursor:
            relation = cursor.sql(sql, params=params or None)
            if relation is None:  # pyright: ignore[reportUnnecessaryComparison]
                return pa.table({})
            return relation.to_arrow_table()

    def frame(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query as a frame: times are `Datetime("ns")`, ENUM columns plain text, unknown is null."""
        return _frame(self.arrow(sql, params))

    def frame_of_job(self, number: int, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query over the tables of a further job."""
        with self._cursor():
            cursor = self._root.connection.cursor()
        try:
            cursor.execute(_NO_BAR)
            cursor.execute(f"SET schema = '{_job_schema(number)}'")
            relation = cursor.sql(sql, params=params or None)
            return _frame(relation.to_arrow_table())
        except duckdb.Error as error:
            raise StoreError(f"{self.path}: {_one_line(error)}") from error
        finally:
            cursor.close()

    def pieces(
        self, sql: str, params: Sequence[object] | dict[str, object] = (), *, rows: int = 65_536
    ) -> Generator[pl.DataFrame]:
        """Answer a query piece by piece, of about `rows` rows each: an answer that need not fit into memory.

        It has a cursor of its own, so that other queries may be asked while it is read.
        """
        with self._cursor():
            cursor = self._root.connection.cursor()
        try:
            cursor.execute(_NO_BAR)
            for batch in cursor.sql(sql, params=params or None).to_arrow_reader(rows):
                yield _frame(pa.Table.from_batches([batch]))
        except duckdb.Error as error:
            raise StoreError(f"{self.path}: {_one_line(error)}") from error
        finally:
            cursor.close()

    def jobs(self) -> list[Store | OtherJob]:
        """Return what to ask of each job in the evidence, this store first; nearly always that is all there is."""
        count = int(self.meta.get("jobs", "1"))
        return [self, *(OtherJob(self, number) for number in range(1, min(count, MOST_JOBS)))]

    def parts(self) -> list[OtherJob]:
        """Return the sides of the evidence that nothing joins, each as if it were all; empty where all is joined."""
        count = int(self.meta.get("jobs", "1"))
        return [OtherJob(self, count + number) for number in range(int(self.meta.get("parts", "0")))]

    def guarded_sql(
        self, sql: str, *, row_limit: int = 10_000, time_limit_s: float = 10.0, memory_limit: str = GUARDED_MEMORY
    ) -> GuardedResult:
        """Answer a user's SQL: one SELECT, no files, no settings, bounded in rows, seconds and memory.

        It runs in an engine of its own over the same file, whose configuration is locked.

        Raises:
            QueryRefusedError: if it is not a single SELECT, or passes the limit of time or memory.
            StoreError: if it is wrong SQL.
        """
        if self._closed:
            raise StoreError(f"{self.path}: the store is closed")
        with _guarded_engine(self.path, memory_limit) as engine:
            return _run_guarded(engine, sql, row_limit, time_limit_s)

    def close(self) -> None:
        """Give the file back; the last store of a file closes it."""
        if self._closed:
            return
        self._closed = True
        self._local = threading.local()
        with _roots_lock:
            self._root.users -= 1
            if self._root.users == 0 and _roots.get(self._key) is self._root:
                del _roots[self._key]
                self._root.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    # Most have none: to ask costs less than a plan that does nothing.
    coded = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Categorical | pl.Enum)]
    return frame.with_columns(pl.col(coded).cast(pl.String)) if coded else frame


@contextmanager
def _guarded_engine(path: Path, memory_limit: str) -> Generator[duckdb.DuckDBPyConnection]:
    config = {**_CLOSED, "threads": "1", "memory_limit": memory_limit, "max_temp_directory_size": "0B"}
    # The file is attached before the door is closed.
    del config["enable_external_access"]
    engine = duckdb.connect(":memory:", config=config)
    try:
        name = str(path.resolve()).replace("'", "''")
        engine.execute(f"ATTACH '{name}' AS trace (READ_ONLY)")
        engine.execute("USE trace")
        engine.execute(_NO_BAR)
        engine.execute("SET enable_external_access = false")
        engine.execute("SET lock_configuration = true")
        yield engine
    except duckdb.Error as error:
        raise StoreError(f"{path}: {_one_line(error)}") from error
    finally:
        engine.close()


def _run_guarded(engine: duckdb.DuckDBPyConnection, sql: str, row_limit: int, time_limit_s: float) -> GuardedResult:
    statements = engine.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryRefusedError("only a single SELECT is answered; the trace cannot be changed")
    timer = threading.Timer(time_limit_s, engine.interrupt)
    timer.daemon = True
    timer.start()
    try:
        reader = engine.sql(statements[0].query).to_arrow_reader(4096)
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        cut = False
        for batch in reader:
            left = row_limit - rows
            cut = batch.num_rows > left or size + batch.nbytes > MAX_RESULT_BYTES
            if cut and batch.nbytes > MAX_RESULT_BYTES:
                break
            batches.append(batch.slice(0, max(left, 0)))
            rows += min(batch.num_rows, left)
            size += batch.nbytes
            if cut:
                break
        return GuardedResult(_frame(pa.Table.from_batches(batches, reader.schema)), cut)
    except (duckdb.InterruptException, pa.ArrowException) as error:
        if isinstance(error, duckdb.InterruptException) or "nterrupt" in str(error):
            raise QueryRefusedError(f"stopped after {time_limit_s:g} s; ask for less") from error
        if "Out of Memory" in str(error):
            raise QueryRefusedError(f"needs too much memory; ask for less: {_one_line(error)}") from error
        raise StoreError(_one_line(error)) from error
    except duckdb.OutOfMemoryException as error:
        raise QueryRefusedError(f"needs too much memory; ask for less: {_one_line(error)}") from error
    finally:
        timer.cancel()


Relations = Mapping[str, Any]
"""Rows by name: Parquet files of this machine, as a tuple of paths, or a table or dataset of Arrow."""


@contextmanager
def _files_engine(relations: Relations, threads: int, memory_limit: str) -> Generator[duckdb.DuckDBPyConnection]:
    engine = _open_engine(threads, memory_limit)
    try:
        files = [path for relation in relations.values() for path in _paths(relation) or ()]
        engine.execute("SET allowed_paths = ?", [files])
        _attach(engine, relations)
        engine.execute("SET enable_external_access = false")
        engine.execute("SET lock_configuration = true")
        yield engine
    except duckdb.Error as error:
        raise StoreError(_one_line(error)) from error
    finally:
        engine.close()


def _paths(relation: Any) -> tuple[str, ...] | None:
    """Return the files that a relation is; None where it is rows already."""
    return tuple(str(path) for path in cast("tuple[object, ...]", relation)) if isinstance(relation, tuple) else None


def _attach(connection: duckdb.DuckDBPyConnection, relations: Relations) -> None:
    """Name rows, for this connection alone."""
    connection.execute(_NO_BAR)
    for name, relation in relations.items():
        paths = _paths(relation)
        if paths is not None:
            listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
            connection.execute(f'CREATE TEMP VIEW "{name}" AS FROM read_parquet([{listed}], hive_partitioning = false)')
        else:
            connection.register(name, relation)


def aggregate(
    sql: str,
    relations: Relations,
    params: Mapping[str, object] | None = None,
    *,
    threads: int = 1,
    memory_limit: str = "1GiB",
) -> pa.Table:
    """Answer a query of ours over files or tables that are no trace; raises StoreError where one cannot be read."""
    cursor = _shared_engine(os.getpid(), threads, memory_limit).cursor()
    try:
        _attach(cursor, relations)
        return cursor.sql(sql, params=dict(params) if params else None).to_arrow_table()
    except duckdb.Error as error:
        raise StoreError(_one_line(error)) from error
    finally:
        cursor.close()


def _open_engine(threads: int, memory_limit: str) -> duckdb.DuckDBPyConnection:
    """Open an engine that still reads files."""
    config = {**_CLOSED, "threads": str(threads), "memory_limit": memory_limit, "max_temp_directory_size": "0B"}
    return duckdb.connect(_IN_MEMORY, config=config | {"enable_external_access": "true"})


@cache  # Opening one takes longer than most tables take to be merged. No user's SQL gets here.
def _shared_engine(_pid: int, threads: int, memory_limit: str) -> duckdb.DuckDBPyConnection:
    return _open_engine(threads, memory_limit)


def guarded_files_sql(
    sql: str, relations: Relations, *, row_limit: int, time_limit_s: float, memory_limit: str
) -> GuardedResult:
    """Answer a user's SQL over files or tables: see `Store.guarded_sql`. It reaches no file but those given."""
    with _files_engine(relations, 2, memory_limit) as engine:
        return _run_guarded(engine, sql, row_limit, time_limit_s)


MOST_JOBS: Final = 16


def _job_schema(number: int) -> str:
    return f"job_{number:d}"


class OtherJob:
    """A further job of a trace whose evidence is of several: the same tables, other rows, ranks of its own."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._number = number
        self.meta: Final[dict[str, str]] = store.meta

    def frame(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query over the tables of this job; see `Store.frame`."""
        return self._store.frame_of_job(self._number, sql, params)


class StoreWriter:
    """Writes a new trace file: rows in the order given, then `finish`. One process, one thread.

    With `reopen` it adds rows to a finished file: the verdict goes into a trace before that is published. Nobody may
    have the file open then; a published file is never written again.
    """

    def __init__(self, path: str | Path, *, threads: int = 2, memory_limit: str = "2GiB", reopen: bool = False) -> None:
        self.path: Final = Path(path)
        if self.path.exists() and not reopen and str(path) != _IN_MEMORY:
            raise StoreError(f"{path}: exists already; a trace file is never written again")
        if reopen and not self.path.is_file():
            raise StoreError(f"{path}: there is no such trace file")
        self._connection = duckdb.connect(
            str(path),
            config={"threads": str(threads), "memory_limit": memory_limit, "python_enable_replacements": "false"},
        )
        self._connection.execute(_NO_BAR)
        if not reopen:
            self._connection.execute(schema.ddl())
        self.rows: dict[str, int] = {}

    def begin_job(self, number: int) -> None:
        """Write what follows into tables of a further job, 1, 2, …; see `Store.jobs`."""
        self._connection.execute(f"CREATE SCHEMA {_job_schema(number)}")
        self._connection.execute(f"SET schema = '{_job_schema(number)}'")
        self._connection.execute(schema.ddl())

    def setting(self, name: str) -> object:
        """Return a setting of the engine as it is now."""
        row = self._connection.execute("SELECT current_setting(?)", [name]).fetchone()
        return row[0] if row else None

    def run(self, sql: str, params: Mapping[str, object] | None = None) -> None:
        """Change what has been written: for tables that are made from others, by `loaders.pyramid` alone.

        Raises:
            StoreError: the engine refuses it.
        """
        try:
            self._connection.execute(sql, dict(params) if params else None)
        except duckdb.Error as error:
            raise StoreError(f"{self.path}: {_one_line(error)}") from error

    def frame(self, sql: str, params: Mapping[str, object] | None = None) -> pl.DataFrame:
        """Answer a query over what has been written so far; see `Store.frame`."""
        try:
            relation = self._connection.sql(sql, params=dict(params) if params else None)
            return _frame(relation.to_arrow_table())
        except duckdb.Error as error:
            raise StoreError(f"{self.path}: {_one_line(error)}") from error

    def append(self, table: str, frame: pl.DataFrame) -> None:
        """Append rows in the order given; columns that the frame lacks become NULL."""
        self._insert(table, table, frame)

    def append_pieces(self, table: str, pieces: Iterable[pl.DataFrame]) -> None:
        """Append rows that do not fit into memory together, in the order of the table.

        Rows that are equal in the table's sort columns stay in the order given.
        """
        keys = "".join(f'"{name}", ' for name in schema.BY_NAME[table].sort)
        # Temporary tables go to disk beside the file where the memory limit asks for it.
        self._connection.execute(f"CREATE TEMP TABLE unsorted AS FROM {table} LIMIT 0")
        try:
            for piece in pieces:
                self._insert(table, "unsorted", piece)
            self._connection.execute(f"INSERT INTO {table} FROM unsorted ORDER BY {keys}rowid")
        except duckdb.Error as error:
            raise StoreError(f"{self.path}: rows of {table} cannot be sorted: {_one_line(error)}") from error
        finally:
            self._connection.execute("DROP TABLE unsorted")

    def derive(self, table: str, sql: str) -> None:
        """Append what a query over the rows written so far answers, columns by name."""
        (made,) = self._connection.execute(f"INSERT INTO {table} BY NAME {sql}").fetchone() or (0,)
        self.rows.update({table: self.rows.get(table, 0) + made} if made else {})

    def _insert(self, table: str, into: str, frame: pl.DataFrame) -> None:
        if frame.is_empty():
            return
        names = ", ".join(f'"{schema.BY_NAME[table].columns[i].name}"' for i in _positions(table, frame))
        self._connection.register("incoming", frame)
        try:
            # Names of tables and columns come from the schema alone.
            self._connection.execute(f"INSERT INTO {into} ({names}) SELECT {names} FROM incoming")  # noqa: S608
        except duckdb.Error as error:
            raise StoreError(f"{self.path}: rows of {table} cannot be stored: {_one_line(error)}") from error
        finally:
            self._connection.unregister("incoming")
        self.rows[table] = self.rows.get(table, 0) + frame.height

    def finish(self) -> None:
        """Write everything to disk and close the file; it is complete from here on."""
        self._connection.execute("CHECKPOINT")
        self._connection.close()

    def abandon(self) -> None:
        """Close and remove the unfinished file."""
        self._connection.close()
        for leftover in (self.path, self.path.with_name(self.path.name + ".wal")):
            leftover.unlink(missing_ok=True)


def _positions(table: str, frame: pl.DataFrame) -> list[int]:
    known = {column.name: i for i, column in enumerate(schema.BY_NAME[table].columns)}
    return [known[name] for name in frame.columns]


class MemoryWriter(StoreWriter):
    """Writes a trace that stays in memory: rows in the order given, then `store` instead of `finish`."""

    def __init__(self, *, threads: int = 1, memory_limit: str = "4GiB") -> None:
        super().__init__(_IN_MEMORY, threads=threads, memory_limit=memory_limit)

    def finish(self) -> None:
        """Close it: nothing is kept. Use `store` to read what was written."""
        self._connection.close()

    def store(self) -> MemoryStore:
        """Return what was written, to be read; the writer is over."""
        return MemoryStore(self._connection)

    def show(self, table: str, frame: pl.DataFrame) -> None:
        """Let a table be these rows, with all of its columns, until it is hidden: nothing is copied."""
        self._connection.register(f"shown_{table}", frame)
        described = schema.BY_NAME[table]
        columns = ", ".join(
            f'"{c.name}"::{schema.enum_type_name(described, c)} AS "{c.name}"' if c.values else f'"{c.name}"'
            for c in described.columns
        )
        # Names of tables, columns and types come from the schema alone.
        self._connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {columns} FROM shown_{table}")  # noqa: S608

    def hide(self, table: str) -> None:
        """Take rows away again that were shown."""
        self._connection.execute(f"DROP VIEW temp.{table}")
        self._connection.unregister(f"shown_{table}")

    def ask(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query as a frame; see `Store.frame`."""
        return _asked(self._connection, sql, params)


class MemoryStore:
    """A trace in memory; answers like `Store`, and also as the trace was at an earlier moment. One thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._moments = False
        self.meta: Final[dict[str, str]] = {
            str(key): str(value) for key, value in self.frame("SELECT key, value FROM trace_meta").iter_rows()
        }

    def frame(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query as a frame; see `Store.frame`."""
        return _asked(self._connection, sql, params)

    def until(self, at_ns: int) -> Moment:
        """Return the trace as it was at a time, ns UTC: what was written later is not there yet.

        Times are those of each host's own clock, so that clocks which differ blur the moment by as much.
        """
        if not self._moments:
            self._connection.execute(moment.TIMED)
            known = {name for (name,) in self.frame(moment.VIEWS).iter_rows()}
            for table in schema.TABLES:
                if table.name not in known:
                    self._connection.execute(moment.REST.format(table.name))
            self._moments = True
        return Moment(self._connection, at_ns, self.meta)

    def close(self) -> None:
        """Forget it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Moment:
    """A trace as it was at a time; made by `MemoryStore.until`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, at_ns: int, meta: dict[str, str]) -> None:
        self.at_ns: Final = at_ns
        self.meta: Final = meta
        self._cursor = connection.cursor()
        self._cursor.execute(_NO_BAR)
        self._cursor.execute("SET schema = 'moment'")
        self._cursor.execute(moment.SET_TIME, [at_ns])

    def frame(self, sql: str, params: Sequence[object] | dict[str, object] = ()) -> pl.DataFrame:
        """Answer a query as a frame; see `Store.frame`."""
        return _asked(self._cursor, sql, params)


def _asked(
    connection: duckdb.DuckDBPyConnection, sql: str, params: Sequence[object] | dict[str, object]
) -> pl.DataFrame:
    try:
        return _frame(connection.sql(sql, params=params or None).to_arrow_table())
    except duckdb.Error as error:
        raise StoreError(f"trace in memory: {_one_line(error)}") from error
