"""Incidents as OpenTelemetry spans, taken by a receiver that is another process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mycroft.app.config import ConfigError
from mycroft.app.live import spans
from mycroft.app.live.spans import Spans
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.state import State
from tests.app.live.test_incidents import finding


class Receiver:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.app.live.otlp_receiver"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def spans(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many spans; the end of the process would end the wait."""
        assert self.process.stdout is not None
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.process.terminate()
    started.process.communicate()


@pytest.fixture
def state(tmp_path: Path) -> LiveState:
    return LiveState(State(tmp_path))


def row(rank: int, *, ended: int | None) -> dict[str, Any]:
    return {
        "rank": rank, "kind": "all_reduce", "seq": 7, "comm": "dp-3f", "host": f"h{rank}", "begun": 1_000,
        "ended": ended, "state": "started", "bytes": 64, "peer": None,
    }  # fmt: skip


def test_incident_with_its_revisions_and_operations_is_one_trace(receiver: Receiver, state: LiveState) -> None:
    out = Spans(receiver.url, state, url="http://dash")
    incident = state.open_incident("job", finding(), why="first found")
    out.told("opened", incident, "run")
    out.operations(incident, [row(5, ended=None), row(6, ended=3_000)])
    revised = state.revise(incident.incident, finding(confidence="high"), why="a stack")
    out.told("revised", revised, "run")
    closed = state.close_incident(incident.incident)
    out.told("closed", closed, "run")
    out.stop()
    got = receiver.spans(5)
    assert sorted(s["name"] for s in got) == [
        "all_reduce",
        "all_reduce",
        "incident",
        "incident opened",
        "incident revised",
    ]
    assert {s["trace"] for s in got} == {f"{spans.trace_id(incident.incident):032x}"}
    assert {s["service"] for s in got} == {"mycroft"}
    whole = next(s for s in got if s["name"] == "incident")
    assert whole["parent"] == "" and whole["error"]
    assert {s["parent"] for s in got if s is not whole} == {whole["span"]}
    assert (whole["start"], whole["end"]) == (round(closed.opened * 1e9), round((closed.closed or 0) * 1e9))
    assert [name for name, _ in whole["events"]] == ["revision 1", "revision 2"]
    told = whole["attributes"]
    assert told["mycroft.link"] == f"http://dash/live/job/d/{incident.incident}"
    assert (told["mycroft.ranks"], told["mycroft.confidence"]) == ([5], "high")
    stands, went = sorted((s for s in got if s["name"] == "all_reduce"), key=lambda s: s["attributes"]["mycroft.rank"])
    assert stands["attributes"]["mycroft.open"] and stands["attributes"]["mycroft.accused"]
    assert stands["end"] == round(incident.seen * 1e9)
    assert (went["start"], went["end"], went["attributes"]["mycroft.accused"]) == (1_000, 3_000, False)
    assert "mycroft.peer" not in went["attributes"]


def test_watch_that_was_started_anew_goes_on_with_the_trace(receiver: Receiver, state: LiveState) -> None:
    incident = state.open_incident("job", finding(), why="")
    before = Spans(receiver.url, state, url="http://dash")
    before.told("opened", incident, "run")
    before.stop()
    after = Spans(receiver.url + "/v1/traces", state, url="http://dash")
    after.told("closed", state.close_incident(incident.incident), "run")
    after.stop()
    opened, whole = receiver.spans(2)
    assert opened["trace"] == whole["trace"] and opened["parent"] == whole["span"]


def test_operations_of_one_incident_are_bounded(state: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Nothing:
        def start_span(self, name: str, **_: object) -> Any:
            made.append(name)
            return type("Span", (), {"end": lambda *_: None})()

    out = Spans("http://127.0.0.1:9", state, url="")
    out.stop()
    monkeypatch.setattr(out, "_tracer", Nothing())
    incident: Incident = state.open_incident("job", finding(), why="")
    out.operations(incident, [row(rank, ended=2_000) for rank in range(1000)])
    assert len(made) == spans.MOST_OPERATIONS


def test_receiver_that_is_away_is_no_matter_of_the_watch(state: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "TIMEOUT_S", 0.2)
    out = Spans("http://127.0.0.1:9", state, url="http://dash")
    incident = state.open_incident("job", finding(), why="")
    out.told("opened", incident, "run")
    out.stop()
    assert [one.incident for one in state.incidents()] == [incident.incident]


@pytest.mark.parametrize("address", ["127.0.0.1:4318", "file:///etc/passwd", "grpc://x"])
def test_address_that_is_none_is_refused(state: LiveState, address: str) -> None:
    with pytest.raises(ConfigError, match="expected an http or https address"):
        Spans(address, state, url="")


def test_packages_that_are_missing_are_named(state: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match="pip install opentelemetry-exporter-otlp-proto-http"):
        Spans("http://127.0.0.1:4318", state, url="")
