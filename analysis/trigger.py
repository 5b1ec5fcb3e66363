"""When something is wrong: three detectors over summaries of all ranks, evaluated at each second of trace time.

Mycroft (SOSP'25) 4.2 samples ten ranks and compares throughput and intervals with fixed factors. Here every rank is
summarised and victims are excluded by construction: a stall is silence (`heartbeat`, `coll_ops`), slowness is a CUSUM
over own service time (`own_service`, `cusum`), an intermittent stall is one slice that one stage held (`intermittent`).

A stall that fires only starts the walk; it is reported when the sink's own age limit is passed (`follow`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mycroft.analysis.config import FLOW_DEFAULTS, FlowLimits
from mycroft.analysis.facts import Frames

Detector = Literal["stall", "slow", "intermittent"]


@dataclass(frozen=True, slots=True)
class Firing:
    """A detector fired. Nothing later than `at_ns` of the trace was looked at, but for what clocks are off."""

    at_ns: int
    """Tick, ns UTC, by the clock that most hosts share."""
    detector: Detector
    ranks: tuple[int, ...]
    """Whom it is about: of a stall the ranks that stand (victims as well), else the accused."""
    comm: int | None
    """Communicator; None: the whole job."""
    value: float
    """What was measured: s of silence or of one slice, or the ratio to the peers."""
    limit: float
    """What it passed, in the same unit."""
    what: str
    """In words."""


def scan(
    store: Frames, *, limits: FlowLimits = FLOW_DEFAULTS, since_ns: int | None = None, until_ns: int | None = None
) -> tuple[Firing, ...]:
    """Return every firing from `since_ns` to `until_ns` in order of time; empty: no tracer left rows, or all is well.

    A detector that stays in alarm fires once, and again only after it has been quiet (`rearm_ns`).
    """
    raise NotImplementedError
