from __future__ import annotations

from collections.abc import Callable

from mycroft.analysis.case import Case
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]


def history(trace: TraceBuilder, groups: list[int], *, upto: int = 5, **call: object) -> None:
    for group in groups:
        for rank in trace.members[group]:
            for seq in range(1, upto):
                trace.call(rank, group, seq, **call)  # type: ignore[arg-type]


def test_the_minority_passes_another_size(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank, size in ((0, 64), (1, 80), (2, 64)):
        trace.call(rank, group, 1, size=size, done=False)
    (found,) = case_of(trace).mismatches
    assert (found.aspect, found.odd, found.decided) == ("size", (1,), "majority")


def test_the_order_of_rows_does_not_choose_the_odd_one(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank, size in ((0, 80), (1, 64), (2, 64)):
        trace.call(rank, group, 1, size=size, done=False)
    trace.rows["coll_ops"].reverse()
    assert case_of(trace).mismatches[0].odd == (0,)


def test_a_tie_is_broken_by_sister_groups(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=6)
    pairs = [trace.group(f"dp_{i}", [2 * i, 2 * i + 1], kind="dp") for i in range(3)]
    for pair in pairs:
        for rank in trace.members[pair]:
            trace.call(rank, pair, 1, size=80 if rank == 3 else 64, done=False)
    (found,) = case_of(trace).mismatches
    assert (found.odd, found.decided) == ((3,), "sisters")


def test_a_tie_is_broken_by_what_the_group_did_before(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("dp_0", [0, 1], kind="dp")
    history(trace, [group])
    for rank, dtype in ((0, "Double"), (1, "Float")):
        trace.call(rank, group, 5, dtype=dtype, done=False)
    (found,) = case_of(trace).mismatches
    assert (found.aspect, found.odd, found.decided) == ("dtype", (0,), "history")


def test_a_tie_that_nothing_breaks_stays_a_tie(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=2)
    group = trace.group("dp_0", [0, 1], kind="dp")
    for rank, size in ((0, 64), (1, 80)):
        trace.call(rank, group, 1, size=size, done=False)
    (found,) = case_of(trace).mismatches
    assert (found.odd, found.even, found.decided) == ((0, 1), (), "tie")


def test_another_kind_of_operation_is_the_first_thing_to_differ(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank, kind in ((0, "all_reduce"), (1, "all_reduce"), (2, "all_gather")):
        trace.call(rank, group, 1, kind=kind, size=64 if rank < 2 else 8, done=False)
    (found,) = case_of(trace).mismatches
    assert (found.aspect, found.odd) == ("type", (2,))


def test_uneven_parts_of_a_gather_that_add_up_are_lawful(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank, size in ((0, 10), (1, 20), (2, 30)):
        trace.call(rank, group, 1, kind="all_gather", size=size, out=60, done=False)
    assert case_of(trace).mismatches == ()


def test_uneven_parts_of_a_gather_that_do_not_add_up_are_not(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank, size in ((0, 20), (1, 20), (2, 30)):
        trace.call(rank, group, 1, kind="all_gather", size=size, out=60, done=False)
    assert case_of(trace).mismatches[0].odd == (2,)


def test_an_all_to_all_may_be_uneven_as_long_as_it_adds_up(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("ep_0", [0, 1, 2], kind="ep")
    for rank, (size, out) in enumerate(((60, 50), (50, 55), (40, 45))):
        trace.call(rank, group, 1, kind="all_to_all", size=size, out=out, done=False)
    assert case_of(trace).mismatches == ()


def test_a_difference_that_the_group_went_past_is_lawful(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank, size in ((0, 64), (1, 80), (2, 64)):
        trace.call(rank, group, 1, size=size)
        trace.call(rank, group, 2)
    assert case_of(trace).mismatches == ()


def test_one_operation_too_many_shows_as_a_shift(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=3)
    group = trace.group("dp_0", [0, 1, 2], kind="dp")
    for rank in (0, 1, 2):
        trace.call(rank, group, 1)
    trace.call(1, group, 2, kind="broadcast")
    trace.call(1, group, 3, size=8, done=False)
    for rank in (0, 2):
        trace.call(rank, group, 2, size=8)
    assert [(m.odd, m.shift) for m in case_of(trace).mismatches] == [((1,), "extra")]


def test_the_only_witness_of_a_mismatch_is_found_by_its_sisters(case_of: CaseOf) -> None:
    # The partner that received too much died and left no dump.
    trace = TraceBuilder(world=6, events=False)
    pairs = [trace.group(f"tp_{i}", [2 * i, 2 * i + 1], kind="tp") for i in range(3)]
    history(trace, pairs)
    for pair in pairs:
        for rank in trace.members[pair]:
            trace.call(rank, pair, 5, size=80 if rank == 3 else 64)
    trace.without_dump(2)
    assert [(m.odd, m.decided) for m in case_of(trace).mismatches] == [((3,), "sisters")]


def test_a_size_that_a_group_has_passed_before_accuses_nobody(case_of: CaseOf) -> None:
    trace = TraceBuilder(world=6, events=False)
    pairs = [trace.group(f"tp_{i}", [2 * i, 2 * i + 1], kind="tp") for i in range(3)]
    history(trace, pairs, upto=3)
    history(trace, [pairs[1]], upto=5, size=80)
    for pair in pairs:
        for rank in trace.members[pair]:
            trace.call(rank, pair, 5, size=80 if pair == pairs[1] else 64)
    trace.without_dump(2)
    assert case_of(trace).mismatches == ()
