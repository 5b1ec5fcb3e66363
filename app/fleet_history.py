"""Where the pages have a fleet's history from: the store that `mycroft serve` was given, or its own collector's.

Only reads. What is asked is limited: two readers at a time in a process, so many files, and answers are kept for some
seconds, so that many who look at one page cost as much as one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mycroft.analysis.fleet import Window
from mycroft.app import fleet
from mycroft.app.queries import BusyError
from mycroft.loaders.fleet import FleetManifest, FleetReader, FleetStore, NoStoreError, open_fleet, open_place

if TYPE_CHECKING:
    from mycroft.analysis.fleet.report import FleetReport, Happened
    from mycroft.app.config import AppConfig
    from mycroft.loaders.store import GuardedResult

FRESH_S: Final = 10.0
_WAIT_S: Final = 20.0
_ANSWERS: Final = 32
_MINUTE_S: Final = 60
SQL_MEMORY: Final = "512MiB"


@dataclass(frozen=True, slots=True)
class Incidents:
    """Incidents of a window; `here`: those that this server has pages of, as (job, incident)."""

    found: tuple[Happened, ...]
    here: frozenset[tuple[str, str]]
    problems: tuple[str, ...]
    is_watched: bool
    """Some watch has looked, so that none are none."""


class FleetHistory:
    """Reads of a fleet's store. Any thread."""

    def __init__(self, config: AppConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._data = config.data_dir
        self._store = config.store
        self._clock = clock
        self._at_once = threading.BoundedSemaphore(2)
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[Any, ...], tuple[float, Any]] = OrderedDict()

    @property
    def url(self) -> str | None:
        """Address of the store that the server was given; None: it is that of its own collector."""
        return self._store

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._at_once.acquire(timeout=_WAIT_S):
            raise BusyError("others are reading the history; try again in a moment")
        try:
            yield
        finally:
            self._at_once.release()

    def _fresh(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        with self._lock:
            held = self._answers.get(key)
        if held is not None and self._clock() - held[0] < FRESH_S:
            return held[1]
        with self._turn():
            made = make()
        with self._lock:
            self._answers[key] = (self._clock(), made)
            self._answers.move_to_end(key)
            while len(self._answers) > _ANSWERS:
                self._answers.popitem(last=False)
        return made

    def reader(self) -> FleetReader | None:
        """Return the newest version, some seconds old at most; None: there is no store yet.

        Raises:
            MycroftError: it cannot be read.
        """

        def read() -> FleetReader | None:
            try:
                return open_fleet(self._store or str(self._data))
            except NoStoreError:
                return None

        return self._fresh(("reader",), read)

    def incidents(self, window: Window) -> Incidents:
        """Return what the watch of this server, and those that were pushed to the store, found in a window.

        Raises:
            PlaceError: the place cannot be read.
        """

        def read() -> Incidents:
            own = fleet.incidents_of(self._data, window)
            pushed = fleet.NOBODY
            if self._store is not None:
                pushed = fleet.pushed_incidents(FleetStore(open_place(self._store)), window)
            return Incidents(
                tuple(fleet.all_incidents(own, pushed.incidents)),
                frozenset((one.job, one.incident) for one in own),
                pushed.problems,
                bool(pushed.collectors) or fleet.was_watched(self._data),
            )

        return self._fresh(("incidents", window), read)

    def report(self, window: Window) -> FleetReport:
        """Return the report of a window.

        Raises:
            MycroftError: the store cannot be read.
        """
        reader = self.reader() or FleetReader(self._store or str(self._data), FleetManifest())
        incidents = self.incidents(window).found
        return self._fresh(("report", window, reader.manifest.version), lambda: fleet.report(reader, incidents, window))

    def heat(self, column: str, window: Window) -> fleet.Heat | None:
        """Return the heat map of hosts; None: there is no store yet.

        Raises:
            MycroftError: the store cannot be read.
        """
        reader = self.reader()
        if reader is None:
            return None
        return self._fresh(
            ("heat", column, window, reader.manifest.version), lambda: fleet.heat_map(reader, column, window)
        )

    def sql(self, query: str, window: Window, *, rows_max: int, timeout_s: float) -> GuardedResult | None:
        """Answer a reader's own SELECT over the files of a window; never kept. None: there is no store yet.

        Raises:
            QueryRefusedError: it is no single SELECT, or passes a limit.
            BusyError: others are being answered.
            MycroftError: it is wrong SQL, or the store cannot be read.
        """
        reader = self.reader()
        if reader is None:
            return None
        tables: Mapping[str, Any] = {"incidents": fleet.incident_table(self.incidents(window).found)}
        with self._turn():
            return reader.guarded_sql(
                query,
                tables,
                since_ns=window.since_ns,
                until_ns=window.until_ns,
                row_limit=rows_max,
                time_limit_s=timeout_s,
                memory_limit=SQL_MEMORY,
            )


def window_of(span_s: float, until_s: int | None, *, now: float | None = None) -> Window:
    """Return a window; one that ends now ends with the minute, so that those who look together ask the same."""
    at = time.time() if now is None else now
    end = until_s if until_s is not None else (int(at) // _MINUTE_S + 1) * _MINUTE_S
    return fleet.last(span_s, now=float(end))
