"""What a fleet went through: incidents, what comes back again and again, what it cost, which hardware stands out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from mycroft.analysis.fleet.hosts import StandsOut, stand_out

STANDING: Final = frozenset({"hang", "crash"})
SURE: Final = frozenset({"high", "medium"})
_HOUR_S: Final = 3_600.0
_DEVICES: Final = ("gpu", "nic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One incident, of whichever job. Times are seconds since the epoch; `closed` None: it goes on.

    `one_of`: one of those named is to blame, nobody knows which. `share`: of an iteration that a slow job loses.
    """

    incident: str
    job: str
    title: str
    opened: float
    closed: float | None
    status: str
    category: str
    confidence: str
    summary: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    one_of: bool = False
    gpus: int | None = None
    """Of the job; None: nobody knows."""
    share: float | None = None
    component: str = "unknown"
    """Part of a machine or program, as the verdict has it; what older releases pushed does not tell it."""


@dataclass(frozen=True, slots=True)
class Offender:
    """A host, or a device on it, that several incidents blame."""

    kind: str
    """`host`, `gpu`, `nic`, or `device` where the incidents do not say which of the two."""
    name: str
    incidents: int
    jobs: int
    categories: tuple[str, ...]
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """The report of a window. GPU-hours are those of whole jobs: while one rank hangs, all wait."""

    since: float
    until: float
    incidents: tuple[Happened, ...]
    jobs: int
    by_category: Mapping[str, int]
    gpu_hours_standing: float
    """Of jobs that stood or had crashed, overlapping incidents of a job counted once."""
    gpu_hours_slow: float
    """Of slow jobs, the share of an iteration that was lost, where the verdict could say."""
    not_costed: int
    """Incidents of jobs whose size, or whose loss, nobody knows: they are in none of the two."""
    offenders: tuple[Offender, ...]
    stand_out: tuple[StandsOut, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"schema": "mycroft.fleet_report", "version": 1, **asdict(self)}


def fleet_report(
    happened: Iterable[Happened], health: Iterable[Mapping[str, Any]], *, since: float, until: float
) -> FleetReport:
    """Return the report of a window.

    Args:
        happened: incidents; those outside of the window are left out.
        health: rows of `hosts.HEALTH` of the window.
        since: seconds since the epoch.
        until: the same; incidents that go on have cost until then.
    """
    inside = [h for h in happened if h.opened < until and (h.closed is None or h.closed >= since)]
    inside.sort(key=lambda h: (h.opened, h.incident))
    standing = [h for h in inside if h.status in STANDING]
    slow = [h for h in inside if h.status not in STANDING]
    return FleetReport(
        since=since,
        until=until,
        incidents=tuple(inside),
        jobs=len({h.job for h in inside}),
        by_category=dict(sorted(Counter(h.category for h in inside).items(), key=lambda item: (-item[1], item[0]))),
        gpu_hours_standing=_hours(standing, since, until, share=False),
        gpu_hours_slow=_hours(slow, since, until, share=True),
        not_costed=sum(h.gpus is None or (h.status not in STANDING and h.share is None) for h in inside),
        offenders=_offenders(inside, since, until),
        stand_out=stand_out(health),
    )


def _hours(happened: Sequence[Happened], since: float, until: float, *, share: bool) -> float:
    by_job: dict[str, list[Happened]] = defaultdict(list)
    for one in happened:
        if one.gpus is not None and (not share or one.share is not None):
            by_job[one.job].append(one)
    total = 0.0
    for incidents in by_job.values():
        reached = since
        for one in sorted(incidents, key=lambda h: h.opened):
            begin = max(one.opened, reached)
            end = min(one.closed if one.closed is not None else until, until)
            if end > begin:
                total += (end - begin) / _HOUR_S * (one.gpus or 0) * ((one.share or 0.0) if share else 1.0)
                reached = end
    return total


def _offenders(happened: Sequence[Happened], since: float, until: float) -> tuple[Offender, ...]:
    """Who was named, alone and surely, in two incidents or more. One of several candidates is nobody's guilt."""
    named: dict[tuple[str, str], list[Happened]] = defaultdict(list)
    for one in happened:
        if one.one_of or one.confidence not in SURE or len(one.hosts) != 1:
            continue
        named["host", one.hosts[0]].append(one)
        if len(one.devices) == 1:
            kind = one.component if one.component in _DEVICES else "device"
            named[kind, f"{one.hosts[0]} {one.devices[0]}"].append(one)
    found = [
        Offender(
            kind,
            name,
            len(incidents),
            len({one.job for one in incidents}),
            tuple(sorted({one.category for one in incidents})),
            _hours([one for one in incidents if one.status in STANDING], since, until, share=False),
        )
        for (kind, name), incidents in named.items()
        if len(incidents) >= 2
    ]
    # Several jobs make it the hardware; several incidents of one job may be the job.
    return tuple(sorted(found, key=lambda o: (-o.jobs, -o.incidents, -o.gpu_hours, o.kind, o.name)))
