"""A job as a live analyser would have seen it: firings, and what was reported when.

At every tick at which a detector is in alarm, the root cause is looked for with nothing but the evidence up to that
tick; a stall is reported once its sink's own age limit is passed. What was said once is not said again.
"""

from __future__ import annotations

from dataclasses import dataclass

from mycroft.analysis.config import FLOW_DEFAULTS, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.trigger import Firing
from mycroft.analysis.verdict import Finding


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

    Its first report's `at_ns` less the time of a fault is the delay of detection.
    """
    raise NotImplementedError
