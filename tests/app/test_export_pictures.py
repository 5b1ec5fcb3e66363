"""What the pictures of an exported file hold, and what the file says of the rest."""

from __future__ import annotations

import base64
import csv
import dataclasses
import gzip
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mycroft.app import export, export_pictures, export_script
from mycroft.app.export_data import collect
from mycroft.app.open_stores import OpenStores
from mycroft.app.queries import TraceReader
from mycroft.app.reads import blame, flows, timeline
from mycroft.loaders import pyramid
from tests.app import flow_trace
from tests.app.trace_writer import write_rows


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    path = tmp_path_factory.mktemp("pictures") / "t.duckdb"
    write_rows(path, flow_trace.rows("ring"))
    pyramid.build(path)
    return TraceReader(trace="t", title="t", generation=1, path=path, stores=OpenStores())


def answers_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="answers">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))


def test_the_file_allows_its_own_script_and_no_request(reader: TraceReader) -> None:
    text = export.to_html(collect(reader, pictures=True))
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0])
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'") and "connect-src" not in policy and "unsafe-eval" not in policy
    assert not re.search(r"^\s*(import|export) ", script, re.MULTILINE)


def test_the_file_holds_what_the_server_would_answer(reader: TraceReader) -> None:
    held = answers_of(export.to_html(collect(reader, pictures=True)))
    info = json.loads(unpacked(held["json"]["timeline/timeline"]))
    described = json.loads(json.dumps(timeline.describe(reader)))
    kept = len(info["levels"])
    assert info == {**described, "levels": described["levels"][:kept]} and kept > 1
    assert {key.split("/")[2] for key in held["tiles"]} == {str(level) for level in range(kept)}
    cells = timeline.tile(reader, "late", 0, 0, 0)
    assert cells is not None
    assert unpacked(held["tiles"]["timeline/late/0/0/0"]) == gzip.decompress(cells)
    (bars,) = held["bars"]["timeline"]
    assert unpacked(bars["body"]) == timeline.bars(reader, 0, info["span_us"], 0, flow_trace.WORLD - 1)
    assert json.loads(unpacked(held["json"]["flow/f1"]))["shape"] == "ring"


def test_ranks_are_told_with_what_they_sent_and_where_the_guilty_one_stands(reader: TraceReader) -> None:
    data = collect(reader, pictures=True)
    (guilty,) = data.verdict["findings"][0]["root_cause"]["ranks"]
    (row,) = [row for row in data.ranks if row.rank == guilty]
    sent = blame.sent_by_rank(reader, *(flows.stalled_of(reader, data.verdict["findings"][0]) or ("", 0)))[guilty]
    assert row.sent == sent and sent.done < sent.total
    assert row.stands is not None and row.stands.startswith("ring position ")
    text = export.to_html(data)
    for part in ('<th scope="col">G</th>', row.stands, "data-show="):
        assert part in text
    (written,) = [item for item in json.loads(export.to_json(data))["ranks"] if item["rank"] == guilty]
    assert written["sent"] == dataclasses.asdict(sent)
    head, *lines = csv.reader(export.to_csv(data).splitlines())
    (line,) = [line for line in lines if line[0] == str(guilty)]
    assert [line[head.index(f"sent_{name}")] for name in ("moved", "done", "total")] == [
        str(value) for value in (sent.moved, sent.done, sent.total)
    ]


def test_what_does_not_fit_is_left_out_whole_and_said(reader: TraceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = collect(reader, pictures=True).pictures.timeline
    assert whole is not None and not whole.said
    monkeypatch.setattr(export_pictures, "BARS_BYTES", 10)
    monkeypatch.setattr(export_pictures, "FLOW_BYTES", 10)
    first = [len(cells or b"") for key, cells in whole.tiles.items() if key.split("/")[1] == "0"]
    monkeypatch.setattr(export_pictures, "TILES_BYTES", sum(first))
    data = collect(reader, pictures=True)
    picture = data.pictures.timeline
    assert picture is not None and len(picture.info["levels"]) == 1
    assert {key.split("/")[1] for key in picture.tiles} == {"0"}
    text = export.to_html(data)
    assert "This file holds cells of" in text and "no operations one by one" in text
    assert "The flow of 12 ranks is too large for a file" in text
    monkeypatch.setattr(export_pictures, "TILES_BYTES", 10)
    text = export.to_html(collect(reader, pictures=True))
    assert "The timeline of 12 ranks is too large for a file" in text
    assert "<script" not in text


def test_bars_around_the_incident_are_kept_where_those_of_the_trace_are_too_many(
    reader: TraceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = timeline.bars

    def bounded(reader: TraceReader, first: int, last: int, low: int, high: int) -> bytes:
        return whole(reader, first, last, low, high) if last - first < 6_000_000 else timeline.HEADER.pack(1, 0, 9, 0)

    monkeypatch.setattr(timeline, "bars", bounded)
    picture = collect(reader, pictures=True).pictures.timeline
    assert picture is not None
    (bars,) = picture.bars
    since = next(incident["since_us"] for incident in picture.info["incidents"])
    assert bars.first_us <= since <= bars.last_us and bars.last_us - bars.first_us < 6_000_000
    assert "only around the incidents" in picture.said


def test_a_module_of_another_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = tmp_path / "exported"
    exported.mkdir()
    (exported / "answers.mjs").write_text("export function answer() {}\n")
    monkeypatch.setattr(export_script, "_folder", lambda: tmp_path)
    build = export_script.script.__wrapped__
    for text, told in (
        ('import * as all from "./answers.mjs";\n', "of a form that is not known"),
        ('import { missing } from "./answers.mjs";\n', "imports missing"),
        ('import { a } from "./start.mjs";\nexport const a = 1;\n', "imports itself"),
        ("const text = '</script>';\n", "end the script"),
    ):
        (exported / "start.mjs").write_text(text)
        with pytest.raises(export_script.ScriptError, match=told):
            build()
