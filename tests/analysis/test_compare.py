"""Two windows or traces: what changed stands out, what did not stays quiet."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from mycroft.analysis.compare import Change, Profile, compare, profile
from mycroft.loaders import schema
from mycroft.loaders.store import MemoryWriter

SECOND = 10**9
Timing = Callable[[int, int, random.Random], tuple[int, int]]


def plain(rank: int, seq: int, chance: random.Random) -> tuple[int, int]:
    """Arrival after the step begins and end after it, ns: a job in which nothing is wrong."""
    return chance.randrange(2_000_000), 30_000_000 + chance.randrange(1_000_000)


def side(timing: Timing = plain, *, ranks: int = 8, steps: int = 60, period_ns: int = SECOND, seed: int = 1) -> Profile:
    """A job of one group whose members all take part in one collective a step."""
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for seq in range(steps):
        begins = 1_700_000_000 * SECOND + seq * period_ns
        for rank in range(ranks):
            late, end = timing(rank, seq, chance)
            rows.append(
                {
                    "rank": rank,
                    "comm_id": 0,
                    "op_seq": seq,
                    "op_kind": "all_reduce",
                    "start_ts": begins + late,
                    "dur_ns": end - late,
                    "state": "completed",
                    "bytes": 1 << 20,
                    "dtype": "Float",
                }
            )
    return profile_of(rows)


def profile_of(rows: list[dict[str, Any]], window: tuple[int, int] | None = None) -> Profile:
    writer = MemoryWriter()
    group = {"comm_id": 0, "key": "tp-1", "kind": "tp"}
    tables = {"trace_meta": [{"key": "schema_version", "value": "1"}], "communicators": [group], "coll_ops": rows}
    for name, found in tables.items():
        wanted = schema.polars_schema(schema.BY_NAME[name])
        names = {key for row in found for key in row}
        writer.append(name, pl.DataFrame(found, schema={key: wanted[key] for key in wanted if key in names}))
    with writer.store() as store:
        return profile(store, window)


def told(changes: tuple[Change, ...]) -> set[tuple[str, Any, str]]:
    return {(change.what, change.key, change.measure) for change in changes}


SHAPE = ("tp", "all_reduce", 1 << 20, "Float")


@pytest.mark.parametrize("seed", range(2, 12))
def test_two_windows_of_a_job_that_did_not_change_are_quiet(seed: int) -> None:
    assert compare(side(), side(seed=seed)) == ()


def test_a_rank_that_became_late_is_the_only_one_named() -> None:
    def late(rank: int, seq: int, chance: random.Random) -> tuple[int, int]:
        arrival, end = plain(rank, seq, chance)
        return arrival + (9_000_000 if rank == 5 else 0), end

    changes = compare(side(), side(late))
    assert told(changes) == {("rank", 5, "late")}
    (change,) = changes
    assert change.a is not None and change.b is not None and 8e6 < change.b - change.a < 10e6


def test_a_change_of_less_than_a_millisecond_is_nobodys_news() -> None:
    def slightly(rank: int, seq: int, chance: random.Random) -> tuple[int, int]:
        return 1_000_000 + (800_000 if rank == 5 else 0), 30_000_000

    assert compare(side(lambda *_: (1_000_000, 30_000_000)), side(slightly)) == ()


def test_an_operation_that_became_slower_is_named_once_and_no_rank_is() -> None:
    def slow(rank: int, seq: int, chance: random.Random) -> tuple[int, int]:
        arrival, end = plain(rank, seq, chance)
        return arrival, end + 15_000_000

    assert told(compare(side(), side(slow))) == {("shape", SHAPE, "duration")}


def test_a_tail_that_grew_is_told_though_the_median_stayed() -> None:
    def stutters(rank: int, seq: int, chance: random.Random) -> tuple[int, int]:
        arrival, end = plain(rank, seq, chance)
        return arrival, end + (200_000_000 if seq % 10 == 0 else 0)

    assert told(compare(side(), side(stutters))) == {("shape", SHAPE, "tail")}


def test_half_the_rate_is_told_and_half_the_length_is_not() -> None:
    assert compare(side(), side(steps=30, seed=3)) == ()
    assert told(compare(side(), side(period_ns=2 * SECOND, seed=3))) == {("shape", SHAPE, "rate")}


def test_who_and_what_is_on_one_side_only_is_told() -> None:
    assert told(compare(side(ranks=8), side(ranks=7, seed=4))) >= {("rank", 7, "only")}
    rows = [{"rank": 0, "comm_id": 0, "op_seq": 1, "op_kind": "barrier", "state": "completed"}]
    assert ("shape", ("tp", "barrier", None, None), "only") in told(compare(side(), profile_of(rows)))


def test_a_side_without_operations_makes_no_list_of_everybody() -> None:
    assert compare(side(), profile_of([])) == ()
    assert profile_of([]).span_ns is None


def test_a_window_holds_what_arrives_in_it() -> None:
    begins = 1_700_000_000 * SECOND
    rows = [
        {"rank": 0, "comm_id": 0, "op_seq": s, "op_kind": "barrier", "start_ts": begins + s, "state": "completed"}
        for s in range(10)
    ]
    found = profile_of(rows, (begins + 2, begins + 5))
    assert found.ranks[0].n == 4
    assert (found.first_ns, found.last_ns) == (begins + 2, begins + 5)


def test_what_is_kept_comes_back() -> None:
    made = side(steps=6)
    assert Profile.from_dict(made.to_dict()) == made
