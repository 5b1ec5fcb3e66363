from __future__ import annotations

import re

from mycroft.app.figures import arrivals
from mycroft.app.figures.arrivals import Arrival


def draw(found: list[Arrival]) -> str:
    return arrivals.arrivals_svg(found, rank_href=lambda rank: f"/rank/{rank}")


def test_the_absent_come_first_then_the_latest() -> None:
    found = [
        Arrival(0, None, "finished", 100, 200),
        Arrival(1, None, "finished", 150, 200),
        Arrival(2, None, "no_dump", None, None),
        Arrival(3, None, "not_entered", None, None),
    ]
    assert [a.rank for a in arrivals.ordered(found)] == [3, 2, 1, 0]


def test_no_dump_is_hatched_and_never_a_bar_of_zero_length() -> None:
    picture = draw([Arrival(0, None, "finished", 100, 200), Arrival(1, None, "no_dump", None, None)])
    assert picture.count("arrival-nolog") == 1
    assert "no dump: unknown" in picture
    assert picture.count('class="arrival-bar') == 1


def test_an_absent_rank_has_the_hue_only_where_the_verdict_blames_it() -> None:
    absent = [Arrival(0, None, "not_entered", None, None), Arrival(1, None, "finished", 5, 9)]
    assert "arrival-absent--cause" not in draw(absent)
    blamed = [Arrival(0, None, "not_entered", None, None, is_culprit=True), absent[1]]
    assert "arrival-absent--cause" in draw(blamed)


def test_one_single_arrival_has_a_scale() -> None:
    picture = draw([Arrival(0, "h", "open", 10**18, None)])
    assert "nan" not in picture.lower()
    assert "first, not finished" in picture


def test_rows_are_bounded() -> None:
    picture = draw([Arrival(rank, None, "finished", rank, 2000) for rank in range(1024)])
    assert picture.count('class="arrival-bar') == arrivals.MAX_ROWS
    assert "Order of arrival of 1,024 ranks" in picture


def test_ticks_are_round_and_inside_the_span() -> None:
    for span in (1.0, 7.0, 999.0, 1.3e6, 6.2e10, 9e15):
        ticks = arrivals.ticks(span)
        assert ticks[0] == 0
        assert ticks[-1] <= span
        assert 1 <= len(ticks) <= 8
        assert all(re.fullmatch(r"0|[1-9]0*|[1-9]\d?0*", str(tick)) for tick in ticks)
