"""The page of a fleet in a browser: reached by the keyboard, and all that it shows is in its address."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser


def test_page_is_reached_by_the_keyboard_and_keeps_its_view_in_the_address(site: Site, page: Page) -> None:
    page.goto(site.url)
    ready(page, "traces")
    page.get_by_role("link", name="Fleet", exact=True).focus()
    page.keyboard.press("Enter")
    ready(page, "fleet")
    expect(page.get_by_text("No collector has kept anything here yet.")).to_be_visible()
    show = page.get_by_role("combobox", name="Show")
    show.select_option("errors")
    page.wait_for_url("**/fleet?m=errors")
    page.get_by_role("combobox", name="Window").select_option("7d")
    page.wait_for_url("**/fleet?m=errors&last=7d")
    page.get_by_role("link", name="Keep this window").click()
    page.wait_for_url("**until=*")
    ready(page, "fleet")
    expect(show).to_have_value("errors")
    expect(page.get_by_role("link", name="Later")).to_be_visible()
    # Back to what it began with: nothing of it is left over.
    page.get_by_role("link", name="Until now").click()
    page.wait_for_url("**/fleet?m=errors&last=7d")
    ready(page, "fleet")
    expect(page.get_by_role("link", name="Keep this window")).to_be_visible()
    show.select_option("idle_max_ms")
    page.wait_for_url("**/fleet?last=7d")
