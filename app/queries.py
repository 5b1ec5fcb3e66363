"""Cached reads for the pages and the API: the one way from a request to the data of a trace.

Every read asks for access first (`access.check`), then looks into the cache, then opens the trace. Results are keyed
by trace, generation, analysis version and arguments; a generation never changes, so nothing is ever invalidated.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import msgspec
import polars as pl
from dash import Dash
from flask import Flask
from flask_caching import Cache
from flask_caching.backends import FileSystemCache

from mycroft.app import access, notes, shares
from mycroft.app.config import AppConfig
from mycroft.app.open_stores import OpenStores
from mycroft.app.state import State
from mycroft.app.version import ANALYSIS_VERSION
from mycroft.errors import MycroftError
from mycroft.loaders.catalogue import Catalogue, CatalogueError, TraceEntry
from mycroft.loaders.store import GuardedResult, Store

CACHE_ENTRIES: Final = 4096
CACHED_BYTES_MAX: Final = 32 * 1024 * 1024
SQL_WAIT_S: Final = 5.0
# Each of a reader's own queries may take a core and half a GiB; eight threads of them would take the server down.
_SQL_AT_ONCE: Final = threading.BoundedSemaphore(2)

T = TypeVar("T")


class UnknownTraceError(MycroftError):
    """A trace, or a generation of it, that this server does not have; `newest` is the generation that it has."""

    http_status = 404

    def __init__(self, message: str, *, newest: int | None = None) -> None:
        super().__init__(message)
        self.newest = newest


class BusyError(MycroftError):
    """Too much is being asked at once; trying again helps."""

    http_status = 503


class _BytesOnly:
    """Serialises cache entries without pickle: what lies in the cache folder can at worst be wrong, never run."""

    def dump(self, value: Any, stream: IO[bytes]) -> None:
        stream.write(msgspec.msgpack.encode(value))

    def load(self, stream: IO[bytes]) -> Any:
        try:
            return msgspec.msgpack.decode(stream.read())
        except msgspec.DecodeError:
            return None


class PlainFileCache(FileSystemCache):
    """flask-caching's file cache, shared by all web processes, holding msgpack instead of pickles."""

    serializer = _BytesOnly()  # pyright: ignore[reportAssignmentType]


def make_cache(server: Flask, config: AppConfig) -> Cache:
    """Attach the cache to `server`; its folder is private to the user."""
    folder = config.data_dir / "cache"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    return Cache(
        server,
        config={
            "CACHE_TYPE": f"{__name__}.PlainFileCache",
            "CACHE_DIR": str(folder),
            "CACHE_THRESHOLD": CACHE_ENTRIES,
            "CACHE_DEFAULT_TIMEOUT": 7 * 24 * 3600,
        },
    )


class TraceReader:
    """Reads of one generation of one trace. Made by `Queries.trace`, which has asked for access.

    Without a `cache` every read goes to the trace: for the command line, which reads each thing once.
    """

    def __init__(
        self, *, trace: str, title: str, generation: int, path: Path, stores: OpenStores, cache: Cache | None = None
    ) -> None:
        self.trace = trace
        self.title = title
        self.generation = generation
        self.path = path
        self._cache = cache
        self._stores = stores

    def store(self) -> AbstractContextManager[Store]:
        """Lend the trace itself, for reads that are not worth caching."""
        return self._stores.lend(self.path)

    def frame(self, sql: str, params: Sequence[Any] = ()) -> pl.DataFrame:
        """Return the rows of a query; `params` are bound to its `?` in order."""

        def read(store: Store) -> bytes:
            buffer = io.BytesIO()
            store.frame(sql, list(params)).write_ipc_stream(buffer)
            return buffer.getvalue()

        return pl.read_ipc_stream(self.cached("frame", (sql, *params), read))

    def sql(self, query: str, *, rows_max: int, timeout_s: float) -> GuardedResult:
        """Answer a reader's own SELECT, a few at a time in this process; never cached.

        Raises:
            QueryRefused: it is no single SELECT, or asks for too much time or memory.
            BusyError: others are being answered.
            StoreError: it is wrong SQL.
        """
        if not _SQL_AT_ONCE.acquire(timeout=SQL_WAIT_S):
            raise BusyError("other queries are being answered; try again in a moment")
        try:
            with self.store() as store:
                return store.guarded_sql(query, row_limit=rows_max, time_limit_s=timeout_s)
        finally:
            _SQL_AT_ONCE.release()

    def cached(self, name: str, args: Sequence[Any], make: Callable[[Store], T]) -> T:
        """Return what `make` reads from the trace: text, bytes, numbers, lists and dicts with text keys only."""
        if self._cache is None:
            with self.store() as store:
                return make(store)
        text = repr((name, list(args)))
        key = f"{self.trace}/{self.generation}/{ANALYSIS_VERSION}/{hashlib.sha256(text.encode()).hexdigest()}"
        found: T | None = self._cache.get(key)
        if found is None:
            with self.store() as store:
                found = make(store)
            if not isinstance(found, bytes) or len(found) <= CACHED_BYTES_MAX:
                self._cache.set(key, found)
        return found


class Queries:
    """What the pages and the API read. Every method asks for access in the request being served."""

    def __init__(self, config: AppConfig, cache: Cache, state: State) -> None:
        self.config = config
        self._cache = cache
        self._state = state
        self._stores = OpenStores()
        self._catalogue = Catalogue(config.data_dir)

    def traces(self) -> list[TraceEntry]:
        """Return the traces that the visitor may read, the latest published first."""
        entries = self._catalogue.list()
        grant = access.grant_here()
        return [entry for entry in entries if grant.can_read(entry.trace_id)]

    def entry(self, trace: str) -> TraceEntry:
        """Return the catalogue's entry of a trace.

        Raises:
            AccessError: the visitor may not read it.
            UnknownTraceError: there is no such trace.
        """
        access.check_here(trace)
        try:
            return self._catalogue.get(trace)
        except CatalogueError as error:
            raise UnknownTraceError(str(error)) from error

    def generations(self, trace: str) -> tuple[int, ...]:
        """Return the generations of a trace that can be opened, the oldest first; empty where there is no such trace.

        Raises:
            AccessError: the visitor may not read it.
        """
        access.check_here(trace)
        return self._catalogue.generations(trace)

    def trace(self, trace: str, generation: int | None = None) -> TraceReader:
        """Return a reader of a trace; without `generation`, of the newest.

        Raises:
            AccessError: the visitor may not read it.
            UnknownTraceError: there is no such trace or generation.
        """
        entry = self.entry(trace)
        wanted = entry.generation if generation is None else generation
        try:
            path = self._catalogue.path(trace, wanted)
        except CatalogueError as error:
            raise UnknownTraceError(
                f"generation {wanted} of trace {trace} is gone; the newest is {entry.generation}",
                newest=entry.generation,
            ) from error
        return TraceReader(
            trace=trace, title=entry.title, generation=wanted, path=path, stores=self._stores, cache=self._cache
        )

    def remove(self, trace: str) -> None:
        """Delete a trace with all its generations, shares and notes.

        Raises:
            AccessError: the visitor may not.
            UnknownTraceError: there is no such trace.
        """
        access.check_here(trace, write=True)
        paths = [self._catalogue.path(trace, generation) for generation in self.generations(trace)]
        try:
            self._catalogue.remove(trace)
        except CatalogueError as error:
            raise UnknownTraceError(str(error)) from error
        # The same evidence loaded again gets the same id: what was shared of the old trace must not open the new one.
        shares.forget(self._state, trace)
        notes.forget(self._state, trace)
        for path in paths:
            self._stores.forget(path)


def queries_of(app: Dash) -> Queries:
    """Return the reads of an app, for callbacks."""
    return app.server.extensions["mycroft_queries"]
