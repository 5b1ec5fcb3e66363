"""The exported HTML file in a browser that knows nothing of a server: it is drawn, alive, accessible, and alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.serving import SIZE, Site
from tests.browser.test_pages import ALL_RULES, AXE, violations

pytestmark = pytest.mark.browser


@pytest.fixture
def offline(browser: Browser) -> Iterator[BrowserContext]:
    """A browser without a network; the test fails on any request but that for the file, and on any error."""
    context = browser.new_context(viewport=SIZE, locale="en-US", timezone_id="UTC", reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    context.set_offline(True)
    wrong: list[str] = []
    context.on(
        "request",
        lambda request: None if request.url.startswith(("file:", "data:")) else wrong.append(request.url),
    )
    context.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    yield context
    context.close()
    assert wrong == []


def exported(site: Site, page: Page, trace: str, folder: Path, *, redact: bool = False) -> Path:
    answer = page.request.get(f"{site.url}/api/v1/traces/{trace}/export.html?redact={int(redact)}")
    assert answer.status == 200
    assert len(answer.body()) < 2_000_000
    file = folder / f"{trace}.html"
    file.write_bytes(answer.body())
    return file


def opened(context: BrowserContext, file: Path) -> Page:
    page = context.new_page()
    page.goto(file.as_uri())
    for drawn in page.locator("[data-flow], [data-timeline]").all():
        expect(drawn).to_have_attribute("data-drawn", "")
    return page


@pytest.mark.parametrize("shape", ["ring", "tree", "pairs"])
def test_flow_and_timeline_are_alive_in_the_file(
    site: Site, page: Page, offline: BrowserContext, tmp_path: Path, shape: str
) -> None:
    alone = opened(offline, exported(site, page, f"flow-{shape}", tmp_path))
    flow = alone.locator("[data-flow]")
    # Back to before the stall: the same state as the dashboard shows at that moment.
    expect(flow.locator(".flow__said")).to_contain_text("stopped")
    flow.get_by_role("button", name="First state").click()
    expect(flow.locator(".flow__said")).not_to_contain_text("stopped")
    flow.get_by_role("button", name="Last state").click()
    expect(flow.locator(".flow__said")).to_contain_text("stopped")

    timeline = alone.locator("[data-timeline]")
    expect(timeline).to_have_attribute("data-mode", "bars")
    box = timeline.locator("canvas.timeline__canvas").bounding_box()
    assert box is not None
    # The sixth of twelve rows, in its open operation.
    timeline.locator("canvas.timeline__canvas").click(
        position={"x": box["width"] * 0.6, "y": 16 + (box["height"] - 36) * 5.5 / 12}
    )
    said = timeline.locator(".timeline__said")
    expect(said).to_contain_text("Rank 5 · hx-b01 selected")
    expect(said).to_contain_text(" 7 of dp0")
    expect(said.get_by_role("link", name="open the rank")).to_have_attribute("href", "#rank-5")
    # What the file does not hold is named and is no link.
    expect(said).to_contain_text("open the operation")
    expect(said.get_by_role("link", name="open the operation")).to_have_count(0)
    timeline.get_by_role("button", name="zoom in").click()
    expect(timeline).to_have_attribute("data-mode", "bars")
    alone.evaluate(AXE)
    assert violations(alone, ALL_RULES) == []


def test_what_is_chosen_in_one_part_of_the_file_is_shown_in_all(
    site: Site, page: Page, offline: BrowserContext, tmp_path: Path
) -> None:
    alone = opened(offline, exported(site, page, "flow-ring", tmp_path))
    table = alone.locator("[data-ranks]")
    said = alone.locator("[data-flow] .flow__said")
    # By keyboard: the rank is shown in the flow, and let go again.
    other = table.get_by_role("button", name="rank 2, in the pictures")
    other.press("Enter")
    expect(other).to_have_attribute("aria-pressed", "true")
    expect(said).to_contain_text("Rank 2")
    other.press("Enter")
    expect(other).to_have_attribute("aria-pressed", "false")
    # A row of the timeline is the rank of the flow and of the table.
    canvas = alone.locator("canvas.timeline__canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] * 0.6, "y": 16 + (box["height"] - 36) * 7.5 / 12})
    expect(table.locator("tr.row--chosen")).to_have_attribute("id", "rank-7")
    expect(said).to_contain_text("Rank 7")
    # The rows of a claim are found again in the pictures.
    alone.get_by_role("button", name=re.compile("show above")).first.press("Enter")
    expect(said).to_contain_text("Rank 5")
    expect(table.locator("tr.row--chosen")).to_have_attribute("id", "rank-5")


def test_a_redacted_file_shows_no_name_of_a_host_in_its_pictures(
    site: Site, page: Page, offline: BrowserContext, tmp_path: Path
) -> None:
    alone = opened(offline, exported(site, page, "flow-ring", tmp_path, redact=True))
    expect(alone.locator("[data-flow]")).to_contain_text("host-")
    alone.locator("[data-timeline]").get_by_text("View as table").click()
    expect(alone.locator("[data-timeline] tbody tr").first).to_contain_text("host-")
    assert "hx-b0" not in (alone.text_content("body") or "")


def test_the_file_says_so_where_no_script_may_run(site: Site, page: Page, browser: Browser, tmp_path: Path) -> None:
    file = exported(site, page, "flow-ring", tmp_path)
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(file.as_uri())
    expect(plain.locator("[data-flow]")).to_contain_text("all else can still be read")
    expect(plain.get_by_role("heading", level=1)).to_contain_text("Rank 5")
    context.close()
