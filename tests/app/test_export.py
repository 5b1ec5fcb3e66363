"""The export: one file that shows what the page shows, and asks nobody for anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from dash import dcc, html

from mycroft.app.export import Excerpt, ExportData, ExportedNote, RankRow, to_html, to_json, to_markdown
from mycroft.app.static_html import write

VERDICTS = sorted((Path(__file__).resolve().parents[1] / "data" / "verdicts").glob("*.json"))
VOID = {"meta", "br", "hr", "img", "input", "link", "wbr", "col"}


class Document(HTMLParser):
    """Collects tags, ids and links, and checks that every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "xlink:href", "action"}:
                self.links.append(value or "")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def data_of(path: Path) -> ExportData:
    body = json.loads(path.read_text())
    verdict: dict[str, Any] = body.get("verdict", body)
    places = {
        (claim["file"], claim["line"])
        for finding in verdict["findings"]
        for claim in finding["evidence"]
        if claim.get("file") and claim.get("line")
    }
    return ExportData(
        trace="run-7",
        title="Run 7",
        generation=1,
        verdict=verdict,
        ranks=[RankRow(rank=rank, role="waits", host=f"hx-a0{rank % 4}") for rank in range(64)],
        excerpts=[
            Excerpt(file=file, line=line, first=max(1, line - 1), lines=("before", "the line </pre>", "after"))
            for file, line in sorted(places)
        ],
        hosts=[f"hx-a0{number}" for number in range(10)],
    )


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_every_variant_is_one_sound_document_without_scripts_or_requests(path: Path) -> None:
    data = data_of(path)
    text = to_html(data)
    document = Document(text)
    assert len(text.encode()) < 2_000_000
    assert not {"script", "iframe", "object", "embed", "form", "button", "link", "img"} & set(document.tags)
    assert all(link.startswith("#") for link in document.links)
    assert not re.search(r"url\([\"']?(?!data:|#)", text)
    assert len(document.ids) == len(set(document.ids))
    assert {link[1:] for link in document.links} <= set(document.ids)


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_every_finding_and_claim_is_in_the_document(path: Path) -> None:
    data = data_of(path)
    words = " ".join(Document(to_html(data)).text.split())
    for finding in data.verdict["findings"]:
        assert " ".join(finding["summary"].split())[:60] in words
        for claim in finding["evidence"]:
            assert " ".join(claim["claim"].split())[:60] in words
    if not data.verdict["findings"]:
        assert " ".join(data.verdict["summary"].split())[:60] in words


@pytest.mark.parametrize("path", VERDICTS, ids=lambda path: path.stem)
def test_redaction_reaches_every_part(path: Path) -> None:
    data = data_of(path)
    for text in (to_html(data, redact=True), to_json(data, redact=True)):
        assert "hx-a0" not in text
    assert json.loads(to_json(data, redact=True))["redacted"] is True


def test_notes_are_in_every_export_beside_their_incident_and_redacted_without_their_author() -> None:
    data = data_of(next(path for path in VERDICTS if path.stem == "cascade"))
    text = "cordoned hx-a03, <b>see</b> ticket 12"
    data = replace(data, notes=[ExportedNote(incident="f1", author="Ada", created=1_772_000_000.0, text=text)])
    section = to_html(data).split('<section id="finding-f2"')[0]
    assert "cordoned hx-a03, &lt;b&gt;see" in section and "Ada" in section and "2026-02-25" in section
    assert json.loads(to_json(data))["notes"] == [
        {"incident": "f1", "author": "Ada", "created": 1_772_000_000.0, "text": text}
    ]
    assert "**Notes**" in to_markdown(data) and "Ada, 2026-02-25 06:13 UTC: cordoned hx-a03" in to_markdown(data)
    for redacted in (to_html(data, redact=True), to_json(data, redact=True), to_markdown(data, redact=True)):
        assert "ticket 12" in redacted and "Ada" not in redacted and "hx-a03" not in redacted


def test_both_themes_are_in_the_document() -> None:
    text = to_html(data_of(VERDICTS[0]))
    assert "prefers-color-scheme: dark" in text
    assert ':root[data-theme="dark"]' not in text


def test_links_lead_to_ranks_and_lines_of_the_document() -> None:
    data = data_of(next(path for path in VERDICTS if path.stem == "cascade"))
    links = Document(to_html(data)).links
    assert any(re.fullmatch(r"#rank-\d+", link) for link in links)
    assert any(re.fullmatch(r"#file-\d+-\d+", link) for link in links)
    assert any(re.fullmatch(r"#f\d-claim-.*", link) for link in links)


def test_the_static_writer_escapes_and_leaves_out_what_needs_a_script() -> None:
    tree = html.Div(
        [
            "<b>",
            html.Button("press"),
            dcc.Link("inside", href="/t/x"),
            html.A("out", href="javascript:alert(1)"),
            html.Span("x", title='"><script>', style={"color": "red"}),
            None,
            5,
        ],
        className="a",
    )
    text = write(tree, relink=lambda href: "#there" if href == "/t/x" else None)
    assert (
        text == '<div class="a">&lt;b&gt;inside<span>out</span><span title="&quot;&gt;&lt;script&gt;">x</span>5</div>'
    )
