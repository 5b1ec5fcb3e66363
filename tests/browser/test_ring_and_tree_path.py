"""A person's path with a ring and with a tree, from the list of traces to a colleague who sees the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.app.flow_trace import BROKEN, STALL_TICK
from tests.browser.conftest import ready
from tests.browser.serving import SIZE, Site

pytestmark = pytest.mark.browser
LARGE = {"width": 3840, "height": 2160}
GUILTY = BROKEN[1]


def pictures(page: Page) -> None:
    for drawn in page.locator("[data-flow], [data-timeline]").all():
        expect(drawn).to_have_attribute("data-drawn", "")


def seen(page: Page) -> dict[str, Any]:
    """Return what a page shows that a shared view must show again."""
    return {
        "moment": page.locator(".flow__clock").inner_text(),
        "said": page.locator(".flow__said").inner_text(),
        "slider": page.locator(".flow__slider").input_value(),
        "lens": page.locator("[data-flow] .flow__scroll").inner_text(),
        "view": re.sub(r"([?&])g=\d+&?", r"\1", page.url.split("/t/")[1]).rstrip("?&"),
    }


def fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize(
    ("shape", "theme", "size"),
    [("ring", "light", SIZE), ("ring", "dark", LARGE), ("tree", "dark", SIZE), ("tree", "light", LARGE)],
    ids=["ring-light-720p", "ring-dark-4k", "tree-dark-720p", "tree-light-4k"],
)
def test_from_the_incident_to_its_host_and_to_a_colleague(
    site: Site, new_context: Callable[..., BrowserContext], shape: str, theme: str, size: dict[str, int]
) -> None:
    context = new_context(viewport=size, color_scheme=theme)
    page = context.new_page()
    page.goto(site.url + "/")
    ready(page, "traces")
    page.locator(f'a[href^="/t/flow-{shape}/d/"], a[href="/t/flow-{shape}"]').first.click()
    if page.url.endswith(f"/t/flow-{shape}"):
        ready(page, "overview")
        page.get_by_role("navigation", name="Pages of this trace").get_by_role("link", name="Diagnosis").click()
    ready(page, "diagnosis")
    headline = page.get_by_role("heading", level=1).inner_text()
    assert f"Rank {GUILTY} " in headline
    pictures(page)
    fits(page)

    page.locator("#flow .panel__note, #flow").get_by_role("link", name="all_reduce 7").first.click()
    ready(page, "op")
    pictures(page)
    expect(page.locator(".flow__said")).to_contain_text(f"Rank {GUILTY} → rank {BROKEN[2]}")
    expect(page.locator(".flow__said")).to_contain_text("stopped")

    # Back to the last second in which everything moved, by keyboard.
    slider = page.locator(".flow__slider")
    steps = int(slider.get_attribute("max") or 0) - (STALL_TICK - 10)
    slider.focus()
    for _ in range(steps):
        page.keyboard.press("ArrowLeft")
    expect(page.locator(".flow__clock")).to_contain_text(f", {steps / 10:.1f} s before the end")
    expect(page.locator(".flow__said")).not_to_contain_text("stopped")
    # The operation began a second after the trace; a state is written every 100 ms.
    page.wait_for_url(re.compile(rf"[?&]at={1_000_000 + 100_000 * (STALL_TICK - 10)}(&|$)"))
    shared = seen(page)

    # The colleague opens what is seen now, in a browser that knows nothing of this one.
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_label("Link, shown only now").input_value()
    page.get_by_role("button", name="Close").click()
    colleague = new_context(viewport=size, color_scheme=theme).new_page()
    colleague.goto(link)
    ready(colleague, "op")
    pictures(colleague)
    expect(colleague.locator(".flow__clock")).to_have_text(shared["moment"])
    assert seen(colleague) == shared
    fits(colleague)

    page.get_by_role("link", name="timeline around it").click()
    ready(page, "timeline")
    pictures(page)
    assert f"r={GUILTY}" in page.url and "t=" in page.url
    canvas = page.locator("canvas.timeline__canvas")
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": box["width"] * 0.8, "y": 16 + (box["height"] - 36) * (GUILTY + 0.5) / 12})
    said = page.locator(".timeline__said")
    expect(said).to_contain_text(f"Rank {GUILTY} · hx-b01")
    said.get_by_role("link", name="open the rank").click()
    ready(page, "rank")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Rank {GUILTY}")
    fits(page)
    page.get_by_role("link", name="hx-b01", exact=True).first.click()
    ready(page, "host")
    expect(page.get_by_role("heading", level=1)).to_contain_text("hx-b01")
    fits(page)

    # Back works all the way.
    for name in ("rank", "timeline"):
        page.go_back()
        ready(page, name)
    for _ in range(3):
        # A selection on the timeline is a step of its own.
        if "/op/" not in page.url:
            page.go_back()
    ready(page, "op")
    pictures(page)
    expect(page.locator(".flow__clock")).to_have_text(shared["moment"])
