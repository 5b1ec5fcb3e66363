"""Where agents knock: the same answers as over WSGI, none of them before the disk has the batch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mycroft.app.live.door import Door
from mycroft.app.live.receiver import create_receiver
from mycroft.app.live.state import LiveState
from mycroft.app.live.tokens import AgentToken, digest_of
from mycroft.app.state import State
from mycroft.loaders.collector import Collector, CollectorSettings
from mycroft.loaders.collector.log import log_path, read_log
from tests.tracer.agent.batches import a_batch, numbered
from tests.tracer.agent.test_spool import no_room_beyond

TOKEN = "a-token-of-enough-length"


@dataclass
class Opened:
    collector: Collector
    state: LiveState
    door: Door
    tokens: tuple[AgentToken, ...] = field(default_factory=tuple)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    tokens = (AgentToken(digest_of(TOKEN), "host*"),)
    collector = Collector(CollectorSettings(folder=tmp_path / "store", segment_s=3600.0, reserve_bytes=0))
    state = LiveState(State(tmp_path))
    door = Door(create_receiver(collector, state, tokens=tokens), collector, state, tokens=tokens)
    yield Opened(collector, state, door, tokens)
    collector.close()


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return numbered(a_batch(tmp_path_factory.mktemp("rings") / "r"), 1)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    door: Door,
    body: bytes,
    *,
    path: str = "/api/v1/batch",
    method: str = "POST",
    token: str | None = TOKEN,
    pieces: int = 1,
    length: int | None = None,
    leave: bool = False,
) -> Answer:
    """One request; the body comes in `pieces`; `leave`: the other side goes away before the last."""
    headers = [(b"content-length", str(len(body) if length is None else length).encode())]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    step = max(1, -(-len(body) // pieces))
    parts = [body[at : at + step] for at in range(0, len(body), step)] or [b""]
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": part, "more_body": number < len(parts) - 1}
        for number, part in enumerate(parts)
    ]
    if leave:
        messages[-1] = {"type": "http.disconnect"}
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "path": path, "method": method, "headers": headers}
    await door(scope, receive, send)
    if not said:
        return Answer(0, {}, b"")
    found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return Answer(said[0]["status"], found, b"".join(message.get("body", b"") for message in said[1:]))


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        return await work()

    return asyncio.run(whole())


@pytest.mark.parametrize("pieces", [1, 5])
def test_batch_is_acknowledged_once_it_is_on_disk(opened: Opened, wire: bytes, pieces: int) -> None:
    async def knock() -> tuple[bool, Answer]:
        # Nobody commits yet: there must be no answer, however often the loop turns.
        asking = asyncio.create_task(ask(opened.door, wire, pieces=pieces))
        while not opened.collector._pending:
            await asyncio.sleep(0)
        before = asking.done()
        opened.collector.start()
        return before, await asking

    before, answer = run(knock)
    assert not before
    assert (answer.status, answer.body) == (204, b"")
    assert [body for body, _ in read_log(log_path(opened.collector.log_folder, 1))] == [wire]


def test_nothing_is_read_of_what_a_stranger_brings(opened: Opened) -> None:
    async def receive() -> dict[str, Any]:
        raise AssertionError("the body of a stranger was read")

    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    length = (b"content-length", b"9")
    for path in ("/api/v1/batch", "/api/v1/evidence"):
        for headers in ([length], [length, (b"authorization", b"Bearer of-nobody-known")]):
            scope = {"type": "http", "path": path, "method": "POST", "headers": headers}
            asyncio.run(opened.door(scope, receive, send))
    asyncio.run(opened.door({"type": "http", "path": "/healthz", "method": "GET", "headers": [length]}, receive, send))
    assert [message["status"] for message in said if "status" in message] == [401, 403, 401, 403, 200]


def test_first_batch_is_acknowledged_also_where_the_disk_is_done_at_once(opened: Opened, wire: bytes) -> None:
    collector = opened.collector

    def offer(data: bytes, tell: Any, *, key: Any = None) -> Any:
        # What the committing thread does while this one has not gone on yet.
        ticket = Collector.offer(collector, data, tell, key=key)
        collector._commit([collector._pending.pop()])
        return ticket

    opened.collector.offer = offer  # type: ignore[method-assign]

    async def knock() -> Answer:
        async with asyncio.timeout(20):
            return await ask(opened.door, wire)

    assert run(knock).status == 204


def test_batch_that_comes_twice_at_one_time_is_kept_once_and_acknowledged_twice(opened: Opened, wire: bytes) -> None:
    async def knock() -> list[Answer]:
        asking = [asyncio.create_task(ask(opened.door, wire)) for _ in range(2)]
        while not (opened.collector._pending and opened.collector._pending[0].others):
            await asyncio.sleep(0)
        opened.collector.start()
        return [*await asyncio.gather(*asking), await ask(opened.door, wire)]

    assert [answer.status for answer in run(knock)] == [204, 204, 204]
    assert len(list(read_log(log_path(opened.collector.log_folder, 1)))) == 1


def test_what_is_not_taken_is_said_with_the_reason(opened: Opened, wire: bytes, tmp_path: Path) -> None:
    opened.collector.start()
    foreign = numbered(a_batch(tmp_path / "rings", host="cpu-1"), 1, host="cpu-1")
    cases = [
        ({"body": b"hello"}, 400, "no batch"),
        ({"body": wire, "token": None}, 401, "may not speak"),
        ({"body": foreign}, 403, "may not speak"),
        ({"body": wire, "length": 9 << 20}, 413, "at most"),
        ({"body": wire, "method": "GET"}, 405, "not allowed"),
        ({"body": b"", "path": "/"}, 404, "not found"),
    ]
    for given, status, words in cases:
        answer = run(lambda given=given: ask(opened.door, **given))
        assert answer.status == status
        assert words in answer.body.decode()
    assert run(lambda: ask(opened.door, wire, pieces=3, leave=True)).status == 0
    with no_room_beyond(64):
        answer = run(lambda: ask(opened.door, wire))
    assert (answer.status, answer.headers["retry-after"]) == (507, "5")
    assert run(lambda: ask(opened.door, b"", path="/healthz", method="GET")).status == 503
    assert run(lambda: ask(opened.door, wire)).status == 204


def test_agent_that_has_something_to_bring_is_asked_in_the_answer(opened: Opened, wire: bytes) -> None:
    opened.collector.start()
    request = opened.state.ask("incident", "host0", ["p"])

    async def knock() -> list[Answer]:
        first = await ask(opened.door, wire)
        while "host0" not in opened.door._waiting and not first.body:
            await asyncio.sleep(0)
        return [first, await ask(opened.door, wire), await ask(opened.door, wire)]

    answers = run(knock)
    asked = [msgspec.json.decode(answer.body)["requests"] for answer in answers if answer.status == 200]
    assert asked == [[{"id": request, "incident": "incident", "processes": ["p"]}]]


def test_everything_else_is_answered_as_over_wsgi(opened: Opened) -> None:
    opened.collector.start()
    answer = run(lambda: ask(opened.door, b"", path="/metrics", method="GET", token=None))
    assert answer.status == 200
    assert "mycroft_batches_total 0" in answer.body.decode()
    assert answer.headers["content-type"].startswith("text/plain")


def test_large_body_of_something_else_is_kept_in_a_file_and_bounded(opened: Opened) -> None:
    opened.collector.start()
    answer = run(lambda: ask(opened.door, bytes(65 << 20), path="/api/v1/evidence", pieces=65))
    assert (answer.status, b"at most" in answer.body) == (413, True)
    answer = run(lambda: ask(opened.door, bytes(2 << 20), path="/api/v1/evidence", pieces=2))
    assert answer.status == 404  # nobody asked for it
    assert threading.active_count() < 40
