"""Batches to a Kafka-protocol topic instead of a collector: `mycroft agent kafka://broker:9092/topic`.

Key of a message is the host, so that the batches of one stay in one partition and in order; value is the batch as it is
on the wire. A batch counts as taken once all replicas that the broker asks for have it (`acks=all`). Nobody can ask an
agent for evidence this way. Needs `pip install confluent-kafka`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from mycroft.tracer.agent.batch import MOST_WIRE_BYTES, BatchError, key_of
from mycroft.tracer.agent.sender import AgentError, Answer

SCHEME: Final = "kafka"
_TIMEOUT_S: Final = 20.0


class KafkaAddressError(AgentError):
    """An address of a topic that cannot be used."""


def topic_of(url: str) -> tuple[str, str]:
    """Return brokers and topic of an address such as `kafka://broker1:9092,broker2:9092/topic`.

    Raises:
        KafkaAddressError: if it is none.
    """
    parts = urlsplit(url)
    topic = parts.path.strip("/")
    if parts.scheme != SCHEME or not parts.netloc or not topic or "/" in topic or parts.query or "@" in parts.netloc:
        raise KafkaAddressError(f"{url!r}: expected an address as kafka://broker:9092/topic")
    return parts.netloc, topic


def client() -> Any:
    """Return the module of the client.

    Raises:
        KafkaAddressError: it is not installed.
    """
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as error:
        raise KafkaAddressError("the Kafka client is not installed; pip install confluent-kafka") from error


def opened(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Return a producer or consumer.

    Raises:
        KafkaAddressError: the client does not take its settings, such as a certificate that is none.
    """
    try:
        return kind(dict(settings))
    except (client().KafkaException, ValueError, TypeError) as error:
        said = " ".join(str(error).split())[:300]
        raise KafkaAddressError(f"the Kafka client does not take its settings: {said}") from error


class KafkaCollector:
    """A topic, as a sender sees a collector; usable from several threads."""

    def __init__(self, url: str, *, settings: Mapping[str, str] | None = None) -> None:
        """Nothing is sent. `settings`: of librdkafka, such as those of TLS and SASL.

        Raises:
            KafkaAddressError: the address is none, or the client is not installed.
        """
        brokers, self._topic = topic_of(url)
        self.url = url
        self._failed: Any = client().KafkaException
        self._said = ""
        """Why brokers could not be reached or refused us, when that was told last."""
        self._producer: Any = opened(
            client().Producer,
            {
                "bootstrap.servers": brokers,
                "acks": "all",
                # One message at a time, each numbered by its sender: the store leaves out what comes twice. A broker
                # that was killed is not trusted to remember which messages it has of whom.
                "enable.idempotence": False,
                # What matters of it is in the answers.
                "log_level": 2,
                "error_cb": self._heard,
                "message.max.bytes": MOST_WIRE_BYTES + 65_536,
                "delivery.timeout.ms": int(_TIMEOUT_S * 1000),
                "linger.ms": 0,
                **(settings or {}),
            },
        )

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a batch and wait until the brokers have it; never raises for what a network does."""
        if path != "/api/v1/batch":
            return Answer(422, "nobody asks for evidence over a topic")
        try:
            key = key_of(body)
        except BatchError as error:
            return Answer(400, str(error))
        told: list[Any] = []
        self._said = ""
        try:
            self._producer.produce(self._topic, body, key=key.host, on_delivery=lambda error, _: told.append(error))
            self._producer.flush(_TIMEOUT_S + 5.0)
        except (self._failed, BufferError) as error:
            return Answer(0, " ".join(str(error).split())[:300])
        if told and told[0] is None:
            return Answer(204)
        text = " ".join(str(told[0]).split()) if told else f"no answer of the brokers within {_TIMEOUT_S:g} s"
        # That a message was given up says nothing; why, such as a login that is refused, was told beside it.
        return Answer(0, f"{self._topic}: {self._said or text}"[:300])

    def _heard(self, error: Any) -> None:
        text = " ".join(error.str().split())
        # "All brokers are down" follows what was the reason.
        if not self._said or error.code() != client().KafkaError._ALL_BROKERS_DOWN:
            self._said = text

    def close(self) -> None:
        """Leave; what waits was not acknowledged to anybody."""
        self._producer.purge()
