"""Alerts: what is said, that it is said once, signed, and again where it was not taken."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3

from mycroft.app.alerts import GIVE_UP_S, RETRY_S, Alerter, Target, incident_link, is_signed, read_targets
from mycroft.app.config import ConfigError
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.state import State
from tests.app.live.test_incidents import Clock, finding


class Hook:
    """A server that keeps what it is sent and answers as told."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.status = 204
        self.arrived: Callable[[], None] = lambda: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((dict(self.headers), data))
                outer.arrived()
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
    """Send what is due, without threads."""
    for lane in alerter.lanes.values():
        while lane.turn():
            pass


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
    drain(alerter)
    assert state.alerts(incident=incident.incident)[0]["attempts"] == 1, "not before it is due"
    clock.now += RETRY_S
    hook.status = 204
    drain(alerter)
    assert state.alerts(incident=incident.incident)[0]["sent"] is not None
    hook.status = 500
    alerter.told("closed", state.close_incident(incident.incident), "run")
    drain(alerter)
    assert alerter.lanes["t"].waiting == 1
    clock.now += GIVE_UP_S + 1
    drain(alerter)
    assert alerter.lanes["t"].waiting == 0


def test_alert_that_was_not_taken_comes_before_what_follows_it(hook: Hook, state: LiveState) -> None:
    clock = Clock()
    target = Target(name="p", kind="pagerduty", url=hook.url, key="k")
    alerter = Alerter((target,), state, url="http://dash", clock=clock)
    hook.status = 503
    incident = opened(state)
    alerter.told("opened", incident, "run")
    drain(alerter)
    hook.status = 202
    alerter.told("closed", state.close_incident(incident.incident), "run")
    drain(alerter)
    clock.now += RETRY_S
    drain(alerter)
    # A resolve before its trigger would leave somebody paged about what is over.
    assert [json.loads(data)["event_action"] for _, data in hook.got] == ["trigger", "trigger", "resolve"]


def test_message_that_is_refused_as_such_does_not_hold_up_the_next(hook: Hook, state: LiveState) -> None:
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url),), state, url="http://dash")
    hook.status = 400
    first = opened(state)
    alerter.told("opened", first, "run")
    drain(alerter)
    hook.status = 204
    second = opened(state, ranks=(6,))
    alerter.told("opened", second, "run")
    drain(alerter)
    assert state.alerts(incident=first.incident)[0]["error"] == "answered 400"
    assert state.alerts(incident=second.incident)[0]["sent"] is not None


def test_next_watch_sends_what_the_last_one_could_not(hook: Hook, state: LiveState) -> None:
    targets = (Target(name="t", kind="webhook", url=hook.url), Target(name="u", kind="webhook", url=hook.url))
    state.see_job("job", title="run", processes=["a"], facts={})
    hook.status = 500
    before = Alerter(targets, state, url="http://dash")
    incident = opened(state)
    before.told("opened", incident, "run")
    drain(before)
    hook.status = 204
    after = Alerter(targets[:1], state, url="http://dash")
    after.resume()
    drain(after)
    assert [json.loads(data)["event"] for _, data in hook.got] == ["opened"] * 3
    assert json.loads(hook.got[-1][1])["job_title"] == "run"
    assert [bool(row["sent"]) for row in state.alerts(incident=incident.incident)] == [True, False]


def test_target_that_hangs_holds_up_no_other(hook: Hook, state: LiveState) -> None:
    held = threading.Event()
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections and says nothing
    hanging = Target(name="h", kind="webhook", url=f"http://127.0.0.1:{silent.getsockname()[1]}/")
    alerter = Alerter((hanging, Target(name="t", kind="webhook", url=hook.url)), state, url="http://dash")
    hook.arrived = held.set
    alerter.start()
    alerter.told("opened", opened(state), "run")
    assert held.wait(60.0)
    assert alerter.lanes["h"].waiting == 1
    silent.close()


def test_answer_that_was_lost_leads_to_the_same_id_again(hook: Hook, state: LiveState) -> None:
    clock = Clock()
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url),), state, url="http://dash", clock=clock)
    hook.status = 504
    incident = opened(state)
    alerter.told("opened", incident, "run")
    drain(alerter)
    hook.status = 204
    clock.now += RETRY_S
    drain(alerter)
    alerter.told("revised", state.revise(incident.incident, finding(confidence="high"), why=""), "run")
    drain(alerter)
    ids = [json.loads(data)["id"] for _, data in hook.got]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        (lambda at, data, header: (at, data, header), True),
        (lambda at, data, header: (at + 299, data, header), True),
        (lambda at, data, header: (at + 301, data, header), False),
        (lambda at, data, header: (at - 301, data, header), False),
        (lambda at, data, header: (at, data + b" ", header), False),
        (lambda at, data, header: (at + 400, data, header.replace(f"t={at}", f"t={at + 400}")), False),
        (lambda at, data, _: (at, data, ""), False),
        (lambda at, data, _: (at, data, "t=x,v1=y"), False),
        (lambda at, data, header: (at, data, header.partition(",")[0]), False),
    ],
    ids=["as sent", "soon", "sent again later", "from the future", "changed", "new time", "none", "no time", "no mac"],
)
def test_receiver_tells_a_message_that_was_changed_or_sent_again(
    hook: Hook, state: LiveState, change: Callable[[int, bytes, str], tuple[int, bytes, str]], taken: bool
) -> None:
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url, secret="s3"),), state, url="http://dash")
    alerter.told("opened", opened(state), "run")
    drain(alerter)
    headers, data = hook.got[0]
    header = headers["X-Mycroft-Signature"]
    now, data, header = change(int(header.partition(",")[0][2:]), data, header)
    assert is_signed("s3", data, header, now=now) is taken
    assert not is_signed("another", data, header, now=now)


def test_redirect_is_not_followed(hook: Hook, state: LiveState) -> None:
    hook.status = 302
    alerter = Alerter((Target(name="t", kind="webhook", url=hook.url),), state, url="http://dash")
    incident = opened(state)
    alerter.told("opened", incident, "run")
    drain(alerter)
    assert state.alerts(incident=incident.incident)[0]["error"] == "answered 302"


def test_slack_text_cannot_mention_or_link(hook: Hook, state: LiveState) -> None:
    alerter = Alerter((Target(name="s", kind="slack", url=hook.url),), state, url="http://dash")
    incident = opened(state, category="<!channel>")
    alerter.told("opened", incident, "<b>")
    drain(alerter)
    headers, data = hook.got[0]
    assert headers["Content-Type"] == "application/json"
    told = json.loads(data)
    # What Slack's incoming webhooks take: a text for notifications, and blocks of at most 3,000 characters.
    assert set(told) == {"text", "blocks"} and told["blocks"][0]["type"] == "section"
    text = told["blocks"][0]["text"]["text"]
    assert told["blocks"][0]["text"]["type"] == "mrkdwn" and len(text) < 3000
    assert "<!channel>" not in text and "&lt;!channel&gt;" in text and "<b>" not in text
    assert "rank 1 waits for rank 5 in dp (not entered)" in text and "medium confidence" in text
    assert text.endswith(f"<{incident_link('http://dash', incident)}|Open the diagnosis>")


def test_link_stays_whole_however_long_the_rest_is(hook: Hook, state: LiveState) -> None:
    alerter = Alerter((Target(name="s", kind="slack", url=hook.url),), state, url="http://dash")
    incident = opened(state, category="x" * 5000)
    alerter.told("opened", incident, "run")
    drain(alerter)
    text = json.loads(hook.got[0][1])["blocks"][0]["text"]["text"]
    assert len(text) <= 3000 and text.endswith(f"<{incident_link('http://dash', incident)}|Open the diagnosis>")


def test_pagerduty_triggers_and_resolves_one_alert(hook: Hook, state: LiveState) -> None:
    alerter = Alerter((Target(name="p", kind="pagerduty", url=hook.url, key="k"),), state, url="http://dash")
    incident = opened(state, confidence="low")
    alerter.told("opened", incident, "run")
    alerter.told("revised", state.revise(incident.incident, finding(confidence="high"), why=""), "run")
    alerter.told("closed", state.close_incident(incident.incident), "run")
    drain(alerter)
    sent = [json.loads(data) for _, data in hook.got]
    assert [one["event_action"] for one in sent] == ["trigger", "trigger", "resolve"]
    # What the Events API v2 asks for: one key for all of it, and of a trigger summary, source and severity.
    assert {one["dedup_key"] for one in sent} == {f"mycroft-{incident.incident}"}
    assert {one["routing_key"] for one in sent} == {"k"}
    for trigger in sent[:2]:
        assert {"summary", "source", "severity"} <= set(trigger["payload"])
        assert trigger["payload"]["severity"] == "critical" and len(trigger["payload"]["summary"]) <= 1024
        assert trigger["links"] == [{"href": incident_link("http://dash", incident), "text": "Diagnosis"}]
    assert [t["payload"]["custom_details"]["confidence"] for t in sent[:2]] == ["low", "high"]
    assert "payload" not in sent[2]


def test_alert_of_an_incident_that_became_another_is_resolved(hook: Hook, state: LiveState) -> None:
    targets = (
        Target(name="p", kind="pagerduty", url=hook.url, key="k"),
        Target(name="w", kind="webhook", url=hook.url),
        Target(name="s", kind="slack", url=hook.url),
    )
    alerter = Alerter(targets, state, url="http://dash")
    first, second = opened(state), opened(state)
    alerter.told("opened", second, "run")
    drain(alerter)
    hook.got.clear()
    alerter.told("merged", state.close_incident(second.incident, merged_into=first.incident), "run")
    drain(alerter)
    resolved, told = (json.loads(data) for _, data in hook.got)  # and nothing to people, who hear of the other one
    assert (resolved["event_action"], resolved["dedup_key"]) == ("resolve", f"mycroft-{second.incident}")
    assert (told["event"], told["incident"], told["merged_into"]) == ("closed", second.incident, first.incident)


SECRET = "T0/B0/of-the-channel"


def test_address_and_secrets_of_a_target_are_shown_nowhere(
    state: LiveState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target = Target(name="chat", kind="slack", url=f"https://hooks.slack.test/services/{SECRET}", secret=SECRET)
    assert SECRET not in repr(target)
    alerter = Alerter((target,), state, url="http://dash")

    def fails(*_: object, **__: object) -> None:
        raise urllib3.exceptions.LocationParseError(target.url)

    monkeypatch.setattr(alerter.lanes["chat"]._pool, "request", fails)
    incident = opened(state)
    alerter.told("opened", incident, "run")
    drain(alerter)
    error = state.alerts(incident=incident.incident)[0]["error"]
    assert "Failed to parse" in error and SECRET not in error + caplog.text
    path = tmp_path / "alerts.toml"
    for url in (f"hooks.slack.test/{SECRET}", f"https://[::1/{SECRET}", f"https://host:99999/{SECRET}"):
        path.write_text(f"[[target]]\nkind = 'slack'\nurl = '{url}'")
        with pytest.raises(ConfigError, match="expected an http or https address") as refused:
            read_targets(path)
        assert SECRET not in str(refused.value)


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
        drain(alerter)
        clock.now += 15.0
    hook.status = 500
    clock.now += 60.0
    for _ in range(3):  # what nobody takes is said once again, not three times
        alerter.beat()
        clock.now += 60.0
    assert alerter.lanes["d"].waiting == 1
    hook.status = 204
    drain(alerter)
    assert [json.loads(data)["schema"] for _, data in hook.got] == ["mycroft.alive/1"] * 3


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
