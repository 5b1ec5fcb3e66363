"""The live pages in a browser: they keep current by themselves, and a shared incident stays at its revision."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from mycroft.app.live.state import LiveState
from mycroft.app.state import State
from mycroft.loaders import pyramid
from mycroft.loaders.catalogue import Catalogue
from tests.app import flow_trace
from tests.app.live.test_incidents import finding
from tests.app.trace_writer import write_rows
from tests.browser.conftest import ready, settled
from tests.browser.serving import Site
from tests.browser.test_pages import ALL_RULES, AXE, COLOUR_RULES, violations
from tests.loaders.test_pyramid import day_trace

pytestmark = pytest.mark.browser

TICK = "live-incident-tick"
DISABLED = f"""() => {{
  const walk = (node) => {{
    if (!node || !node.props) return undefined;
    if (node.props.id === "{TICK}") return Boolean(node.props.disabled);
    const inside = node.props.children;
    for (const child of Array.isArray(inside) ? inside : [inside]) {{
      const found = walk(child);
      if (found !== undefined) return found;
    }}
    return undefined;
  }};
  return walk(window.store.getState().layout.components);
}}"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture
def state(site: Site) -> LiveState:
    found = LiveState(State(site.data_dir))
    facts: dict[str, Any] = {"world_size": 8, "processes": 8, "ended": 0, "hosts": ["h1"], "hosts_count": 1}
    found.see_job("slow-rank", title="training run", processes=["a"], facts=facts)
    found.set_numbers({"tick": {"seconds": 0.1, "jobs": 1, "problems": {}}})
    return found


def test_shared_incident_stays_at_its_revision_while_the_page_follows(
    site: Site, page: Page, new_context: Callable[..., BrowserContext], state: LiveState
) -> None:
    incident = state.open_incident("slow-rank", finding("slow_compute", (3,)), why="first found")
    page.goto(f"{site.url}/live")
    ready(page, "live")
    page.get_by_role("link", name="slow_compute at [3]").click()
    ready(page, "live_incident")
    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_label("Link, shown only now").input_value()
    page.get_by_role("button", name="Close").click()
    # The page follows by itself.
    state.revise(incident.incident, finding("slow_gpu", (3,), confidence="high"), why="a clock")
    expect(page.get_by_text("slow_gpu at [3]").first).to_be_visible()

    guest = new_context().new_page()
    guest.goto(link)
    ready(guest, "live_incident")
    expect(guest.get_by_role("heading", level=1)).to_have_text("slow_compute at [3]")
    expect(guest.get_by_text("This is revision 1 of 2")).to_be_visible()
    expect(guest.get_by_text("shared, read-only")).to_be_visible()
    guest.get_by_role("link", name="Open the newest").click()
    expect(guest.get_by_role("heading", level=1)).to_have_text("slow_gpu at [3]")


def test_live_pages_are_accessible_in_both_themes(
    site: Site, new_context: Callable[..., BrowserContext], state: LiveState
) -> None:
    incident = state.open_incident("slow-rank", finding("slow_nic", (3,), confidence="high"), why="first found")
    state.revise(incident.incident, finding("slow_gpu", (3,), confidence="high"), why="a clock")
    state.set_trace("slow-rank", "slow-rank")
    page = new_context(color_scheme="light", reduced_motion="reduce").new_page()
    paths = {"live": "", "live_job": "/slow-rank", "live_incident": f"/slow-rank/d/{incident.incident}"}
    for name, path in paths.items():
        page.emulate_media(color_scheme="light")
        page.goto(f"{site.url}/live{path}")
        ready(page, name)
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.evaluate(AXE)
        assert violations(page, ALL_RULES) == [], name
        page.emulate_media(color_scheme="dark")
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        assert violations(page, COLOUR_RULES) == [], name


def publish(site: Site, make: Callable[[Path], Any]) -> None:
    """Publish the next generation of the trace of a job."""
    catalogue = Catalogue(site.data_dir)
    with tempfile.TemporaryDirectory(dir=site.data_dir) as folder:
        file = Path(folder) / "trace.duckdb"
        make(file)
        catalogue.publish("followed", file, title="followed", summary={})
    catalogue.close()


def ring(file: Path) -> None:
    write_rows(file, flow_trace.rows("ring"))
    pyramid.build(file)


def test_the_timeline_follows_the_job_until_the_reader_moves_it(site: Site, page: Page, state: LiveState) -> None:
    state.see_job("followed", title="followed", processes=["b"], facts={"processes": 1})
    publish(site, ring)
    state.set_trace("followed", "followed")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.goto(f"{site.url}/live/followed")
    ready(page, "live_job")
    place, canvas = page.locator("[data-timeline]"), page.locator("canvas.timeline__canvas")
    expect(canvas).to_have_attribute("aria-label", re.compile("of 12 ranks"))
    expect(place).to_have_attribute("data-following", "yes")
    publish(site, day_trace)
    expect(canvas).to_have_attribute("aria-label", re.compile("of 4 ranks"))

    canvas.focus()
    page.keyboard.press("+")
    expect(place).to_have_attribute("data-following", "no")
    publish(site, ring)
    before = sum(url.endswith("/traces/followed") for url in asked)
    page.clock.run_for(10_000)
    assert sum(url.endswith("/traces/followed") for url in asked) == before
    expect(canvas).to_have_attribute("aria-label", re.compile("of 4 ranks"))

    page.get_by_role("checkbox", name="follow").check()
    expect(canvas).to_have_attribute("aria-label", re.compile("of 12 ranks"))


def test_news_leaves_the_keyboard_where_it_is(site: Site, page: Page, state: LiveState) -> None:
    page.goto(f"{site.url}/live")
    ready(page, "live")
    link = page.locator('#live-body a[href$="/live/slow-rank"]').first
    link.focus()
    state.see_job("a-newer-job", title="another run", processes=["c"], facts={"processes": 1})
    expect(page.locator('#live-body a[href$="/live/a-newer-job"]').first).to_be_visible()
    expect(link).to_be_focused()


def test_page_that_nobody_sees_asks_for_nothing(site: Site, page: Page, state: LiveState) -> None:
    incident = state.open_incident("slow-rank", finding("slow_nic", (5,)), why="first found")
    page.goto(f"{site.url}/live/slow-rank/d/{incident.incident}")
    ready(page, "live_incident")
    page.wait_for_function(f"({DISABLED})() === false")
    page.evaluate(HIDE, True)
    page.wait_for_function(f"({DISABLED})() === true")
    page.evaluate(HIDE, False)
    page.wait_for_function(f"({DISABLED})() === false")
