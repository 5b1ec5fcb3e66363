"""Every threshold of the analysis in one place, with its unit in its name and the reason beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the rules. Each rule has a statistical part and a practical part; both must hold."""

    # A wait is called in flight, not stuck, while it is younger than this many usual steps.
    in_flight_steps: float = 3.0
    # ... and never stuck below this age, whatever the rhythm of the job.
    in_flight_least_ns: int = 1 * NS_PER_S

    # Operations of one group that two ranks must share before their order of issue is compared.
    twin_context_ops: int = 3

    # Lateness: steps in which the same rank must be the first late one, as a number
    late_least_steps: int = 3
    # ... and as a share of the steps seen;
    late_least_fraction: float = 0.6
    # its lateness in a step, as a share of the step: below this nobody would look into it,
    late_least_share: float = 0.1
    # ... where only the calls show it: these scatter with everything that the host does;
    late_least_share_of_calls: float = 0.15
    # at one operation, in multiples of the usual scatter between members,
    late_least_sigma: float = 4.0
    # ... and absolutely.
    late_least_ns: int = 300_000

    # A constant offset of a rank whose host is unknown is taken for its clock's from here on.
    clock_offset_least_ns: int = 200 * NS_PER_MS

    # Slow group: its operations against those of its sister groups.
    slow_group_ratio: float = 1.8
    slow_group_least_ns: int = NS_PER_MS // 2

    # A log that stops this long before the others' last line stopped early.
    silent_least_ns: int = 1 * NS_PER_S

    # More candidates than this are not a lead: the verdict says `cannot_tell` instead.
    most_candidates: int = 16


DEFAULTS: Final = Thresholds()
