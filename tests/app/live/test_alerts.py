"""Alerts: what is said, that it is said once, signed, and again where it was not taken."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from mycroft.app.alerts import Alerter, Target, body, incident_link, read_targets
from mycroft.app.config import ConfigError
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.state import State
from tests.app.live.test_incidents import Clock, finding


class Hook:
    """A server that keeps what it is sent and answers as told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((dict(self.headers), data))
                self.send_response(outer.status)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    opened = Hook()
    yield opened
    opened.close()


@pytest.fixture
def state(tmp_path: Path) -> LiveState:
    return LiveState(State(tmp_path))


def opened(state: LiveState, **changes: Any) -> Incident:
    found = finding(**changes) | {
        "chain": [{"waiter": 1, "blocker": 5, "group": "dp", "why": "not entered"}],
        "next_steps": ["py-spy dump --pid 7   # on h"],
    }
    return state.open_incident("job", found, why="")


def drain(alerter: Alerter) -> None:
    while not alerter._queue.empty():
        message = alerter._queue.get()
        assert message is not None
        alerter.deliver(message)


def test_webhook_is_signed_and_has_the_link(hook: Hook, state: LiveState) -> None:
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url, secret="s3"),), state, url="http://dash/")
    incident = opened(state)
    alerter.told("opened", incident, "training run")
    drain(alerter)
    headers, data = hook.got[0]
    told = json.loads(data)
    assert told["link"] == f"http://dash/live/job/d/{incident.incident}" == incident_link("http://dash", incident)
    assert (told["event"], told["category"], told["ranks"], told["confidence"]) == (
        "opened",
        "link_fault",
        [5],
        "medium",
    )
    assert told["chain"] == ["rank 1 waits for rank 5 in dp (not entered)"]
    at, mac = (part.partition("=")[2] for part in headers["X-Mycroft-Signature"].split(","))
    assert mac == hmac.new(b"s3", f"{at}.".encode() + data, hashlib.sha256).hexdigest()
    assert state.alerts(incident=incident.incident)[0]["sent"] is not None


def test_one_event_is_told_once_also_by_the_next_watch(hook: Hook, state: LiveState) -> None:
    target = (Target(name="t", kind="webhook", url=hook.url),)
    incident = opened(state)
    for _ in range(2):
        alerter = Alerter(target, state, url="http://dash")
        alerter.told("opened", incident, "run")
        alerter.told("opened", incident, "run")
        drain(alerter)
    assert len(hook.got) == 1
    revised = state.revise(incident.incident, finding(confidence="high"), why="")
    alerter.told("revised", revised, "run")
    alerter.told("revised", revised, "run")
    alerter.told("closed", state.close_incident(incident.incident), "run")
    drain(alerter)
    assert [json.loads(data)["event"] for _, data in hook.got] == ["opened", "revised", "closed"]


def test_target_that_does_not_answer_is_tried_again_and_then_given_up(hook: Hook, state: LiveState) -> None:
    clock = Clock()
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url),), state, url="http://dash", clock=clock)
    hook.status = 500
    incident = opened(state)
    alerter.told("opened", incident, "run")
    drain(alerter)
    row = state.alerts(incident=incident.incident)[0]
    assert (row["attempts"], row["error"], row["sent"]) == (1, "answered 500", None)
    assert len(alerter._waiting) == 1 and alerter._waiting[0].due > clock.now
    hook.status = 204
    message = alerter._waiting.pop()
    alerter.deliver(message)
    assert state.alerts(incident=incident.incident)[0]["sent"] is not None
    hook.status = 500
    clock.now += 4000
    alerter.deliver(message)
    assert alerter._waiting == []


def test_redirect_is_not_followed(hook: Hook, state: LiveState) -> None:
    hook.status = 302
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url),), state, url="http://dash")
    incident = opened(state)
    alerter.told("opened", incident, "run")
    drain(alerter)
    assert state.alerts(incident=incident.incident)[0]["error"] == "answered 302"


def test_slack_text_cannot_mention_or_link(state: LiveState) -> None:
    incident = opened(state, category="<!channel>")
    told = json.loads(
        body(Target(name="s", kind="slack", url="http://x"), "opened", incident, title="<b>", link="http://l")
    )
    text = told["blocks"][0]["text"]["text"]
    assert "<!channel>" not in text and "&lt;!channel&gt;" in text
    assert text.endswith("<http://l|Open the diagnosis>")


def test_pagerduty_triggers_and_resolves_one_alert(state: LiveState) -> None:
    target = Target(name="p", kind="pagerduty", url="http://x", key="k")
    incident = opened(state)
    first, last = (
        json.loads(body(target, event, incident, title="run", link="http://l")) for event in ("opened", "closed")
    )
    assert (first["event_action"], last["event_action"]) == ("trigger", "resolve")
    assert first["dedup_key"] == last["dedup_key"] and first["routing_key"] == "k"
    assert first["payload"]["severity"] == "critical"
    assert first["links"] == [{"href": "http://l", "text": "Diagnosis"}]


def test_unsure_verdicts_are_kept_from_targets_that_do_not_want_them(hook: Hook, state: LiveState) -> None:
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url, least="high"),), state, url="http://dash")
    alerter.told("opened", opened(state, confidence="medium"), "run")
    alerter.told("opened", opened(state, confidence="high"), "run")
    # That nothing can be told is news of its own.
    alerter.told("opened", opened(state, confidence="low", status="cannot_tell"), "run")
    drain(alerter)
    assert [json.loads(data)["confidence"] for _, data in hook.got] == ["high", "low"]


def test_deadman_hears_once_a_minute_and_nothing_of_incidents(hook: Hook, state: LiveState) -> None:
    clock = Clock()
    alerter = Alerter((Target(name="d", kind="deadman", url=hook.url),), state, url="http://dash", clock=clock)
    alerter.told("opened", opened(state), "run")
    for _ in range(5):
        alerter.beat()
        clock.now += 15.0
    drain(alerter)
    assert [json.loads(data)["schema"] for _, data in hook.got] == ["mycroft.alive/1"] * 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[target]]\nkind = 'mail'\nurl = 'http://x'", "kind 'mail'"),
        ("[[target]]\nkind = 'webhook'\nurl = 'file:///etc/passwd'", "expected an http or https address"),
        ("[[target]]\nkind = 'pagerduty'", "routing key"),
        ("[[target]]\nkind = 'webhook'\nurl = 'http://x'\nsecrte = 'a'", "'secrte' is not known"),
        ("[[target]]\nkind = 'webhook'\nurl = 'http://x'\nleast = 'sure'", "least 'sure'"),
        ("targets = 1", "expected \\[\\[target\\]\\]"),
        ("[[target", "cannot be read"),
        (2 * "[[target]]\nname = 'a'\nkind = 'slack'\nurl = 'http://x'\n", "one name"),
    ],
)
def test_target_that_cannot_be_used_is_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_targets(path)
