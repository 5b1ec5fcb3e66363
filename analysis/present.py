"""How a running job stands at this moment: what a look at it finds, for who looks again and again.

`follow` replays a job and tells everything once, with its time; here only the present counts, and what has come since
the last look. Slowness is judged at the end of each iteration, and each of them is told once: whoever looks decides how
many must agree, and that does not depend on how often he looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from mycroft.analysis.attribution import Slowness
from mycroft.analysis.config import FLOW_DEFAULTS, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.flow_findings import flow_findings
from mycroft.analysis.host_clocks import clock_offsets
from mycroft.analysis.intermittent_findings import intermittent_findings
from mycroft.analysis.slow_findings import find_slowness, findings_of
from mycroft.analysis.trigger import intermittent_firings, stall_ticks
from mycroft.analysis.verdict import Finding


@dataclass(frozen=True, slots=True)
class Sighting:
    """Who was slow when an iteration had ended, by the corrected clock. `findings` empty: nobody."""

    at_ns: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Present:
    """What one look finds. `fired`: what made it look for a cause, empty where nothing did."""

    findings: tuple[Finding, ...]
    """What stands, and what was held up since the last look."""
    fired: str
    sightings: tuple[Sighting, ...]
    """One for every iteration that has ended since the last look, in their order."""


def present(
    store: Frames, *, since_ns: int, until_ns: int, seen_ns: int, limits: FlowLimits = FLOW_DEFAULTS
) -> Present:
    """Return how a job stands at `until_ns` (ns UTC).

    Args:
        store: what is known of it by then.
        since_ns: of the last look; single slices that were held up are told from then on.
        until_ns: the moment up to which all hosts have told what happened.
        seen_ns: end of the last iteration that was told; those after it are told now.
        limits: of the rules.
    """
    offsets = clock_offsets(store, at=until_ns)
    stalled = stall_ticks(store, limits, since_ns, until_ns, offsets, only_last=True)
    held = intermittent_firings(store, limits, since_ns, until_ns, offsets)
    findings: list[Finding] = []
    if stalled:
        findings += flow_findings(store, limits, at=stalled[-1].at_ns)
    if held:
        findings += intermittent_findings(store, limits, at=until_ns)
    found = find_slowness(store, limits, at=until_ns, offsets=offsets)
    fired = [*stalled[-1:], *held[-1:]]
    return Present(
        tuple(findings),
        fired[0].what if fired else "",
        sightings(store, found, seen_ns) if found is not None else (),
    )


def sightings(store: Frames, found: Slowness, seen_ns: int) -> tuple[Sighting, ...]:
    """Return who was slow at each iteration that ended after `seen_ns` (ns) and is over: a later one has begun."""
    ends = found.service.ends
    rows = [row for row in range(found.last()) if int(ends[row]) > seen_ns]
    told = zip(rows, findings_of(store, found, rows), strict=True)
    return tuple(Sighting(int(ends[row]), findings) for row, findings in told)
