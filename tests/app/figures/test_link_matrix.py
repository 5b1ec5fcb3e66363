"""The heat map of links: what is odd is outlined and said, a large job is cut to what matters."""

from __future__ import annotations

from mycroft.analysis.link_matrix import Link, Matrix, odd_ones
from mycroft.app.figures.link_matrix import MAX_NAMES, link_matrix_svg, names_shown, step_of


def matrix(size: int, slow: int) -> Matrix:
    links = [
        Link(f"rank {a}", f"rank {b}", 3.0 if a == slow else 1.0, 1.0, 1 << 20, 4, 1.0)
        for a in range(size)
        for b in range(size)
        if a != b
    ]
    return Matrix("ranks", tuple(f"rank {r}" for r in range(size)), tuple(links), tuple(odd_ones(links)))


def drawn(found: Matrix) -> str:
    return link_matrix_svg(found, href=lambda name: f"/t/x/rank/{name[5:]}", describe=lambda link: link.src)


def test_what_is_odd_is_outlined_and_in_the_name_of_the_picture() -> None:
    picture = drawn(matrix(5, 2))
    assert picture.count('class="heat-odd"') == 1
    assert "rank 2 takes 3.0 times as long as usual as sender" in picture
    assert 'href="/t/x/rank/4"' in picture


def test_an_even_matrix_says_so() -> None:
    picture = drawn(matrix(5, 99))
    assert "heat-odd" not in picture
    assert "no row, column or cell stands out" in picture


def test_of_a_large_job_the_odd_ends_are_drawn_too() -> None:
    names = names_shown(matrix(MAX_NAMES + 30, MAX_NAMES + 20))
    assert len(names) == MAX_NAMES
    assert f"rank {MAX_NAMES + 20}" in names


def test_steps_of_the_scale() -> None:
    assert [step_of(factor) for factor in (0.5, 1.0, 1.3, 1.6, 2.5, 9.0)] == [0, 1, 2, 3, 4, 5]
