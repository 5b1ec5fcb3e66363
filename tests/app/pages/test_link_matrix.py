"""The page of links, and the tab that is there only where it shows something."""

from __future__ import annotations

from typing import Any

from mycroft.app.pages import frame, link_matrix
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.trace_page import TracePage
from tests.app.components import links_of, pictures_of, text_of
from tests.app.figures.test_link_matrix import matrix


def test_the_slowest_links_come_first_and_what_is_odd_in_words() -> None:
    page: Any = TracePage(None, None, None, TraceLinks("x"))  # pyright: ignore[reportArgumentType]
    picture, table = link_matrix.matrix_panels(page, matrix(5, 2))
    assert "rank 2 takes 3.0 times as long as usual as sender, whoever receives" in text_of(picture)
    assert len(pictures_of(picture)) == 1
    assert str(table).index("rank 2") < str(table).index("rank 3")


def test_a_tab_without_content_is_left_out() -> None:
    links = TraceLinks("x")
    shown = frame.page("overview", crumbs=[], trace=links, tab="overview")
    bare = frame.page("overview", crumbs=[], trace=links, tab="overview", left_out=("links",))
    assert links_of(shown)["Links"] == "/t/x/links"
    assert "Links" not in links_of(bare)
