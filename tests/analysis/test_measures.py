"""Measures of ranks and shapes: right on a small job, and silent where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mycroft.analysis import measures
from mycroft.loaders.store import Store, open_store
from tests.app import page_trace

SIZE = 33_554_432


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("measures") / "trace.duckdb"
    page_trace.write(path, None)
    with open_store(path) as opened:
        yield opened


def test_ranks_are_measured_against_their_own_operations(store: Store) -> None:
    rows = {row["rank"]: row for row in measures.rank_measures(store)}
    assert page_trace.NO_DUMP not in rows
    late = rows[2]
    # Rank 2 arrives some 6.5 ms after the others each time, so nobody is inside for a shorter time.
    assert 6e6 < late["late"] < 8e6 and late["wait"] == 0
    assert all(abs(row["late"]) < 1e6 for rank, row in rows.items() if rank != 2)
    assert rows[1]["wait"] > 5e6 > rows[8]["wait"]
    assert 20e6 < late["duration"] < 30e6


def test_bus_bandwidth_is_of_the_last_to_arrive_times_what_the_ring_moves(store: Store) -> None:
    (shape,) = measures.shapes_of(store, 1)
    assert (shape["op_kind"], shape["bytes"], shape["n"]) == ("all_reduce", SIZE, 41)
    rows = measures.history_of(store, 1, op_kind="all_reduce", size=SIZE, dtype="BFloat16", limit=100)
    assert [row["seq"] for row in rows] == list(range(1, 42))
    for row in rows:
        # Four members: each byte is moved 2 * 3 / 4 times.
        assert row["busbw"] == pytest.approx(SIZE / row["duration"] * 1.5)


def test_of_an_operation_without_all_members_the_time_is_unknown(store: Store) -> None:
    # Group 2 is that of ranks 4 to 7; rank 5 never entered 41, and group 3 holds the rank without a dump.
    rows = measures.history_of(store, 2, op_kind="all_reduce", size=SIZE, dtype="BFloat16", limit=100)
    assert rows[-1]["seq"] == 41 and rows[-1]["duration"] is None and rows[-1]["busbw"] is None
    assert rows[-1]["arrival"] is not None and rows[0]["duration"] is not None
    silent = measures.history_of(store, 3, op_kind="all_reduce", size=SIZE, dtype="BFloat16", limit=100)
    assert all(row["duration"] is None for row in silent)


def test_the_newest_of_more_than_the_limit_are_given(store: Store) -> None:
    rows = measures.history_of(store, 1, op_kind="all_reduce", size=SIZE, dtype="BFloat16", limit=3)
    assert [row["seq"] for row in rows] == [39, 40, 41]


def test_a_band_holds_the_usual_values_and_not_the_faulty_ones() -> None:
    usual = [10.0 + 0.1 * (n % 7) for n in range(80)]
    band = measures.band_of([*usual, *[30.0] * 15, None])
    assert band is not None and band.n == 95
    assert band.low <= min(usual) and max(usual) <= band.high < 30.0


def test_equal_values_have_a_band_of_some_height() -> None:
    band = measures.band_of([100.0] * 10)
    assert band is not None and band.low < 100.0 < band.high


@pytest.mark.parametrize("values", [[], [1.0] * 7, [None] * 50, [1.0] * 20 + [5.0] * 12])
def test_few_values_or_values_that_fall_apart_have_no_band(values: list[float | None]) -> None:
    assert measures.band_of(values) is None
