"""The collector as a process: gunicorn with one worker, which alone holds the store, and threads for the agents."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

from mycroft.app.live.config import LiveConfig
from mycroft.app.state import State

THREADS: Final = 32
CONNECTIONS: Final = 8192


def make_receiver(config: LiveConfig) -> Any:
    """Open the store and return the collector's application, at work."""
    from mycroft.app.live.receiver import create_receiver
    from mycroft.app.live.state import LiveState
    from mycroft.loaders.collector import Collector, CollectorSettings

    tokens = config.tokens()
    collector = Collector(
        CollectorSettings(folder=config.store_dir, most_bytes=config.store_bytes, segment_s=config.segment_s)
    )
    collector.start()
    server = create_receiver(collector, LiveState(State(config.data_dir)), tokens=tokens)
    server.extensions["mycroft_collector"] = collector
    return server


def serve_collector(config: LiveConfig, *, listen_fd: int) -> None:
    """Serve on a listening socket until SIGTERM; ends the process."""
    from gunicorn.app.base import BaseApplication

    def leave(_arbiter: Any, worker: Any) -> None:
        server = getattr(worker, "wsgi", None)
        collector = getattr(server, "extensions", {}).get("mycroft_collector")
        if collector is not None:
            collector.close()

    def log_levels(_arbiter: Any, _worker: Any) -> None:
        logging.getLogger("mycroft").setLevel(logging.INFO)

    options: dict[str, Any] = {
        "bind": f"fd://{listen_fd}",
        "workers": 1,
        "worker_class": "gthread",
        "threads": THREADS,
        "worker_connections": CONNECTIONS,
        "timeout": 120,
        "graceful_timeout": 5,
        "keepalive": 75,
        "loglevel": "warning",
        "control_socket_disable": True,
        "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108 - gunicorn's heartbeat
        "proc_name": "mycroft-collect",
        "post_fork": log_levels,
        "worker_exit": leave,
    }

    class Receiver(BaseApplication):
        def load_config(self) -> None:
            for name, value in options.items():
                self.cfg.set(name, value)  # pyright: ignore[reportOptionalMemberAccess]

        def load(self) -> Any:
            return make_receiver(config)

    # Told before a worker is there: a worker that cannot start would be started again and again.
    config.tokens()
    os.environ.pop("GUNICORN_CMD_ARGS", None)
    Receiver().run()
