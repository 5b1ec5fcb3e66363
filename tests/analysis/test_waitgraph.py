from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from mycroft.analysis.case import Case
from mycroft.analysis.walk import Edge, Node, strongly_connected
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]


def ends(case: Case) -> list[tuple[str, tuple[int, ...]]]:
    return [(s.kind, s.ranks) for s in case.graph.sinks]


def test_who_has_not_entered_is_the_end_of_the_walk(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=4)
    group = trace.group("dp_0", [0, 1, 2, 3], kind="dp")
    for rank in range(4):
        trace.call(rank, group, 1)
    for rank in (0, 1, 3):
        trace.call(rank, group, 2, done=False)
    case = case_of(trace)
    assert ends(case) == [("absent", (2,))]
    assert case.graph.waiting == (0, 1, 3)


def test_the_walk_crosses_groups(case_of: CaseOf) -> None:
    # 0 waits for 1 in one group, 1 waits for 2 in another: 2 holds up both.
    trace = TraceBuilder(world=3)
    first, second = trace.group("a", [0, 1]), trace.group("b", [1, 2])
    for rank, group in ((0, first), (1, first), (1, second), (2, second)):
        trace.call(rank, group, 1)
    trace.call(0, first, 2, done=False)
    trace.call(1, second, 2, done=False)
    case = case_of(trace)
    assert ends(case) == [("absent", (2,))]
    path = case.graph.path_to(case.graph.sinks[0])
    assert [e.src.key[0] for e in path if e.src.kind == "rank"] == [0, 1]


def test_an_operation_behind_another_one_is_held_up_by_it(case_of: CaseOf) -> None:
    # 1 has issued the operation of `b` as well, but its device has to get through `a` first, where 2 is missing.
    trace = TraceBuilder(world=3)
    a, b = trace.group("a", [1, 2]), trace.group("b", [0, 1])
    trace.call(2, a, 1)
    trace.call(1, a, 1)
    trace.call(1, a, 2, done=False)
    trace.call(1, b, 1, done=False)
    trace.call(0, b, 1, done=False)
    assert ends(case_of(trace)) == [("absent", (2,))]


def test_an_operation_that_has_started_is_not_held_up(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2, timing=True)
    a, b = trace.group("a", [0, 1]), trace.group("b", [0, 1])
    for rank in (0, 1):
        trace.call(rank, a, 1, done=False, started=True)
        trace.call(rank, b, 1, done=False, started=True)
    assert ends(case_of(trace)) == [("stuck", (0, 1))]


def test_who_finished_less_than_all_others_has_a_device_that_stands_still(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=4)
    group = trace.group("dp_0", [0, 1, 2, 3], kind="dp")
    for rank in range(4):
        trace.call(rank, group, 1, done=rank != 3)
    assert ends(case_of(trace)) == [("device", (3,))]


def test_who_has_not_started_while_the_others_have_is_named_with_timing(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3, timing=True)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in range(3):
        trace.call(rank, group, 1, done=False, started=rank != 1)
    assert ends(case_of(trace)) == [("device", (1,))]


def test_without_timing_an_operation_that_all_entered_is_stuck_as_a_whole(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in range(3):
        trace.call(rank, group, 1, done=False)
    assert ends(case_of(trace)) == [("stuck", (0, 1, 2))]


def test_a_rank_without_a_dump_is_blamed_only_where_nobody_is_plainly_missing(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=4)
    group = trace.group("dp_0", [0, 1, 2, 3], kind="dp")
    for rank in (0, 1, 2):
        trace.call(rank, group, 1)
    trace.call(0, group, 2, done=False)
    trace.call(1, group, 2, done=False)
    trace.without_dump(3)
    assert ends(case_of(trace)) == [("absent", (2,))]


def test_a_rank_without_a_dump_is_the_end_where_all_others_are_in(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in (0, 1):
        trace.call(rank, group, 1, done=False)
    trace.without_dump(2)
    assert ends(case_of(trace)) == [("no_dump", (2,))]


def test_two_groups_taken_crosswise_are_a_cycle(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    a, b = trace.group("a", [0, 1]), trace.group("b", [0, 1])
    trace.call(0, a, 1, done=False)
    trace.call(1, b, 1, done=False)
    assert ends(case_of(trace)) == [("cycle", (0, 1))]


def test_a_send_waits_for_the_receiver_that_has_not_posted(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("pp_0", [0, 1], kind="pp")
    trace.send(0, 1, group)
    trace.recv(1, 0, group)
    trace.send(0, 1, group, done=False)
    assert ends(case_of(trace)) == [("absent", (1,))]


def test_cut_ring_buffers_still_pair_what_is_open(case_of: CaseOf) -> None:
    # The sender's dump begins later: its n-th send is not the receiver's n-th receive.
    trace = TraceBuilder(world=2)
    trace.first_record = 500
    group = trace.group("pp_0", [0, 1], kind="pp")
    for _ in range(5):
        trace.recv(1, 0, group)
    trace.send(0, 1, group)
    trace.send(0, 1, group, done=False)
    trace.recv(1, 0, group, done=False)
    assert ends(case_of(trace)) == [("stuck", (0, 1))]


def test_a_send_that_runs_beside_the_rest_does_not_hide_the_real_wait(case_of: CaseOf) -> None:
    # 0 has an open send to 1 (not yet posted) and waits for 2 in a collective: both count, and 2 holds up everything.
    trace = TraceBuilder(world=3)
    pipe, dp = trace.group("pp_0", [0, 1], kind="pp"), trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in range(3):
        trace.call(rank, dp, 1)
    trace.send(0, 1, pipe, done=False)
    trace.call(0, dp, 2, done=False)
    trace.call(1, dp, 2, done=False)
    assert ends(case_of(trace)) == [("absent", (2,))]


def test_an_unrecorded_receive_is_seen_in_the_stack(case_of: CaseOf) -> None:
    # gloo records no send or receive: 2 looks idle, its stack says that it waits for its pipeline neighbour 0.
    trace = TraceBuilder(world=4, events=False)
    dp = trace.group("dp_1", [2, 3], kind="dp")
    tp = trace.group("tp_0", [0, 1], kind="tp")
    trace.group("pp_0", [0, 2], kind="pp")
    trace.call(3, dp, 1, done=False)
    trace.call(0, tp, 1, done=False)
    trace.stack(2, "recv (torch/distributed/distributed_c10d.py:2799)", "main (train.py:10)")
    assert ends(case_of(trace)) == [("absent", (1,))]


def test_a_wait_that_no_evidence_explains_accuses_nobody(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2, events=False)
    group = trace.group("dp_0", [0, 1], kind="dp")
    trace.call(0, group, 1, done=False)
    trace.stack(1, "recv (torch/distributed/distributed_c10d.py:2799)", "main (train.py:10)")
    assert ends(case_of(trace)) == [("waits", (1,))]


def test_components_of_a_long_chain_are_found_without_recursion() -> None:
    nodes = [Node("rank", (i,)) for i in range(20_000)]
    edges = {a: (Edge(a, b, ""),) for a, b in pairwise(nodes)}
    edges[nodes[-1]] = (Edge(nodes[-1], nodes[-3], ""),)
    sizes = sorted(len(c) for c in strongly_connected(edges))
    assert sizes[-1] == 3
    assert len(sizes) == 20_000 - 2
