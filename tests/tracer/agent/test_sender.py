"""The sender: how it tells a collector that has time from one that has not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mycroft.tracer.agent.batch import BatchKey
from mycroft.tracer.agent.sender import Answer, Sender
from mycroft.tracer.agent.spool import Spool


class Paced:
    """A collector whose clock stands but for the time that its answers take."""

    url = "http://collector"

    def __init__(self) -> None:
        self.now = 0.0
        self.takes_s = 0.01
        self.status = 204

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        assert path and body and headers is None
        self.now += self.takes_s
        return Answer(self.status)

    def close(self) -> None:
        pass


@pytest.fixture
def collector() -> Paced:
    return Paced()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool", most_bytes=1 << 20)


@pytest.fixture
def sender(collector: Paced, spool: Spool) -> Sender:
    return Sender(collector, spool, on_request=lambda _: None, clock=lambda: collector.now)


def send(sender: Sender, spool: Spool, times: int) -> None:
    for number in range(times):
        spool.put(BatchKey(host="h", boot="b", seq=number, made_ns=number, rows=1), b"rows")
        sender.send_one()


def test_collector_that_answers_at_once_for_a_while_is_told_more_often(sender: Sender, spool: Spool) -> None:
    assert not sender.swift
    send(sender, spool, 7)
    assert not sender.swift
    send(sender, spool, 1)
    assert sender.swift


@pytest.mark.parametrize(("takes_s", "status"), [(0.2, 204), (0.01, 429)])
def test_one_late_answer_or_refusal_is_enough_to_be_told_less_often(
    sender: Sender, spool: Spool, collector: Paced, takes_s: float, status: int
) -> None:
    send(sender, spool, 20)
    assert sender.swift
    collector.takes_s, collector.status = takes_s, status
    send(sender, spool, 1)
    assert not sender.swift
