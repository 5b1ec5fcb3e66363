"""The collector as a process: gunicorn with one worker, which alone holds the store, and one event loop for agents.

A second process, its helper, makes segments.
"""

from __future__ import annotations

import gc
import logging
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mycroft.app.live.config import LiveConfig
from mycroft.app.state import State
from mycroft.errors import MycroftError

if TYPE_CHECKING:
    from mycroft.app.live.door import Door
    from mycroft.app.live.state import LiveState
    from mycroft.loaders.collector import Collector
    from mycroft.loaders.collector.retention import Pin

CONNECTIONS: Final = 8192
# How long a thread that holds the interpreter keeps it from the others, seconds. Between one word of the disk and the
# next the committing thread asks for it several times; with Python's own 5 ms that alone would make agents wait.
SWITCH_S: Final = 0.0005
GARBAGE: Final = 20_000
PIN_BEFORE_S: Final = 600.0
# What an incident rests on has happened by then; one that stays open for days must not keep all of them.
PIN_AFTER_S: Final = 3600.0
MOST_PINS: Final = 1000
PINS_S: Final = 10.0
LOG: Final = logging.getLogger("mycroft.collector")


def make_receiver(config: LiveConfig) -> tuple[Door, Collector]:
    """Open the store and return the collector's application, at work."""
    from mycroft.app.live.door import Door
    from mycroft.app.live.receiver import create_receiver
    from mycroft.app.live.state import LiveState
    from mycroft.loaders.collector import Collector, CollectorSettings
    from mycroft.loaders.collector.retention import KEEP_S

    tokens = config.tokens()
    state = LiveState(State(config.data_dir))
    collector = Collector(
        CollectorSettings(
            folder=config.store_dir,
            most_bytes=config.store_bytes,
            segment_s=config.segment_s,
            keep_s={**KEEP_S, **config.keep_s},
            helper=True,
        ),
        pins=Pins(state),
    )
    collector.start()
    server = create_receiver(collector, state, tokens=tokens)
    return Door(server, collector, state, tokens=tokens), collector


class Pins:
    """The times that known incidents rest on: from some minutes before each until it was over, an hour at most.

    Looked up at most every ten seconds; while the state cannot be read, those of before.
    """

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._found: list[Pin] = []
        self._at = -PINS_S

    def __call__(self) -> list[Pin]:
        """Return them."""
        from mycroft.loaders.collector.retention import Pin

        if time.monotonic() - self._at < PINS_S:
            return self._found
        self._at = time.monotonic()
        now = time.time()
        try:
            self._found = [
                Pin(
                    name=incident.incident,
                    since_ns=int((incident.opened - PIN_BEFORE_S) * 1e9),
                    until_ns=int(min(incident.closed or now, incident.opened + PIN_AFTER_S) * 1e9),
                )
                for incident in self._state.incidents(limit=MOST_PINS)
            ]
        except (MycroftError, sqlite3.Error) as error:
            LOG.warning("the incidents cannot be read; what was kept for them before is kept: %s", error)
        return self._found


def serve_collector(config: LiveConfig, *, listen_fd: int) -> None:
    """Serve on a listening socket until SIGTERM; ends the process."""
    from gunicorn.app.base import BaseApplication

    opened: list[Collector] = []

    def leave(_arbiter: Any, _worker: Any) -> None:
        for collector in opened:
            collector.close()

    def begin(_arbiter: Any, _worker: Any) -> None:
        logging.getLogger("mycroft").setLevel(logging.INFO)
        sys.setswitchinterval(SWITCH_S)

    options: dict[str, Any] = {
        "bind": f"fd://{listen_fd}",
        "workers": 1,
        "worker_class": "asgi",
        "worker_connections": CONNECTIONS,
        "timeout": 120,
        "graceful_timeout": 5,
        "keepalive": 75,
        "loglevel": "warning",
        "control_socket_disable": True,
        "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108 - gunicorn's heartbeat
        "proc_name": "mycroft-collect",
        "post_fork": begin,
        "worker_exit": leave,
    }

    class Receiver(BaseApplication):
        def load_config(self) -> None:
            for name, value in options.items():
                self.cfg.set(name, value)  # pyright: ignore[reportOptionalMemberAccess]

        def load(self) -> Any:
            door, collector = make_receiver(config)
            opened.append(collector)
            # What is there now stays; requests are short and leave little behind.
            gc.freeze()
            gc.set_threshold(GARBAGE, 20, 20)
            return door

    # Told before a worker is there: a worker that cannot start would be started again and again.
    config.tokens()
    os.environ.pop("GUNICORN_CMD_ARGS", None)
    Receiver().run()
