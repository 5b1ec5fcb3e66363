"""Measures of ranks and shapes in a browser: chosen, drawn, kept in the address."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser


def test_a_measure_is_chosen_kept_in_the_address_and_a_rank_opened(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "?m=wait"))
    ready(page, "overview")
    measure = page.get_by_role("combobox", name="Measure")
    expect(measure).to_have_value("wait")
    measure.select_option("late")
    page.wait_for_url("**m=late")
    # The rank that comes late each time, and no other, has the darkest step.
    expect(page.locator("a:has(> .heat-cell.heat-5)")).to_have_count(1)
    assert page.locator("a:has(> .heat-5)").get_attribute("href") == "/t/hang-root-cause/rank/2"
    page.locator("a:has(> .heat-5)").click()
    ready(page, "rank")
    page.go_back()
    ready(page, "overview")
    expect(page.get_by_role("combobox", name="Measure")).to_have_value("late")


def test_the_history_of_a_shape_is_drawn_with_the_operation_marked(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/op/tp-c345/20"))
    ready(page, "op")
    page.wait_for_selector("#shape-figure .points path")
    expect(page.locator("#shape-place")).to_contain_text("this one ◇: 29.1 ms")
    page.get_by_role("combobox", name="Measure").select_option("busbw")
    expect(page.locator("#shape-place")).to_contain_text("GB/s")
    page.wait_for_url("**m=busbw")
