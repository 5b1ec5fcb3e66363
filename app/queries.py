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
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import polars as pl
from dash import Dash
from flask import Flask
from flask_caching import Cache
from flask_caching.backends import FileSystemCache

from mycroft import __version__
from mycroft.analysis.verdict import RULES_VERSION
from mycroft.app import access
from mycroft.app.config import AppConfig
from mycroft.app.open_stores import OpenStores
from mycroft.errors import MycroftError
from mycroft.loaders.store import Store

if TYPE_CHECKING:
    from mycroft.loaders.catalogue import Catalogue

ANALYSIS_VERSION: Final = f"{__version__}+{RULES_VERSION}"
CACHE_ENTRIES: Final = 4096
CACHED_BYTES_MAX: Final = 32 * 1024 * 1024

T = TypeVar("T")


class UnknownTraceError(MycroftError):
    """A trace, or a generation of it, that this server does not have."""

    http_status = 404


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
    """Reads of one generation of one trace, cached. Made by `Queries.trace`, which has asked for access."""

    def __init__(self, *, trace: str, generation: int, path: Path, cache: Cache, stores: OpenStores) -> None:
        self.trace = trace
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

    def cached(self, name: str, args: Sequence[Any], make: Callable[[Store], T]) -> T:
        """Return what `make` reads from the trace: text, bytes, numbers, lists and dicts with text keys only."""
        text = repr((name, list(args)))
        key = f"{self.trace}/{self.generation}/{ANALYSIS_VERSION}/{hashlib.sha256(text.encode()).hexdigest()}"
        found = self._cache.get(key)
        if found is None:
            with self.store() as store:
                found = make(store)
            if not isinstance(found, bytes) or len(found) <= CACHED_BYTES_MAX:
                self._cache.set(key, found)
        return found


class Queries:
    """What the pages and the API read. Every method asks for access in the request being served."""

    def __init__(self, config: AppConfig, cache: Cache) -> None:
        self.config = config
        self._cache = cache
        self._stores = OpenStores()
        self._lock = threading.Lock()
        self._catalogue: Catalogue | None = None

    @property
    def catalogue(self) -> Catalogue:
        """The list of traces in the data folder; it does not ask for access."""
        from mycroft.loaders.catalogue import Catalogue

        with self._lock:
            if self._catalogue is None:
                self._catalogue = Catalogue(self.config.data_dir)
            return self._catalogue

    def trace(self, trace: str, generation: int | None = None) -> TraceReader:
        """Return a reader of a trace; without `generation`, of the newest.

        Raises:
            AccessError: the visitor may not read it.
            UnknownTraceError: there is no such trace or generation.
        """
        access.check_here(trace)
        raise UnknownTraceError(f"there is no trace {trace[:80]}")


def queries_of(app: Dash) -> Queries:
    """Return the reads of an app, for callbacks."""
    return app.server.extensions["mycroft_queries"]
