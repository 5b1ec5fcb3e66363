from __future__ import annotations

from collections.abc import Callable

from mycroft.analysis.case import Case
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]
C10D = "torch/distributed/distributed_c10d.py"


def waiting(*, steps: bool = True) -> TraceBuilder:
    """Two ranks wait for a third since 100 ms; steps take 50 ms."""
    trace = TraceBuilder(world=3, events=False)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in range(3):
        for seq in (1, 2):
            trace.call(rank, group, seq, at_ms=50 * seq - 50)
    for rank in (0, 1):
        trace.call(rank, group, 3, done=False, at_ms=100)
        if steps:
            for step in (0, 1):
                trace.event(rank, "step", value=float(step), at_ms=50 * step + 45)
    return trace


def test_a_wait_much_older_than_a_step_is_stuck(case_of: CaseOf) -> None:
    trace = waiting()
    trace.event(0, "dump_written", at_ms=8000)
    assert case_of(trace).liveness.state == "stuck"


def test_a_wait_younger_than_a_step_is_in_flight(case_of: CaseOf) -> None:
    trace = waiting()
    trace.event(0, "dump_written", at_ms=130)
    assert case_of(trace).liveness.state == "in_flight"


def test_a_log_that_begins_long_after_the_dump_is_no_witness(case_of: CaseOf) -> None:
    trace = waiting(steps=False)
    for rank in (0, 1):
        for step in range(5):
            trace.event(rank, "step", value=float(step), at_ms=500_000 + 50 * step)
    assert case_of(trace).liveness.state == "unknown"


def test_ranks_that_log_further_steps_went_on(case_of: CaseOf) -> None:
    trace = waiting()
    for rank in (0, 1):
        trace.event(rank, "step", value=2.0, at_ms=160)
    assert case_of(trace).liveness.state == "in_flight"


def test_a_log_in_another_time_zone_is_no_later_step(case_of: CaseOf) -> None:
    # Two hours ahead: the steps are those of before the wait.
    trace = waiting(steps=False)
    for rank in (0, 1):
        trace.event(rank, "step", value=1.0, at_ms=95 + 7_200_000)
    assert case_of(trace).liveness.state != "in_flight"


def test_a_timeout_says_that_the_wait_lasted(case_of: CaseOf) -> None:
    trace = waiting()
    trace.event(0, "watchdog_timeout", text="Watchdog caught collective operation timeout", at_ms=600_000)
    assert case_of(trace).liveness.state == "stuck"


def test_stacks_that_are_at_work_by_now_show_a_running_job(case_of: CaseOf) -> None:
    trace = waiting(steps=False)
    for rank in (0, 1):
        trace.stack(rank, "kernel (train.py:140)", "main (train.py:1)")
    assert case_of(trace).liveness.state == "in_flight"


def test_stacks_that_are_still_in_the_wait_show_a_stuck_one(case_of: CaseOf) -> None:
    trace = waiting(steps=False)
    for rank in (0, 1):
        trace.stack(rank, f"all_reduce ({C10D}:3252)", "main (train.py:1)")
    assert case_of(trace).liveness.state == "stuck"


def test_without_a_witness_nothing_is_known(case_of: CaseOf) -> None:
    assert case_of(waiting(steps=False)).liveness.state == "unknown"


def test_the_reason_text_of_a_dump_is_no_witness(case_of: CaseOf) -> None:
    trace = waiting(steps=False)
    trace.event(0, "dump_written", name="hang", text="flight recorder dump written (hang)")
    assert case_of(trace).liveness.state == "unknown"
