"""Following a claim to what it rests on: lines, entries, stacks, queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser


def test_a_line_is_shown_marked_and_in_view(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/files/16#L42"))
    ready(page, "file")
    line = page.locator("#L42")
    expect(line).to_contain_text("Watchdog caught collective")
    expect(line).to_have_attribute("data-target", "")
    expect(line).to_be_in_viewport()
    expect(line).to_contain_text("<b>not markup</b>")
    assert page.locator("#L42 b").count() == 0


def test_an_entry_of_a_dump_is_shown_with_its_neighbours(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/d/f1"))
    ready(page, "diagnosis")
    page.get_by_role("link", name="Show dumps/nccl_trace_rank_5:412").click()
    ready(page, "file")
    expect(page.get_by_role("heading", level=1)).to_have_text("dumps/nccl_trace_rank_5")
    expect(page.locator("#file-content")).to_contain_text("entries")


def test_a_claim_is_marked_at_its_line_and_leads_back(site: Site, page: Page) -> None:
    page.goto(site.page("cascade", "/files/19"))
    ready(page, "file")
    expect(page.locator("#content")).to_contain_text("core.7741")
    expect(page.get_by_role("alert")).to_contain_text("not a format that is read here")


def test_a_cell_of_the_stack_grid_opens_the_stack(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/stacks"))
    ready(page, "stacks")
    group = page.locator("#stack-A details")
    expect(group).not_to_have_attribute("open", "")
    page.locator('svg a[href="#stack-A"]').first.click()
    expect(group).to_have_attribute("open", "")
    expect(page.locator("#stack-A")).to_be_in_viewport()
    expect(page.locator("#stack-A .frames")).to_contain_text("reduce_gradients (train/optimizer.py:118)")
    expect(page.locator("#stack-C")).to_contain_text("root cause")


def test_what_a_rank_without_a_dump_did_is_unknown_and_not_nothing(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/op/world-434b/40"))
    ready(page, "op")
    expect(page.locator("svg.picture")).to_contain_text("no dump: unknown")
    page.locator('svg a[href$="/rank/11"]').click()
    ready(page, "rank")
    expect(page.locator("#content")).to_contain_text("This rank left no dump.")


def test_the_odd_one_of_a_collective_is_marked(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/op/tp-7e84/17"))
    ready(page, "op")
    expect(page.locator("#content")).to_contain_text("Differs: rank 3")
    expect(page.locator(".ag-row.row--odd")).to_contain_text("sizes out")


def test_a_send_leads_to_its_receive(site: Site, page: Page) -> None:
    page.goto(site.page("hang_root_cause", "/op/pp-1970/7"))
    ready(page, "op")
    expect(page.locator("#content")).to_contain_text("rank 0 sends to rank 4")
    expect(page.locator("#content")).not_to_contain_text("did not enter")
    page.get_by_role("link", name="recv 7").click()
    ready(page, "op")


def test_who_comes_late_is_drawn_for_a_slow_job(site: Site, page: Page) -> None:
    page.goto(site.page("slow_rank", "/d/f1"))
    ready(page, "diagnosis")
    expect(page.locator("svg .lateness-bar--cause")).to_have_count(1)
    expect(page.locator("svg.picture")).to_contain_text("▲ rank 2")


def test_a_query_is_answered_refused_and_downloaded(site: Site, page: Page, tmp_path: Path) -> None:
    page.goto(site.page("hang_root_cause", "/sql"))
    ready(page, "sql")
    page.get_by_role("button", name="Members that left no dump").click()
    page.get_by_role("textbox", name="SQL").press("Control+Enter")
    answer = page.locator("#sql-answer")
    expect(answer.locator(".ag-row").first).to_contain_text("11")
    expect(answer).to_contain_text("4 rows")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    file = tmp_path / "rows.csv"
    download.value.save_as(file)
    assert len(file.read_text().strip().splitlines()) == 5

    page.get_by_role("textbox", name="SQL").fill("DELETE FROM ranks")
    page.get_by_role("button", name="Run").click()
    expect(answer.get_by_role("alert")).to_contain_text("The query was not answered")
    page.get_by_role("textbox", name="SQL").fill("SELECT nothing FROM nowhere")
    page.get_by_role("button", name="Run").click()
    expect(answer.get_by_role("alert")).to_contain_text("nowhere")
