"""The chunk flow in a real browser: what is broken is seen, and the states can be gone through."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.flow_trace import BROKEN, SILENT, STALL_TICK
from tests.browser.conftest import ready, settled
from tests.browser.serving import Site

pytestmark = pytest.mark.browser
OP = "/op/dp-0a/7"


def opened(page: Page, site: Site, shape: str, query: str = "") -> None:
    page.goto(f"{site.url}/t/flow-{shape}{OP}{query}")
    ready(page, "op")
    expect(page.locator("[data-flow]")).to_have_attribute("data-drawn", "")


def test_a_broken_ring_shows_its_edge_and_its_rank_in_the_hue_of_the_cause(site: Site, page: Page) -> None:
    opened(page, site, "ring")
    expect(page.locator(".flow-box--cause")).to_have_count(1)
    expect(page.locator("line.flow-edge--cause").first).to_be_attached()
    _, src, dst = BROKEN
    said = page.locator(".flow__said")
    expect(said).to_contain_text(f"Rank {src} → rank {dst}, channel 1: stopped.")
    expect(said).to_contain_text("10 handed over, 8 acknowledged of 16")


def test_the_slider_goes_back_to_when_it_still_moved_and_the_address_tells_so(site: Site, page: Page) -> None:
    opened(page, site, "ring")
    page.get_by_role("button", name=re.compile("^last movement")).click()
    expect(page.locator(".flow__said")).to_contain_text("moving")
    page.wait_for_url(re.compile(r"[?&]at=\d+"))
    page.reload()
    ready(page, "op")
    expect(page.locator(".flow__said")).to_contain_text("moving")
    assert int(page.locator(".flow__slider").input_value()) <= STALL_TICK


def test_choosing_a_rank_moves_the_lens_and_back_returns(site: Site, page: Page) -> None:
    opened(page, site, "ring")
    page.get_by_role("button", name=re.compile(r"^rank 8 ")).press("Enter")
    page.wait_for_url(re.compile(r"[?&]r=8"))
    expect(page.locator(".flow__said")).to_contain_text("Rank 8")
    page.go_back()
    expect(page.locator(".flow__said")).to_contain_text(f"Rank {BROKEN[1]}")


def test_a_row_of_the_ranks_by_blame_and_the_pictures_show_the_same_rank(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/t/flow-ring/d/f1")
    ready(page, "diagnosis")
    settled(page)
    table = page.get_by_role("region", name="Ranks by blame")
    row = table.locator(".ag-row")
    numbers = {"sent_ready": "10", "sent_moved": "10", "sent_done": "8", "sent_total": "16", "waits": "5.9 s"}
    for column, text in numbers.items():
        expect(row.first.locator(f"[col-id={column}]")).to_have_text(text)

    row.nth(7).locator("[col-id=role]").click()
    page.wait_for_url(re.compile(r"[?&]r=7"))
    expect(page.locator(".flow__said")).to_contain_text("Rank 7")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.wait_for_url(re.compile(r"[?&]r=8"))
    expect(page.locator(".flow__said")).to_contain_text("Rank 8")
    # And the other way: a rank chosen in the picture, and the one before by Back.
    page.get_by_role("button", name=re.compile(r"^rank 10 ")).press("Enter")
    expect(table.locator(".ag-row-selected [col-id=rank]")).to_have_text("10")
    page.go_back()
    expect(table.locator(".ag-row-selected [col-id=rank]")).to_have_text("8")


def test_a_rank_without_a_log_is_hatched_and_never_zero(site: Site, page: Page) -> None:
    opened(page, site, "ring", f"?r={SILENT}&ch=0")
    expect(page.locator(".flow-box--nolog")).to_have_count(1)
    expect(page.locator(".flow-unknown").first).to_be_attached()
    text = page.get_by_role("button", name=re.compile(rf"^rank {SILENT} ")).text_content()
    assert text is not None and "no log" in text


def test_of_two_trees_the_broken_one_is_open(site: Site, page: Page) -> None:
    opened(page, site, "tree", f"?ch=1&r={BROKEN[1]}")
    trees = page.locator("details[data-tree]")
    expect(trees).to_have_count(2)
    expect(trees.nth(1)).to_have_attribute("open", "")
    assert trees.nth(0).get_attribute("open") is None
    expect(trees.nth(1).get_by_text("root", exact=True)).to_be_visible()
    # Of each edge both ends are told: what the chosen rank has of those to its two children stands beside theirs.
    expect(trees.nth(1).get_by_text(f"at rank {BROKEN[1]}", exact=True)).to_have_count(2)
    expect(trees.nth(1).get_by_text("D: acknowledged, 8 of 16")).to_have_count(1)


def test_all_pairs_are_a_matrix_and_the_table_has_their_numbers(site: Site, page: Page) -> None:
    opened(page, site, "pairs")
    expect(page.get_by_role("group", name=re.compile("^Matrix of 12 senders"))).to_be_visible()
    page.locator("[data-flow]").get_by_text("View as table").click()
    row = page.locator("[data-flow] tbody tr").first
    expect(row).to_contain_text("stopped")


def test_a_flow_that_cannot_be_read_says_why(site: Site, page: Page, watch: Any) -> None:
    watch.allow(404, "/flow/")
    page.route("**/flow/**", lambda route: route.continue_(url=route.request.url.replace("/flow/dp-0a/7", "/flow/x/7")))
    opened(page, site, "ring")
    expect(page.locator("[data-flow]").get_by_role("alert")).to_contain_text("no source of flow-ring shows flows")


def test_what_is_done_is_done_and_not_unknown_when_nothing_more_is_heard(site: Site, page: Page) -> None:
    opened(page, site, "ring", "?r=3&ch=0")
    expect(page.locator(".flow__said")).to_contain_text("Rank 3 → rank 4, channel 0: done.")
