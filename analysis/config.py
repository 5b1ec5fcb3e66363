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

    # Lateness: operations per group that must be seen before "always late" is said.
    late_least_ops: int = 6
    # ... the median gap to the peers, as a share of the period of these operations,
    late_least_share: float = 0.15
    # ... in robust deviations of the peers' own scatter,
    late_least_sigma: float = 6.0
    # ... and absolutely: below this nobody would look into it.
    late_least_ns: int = 2 * NS_PER_MS
    # Share of the operations in which the same rank must be the last one.
    late_least_fraction: float = 0.6

    # Slow group: its operations against those of its sister groups.
    slow_group_ratio: float = 1.8
    slow_group_least_ns: int = 1 * NS_PER_MS

    # A log that stops this long before the others' last line stopped early.
    silent_least_ns: int = 1 * NS_PER_S

    # More candidates than this are not a lead: the verdict says `cannot_tell` instead.
    most_candidates: int = 16


DEFAULTS: Final = Thresholds()
