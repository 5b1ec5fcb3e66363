"""Notes on a diagnosis, and the incidents that were like it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from mycroft.app import similar
from mycroft.loaders.catalogue import Catalogue
from tests.app import page_trace
from tests.browser import published
from tests.browser.conftest import ready
from tests.browser.serving import Site
from tests.browser.test_pages import ALL_RULES, AXE, violations

pytestmark = pytest.mark.browser


def test_a_note_is_written_read_through_a_share_and_deleted(
    site: Site, page: Page, new_context: Callable[..., BrowserContext]
) -> None:
    page.goto(site.page("slow_rank", "/d/f1"))
    ready(page, "diagnosis")
    page.locator("#notes-author").fill("Ada")
    page.locator("#notes-text").fill("NIC swapped\n<b>at</b> 04:40")
    page.keyboard.press("Control+Enter")
    note = page.locator(".notes li")
    expect(note).to_contain_text("<b>at</b> 04:40")
    expect(note).to_contain_text("Ada")
    expect(page.locator("#notes-text")).to_have_value("")
    # What goes into a channel has it from then on.
    summary = page.locator("#copy-summary")
    expect(summary).to_have_attribute("data-copy", re.compile(r"\*\*Notes\*\*\n\n- Ada, .* UTC: NIC swapped"))
    page.evaluate(AXE)
    assert violations(page, ALL_RULES) == []

    made = page.request.post(
        f"{site.url}/api/v1/traces/slow-rank/shares",
        data={"target": "/t/slow-rank/d/f1"},
        headers={"X-Mycroft": "1"},
    ).json()
    visitor = new_context().new_page()
    visitor.goto(site.url + made["path"])
    ready(visitor, "diagnosis")
    expect(visitor.locator(".notes li")).to_contain_text("NIC swapped")
    expect(visitor.locator("#copy-summary")).to_have_attribute("data-copy", re.compile("NIC swapped"))
    expect(visitor.get_by_role("button", name="Add note")).to_have_count(0)
    expect(visitor.get_by_role("button", name="Delete the note")).to_have_count(0)
    expect(visitor.get_by_role("heading", name="Seen before")).to_have_count(0)

    page.get_by_role("button", name="Delete the note of Ada").click()
    expect(page.locator("#notes-list")).to_contain_text("No notes yet.")
    expect(summary).not_to_have_attribute("data-copy", re.compile("NIC swapped"))


@pytest.fixture
def twin(site: Site) -> Iterator[str]:
    """An earlier trace with the same fault."""
    verdict = json.loads((published.VERDICTS / "hang_root_cause.json").read_text(encoding="utf-8"))
    catalogue = Catalogue(site.data_dir)
    with tempfile.TemporaryDirectory(dir=site.data_dir) as folder:
        page_trace.write(Path(folder) / "trace.duckdb", verdict)
        summary = {"status": "hang", "summary": "earlier", similar.SUMMARY_KEY: similar.kept_of(verdict)}
        catalogue.publish("twin", Path(folder) / "trace.duckdb", title="An earlier night", summary=summary)
    yield "twin"
    catalogue.remove("twin")
    catalogue.close()


def test_an_incident_leads_to_those_that_were_like_it(site: Site, page: Page, twin: str) -> None:
    page.goto(site.page("hang_root_cause", "/d/f1"))
    ready(page, "diagnosis")
    panel = page.locator(".panel", has=page.get_by_role("heading", name="Seen before"))
    row = panel.locator("tbody tr")
    for part in ("An earlier night", "2026-03-02 04:11:09.120", "same host: hx-a03", "same shape of waiting"):
        expect(row).to_contain_text(part)
    row.get_by_role("link").click()
    page.wait_for_url(f"{site.url}/t/{twin}/d/f1")
    ready(page, "diagnosis")
