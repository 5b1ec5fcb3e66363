"""The agent: reads the rings of a host in turns, spools batches, and lets a sender empty the spool.

A training process is never waited for and never made to wait: trace files are mapped read-only, and whatever is slow or
full here or at the collector costs trace coverage, which is then told as a gap.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from mycroft.tracer.agent import evidence
from mycroft.tracer.agent.batch import MOST_WIRE_BYTES, Batch, BatchKey, Gap, encode, tables_of
from mycroft.tracer.agent.devices import Devices, Watcher
from mycroft.tracer.agent.kafka import SCHEME, KafkaCollector
from mycroft.tracer.agent.requests import Requests, Trouble
from mycroft.tracer.agent.rings import Rings
from mycroft.tracer.agent.sender import AgentError, Collector, Request, Sender, Sink
from mycroft.tracer.agent.spool import Spool, write_whole

LOG: Final = logging.getLogger("mycroft.agent")
CURSORS: Final = "cursors.json"
_MOST_PIECES: Final = 8
_MOST_CURSORS: Final = 10_000
_MOST_FACTS: Final = 1000
# Of the interval, where the collector has nothing else to do: what a host has not told yet is part of every delay.
_SWIFT_SHARE: Final = 0.5


def default_folder() -> Path:
    """Return where the tracer puts trace files: `$MYCROFT_DIR`, else the user's folder in /dev/shm."""
    return Path(os.environ.get("MYCROFT_DIR") or f"/dev/shm/mycroft-{os.getuid()}")  # noqa: S108 - the tracer's


def default_state() -> Path:
    """Return where an agent keeps its spool."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "mycroft" / "agent"


def open_collector(url: str, *, token: str | None = None, kafka: Mapping[str, str] | None = None) -> Sink:
    """Return where batches go: a collector, or a topic at `kafka://broker:9092/topic`.

    Raises:
        AgentError: if it is neither, or the client does not take the settings `kafka`.
    """
    if url.startswith(f"{SCHEME}://"):
        return KafkaCollector(url, settings=kafka)
    return Collector(url, token=token)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an agent is told. Sizes are bytes, times seconds. `devices`: whether the host's devices are read.

    `kafka`: how brokers are reached, in librdkafka's names. It may hold secrets: it is not shown.
    """

    collector: str
    folders: tuple[Path, ...] = field(default_factory=lambda: (default_folder(),))
    state: Path = field(default_factory=default_state)
    host: str = field(default_factory=socket.gethostname)
    job: str = ""
    token: str | None = field(default=None, repr=False)
    interval_s: float = 1.0
    spool_bytes: int = 256 << 20
    history: int = 20_000
    devices: bool = True
    kafka: Mapping[str, str] = field(default_factory=lambda: dict[str, str](), repr=False)


class Agent:
    """One agent. `turn` is what it does once an interval; `run` does it until it is asked to stop."""

    def __init__(self, settings: AgentSettings, *, devices: Devices | None = None) -> None:
        """Take over what an earlier agent left; nothing is sent yet. `devices` None: those of this machine.

        Raises:
            AgentError: if the address is none, another agent has the spool, or it cannot be used.
        """
        self.settings = settings
        self.collector = open_collector(settings.collector, token=settings.token, kafka=settings.kafka)
        try:
            settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = lock_folder(settings.state)
            self.spool = Spool(settings.state / "spool", most_bytes=settings.spool_bytes)
        except OSError as error:
            raise AgentError(f"{settings.state}: cannot be used for the spool ({error.strerror or error})") from error
        self.boot = secrets.token_hex(8)
        self._seq = 0
        self.rings = Rings(
            settings.folders,
            host=settings.host,
            job=settings.job,
            cursors=_cursors(settings.state / CURSORS),
            history=settings.history,
        )
        self.requests = Requests(LOG, what="evidence")
        self.sender = Sender(self.collector, self.spool, on_request=self.requests.take)
        self.watcher = Watcher(devices or Devices()) if settings.devices else None
        self._version = metadata.version("mycroft-trace")
        self._stopping = threading.Event()
        self._trouble = Trouble(LOG)
        self.batches = 0
        self.rows = 0

    # ---- rings ---------------------------------------------------------------------

    def turn(self) -> bool:
        """Read what is new into the spool; True: more waits in the rings."""
        turn = self.rings.turn()
        lost = self.spool.gap()
        gaps = (*turn.gaps, *([lost] if lost is not None else []))
        self._seq += 1
        key = BatchKey(host=self.settings.host, boot=self.boot, seq=self._seq, made_ns=time.time_ns(), rows=turn.rows)
        facts = self.watcher.take(_MOST_FACTS) if self.watcher is not None else ()
        batch = Batch(
            key=key, rings=turn.rings, tables=tables_of(turn.parts), gaps=gaps, facts=facts, agent=self._version
        )
        wire = encode(batch)
        if len(wire) > MOST_WIRE_BYTES:
            # Cannot be with the bounds of a turn; if it is, it must not stand in the way of the rest.
            gap = Gap(why="a batch larger than the wire takes", rows=turn.rows, batches=1, until_ns=key.made_ns)
            wire = encode(Batch(key=key, rings=(), gaps=(*gaps, gap), agent=self._version))
        try:
            self.spool.put(
                key, wire, lost_batches=sum(gap.batches for gap in gaps), lost_rows=sum(gap.rows for gap in gaps)
            )
        except OSError as error:
            # The rows stay in the ring, which holds hours; the next turn reads them again.
            self.rings.untold(turn.gaps)
            if self.watcher is not None:
                self.watcher.give_back(facts)
            if lost is not None:
                self.spool.owe(lost)
            self._trouble.say(f"the spool cannot be written ({error.strerror or error}); the rings hold what is new")
            return False
        self._trouble.say("")
        cursors = self.rings.told()
        self.batches += 1
        self.rows += turn.rows
        if turn.rows or turn.gaps:
            newest = dict(list(cursors.items())[-_MOST_CURSORS:])
            # Without the cursors the next agent tells rows again, and the collector drops them by their position.
            with contextlib.suppress(OSError):
                write_whole(self.settings.state / CURSORS, msgspec.json.encode(newest))
        self.sender.wake()
        return turn.more

    # ---- evidence ------------------------------------------------------------------

    def serve_request(self, request: Request) -> list[str]:
        """Bring the evidence of one request to the collector, and return what could not be had."""
        wanted = set(request.processes)
        rings = [ring for ring in self.rings.live if ring.key in wanted]
        problems: list[str] = []
        if len(rings) > evidence.MOST_PROCESSES:
            problems.append(f"{len(rings)} processes asked for, {evidence.MOST_PROCESSES} looked at")
        about = {"X-Mycroft-Request": request.id, "X-Mycroft-Host": self.settings.host}
        LOG.info("brings evidence of %d processes for incident %s", len(rings), request.incident[:40])
        for ring in rings[: evidence.MOST_PROCESSES]:
            for found in evidence.gather(ring):
                if found.problem:
                    problems.append(f"{found.name}: {found.problem}")
                    continue
                answer = self.collector.post("/api/v1/evidence", found.data, {**about, "X-Mycroft-Name": found.name})
                if not answer.taken:
                    problems.append(f"{found.name}: not taken ({answer.status} {answer.text})")
        if self.watcher is not None:
            for name, data in self.watcher.files(self.settings.host).items():
                answer = self.collector.post("/api/v1/evidence", data, {**about, "X-Mycroft-Name": name})
                if not answer.taken:
                    problems.append(f"{name}: not taken ({answer.status} {answer.text})")
        self.collector.post("/api/v1/evidence/end", msgspec.json.encode(problems), about)
        return problems

    def _serve_requests(self) -> None:
        while not self._stopping.is_set():
            request = self.requests.next(wait_s=1.0)
            if request is None:
                continue
            try:
                self.serve_request(request)
            except Exception:
                LOG.exception("evidence for %s failed", request.incident[:40])

    # ---- life ----------------------------------------------------------------------

    def run(self, *, each: Callable[[], None] | None = None) -> None:
        """Follow until `stop`."""
        self.sender.start()
        if self.watcher is not None:
            self.watcher.start()
        helper = threading.Thread(target=self._serve_requests, name="evidence", daemon=True)
        helper.start()
        due = time.monotonic()
        while not self._stopping.is_set():
            for _ in range(_MOST_PIECES):
                if not self._try_turn():
                    break
            if each is not None:
                each()
            share = _SWIFT_SHARE if self.sender.swift else 1.0
            due = max(due + share * self.settings.interval_s, time.monotonic())
            self._stopping.wait(due - time.monotonic())
        if self.watcher is not None:
            self.watcher.stop()
        self._try_turn()
        # What is not sent now waits on disk for the next agent.
        self.sender.stop(patience_s=2.0)
        self.close()

    def _try_turn(self) -> bool:
        try:
            return self.turn()
        except Exception:
            # One ring that breaks us must not leave the host unwatched.
            LOG.exception("a turn failed")
            return False

    def stop(self) -> None:
        """Ask `run` to end; from any thread or a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        """Give the spool back."""
        self.collector.close()
        os.close(self._lock)


def lock_folder(folder: Path) -> int:
    """Take the spool for this process; the lock ends with it."""
    import fcntl

    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise AgentError(f"{folder}: another agent uses this spool; name another with --state") from None
    return descriptor


def _cursors(path: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}
