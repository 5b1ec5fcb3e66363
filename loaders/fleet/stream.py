"""From a Kafka-protocol topic to a fleet's store: collectors as a consumer group, each message in the store once.

Up to where a partition is in the segments stands in the manifest, in the same version that names these segments. So a
consumer begins there, whatever the group's offsets say; those are committed afterwards, for whoever watches the lag. A
consumer that another has overtaken, as after a rebalance that it has not noticed, finds another offset in the manifest
than the one it began at, and what it made is not published.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from mycroft.errors import MycroftError
from mycroft.loaders.collector.keeper import recent_numbers
from mycroft.loaders.collector.maker import drain_most
from mycroft.loaders.collector.segments import write_segment
from mycroft.loaders.fleet.manifest import FleetManifest, FleetSegment, FleetStore
from mycroft.tracer.agent.kafka import client, opened, topic_of
from mycroft.tracer.trace import TABLES

LOG: Final = logging.getLogger("mycroft.collector")
_POLL_S: Final = 0.5


class StreamError(MycroftError):
    """A topic that cannot be read: names it and says why."""


@dataclass(slots=True)
class _Taken:
    """Messages of one partition, from `first` to before `next`."""

    first: int
    next: int
    bodies: list[bytes] = field(default_factory=lambda: list[bytes]())


@dataclass(frozen=True, slots=True)
class Round:
    """What one round has brought into the store."""

    messages: int
    segments: int
    overtaken: int
    """Messages that another consumer was faster with."""


@dataclass(slots=True)
class StreamCounts:
    """What a consumer counts since its start. One thread writes; others may read, each number by itself."""

    messages: int = 0
    """That are in the store now, by this consumer."""
    wire_bytes: int = 0
    rows: int = 0
    segments: int = 0
    overtaken: int = 0
    unreadable: int = 0
    failures: int = 0
    """Rounds whose store or topic did not take or give what was asked."""
    rounds: int = 0
    round_at: float = 0.0
    """End of the last round that did not fail, seconds since the epoch."""
    partitions: int = 0
    """Assigned to this consumer."""
    problem: str = ""
    """Why the last round failed; empty: it did not."""
    waiting: int | None = None
    """Messages of these that are not in the store yet; None: the brokers have not said."""


class StreamCollector:
    """One consumer of a group; one thread."""

    def __init__(
        self, url: str, store: FleetStore, *, group: str = "mycroft", settings: Mapping[str, str] | None = None
    ) -> None:
        """Join the group. `settings`: of librdkafka.

        Raises:
            MycroftError: the address is none, or the client is not installed.
        """
        brokers, self._topic = topic_of(url)
        self._store = store
        self.counts = StreamCounts()
        self._at: dict[int, int | None] = {}
        """Of each partition that is assigned, the first message that is not in the store; None: its oldest."""
        self._said = ""
        kafka = client()
        self._kafka: Any = kafka
        self._consumer: Any = opened(
            kafka.Consumer,
            {
                "bootstrap.servers": brokers,
                "group.id": group,
                "enable.auto.commit": False,
                # It would say on standard error every time that a broker cannot be reached.
                "log_level": 2,
                "error_cb": self._failed,
                "auto.offset.reset": "earliest",
                **(settings or {}),
            },
        )
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._taken: dict[int, _Taken] = {}

    def _failed(self, error: Any) -> None:
        """Say why brokers cannot be reached or refuse us, when that changes: the client tries on by itself."""
        text = " ".join(error.str().split())[:300]
        if text != self._said:
            self._said = text
            LOG.warning("%s: %s", self._topic, text)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Begin where the store's manifest says; a partition that is not in it, at its beginning."""
        offsets = self._store.read().offsets
        for partition in partitions:
            known = offsets.get(self._name(partition.partition))
            partition.offset = self._kafka.OFFSET_BEGINNING if known is None else known
            self._at[partition.partition] = known
        self._taken.clear()
        consumer.assign(partitions)

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        # What was taken of them and is not in the store, whoever has them now takes again.
        self._taken.clear()
        for partition in partitions:
            self._at.pop(partition.partition, None)

    def _waiting(self) -> int | None:
        """Return how many messages of its partitions are not in the store, by what the brokers said last."""
        total = 0
        for number, at in self._at.items():
            partition = self._kafka.TopicPartition(self._topic, number)
            try:
                low, high = self._consumer.get_watermark_offsets(partition, cached=True)
            except self._kafka.KafkaException:
                return None
            if high < 0:
                return None
            total += max(0, high - max(low, 0 if at is None else at))
        return total

    def _name(self, partition: int) -> str:
        return f"{self._topic}/{partition}"

    def round(
        self, *, most_s: float = 10.0, most_bytes: int = 16 << 20, stop: Callable[[], bool] = lambda: False
    ) -> Round:
        """Take messages for a while, or until `stop` says so, bring them into the store, and commit.

        Raises:
            StreamError: the topic cannot be read.
            MycroftError: the store cannot be written; nothing is committed, and the next round takes them again.
        """
        try:
            done = self._round(most_s, most_bytes, stop)
        except MycroftError as error:
            self.counts.failures += 1
            self.counts.problem = str(error)
            raise
        counts = self.counts
        counts.problem = ""
        counts.messages += done.messages
        counts.segments += done.segments
        counts.overtaken += done.overtaken
        counts.rounds += 1
        counts.partitions, counts.waiting = len(self._at), self._waiting()
        counts.round_at = time.time()
        return done

    def _round(self, most_s: float, most_bytes: int, stop: Callable[[], bool]) -> Round:
        self._taken.clear()
        size = 0
        until = time.monotonic() + most_s
        while size < most_bytes and (left := until - time.monotonic()) > 0 and not stop():
            message = self._consumer.poll(min(_POLL_S, left))
            if message is None:
                continue
            if message.error() is not None:
                if message.error().fatal():
                    raise StreamError(f"{self._topic}: {message.error().str()}")
                LOG.warning("%s: %s", self._topic, message.error().str())
                continue
            partition, offset = message.partition(), message.offset()
            taken = self._taken.setdefault(partition, _Taken(offset, offset))
            taken.bodies.append(message.value() or b"")
            taken.next = offset + 1
            size += len(taken.bodies[-1])
        if not self._taken:
            return Round(0, 0, 0)
        try:
            return self._bring(self._taken)
        except MycroftError:
            for number, part in self._taken.items():
                self._seek(number, part.first)
            raise

    def _bring(self, taken: Mapping[int, _Taken]) -> Round:
        before = self._store.read()
        count = sum(len(part.bodies) for part in taken.values())
        mine = {p: t for p, t in taken.items() if self._fits(before, p, t)}
        bodies = (body for _, part in sorted(mine.items()) for body in part.bodies)
        found = drain_most(bodies, seqs=before.seqs, positions=before.positions)
        for text in found.unreadable[:5]:
            LOG.warning("a message was left out: %s", text)
        rows = sum(table.num_rows for name, table in found.tables.items() if name in TABLES)
        made: list[FleetSegment] = []
        with tempfile.TemporaryDirectory(prefix="mycroft-stream-") as folder:
            for name in sorted(found.tables):
                made.append(self._put(Path(folder), name, found.tables.pop(name)))

        now = time.time()
        seqs = {key: value for key, value in found.seqs.items() if before.seqs.get(key) != value}
        positions = {key: value for key, value in found.positions.items() if before.positions.get(key) != value}

        def make(old: FleetManifest) -> FleetManifest | None:
            if not mine or not all(self._fits(old, p, t) for p, t in mine.items()):
                return None
            return msgspec.structs.replace(
                old,
                segments=(*old.segments, *made),
                offsets=old.offsets | {self._name(p): t.next for p, t in mine.items()},
                seqs=recent_numbers(old.seqs | seqs, now=now),
                positions=recent_numbers(old.positions | positions, now=now),
            )

        after = self._store.change(make)
        published = bool(mine) and all(after.offsets.get(self._name(p), 0) >= t.next for p, t in mine.items())
        listed = {segment.path for segment in after.segments}
        published = published and all(segment.path in listed for segment in made)
        if not published:
            for segment in made:
                self._store.place.delete(segment.path)
        brought = sum(len(part.bodies) for part in mine.values()) if published else 0
        if published:
            self.counts.wire_bytes += sum(len(body) for part in mine.values() for body in part.bodies)
            self.counts.rows += rows
            self.counts.unreadable += len(found.unreadable)
        self._go_on(after)
        return Round(brought, len(made) if published else 0, count - brought)

    def _fits(self, manifest: FleetManifest, partition: int, taken: _Taken) -> bool:
        known = manifest.offsets.get(self._name(partition))
        # A topic may have lost its oldest messages to retention: then there is a gap, but nothing twice.
        return known is None or known <= taken.first

    def _put(self, folder: Path, name: str, table: Any) -> FleetSegment:
        segment = write_segment(folder, name, table)
        path = folder / segment.path
        hour = segment.path.split("/")[-2]
        target = f"facts/{name}/{hour}/{int(segment.made)}-{path.name}"
        self._store.place.put(target, path)
        path.unlink()
        return FleetSegment(
            table=name,
            path=target,
            first_ns=segment.first_ns,
            last_ns=segment.last_ns,
            rows=segment.rows,
            size_bytes=segment.size_bytes,
            made=segment.made,
            origin=f"{self._topic}/{path.name}",
        )

    def _go_on(self, manifest: FleetManifest) -> None:
        """Commit what the manifest says, and read on from there where another was faster."""
        partitions: list[Any] = []
        for number, part in self._taken.items():
            offset = manifest.offsets.get(self._name(number))
            if offset is not None:
                partitions.append(self._kafka.TopicPartition(self._topic, number, offset))
            begin = part.first if offset is None else offset
            if number in self._at:
                self._at[number] = begin
            if begin != part.next:
                self._seek(number, begin)
        self._taken.clear()
        if partitions:
            try:
                self._consumer.commit(offsets=partitions, asynchronous=False)
            except self._kafka.KafkaException as error:
                # Nothing rests on it: the next consumer begins where the manifest says.
                LOG.warning("%s: offsets cannot be committed (%s)", self._topic, error)

    def _seek(self, partition: int, offset: int) -> None:
        # Of a partition that another has meanwhile, there is nothing to read on.
        with contextlib.suppress(self._kafka.KafkaException):
            self._consumer.seek(self._kafka.TopicPartition(self._topic, partition, offset))

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
