"""A job as a live analyser would have seen it: firings, and what was reported when.

At every tick at which a detector is in alarm, the root cause is looked for with nothing but the evidence up to that
tick; a stall is reported once its sink's own age limit is passed. What was said once is not said again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_S, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.flow_findings import flow_findings
from mycroft.analysis.host_clocks import clock_offsets
from mycroft.analysis.intermittent_findings import intermittent_findings
from mycroft.analysis.slow_findings import find_slowness, findings_at
from mycroft.analysis.trigger import SPAN, Firing, intermittent_firings, slow_firings, stall_ticks
from mycroft.analysis.verdict import Finding

WALK_AGAIN_NS: Final = 5 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Report:
    """What was reported at one moment. `firing`: what made the analyser look."""

    at_ns: int
    firing: Firing
    findings: tuple[Finding, ...]
    """Most likely first, as `diagnose` orders them; never empty."""


def follow(
    store: Frames, *, limits: FlowLimits = FLOW_DEFAULTS, since_ns: int | None = None, until_ns: int | None = None
) -> tuple[Report, ...]:
    """Return the reports in order of time, each with at least one finding that is new (category, accused ranks).

    Its first report's `at_ns` less the time of a fault is the delay of detection. Who looks at a running job asks
    `present` instead.
    """
    span = store.frame(SPAN).row(0)
    if span[0] is None:
        return ()
    first = int(span[0]) if since_ns is None else since_ns
    last = int(span[1]) if until_ns is None else until_ns
    offsets = clock_offsets(store, at=last)
    found = find_slowness(store, limits, at=last, offsets=offsets)
    firings = [
        *stall_ticks(store, limits, first, last, offsets),
        *slow_firings(store, limits, first, last, found),
        *intermittent_firings(store, limits, first, last, offsets),
    ]
    firings.sort(key=lambda f: (f.at_ns, f.detector, f.comm if f.comm is not None else -1, f.ranks))
    reports: list[Report] = []
    said: set[tuple[str, str, tuple[int, ...], tuple[str, ...]]] = set()
    again = 0
    for firing in firings:
        if firing.detector == "stall":
            # Once something was said of a stall, it is looked at again now and then: more may come to light.
            if firing.at_ns < again:
                continue
            again = firing.at_ns + limits.tick_ns
            findings = flow_findings(store, limits, at=firing.at_ns)
        elif firing.detector == "slow":
            findings = findings_at(store, found, firing.row) if found is not None and firing.row is not None else ()
        else:
            findings = intermittent_findings(store, limits, at=firing.at_ns)
        keys = {(f.status, f.category, f.root_cause.ranks, f.root_cause.hosts) for f in findings}
        if findings and firing.detector == "stall":
            again = firing.at_ns + WALK_AGAIN_NS
        if keys - said:
            said |= keys
            reports.append(Report(firing.at_ns, firing, findings))
    return tuple(reports)
