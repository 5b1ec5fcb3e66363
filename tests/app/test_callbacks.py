"""Callbacks share one endpoint: what a page hides, a callback must refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dash import Dash
from flask.testing import FlaskClient

from mycroft.app import access, queries, shares, urls
from mycroft.app.config import AppConfig
from mycroft.app.ingest import Published, Stages, ingest
from mycroft.app.server import create_app

CASES = Path(__file__).resolve().parents[1] / "data" / "flight_recorder"
SECRET = "zzsecret"
TOKEN = "a-token-of-enough-length"
PATH_VALUES = {
    "incident": "f1",
    "comm": "x",
    "seq": 5,
    "rank": 5,
    "host": "node-0",
    "file": 0,
    "job": "j",
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("callbacks")


def load(case: str, data_dir: Path, title: str) -> Published:
    return ingest([CASES / case], data_dir, title=title, stages=Stages(lambda *_: None))


@pytest.fixture(scope="module")
def other(data_dir: Path) -> str:
    return load("stuck_dataloader", data_dir, SECRET).trace


@pytest.fixture(scope="module")
def mine(data_dir: Path) -> str:
    return load("healthy", data_dir, "mine").trace


@pytest.fixture(scope="module")
def app(data_dir: Path) -> Dash:
    return create_app(AppConfig(data_dir=data_dir, token=TOKEN))


@pytest.fixture(scope="module")
def visitor(app: Dash, mine: str) -> FlaskClient:
    state = app.server.extensions["mycroft"][1]
    client = app.server.test_client()
    client.set_cookie(access.SHARE_COOKIE, shares.create(state, trace=mine, target=f"/t/{mine}", expiry_s=600)[1])
    return client


def invented(prop: str, path: str, trace: str) -> Any:
    """A value for an input that would do the most: clicked, ticking, and of the given trace."""
    return {
        "pathname": path,
        "search": "",
        "hash": "#L1",
        "href": path,
        "n_intervals": 1,
        "n_clicks": 1,
        "submit_n_clicks": 1,
        "data": trace,
        "value": "SELECT * FROM files",
    }.get(prop)


def body_of(callback: dict[str, Any], path: str, trace: str) -> dict[str, Any]:
    """What the browser would send to run a callback."""

    def concrete(entry: dict[str, Any]) -> Any:
        if entry["id"].startswith("{"):
            spec = {key: trace if value == ["ALL"] else value for key, value in json.loads(entry["id"]).items()}
            return [{"id": spec, "property": entry["property"], "value": 1}]
        return {**entry, "value": invented(entry["property"], path, trace)}

    output = callback["output"]
    several = output.startswith("..")
    # After an @ stands what tells duplicates of one output apart; it belongs to the property.
    names = [name.rsplit(".", 1) for name in (output[2:-2].split("...") if several else [output])]
    outputs = [{"id": id_, "property": prop} for id_, prop in names]
    inputs = [concrete(entry) for entry in callback["inputs"]]
    first = inputs[0][0] if isinstance(inputs[0], list) else inputs[0]
    changed = first["id"] if isinstance(first["id"], str) else json.dumps(first["id"], sort_keys=True)
    return {
        "output": output,
        "outputs": outputs if several else outputs[0],
        "inputs": inputs,
        "state": [concrete(entry) for entry in callback["state"]],
        "changedPropIds": [f"{changed}.{first['property']}"],
    }


def paths_of(trace: str) -> Iterator[str]:
    for page, template in urls.TEMPLATES:
        names = [part[1:-1] for part in template.split("/") if part.startswith("<")]
        yield urls.path_of(page, **{name: trace if name == "trace" else PATH_VALUES[name] for name in names})


def server_callbacks(app: Dash) -> list[dict[str, Any]]:
    listed = app.server.test_client().get("/_dash-dependencies", headers={"Authorization": f"Bearer {TOKEN}"}).json
    return [callback for callback in listed if callback["clientside_function"] is None]


def test_no_callback_tells_a_share_anything_of_another_trace(app: Dash, visitor: FlaskClient, other: str) -> None:
    callbacks = server_callbacks(app)
    assert callbacks
    for callback in callbacks:
        for path in paths_of(other):
            answer = visitor.post("/_dash-update-component", json=body_of(callback, path, other))
            assert answer.status_code in {200, 204, 403}, (callback["output"], path, answer.text[:300])
            assert SECRET not in answer.text.replace(other, ""), (callback["output"], path)
            assert "Loader.next_batch" not in answer.text, (callback["output"], path)


def test_no_callback_lets_a_share_change_anything(app: Dash, visitor: FlaskClient, mine: str, other: str) -> None:
    for callback in server_callbacks(app):
        for trace in (mine, other):
            visitor.post("/_dash-update-component", json=body_of(callback, f"/t/{trace}", trace))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    listed = app.server.test_client().get("/api/v1/traces", headers=headers).json["traces"]
    assert {entry["trace"] for entry in listed} == {mine, other}


def test_every_callback_runs_for_whoever_may(app: Dash, mine: str) -> None:
    client = app.server.test_client()
    client.set_cookie(access.SESSION_COOKIE, access.session_value(TOKEN))
    for callback in server_callbacks(app):
        if "trace-remove" not in str(callback["inputs"]) and "trace-confirm" not in str(callback["inputs"]):
            answer = client.post("/_dash-update-component", json=body_of(callback, f"/t/{mine}/files/0", mine))
            assert answer.status_code in {200, 204}, (callback["output"], answer.text[:300])


def test_the_same_callbacks_do_tell_whoever_may_know(app: Dash, other: str) -> None:
    client = app.server.test_client()
    client.set_cookie(access.SESSION_COOKIE, access.session_value(TOKEN))
    router = next(callback for callback in server_callbacks(app) if "page.children" in callback["output"])
    answer = client.post("/_dash-update-component", json=body_of(router, f"/t/{other}/d/f1", other))
    assert "Loader.next_batch" in answer.text


def test_every_page_is_laid_out_for_its_own_share(app: Dash, visitor: FlaskClient, mine: str) -> None:
    router = next(callback for callback in server_callbacks(app) if "page.children" in callback["output"])
    for path in paths_of(mine):
        answer = visitor.post("/_dash-update-component", json=body_of(router, path, mine))
        assert answer.status_code == 200, path


def test_removing_a_trace_closes_its_shares_for_good(tmp_path: Path) -> None:
    app = create_app(AppConfig(data_dir=tmp_path))
    published = load("healthy", tmp_path, "x")
    client = app.server.test_client()
    write = {access.WRITE_HEADER: "1"}
    made = client.post(f"/api/v1/traces/{published.trace}/shares", json={}, headers=write).json
    assert client.delete(f"/api/v1/traces/{published.trace}", headers=write).status_code == 204
    assert client.get(f"/api/v1/traces/{published.trace}").status_code == 404
    assert load("healthy", tmp_path, "x").trace == published.trace
    assert app.server.test_client().get(made["path"]).status_code == 410


def test_a_generation_that_is_gone_is_said_with_the_newest(app: Dash, mine: str) -> None:
    client = app.server.test_client()
    answer = client.get(f"/api/v1/traces/{mine}/g/7/verdict", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 404 and "newest is 1" in answer.json["error"]


def test_a_third_query_at_once_is_asked_to_wait_its_turn(app: Dash, mine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "SQL_WAIT_S", 0.01)
    client = app.server.test_client()
    address = f"/api/v1/traces/{mine}/sql?q=SELECT%201"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with queries._SQL_AT_ONCE, queries._SQL_AT_ONCE:
        assert client.get(address, headers=headers).status_code == 503
    assert client.get(address, headers=headers).status_code == 200
