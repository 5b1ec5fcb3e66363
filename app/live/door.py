"""Where agents knock: batches are taken on one event loop, so that a thousand hosts cost no thousand threads.

An ASGI application. `POST /api/v1/batch` waits for the disk without holding a thread and is answered when its commit is
done; everything else (evidence, health, numbers) goes to the Flask application of `receiver.py`, in threads, with its
body in a file where it is large. The loop itself never waits for a disk or a database.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import tempfile
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from http import HTTPStatus
from typing import IO, Any, Final

import flask
import msgspec

from mycroft.app.live.receiver import MOST_FILE_BYTES, bearer_of
from mycroft.app.live.state import EvidenceRequest, LiveState
from mycroft.app.live.tokens import AgentToken, allowed, is_known
from mycroft.errors import MycroftError
from mycroft.loaders.collector import BusyError, Collector, FullError, Taken, Ticket
from mycroft.tracer.agent.batch import MOST_WIRE_BYTES, key_of

LOG: Final = logging.getLogger("mycroft.collector")
_NOT_YOURS: Final = "this token may not speak for this host; see always-on.md"
_LOOK_S: Final = 0.5
_BODY_S: Final = 30.0
_DISK_S: Final = 30.0
# Of requests that are not batches: each may hold a thread, and a file of what it brings.
_MOST_OTHERS: Final = 8
_IN_MEMORY: Final = 1 << 20
# Of bodies that are still arriving; beyond it agents are asked to come again.
_MOST_ARRIVING: Final = 256 << 20

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _TooLargeError(Exception):
    """More bytes came than may."""


def _refusal_of(error: Exception) -> tuple[str, int, int | None]:
    """Return what an agent is told of a batch that was not taken: words, status, and after how long to come again."""
    if isinstance(error, BusyError):
        return str(error), 429, 1
    if isinstance(error, FullError):
        return str(error), 507, 5
    return str(error), 400, None


class Door:
    """The collector as an ASGI application; one event loop."""

    def __init__(
        self, server: flask.Flask, collector: Collector, state: LiveState, *, tokens: tuple[AgentToken, ...] = ()
    ) -> None:
        """`server` answers what is no batch; `collector` has been started."""
        self._server = server
        self._collector = collector
        self._state = state
        self._tokens = tokens
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._waiting: set[str] = set()
        self._others = asyncio.Semaphore(_MOST_OTHERS)
        self._arriving = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] != "http":
            raise RuntimeError(f"the collector speaks HTTP, not {scope['type']}")
        elif scope["path"] == "/api/v1/batch":
            if scope["method"] == "POST":
                await self._batch(scope, receive, send)
            else:
                await _say(send, 405, "the method is not allowed: batches are posted")
        elif scope["method"] != "POST":
            # Nothing that is only read has a body: whoever sends one all the same must not hold a place with it.
            await self._other(scope, _nothing, send)
        elif not is_known(self._tokens, token := bearer_of(_headers(scope).get("authorization", ""))):
            await _say(send, 401 if token is None else 403, _NOT_YOURS)
        else:
            await self._other(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if self._looking is not None:
                    self._looking.cancel()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # ---- batches -------------------------------------------------------------------

    async def _batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        length = headers.get("content-length", "")
        if not length.isascii() or not length.isdigit():
            await _say(send, 411, "a batch needs a Content-Length")
            return
        if int(length) > MOST_WIRE_BYTES:
            await _say(send, 413, f"a batch of {length} bytes; at most {MOST_WIRE_BYTES} are taken")
            return
        token = bearer_of(headers.get("authorization", ""))
        if not is_known(self._tokens, token):
            # Before anything is kept of what it brings: strangers must not fill the memory that agents share.
            await _say(send, 401 if token is None else 403, _NOT_YOURS)
            return
        # Before anything is offered: the word that it is on disk may come at once.
        self._loop = asyncio.get_running_loop()
        try:
            wire = await self._body(receive)
            if wire is None:
                return  # it went away
            key = key_of(wire)
            if not allowed(self._tokens, token, key.host):
                await _say(send, 403, _NOT_YOURS)
                return
            offered = self._collector.offer(wire, self._tell, key=key)
            if not isinstance(offered, Taken):
                await self._committed(offered)
        except (MycroftError, _TooLargeError) as error:
            text, status, retry_s = _refusal_of(error)
            await _say(send, status, text, retry_s=retry_s)
            return
        self._look()
        if key.host in self._waiting:
            requests = await asyncio.to_thread(self._state.hand_requests, key.host)
            self._waiting.discard(key.host)
            if requests:
                await _send(send, 200, asked(requests), "application/json")
                return
        await _send(send, 204, b"")

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the body; None: the other side went away before its end."""
        message = await receive()
        if not message.get("more_body"):
            return message.get("body", b"") if message["type"] == "http.request" else None
        parts = [message.get("body", b"")]
        size = len(parts[0])
        self._arriving += size
        try:
            async with asyncio.timeout(_BODY_S):
                while message.get("more_body"):
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    part = message.get("body", b"")
                    parts.append(part)
                    size += len(part)
                    self._arriving += len(part)
                    if size > MOST_WIRE_BYTES:
                        raise _TooLargeError(f"a batch of more than {MOST_WIRE_BYTES} bytes")
                    if self._arriving > _MOST_ARRIVING:
                        raise BusyError("too much arrives at once; send it again in a moment")
        except TimeoutError:
            raise BusyError("the batch did not arrive in time; send it again") from None
        finally:
            self._arriving -= size
        return b"".join(parts)

    async def _committed(self, ticket: Ticket) -> None:
        """Wait for the disk.

        Raises:
            BusyError: if it takes too long.
            FullError: if it does not take the batch.
        """
        # `offer` and this run without a pause in between: the loop hears that it is done after this.
        done = self._futures[id(ticket)] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_DISK_S):
                await done
        except TimeoutError:
            raise BusyError("the disk takes longer than the batch may wait; send it again") from None
        finally:
            self._futures.pop(id(ticket), None)
        ticket.taken()

    def _tell(self, tickets: Sequence[Ticket]) -> None:
        """Hear from the committing thread."""
        # The tickets travel along, so that no other can get their ids meanwhile.
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits
                self._loop.call_soon_threadsafe(self._done, tickets)

    def _done(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            done = self._futures.get(id(ticket))
            if done is not None and not done.done():
                done.set_result(None)

    def _look(self) -> None:
        """See to it that the hosts which are to bring evidence are looked up again and again."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while True:
            try:
                self._waiting = await asyncio.to_thread(self._state.waiting_hosts)
            except Exception:
                LOG.exception("the hosts that are to bring evidence cannot be looked up")
            await asyncio.sleep(_LOOK_S)

    # ---- everything else -----------------------------------------------------------

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._others:
            await self._answered(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
            size = 0
            try:
                async with asyncio.timeout(_BODY_S):
                    while True:
                        message = await receive()
                        if message["type"] != "http.request":
                            return
                        part = message.get("body", b"")
                        size += len(part)
                        if size > MOST_FILE_BYTES:
                            await _say(send, 413, f"at most {MOST_FILE_BYTES} bytes are taken")
                            return
                        if part:
                            await asyncio.to_thread(body.write, part)
                        if not message.get("more_body"):
                            break
            except TimeoutError:
                await _say(send, 408, "the request did not arrive in time")
                return
            body.seek(0)
            status, headers, content = await asyncio.to_thread(self._answer, _environ(scope, size, body))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _answer(self, environ: dict[str, Any]) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        answer = flask.Response.from_app(self._server.wsgi_app, environ, buffered=True)
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
        return answer.status_code, headers, answer.get_data()


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def asked(requests: Sequence[EvidenceRequest]) -> bytes:
    """Return the answer that asks an agent for evidence."""
    return msgspec.json.encode({"requests": [request.asked() for request in requests]})


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by name; of one that comes twice the last."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _environ(scope: Scope, size: int, body: IO[bytes]) -> dict[str, Any]:
    """Return a request as WSGI has it."""
    server = scope.get("server") or ("127.0.0.1", 0)
    client = scope.get("client") or ("", 0)
    headers: Mapping[str, str] = _headers(scope)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": scope["path"],
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": str(server[0]),
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "REMOTE_ADDR": str(client[0]),
        "CONTENT_LENGTH": str(size),
        "CONTENT_TYPE": headers.get("content-type", ""),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": body,
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in headers.items():
        if name not in ("content-length", "content-type", "transfer-encoding"):
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    return environ


async def _say(send: Send, status: int, text: str, *, retry_s: int | None = None) -> None:
    await _send(send, status, f"{text}\n".encode(), "text/plain; charset=utf-8", retry_s=retry_s)


async def _send(send: Send, status: int, content: bytes, kind: str = "", *, retry_s: int | None = None) -> None:
    headers: list[tuple[bytes, bytes]] = []
    if status != HTTPStatus.NO_CONTENT:
        headers += [(b"content-type", kind.encode()), (b"content-length", str(len(content)).encode())]
    if retry_s is not None:
        headers.append((b"retry-after", str(retry_s).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
