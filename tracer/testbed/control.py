"""The wire between launcher, agents and ranks: JSON lines over a Unix socket.

A path in the file system is reached from every network namespace, so orders arrive while a link is down.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MOST_LINE = 1 << 20


class Channel:
    """One end of a connection. Sending is safe from any thread, receiving is for one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()
        self._rest = b""

    @classmethod
    def connect(cls, path: str | Path) -> Channel:
        """Connect to a launcher's socket."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(path))
        return cls(connection)

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, **message: Any) -> bool:
        """Send one message; False if the other end is gone."""
        line = json.dumps(message).encode() + b"\n"
        with self._lock:
            try:
                self._socket.sendall(line)
            except OSError:
                return False
        return True

    def receive(self) -> list[dict[str, Any]] | None:
        """Return what has arrived, waiting for the first bytes; None at the end."""
        try:
            data = self._socket.recv(65536)
        except OSError:
            return None
        if not data or len(self._rest) > MOST_LINE:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line]

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield messages until the other end is gone."""
        while (found := self.receive()) is not None:
            yield from found

    def listen(self, handle: Callable[[dict[str, Any]], None], *, name: str) -> threading.Thread:
        """Handle messages in a thread of their own."""

        def loop() -> None:
            for message in self.messages():
                handle(message)

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
