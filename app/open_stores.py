"""Keeps the traces that are being looked at open: opening one costs more than most queries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mycroft.loaders.store import Store, open_store

OPEN_MAX: Final = 8


class _Held:
    """One open trace and how many blocks use it."""

    def __init__(self) -> None:
        self.store: Store | None = None
        self.users = 0


class OpenStores:
    """At most `limit` open traces, the longest unused closed first; one that is in use is never closed.

    May be used from any thread. Not across a fork: each process makes its own.
    """

    def __init__(self, *, limit: int = OPEN_MAX) -> None:
        self._limit = limit
        self._held: OrderedDict[Path, _Held] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, path: Path) -> Iterator[Store]:
        """Lend the open trace at `path` for the length of the block.

        Raises:
            StoreError: it cannot be opened.
        """
        with self._lock:
            held = self._held.setdefault(path, _Held())
            self._held.move_to_end(path)
            held.users += 1
            try:
                if held.store is None:
                    held.store = open_store(path)
            except BaseException:
                held.users -= 1
                if held.users == 0:
                    del self._held[path]
                raise
            store = held.store
        try:
            yield store
        finally:
            with self._lock:
                held.users -= 1
                self._close_surplus()

    def _close_surplus(self) -> None:
        for path, held in list(self._held.items()):
            if len(self._held) <= self._limit:
                return
            if held.users == 0:
                del self._held[path]
                if held.store is not None:
                    held.store.close()

    def forget(self, path: Path) -> None:
        """Close a trace that is to be deleted, as soon as nobody uses it."""
        with self._lock:
            held = self._held.get(path)
            if held is not None and held.users == 0:
                del self._held[path]
                if held.store is not None:
                    held.store.close()

    def close(self) -> None:
        """Close all that are not in use."""
        with self._lock:
            for path, held in list(self._held.items()):
                if held.users == 0:
                    del self._held[path]
                    if held.store is not None:
                        held.store.close()
