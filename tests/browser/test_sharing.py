"""Links for others: made, listed, opened, ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Watch, ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser


def test_a_link_opens_the_very_page_and_nothing_else_until_it_is_revoked(
    site: Site, page: Page, new_context: Callable[..., BrowserContext], watch: Watch
) -> None:
    page.goto(site.page("slow_rank", "/rank/3?g=1"))
    ready(page, "rank")
    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_label("Note, for the list below").fill("for the <network> team")
    page.get_by_role("radio", name="1 week").check()
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_label("Link, shown only now").input_value()
    row = page.get_by_role("row").filter(has_text="for the <network> team")
    expect(row).to_contain_text("open")

    visitor = new_context()
    guest = visitor.new_page()
    guest.goto(link)
    ready(guest, "rank")
    assert guest.url == site.page("slow_rank", "/rank/3?g=1")
    guest.goto(site.url + "/")
    ready(guest, "traces")
    expect(guest.locator(".trace")).to_have_count(1)
    expect(guest.get_by_role("button", name="Choose a folder")).to_have_count(0)
    guest.goto(site.page("cascade"))
    ready(guest, "message")
    expect(guest.get_by_role("heading", level=1)).to_have_text("Not yours to see")

    row.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    watch.allow(404, "/s/")
    watch.allow(410, "/s/")
    watch.allow(403, "/s/")
    late = new_context().new_page()
    answer = late.goto(link)
    assert answer is not None
    assert answer.status in {403, 404, 410}
