"""Find anything, by keyboard and pointer."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch, ready
from tests.browser.serving import Site
from tests.browser.test_modules import run  # noqa: F401 - a fixture
from tests.browser.test_pages import ALL_RULES, AXE, violations

pytestmark = pytest.mark.browser


def test_a_slash_opens_it_and_enter_goes_there_without_loading_the_page_anew(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "?g=1"))
    ready(page, "overview")
    page.evaluate("window.same = true")
    page.keyboard.press("/")
    box = page.get_by_role("combobox", name="Find in this trace")
    expect(box).to_be_focused()
    page.keyboard.type("rank 1")
    options = page.locator("#palette-list").get_by_role("option")
    expect(options.first).to_contain_text("rank 1")
    expect(box).to_have_attribute("aria-activedescendant", "palette-0")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    page.evaluate(AXE)
    assert violations(page, ALL_RULES) == []
    page.keyboard.press("Enter")
    ready(page, "rank")
    assert page.url == site.page("hang_root_cause", "/rank/10?g=1")
    assert page.evaluate("window.same")
    page.go_back()
    ready(page, "overview")


def test_escape_closes_it_and_a_slash_in_a_field_is_text(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/sql"))
    ready(page, "sql")
    page.get_by_role("button", name="Find").click()
    dialog = page.get_by_role("dialog", name="Find anything")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.locator("#sql-text").fill("SELECT 1")
    page.keyboard.type("/2")
    expect(page.locator("#sql-text")).to_have_value("SELECT 1/2")
    expect(dialog).to_be_hidden()


def test_names_from_the_evidence_are_text_and_limits_are_said(site: Site, page: Page, watch: Watch) -> None:
    page.goto(site.page("hang_root_cause"))
    ready(page, "overview")
    page.keyboard.press("/")
    page.keyboard.type("not markup")
    expect(page.locator("#palette-list").get_by_role("option").first).to_contain_text("<b>not markup</b>")
    page.get_by_role("combobox", name="Find in this trace").fill("train step")
    expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text(
        "at most 8 of a kind, there are more of: log line"
    )


def test_it_asks_the_generation_that_the_address_pins(run: Any) -> None:  # noqa: F811
    body = "return argument.map(([address, text]) => m.questionOf(address, text));"
    asked = run("palette", body, [["/t/a?g=2", "x y"], ["/t/a/rank/5", "é&"], ["/", "x"], ["/jobs/j", "x"]])
    assert asked == ["/api/v1/traces/a/g/2/find?q=x%20y", "/api/v1/traces/a/find?q=%C3%A9%26", None, None]


def test_every_limit_of_an_answer_is_said(run: Any) -> None:  # noqa: F811
    answer = {"hits": [1, 2], "more": ["Rank", "File"], "limits": ["only the first 10 lines"], "of_a_kind": 8}
    said = run("palette", "return m.summaryOf(argument);", answer)
    assert said == "2 places; at most 8 of a kind, there are more of: rank, file; only the first 10 lines"
    assert run("palette", "return m.summaryOf(argument);", {"hits": [], "more": [], "of_a_kind": 8}) == "Nothing found"


def test_the_choice_goes_around(run: Any) -> None:  # noqa: F811
    body = "return argument.map(([at, count, step]) => m.nextOption(at, count, step));"
    cases = [[-1, 3, 1], [-1, 3, -1], [0, 3, -1], [2, 3, 1], [0, 0, 1]]
    assert run("palette", body, cases) == [0, 2, 2, 0, -1]
