"""Hands batches to the collector over HTTP: one in flight, the oldest first, tried again until they are taken."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec
import urllib3

from mycroft.errors import MycroftError
from mycroft.tracer.agent.spool import Spool

LOG: Final = logging.getLogger("mycroft.agent")
_TIMEOUT: Final = urllib3.Timeout(connect=3.0, read=20.0)
_MOST_WAIT_S: Final = 10.0
# A collector that takes so many batches in a row, each within this time, has nothing else to do.
_AT_ONCE_S: Final = 0.05
_SWIFT_AFTER: Final = 8
_MOST_ANSWER: Final = 64 << 10
# What a batch that is not to be tried again is answered with; anything else may pass.
_NEVER: Final = frozenset({400, 413, 415, 422})


class AgentError(MycroftError):
    """An agent that cannot start: says what it was told and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the collector said. `status` 0: it could not be reached, `text` says why."""

    status: int
    text: str = ""
    retry_s: float | None = None
    body: bytes = b""

    @property
    def taken(self) -> bool:
        """Whether the batch is safe with the collector."""
        return self.status in (200, 204)


class Request(msgspec.Struct):
    """What a collector asks an agent for: evidence of processes, by their keys. Nothing of it is ever executed.

    Of a relay: rows of ranks, each as `rank@communicator`, up to `until_ns` (UTC; 0: all that there are).
    """

    id: str
    incident: str
    processes: list[str]
    until_ns: int = 0


class _Reply(msgspec.Struct):
    requests: list[Request] = []


class Sink(Protocol):
    """Where batches go. Usable from several threads."""

    url: str

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Send and return the answer; never raises for what a network does."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Collector:
    """The collector as a client sees it; usable from several threads."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        """Check the address; nothing is sent.

        Raises:
            AgentError: if it is no http or https address.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise AgentError(f"collector {url!r}: expected an address as http://collector:8060")
        self.url = url.rstrip("/")
        self._headers = {"User-Agent": "mycroft-agent"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        # No redirects: a token goes to the address that was given and nowhere else.
        self._pool = urllib3.PoolManager(maxsize=4, timeout=_TIMEOUT, retries=False)

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Send and return the answer; never raises for what a network does."""
        try:
            answer: Any = self._pool.request(
                "POST",
                self.url + path,
                body=body,
                headers={**self._headers, "Content-Type": "application/x-mycroft-batch", **(headers or {})},
                redirect=False,
                preload_content=False,
            )
            try:
                content = answer.read(_MOST_ANSWER)
            finally:
                # Not read to its end means that the connection cannot be used again.
                answer.drain_conn()
                answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return Answer(0, " ".join(str(error).split())[:300])
        wait = answer.headers.get("Retry-After", "")
        retry_s = float(wait) if wait.isascii() and wait.isdigit() else None
        text = content[:300].decode("utf-8", "replace") if answer.status >= 300 else ""
        return Answer(answer.status, " ".join(text.split()), retry_s, content)

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()


class Sender:
    """The thread that empties the spool."""

    def __init__(
        self,
        collector: Sink,
        spool: Spool,
        *,
        on_request: Callable[[Request], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._collector = collector
        self._spool = spool
        self._on_request = on_request
        self._clock = clock
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._said = ""
        self._at_once = 0
        self.sent = 0
        self.failures = 0

    @property
    def swift(self) -> bool:
        """Whether the collector could take batches more often: it took the last ones at once."""
        return self._at_once >= _SWIFT_AFTER

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wake(self) -> None:
        """Say that a batch waits."""
        self._wake.set()

    def stop(self, *, patience_s: float) -> None:
        """Let what is in flight end, for at most `patience_s`."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(patience_s)

    def send_one(self) -> float | None:
        """Send the oldest batch; return how long to wait before the next, None: nothing waits."""
        lent = self._spool.take()
        if lent is None:
            return None
        name, wire = lent
        began = self._clock()
        answer = self._collector.post("/api/v1/batch", wire)
        self._at_once = self._at_once + 1 if answer.taken and self._clock() - began < _AT_ONCE_S else 0
        if answer.taken:
            self._spool.sent(name)
            self.sent += 1
            self.failures = 0
            self._say("")
            self._take_requests(answer)
            return 0.0
        if answer.status in _NEVER:
            self._spool.refused(name)
            self._say(f"the collector refuses a batch ({answer.status} {answer.text}); it is counted as lost")
            return 0.0
        self._spool.keep()
        self.failures += 1
        reason = answer.text or "no answer"
        self._say(f"{self._collector.url} does not take batches ({answer.status or 'not reached'}: {reason})")
        wait = min(_MOST_WAIT_S, 0.25 * 2 ** min(self.failures, 6))
        if answer.retry_s is not None:
            wait = min(_MOST_WAIT_S, max(wait / 4, answer.retry_s))
        return wait * random.uniform(0.5, 1.0)  # noqa: S311 - so that a fleet does not come back at one moment

    def _take_requests(self, answer: Answer) -> None:
        if answer.status != 200:
            return
        try:
            reply = msgspec.json.decode(answer.body, type=_Reply)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        for request in reply.requests[:16]:
            self._on_request(request)

    def _say(self, text: str) -> None:
        """Log what has changed, not every failure."""
        if text == self._said:
            return
        if text:
            LOG.warning("%s", text)
        else:
            LOG.info("%s takes batches", self._collector.url)
        self._said = text

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                wait = self.send_one()
            except Exception:
                # A bug here must not end the following of rings.
                LOG.exception("sending failed")
                self._spool.keep()
                wait = _MOST_WAIT_S
            if wait is None:
                self._wake.wait(1.0)
                self._wake.clear()
            elif wait > 0:
                self._stopping.wait(wait)
