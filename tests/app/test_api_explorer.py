"""The routes of the explorer: what they answer, what they refuse, and that no limit is silent."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dash import Dash
from flask.testing import FlaskClient

from mycroft.app import access, shares, similar
from mycroft.app.config import AppConfig
from mycroft.app.server import create_app
from mycroft.loaders.catalogue import Catalogue
from tests.app import page_trace

TOKEN = "a-token-of-enough-length"
VERDICTS = Path(__file__).parents[1] / "data" / "verdicts"
SQL_ROWS = 50


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    data_dir = tmp_path_factory.mktemp("explorer")
    catalogue = Catalogue(data_dir)
    for trace, variant in (("mine", "hang_root_cause"), ("other", "slow_rank"), ("twin", "hang_root_cause")):
        verdict = json.loads((VERDICTS / f"{variant}.json").read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory(dir=data_dir) as folder:
            page_trace.write(Path(folder) / "trace.duckdb", verdict)
            summary = {"status": verdict["status"], similar.SUMMARY_KEY: similar.kept_of(verdict)}
            catalogue.publish(trace, Path(folder) / "trace.duckdb", title=trace, summary=summary)
    catalogue.close()
    return create_app(AppConfig(data_dir=data_dir, token=TOKEN, sql_rows_max=SQL_ROWS))


@pytest.fixture
def owner(app: Dash) -> FlaskClient:
    client = app.server.test_client()
    client.set_cookie(access.SESSION_COOKIE, access.session_value(TOKEN))
    return client


@pytest.fixture
def reader(app: Dash) -> FlaskClient:
    """A visitor with a share of `mine`."""
    state = app.server.extensions["mycroft"][1]
    client = app.server.test_client()
    client.set_cookie(access.SHARE_COOKIE, shares.create(state, trace="mine", target="/t/mine", expiry_s=600)[1])
    return client


def ask(client: FlaskClient, path: str, **query: Any) -> Any:
    return client.get(f"/api/v1/traces/{path}", query_string=query)


def test_find_answers_places_and_says_what_it_cut(owner: FlaskClient) -> None:
    body = ask(owner, "mine/g/1/find", q="rank 5").json
    assert body["hits"][0] == {"kind": "Rank", "title": "rank 5", "detail": "hx-a02", "href": "/t/mine/rank/5?g=1"}
    assert ask(owner, "mine/find", q="train step").json["more"] == ["Log line"]
    assert ask(owner, "mine/find").json["hits"] == []


def test_answers_are_files_of_the_same_rows(owner: FlaskClient) -> None:
    query = "SELECT rank, pid FROM ranks ORDER BY rank"
    as_csv, as_parquet = (ask(owner, f"mine/sql.{kind}", q=query) for kind in ("csv", "parquet"))
    names, *rows = csv.reader(io.StringIO(as_csv.text))
    frame = pl.read_parquet(io.BytesIO(as_parquet.data))
    assert names == frame.columns == ["rank", "pid"]
    assert rows == [[str(v) if v is not None else "" for v in row] for row in frame.iter_rows()]
    assert "mycroft-mine-g1-query.csv" in as_csv.headers["Content-Disposition"]
    assert "X-Mycroft-Cut" not in as_csv.headers


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_of_the_first_rows_says_so_in_its_name(owner: FlaskClient, kind: str) -> None:
    answer = ask(owner, f"mine/sql.{kind}", q="SELECT * FROM coll_ops")
    assert answer.headers["X-Mycroft-Cut"] == str(SQL_ROWS)
    assert f"-first-{SQL_ROWS}-rows.{kind}" in answer.headers["Content-Disposition"]


@pytest.mark.parametrize("query", ["", "  ", "x" * 8001, "DROP TABLE ranks", "SELECT 1; SELECT 2", "SELECT nothing"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_is_no_single_select_is_refused(owner: FlaskClient, kind: str, query: str) -> None:
    answer = ask(owner, f"mine/sql.{kind}", q=query)
    assert answer.status_code == 400
    assert answer.json["error"]


def test_exports_are_files_named_after_the_trace(owner: FlaskClient) -> None:
    for what, kind, begins in (
        ("export.md", "text/markdown", b"**Hang: "),
        ("ranks.csv", "text/csv", b"rank,role,host,gpu,pid,progress"),
        ("perfetto.json.gz", "application/gzip", b"\x1f\x8b"),
    ):
        answer = ask(owner, f"mine/{what}")
        assert (answer.status_code, answer.mimetype) == (200, kind)
        assert answer.data.startswith(begins)
        assert "mycroft-mine-g1" in answer.headers["Content-Disposition"]


def test_exports_can_be_redacted(owner: FlaskClient) -> None:
    for what in ("export.md", "ranks.csv"):
        answer = ask(owner, f"mine/{what}", redact=1)
        assert "hx-a0" not in answer.text and "host-" in answer.text
        assert "-redacted." in answer.headers["Content-Disposition"]


def test_the_ranks_that_the_verdict_names_come_first(owner: FlaskClient) -> None:
    rows = list(csv.reader(io.StringIO(ask(owner, "mine/ranks.csv").text)))
    assert rows[1][:3] == ["5", "root cause", "hx-a02"]
    assert len(rows) == 17


def test_operations_are_packed_json_and_a_limit_is_in_the_name(owner: FlaskClient) -> None:
    whole = json.loads(gzip.decompress(ask(owner, "mine/perfetto.json.gz").data))
    assert whole["otherData"]["left_out"] == ""
    answer = ask(owner, "mine/perfetto.json.gz", n=7)
    assert json.loads(gzip.decompress(answer.data))["otherData"]["written"] == 7
    assert "-newest-7-operations.perfetto.json.gz" in answer.headers["Content-Disposition"]
    assert answer.headers["X-Mycroft-Cut"] == "7"
    assert ask(owner, "mine/perfetto.json.gz", n="x").status_code == 400


@pytest.mark.parametrize("what", ["find", "sql.csv", "sql.parquet", "export.md", "ranks.csv", "perfetto.json.gz"])
def test_a_share_reads_its_trace_and_no_other(reader: FlaskClient, what: str) -> None:
    assert ask(reader, f"mine/{what}", q="SELECT 1").status_code == 200
    assert ask(reader, f"other/{what}", q="SELECT 1").status_code == 403


def test_notes_are_written_by_the_owner_and_read_by_a_share(owner: FlaskClient, reader: FlaskClient) -> None:
    body = {"incident": "f1", "text": "disk of hx-a03 answers again", "author": "Ada"}
    write = {access.WRITE_HEADER: "1"}
    made = owner.post("/api/v1/traces/mine/notes", json=body, headers=write)
    assert made.status_code == 201
    assert reader.post("/api/v1/traces/mine/notes", json=body, headers=write).status_code == 403
    listed = ask(reader, "mine/notes", incident="f1").json["notes"]
    assert [(note["author"], note["text"]) for note in listed] == [("Ada", body["text"])]
    assert ask(reader, "other/notes").status_code == 403
    address = f"/api/v1/traces/mine/notes/{made.json['note']}"
    assert reader.delete(address, headers=write).status_code == 403
    assert owner.delete(address).status_code == 403  # without the header of a write
    assert owner.delete(address, headers=write).status_code == 204
    assert owner.delete(address, headers=write).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"incident": "f9", "text": "x"},
        {"incident": "verdict", "text": "x"},
        {"incident": "f1", "text": ""},
        {"incident": "f1", "text": 3},
        {"incident": ["f1"], "text": "x"},
        {"incident": "f1", "text": "x" * 5000},
        [],
    ],
)
def test_a_note_that_is_none_is_refused(owner: FlaskClient, body: Any) -> None:
    answer = owner.post("/api/v1/traces/mine/notes", json=body, headers={access.WRITE_HEADER: "1"})
    assert answer.status_code == 400 and answer.json["error"]


def test_similar_incidents_are_of_traces_that_the_visitor_may_read(owner: FlaskClient, reader: FlaskClient) -> None:
    mine, shared = ask(owner, "mine/d/f1/similar").json, ask(reader, "mine/d/f1/similar").json
    assert [item["trace"] for item in mine["similar"]] == ["twin"]
    assert mine["similar"][0]["same_shape"] and mine["similar"][0]["hosts"] == ["hx-a03"]
    assert (shared["similar"], shared["traces"]) == ([], 0)
    assert ask(owner, "mine/d/f9/similar").status_code == 404


def laid_out(client: FlaskClient, pathname: str, search: str) -> str:
    """Return what the router answers for a page, as text."""
    body = {
        "output": "..page.children...page-title.data..",
        "outputs": [{"id": "page", "property": "children"}, {"id": "page-title", "property": "data"}],
        "inputs": [{"id": "url", "property": "pathname", "value": pathname}],
        "state": [{"id": "url", "property": "search", "value": search}],
        "changedPropIds": ["url.pathname"],
    }
    answer = client.post("/_dash-update-component", json=body)
    assert answer.status_code == 200
    return answer.text


def test_a_share_compares_windows_of_its_trace_and_sees_no_other(owner: FlaskClient, reader: FlaskClient) -> None:
    own = laid_out(reader, "/compare", "?a=mine&b=mine&ta=0-20s&tb=20-40s")
    assert "What stands out" in own and '"other"' not in own
    for search in ("?a=mine&b=other", "?a=other&b=mine"):
        assert "Not yours to see" in laid_out(reader, "/compare", search)
        assert "What stands out" in laid_out(owner, "/compare", search)
    assert "Not here" in laid_out(owner, "/compare", "?a=mine&b=gone")


def test_a_share_reads_notes_and_is_told_of_no_other_trace(owner: FlaskClient, reader: FlaskClient) -> None:
    page = laid_out(reader, "/t/mine/d/f1", "")
    assert "notes-list" in page and "notes-add" not in page and "Seen before" not in page
    assert "twin" not in page
    assert "Seen before" in laid_out(owner, "/t/mine/d/f1", "")
