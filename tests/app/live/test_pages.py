"""The live pages: what they say of jobs, incidents and a watch that stands still; who may see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dash import Dash

from mycroft.app.access import AccessError
from mycroft.app.config import AppConfig
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.state import Incident, LiveError, LiveState
from mycroft.app.pages import live
from mycroft.app.processes import Server
from mycroft.app.server import create_app
from mycroft.app.state import State
from mycroft.tracer.agent.sender import Collector as Client
from tests.app.components import text_of
from tests.app.live.test_incidents import finding
from tests.integration.http_client import Client as Browser
from tests.tracer.agent.batches import a_batch, numbered

TOKEN = "a-token-of-enough-length"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    return create_app(AppConfig(data_dir=tmp_path_factory.mktemp("live"), token=TOKEN))


@pytest.fixture(scope="module")
def state(app: Dash) -> LiveState:
    return LiveState(app.server.extensions["mycroft"][1])


@pytest.fixture(scope="module")
def incident(state: LiveState) -> Incident:
    state.see_job(
        "run-1",
        title="training run",
        processes=["a", "b"],
        facts={"world_size": 16, "processes": 2, "ended": 0, "hosts": ["h1"], "hosts_count": 1, "silent": []},
    )
    state.set_numbers({"tick": {"seconds": 0.1, "jobs": 1, "problems": {}}})
    found = finding("link_fault", (5,), hosts=("h1",)) | {
        "chain": [{"waiter": 1, "blocker": 5, "group": "dp", "why": "not entered"}],
        "next_steps": ["ip link show   # on h1"],
    }
    opened = state.open_incident("run-1", found, why="half of the ranks stand")
    request = state.ask(opened.incident, "h1", ["a"])
    state.arrived(opened.incident, host="h1", name="rank5.stacks.txt", size=1200)
    state.end_request(request, ["rank5.stdout.log: goes to no file"])
    state.published(opened.incident, trace="run-1", generation=3, page="f1")
    state.plan_alert(opened.incident, "on-call", "opened")
    return state.incident(opened.incident)


def said(component: Any) -> str:
    return text_of(component)


@pytest.fixture
def asking(app: Dash) -> Iterator[None]:
    headers = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}"}
    with app.server.test_request_context("/live", headers=headers):
        yield


@pytest.mark.usefixtures("asking")
def test_list_names_open_incidents_and_jobs(incident: Incident) -> None:
    text = said(live.fleet_layout(None))  # type: ignore[arg-type]
    assert "training run" in text and "link_fault at [5]" in text and "1 open incident" in text
    assert "stands still" not in text


@pytest.mark.usefixtures("asking")
def test_job_says_what_is_seen_of_it(incident: Incident) -> None:
    text = said(live.job_layout(None, job="run-1"))  # type: ignore[arg-type]
    assert "2 seen of 16" in text and "h1" in text and "not published yet" in text


@pytest.mark.usefixtures("asking")
def test_incident_shows_verdict_evidence_revisions_and_alerts(incident: Incident) -> None:
    layout = live.incident_layout(None, job="run-1", incident=incident.incident)  # type: ignore[arg-type]
    text = said(layout)
    for part in (
        "rank 1 waits for rank 5 in dp (not entered)",
        "rank5.stacks.txt",
        "goes to no file",
        "half of the ranks stand",
        "on-call",
        "not taken: waits",
    ):
        assert part in text, part
    assert "/t/run-1/d/f1?g=3" in str(layout)


@pytest.mark.usefixtures("asking")
def test_watch_that_stands_still_is_said_on_every_page(
    incident: Incident, state: LiveState, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = state.numbers()["tick"][0]
    monkeypatch.setattr(live, "now", lambda: at + 60)
    for body in (live.fleet_body(state), live.job_body(state, "run-1"), live.incident_body(state, incident.incident)):
        assert "The watch stands still" in said(body)


@pytest.mark.usefixtures("asking")
def test_unknown_names_are_told(incident: Incident) -> None:
    with pytest.raises(LiveError, match="no job 'x'"):
        live.job_layout(None, job="x")  # type: ignore[arg-type]
    with pytest.raises(LiveError, match="no incident"):
        live.incident_layout(None, job="run-1", incident="x")  # type: ignore[arg-type]


def test_nobody_sees_them_without_access(app: Dash, incident: Incident) -> None:
    with app.server.test_request_context("/live", headers={"Host": "localhost"}):
        for lay_out in (
            lambda: live.fleet_layout(None),  # type: ignore[arg-type]
            lambda: live.job_layout(None, job="run-1"),  # type: ignore[arg-type]
            lambda: live.incident_layout(None, job="run-1", incident=incident.incident),  # type: ignore[arg-type]
        ):
            with pytest.raises(AccessError):
                lay_out()


def test_folder_without_a_watch_says_how_to_start_one(tmp_path: Path) -> None:
    text = said(live.fleet_body(LiveState(State(tmp_path))))
    assert "mycroft serve --live" in text and "mycroft agent URL" in text


@pytest.mark.slow
def test_one_server_collects_watches_and_shows(tmp_path: Path) -> None:
    config = AppConfig(data_dir=tmp_path / "data", port=0, web_workers=1)
    with Server(config, LiveConfig(data_dir=config.data_dir, port=0)) as server:
        assert server.live is not None and server.live.url == server.url
        client = Client(f"http://{server.live.host}:{server.live.port}")
        wire = numbered(a_batch(tmp_path / "rings"), 1)
        # It listens before it has started: the batch waits.
        assert client.post("/api/v1/batch", wire).status == 204
        assert client.post("/api/v1/batch", wire).status == 204
        client.close()
        browser = Browser(server.url)
        assert browser.get("/live").status == 200
        assert {"web", "ingest", "collect", "watch"} <= set(server.pids)
        collecting = Browser(f"http://{server.live.host}:{server.live.port}")
        assert "mycroft_batches_repeated_total 1" in collecting.get("/metrics").body.decode()
