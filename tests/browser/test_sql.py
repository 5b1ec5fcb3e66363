"""The SQL console in a browser: recipes, answers, charts, files, and the address that gives them back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ready
from tests.browser.serving import Site
from tests.browser.test_pages import ALL_RULES, AXE, COLOUR_RULES, violations

pytestmark = pytest.mark.browser


def test_a_recipe_is_answered_drawn_kept_in_the_address_and_downloaded(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/sql"))
    ready(page, "sql")
    page.get_by_role("button", name="Time inside collectives by rank").click()
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#sql-answer")).to_contain_text("15 rows")
    page.get_by_label("Chart").select_option("bars")
    page.wait_for_selector(".js-plotly-plot .bars path")
    page.evaluate(AXE)
    assert violations(page, ALL_RULES) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert violations(page, COLOUR_RULES) == []
    page.wait_for_url("**chart=bar**")
    address = page.url

    page.goto(site.page("hang_root_cause"))
    ready(page, "overview")
    page.go_back()
    page.wait_for_selector(".js-plotly-plot .bars path")
    assert page.url == address
    expect(page.locator("#sql-answer")).to_contain_text("15 rows")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "mycroft-hang-root-cause-g1-query.csv"


def test_wrong_sql_is_told_in_its_place(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/sql?q=SELECT%20nothing"))
    ready(page, "sql")
    expect(page.get_by_role("alert")).to_contain_text("nothing")
    page.locator("#sql-text").fill("DROP TABLE ranks")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("only a single SELECT is answered")
