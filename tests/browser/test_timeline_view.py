"""The timeline in a real browser: the culprit's row and a short stall are seen, and the address has the view."""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from mycroft.loaders.catalogue import Catalogue
from tests.app.flow_trace import BROKEN, SILENT, WORLD
from tests.browser.conftest import ready, settled
from tests.browser.serving import Site
from tests.loaders.test_pyramid import day_trace

pytestmark = pytest.mark.browser
TIMELINE = "/t/flow-ring/timeline"
# The middle of each row in the picture: the colour that most of its pixels near the edge of the plot have, and any hue.
_ROWS = """([selector, rows]) => {
  const canvas = document.querySelector(selector);
  const scale = canvas.width / canvas.clientWidth;
  const [top, bottom, left, right] = [16 * scale, canvas.height - 20 * scale, 93 * scale, canvas.width - 9 * scale];
  const style = getComputedStyle(canvas).getPropertyValue("--cause-fill").trim();
  const cause = [1, 3, 5].map((at) => parseInt(style.slice(at, at + 2), 16));
  const pen = canvas.getContext("2d");
  return Array.from({ length: rows }, (_, row) => {
    const y = Math.round(top + (row * (bottom - top)) / rows);
    const tall = Math.max(Math.round((bottom - top) / rows), 1);
    const data = pen.getImageData(Math.round(left), y, Math.round(right - left), tall).data;
    let near = 0;
    for (let at = 0; at < data.length; at += 4) {
      if (Math.max(...cause.map((value, i) => Math.abs(value - data[at + i]))) < 12) near += 1;
    }
    return near / (data.length / 4);
  });
}"""


def opened(page: Page, address: str) -> None:
    page.goto(address)
    ready(page, "timeline")
    expect(page.locator("[data-timeline]")).to_have_attribute("data-settled", "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("query", ["?m=state", "?y=0-11&t=0-3000000"])
def test_the_row_of_the_culprit_is_in_the_hue_of_the_cause_and_no_other_is(
    site: Site, new_context: Callable[..., BrowserContext], scheme: str, query: str
) -> None:
    page = new_context(color_scheme=scheme).new_page()
    opened(page, site.url + TIMELINE + query)
    shares = page.evaluate(_ROWS, ["canvas.timeline__canvas", WORLD])
    assert shares[BROKEN[1]] > 0.02
    assert max(share for row, share in enumerate(shares) if row != BROKEN[1]) == 0


def test_a_rank_without_a_log_is_hatched_and_said(site: Site, page: Page) -> None:
    opened(page, site.url + TIMELINE)
    expect(page.locator(".timeline__legend")).to_contain_text("no log")
    page.get_by_text("View as table").click()
    row = page.locator("[data-timeline] tbody tr", has_text=f"rank {SILENT}")
    expect(row).to_contain_text("no log")
    expect(page.locator("[data-timeline] tbody tr", has_text="▲ root cause")).to_contain_text(f"rank {BROKEN[1]}")


def test_keys_move_the_window_and_the_address_keeps_it(site: Site, new_context: Callable[..., BrowserContext]) -> None:
    page = new_context().new_page()
    opened(page, site.url + TIMELINE)
    canvas = page.locator("canvas.timeline__canvas")
    canvas.focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"[?&]t=\d+-\d+"))
    named = canvas.get_attribute("aria-label")
    fresh = new_context().new_page()
    opened(fresh, page.url)
    expect(fresh.locator("canvas.timeline__canvas")).to_have_attribute("aria-label", named or "")
    canvas.focus()
    page.keyboard.press("0")
    page.wait_for_url(lambda url: "t=" not in url)


def test_a_click_selects_rank_and_operation_and_back_undoes_it(site: Site, page: Page) -> None:
    opened(page, site.url + TIMELINE)
    box = page.locator("canvas.timeline__canvas").bounding_box()
    assert box is not None
    x = box["x"] + 92 + (box["width"] - 100) * 0.6
    y = box["y"] + 16 + (box["height"] - 36) * (4.5 / WORLD)
    page.mouse.move(x, y)
    expect(page.locator(".timeline__said")).to_contain_text("Rank 4")
    page.mouse.click(x, y)
    page.wait_for_url(re.compile(r"[?&]r=4"))
    assert "c=dp-0a" in page.url and "op=7" in page.url
    page.get_by_role("link", name="open the operation").click()
    ready(page, "op")
    page.go_back()
    ready(page, "timeline")


def test_a_claim_moves_the_pictures_to_its_rows_and_back_undoes_it(site: Site, page: Page) -> None:
    page.goto(f"{site.url}/t/flow-ring/d/f1")
    ready(page, "diagnosis")
    settled(page)
    expect(page.locator("[data-timeline]")).to_have_attribute("data-mode", "bars")
    before = page.evaluate("document.querySelector('canvas.timeline__canvas').toDataURL()")
    page.get_by_role("button", name="show above, in the pictures: claim 1").click()
    page.wait_for_url(re.compile(rf"[?&]r={BROKEN[1]}\b"))
    assert re.search(r"[?&]t=\d+-\d+", page.url) and f"ch={BROKEN[0]}" in page.url
    page.wait_for_function("was => document.querySelector('canvas.timeline__canvas').toDataURL() !== was", arg=before)
    expect(page.locator("[data-flow]")).to_be_in_viewport()
    page.go_back()
    page.wait_for_url(lambda url: "r=" not in url)


def test_a_stall_of_300_ms_is_seen_at_every_zoom_of_a_day(site: Site, page: Page) -> None:
    catalogue = Catalogue(site.data_dir)
    with tempfile.TemporaryDirectory(dir=site.data_dir) as folder:
        plan, at_ns = day_trace(Path(folder) / "day.duckdb")
        catalogue.publish("a-day", Path(folder) / "day.duckdb", title="a day", summary={})
    catalogue.close()
    span = plan.span_ns // 1000
    at = at_ns // 1000
    dark = """([rows, row]) => {
      const view = document.querySelector("canvas.timeline__canvas");
      const scale = view.width / view.clientWidth;
      const [top, bottom, left, right] = [16 * scale, view.height - 20 * scale, 94 * scale, view.width - 10 * scale];
      const tall = (bottom - top) / rows;
      const y = Math.round(top + (row + 0.5) * tall);
      const data = view.getContext("2d").getImageData(Math.round(left), y, Math.round(right - left), 1).data;
      let least = 255;
      for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) least = Math.min(least, data[at]);
      return least;
    }"""
    # So many bars that heat is drawn at every zoom: bars show a stall as what it is.
    too_many = struct.pack("<4I", 1, 0, 1_000_000, 1)
    page.route("**/bars?**", lambda route: route.fulfill(body=too_many, content_type="application/octet-stream"))
    length = span
    while length > 2_000_000:
        first = max(0, min(at - length // 3, span - length))
        opened(page, f"{site.url}/t/a-day/timeline?t={first}-{first + length}&y=0-3")
        late, other = (page.evaluate(dark, [4, row]) for row in (2, 1))
        assert late < other - 40, f"window of {length / 1e6:.0f} s: {late} against {other}"
        expect(page.locator("[data-timeline]")).to_have_attribute("data-mode", "heat")
        page.get_by_text("View as table").click()
        expect(page.locator("[data-timeline] tbody tr").first).to_contain_text("rank 2")
        expect(page.locator("[data-timeline] tbody tr").first).to_contain_text(re.compile(r"29\d|30\d"))
        length //= 16
    expect(page.locator(".timeline__legend")).to_contain_text("about 1,000,000 operations in view: zoom in for bars")


def test_a_window_outside_of_the_trace_is_clamped_and_said(site: Site, page: Page) -> None:
    opened(page, f"{site.url}{TIMELINE}?t=99999999999-199999999999")
    expect(page.locator(".timeline__said")).to_contain_text("outside of the trace")


def test_nothing_of_a_timeline_is_left_when_the_page_has_gone(site: Site, page: Page) -> None:
    opened(page, site.url + TIMELINE)
    page.get_by_role("link", name="Overview").click()
    ready(page, "overview")
    expect(page.locator("canvas.timeline__canvas")).to_have_count(0)
    page.go_back()
    ready(page, "timeline")
    expect(page.locator("canvas.timeline__canvas")).to_have_count(1)


def test_tiles_may_be_kept_for_ever_and_only_under_a_generation(site: Site, page: Page) -> None:
    base = f"{site.url}/api/v1/traces/flow-ring"
    pinned = page.request.get(f"{base}/g/1/tiles/late/0/0/0")
    assert pinned.status == 200 and len(pinned.body()) == 65_536
    assert pinned.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert page.request.get(f"{base}/tiles/late/0/0/0").headers["cache-control"] == "private, no-store"
    answers: dict[str, Any] = {
        "/g/1/tiles/late/0/9/0": 404,
        "/g/1/tiles/none/0/0/0": 404,
        "/g/1/bars?t=x&y=0-1": 400,
        "/g/1/bars?t=0-9": 400,
        "/g/1/hits?t=0-99999999999999999999&y=0-0": 400,
    }
    for path, status in answers.items():
        answer = page.request.get(base + path)
        assert answer.status == status and answer.json()["error"], path
