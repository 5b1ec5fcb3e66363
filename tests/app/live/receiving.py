"""A collector that really listens, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from werkzeug.serving import make_server

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
        self.server = make_server("127.0.0.1", port, self.app, threaded=True)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return self.server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.collector.close()


@contextmanager
def receiving(data: Path, tokens: tuple[AgentToken, ...] = (), port: int = 0) -> Iterator[Receiving]:
    opened = Receiving(data, tokens, port)
    try:
        yield opened
    finally:
        opened.stop()
