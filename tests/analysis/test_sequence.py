from __future__ import annotations

from collections.abc import Callable

from mycroft.analysis.case import Case
from mycroft.analysis.sequence import find_divergences, first_missing, repeats_itself, role_peers, usually_follows
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]


def steps(trace: TraceBuilder, rank: int, plan: list[tuple[int, str]], *, times: int, **call: object) -> dict[int, int]:
    """Repeat a plan of (group, kind) and return the last number of each group."""
    seq: dict[int, int] = {}
    for _ in range(times):
        for group, kind in plan:
            seq[group] = seq.get(group, 0) + 1
            trace.call(rank, group, seq[group], kind=kind, **call)  # type: ignore[arg-type]
    return seq


def test_the_rank_that_leaves_out_an_operation_left_the_path(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=4)
    tp, world = trace.group("tp_0", [0, 1, 2, 3], kind="tp"), trace.group("default_pg", [0, 1, 2, 3], kind="world")
    plan = [(tp, "all_reduce"), (tp, "all_gather"), (world, "all_reduce")]
    for rank in range(4):
        seq = steps(trace, rank, plan, times=4)
        if rank != 2:
            trace.call(rank, tp, seq[tp] + 1)
            trace.call(rank, tp, seq[tp] + 2, kind="all_gather")
            trace.call(rank, world, seq[world] + 1, done=False)
        else:
            trace.call(rank, tp, seq[tp] + 1)
            trace.call(rank, tp, seq[tp] + 2, kind="all_gather")
            trace.call(rank, tp, seq[tp] + 3, done=False)
    case = case_of(trace)
    found = find_divergences(case.facts, case.matched, range(4))
    assert {d.rank for d in found} == {2}
    assert found[0].expected.startswith("all_reduce 5 of default_pg")
    assert found[0].by == "majority"


def test_between_two_ranks_their_own_past_decides(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    a, b = trace.group("grad_0", [0, 1], kind="dp"), trace.group("metric_0", [0, 1], kind="other")
    for rank in (0, 1):
        seq = steps(trace, rank, [(a, "all_gather"), (a, "all_reduce"), (b, "all_reduce")], times=4)
        trace.call(rank, a, seq[a] + 1, kind="all_gather")
        order = [(a, seq[a] + 2), (b, seq[b] + 1)]
        for group, number in order if rank == 0 else order[::-1]:
            trace.call(rank, group, number, done=False)
    case = case_of(trace)
    found = find_divergences(case.facts, case.matched, (0, 1))
    assert {(d.rank, d.kind, d.by) for d in found} == {(1, "swapped", "history")}


def test_a_rank_that_does_what_it_always_did_has_another_role(case_of: CaseOf) -> None:
    # Rank 3 ends every step like the others and begins it otherwise: a role, not a fault.
    trace = TraceBuilder(world=4)
    tp, world = trace.group("tp_0", [0, 1, 2, 3], kind="tp"), trace.group("default_pg", [0, 1, 2, 3], kind="world")
    solo = trace.group("solo", [3], kind="other")
    trace.first_record = 700
    for rank in range(4):
        first = (solo, "all_reduce") if rank == 3 else (tp, "broadcast")
        tail = [(world, "all_reduce")] * 3
        seq = steps(trace, rank, [first, *tail], times=5)
        if rank != 3:
            trace.call(rank, tp, seq[tp] + 1, kind="broadcast", done=False)
        else:
            trace.call(rank, solo, seq[solo] + 1, done=False)
    case = case_of(trace)
    assert find_divergences(case.facts, case.matched, range(4)) == ()


def test_a_rank_that_stands_still_is_compared_as_far_as_it_came(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    tp = trace.group("tp_0", [0, 1, 2], kind="tp")
    for rank in range(3):
        seq = steps(trace, rank, [(tp, "all_reduce"), (tp, "all_gather")], times=3)
        if rank != 1:
            trace.call(rank, tp, seq[tp] + 1, done=False)
    case = case_of(trace)
    assert find_divergences(case.facts, case.matched, range(3)) == ()


def test_what_was_due_first_is_where_it_began(case_of: CaseOf) -> None:
    # Two replicas (0, 1) and (2, 3). 0 stopped at 100 ms; 1, the next stage, misses what was due at 200 ms.
    trace = TraceBuilder(world=4, events=False)
    world = trace.group("default_pg", [0, 1, 2, 3], kind="world")
    first, second = trace.group("dp_0", [0, 2], kind="dp"), trace.group("dp_1", [1, 3], kind="dp")
    for rank in range(4):
        for seq in (1, 2, 3):
            trace.call(rank, world, seq, at_ms=10 * seq)
    trace.call(2, first, 1, at_ms=100, done=False)
    trace.call(3, second, 1, at_ms=200, done=False)
    case = case_of(trace)
    due = first_missing(case.facts, case.matched, (0, 1))
    assert due[0][0] < due[1][0]


def test_replicas_are_peers_before_the_members_of_a_tensor_group(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=4)
    trace.group("tp_0", [0, 1], kind="tp")
    trace.group("dp_0", [0, 2], kind="dp")
    trace.call(0, 0, 1)
    peers = role_peers(case_of(trace).facts)
    assert (peers[0], peers[1]) == ((2,), (0,))


def test_what_usually_follows_is_told_from_the_past(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=1)
    a, b = trace.group("a", [0]), trace.group("b", [0])
    steps(trace, 0, [(a, "all_reduce"), (b, "barrier")], times=3)
    matched = case_of(trace).matched
    assert usually_follows(matched, 0, (a, "all_reduce"), (b, "barrier"))
    assert not usually_follows(matched, 0, (b, "barrier"), (b, "barrier"))


def test_the_same_operation_twice_in_a_row_is_seen(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=1)
    a, b = trace.group("a", [0]), trace.group("b", [0])
    seq = steps(trace, 0, [(a, "all_reduce"), (b, "all_reduce")], times=3)
    trace.call(0, b, seq[b] + 1, done=False)
    matched = case_of(trace).matched
    assert repeats_itself(matched, 0, b, seq[b] + 1)
    assert not repeats_itself(matched, 0, b, seq[b])
