from __future__ import annotations

from collections.abc import Callable

import polars as pl

from mycroft.analysis.case import Case
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]


def test_operations_of_one_group_are_matched_by_sequence_number(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("dp_0", [0, 1], kind="dp")
    for rank in (0, 1):
        trace.call(rank, group, 7)
    counts = case_of(trace).matched.counts
    assert counts.select("seq", "issued", "done").rows() == [(7, 2, 2)]


def test_members_of_a_batch_take_the_state_of_its_closing_entry(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("pp_0", [0, 1], kind="pp")
    # Members of a batch have no events: they read `scheduled` for ever.
    trace.recv(0, 1, group, done=False, coalesced=True)
    trace.call(0, group, 0, kind="coalesced", done=True)
    trace.send(1, 0, group, done=False, coalesced=True)
    trace.call(1, group, 0, kind="coalesced", done=True)
    matched = case_of(trace).matched
    assert matched.pairs["done"].to_list() == [True, True]
    assert matched.opens == {}
    assert matched.calls.is_empty(), "a closing entry is no collective"


def test_parts_of_a_coalesced_collective_are_one_operation(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("dp_0", [0, 1], kind="dp")
    for rank in (0, 1):
        for _ in range(3):
            trace.call(rank, group, 1, kind="all_gather", done=False, coalesced=True)
        trace.call(rank, group, 1, kind="coalesced", done=True)
    counts = case_of(trace).matched.counts
    assert counts.select("seq", "issued", "done").rows() == [(1, 2, 2)]


def test_a_retired_operation_that_somebody_never_joined_has_failed(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3, events=False)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in (0, 1, 2):
        trace.call(rank, group, 1)
    for rank in (0, 1):
        trace.call(rank, group, 2, done=True)
    matched = case_of(trace).matched
    assert {rank: opens[0].failed for rank, opens in matched.opens.items()} == {0: True, 1: True}


def test_a_broadcast_may_end_before_everybody_is_in(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3, events=False)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    trace.call(0, group, 1, kind="broadcast")
    trace.call(1, group, 1, kind="broadcast")
    assert case_of(trace).matched.opens == {}


def test_a_recorder_that_is_late_to_retire_does_not_make_a_waiter(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3, events=False)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in (0, 1, 2):
        trace.call(rank, group, 1, done=rank != 2)
    assert case_of(trace).matched.opens == {}


def test_a_device_that_is_late_to_finish_is_a_waiter(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in (0, 1, 2):
        trace.call(rank, group, 1, done=rank != 2)
    assert list(case_of(trace).matched.opens) == [2]


def test_ranks_that_went_past_an_operation_show_that_the_job_ran_on(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2, events=False)
    group, other = trace.group("dp_0", [0, 1], kind="dp"), trace.group("tp_0", [0, 1], kind="tp")
    for rank in (0, 1):
        trace.call(rank, group, 0)
    trace.call(0, group, 1)
    trace.call(0, other, 1, done=False)
    case = case_of(trace)
    assert case.matched.passed == {(group, 1)}
    assert case.liveness.state == "in_flight"


def test_a_sequence_number_that_a_status_names_counts_as_issued(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    trace.only_active = True
    group = trace.group("dp_0", [0, 1], kind="dp")
    trace.call(0, group, 9, done=False)
    for rank, enqueued in ((0, 9), (1, 8)):
        trace.rows["group_status"].append(
            {"rank": rank, "comm_id": group, "last_enqueued": enqueued, "last_completed": 8}
        )
    matched = case_of(trace).matched
    assert matched.issued(group, 0, 9) is True
    assert matched.issued(group, 1, 9) is False


def test_the_status_of_a_group_with_sends_says_nothing_of_its_collectives(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    trace.only_active = True
    group = trace.group("pp_0", [0, 1], kind="pp")
    trace.send(0, 1, group, done=False)
    trace.rows["group_status"].append({"rank": 1, "comm_id": group, "last_enqueued": 500, "last_completed": 500})
    assert case_of(trace).matched.issued(group, 1, 3) is None


def test_without_a_dump_nothing_is_known_of_what_was_issued(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("dp_0", [0, 1], kind="dp")
    trace.call(0, group, 1, done=False)
    trace.without_dump(1)
    assert case_of(trace).matched.issued(group, 1, 1) is None


def test_frames_are_sorted_whatever_the_order_of_rows(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("dp_0", [0, 1], kind="dp")
    for seq in (1, 2, 3):
        for rank in (0, 1):
            trace.call(rank, group, seq)
    trace.rows["coll_ops"].reverse()
    calls = case_of(trace).matched.calls
    assert calls.select("comm", "seq", "rank").equals(calls.select("comm", "seq", "rank").sort(pl.all()))


def test_a_dump_cut_short_does_not_say_what_was_not_issued(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in range(3):
        trace.call(rank, group, 1)
    for rank in (0, 1):
        trace.call(rank, group, 2, done=False)
    whole = case_of(trace)
    assert whole.matched.issued(group, 2, 2) is False
    trace.problems[2] = "cut short: byte 461: BINUNICODE wants 69 bytes and 34 are left; 1 entries before that are kept"
    cut = case_of(trace)
    assert cut.matched.issued(group, 2, 1) is True
    assert cut.matched.issued(group, 2, 2) is None
    assert [(s.kind, s.ranks) for s in cut.graph.sinks] == [("no_dump", (2,))]
