"""Every page in both themes: it is drawn, it is accessible, it does nothing that it should not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Watch, ready, settled
from tests.browser.serving import Site

pytestmark = pytest.mark.browser
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")

PAGES = (
    ("traces", "/"),
    ("overview", "/t/hang-root-cause"),
    ("diagnosis", "/t/hang-root-cause/d/f1"),
    ("diagnosis", "/t/cascade/d/f1"),
    ("diagnosis", "/t/several-suspects/d/f1"),
    ("diagnosis", "/t/inconclusive/d/verdict"),
    ("diagnosis", "/t/healthy/d/verdict"),
    ("diagnosis", "/t/hostile/d/f1"),
    ("op", "/t/hang-root-cause/op/tp-c345/41"),
    ("op", "/t/hang-root-cause/op/world-434b/17"),
    ("rank", "/t/hang-root-cause/rank/5"),
    ("rank", "/t/hang-root-cause/rank/11"),
    ("comm", "/t/hang-root-cause/comm/tp-c345"),
    ("host", "/t/hang-root-cause/host/hx-a02"),
    ("stacks", "/t/hang-root-cause/stacks"),
    ("files", "/t/hang-root-cause/files"),
    ("file", "/t/hang-root-cause/files/16#L42"),
    ("file", "/t/hang-root-cause/files/5#L1201"),
    ("sql", "/t/hang-root-cause/sql"),
    ("diagnosis", "/t/flow-ring/d/f1"),
    ("timeline", "/t/flow-ring/timeline"),
    ("timeline", "/t/hang-root-cause/timeline"),
    ("op", "/t/flow-tree/op/dp-0a/7"),
    ("op", "/t/flow-pairs/op/dp-0a/7"),
    ("links", "/t/flow-ring/links"),
    ("compare", "/compare?a=hang-root-cause&b=slow-rank&ta=0-20s"),
    ("fleet", "/fleet"),
    ("message", "/t/no-such-trace"),
)


ALL_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
# Rules that a change of the colours alone can break.
COLOUR_RULES = ("color-contrast", "link-in-text-block")


def violations(page: Page, rules: tuple[str, ...]) -> list[str]:
    """Return what axe finds wrong, as lines to read."""
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, { runOnly: rules })", list(rules))
    return [
        f"{problem['impact']} {problem['id']}: {node['html'][:160]} ({node['failureSummary'][:200]})"
        for problem in found["violations"]
        for node in problem["nodes"]
    ]


@pytest.mark.parametrize(("name", "path"), PAGES)
def test_page_is_drawn_and_accessible_in_both_themes(
    site: Site, new_context: Callable[..., BrowserContext], name: str, path: str
) -> None:
    page = new_context(color_scheme="light", reduced_motion="reduce").new_page()
    page.goto(site.url + path)
    ready(page, name)
    settled(page)
    assert page.evaluate("window.__owned") is None
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.evaluate(AXE)
    assert violations(page, ALL_RULES) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert violations(page, COLOUR_RULES) == []


def test_page_is_usable_at_twice_the_size(site: Site, new_context: Callable[..., BrowserContext]) -> None:
    page = new_context(viewport={"width": 640, "height": 360}).new_page()
    page.goto(site.page("hang_root_cause", "/d/f1"))
    ready(page, "diagnosis")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_unknown_address_is_told_in_the_frame_of_the_dashboard(site: Site, page: Page) -> None:
    page.goto(site.url + "/no/such/page")
    ready(page, "message")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such page")
    page.get_by_role("link", name="All traces").click()
    ready(page, "traces")


def test_unknown_address_below_api_is_json(site: Site, page: Page, watch: Watch) -> None:
    answer = page.request.get(site.url + "/api/v1/nothing")
    assert answer.status == 404
    assert "error" in answer.json()
