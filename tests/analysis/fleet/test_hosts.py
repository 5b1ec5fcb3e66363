from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mycroft.analysis.fleet import Window
from mycroft.analysis.fleet.hosts import MOST_BINS, Grid, bin_width_ns, grid_of, grid_of_peaks, together

MINUTE = 60_000_000_000


def minutes(rows: list[tuple[str | None, int | None, int | None]], kind: Any = None) -> pa.Table:
    """Rows of host, minute and value."""
    return pa.table(
        {
            "host": pa.array([host for host, _, _ in rows], pa.string()),
            "minute": pa.array([None if m is None else m * MINUTE for _, m, _ in rows], pa.timestamp("ns")),
            "idle_max_ms": pa.array([value for _, _, value in rows], kind or pa.uint32()),
        }
    )


def grid_in(rows: pa.Table, minutes_of_bin: int, window: Window) -> Grid:
    return grid_of(rows, "idle_max_ms", minutes_of_bin * MINUTE, window)


def as_dict(grid: Grid) -> dict[tuple[str, int], int]:
    return {
        (host, grid.first + number): value
        for host, values in zip(grid.hosts, grid.values.tolist(), strict=True)
        for number, value in enumerate(values)
        if value >= 0
    }


def test_standstill_of_one_minute_is_the_value_of_its_bin() -> None:
    rows = [(f"h{host}", minute, 5) for host in range(3) for minute in range(10)]
    rows[10 + 7] = ("h1", 7, 300)
    grid = grid_in(minutes([*rows]), 5, Window(0, 10 * MINUTE))
    assert (grid.hosts, grid.first) == (("h0", "h1", "h2"), 0)
    assert grid.values.tolist() == [[5, 5], [5, 300], [5, 5]]


def test_any_rows_give_the_greatest_value_of_each_host_and_bin() -> None:
    """In any order, of several jobs, unknown and out of the window; more than are looked at in one go."""
    draw = random.Random(7)
    rows: list[tuple[str | None, int | None, int | None]] = [
        (
            draw.choice(["b", "a", "zé", "c", None]),
            draw.choice([None, *range(100, 130)]),
            draw.choice([None, draw.randrange(1000)]),
        )
        for _ in range(20_000)
    ]
    rows.append(("only outside", 99, 1))
    window = Window(103 * MINUTE, 127 * MINUTE + 1)
    wanted: dict[tuple[str, int], int] = {}
    for host, minute, value in rows:
        if host is not None and minute is not None and value is not None and 103 <= minute <= 127:
            key = (host, minute // 7)
            wanted[key] = max(value, wanted.get(key, 0))
    plain = minutes(rows)
    # A file may spell a host twice, and name some that have no row.
    names = ["c", "b", "a", "c", "zé", "nobody", "only outside"]
    spelt = [None if h is None else draw.choice([n for n, name in enumerate(names) if name == h]) for h, _, _ in rows]
    coded = plain.set_column(0, "host", pa.DictionaryArray.from_arrays(pa.array(spelt, pa.int32()), pa.array(names)))
    for table in (plain, coded):
        grid = grid_in(table, 7, window)
        assert as_dict(grid) == wanted
        assert grid.hosts == ("a", "b", "c", "zé")


def test_number_too_large_for_the_grid_is_its_greatest() -> None:
    grid = grid_in(minutes([("h", 0, (1 << 64) - 1), ("h", 1, None)], pa.uint64()), 1, Window(0, MINUTE * 9))
    assert grid.values.tolist() == [[(1 << 63) - 1, -1]]


def test_grids_of_files_together_are_the_grid_of_all_rows() -> None:
    """Several rows may stand for one minute and host: a file of the log ends in the middle of one."""
    first: list[tuple[str | None, int | None, int | None]] = [("h1", 0, 1), ("h2", 0, 9), ("h1", 1, 4)]
    second: list[tuple[str | None, int | None, int | None]] = [("h1", 1, 7), ("h3", 3, 2)]
    window = Window(0, 60 * MINUTE)
    apart = [grid_in(minutes(rows), 1, window) for rows in (second, first, [])]
    whole = grid_in(minutes(first + second), 1, window)
    found = together(apart)
    assert (found.hosts, found.first, found.values.tolist()) == (whole.hosts, whole.first, whole.values.tolist())
    assert found.values.tolist() == [[1, 7, -1, -1], [9, -1, -1, -1], [-1, -1, -1, 2]]


def test_what_nobody_told_is_not_zero() -> None:
    grid = grid_in(minutes([("h", 0, 0), ("h", 1, None)]), 1, Window(0, MINUTE * 9))
    assert grid.values.tolist() == [[0, -1]]
    assert together([]).hosts == ()


def test_bins_are_whole_minutes_and_not_too_many() -> None:
    for hours in (1, 6, 24, 24 * 7, 24 * 365):
        width = bin_width_ns(hours * 3600 * 10**9)
        assert width % (MINUTE if hours < 16 else 10 * MINUTE) == 0
        assert 1 <= hours * 3600 * 10**9 / width <= MOST_BINS
    assert bin_width_ns(0) == MINUTE


def test_greatest_of_small_bins_are_those_of_large_ones_in_a_window() -> None:
    owner, begin = np.array([0, 0, 1, 1]), np.array([0, 10, 0, 30]) * MINUTE
    values = np.array([3, 5, -1, 4])
    found = grid_of_peaks(("a", "b"), owner, begin, values, 20 * MINUTE, Window(0, 60 * MINUTE))
    assert (found.first, found.values.tolist()) == (0, [[5, -1], [-1, 4]])
    later = grid_of_peaks(("a", "b"), owner, begin, values, 20 * MINUTE, Window(10 * MINUTE, 30 * MINUTE))
    assert (later.first, later.values.tolist()) == (0, [[5], [-1]])
    assert grid_of_peaks(("a", "b"), owner, begin, values, 20 * MINUTE, Window(1 << 60, 1 << 61)).hosts == ()


def test_column_that_cannot_be_a_heat_map_is_refused() -> None:
    with pytest.raises(ValueError, match="no heat map"):
        grid_of(minutes([]), "ops", MINUTE, Window(0, MINUTE))
