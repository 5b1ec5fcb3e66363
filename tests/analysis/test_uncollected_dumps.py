"""Dumps that are missing of several ranks: as likely not collected as not written, and no deaths by themselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mycroft.analysis.case import Case
from mycroft.analysis.culprits import blame
from mycroft.analysis.findings import compose
from mycroft.analysis.verdict import Finding
from tests.analysis.trace_builder import TraceBuilder

CaseOf = Callable[[TraceBuilder], Case]


def waiting(world: int, *lost: int) -> TraceBuilder:
    """All ranks but the lost are in the third operation."""
    trace = TraceBuilder(world=world)
    group = trace.group("dp_0", list(range(world)), kind="dp")
    for rank in range(world):
        for seq in (1, 2):
            trace.call(rank, group, seq)
        if rank not in lost:
            trace.call(rank, group, 3, done=False)
    trace.without_dump(*lost)
    return trace


def only(case: Case) -> Finding:
    (finding,) = compose(case, blame(case))
    return finding


@pytest.mark.parametrize(("world", "lost", "sure"), [(16, (3, 9), "medium"), (16, tuple(range(9, 16)), "low")])
def test_several_are_one_of_them_and_not_dead(case_of: CaseOf, world: int, lost: tuple[int, ...], sure: str) -> None:
    found = only(case_of(waiting(world, *lost)))
    assert (found.category, found.root_cause.ranks, found.root_cause.one_of) == ("absent", lost, True)
    assert found.confidence == sure


def test_one_alone_may_have_died(case_of: CaseOf) -> None:
    found = only(case_of(waiting(16, 3)))
    assert (found.category, found.root_cause.ranks, found.confidence) == ("process_died", (3,), "medium")


def test_those_with_a_sign_of_their_end_are_named_all(case_of: CaseOf) -> None:
    trace = waiting(16, 3, 9)
    for rank in (3, 9):
        trace.event(rank, "exit", code=-9)
    found = only(case_of(trace))
    assert (found.category, found.root_cause.ranks, found.root_cause.one_of) == ("process_died", (3, 9), False)


def test_more_than_half_are_no_lead(case_of: CaseOf) -> None:
    assert not blame(case_of(waiting(8, 0, 1, 3, 4, 5, 6, 7)))
