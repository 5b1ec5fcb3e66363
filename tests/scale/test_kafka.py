"""A topic between agents and a store: a real broker, killed under load, and consumers that overtake each other."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mycroft.loaders.fleet import FleetStore, PlaceError, open_place
from mycroft.loaders.fleet.stream import Round, StreamCollector
from mycroft.loaders.store import aggregate
from mycroft.tracer.agent.batch import Batch
from mycroft.tracer.agent.kafka import KafkaCollector
from tests.scale.servers import DEADLINE_S, Broker, free_ports
from tests.tracer.agent.batches import a_batch, numbered

ROWS_OF = "SELECT process, position // 1000000 AS number, count(*) AS rows FROM rows GROUP BY ALL"


@pytest.fixture
def durable(broker_storage: dict[str, str], tmp_path: Path) -> Iterator[Broker]:
    """A broker whose messages are in a bucket before it acknowledges them."""
    broker = Broker(tmp_path / "broker", storage="s3://mycroft/", environment=broker_storage)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker", storage="memory://tansu/")
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return a_batch(tmp_path / "rings", ops=5)


def rounds_until(collector: StreamCollector, enough: Callable[[], bool]) -> list[Round]:
    """Bring messages into the store until there is enough."""
    deadline = time.monotonic() + DEADLINE_S
    done: list[Round] = []
    while not enough():
        assert time.monotonic() < deadline, "the topic did not bring what was acknowledged"
        done.append(collector.round(most_s=2.0))
    return done


def stored(store: FleetStore) -> Counter[tuple[str, int]]:
    """How often each batch is in the store: rows of its operations by host and number."""
    names = [segment.path for segment in store.read().of("op")]
    if not names:
        return Counter()
    found = aggregate(ROWS_OF, {"rows": store.place.relation(names)}).to_pylist()
    return Counter({(row["process"].rpartition("-")[2], int(row["number"])): row["rows"] for row in found})


class Load(threading.Thread):
    """Sends batches of some hosts until it is told to stop; what fails is sent again, as an agent does."""

    def __init__(self, url: str, batch: Batch, host: str) -> None:
        super().__init__()
        self._url, self._batch, self._host = url, batch, host
        self.acknowledged: set[tuple[str, int]] = set()
        self.stop = threading.Event()
        self._changed = threading.Condition()

    def run(self) -> None:
        collector = KafkaCollector(self._url, settings={"delivery.timeout.ms": "3000", "request.timeout.ms": "2000"})
        number = 1
        while not self.stop.is_set():
            if collector.post("/api/v1/batch", numbered(self._batch, number, host=self._host)).taken:
                with self._changed:
                    self.acknowledged.add((self._host, number))
                    self._changed.notify_all()
                number += 1
        collector.close()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= count, timeout=DEADLINE_S)


def killed_under_load(broker: Broker, batch: Batch, *, topic: str, go_on: bool) -> set[tuple[str, int]]:
    """Kill the broker while hosts send and start it again; return what was acknowledged.

    `go_on`: the hosts send on to the broker that was started again, else they give up with the first.
    """
    broker.create(topic, partitions=2)
    loads = [Load(f"kafka://{broker.servers}/{topic}", batch, f"host{n}") for n in range(2)]
    for load in loads:
        load.start()
    for load in loads:
        load.wait_for(10)
    broker.kill()
    if not go_on:
        for load in loads:
            load.stop.set()
            load.join()
    before = [len(load.acknowledged) for load in loads]
    broker.start()
    for load, count in zip(loads, before, strict=True):
        load.wait_for(count + 5 * go_on)
        load.stop.set()
    for load in loads:
        load.join()
    return {key for load in loads for key in load.acknowledged}


def test_broker_that_is_killed_under_load_loses_nothing_that_it_acknowledged(
    durable: Broker, batch: Batch, tmp_path: Path
) -> None:
    acknowledged = killed_under_load(durable, batch, topic="kept", go_on=True)
    assert len(acknowledged) >= 30
    store = FleetStore(open_place(str(tmp_path / "store")))
    collector = StreamCollector(f"kafka://{durable.servers}/kept", store, group="kept")
    rounds_until(collector, lambda: acknowledged <= set(stored(store)))
    collector.close()
    counts = stored(store)
    assert set(counts.values()) == {batch.tables["op"].num_rows}, "a batch is there twice, or a part of one"


def test_broker_that_keeps_messages_in_memory_loses_them_so_that_the_test_above_can_fail(
    forgetful: Broker, batch: Batch, tmp_path: Path
) -> None:
    acknowledged = killed_under_load(forgetful, batch, topic="forgotten", go_on=False)
    forgetful.create("forgotten", partitions=2)
    store = FleetStore(open_place(str(tmp_path / "store")))
    collector = StreamCollector(f"kafka://{forgetful.servers}/forgotten", store, group="forgotten")
    end = KafkaCollector(f"kafka://{forgetful.servers}/forgotten")
    assert end.post("/api/v1/batch", numbered(batch, 1, host="last")).taken
    rounds_until(collector, lambda: ("last", 1) in stored(store))
    collector.close()
    assert len(acknowledged) >= 20
    assert not acknowledged & set(stored(store))


def test_consumer_that_dies_between_publishing_and_committing_brings_nothing_twice(
    durable: Broker, batch: Batch, tmp_path: Path
) -> None:
    durable.create("twice", partitions=1)
    url = f"kafka://{durable.servers}/twice"
    sink = KafkaCollector(url)
    for number in range(1, 6):
        assert sink.post("/api/v1/batch", numbered(batch, number)).taken
    store = FleetStore(open_place(str(tmp_path / "store")))
    first = StreamCollector(url, store, group="a")
    # Its group never hears of it, and another begins where the manifest says.
    first._consumer = Uncommitted(first._consumer)  # type: ignore[assignment]
    rounds_until(first, lambda: len(stored(store)) == 5)
    first.close()
    for number in range(6, 9):
        assert sink.post("/api/v1/batch", numbered(batch, number)).taken
    second = StreamCollector(url, store, group="b")
    done = rounds_until(second, lambda: len(stored(store)) == 8)
    second.close()
    assert sum(each.messages for each in done) == 3
    assert set(stored(store).values()) == {batch.tables["op"].num_rows}


class Uncommitted:
    """A consumer whose commits are lost."""

    def __init__(self, consumer: object) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> object:
        return (lambda **_: None) if name == "commit" else getattr(self._consumer, name)


def test_what_an_overtaken_consumer_made_is_not_published(durable: Broker, batch: Batch, tmp_path: Path) -> None:
    """Two that both believe to have a partition, as after a rebalance that one has not noticed."""
    durable.create("overtaken", partitions=1)
    url = f"kafka://{durable.servers}/overtaken"
    sink = KafkaCollector(url)
    for number in range(1, 4):
        assert sink.post("/api/v1/batch", numbered(batch, number)).taken
    store = FleetStore(open_place(str(tmp_path / "store")))
    fast, slow = (StreamCollector(url, store, group=group) for group in ("fast", "slow"))
    slow._store = FleetStore(Overtaken(store.place, lambda: rounds_until(fast, lambda: len(stored(store)) == 3)))
    slow_rounds = rounds_until(slow, lambda: len(stored(store)) == 3)
    assert sum(each.messages for each in slow_rounds) == 0
    assert sum(each.overtaken for each in slow_rounds) == 3
    for each in (fast, slow):
        each.close()
    assert set(stored(store).values()) == {batch.tables["op"].num_rows}
    assert not store.orphans(older_than_s=-1e9)


class Overtaken:
    """A place that lets another go first, the first time that a segment is put."""

    def __init__(self, place: object, meanwhile: Callable[[], object]) -> None:
        self._place, self._meanwhile = place, [meanwhile]

    def __getattr__(self, name: str) -> object:
        if name == "put" and self._meanwhile:
            self._meanwhile.pop()()
        return getattr(self._place, name)


def test_store_that_cannot_be_written_is_tried_again_with_the_same_messages(
    durable: Broker, batch: Batch, tmp_path: Path
) -> None:
    durable.create("again", partitions=1)
    url = f"kafka://{durable.servers}/again"
    assert KafkaCollector(url).post("/api/v1/batch", numbered(batch, 1)).taken
    store = FleetStore(open_place(str(tmp_path / "store")))
    collector = StreamCollector(url, store, group="again")

    def fail() -> None:
        raise PlaceError("the disk is full")

    collector._store = FleetStore(Overtaken(store.place, fail))
    with pytest.raises(PlaceError, match="full"):
        rounds_until(collector, lambda: bool(stored(store)))
    rounds_until(collector, lambda: bool(stored(store)))
    collector.close()
    assert stored(store) == {("host0", 1): batch.tables["op"].num_rows}


def test_command_brings_a_topic_into_a_store_once_and_ends_when_asked(
    durable: Broker, batch: Batch, tmp_path: Path
) -> None:
    durable.create("command", partitions=2)
    url = f"kafka://{durable.servers}/command"
    sink = KafkaCollector(url)
    for number in range(1, 4):
        assert sink.post("/api/v1/batch", numbered(batch, number)).taken
    folder = tmp_path / "store"
    words = ["collect", "--data", str(tmp_path / "data"), "--from", url, "--store", str(folder)]
    store = FleetStore(open_place(str(folder)))
    # Twice: what the first has brought, the second must not bring again.
    for last in (3, 4):
        process = subprocess.Popen([Path(sys.executable).with_name("mycroft"), *words, "--segment-seconds", "1"])
        try:
            deadline = time.monotonic() + DEADLINE_S
            while len(stored(store)) < last:
                assert process.poll() is None, "the consumer has ended"
                assert time.monotonic() < deadline, "the topic was not brought into the store"
                time.sleep(0.2)
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        if last == 3:
            assert sink.post("/api/v1/batch", numbered(batch, 4)).taken
    assert set(stored(store).values()) == {batch.tables["op"].num_rows}


class Consumer:
    """`mycroft collect --from` as a process, with its numbers."""

    def __init__(self, folder: Path, url: str, store: Path, name: str) -> None:
        [self._port] = free_ports(1)
        words = ["collect", "--data", str(folder / name), "--from", url, "--store", str(store)]
        words += ["--segment-seconds", "1", "--metrics-port", str(self._port)]
        with (folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(
                [Path(sys.executable).with_name("mycroft"), *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def number(self, name: str) -> float:
        """One of `/metrics`; 0 before it answers, and where it is not told."""
        assert self.process.poll() is None, "the consumer has ended"
        with (
            contextlib.suppress(OSError),
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)) as connection,
        ):
            connection.request("GET", "/metrics")
            for line in connection.getresponse().read().decode().splitlines():
                if line.startswith(f"mycroft_stream_{name} "):
                    return float(line.rpartition(" ")[2])
        return 0.0


def until(what: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * DEADLINE_S
    while not ready():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_of_two_consumers_of_a_group_one_is_killed_and_the_other_brings_everything_once(
    durable: Broker, batch: Batch, tmp_path: Path
) -> None:
    durable.create("shared", partitions=4)
    url = f"kafka://{durable.servers}/shared"
    folder = tmp_path / "store"
    store = FleetStore(open_place(str(folder)))
    loads = [Load(url, batch, f"host{n}") for n in range(6)]
    first = Consumer(tmp_path, url, folder, "first")
    second: Consumer | None = None
    try:
        for load in loads:
            load.start()
        until("the first has all", lambda: first.number("partitions") == 4 and first.number("messages_total") > 0)
        second = Consumer(tmp_path, url, folder, "second")
        both = (first, second)
        until("both have some", lambda: [c.number("partitions") for c in both] == [2, 2])
        until("both bring some", lambda: second.number("messages_total") > 0)
        # In the middle of whatever it is at: the load goes on.
        first.process.kill()
        until("the second has all", lambda: second.number("partitions") == 4)
        counts = [len(load.acknowledged) for load in loads]
        for load, count in zip(loads, counts, strict=True):
            load.wait_for(count + 3)
            load.stop.set()
            load.join()
        acknowledged = {key for load in loads for key in load.acknowledged}
        until("all that was acknowledged is there", lambda: acknowledged <= set(stored(store)))
        until("it says that nothing waits", lambda: second.number("waiting_messages") == 0)
        assert second.number("failures_total") == 0
        second.process.terminate()
        assert second.process.wait(DEADLINE_S) == 0
    finally:
        for load in loads:
            load.stop.set()
        for consumer in (first, second):
            if consumer is not None and consumer.process.poll() is None:
                consumer.process.kill()
                consumer.process.wait()
    # A message may be there that was not acknowledged; none is there twice or in part.
    assert set(stored(store).values()) == {batch.tables["op"].num_rows}
    assert len(acknowledged) >= 30
