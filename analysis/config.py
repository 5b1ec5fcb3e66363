"""Every threshold of the analysis in one place, with its unit in its name and the reason beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of the rules over flows: stalls, slowness, intermittent stalls. Every rule reads them from here."""

    # -- stalls: when standing still becomes a finding. Pauses of a healthy job look like a rank that does not come.

    # A flow that moved more recently is in normal flight and blocks nobody.
    standing_ns: int = 2 * NS_PER_S
    # A process whose sampler is silent for this long, while others are heard, does not run.
    silent_ns: int = 3 * NS_PER_S
    crash_ns: int = 5 * NS_PER_S
    network_ns: int = 5 * NS_PER_S
    proxy_ns: int = 5 * NS_PER_S
    gpu_ns: int = 8 * NS_PER_S
    app_ns: int = 15 * NS_PER_S
    # ... and a rank that does not come is given this many times the longest pause the job has got over.
    app_pauses: float = 1.5
    # State rows older than this, by the offset-corrected clock, say nothing of now; a flow that has stood for long is
    # written once a second.
    state_window_ns: int = 1_500 * NS_PER_MS

    # -- trigger of stalls

    tick_ns: int = 1 * NS_PER_S
    # Median silence of the ranks, and silence of the longer half of them.
    silence_median_ns: int = 2_500 * NS_PER_MS
    silence_half_ns: int = 3 * NS_PER_S
    # An operation open for longer than this, and than `open_ages` times the oldest healthy one, of one communicator.
    open_ns: int = 5 * NS_PER_S
    open_ages: float = 3.0
    # A detector that has been quiet for this long may fire again.
    rearm_ns: int = 3 * NS_PER_S

    # -- slowness

    # Iterations skipped, and then learnt from.
    warm: int = 4
    learn: int = 18
    # Window where a job has no iterations.
    window_ns: int = 10 * NS_PER_S
    # CUSUM: allowance, limit, limit of host metrics, clip, least scatter (all in multiples of sigma but the last).
    cusum_k: float = 1.0
    cusum_h: float = 10.0
    cusum_h_host: float = 20.0
    clip: float = 4.0
    sigma_least: float = 0.01
    # Iterations over which the effect is taken, of one entity and of a host.
    effect_over: int = 5
    effect_over_host: int = 10
    # Least effect worth a page, as ratios.
    eff_gpu: float = 1.05
    eff_host: float = 1.10
    eff_flow: float = 1.10
    eff_nic: float = 1.12
    # Least time that an effect must cost, as a share of the iteration; of a process, that others on its host delay.
    least_cost: float = 0.02
    least_cost_host: float = 0.03
    # Iterations between alarm and attribution, and how long it must have gone on: other work on a host comes and goes.
    confirm: int = 3
    least_span_ns: int = 5 * NS_PER_S
    # Ratio to the peers over the whole job that is told as a standing imbalance.
    standing_gpu: float = 1.05
    standing_flow: float = 1.12

    # -- intermittent stalls

    # One slice held by one stage for longer.
    slice_ns: int = 500 * NS_PER_MS


FLOW_DEFAULTS: Final = FlowLimits()


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the rules. Each rule has a statistical part and a practical part; both must hold."""

    # A wait is called in flight, not stuck, while it is younger than this many usual steps.
    in_flight_steps: float = 3.0
    # ... and never stuck below this age, whatever the rhythm of the job.
    in_flight_least_ns: int = 1 * NS_PER_S

    # Operations of one group that two ranks must share before their order of issue is compared.
    twin_context_ops: int = 3

    # Of ranks that stand still, the one whose operation was due first is named, if the others' were due later by more
    # than this share of a step.
    due_apart_steps: float = 0.1

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

    # Rules over flows.
    flow: FlowLimits = FLOW_DEFAULTS


DEFAULTS: Final = Thresholds()
