"""What leaves the page: pictures, files, and a summary on the clipboard."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser


def size_of(png: Path) -> tuple[int, int]:
    head = png.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def test_a_picture_is_saved_as_png_in_the_colours_of_the_theme(site: Site, page: Page, tmp_path: Path) -> None:
    page.goto(site.page("cascade", "/d/f1"))
    ready(page, "diagnosis")
    picture = page.locator("[data-svg] > svg").first
    box = picture.bounding_box()
    assert box is not None
    page.locator(".figure__save").first.focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "mycroft-cascade-who-waits-for-whom.png"
    download.value.save_as(tmp_path / "a.png")
    width, height = size_of(tmp_path / "a.png")
    assert abs(width - 2 * (box["width"] + 24)) <= 2 and abs(height - 2 * (box["height"] + 24)) <= 2

    # The root cause is in its hue there as well: the picture is read back and its pixels are counted.
    count = page.evaluate(
        """async (address) => {
          const image = new Image(); image.src = address; await image.decode();
          const canvas = document.createElement("canvas");
          canvas.width = image.width; canvas.height = image.height;
          const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
          const { data } = context.getImageData(0, 0, image.width, image.height);
          let found = 0;
          for (let at = 0; at < data.length; at += 4) {
            if (data[at] === 0xd5 && data[at + 1] === 0x5e && data[at + 2] === 0) found += 1;
          }
          return found;
        }""",
        "data:image/png;base64," + base64.b64encode((tmp_path / "a.png").read_bytes()).decode(),
    )
    assert count > 1000


def test_the_summary_is_copied_for_a_channel(site: Site, new_context: Callable[..., BrowserContext]) -> None:
    context = new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(site.page("hang_root_cause", "/d/f1"))
    ready(page, "diagnosis")
    page.get_by_text("Export", exact=True).click()
    page.get_by_role("button", name="Copy summary for a channel").click()
    expect(page.locator("#live-region")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("**Hang: Rank 5 never entered all_reduce 1843")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Markdown summary", "mycroft-hang-root-cause-g1.md"),
        ("Ranks as CSV", "mycroft-hang-root-cause-g1-ranks.csv"),
        ("Operations for Perfetto", "mycroft-hang-root-cause-g1.perfetto.json.gz"),
    ],
)
def test_files_are_kept_from_the_menu(site: Site, page: Page, name: str, file: str) -> None:
    page.goto(site.page("hang_root_cause"))
    ready(page, "overview")
    page.get_by_text("Export", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("link", name=name).click()
    assert download.value.suggested_filename == file
