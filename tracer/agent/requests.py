"""What a collector asks for in its answers, and what is said of one trouble: each once, however often it comes."""

from __future__ import annotations

import logging
import queue
from collections import OrderedDict
from typing import Final

from mycroft.tracer.agent.sender import Request

_WAITING: Final = 16
_REMEMBERED: Final = 256


class Requests:
    """Requests that wait to be served. A collector may tell one again, so each is taken once.

    Taken by the thread that sends, served by another.
    """

    def __init__(self, log: logging.Logger, *, what: str) -> None:
        """Wait for the first.

        Args:
            log: where it is said when too many wait.
            what: is asked for, in words.
        """
        self._log = log
        self._what = what
        self._waiting: queue.Queue[Request] = queue.Queue(maxsize=_WAITING)
        self._known: OrderedDict[str, None] = OrderedDict()

    def take(self, request: Request) -> None:
        """Let a request wait, unless it was taken before or too many wait."""
        if request.id in self._known:
            return
        try:
            self._waiting.put_nowait(request)
        except queue.Full:
            # Not remembered: when it is told again, there may be room.
            self._log.warning("too many requests for %s; %s is left out", self._what, request.id[:40])
            return
        self._known[request.id] = None
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def next(self, *, wait_s: float = 0.0) -> Request | None:
        """Return the request that waits for longest; None: there is none, and none has come for `wait_s`."""
        try:
            return self._waiting.get(timeout=wait_s) if wait_s else self._waiting.get_nowait()
        except queue.Empty:
            return None


class Trouble:
    """A trouble that may last: said when it begins or changes, not each time that it is met."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said = ""

    def say(self, text: str) -> None:
        """Warn of it, once; an empty text: it is over."""
        if text and text != self._said:
            self._log.warning("%s", text)
        self._said = text
