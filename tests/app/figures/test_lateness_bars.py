from __future__ import annotations

from mycroft.app.figures import lateness_bars


def row(rank: int, median_ms: float, p90_ms: float) -> dict[str, int]:
    return {"rank": rank, "median_ns": int(median_ms * 1e6), "p90_ns": int(p90_ms * 1e6)}


def draw(rows: list[dict[str, int]], culprits: dict[int, str]) -> str:
    return lateness_bars.lateness_bars_svg(rows, culprits=culprits, hosts={2: "h"}, rank_href=lambda r: f"/rank/{r}")


def test_the_culprits_bar_alone_has_the_hue() -> None:
    picture = draw([row(2, 182, 190), row(0, 1.9, 2.5), row(1, -0.5, 0.1)], {2: "root cause"})
    assert picture.count("lateness-bar--cause") == 1
    assert "182.0 ms, 90 % within 190.0 ms" in picture
    assert "▲ rank 2 h" in picture


def test_ranks_that_are_left_out_are_counted_with_the_latest_of_them() -> None:
    rows = [row(rank, 100 - rank, 100) for rank in range(40)]
    assert draw(rows, {}).count('class="lateness-bar"') == lateness_bars.MAX_ROWS
    assert lateness_bars.left_out(rows) == "28 other ranks: 88.0 ms at most."
    assert lateness_bars.left_out(rows[:3]) is None


def test_a_group_in_which_nobody_is_late_can_be_drawn() -> None:
    assert "nan" not in draw([row(0, 0, 0), row(1, 0, 0)], {}).lower()
