"""A fleet's store and the incidents beside it, as the report, the heat map and SQL need them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mycroft.analysis.fleet import Executor, Window, merge, partial, run
from mycroft.analysis.fleet.hosts import HEALTH, ROLLUP, Grid, bin_width_ns, grid_of, grid_of_peaks, together
from mycroft.analysis.fleet.report import SURE, FleetReport, Happened, fleet_report
from mycroft.errors import MycroftError

if TYPE_CHECKING:
    from mycroft.app.live.state import Incident, LiveJob
    from mycroft.loaders.catalogue import Catalogue
    from mycroft.loaders.fleet import FleetReader, FleetSegment, FleetStore

NS_PER_S: Final = 1_000_000_000
MOST_INCIDENTS: Final = 100_000
_MOST_TRACES: Final = 500
"""Traces of incidents that are opened for the name of a GPU, the newest: each takes some ms, once."""
YEAR_S: Final = 366 * 86_400.0
_UNITS: Final = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
# What was read of whole files, of a process: a part of an hour of 1,280 hosts has 80 to 600 KB.
_KEPT_BYTES: Final = 64 << 20
# Files of a bucket that are read at one time, for they are mostly waited for. Those of a folder are read one by one: it
# is decoding that takes time there, and threads that do it together wait for each other's memory.
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Heat:
    """The greatest value of each host in each bin of time. Bin `n` begins at `n * bin_ns`, ns since the epoch."""

    grid: Grid
    bin_ns: int


def span_s(text: str) -> float | None:
    """Return a span of time, such as `90m`, `24h` or `7d`, in seconds; None: it is none, or is more than a year."""
    try:
        value = float(text[:-1]) * _UNITS[text[-1:]]
    except (KeyError, ValueError):
        return None
    return value if 0 < value <= YEAR_S else None


def last(seconds: float, *, now: float | None = None) -> Window:
    """Return the window that ends now."""
    until = time.time() if now is None else now
    return Window(max(0, int((until - seconds) * NS_PER_S)), int(until * NS_PER_S))


def incidents_of(data_dir: Path, window: Window) -> list[Happened]:
    """Return the incidents of a data folder that touch a window; none where no watch ever looked at it."""
    from mycroft.app.live.state import LiveState
    from mycroft.app.state import State

    state = LiveState(State(data_dir))
    jobs = {job.job: job for job in state.jobs()}
    incidents = [one for one in state.incidents(limit=MOST_INCIDENTS) if one.merged_into is None]
    found = _touching([happened(one, jobs.get(one.job)) for one in incidents], window)
    return _with_gpus(data_dir, found, {one.incident: one for one in incidents})


def _with_gpus(data_dir: Path, found: Sequence[Happened], incidents: Mapping[str, Incident]) -> list[Happened]:
    """Name the GPU of those that blame that of one rank: which one it is stands in the trace they rest on."""
    blamed = {
        one.incident
        for one in found
        if one.component == "gpu" and len(one.ranks) == 1 and not one.devices and one.confidence in SURE
    }
    told = {name: incidents[name] for name in sorted(blamed, key=lambda name: -incidents[name].opened)[:_MOST_TRACES]}
    if not any(incident.trace for incident in told.values()):
        return list(found)
    from mycroft.loaders.catalogue import Catalogue

    catalogue = Catalogue(data_dir)
    try:
        gpus = {name: _gpu_of(catalogue, incident) for name, incident in told.items()}
    finally:
        catalogue.close()
    return [replace(one, devices=(gpu,)) if (gpu := gpus.get(one.incident)) else one for one in found]


def _gpu_of(catalogue: Catalogue, incident: Incident) -> str | None:
    """Return the name of the GPU of the rank that an incident blames; None: its trace is gone or does not say."""
    if incident.trace is None or incident.generation is None:
        return None
    try:
        return _gpu_in(catalogue.path(incident.trace, incident.generation), incident.ranks[0])
    except MycroftError:
        return None


@lru_cache(maxsize=4096)
def _gpu_in(path: Path, rank: int) -> str | None:
    from mycroft.loaders.store import open_store

    with open_store(path, threads=1) as store:
        found = store.frame("SELECT gpu FROM ranks WHERE rank = ?", [rank])["gpu"].to_list()
    return str(found[0])[:100] if len(found) == 1 and found[0] else None


def _touching(incidents: Iterable[Happened], window: Window) -> list[Happened]:
    since, until = window.since_ns / NS_PER_S, window.until_ns / NS_PER_S
    return [one for one in incidents if one.opened < until and (one.closed is None or one.closed >= since)]


def push_incidents(data_dir: Path, store: FleetStore, *, origin: str, now: float | None = None) -> int | None:
    """Copy what the watch of a data folder found in a year to a fleet's store; return how many, None: no watch ran.

    Raises:
        MycroftError: a store cannot be read or written.
    """
    if not was_watched(data_dir):
        return None
    found = incidents_of(data_dir, last(YEAR_S, now=now))
    store.put_incidents(origin, msgspec.json.encode(found))
    return len(found)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What watches of many collectors found. `problems`: files of theirs that cannot be read, and why."""

    incidents: tuple[Happened, ...]
    problems: tuple[str, ...]
    collectors: int
    """Whose watch has told what it found, be it nothing."""


NOBODY: Final = Pushed((), (), 0)


def pushed_incidents(store: FleetStore, window: Window) -> Pushed:
    """Return the incidents that were pushed to a fleet's store, those of a window.

    Raises:
        PlaceError: the place cannot be read.
    """
    found: list[Happened] = []
    problems: list[str] = []
    files = store.incidents()
    for origin, data in files:
        try:
            told = msgspec.json.decode(data, type=list[Happened])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problems.append(f"{store.place.url}/incidents/{origin}.json: {error}; push again from there")
            continue
        found += _touching(told[:MOST_INCIDENTS], window)
    return Pushed(tuple(found[:MOST_INCIDENTS]), tuple(problems), len(files))


def all_incidents(own: Iterable[Happened], pushed: Iterable[Happened]) -> list[Happened]:
    """Return incidents of both, each once; what the own watch says of one is newer."""
    known = {(one.job, one.incident): one for one in pushed}
    known.update({(one.job, one.incident): one for one in own})
    return list(known.values())


def was_watched(data_dir: Path) -> bool:
    """Say whether a watch has ever looked at a data folder."""
    from mycroft.app.live.state import LiveState
    from mycroft.app.state import State

    return data_dir.is_dir() and "tick" in LiveState(State(data_dir)).numbers()


def happened(incident: Incident, job: LiveJob | None) -> Happened:
    """Return an incident as the report takes it."""
    cause: Mapping[str, Any] = incident.finding.get("root_cause") or {}
    cost: Mapping[str, Any] = incident.finding.get("cost") or {}
    size = (job.facts.get("world_size") or job.facts.get("ranks")) if job is not None else None
    share = cost.get("share")
    return Happened(
        incident=incident.incident,
        job=incident.job,
        title=job.title if job is not None else incident.job,
        opened=incident.opened,
        closed=incident.closed,
        status=incident.status,
        category=incident.category,
        confidence=incident.confidence,
        summary=incident.summary,
        ranks=incident.ranks,
        hosts=incident.hosts,
        devices=tuple(str(device) for device in cause.get("devices") or ()),
        one_of=bool(cause.get("one_of")),
        component=str(incident.finding.get("component") or "unknown"),
        gpus=size if isinstance(size, int) and size > 0 else None,
        share=float(share) if isinstance(share, int | float) and 0 <= share <= 1 else None,
    )


def incident_table(incidents: Sequence[Happened]) -> Any:
    """Return incidents as the table `incidents` of `mycroft fleet sql`. Times are UTC."""
    from mycroft.tracer.arrow import pa

    schema = pa.schema(
        [
            ("incident", pa.string()),
            ("job", pa.string()),
            ("title", pa.string()),
            ("opened", pa.timestamp("us")),
            ("closed", pa.timestamp("us")),
            ("status", pa.string()),
            ("category", pa.string()),
            ("component", pa.string()),
            ("confidence", pa.string()),
            ("summary", pa.string()),
            ("ranks", pa.list_(pa.int64())),
            ("hosts", pa.list_(pa.string())),
            ("devices", pa.list_(pa.string())),
            ("one_of", pa.bool_()),
            ("gpus", pa.int64()),
            ("share", pa.float64()),
        ]
    )
    rows = [
        asdict(one) | {"opened": int(one.opened * 1e6), "closed": None if one.closed is None else int(one.closed * 1e6)}
        for one in incidents
    ]
    return pa.Table.from_pylist(rows, schema=schema)


class _Kept:
    """What was read of whole files, which never change: the latest used, at most `_KEPT_BYTES`. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[Any, ...], tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[Any, ...], make: Callable[[], Any], size_of: Callable[[Any], int]) -> Any:
        """Return what `make` makes, or what it made before."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key][0]
        made = make()
        size = size_of(made)
        with self._lock:
            if key not in self._held:
                self._held[key] = (made, size)
                self._bytes += size
            while self._bytes > _KEPT_BYTES and self._held:
                self._bytes -= self._held.popitem(last=False)[1][1]
        return made


_kept: Final = _Kept()


def _lies_inside(segment: FleetSegment, window: Window) -> bool:
    return segment.first_ns >= window.since_ns and segment.last_ns < window.until_ns


def report(
    reader: FleetReader, incidents: Sequence[Happened], window: Window, *, executor: Executor | None = None
) -> FleetReport:
    """Return the report of a window, from roll-ups and incidents.

    Without an executor the work is done here, and what was read of files that lie in the window as a whole is kept.

    Raises:
        PlaceError: the window has too many files, or they cannot be reached.
        StoreError: a file is damaged.
    """
    segments = reader.segments(ROLLUP, since_ns=window.since_ns, until_ns=window.until_ns)
    if executor is not None:
        health = run(HEALTH, reader.pieces_of(segments), window, executor)
    else:
        # Pieces of a file each, so that each can be kept; which pieces there are changes no byte of the result.
        health = merge(HEALTH, [_health_of(reader, segment, window) for segment in segments])
    since, until = window.since_ns / NS_PER_S, window.until_ns / NS_PER_S
    return fleet_report(incidents, health.to_pylist(), since=since, until=until)


def _health_of(reader: FleetReader, segment: FleetSegment, window: Window) -> Any:
    def read() -> Any:
        return partial(HEALTH, reader.pieces_of([segment])[0], window)

    if not _lies_inside(segment, window):
        return read()
    return _kept.get((reader.url, segment.path, HEALTH.name), read, lambda table: int(table.nbytes))


def heat_map(reader: FleetReader, column: str, window: Window) -> Heat:
    """Return how the hosts fared over a window, from roll-ups alone.

    A file never changes, so what was read of one that lies in the window as a whole is kept; what is looked at again is
    read from the files that have come since.

    Raises:
        PlaceError: the window has too many files, or one is damaged or cannot be reached.
    """
    width = bin_width_ns(window.until_ns - window.since_ns)

    # The greatest of ten minutes stands at their beginning, which may be before all minutes that the file has.
    whole = Window(window.since_ns // width * width, window.until_ns)

    def read(segment: FleetSegment) -> Grid:
        peaks = reader.peaks(segment, column, width) if _lies_inside(segment, window) else None
        if peaks is not None:
            return grid_of_peaks(peaks.hosts, peaks.host, peaks.begin, peaks.values, width, whole)
        rows = reader.rows(segment, ("host", "minute"), more=(column,))
        return together(grid_of(table, column, width, window) for table in rows)

    def of(segment: FleetSegment) -> Grid:
        if not _lies_inside(segment, window):
            return read(segment)
        key = (reader.url, segment.path, column, width)
        return _kept.get(key, lambda: read(segment), lambda grid: int(grid.values.nbytes))

    segments = reader.segments(ROLLUP, since_ns=window.since_ns, until_ns=window.until_ns)
    if "://" not in reader.url:
        return Heat(together(map(of, segments)), width)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return Heat(together(threads.map(of, segments)), width)
