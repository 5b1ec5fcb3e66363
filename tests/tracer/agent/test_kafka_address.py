"""Where an agent is told to send to; sending itself is tested with a real broker in `tests/scale`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mycroft.tracer.agent.agent import AgentSettings, open_collector
from mycroft.tracer.agent.kafka import topic_of
from mycroft.tracer.agent.kafka_settings import read_settings
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
    with pytest.raises(AgentError, match="pip install confluent-kafka"):
        open_collector("kafka://broker:9092/topic")


def test_other_addresses_are_collectors() -> None:
    collector = open_collector("http://collector:8060", token="t")
    assert isinstance(collector, Collector)
    collector.close()


SASL = "security.protocol=SASL_SSL\nsasl.mechanisms=SCRAM-SHA-512\nsasl.username=agents\n"


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "kafka.properties"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_password_of_the_environment_completes_a_file_that_all_may_read(tmp_path: Path) -> None:
    found = read_settings(written(tmp_path, SASL, 0o644), {"MYCROFT_KAFKA_PASSWORD": "of the environment"})
    assert found["sasl.password"] == "of the environment"
    assert found["security.protocol"] == "SASL_SSL"


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (SASL, 0o600, "MYCROFT_KAFKA_PASSWORD"),
        (SASL + "sasl.password=secret-of-all\n", 0o644, "chmod 600"),
        ("security.protocol=TLS\n", 0o600, "SASL_SSL"),
        ("ssl.ca.location=/nowhere/ca.pem\n", 0o600, "without security.protocol=SSL"),
        ("security.protocol=SSL\nssl.ca.location=/nowhere/ca.pem\n", 0o600, "cannot be read"),
        ("acks=0\n", 0o600, "line 1: 'acks' is not taken"),
        ("plugin.library.paths=evil\n", 0o600, "not taken"),
        ("secret-of-all\n", 0o600, "line 1: expected name=value"),
    ],
)
def test_settings_that_would_not_work_are_refused_without_telling_a_secret(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    with pytest.raises(AgentError, match=said) as error:
        read_settings(written(tmp_path, text, mode), {})
    assert "secret-of-all" not in str(error.value)


def test_settings_of_an_agent_are_not_shown() -> None:
    assert "hush" not in repr(AgentSettings(collector="kafka://b:9092/t", kafka={"sasl.password": "hush"}))
