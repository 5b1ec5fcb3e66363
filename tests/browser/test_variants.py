"""The first band of every variant: above the fold, and one hue for the root cause and nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import published
from tests.browser.conftest import ready
from tests.browser.serving import SIZE, Site

pytestmark = pytest.mark.browser
# Names of 200 characters without a space are no case that a headline can be short for.
READABLE = [variant for variant in published.VARIANTS if variant != "hostile"]

COUNT_HUE = """async ([url, hue]) => {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (data[i] === hue[0] && data[i + 1] === hue[1] && data[i + 2] === hue[2]) count += 1;
  }
  return count;
}"""
HUES = {"light": (0xD5, 0x5E, 0x00), "dark": (0xFF, 0x8A, 0x3D)}


def verdict_of(variant: str) -> dict[str, Any]:
    return json.loads((published.VERDICTS / f"{variant}.json").read_text(encoding="utf-8"))


def incident_of(verdict: dict[str, Any]) -> str:
    return verdict["findings"][0]["id"] if verdict["findings"] else "verdict"


def hue_pixels(page: Page, selector: str, theme: str) -> int:
    """Return how many pixels of an element are exactly in the hue of the root cause."""
    png = base64.b64encode(page.locator(selector).first.screenshot()).decode()
    return page.evaluate(COUNT_HUE, [f"data:image/png;base64,{png}", list(HUES[theme])])


@pytest.mark.parametrize("variant", READABLE)
def test_band_is_above_the_fold_and_says_the_hue_only_of_a_root_cause(
    site: Site, new_context: Callable[..., BrowserContext], variant: str
) -> None:
    verdict = verdict_of(variant)
    page = new_context(color_scheme="light").new_page()
    page.goto(site.page(variant, f"/d/{incident_of(verdict)}"))
    ready(page, "diagnosis")
    box = page.locator(".verdict").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= SIZE["height"]
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        count = hue_pixels(page, ".verdict", theme)
        if verdict["findings"]:
            assert count > 500
        else:
            assert count == 0
            assert hue_pixels(page, "#content", theme) == 0


def test_in_a_chain_only_the_culprits_box_is_in_the_hue(site: Site, page: Page) -> None:
    page.goto(site.page("cascade", "/d/f1"))
    ready(page, "diagnosis")
    boxes = page.get_by_role("group", name="Chain of waiting").locator(".chain-box")
    expect(boxes).to_have_count(4)
    fills = [box.evaluate("node => getComputedStyle(node).fill") for box in boxes.all()]
    assert [fill == "rgb(213, 94, 0)" for fill in fills] == [False, False, False, True]


def test_a_verdict_does_not_depend_on_the_colour_alone(site: Site, page: Page) -> None:
    page.goto(site.page("cascade", "/d/f1"))
    ready(page, "diagnosis")
    expect(page.get_by_role("group", name="Chain of waiting")).to_contain_text("▲ rank 13")
    expect(page.locator(".verdict .tag").first).to_have_text("Root cause")
