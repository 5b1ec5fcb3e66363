"""A consumer of a topic as a process: round after round until it is asked to stop, and its numbers for Prometheus."""

from __future__ import annotations

import http.server
import logging
import threading
from types import TracebackType
from typing import Final

from mycroft.app.live import metrics
from mycroft.app.processes import listen
from mycroft.errors import MycroftError
from mycroft.loaders.fleet.stream import StreamCollector, StreamCounts, StreamError

LOG: Final = logging.getLogger("mycroft.collector")
RETRY_S: Final = 5.0
_READER_S: Final = 5.0


def consume(collector: StreamCollector, stopping: threading.Event, *, round_s: float) -> None:
    """Bring a topic into a store until it is asked to stop; a store that does not take it is tried again.

    Raises:
        StreamError: the topic cannot be read, and trying again would not help.
    """
    while not stopping.is_set():
        try:
            done = collector.round(most_s=round_s, stop=stopping.is_set)
        except StreamError:
            raise
        except MycroftError as error:
            LOG.warning("the store does not take what came; it is read again: %s", error)
            stopping.wait(RETRY_S)
            continue
        if done.messages or done.overtaken:
            LOG.info("%d messages, %d segments, %d left to others", done.messages, done.segments, done.overtaken)


class _Page(http.server.BaseHTTPRequestHandler):
    """Answers `/metrics`, which names no host, rank or job and needs no token, and `/healthz`."""

    timeout = _READER_S
    counts: StreamCounts

    def do_GET(self) -> None:
        """Answer one reader."""
        if self.path == "/metrics":
            self._say(200, metrics.render(metrics.of_stream(self.counts)), "text/plain; version=0.0.4")
        elif self.path == "/healthz":
            problem = self.counts.problem
            self._say(503 if problem else 200, f"{problem or 'ok'}\n", "text/plain; charset=utf-8")
        else:
            self._say(404, "there are /metrics and /healthz\n", "text/plain; charset=utf-8")

    def _say(self, status: int, text: str, kind: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        return "mycroft"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing: a reader comes every few seconds."""


class Numbers:
    """A port at which a consumer's numbers are read, one reader at a time; a thread of its own while it is entered."""

    def __init__(self, counts: StreamCounts, host: str, port: int) -> None:
        """Listen.

        Raises:
            ServeError: the address is taken or not ours.
        """
        listener = listen(host, port)
        page = type("Page", (_Page,), {"counts": counts})
        self._server = http.server.HTTPServer(("", 0), page, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        self._thread = threading.Thread(target=self._server.serve_forever, name="numbers", daemon=True)
        address, taken = listener.getsockname()[:2]
        self.url: Final = f"http://{address}:{taken}/metrics"

    def __enter__(self) -> Numbers:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
