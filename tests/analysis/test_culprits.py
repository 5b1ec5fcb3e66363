"""One rule, one test: who is named, on which grounds, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mycroft.analysis.verdict import Finding, Verdict
from tests.analysis.trace_builder import TraceBuilder

VerdictOf = Callable[[TraceBuilder], Verdict]
C10D = "torch/distributed/distributed_c10d.py"


def job(world: int = 4, *, events: bool = True, timing: bool = False) -> tuple[TraceBuilder, int]:
    """Return a job of one data-parallel group in which three operations went well."""
    trace = TraceBuilder(world=world, events=events, timing=timing)
    group = trace.group("dp_0", list(range(world)), kind="dp")
    for rank in range(world):
        for seq in (1, 2, 3):
            trace.call(rank, group, seq)
    return trace, group


def only(verdict: Verdict) -> Finding:
    assert len(verdict.findings) == 1, verdict.summary
    return verdict.findings[0]


def test_mismatch_the_odd_one_is_named_not_those_who_died_of_it(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    for rank in (0, 2, 3):
        trace.call(rank, group, 4, size=80 if rank == 2 else 64)
    trace.rows["coll_ops"] = [r for r in trace.rows["coll_ops"] if r["rank"] != 1]
    trace.without_dump(1)
    text = "[enforce fail] 40 vs 32. Received data size doesn't match expected size."
    trace.event(1, "exception", name="gloo::EnforceNotMet", text=text)
    trace.event(1, "exit", code=-6)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks) == ("size_mismatch", (2,))
    assert 1 in {r for a in finding.alternatives for r in a.ranks}


def test_ended_a_killed_rank_is_named_not_those_who_lost_it(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    for rank in (0, 1, 2):
        trace.call(rank, group, 4)
        trace.event(rank, "connection_closed", text="Connection closed by peer [10.0.0.3]:4242", at_ms=900)
    trace.without_dump(3)
    trace.event(3, "exit", code=-9, at_ms=890)
    finding = only(verdict_of(trace))
    assert (finding.status, finding.category, finding.confidence) == ("crash", "process_died", "high")
    assert finding.root_cause.ranks == (3,)
    assert "SIGKILL" in finding.summary


def test_ended_an_exception_of_its_own_is_named(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    for rank in (0, 1, 2):
        trace.call(rank, group, 4)
        trace.event(rank, "connection_closed", text="Connection closed by peer", at_ms=900)
    trace.event(3, "exception", name="ValueError", text="ValueError: negative learning rate", at_ms=880)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks) == ("exception", (3,))
    assert "ValueError" in finding.summary


def test_device_behind_a_device_that_stands_still(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in range(4):
        trace.call(rank, group, 4, done=rank != 1)
        trace.call(rank, group, 5, done=False)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.component, finding.root_cause.ranks) == ("device_hang", "gpu", (1,))


def test_device_not_started_is_seen_with_timing(verdict_of: VerdictOf) -> None:
    trace, group = job(timing=True)
    for rank in range(4):
        trace.call(rank, group, 4, done=False, started=rank != 2)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks) == ("device_hang", (2,))


def test_several_devices_at_once_are_one_finding(verdict_of: VerdictOf) -> None:
    trace, group = job(6)
    other = trace.group("tp_0", [3, 4, 5], kind="tp")
    for rank in range(6):
        trace.call(rank, group, 4, done=rank != 1)
    for rank in (3, 4, 5):
        trace.call(rank, other, 1, done=rank != 5)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks, finding.root_cause.one_of) == ("device_hang", (1, 5), False)


def test_alone_who_waits_where_nobody_else_is_left_the_path(verdict_of: VerdictOf) -> None:
    trace, group = job()
    other = trace.group("default_pg", [0, 1, 2, 3], kind="world")
    for rank in range(4):
        trace.call(rank, *((other, 1) if rank == 2 else (group, 4)), done=False)
    finding = only(verdict_of(trace))
    assert finding.root_cause.ranks == (2,)
    assert finding.category in ("code_divergence", "order_deadlock")


def test_cycle_two_groups_crosswise_are_told_by_the_past(verdict_of: VerdictOf) -> None:
    trace = TraceBuilder(world=2)
    a, b = trace.group("grad_0", [0, 1]), trace.group("metric_0", [0, 1])
    for rank in (0, 1):
        for seq in (1, 2, 3, 4):
            trace.call(rank, a, seq)
            trace.call(rank, b, seq)
    for rank in (0, 1):
        order = ((a, 5), (b, 5))
        for group, seq in order if rank == 0 else order[::-1]:
            trace.call(rank, group, seq, done=False)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks) == ("order_deadlock", (1,))


def test_cycle_without_a_past_is_a_set(verdict_of: VerdictOf) -> None:
    trace = TraceBuilder(world=2)
    a, b = trace.group("grad_0", [0, 1]), trace.group("metric_0", [0, 1])
    trace.call(0, a, 1, done=False)
    trace.call(1, b, 1, done=False)
    finding = only(verdict_of(trace))
    assert (finding.root_cause.ranks, finding.root_cause.one_of) == ((0, 1), True)
    assert finding.confidence != "high"


def test_finished_early_the_few_who_stopped_are_named(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    for rank in (0, 1, 3):
        trace.call(rank, group, 4, done=False)
        trace.event(rank, "watchdog_timeout", text="Timed out waiting 600000ms", at_ms=600_000)
    trace.event(2, "finished", at_ms=40)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks) == ("code_divergence", (2,))


def test_finished_early_a_lone_waiter_among_the_finished_is_named(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    trace.call(0, group, 4, done=False)
    trace.event(0, "watchdog_timeout", text="Timed out waiting 600000ms", at_ms=600_000)
    for rank in (1, 2, 3):
        trace.event(rank, "finished", at_ms=40)
    finding = only(verdict_of(trace))
    assert finding.root_cause.ranks == (0,)


def test_silent_who_stopped_without_a_word_is_named(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    for rank in (0, 1, 2):
        trace.call(rank, group, 4)
        trace.event(rank, "connection_closed", text="Connection reset by peer", at_ms=900)
        trace.event(rank, "log_end", at_ms=901)
    trace.without_dump(3)
    trace.event(3, "log_end", at_ms=800)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks) == ("process_died", (3,))


def test_stopped_a_process_that_is_alive_and_wrote_nothing(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    for rank in (0, 1, 2):
        trace.call(rank, group, 4, done=False)
    trace.without_dump(3)
    for rank in range(4):
        trace.event(rank, "alive", at_ms=9000)
        trace.event(rank, "dump_written" if rank < 3 else "log_end", at_ms=8000)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.component, finding.root_cause.ranks) == ("process_stopped", "process", (3,))


def test_absent_who_did_not_enter_is_named(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in (0, 1, 3):
        trace.call(rank, group, 4, done=False)
    verdict = verdict_of(trace)
    finding = only(verdict)
    assert (finding.category, finding.component, finding.confidence) == ("absent", "process", "high")
    assert finding.root_cause.ranks == (2,)
    assert finding.victims == (0, 1, 3)
    assert finding.collective is not None
    assert (finding.collective.seq, finding.collective.missing_ranks) == (4, (2,))


def test_absent_becomes_specific_with_a_stack(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in (0, 1, 3):
        trace.call(rank, group, 4, done=False)
        trace.stack(rank, f"all_reduce ({C10D}:1)", "main (train.py:2)")
    trace.stack(2, "write_state (train.py:168)", "save_checkpoint (train.py:162)")
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks) == ("checkpoint", (2,))
    assert "write_state" in finding.summary


def test_absent_different_faults_are_different_findings(verdict_of: VerdictOf) -> None:
    trace, group = job(6)
    for rank in (0, 1, 3, 4):
        trace.call(rank, group, 4, done=False)
        trace.stack(rank, f"all_reduce ({C10D}:1)", "main (train.py:2)")
    trace.stack(2, "write_state (train.py:168)", "save_checkpoint (train.py:162)")
    trace.stack(5, "get (queue.py:171)", "Loader.next_batch (train.py:91)")
    found = {(f.category, f.root_cause.ranks) for f in verdict_of(trace).findings}
    assert found == {("checkpoint", (2,)), ("dataloader", (5,))}


def test_absent_a_lost_dump_of_the_same_group_lowers_the_word(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in (0, 1):
        trace.call(rank, group, 4, done=False)
    trace.without_dump(3)
    finding = only(verdict_of(trace))
    assert (finding.root_cause.ranks, finding.confidence) == ((2,), "medium")


def test_no_dump_and_nothing_else_is_not_sure(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in (0, 1, 2):
        trace.call(rank, group, 4, done=False)
    trace.without_dump(3)
    verdict = verdict_of(trace)
    finding = only(verdict)
    assert (finding.root_cause.ranks, finding.confidence) == ((3,), "medium")
    assert any("rank 3" in u.what for u in verdict.unknown)


def test_no_dump_of_two_members_is_one_of_them_at_best(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in (0, 1):
        trace.call(rank, group, 4, done=False)
    trace.without_dump(2, 3)
    finding = verdict_of(trace).findings[0]
    assert set(finding.root_cause.ranks) <= {2, 3}
    assert finding.confidence != "high"


def test_stuck_together_nobody_stands_out(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in range(4):
        trace.call(rank, group, 4, done=False)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.one_of, finding.confidence) == ("unknown", True, "low")
    assert finding.root_cause.ranks == (0, 1, 2, 3)
    assert any("TORCH_NCCL_ENABLE_TIMING" in step for step in finding.next_steps)


def test_unseen_a_wait_for_nobody_known_is_no_finding(verdict_of: VerdictOf) -> None:
    trace = TraceBuilder(world=2, events=False)
    group = trace.group("dp_0", [0, 1], kind="dp")
    trace.call(0, group, 1, done=False)
    trace.stack(0, f"all_reduce ({C10D}:1)", "main (train.py:1)")
    trace.stack(1, f"recv ({C10D}:1)", "main (train.py:2)")
    verdict = verdict_of(trace)
    assert (verdict.status, verdict.exit_code) == ("cannot_tell", 3)


def test_one_dump_of_a_group_that_nobody_lists_accuses_nobody(verdict_of: VerdictOf) -> None:
    trace = TraceBuilder(world=1, events=False)
    group = trace.group("grad_0", [0], declared=False)
    trace.call(0, group, 1)
    trace.call(0, group, 2, done=False)
    trace.rows["jobs"] = []
    verdict = verdict_of(trace)
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert any("grad_0" in u.what and "dumps of all ranks" in u.would_decide for u in verdict.unknown)


@pytest.mark.parametrize(("events", "timing"), [(False, False), (True, True)])
def test_healthy_is_said_where_a_slow_rank_would_show(verdict_of: VerdictOf, events: bool, timing: bool) -> None:
    trace, _ = job(events=events, timing=timing)
    verdict = verdict_of(trace)
    assert (verdict.status, verdict.findings, verdict.exit_code) == ("healthy", (), 0)


def test_dumps_without_any_pace_do_not_show_that_a_job_is_well(verdict_of: VerdictOf) -> None:
    trace, _ = job()
    verdict = verdict_of(trace)
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert "nothing hangs" in verdict.summary and "TORCH_NCCL_ENABLE_TIMING" in verdict.summary


def test_the_pace_may_come_from_the_log(verdict_of: VerdictOf) -> None:
    trace, _ = job()
    for step in range(3):
        trace.event(0, "step", value=float(step), at_ms=10 + 10 * step)
    assert verdict_of(trace).status == "healthy"


def test_one_dump_of_many_is_too_little_for_health(verdict_of: VerdictOf) -> None:
    trace, _ = job(timing=True)
    trace.without_dump(1, 2, 3)
    verdict = verdict_of(trace)
    assert verdict.status == "cannot_tell"
    assert "ranks 1-3 left no dump" in verdict.summary


def test_empty_dumps_are_too_little_for_health(verdict_of: VerdictOf) -> None:
    trace = TraceBuilder(world=2, timing=True)
    trace.group("dp_0", [0, 1], kind="dp")
    assert verdict_of(trace).status == "cannot_tell"


def test_a_dump_without_a_finished_operation_is_too_little_for_health(verdict_of: VerdictOf) -> None:
    trace, _ = job(timing=True)
    trace.rows["coll_ops"] = [r for r in trace.rows["coll_ops"] if r["rank"] != 2]
    trace.rows["coll_ops"] = [{**r, "op_kind": "send", "is_p2p": True, "peer": 3} for r in trace.rows["coll_ops"]]
    verdict = verdict_of(trace)
    assert verdict.status == "cannot_tell"
    assert "rank 2" in verdict.summary


@pytest.mark.parametrize("sign", ["stack", "dump_written"])
def test_logs_of_ranks_that_may_stand_still_are_too_little_for_health(verdict_of: VerdictOf, sign: str) -> None:
    trace = TraceBuilder(world=2)
    trace.dumps = set()
    for rank in (0, 1):
        trace.event(rank, "step", value=1.0, at_ms=10)
        if sign == "stack":
            trace.stack(rank, f"all_reduce ({C10D}:1)", "main (train.py:2)")
        else:
            trace.event(rank, "dump_written", at_ms=900)
    verdict = verdict_of(trace)
    assert (verdict.status, verdict.findings) == ("cannot_tell", ())
    assert "ranks 0, 1" in verdict.summary


def test_a_rank_that_says_it_wrote_its_dump_is_not_called_stopped(verdict_of: VerdictOf) -> None:
    trace, group = job(events=False)
    for rank in (0, 1, 2):
        trace.call(rank, group, 4, done=False)
    trace.without_dump(3)
    for rank in range(4):
        trace.event(rank, "alive", at_ms=9000)
        trace.event(rank, "dump_written", at_ms=8000)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.confidence) == ("absent", "medium")


def test_a_lost_dump_beside_a_device_that_stands_is_told_and_not_blamed(verdict_of: VerdictOf) -> None:
    trace, group = job(6, timing=True)
    stages = trace.group("pp_0", [4, 5], kind="pp")
    for rank in range(6):
        trace.call(rank, group, 4, done=rank != 1)
        if rank == 4:
            trace.recv(4, 5, stages, done=False)
        trace.call(rank, group, 5, done=False)
    trace.without_dump(5)
    finding = only(verdict_of(trace))
    assert (finding.category, finding.root_cause.ranks, finding.confidence) == ("device_hang", (1,), "medium")
    assert "rank 5 left no dump" in "; ".join(finding.confidence_why)


def unrecorded(*, lost: tuple[int, ...] = (), pipeline: bool = False) -> TraceBuilder:
    """Return a gloo job of four ranks in which rank 1 misses an operation of ranks 0 and 1: it may be in a receive."""
    trace = TraceBuilder(world=4, events=False)
    world = trace.group("default_pg", [0, 1, 2, 3], kind="world")
    pairs = [trace.group(f"dp_{i}", [2 * i, 2 * i + 1], kind="dp", declared=False) for i in (0, 1)]
    for rank in range(4):
        for seq in (1, 2, 3):
            trace.call(rank, pairs[rank // 2], seq)
            trace.call(rank, world, seq)
    trace.call(0, pairs[0], 4, done=False)
    if pipeline:
        trace.group("pp_0", [1, 2], kind="pp")
        trace.group("pp_1", [0, 3], kind="pp")
    trace.without_dump(*lost)
    return trace


def test_a_rank_that_may_wait_unseen_for_one_without_a_dump_is_not_named_alone(verdict_of: VerdictOf) -> None:
    finding = only(verdict_of(unrecorded(lost=(3,))))
    assert (finding.root_cause.ranks, finding.root_cause.one_of) == ((1, 3), True)
    assert finding.confidence != "high"


def test_a_rank_without_a_dump_of_another_pipeline_explains_nothing(verdict_of: VerdictOf) -> None:
    finding = only(verdict_of(unrecorded(lost=(3,), pipeline=True)))
    assert 3 not in finding.root_cause.ranks
    assert 1 in finding.root_cause.ranks


def test_who_finished_and_left_no_dump_explains_those_who_report_a_lost_connection(verdict_of: VerdictOf) -> None:
    trace = unrecorded(lost=(3,))
    for rank in (0, 1, 2):
        trace.event(rank, "connection_closed", text="Connection closed by peer", at_ms=900)
        trace.event(rank, "exit", code=1)
    trace.event(3, "exit", code=0)
    finding = only(verdict_of(trace))
    assert (finding.root_cause.ranks, finding.root_cause.one_of) == ((3,), False)
    assert 1 in {r for a in finding.alternatives for r in a.ranks}


def test_of_two_that_were_due_at_one_time_neither_is_named_alone(verdict_of: VerdictOf) -> None:
    trace = TraceBuilder(world=4, events=False)
    world = trace.group("default_pg", [0, 1, 2, 3], kind="world")
    pairs = [trace.group(f"dp_{i}", [i, i + 2], kind="dp") for i in (0, 1)]
    for rank in range(4):
        for seq in range(1, 6):
            trace.call(rank, pairs[rank % 2], seq, at_ms=100 * seq)
            trace.call(rank, world, seq, at_ms=100 * seq + 50)
    for rank in (0, 1):
        trace.call(rank, pairs[rank], 6, at_ms=600 + rank, done=False)
    finding = only(verdict_of(trace))
    assert (finding.root_cause.ranks, finding.root_cause.one_of) == ((2, 3), True)


def test_all_retired_with_a_dump_missing_is_not_called_healthy(verdict_of: VerdictOf) -> None:
    trace, _ = job(events=False)
    trace.without_dump(3)
    verdict = verdict_of(trace)
    assert verdict.status == "cannot_tell"
    assert any("rank 3" in u.would_decide for u in verdict.unknown)


def test_all_retired_with_a_dump_missing_is_healthy_if_its_log_says_so(verdict_of: VerdictOf) -> None:
    trace, _ = job(events=False)
    trace.without_dump(3)
    for rank in range(4):
        trace.event(rank, "finished", at_ms=40)
    assert verdict_of(trace).status == "healthy"


def test_nothing_to_look_at_is_not_healthy(verdict_of: VerdictOf) -> None:
    trace = TraceBuilder(world=2)
    trace.dumps = set()
    assert verdict_of(trace).status == "cannot_tell"


def test_a_rank_that_reports_itself_that_others_stopped_is_not_named_for_sure(verdict_of: VerdictOf) -> None:
    trace, group = job()
    for rank in (0, 1, 3):
        trace.call(rank, group, 4, done=False)
    for rank in range(4):
        trace.event(rank, "connection_closed", text="Connection closed by peer", at_ms=900)
    finding = only(verdict_of(trace))
    assert (finding.root_cause.ranks, finding.confidence) == ((2,), "medium")
    assert "reports itself" in "; ".join(finding.confidence_why)
