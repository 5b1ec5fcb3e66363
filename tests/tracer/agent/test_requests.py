from __future__ import annotations

import logging

import pytest

from mycroft.tracer.agent.requests import Requests, Trouble
from mycroft.tracer.agent.sender import Request

LOG = logging.getLogger("test")


def request(name: str) -> Request:
    return Request(id=name, incident="i", processes=[])


def served(requests: Requests) -> list[str]:
    found: list[str] = []
    while (one := requests.next()) is not None:
        found.append(one.id)
    return found


def test_request_that_is_told_again_is_served_once() -> None:
    requests = Requests(LOG, what="evidence")
    for name in ("a", "b", "a"):
        requests.take(request(name))
    assert served(requests) == ["a", "b"]
    requests.take(request("b"))
    assert served(requests) == []


def test_request_beyond_those_that_may_wait_is_said_and_taken_when_it_is_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests = Requests(LOG, what="rows")
    for number in range(17):
        requests.take(request(f"r{number}"))
    assert "too many requests for rows; r16 is left out" in caplog.text
    assert len(served(requests)) == 16
    requests.take(request("r16"))
    assert served(requests) == ["r16"]


def test_trouble_is_said_when_it_begins_changes_or_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(LOG)
    for text in ("full", "full", "gone", "", "gone", "gone"):
        trouble.say(text)
    assert caplog.messages == ["full", "gone", "gone"]
