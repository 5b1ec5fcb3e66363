"""Getting around: links, Back, addresses, the keyboard, the theme."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Watch, ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser


def test_links_change_the_page_without_loading_it_anew_and_back_returns(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/d/f1?g=1"))
    ready(page, "diagnosis")
    page.evaluate("window.same = true")
    page.locator(".verdict__who a").first.click()
    ready(page, "rank")
    assert page.url == site.page("hang_root_cause", "/rank/5?g=1")
    assert page.evaluate("window.same")
    assert page.evaluate("document.activeElement.id") == "content"
    assert "Rank 5" in page.title()
    page.go_back()
    ready(page, "diagnosis")
    assert page.url == site.page("hang_root_cause", "/d/f1?g=1")
    page.go_forward()
    ready(page, "rank")
    assert page.evaluate("window.same")


def test_cells_of_tables_and_shapes_of_pictures_are_links_of_the_same_kind(site: Site, page: Page) -> None:
    page.goto(site.page("cascade", "/d/f1"))
    ready(page, "diagnosis")
    page.evaluate("window.same = true")
    page.locator('svg a[href$="/rank/13"]').first.click()
    ready(page, "rank")
    page.locator(".ag-row a").first.scroll_into_view_if_needed()
    page.locator(".ag-row a").first.click()
    ready(page, "comm")
    assert page.evaluate("window.same")


def test_another_generation_in_the_address_is_told(site: Site, page: Page) -> None:
    page.goto(site.page("healthy", "?g=7"))
    ready(page, "message")
    expect(page.locator("#content")).to_contain_text("generation 7")
    page.get_by_role("link", name="Open the newest").click()
    ready(page, "overview")
    assert page.url == site.page("healthy", "?g=1")
    page.goto(site.page("healthy", "?g=x"))
    ready(page, "overview")
    expect(page.get_by_role("note")).to_contain_text("g=x cannot be read")


def test_the_way_to_the_cause_goes_by_keyboard_alone(site: Site, page: Page) -> None:
    page.goto(site.url + "/")
    ready(page, "traces")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")

    def tab_to(text: str) -> None:
        for _ in range(120):
            page.keyboard.press("Tab")
            # The page as a whole holds every text: only a stop of the keyboard counts.
            if text in page.evaluate(
                "document.activeElement.matches('a, button') ? document.activeElement.textContent : ''"
            ):
                return
        pytest.fail(f"no Tab leads to {text!r}")

    tab_to("cascade")
    page.keyboard.press("Enter")
    ready(page, "overview")
    # The focus is at the content of the new page, whose first link is the answer.
    tab_to("Rank 13 left with ValueError")
    page.keyboard.press("Enter")
    ready(page, "diagnosis")
    expect(page.locator("#content")).to_be_focused()
    tab_to("rank 13")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    ready(page, "rank")
    expect(page.get_by_role("heading", level=1)).to_have_text("Rank 13")


def test_a_dialog_keeps_the_focus_and_gives_it_back(site: Site, page: Page) -> None:
    page.goto(site.page("healthy"))
    ready(page, "overview")
    share = page.get_by_role("button", name="Share", exact=True)
    share.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(share).to_be_focused()


def test_a_menu_closes_by_escape_and_by_a_click_elsewhere(site: Site, page: Page) -> None:
    page.goto(site.page("healthy"))
    ready(page, "overview")
    summary = page.locator("summary", has_text="Export")
    item = page.get_by_role("link", name="JSON", exact=True)
    summary.click()
    expect(item).to_be_visible()
    page.keyboard.press("Escape")
    expect(item).to_be_hidden()
    summary.click()
    page.locator("#content").click(position={"x": 5, "y": 5})
    expect(item).to_be_hidden()


def test_the_theme_follows_the_system_until_one_is_chosen(
    site: Site, new_context: Callable[..., BrowserContext]
) -> None:
    context = new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(site.page("healthy"))
    ready(page, "overview")
    theme = "document.documentElement.dataset.theme"
    assert page.evaluate(theme) == "dark"
    switch = page.locator("[data-theme-switch]")
    expect(switch).to_have_attribute("aria-label", "Theme: follows the system")
    switch.click()
    assert page.evaluate(theme) == "light"
    expect(switch).to_have_attribute("aria-label", "Theme: light")
    page.reload()
    ready(page, "overview")
    assert page.evaluate(theme) == "light"
    expect(page.locator("[data-theme-switch]")).to_have_attribute("aria-label", "Theme: light")


def test_copy_link_pins_the_generation(site: Site, new_context: Callable[..., BrowserContext]) -> None:
    context = new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(site.page("healthy", "/d/verdict?x=1"))
    ready(page, "diagnosis")
    button = page.get_by_role("button", name="Copy link")
    button.click()
    expect(button).to_have_attribute("data-copied", "")
    assert page.evaluate("navigator.clipboard.readText()") == site.page("healthy", "/d/verdict?g=1&x=1")


def test_a_command_is_copied_with_its_host(site: Site, new_context: Callable[..., BrowserContext]) -> None:
    page = new_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
    page.goto(site.page("hang_root_cause", "/d/f1"))
    ready(page, "diagnosis")
    page.get_by_role("button", name="Copy: py-spy").click()
    expect(page.get_by_role("button", name="Copy: py-spy")).to_have_attribute("data-copied", "")
    assert page.evaluate("navigator.clipboard.readText()") == "py-spy dump --pid 7741   # on hx-a03"


def test_a_page_that_cannot_be_made_says_so(site: Site, page: Page, watch: Watch) -> None:
    page.goto(site.page("healthy", "/rank/999"))
    ready(page, "rank")
    expect(page.locator("#content")).to_contain_text("Nothing in this trace speaks of rank 999")
    page.goto(site.page("healthy", "/op/world-434b/999"))
    ready(page, "op")
    expect(page.locator("#content")).to_contain_text("No rank left an entry of operation 999")
    page.goto(site.page("healthy", "/comm/no-such"))
    ready(page, "comm")
    expect(page.locator("#content")).to_contain_text("No group of this trace has the key no-such")
    page.goto(site.page("hang_root_cause", "/d/f9"))
    ready(page, "diagnosis")
    page.get_by_role("link", name="Open its first finding").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Rank 5")
