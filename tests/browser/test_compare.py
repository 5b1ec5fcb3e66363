"""The comparison in a browser: chosen by a form, kept in the address, Back leads to what was compared before."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser


def test_two_windows_are_chosen_compared_and_gone_back_from(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause"))
    ready(page, "overview")
    page.get_by_role("link", name="Compare").click()
    ready(page, "compare")
    expect(page.get_by_role("combobox", name="A", exact=True)).to_have_value("hang-root-cause")
    page.get_by_role("combobox", name="B", exact=True).select_option("healthy")
    page.locator("#compare-ta").fill("0-20s")
    page.get_by_role("button", name="Compare").click()
    ready(page, "compare")
    expect(page.get_by_role("heading", name="B: healthy")).to_be_visible()
    expect(page.locator("#content")).to_contain_text("What stands out")
    assert page.url == f"{site.url}/compare?a=hang-root-cause&ta=0-20s&b=healthy&tb="
    page.go_back()
    page.wait_for_url(f"{site.url}/compare?a=hang-root-cause")
    expect(page.get_by_role("heading", name="B: healthy")).to_have_count(0)
    page.goto(f"{site.url}/compare?a=healthy&b=healthy&ta=x")
    ready(page, "compare")
    expect(page.get_by_role("note")).to_contain_text("ta=x is no window")
