"""A fleet's store and the incidents beside it, as the report, the heat map and SQL need them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mycroft.analysis.fleet import Executor, LocalExecutor, Window, run
from mycroft.analysis.fleet.hosts import HEALTH, ROLLUP, Grid, bin_width_ns, grid_of, heat, together
from mycroft.analysis.fleet.report import FleetReport, Happened, fleet_report

if TYPE_CHECKING:
    from mycroft.app.live.state import Incident, LiveJob
    from mycroft.loaders.fleet import FleetReader

NS_PER_S: Final = 1_000_000_000
MOST_INCIDENTS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Heat:
    """The greatest value of each host in each bin of time; -1: nothing was told. The first bin begins at `first_ns`."""

    hosts: Sequence[str]
    first_ns: int
    bin_ns: int
    grid: Any
    """NumPy, hosts by bins."""


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
    found = [
        happened(incident, jobs.get(incident.job))
        for incident in state.incidents(limit=MOST_INCIDENTS)
        if incident.merged_into is None
    ]
    since, until = window.since_ns / NS_PER_S, window.until_ns / NS_PER_S
    return [one for one in found if one.opened < until and (one.closed is None or one.closed >= since)]


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


def report(
    reader: FleetReader, incidents: Sequence[Happened], window: Window, *, executor: Executor | None = None
) -> FleetReport:
    """Return the report of a window, from roll-ups and incidents."""
    pieces = reader.pieces(ROLLUP, since_ns=window.since_ns, until_ns=window.until_ns)
    health = run(HEALTH, pieces, window, executor or LocalExecutor()).to_pylist()
    return fleet_report(incidents, health, since=window.since_ns / NS_PER_S, until=window.until_ns / NS_PER_S)


def heat_map(reader: FleetReader, column: str, window: Window, *, executor: Executor | None = None) -> Heat:
    """Return how the hosts fared over a window, from roll-ups alone.

    A file never changes, so what was read of one that lies in the window as a whole is kept; what is looked at again is
    read from the files that have come since.
    """
    width = bin_width_ns(window.until_ns - window.since_ns)
    reduction = heat(column, width)
    executor = executor or LocalExecutor()
    grids: list[Grid] = []
    for segment in reader.manifest.of(ROLLUP, since_ns=window.since_ns, until_ns=window.until_ns):
        whole = segment.first_ns >= window.since_ns and segment.last_ns < window.until_ns
        key = (reader.url, segment.path, column, width)
        grid = _seen.get(key) if whole else None
        if grid is None:
            grid = grid_of(run(reduction, reader.pieces_of([segment]), window, executor))
            if whole:
                _seen[key] = grid
                while len(_seen) > _MOST_SEEN:
                    # The oldest; another thread may have been faster.
                    _seen.pop(next(iter(_seen)), None)
        grids.append(grid)
    found = together(grids)
    return Heat(found.hosts, found.first * width if found.hosts else window.since_ns, width, found.values)


# Grids of whole files: of an hour of 1,280 hosts 100 KB each.
_MOST_SEEN: Final = 512
_seen: dict[tuple[str, str, str, int], Grid] = {}
