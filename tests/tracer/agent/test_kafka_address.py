"""Where an agent is told to send to; sending itself is tested with a real broker in `tests/scale`."""

from __future__ import annotations

import sys

import pytest

from mycroft.tracer.agent.agent import open_collector
from mycroft.tracer.agent.kafka import topic_of
from mycroft.tracer.agent.sender import AgentError, Collector


@pytest.mark.parametrize(
    "url",
    [
        "kafka://broker:9092",
        "kafka:///topic",
        "kafka://broker:9092/a/b",
        "kafka://user:secret@broker:9092/topic",
        "kafka://broker:9092/topic?acks=0",
    ],
)
def test_address_that_is_no_topic_is_refused_with_what_was_expected(url: str) -> None:
    with pytest.raises(AgentError, match="kafka://broker:9092/topic"):
        open_collector(url)


def test_brokers_and_topic_are_read_from_the_address() -> None:
    assert topic_of("kafka://b1:9092,b2:9093/mycroft") == ("b1:9092,b2:9093", "mycroft")


def test_client_that_is_not_installed_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(AgentError, match=r"mycroft-trace\[kafka\]"):
        open_collector("kafka://broker:9092/topic")


def test_other_addresses_are_collectors() -> None:
    collector = open_collector("http://collector:8060", token="t")
    assert isinstance(collector, Collector)
    collector.close()
