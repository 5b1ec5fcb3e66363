"""What a person does with the dashboard, from the folder on their disk to the colleague who opens the link."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import Watch, ready
from tests.browser.serving import Site

pytestmark = pytest.mark.browser
CASE = Path(__file__).parents[1] / "data" / "flight_recorder" / "stuck_dataloader"


def test_a_folder_becomes_a_verdict_and_a_link_that_a_colleague_can_open(
    site: Site, page: Page, new_context: Callable[..., BrowserContext], watch: Watch, tmp_path: Path
) -> None:
    truth = json.loads((CASE / "truth.json").read_text())
    (guilty,) = truth["root_cause"]["ranks"]

    page.goto(site.url + "/")
    ready(page, "traces")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a folder").click()
    chooser.value.set_files(str(CASE))

    ready(page, "job")
    page.get_by_role("link", name="Open the diagnosis").click()
    ready(page, "diagnosis")
    headline = page.get_by_role("heading", level=1)
    expect(headline).to_contain_text(f"ank {guilty}")
    said = headline.inner_text()
    expect(page.locator(".verdict")).to_contain_text("Root cause")

    page.locator(".fact").first.get_by_role("link").first.click()
    ready(page, "op")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{truth['op']} {truth['collective_seq_id']}")
    expect(page.locator("svg.picture")).to_contain_text(f"rank {guilty}")
    page.locator(f'svg a[href*="/rank/{guilty}"]').click()
    ready(page, "rank")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Rank {guilty}")
    page.get_by_role("navigation", name="Pages of this trace").get_by_role("link", name="Diagnosis").click()
    ready(page, "diagnosis")

    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Create link").click()
    link = page.get_by_label("Link, shown only now").input_value()
    assert link.startswith(site.url + "/s/")
    page.get_by_role("button", name="Close").click()

    colleague = new_context().new_page()
    colleague.goto(link)
    ready(colleague, "diagnosis")
    expect(colleague.get_by_role("heading", level=1)).to_have_text(said)
    assert "/s/" not in colleague.url
    expect(colleague.get_by_text("shared, read-only")).to_be_visible()
    expect(colleague.get_by_role("button", name="Share")).to_have_count(0)
    refused = colleague.request.delete(
        f"{site.url}/api/v1/traces/{page.url.split('/t/')[1].split('/')[0]}", headers={"X-Mycroft": "1"}
    )
    assert refused.status == 403
    assert colleague.request.get(f"{site.url}/api/v1/traces/healthy").status == 403

    page.locator("summary", has_text="Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="One HTML file", exact=True).click()
    exported = tmp_path / "export.html"
    download.value.save_as(exported)
    assert said in exported.read_text(encoding="utf-8")
