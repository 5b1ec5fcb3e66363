"""Evidence of several jobs: a trace for each, and every page says so and leads to the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dash import Dash
from flask.testing import FlaskClient

from mycroft.app import access, shares, urls
from mycroft.app.config import AppConfig
from mycroft.app.ingest import Published, Stages, ingest
from mycroft.app.server import create_app
from mycroft.loaders.catalogue import Catalogue, TraceEntry
from mycroft.loaders.store import open_store
from tests import log_cases
from tests.app.test_callbacks import body_of, server_callbacks

ONE, TWO = "dataloader-stall-one-rank", "oom-killed-rank-srun"
TOKEN = "a-token-of-enough-length"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("several-jobs")


@pytest.fixture(scope="module")
def published(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    evidence = tmp_path_factory.mktemp("evidence")
    for name, content in log_cases.together(ONE, TWO, flat=False).items():
        (evidence / name).parent.mkdir(parents=True, exist_ok=True)
        (evidence / name).write_bytes(content)
    return ingest([evidence], data_dir, title="night", stages=Stages(lambda *_: None))


@pytest.fixture(scope="module")
def entries(data_dir: Path, published: Published) -> dict[str, TraceEntry]:
    catalogue = Catalogue(data_dir)
    found = {entry.trace_id: entry for entry in catalogue.list()}
    catalogue.close()
    return found


@pytest.fixture(scope="module")
def app(data_dir: Path, published: Published) -> Dash:
    return create_app(AppConfig(data_dir=data_dir))


def the_other(entries: dict[str, TraceEntry], published: Published) -> str:
    return next(trace for trace in entries if trace != published.trace)


def page(app: Dash, path: str, trace: str, client: FlaskClient | None = None) -> str:
    router = next(callback for callback in server_callbacks(app) if "page.children" in callback["output"])
    options: dict[str, Any] = {} if client else {"headers": {"Authorization": f"Bearer {TOKEN}"}}
    asked = client or app.server.test_client()
    return asked.post("/_dash-update-component", json=body_of(router, path, trace), **options).text.replace(
        "\\u002f", "/"
    )


def test_each_job_is_a_trace_with_its_own_verdict(entries: dict[str, TraceEntry], published: Published) -> None:
    assert len(entries) == 2
    assert entries[published.trace].summary["findings"] == 2
    other = entries[the_other(entries, published)]
    assert other.title == f"night · {TWO}"
    assert (other.summary["category"], other.summary["findings"]) == ("out_of_memory", 1)


def test_the_other_trace_holds_its_own_tables(data_dir: Path, entries: dict[str, TraceEntry], published: Published):
    other = entries[the_other(entries, published)]
    catalogue = Catalogue(data_dir)
    path = catalogue.path(other.trace_id, other.generation)
    catalogue.close()
    with open_store(path) as store:
        assert len(store.jobs()) == 1
        assert store.frame("SELECT count(*) FROM ranks").item() == 16
        assert store.frame("SELECT count(*) FROM file_blocks").item() > 0


def test_every_page_says_so_and_leads_to_the_other(
    app: Dash, entries: dict[str, TraceEntry], published: Published
) -> None:
    other = the_other(entries, published)
    for mine, theirs in ((published.trace, other), (other, published.trace)):
        for name in ("overview", "diagnosis", "rank", "stacks", "files", "sql"):
            params = {"incident": "f1"} if name == "diagnosis" else {"rank": 5} if name == "rank" else {}
            text = page(app, urls.path_of(name, trace=mine, **params), mine)
            assert "The tables and pictures here are those of" in text, name
            assert f"/t/{theirs}" in text, name


def test_a_visitor_is_told_and_led_nowhere(
    data_dir: Path, entries: dict[str, TraceEntry], published: Published
) -> None:
    app = create_app(AppConfig(data_dir=data_dir, token=TOKEN))
    state = app.server.extensions["mycroft"][1]
    mine, other = published.trace, the_other(entries, published)
    client = app.server.test_client()
    client.set_cookie(access.SHARE_COOKIE, shares.create(state, trace=mine, target=f"/t/{mine}", expiry_s=600)[1])
    text = page(app, f"/t/{mine}", mine, client)
    assert "The tables and pictures here are those of" in text
    assert f"/t/{other}" not in text


def test_a_file_of_the_other_job_says_where_its_content_is(
    app: Dash, data_dir: Path, entries: dict[str, TraceEntry], published: Published
) -> None:
    catalogue = Catalogue(data_dir)
    path = catalogue.path(published.trace, published.generation)
    catalogue.close()
    with open_store(path) as store:
        file = store.frame("SELECT min(file_id) FROM files WHERE job_id = 1").item()
    text = page(app, f"/t/{published.trace}/files/{file}", published.trace)
    assert f"/t/{the_other(entries, published)}/files/{file}" in text
