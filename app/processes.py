"""The processes of `mycroft serve`: gunicorn with its web workers, and the ingest worker beside it.

    serve (supervisor) ─┬─ web: gunicorn arbiter ── web workers (threads)
                        └─ ingest worker: one job, then a fresh one takes its place

The supervisor owns the listening socket, so a taken port is told before anything starts. Children learn their
settings from a line on their standard input, and end when that pipe closes: they never outlive the supervisor,
however it ends. They run in sessions of their own, so that Ctrl-C reaches the supervisor alone, which then stops them
in order.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from mycroft.app.config import AppConfig
from mycroft.app.live.config import LiveConfig
from mycroft.errors import MycroftError

STDIN_FD: Final = 0
GRACE_S: Final = 10.0
READY_TIMEOUT_S: Final = 120.0
FAILURES_MAX: Final = 3
"""Deaths of the web in a row before the supervisor gives up on it."""
RESTART_S: Final = 0.2
RESTART_MAX_S: Final = 5.0
LOG: Final = logging.getLogger("mycroft.serve")


class ServeError(MycroftError):
    """The server cannot start or go on: says which part and why."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChildSettings:
    """What a child is told. `ready_fd` is for the web only, `live` for collector and watch."""

    config: AppConfig
    listen_fd: int | None = None
    ready_fd: int | None = None
    live: LiveConfig | None = None

    def encode(self) -> bytes:
        """Return the settings as one line."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"


def _decode(line: bytes) -> ChildSettings:
    def restore(kind: type, value: Any) -> Any:
        return kind(value)

    return msgspec.json.decode(line, type=ChildSettings, dec_hook=restore)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
        ServeError: the address is taken or not ours.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ServeError(f"cannot listen on {host} port {port}: {error.strerror or error}; try --port") from error


class _Child:
    """One supervised process: started again whenever it ends, until it is asked to stop.

    `on_give_up` None: it is started for ever, at longer and longer intervals. An ingest worker may die of what it was
    given to read, several times in a row, and that must not end the server.
    """

    def __init__(self, role: str, settings: ChildSettings, *, on_give_up: Callable[[str], None] | None = None) -> None:
        self.role = role
        self._settings = settings
        self._on_give_up = on_give_up
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name=f"supervise-{role}", daemon=True)

    def start(self) -> None:
        self._spawn()
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        settings = self._settings
        inherited = [fd for fd in (settings.listen_fd, settings.ready_fd) if fd is not None]
        with self._lock:
            if self._stopping.is_set():
                return None
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mycroft.app.processes", self.role],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=inherited,
                start_new_session=True,
            )
            stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(settings.encode())
            stdin.flush()
        except BrokenPipeError:
            pass  # It died at once; `_watch` sees that.
        return self._process

    def _watch(self) -> None:
        failures = 0
        process = self._process
        while process is not None:
            code = process.wait()
            if process.stdin is not None:
                process.stdin.close()
            if self._stopping.is_set():
                return
            failures = 0 if code == 0 else failures + 1
            if failures >= FAILURES_MAX and self._on_give_up is not None:
                self._on_give_up(f"the {self.role} process ended {failures} times in a row, last with status {code}")
                return
            if failures:
                LOG.warning("the %s process ended with status %d and is started again", self.role, code)
                # A wait that a stop can cut short, so that a child that dies at once does not eat a core.
                if self._stopping.wait(min(RESTART_S * failures, RESTART_MAX_S)):
                    return
            process = self._spawn()

    def ask_to_stop(self) -> None:
        with self._lock:
            self._stopping.set()
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)

    def join(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            # The whole session of the child: a hanging web worker goes with its arbiter.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._thread.join(GRACE_S)
        if process.stdin is not None:
            process.stdin.close()


class Server:
    """A running server: `with Server(config) as server:` listens, waits until it answers, and stops it at the end."""

    def __init__(self, config: AppConfig, live: LiveConfig | None = None) -> None:
        """Check the settings and take the port, and that of the agents where `live` is given.

        Raises:
            ConfigError: the address may not be listened on without access control.
            ServeError: the port is taken.
        """
        config.check_binding()
        if live is not None:
            live.tokens()
        config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket = listen(config.host, config.port)
        self.config = dataclasses.replace(config, port=self._socket.getsockname()[1])
        self._live_socket: socket.socket | None = None
        self.live: LiveConfig | None = None
        if live is not None:
            try:
                self._live_socket = listen(live.host, live.port)
            except ServeError:
                self._socket.close()
                raise
            self.live = dataclasses.replace(live, port=self._live_socket.getsockname()[1], url=live.url or self.url)
        self._children: list[_Child] = []
        self._failed: str | None = None
        self._ended = threading.Event()
        # A web worker writes R when it can answer, `_give_up` writes F.
        self._ready_read, self._ready_write = os.pipe()

    @property
    def url(self) -> str:
        """Address of the first page, as a browser on this machine reaches it."""
        host = self.config.host
        host = "localhost" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
        return f"http://{f'[{host}]' if ':' in host else host}:{self.config.port}"

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the children by role."""
        return {child.role: child.pid for child in self._children if child.pid is not None}

    def start(self) -> None:
        """Start the processes and wait until the first web worker can answer.

        Raises:
            ServeError: the web did not come up.
        """
        self._socket.set_inheritable(True)
        web = ChildSettings(self.config, listen_fd=self._socket.fileno(), ready_fd=self._ready_write)
        self._children = [
            _Child("web", web, on_give_up=self._give_up),
            _Child("ingest", ChildSettings(self.config)),
        ]
        if self._live_socket is not None:
            self._live_socket.set_inheritable(True)
            collect = ChildSettings(self.config, listen_fd=self._live_socket.fileno(), live=self.live)
            self._children += [_Child("collect", collect), _Child("watch", ChildSettings(self.config, live=self.live))]
        for child in self._children:
            child.start()
        readable, _, _ = select.select([self._ready_read], [], [], READY_TIMEOUT_S)
        if self._failed is not None or not readable:
            reason = self._failed or f"the web process did not answer within {READY_TIMEOUT_S:.0f} s"
            self.stop()
            raise ServeError(reason)

    def wait(self) -> None:
        """Wait for SIGINT or SIGTERM. Main thread only.

        Raises:
            ServeError: a child ended again and again.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._ended.set())
        self._ended.wait()
        # From here on a second Ctrl-C means what it always means.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._failed is not None:
            raise ServeError(self._failed)

    def stop(self) -> None:
        """Stop the children and give the port back; repeats are harmless."""
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.join()
        self._children = []
        self._socket.close()
        if self._live_socket is not None:
            self._live_socket.close()
        for descriptor in (self._ready_read, self._ready_write):
            if descriptor >= 0:
                os.close(descriptor)
        self._ready_read = self._ready_write = -1

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _give_up(self, reason: str) -> None:
        self._failed = reason
        self._ended.set()
        os.write(self._ready_write, b"F")


class RelayServer:
    """A collector and the relay beside it, which die and are started again apart from each other."""

    def __init__(self, live: LiveConfig) -> None:
        """Check the settings and take the port.

        Raises:
            ConfigError: the address may not be listened on without tokens.
            ServeError: the port is taken.
        """
        live.tokens()
        live.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket = listen(live.host, live.port)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://{host}:{port}"
        self.live = dataclasses.replace(live, port=port)
        self._socket.set_inheritable(True)
        config = AppConfig(data_dir=live.data_dir)
        self._children = [
            _Child("collect", ChildSettings(config, listen_fd=self._socket.fileno(), live=self.live)),
            _Child("relay", ChildSettings(config, live=self.live)),
        ]
        self._ended = threading.Event()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the children by role."""
        return {child.role: child.pid for child in self._children if child.pid is not None}

    def wait(self) -> None:
        """Wait for SIGINT or SIGTERM. Main thread only."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._ended.set())
        self._ended.wait()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __enter__(self) -> RelayServer:
        for child in self._children:
            child.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The relay last: it tells what the collector has taken.
        for child in self._children:
            child.ask_to_stop()
            child.join()
        self._socket.close()


def _end_with_supervisor(on_end: Callable[[], None]) -> None:
    """Call `on_end` when the supervisor's end of our standard input closes."""

    def watch() -> None:
        # The descriptor itself: a thread inside a buffered stream would be in the way of the interpreter's end.
        while os.read(STDIN_FD, 4096):
            pass
        on_end()

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


def web_main(settings: ChildSettings) -> int:
    """Run gunicorn on the inherited socket until SIGTERM."""
    from gunicorn.app.base import BaseApplication

    config = settings.config
    assert settings.listen_fd is not None and settings.ready_fd is not None
    ready_fd = settings.ready_fd

    def tell_ready(_worker: Any) -> None:
        os.write(ready_fd, b"R")

    def log_levels(_arbiter: Any, _worker: Any) -> None:
        logging.getLogger("mycroft").setLevel(logging.INFO)

    options: dict[str, Any] = {
        "bind": f"fd://{settings.listen_fd}",
        "workers": config.web_workers,
        "worker_class": "gthread",
        "threads": config.web_threads,
        "timeout": 120,
        "graceful_timeout": 5,
        "keepalive": 15,
        "loglevel": "warning",
        "control_socket_disable": True,
        "worker_tmp_dir": "/dev/shm" if Path("/dev/shm").is_dir() else None,  # noqa: S108 - gunicorn's heartbeat
        "proc_name": "mycroft-web",
        "post_fork": log_levels,
        "post_worker_init": tell_ready,
    }

    class Web(BaseApplication):
        def load_config(self) -> None:
            for name, value in options.items():
                self.cfg.set(name, value)  # pyright: ignore[reportOptionalMemberAccess]

        def load(self) -> Any:
            from mycroft.app.server import create_app

            return create_app(config).server

    arbiter = os.getpid()
    _end_with_supervisor(lambda: os.kill(arbiter, signal.SIGTERM))
    Web().run()
    return 0


def collect_main(settings: ChildSettings) -> int:
    """Run the collector on the inherited socket."""
    from mycroft.app.live.serving import serve_collector

    assert settings.live is not None
    assert settings.listen_fd is not None
    arbiter = os.getpid()
    _end_with_supervisor(lambda: os.kill(arbiter, signal.SIGTERM))
    serve_collector(settings.live, listen_fd=settings.listen_fd)
    return 0


def watch_main(settings: ChildSettings) -> int:
    """Run the watch until SIGTERM, or until the supervisor is gone."""
    from mycroft.app.live.watching import Watching

    assert settings.live is not None
    watching = Watching(settings.live)
    signal.signal(signal.SIGTERM, lambda *_: watching.stop())
    signal.signal(signal.SIGINT, lambda *_: watching.stop())
    _end_with_supervisor(watching.stop)
    watching.run()
    return 0


def relay_main(settings: ChildSettings) -> int:
    """Run the relay until SIGTERM, or until the supervisor is gone."""
    from mycroft.app.live.relay import Relay

    assert settings.live is not None
    logging.getLogger("mycroft").setLevel(logging.INFO)
    relay = Relay(settings.live)
    signal.signal(signal.SIGTERM, lambda *_: relay.stop())
    signal.signal(signal.SIGINT, lambda *_: relay.stop())
    _end_with_supervisor(relay.stop)
    relay.run()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Entry of a child: `python -m mycroft.app.processes web|ingest|collect|relay|watch`."""
    role = (sys.argv[1:] if argv is None else argv)[0]
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(STDIN_FD, 65536)):
        line += piece
    if not line:
        return 0  # The supervisor ended before it told us anything.
    settings = _decode(line)
    if role == "web":
        return web_main(settings)
    if role == "collect":
        return collect_main(settings)
    if role == "relay":
        return relay_main(settings)
    if role == "watch":
        return watch_main(settings)
    # Before the imports: libraries start threads of their own, and a signal goes to any thread that does not block it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    from mycroft.app.ingest import ingest_main

    return ingest_main(settings.config, _end_with_supervisor)


if __name__ == "__main__":
    sys.exit(main())
