"""The page of numbers, read by Prometheus' own parser."""

from __future__ import annotations

import contextlib
import http.client
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mycroft.app.live import consumer, metrics
from mycroft.app.live.consumer import Numbers
from mycroft.app.live.metrics import Metric, one, render
from mycroft.app.live.state import LiveState
from mycroft.app.state import State
from mycroft.loaders.fleet import PlaceError
from mycroft.loaders.fleet.stream import Round, StreamCounts, StreamError
from tests.app.live.test_incidents import finding


@pytest.fixture
def state(tmp_path: Path) -> LiveState:
    return LiveState(State(tmp_path))


def read(page: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation and family.type in ("counter", "gauge")
        # What Prometheus' linter asks for: counters end with _total, and nothing else does.
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.parametrize("value", [0, 7, 123_456_789_012, 1_796_003_419.25, 1e-9, 0.1, 2.5e17])
def test_numbers_keep_all_their_digits(value: float) -> None:
    assert read(render([one("mycroft_x", "gauge", "Something.", value)]))["mycroft_x"] == [({}, value)]


def test_text_in_a_label_cannot_become_another_line() -> None:
    text = 'a"b\\c\nmycroft_y 1'
    page = render([Metric("mycroft_x", "gauge", "Something.", (({"name": text}, 1.0),))])
    assert read(page) == {"mycroft_x": [({"name": text}, 1.0)]}


def test_labels_are_bounded_whatever_jobs_and_rules_say(state: LiveState) -> None:
    relays = {"relays": 50, "silent": 2, "ranks": 102_400}
    tick = {"seconds": 0.25, "jobs": 300, "processes": 10_240, "rows": 5_000_001, "relays": relays}
    state.set_numbers({"tick": tick})
    for number in range(60):
        found = finding(f"category-{number}", (number,), hosts=(f"secret-host-{number}",))
        state.open_incident(f"secret-job-{number}", found, why="")
    page = render(metrics.of_watch(state))
    got = read(page)
    assert "secret" not in page
    assert len(got["mycroft_incidents_open"]) <= 40
    assert got["mycroft_incidents_open_all"] == [({}, 60.0)]
    assert got["mycroft_relays"] == [({"state": "speaking"}, 48.0), ({"state": "silent"}, 2.0)]
    assert got["mycroft_relayed_ranks"] == [({}, 102_400.0)]
    assert got["mycroft_watch_window_rows"] == [({}, 5_000_001.0)]
    assert got["mycroft_watch_tick_timestamp_seconds"][0][1] == pytest.approx(state.numbers()["tick"][0], abs=1e-6)


def test_watch_that_never_looked_shows_no_time_of_now(state: LiveState) -> None:
    assert read(render(metrics.of_watch(state)))["mycroft_watch_tick_timestamp_seconds"] == [({}, 0.0)]


def test_consumer_tells_its_numbers_at_a_port_and_whether_the_store_takes_them() -> None:
    counts = StreamCounts(
        messages=7, wire_bytes=123_456_789_012, rows=5, failures=1, problem="b\u00e4h: the disk is full"
    )
    with Numbers(counts, "127.0.0.1", 0) as numbers:
        address = urlsplit(numbers.url)

        def get(path: str) -> tuple[int, str]:
            connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        status, page = get("/metrics")
        got = read(page)
        assert status == 200
        assert got["mycroft_stream_messages_total"] == [({}, 7.0)]
        assert got["mycroft_stream_bytes_total"] == [({}, 123_456_789_012.0)]
        # What the brokers have not told is no zero.
        assert got["mycroft_stream_failures_total"] == [({}, 1.0)] and "mycroft_stream_waiting_messages" not in got
        assert get("/healthz") == (503, "b\u00e4h: the disk is full\n")
        counts.problem, counts.waiting, counts.messages = "", 12, 8
        assert get("/healthz") == (200, "ok\n")
        assert read(get("/metrics")[1])["mycroft_stream_waiting_messages"] == [({}, 12.0)]
        assert get("/anything")[0] == 404
    with pytest.raises(OSError):
        get("/metrics")


class Failing:
    """Rounds of which the first two fail."""

    rounds = 0

    def round(self, *, most_s: float, stop: object) -> Round:
        self.rounds += 1
        if self.rounds < 3:
            raise PlaceError("the disk is full")
        if self.rounds == 3:
            return Round(1, 1, 0)
        raise StreamError("no such topic")


def test_consumer_goes_on_when_the_store_fails_and_ends_when_the_topic_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "RETRY_S", 0.0)
    stopping = threading.Event()
    rounds = Failing()
    with pytest.raises(StreamError, match="no such topic"):
        consumer.consume(rounds, stopping, round_s=1.0)  # type: ignore[arg-type]
    assert rounds.rounds == 4
    stopping.set()
    consumer.consume(rounds, stopping, round_s=1.0)  # type: ignore[arg-type]
    assert rounds.rounds == 4
