"""The live pages: what they say of jobs, incidents and a watch that stands still; who may see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dash import Dash

from mycroft.app import shares, urls
from mycroft.app.access import SHARE_COOKIE, AccessError
from mycroft.app.config import AppConfig
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.state import Incident, LiveError, LiveState
from mycroft.app.pages import live, share_dialog
from mycroft.app.pages.page import PageContext
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
    state.published(opened.incident, revision=1, trace="run-1", generation=3, page="f1")
    state.plan_alert(opened.incident, "on-call", "opened")
    return state.incident(opened.incident)


def context(address: str = "/live") -> PageContext:
    """What a page is given; the live pages read its address alone."""
    return cast("PageContext", SimpleNamespace(address=urls.parse(address)))


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
    layout = live.incident_layout(context(), job="run-1", incident=incident.incident)
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
    for body in (
        live.fleet_body(state),
        live.job_body(state, "run-1"),
        live.incident_body(state, "run-1", incident.incident),
    ):
        assert "The watch stands still" in said(body)


@pytest.mark.usefixtures("asking")
def test_unknown_names_are_told(incident: Incident) -> None:
    with pytest.raises(LiveError, match="no job 'x'"):
        live.job_layout(context(), job="x")
    with pytest.raises(LiveError, match="no incident"):
        live.incident_layout(context(), job="run-1", incident="x")


def test_body_that_looks_the_same_is_left_alone(
    app: Dash, incident: Incident, state: LiveState, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = state.numbers()["tick"][0]
    monkeypatch.setattr(live, "now", lambda: at)
    browser = app.server.test_client()
    headers = {"Host": "localhost", "Authorization": f"Bearer {TOKEN}"}
    address = f"/live/run-1/d/{incident.incident}"

    def poll(seen: str | None) -> tuple[int, dict[str, Any]]:
        asked = {
            "output": "..live-incident-body.children...live-incident-seen.data..",
            "outputs": [
                {"id": "live-incident-body", "property": "children"},
                {"id": "live-incident-seen", "property": "data"},
            ],
            "inputs": [{"id": "live-incident-tick", "property": "n_intervals", "value": 1}],
            "changedPropIds": ["live-incident-tick.n_intervals"],
            "state": [
                {"id": "live-incident-seen", "property": "data", "value": seen},
                {"id": "url", "property": "pathname", "value": address},
                {"id": "url", "property": "search", "value": ""},
            ],
        }
        answer = browser.post("/_dash-update-component", json=asked, headers=headers)
        return answer.status_code, (answer.get_json() or {}).get("response", {}) if answer.data else {}

    status, first = poll(None)
    assert status == 200 and "link_fault at [5]" in str(first["live-incident-body"])
    seen = first["live-incident-seen"]["data"]
    # Nothing is sent while nothing has changed, so that nothing on the page loses the focus.
    assert poll(seen) == (204, {})
    state.arrived(incident.incident, host="h1", name="rank5.fr.json", size=9)
    status, second = poll(seen)
    assert status == 200 and "rank5.fr.json" in str(second["live-incident-body"])


def test_nobody_sees_them_without_access(app: Dash, incident: Incident) -> None:
    with app.server.test_request_context("/live", headers={"Host": "localhost"}):
        for lay_out in (
            lambda: live.fleet_layout(context()),
            lambda: live.job_layout(context(), job="run-1"),
            lambda: live.incident_layout(context(), job="run-1", incident=incident.incident),
        ):
            with pytest.raises(AccessError):
                lay_out()


@pytest.fixture(scope="module")
def revised(state: LiveState, incident: Incident) -> Incident:
    """Another incident of the job, of which two things were thought."""
    opened = state.open_incident("run-1", finding("absent", (7,)), why="silence")
    state.revise(opened.incident, finding("dataloader", (7,), confidence="high"), why="a stack")
    state.published(opened.incident, revision=2, trace="run-1", generation=5, page="f1")
    # The publisher may be behind: what it publishes is of the revision for which it was asked.
    state.published(opened.incident, revision=1, trace="run-1", generation=4, page="f2")
    return state.incident(opened.incident)


@pytest.mark.usefixtures("asking")
def test_every_revision_stays_to_be_seen_with_its_own_diagnosis(revised: Incident) -> None:
    address = f"/live/run-1/d/{revised.incident}"
    newest = live.incident_layout(context(address), job="run-1", incident=revised.incident)
    assert "dataloader at [7]" in said(newest) and "/t/run-1/d/f1?g=5" in str(newest)
    assert f"{address}?rev=1" in str(newest) and f"{address}?rev=2" in str(newest)
    first = live.incident_layout(context(f"{address}?rev=1"), job="run-1", incident=revised.incident)
    text = said(first)
    assert "This is revision 1 of 2" in text and "Open the newest" in text
    assert text.index("absent at [7]") < text.index("dataloader at [7]")
    assert "/t/run-1/d/f2?g=4" in str(first) and "g=5" not in str(first)
    with pytest.raises(LiveError, match="no revision 3, only 1 to 2"):
        live.incident_layout(context(f"{address}?rev=3"), job="run-1", incident=revised.incident)


def test_shared_link_opens_the_incidents_of_its_job_and_nothing_else(
    app: Dash, state: LiveState, incident: Incident, revised: Incident
) -> None:
    target = share_dialog_target(app, f"/live/run-1/d/{revised.incident}")
    # The revision that was the newest when the link was made.
    assert target == f"/live/run-1/d/{revised.incident}?rev=2"
    other = state.open_incident("run-2", finding(), why="")
    _, token = shares.create(app.server.extensions["mycroft"][1], trace="run-1", target=target, expiry_s=60.0)
    browser = app.server.test_client()
    opened = browser.get(f"/s/{token}", headers={"Host": "localhost"})
    assert opened.status_code == 303 and opened.headers["Location"].endswith(target)
    cookie = {"Host": "localhost", "Cookie": f"{SHARE_COOKIE}={token}"}
    with app.server.test_request_context(target, headers=cookie):
        page = live.incident_layout(context(target), job="run-1", incident=revised.incident)
        text = said(page)
        assert "dataloader at [7]" in text and "shared, read-only" in text
        # Not who was alerted, nor what goes on elsewhere, nor ways to make more links.
        assert "Alerts" not in text and "share-dialog" not in str(page) and "'/live'" not in str(page)
        for closed in (
            lambda: live.fleet_layout(context()),
            lambda: live.job_layout(context(), job="run-1"),
            lambda: live.incident_layout(context(), job="run-2", incident=other.incident),
        ):
            with pytest.raises(AccessError):
                closed()
        # An incident of another job below the name of this one.
        with pytest.raises(LiveError, match="no incident"):
            live.incident_layout(context(), job="run-1", incident=other.incident)
    shares.revoke(
        app.server.extensions["mycroft"][1],
        trace="run-1",
        share_id=shares.of_trace(app.server.extensions["mycroft"][1], "run-1")[0].share_id,
    )
    with app.server.test_request_context(target, headers=cookie), pytest.raises(AccessError):
        live.incident_layout(context(target), job="run-1", incident=revised.incident)


def share_dialog_target(app: Dash, pathname: str) -> str:
    with app.server.app_context():
        return share_dialog.pinned(urls.parse(pathname), pathname)


@pytest.mark.parametrize("target", ["/live/run-1", "/live", "/live/run-2/d/x", "//live/run-1/d/x", "/live/run-1/d/x\n"])
def test_share_leads_to_incidents_of_its_own_job_only(target: str) -> None:
    assert shares.covers("/live/run-1/d/x?rev=1", trace="run-1")
    assert not shares.covers(target, trace="run-1")


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
