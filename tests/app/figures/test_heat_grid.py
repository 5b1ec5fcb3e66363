"""The grid of a measure: every rank is there, unknown is hatched, and the scale is not ruled by one outlier."""

from __future__ import annotations

import re

from mycroft.analysis.measures import Band
from mycroft.app.figures import heat_grid
from mycroft.app.figures.shape_history import history_figure
from mycroft.app.figures.stack_grid import Cell


def grid(count: int, values: dict[int, float | None], culprit: int = -1) -> str:
    cells = [Cell(n, f"PP {n // 4 % 2}", n % 4, f"DP {n // 8}", None, is_culprit=n == culprit) for n in range(count)]
    known = [value for value in values.values() if value is not None]
    return heat_grid.heat_grid_svg(
        cells,
        values,
        scale=heat_grid.scale_of(known),
        name="wait",
        shown=lambda value: f"{value:g} ms",
        href=lambda rank: f"/rank/{rank}",
        column_title="TP",
    )


def test_each_rank_is_a_link_with_its_value_and_unknown_is_never_zero() -> None:
    svg = grid(8, {n: float(n) for n in range(7)} | {7: None}, culprit=3)
    assert re.findall(r'href="/rank/(\d+)"', svg) == [str(n) for n in range(8)]
    assert "rank 6: 6 ms" in svg and "rank 7: not measured" in svg and "rank 3: 3 ms, root cause" in svg
    assert svg.count("heat-cell heat-none") == 1 and svg.count("stack-cause") == 1
    assert "wait of 7 ranks, greatest at rank 6: 6 ms" in svg


def test_one_outlier_does_not_hide_the_others() -> None:
    values = [float(n) for n in range(200)] + [1e9]
    scale = heat_grid.scale_of(values)
    assert scale[1] < 1000
    assert heat_grid.level_of(1e9, scale) == heat_grid.LEVELS - 1
    assert {heat_grid.level_of(value, scale) for value in values} == set(range(heat_grid.LEVELS))


def test_equal_values_have_one_step() -> None:
    assert heat_grid.steps_of(heat_grid.scale_of([5.0] * 9)) == [(5.0, 5.0)]
    assert heat_grid.level_of(5.0, (5.0, 5.0)) == 0
    assert heat_grid.scale_of([]) == (0.0, 0.0)


def test_ten_thousand_ranks_are_a_picture_of_bounded_size() -> None:
    svg = grid(10_240, {n: float(n % 97) for n in range(10_240)})
    assert "<a " not in svg and svg.count("heat-cell") == 10_240
    assert len(svg) < 1_500_000


def test_the_operation_of_the_page_is_marked_and_the_band_drawn() -> None:
    rows = [{"seq": n, "duration": 1e6 * n if n != 3 else None} for n in range(1, 6)]
    figure = history_figure(rows, measure="duration", title="ms", unit=1e6, band=Band(1e6, 2e6, 3e6, 8), marked=4)
    assert list(figure.data[0].x) == [1, 2, 4, 5] and list(figure.data[0].y) == [1, 2, 4, 5]
    assert list(figure.data[0].marker.symbol) == ["circle", "circle", "diamond-open", "circle"]
    bands = [(shape.y0, shape.y1) for shape in figure.layout.shapes if shape.type == "rect"]
    assert bands == [(1.0, 3.0)] * 2
    assert not history_figure(rows, measure="duration", title="", unit=1, band=None, marked=None).layout.shapes
