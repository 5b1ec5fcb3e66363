"""TLS and a login between clients and a broker: taken where they are right, told where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mycroft.loaders.fleet import FleetStore, open_place
from mycroft.loaders.fleet.stream import StreamCollector
from mycroft.tracer.agent.batch import Batch
from mycroft.tracer.agent.kafka import KafkaCollector
from mycroft.tracer.agent.kafka_settings import read_settings
from tests.scale.servers import DEADLINE_S, Broker, TlsRelay
from tests.scale.test_kafka import rounds_until, stored
from tests.tracer.agent.batches import a_batch, numbered

SECRET = "of-the-environment"


@contextmanager
def relayed(folder: Path, storage: dict[str, str], *, with_login: bool = False) -> Iterator[TlsRelay]:
    """A broker behind a port with TLS; its topic is `secret`."""
    relay = TlsRelay(folder / "tls")
    broker = Broker(
        folder / "broker",
        storage="s3://mycroft/",
        environment=storage,
        told_as=f"localhost:{relay.port}",
        with_login=with_login,
    )
    try:
        broker.start()
        relay.start(broker.port)
        yield relay
    finally:
        relay.close()
        broker.kill()


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return a_batch(tmp_path / "rings", ops=5)


def settings(folder: Path, *lines: str) -> dict[str, str]:
    """As a command reads them: from a file that all may read, and the environment."""
    path = folder / "kafka.properties"
    path.write_text("\n".join(lines))
    secrets = {"MYCROFT_KAFKA_PASSWORD": SECRET} if any("SASL" in line for line in lines) else {}
    return read_settings(path, secrets)


def test_batches_go_over_tls_into_the_store(broker_storage: dict[str, str], batch: Batch, tmp_path: Path) -> None:
    with relayed(tmp_path, broker_storage) as relay:
        url = f"kafka://localhost:{relay.port}/secret"
        given = settings(tmp_path, "security.protocol=SSL", f"ssl.ca.location={relay.ca}")
        sink = KafkaCollector(url, settings=given)
        create(relay, given)
        for number in range(1, 4):
            assert sink.post("/api/v1/batch", numbered(batch, number)).taken
        sink.close()
        store = FleetStore(open_place(str(tmp_path / "store")))
        collector = StreamCollector(url, store, group="secret", settings=given)
        rounds_until(collector, lambda: len(stored(store)) == 3)
        collector.close()
        assert set(stored(store).values()) == {batch.tables["op"].num_rows}
        assert relay.connections >= 2


def create(relay: TlsRelay, given: dict[str, str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": f"localhost:{relay.port}", **given})
    admin.create_topics([NewTopic("secret", num_partitions=1, replication_factor=1)])["secret"].result(DEADLINE_S)


@pytest.mark.parametrize("wrong", ["login", "authority", "name"])
def test_client_that_is_refused_or_does_not_trust_the_broker_sends_nothing_and_says_why(
    broker_storage: dict[str, str], batch: Batch, tmp_path: Path, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    with relayed(tmp_path, broker_storage, with_login=wrong == "login") as relay:
        ca = f"ssl.ca.location={relay.ca}"
        lines, host, said = ["security.protocol=SSL", ca], "localhost", "certificate verify failed"
        if wrong == "login":
            # Someone whom the broker does not know.
            lines = ["security.protocol=SASL_SSL", "sasl.mechanisms=SCRAM-SHA-512", "sasl.username=agents", ca]
            said = "SASL SCRAM authentication failed"
        elif wrong == "authority":
            another = TlsRelay(tmp_path / "another")
            another.close()
            lines[1] = f"ssl.ca.location={another.ca}"
        else:
            # The certificate is of another name than the one that was asked for.
            host = "127.0.0.1"
        given = settings(tmp_path, *lines)
        url = f"kafka://{host}:{relay.port}/secret"
        sink = KafkaCollector(url, settings={**given, "delivery.timeout.ms": "3000", "request.timeout.ms": "2000"})
        answers = [sink.post("/api/v1/batch", numbered(batch, 1))]
        while said not in answers[-1].text and len(answers) < 10:
            # A slow machine may take longer to be refused than the message is kept.
            answers.append(sink.post("/api/v1/batch", numbered(batch, 1)))
        sink.close()
        assert not any(answer.taken for answer in answers)
        assert said in answers[-1].text
        store = FleetStore(open_place(str(tmp_path / "store")))
        collector = StreamCollector(url, store, group="refused", settings=given)
        rounds_until(collector, lambda: any(said in record.getMessage() for record in caplog.records))
        collector.close()
        assert not stored(store)
        assert SECRET not in caplog.text + "".join(answer.text for answer in answers)
