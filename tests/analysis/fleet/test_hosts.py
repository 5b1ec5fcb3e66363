from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from mycroft.analysis.fleet import Window, partial
from mycroft.analysis.fleet.hosts import MOST_BINS, bin_width_ns, grid_of, heat, together
from tests.analysis.fleet.pieces import TablePiece

MINUTE = 60_000_000_000


def minutes(rows: list[tuple[str, int, int | None]]) -> TablePiece:
    columns: dict[str, Any] = {
        "host": pa.array([host for host, _, _ in rows], pa.string()),
        "minute": pa.array([minute * MINUTE for _, minute, _ in rows], pa.timestamp("ns")),
        "idle_max_ms": pa.array([value for _, _, value in rows], pa.uint32()),
    }
    return TablePiece(pa.table(columns))


def test_standstill_of_one_minute_is_the_value_of_its_bin() -> None:
    rows = [(f"h{host}", minute, 5) for host in range(3) for minute in range(10)]
    rows[10 + 7] = ("h1", 7, 300)
    cells = partial(heat("idle_max_ms", 5 * MINUTE), minutes(rows), Window(0, 10 * MINUTE))
    grid = grid_of(cells)
    assert (grid.hosts, grid.first) == (("h0", "h1", "h2"), 0)
    assert grid.values.tolist() == [[5, 5], [5, 300], [5, 5]]


def test_grids_of_files_together_are_the_grid_of_all_rows() -> None:
    """Several rows may stand for one minute and host: a file of the log ends in the middle of one."""
    first = [("h1", 0, 1), ("h2", 0, 9), ("h1", 1, 4)]
    second = [("h1", 1, 7), ("h3", 3, 2)]
    window = Window(0, 60 * MINUTE)
    reduction = heat("idle_max_ms", MINUTE)
    apart = [grid_of(partial(reduction, minutes(rows), window)) for rows in (second, first, [])]
    whole = grid_of(partial(reduction, minutes(first + second), window))
    found = together(apart)
    assert (found.hosts, found.first, found.values.tolist()) == (whole.hosts, whole.first, whole.values.tolist())
    assert found.values.tolist() == [[1, 7, -1, -1], [9, -1, -1, -1], [-1, -1, -1, 2]]


def test_what_nobody_told_is_not_zero() -> None:
    grid = grid_of(partial(heat("idle_max_ms", MINUTE), minutes([("h", 0, 0), ("h", 1, None)]), Window(0, MINUTE * 9)))
    assert grid.values.tolist() == [[0, -1]]
    assert together([]).hosts == ()


def test_bins_are_whole_minutes_and_not_too_many() -> None:
    for hours in (1, 6, 24, 24 * 7, 24 * 365):
        width = bin_width_ns(hours * 3600 * 10**9)
        assert width % MINUTE == 0
        assert 1 <= hours * 3600 * 10**9 / width <= MOST_BINS
    assert bin_width_ns(0) == MINUTE


def test_column_that_cannot_be_a_heat_map_is_refused() -> None:
    with pytest.raises(ValueError, match="no heat map"):
        heat("ops; DROP TABLE x", MINUTE)
