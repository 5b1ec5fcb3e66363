"""A collector that really listens, in this process: its door behind a small HTTP server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from werkzeug.serving import make_server
from werkzeug.test import Client

from mycroft.app.live.door import Door
from mycroft.app.live.receiver import create_receiver
from mycroft.app.live.state import LiveState
from mycroft.app.live.tokens import AgentToken
from mycroft.app.state import State
from mycroft.loaders.collector import Collector, CollectorSettings


class Receiving:
    def __init__(self, data: Path, tokens: tuple[AgentToken, ...] = (), port: int = 0) -> None:
        self.collector = Collector(CollectorSettings(folder=data / "live" / "store", segment_s=3600.0, reserve_bytes=0))
        self.collector.start()
        self.state = LiveState(State(data))
        self.app = create_receiver(self.collector, self.state, tokens=tokens)
        self._door = Door(self.app, self.collector, self.state, tokens=tokens)
        self._loop = asyncio.new_event_loop()
        self._turning = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._turning.start()
        self.server = make_server("127.0.0.1", port, self._answer, threaded=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return self.server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self) -> Client:
        """One that asks without a network."""
        return Client(self._answer)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Sequence[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        headers = [
            (name[5:].replace("_", "-").lower().encode(), value.encode())
            for name, value in environ.items()
            if name.startswith("HTTP_")
        ]
        if "CONTENT_LENGTH" in environ:
            headers.append((b"content-length", environ["CONTENT_LENGTH"].encode()))
        scope = {
            "type": "http",
            "method": environ["REQUEST_METHOD"],
            "path": environ["PATH_INFO"],
            "query_string": environ.get("QUERY_STRING", "").encode(),
            "headers": headers,
        }
        said: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            said.append(message)

        asyncio.run_coroutine_threadsafe(self._door(scope, receive, send), self._loop).result()
        status = said[0]["status"]
        found = [(name.decode(), value.decode()) for name, value in said[0]["headers"]]
        start_response(f"{status} {HTTPStatus(status).phrase}", found)
        return [message.get("body", b"") for message in said[1:]]

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._turning.join()
        self._loop.close()
        self.collector.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def receiving(data: Path, tokens: tuple[AgentToken, ...] = (), port: int = 0) -> Iterator[Receiving]:
    opened = Receiving(data, tokens, port)
    try:
        yield opened
    finally:
        opened.stop()
