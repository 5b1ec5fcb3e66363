"""Uploads that do not go smoothly: paused, broken, taken up again, cancelled, and not readable at all."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser.conftest import Watch, ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser
CASES = Path(__file__).parents[1] / "data" / "flight_recorder"
CHUNK = re.compile(r"/api/v1/uploads/\w+/\d+/(\d+)$")
MIB = 2**20


def choose(page: Page, *files: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose files or archives").click()
    chooser.value.set_files([str(file) for file in files])


def test_what_arrived_before_the_page_was_closed_is_not_sent_again(
    site: Site, new_context: Callable[..., BrowserContext], watch: Watch, tmp_path: Path
) -> None:
    big = tmp_path / "notes.bin"
    big.write_bytes(bytes(range(256)) * (20 * MIB // 256))
    context = new_context()
    first = context.new_page()
    sent: list[int] = []

    def break_the_last(route: Route) -> None:
        chunk = int(CHUNK.search(route.request.url).group(1))  # type: ignore[union-attr]
        if chunk == 2:
            route.abort("connectionreset")
        else:
            sent.append(chunk)
            route.continue_()

    watch.allow(0, "")
    first.route(CHUNK, break_the_last)
    first.goto(site.url + "/")
    ready(first, "traces")
    choose(first, big)
    expect(first.locator(".upload__numbers")).to_contain_text("16.0 MiB of 20.0 MiB")
    assert sorted(sent) == [0, 1]
    first.close(run_before_unload=False)

    again: list[int] = []

    def count(route: Route) -> None:
        again.append(int(CHUNK.search(route.request.url).group(1)))  # type: ignore[union-attr]
        route.continue_()

    second = context.new_page()
    second.route(CHUNK, count)
    second.goto(site.url + "/")
    ready(second, "traces")
    choose(second, big)
    ready(second, "job")
    assert again == [2]
    expect(second.locator("#job-body")).to_contain_text("failed")
    expect(second.get_by_role("alert")).to_contain_text("notes.bin")


def test_a_broken_connection_is_tried_again(site: Site, page: Page, watch: Watch) -> None:
    broken: list[str] = []

    def break_once(route: Route) -> None:
        if broken:
            route.continue_()
        else:
            broken.append(route.request.url)
            route.abort("connectionreset")

    watch.allow(0, "")
    page.route(CHUNK, break_once)
    page.goto(site.url + "/")
    ready(page, "traces")
    choose(page, *sorted((CASES / "healthy" / "fr").iterdir())[:2])
    ready(page, "job")
    assert len(broken) == 1
    expect(page.get_by_role("link", name="Open the diagnosis")).to_be_visible()


def test_an_upload_is_paused_continued_and_cancelled(site: Site, page: Page, tmp_path: Path) -> None:
    big = tmp_path / "more.bin"
    big.write_bytes(b"x" * (9 * MIB))
    waiting: list[Route] = []
    page.route(CHUNK, lambda route: waiting.append(route))
    page.goto(site.url + "/")
    ready(page, "traces")
    choose(page, big)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".upload__title")).to_contain_text("Paused")
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".upload__title")).to_contain_text("Sending")
    with page.expect_response(lambda answer: answer.request.method == "DELETE") as freed:
        page.get_by_role("button", name="Cancel").click()
    assert freed.value.status == 204
    expect(page.locator(".upload__title")).to_contain_text("Cancelled")
    expect(page.get_by_role("button", name="Choose a folder")).to_be_visible()


def test_an_archive_is_read_and_the_list_shows_it(site: Site, page: Page, tmp_path: Path) -> None:
    archive = tmp_path / "incident.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted((CASES / "sigkill").rglob("*")):
            if file.is_file():
                packed.write(file, file.relative_to(CASES))
    page.goto(site.url + "/")
    ready(page, "traces")
    choose(page, archive)
    ready(page, "job")
    expect(page.get_by_role("link", name="Open the diagnosis")).to_be_visible()
    page.get_by_role("link", name="Traces").click()
    ready(page, "traces")
    row = page.locator(".trace").filter(has_text="incident.zip")
    expect(row).to_contain_text("Rank 6")
    page.once("dialog", lambda dialog: dialog.accept())
    row.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_a_dropped_folder_is_walked_to_its_end(site: Site, page: Page) -> None:
    page.goto(site.url + "/")
    ready(page, "traces")
    body = """async () => {
      const { filesOfEntries } = await import("/assets/modules/upload_view.mjs");
      const file = (name) => ({ name, isFile: true, file: (done) => done(new File(["x"], name)) });
      const folder = (name, parts) => ({
        name, isFile: false,
        createReader: () => { const left = [...parts, []]; return { readEntries: (done) => done(left.shift()) }; },
      });
      const root = folder("run", [[file("a"), folder("sub", [[file("b")], [file("c")]])], [file("d")]]);
      return (await filesOfEntries([root, file("e")])).map(({ path }) => path);
    }"""
    assert page.evaluate(body) == ["run/a", "run/sub/b", "run/sub/c", "run/d", "e"]
