from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mycroft.analysis.case import Case
from mycroft.analysis.config import DEFAULTS
from mycroft.analysis.slowness import late_ranks, slow_groups, waits_for_input
from mycroft.analysis.verdict import Verdict
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]
VerdictOf = Callable[[TraceBuilder], Verdict]
STEP_MS = 100.0


def jitter(rank: int, step: int, at: int) -> float:
    """Return 0 to 1 ms that repeats from run to run and not from step to step."""
    return (rank * 7 + step * 13 + at * 5) % 11 / 10


def blocking_job(late: dict[int, float], *, steps: int = 8, input_only: bool = False) -> TraceBuilder:
    """A job of two tensor groups of two and replicas, on a recorder whose calls block.

    `late`: ms by which a rank is later at every operation (`input_only`: only at the first of a step).
    """
    trace = TraceBuilder(world=4, events=False)
    world = trace.group("default_pg", [0, 1, 2, 3], kind="world")
    tp = [trace.group("tp_0", [0, 1], kind="tp"), trace.group("tp_1", [2, 3], kind="tp")]
    dp = [trace.group("dp_0", [0, 2], kind="dp"), trace.group("dp_1", [1, 3], kind="dp")]
    now = 0.0
    for step in range(1, steps + 1):
        at = dict.fromkeys(range(4), now)
        for place, (work, groups) in enumerate(((20, tp), (20, tp), (40, dp))):
            for rank in range(4):
                slow = late.get(rank, 0.0) if place == 0 or not input_only else 0.0
                at[rank] += work + slow + jitter(rank, step, place)
            for index, group in enumerate(groups):
                seq = 2 * step - 1 + place if groups is tp else step
                for rank in trace.members[group]:
                    trace.call(rank, group, seq, at_ms=at[rank])
                meet = max(at[r] for r in trace.members[group])
                for rank in trace.members[group]:
                    at[rank] = meet
                assert index < 2
        for rank in range(4):
            trace.call(rank, world, step, at_ms=at[rank] + 1)
        now = max(at.values()) + 2
    return trace


def test_the_rank_that_others_wait_for_in_every_step_is_late(case_of: CaseOf) -> None:
    case = case_of(blocking_job({3: 15.0}))
    (found,) = late_ranks(case.facts, case.matched, DEFAULTS)
    assert found.rank == 3
    assert found.shared == ()


def test_who_waits_for_the_late_one_is_not_late_itself(verdict_of: VerdictOf) -> None:
    # 2 shares the tensor group of 3 and is late in its own data-parallel group because of it.
    verdict = verdict_of(blocking_job({3: 15.0}))
    assert verdict.status == "slow"
    assert [f.root_cause.ranks for f in verdict.findings] == [(3,)]


def test_scatter_is_not_lateness(verdict_of: VerdictOf) -> None:
    assert verdict_of(blocking_job({})).status == "healthy"


def test_a_single_stall_is_not_lateness(verdict_of: VerdictOf) -> None:
    trace = blocking_job({})
    row = next(r for r in trace.rows["coll_ops"] if r["rank"] == 1 and r["op_seq"] == 9)
    row["enq_ts"] += 600_000_000
    assert verdict_of(trace).status == "healthy"


def test_a_clock_that_is_off_is_not_lateness(verdict_of: VerdictOf) -> None:
    trace = blocking_job({})
    for row in trace.rows["coll_ops"]:
        if row["rank"] in (2, 3):
            row["enq_ts"] += 2_000_000_000
    assert verdict_of(trace).status == "healthy"


def test_lateness_is_seen_through_a_clock_that_is_off(case_of: CaseOf) -> None:
    trace = blocking_job({3: 15.0})
    for row in trace.rows["coll_ops"]:
        if row["rank"] in (2, 3):
            row["enq_ts"] += 2_000_000_000
    case = case_of(trace)
    assert [item.rank for item in late_ranks(case.facts, case.matched, DEFAULTS)] == [3]


def test_an_effect_below_the_practical_limit_is_not_reported(case_of: CaseOf) -> None:
    case = case_of(blocking_job({3: 15.0}))
    strict = replace(DEFAULTS, late_least_share_of_calls=0.9)
    assert late_ranks(case.facts, case.matched, strict) == ()


def test_a_constant_extra_before_the_first_operation_is_input(case_of: CaseOf) -> None:
    case = case_of(blocking_job({3: 30.0}, input_only=True))
    assert "keeps up with them" in waits_for_input(case.facts, case.matched, 3)


def test_slow_work_is_slow_wherever_there_is_work(case_of: CaseOf) -> None:
    case = case_of(blocking_job({3: 30.0}))
    assert waits_for_input(case.facts, case.matched, 3) == ""


def test_replicas_that_are_late_through_a_pipeline_are_candidates(verdict_of: VerdictOf) -> None:
    # No tensor groups: stages 2 and 3 of the second replica are late only against the first one.
    trace = TraceBuilder(world=4, events=False)
    world = trace.group("default_pg", [0, 1, 2, 3], kind="world")
    dp = [trace.group("dp_0", [0, 2], kind="dp"), trace.group("dp_1", [1, 3], kind="dp")]
    trace.group("pp_0", [0, 1], kind="pp")
    trace.group("pp_1", [2, 3], kind="pp")
    for step in range(1, 9):
        for stage, group in enumerate(dp):
            for rank in trace.members[group]:
                late = 30.0 if rank > 1 else 0.0
                trace.call(rank, group, step, at_ms=step * 200 + 50 + 5 * stage + late + jitter(rank, step, stage))
        for rank in range(4):
            trace.call(rank, world, step, at_ms=step * 200 + 120 + jitter(rank, step, 3))
    (finding,) = verdict_of(trace).findings
    assert (finding.root_cause.ranks, finding.root_cause.one_of) == ((2, 3), True)
    assert finding.confidence != "high"


def timed_job(*, slow_group: int | None = None, late_rank: int | None = None) -> TraceBuilder:
    """Three data-parallel groups of two with device durations, ms: 2 once all are there."""
    trace = TraceBuilder(world=6, timing=True)
    world = trace.group("default_pg", list(range(6)), kind="world")
    groups = [trace.group(f"dp_{i}", [2 * i, 2 * i + 1], kind="dp") for i in range(3)]
    for step in range(1, 11):
        for index, group in enumerate(groups):
            takes = 6.0 if index == slow_group else 2.0
            for rank in trace.members[group]:
                waits = 8.0 if late_rank in trace.members[group] and rank != late_rank else 0.0
                dur = takes + waits + jitter(rank, step, 0) / 10
                trace.call(rank, group, step, dur_ms=dur, at_ms=step * 50 + index)
        for rank in range(6):
            trace.call(rank, world, step, dur_ms=1.0, at_ms=step * 50 + 20)
    return trace


def test_the_least_time_inside_is_the_last_to_come(case_of: CaseOf) -> None:
    case = case_of(timed_job(late_rank=3))
    assert [item.rank for item in late_ranks(case.facts, case.matched, DEFAULTS)] == [3]


def test_a_group_is_slow_against_its_sisters(verdict_of: VerdictOf) -> None:
    (finding,) = verdict_of(timed_job(slow_group=1)).findings
    assert (finding.category, finding.root_cause.ranks) == ("slow_group", (2, 3))


def test_waiting_for_a_late_rank_does_not_make_a_group_slow(case_of: CaseOf) -> None:
    case = case_of(timed_job(late_rank=3))
    assert slow_groups(case.facts, case.matched, DEFAULTS) == []


def test_a_recorder_without_times_shows_no_lateness(case_of: CaseOf) -> None:
    trace = timed_job(late_rank=3)
    for row in trace.rows["coll_ops"]:
        row["dur_ns"] = None
    case = case_of(trace)
    assert late_ranks(case.facts, case.matched, DEFAULTS) == ()
