"""What the page of an operation says of its entries."""

from __future__ import annotations

from typing import Any

from mycroft.app.pages import op_entries


def entry(rank: int, **more: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "kind": "all_reduce",
        "state": "completed",
        "retired": False,
        "coalesced": False,
        "in_sizes": "[[4]]",
        "out_sizes": "[[4]]",
        "dtype": "Float",
        "root": None,
        "redop": None,
        "start_ns": 10 + rank,
        "enq_ns": 10,
        "dur_ns": 5,
        "seen_end_ns": None,
        **more,
    }


def member(rank: int, dumps: int | None = 1) -> dict[str, Any]:
    return {"rank": rank, "dumps": dumps, "host": None}


def test_without_a_dump_a_member_is_unknown_and_not_absent() -> None:
    states = op_entries.member_states([member(0), member(1), member(2, None)], [entry(0)])
    assert states == {0: "finished", 1: "not_entered", 2: "no_dump"}


def test_an_operation_is_open_while_any_entry_of_the_rank_is() -> None:
    entries = [entry(0), entry(0, state="started"), entry(1, state="scheduled", retired=True)]
    assert op_entries.member_states([member(0), member(1)], entries) == {0: "open", 1: "finished"}


def test_the_state_of_a_member_of_a_coalesced_group_says_nothing() -> None:
    entries = [entry(0, state="scheduled", coalesced=True)]
    assert op_entries.member_states([member(0)], entries) == {0: "coalesced"}


def test_the_odd_one_is_the_minority() -> None:
    entries = [entry(0), entry(1), entry(2, dtype="Half")]
    common = op_entries.usual(entries)
    assert [op_entries.differences(e, common) for e in entries] == [[], [], ["type"]]


def test_without_a_majority_nobody_is_the_odd_one() -> None:
    entries = [entry(0), entry(1, in_sizes="[[8]]")]
    common = op_entries.usual(entries)
    assert [op_entries.differences(e, common) for e in entries] == [[], []]
    assert op_entries.split_fields(entries) == ["sizes in"]


def test_operations_with_rightly_uneven_sizes_are_not_compared_by_size() -> None:
    entries = [entry(0, kind="gather"), entry(1, kind="gather"), entry(2, kind="gather", out_sizes="[[12]]")]
    assert op_entries.differences(entries[2], op_entries.usual(entries)) == []


def test_an_end_that_is_not_known_is_not_made_up() -> None:
    assert op_entries.end_of(entry(0, dur_ns=None)) is None
    assert op_entries.end_of(entry(0, dur_ns=None, seen_end_ns=99)) == 99
    assert op_entries.end_of(entry(0)) == 15
