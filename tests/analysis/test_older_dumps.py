"""Dumps of a running job, taken one after the other, and one that another run has left."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pytest

from mycroft.analysis.older_dumps import APART_NS, older_dumps

MS = 1_000_000
START = 1_760_000_000_000 * MS


@dataclass(frozen=True)
class Dumped:
    last_ns: int | None
    kind: str = "flight_recorder"
    has_events: bool = True
    only_active: bool = False


@dataclass(frozen=True)
class Everybody:
    members: tuple[int, ...]
    declared: bool = True


def calls(
    reached: dict[int, int], *, ended: dict[int, int], late_end: bool = False, kind: str = "all_reduce"
) -> pl.DataFrame:
    """One operation every 10 ms, seen to end 4 ms later; the last one of `late_end` ten minutes later."""
    rows = [
        {
            "rank": rank,
            "comm": 0,
            "seq": seq,
            "kind": kind,
            "enq": START + 10 * MS * seq,
            "seen_end": START + 10 * MS * seq + (600_000 if late_end and seq == last else 4) * MS
            if seq <= ended[rank]
            else None,
            "completed": seq <= ended[rank],
            "p2p": False,
        }
        for rank, last in reached.items()
        for seq in range(1, last + 1)
    ]
    return pl.DataFrame(rows, schema_overrides={"seen_end": pl.Int64})


def judged(ops: pl.DataFrame, **changed: Dumped) -> set[int]:
    ranks = ops["rank"].unique().to_list()
    dumps = {rank: changed.get(f"rank{rank}", Dumped(START)) for rank in ranks}
    return set(older_dumps(ops, {0: Everybody(tuple(ranks))}, dumps))


def test_who_lacks_an_operation_that_a_peer_left_behind_was_dumped_before() -> None:
    assert judged(calls({0: 5, 1: 9, 2: 9}, ended={0: 4, 1: 8, 2: 8})) == {0}


def test_a_rank_that_is_missed_by_all_is_not_older() -> None:
    assert judged(calls({0: 5, 1: 6, 2: 6}, ended={0: 5, 1: 5, 2: 5})) == set()


def test_an_operation_that_ends_by_the_abort_proves_nothing() -> None:
    assert judged(calls({0: 5, 1: 6, 2: 6}, ended={0: 5, 1: 6, 2: 5}, late_end=True)) == set()


def test_the_root_of_a_broadcast_goes_on_alone() -> None:
    assert judged(calls({0: 5, 1: 9, 2: 5}, ended={0: 5, 1: 8, 2: 5}, kind="broadcast")) == set()


@pytest.mark.parametrize(
    "other", [Dumped(START, has_events=False), Dumped(START, kind="ring"), Dumped(START, only_active=True)]
)
def test_what_does_not_show_ends_or_history_is_not_judged(other: Dumped) -> None:
    assert judged(calls({0: 5, 1: 9, 2: 9}, ended={0: 4, 1: 8, 2: 8}), rank0=other) == set()


def test_a_dump_of_another_day_is_left_out_whatever_it_counted_to() -> None:
    ops = calls({0: 9000, 1: 9, 2: 9, 3: 9}, ended={0: 9000, 1: 8, 2: 8, 3: 8})
    assert judged(ops, rank0=Dumped(START - 2 * APART_NS)) == {0}


def test_numbers_of_a_group_that_sends_are_not_compared() -> None:
    ops = calls({0: 5, 1: 9, 2: 9}, ended={0: 4, 1: 8, 2: 8})
    batch = ops.filter((pl.col("rank") == 1) & (pl.col("seq") == 3)).with_columns(kind=pl.lit("coalesced"))
    assert judged(pl.concat([ops, batch])) == set()
