from __future__ import annotations

from mycroft.app.figures import coverage


def test_a_missing_rank_is_hatched_and_named() -> None:
    strips = [("Dump", frozenset({0, 1, 3})), ("Stack", frozenset[int]())]
    picture = coverage.coverage_svg(4, strips, culprits={2: "root cause"})
    assert picture.count('class="coverage-some"') == 3
    assert picture.count('class="coverage-none"') == 5
    assert "3 of 4 ranks" in picture
    assert coverage.missing_text(4, strips) == ["Dump: rank 2"]


def test_of_many_ranks_one_that_is_missing_shows_in_its_cell() -> None:
    present = frozenset(range(10_000)) - {7777}
    picture = coverage.coverage_svg(10_000, [("Dump", present)], culprits={})
    assert picture.count('class="coverage-none"') == 1
    assert picture.count("<rect") < coverage.MAX_CELLS + 2


def test_a_culprit_outside_the_ranks_is_not_drawn() -> None:
    assert "cause-mark" not in coverage.coverage_svg(4, [("Dump", frozenset({0}))], culprits={9: "root cause"})
