"""Agents, two relays, a collector above and its watch, as real processes: one is killed; nothing is lost or twice."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mycroft.app.live.state import Incident, LiveState
from mycroft.app.state import State
from mycroft.loaders.collector.log import log_numbers, log_path, read_log
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.loaders.collector.segments import drain
from mycroft.tracer.agent.batch import Batch, BatchKey, encode
from mycroft.tracer.agent.sender import Collector as Client
from tests.app.live.simulated import Job

FAULTY = 5
# Agents speak five times a second; nobody sets it.
SPEAKING = threading.Event()


class Running:
    """One verb of the program."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mycroft.app.cli", *arguments], stdout=subprocess.PIPE, text=True
        )

    @property
    def url(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("collecting at "), line
        return line.split()[2].rstrip(",")

    def kill(self) -> None:
        """SIGKILL for it and all that it has started; it is held first, so that it starts nothing anew."""
        self.process.send_signal(signal.SIGSTOP)
        for pid in [*descendants(self.process.pid), self.process.pid]:
            os.kill(pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def started(*arguments: str) -> Iterator[Running]:
    running = Running(*arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


def descendants(pid: int) -> list[int]:
    found = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [*found, *itertools.chain.from_iterable(descendants(child) for child in found)]


class Agents:
    """The agents of some hosts of a simulated job: they tell all of it at once, and go on to speak."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches
        self.seq = 1

    def speak(self, url: str) -> None:
        """Every agent sends what is next; what is not taken is sent again at the next time."""
        client = Client(url)
        now = time.time_ns()
        taken = True
        for batch in self.batches:
            key = BatchKey(host=batch.key.host, boot="sim", seq=self.seq, made_ns=now, rows=batch.key.rows)
            told = batch if self.seq == 1 else replace(batch, tables={})
            taken &= client.post("/api/v1/batch", encode(replace(told, key=key))).taken
        client.close()
        self.seq += taken


def has_told(data: Path, relay: str) -> bool:
    """Whether a collector has made a segment of anything that a relay told."""
    seqs = read_manifest(data / "live" / "store" / "manifest").seqs
    return any(identity.startswith(f"{relay}/") for identity in seqs)


def is_judged(incident: Incident) -> bool:
    return bool(incident.ranks) and incident.page is not None


def stored(data: Path, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a table of a collector that has ended: of its segments, and of what it had not made segments of yet."""
    root = data / "live" / "store"
    manifest = read_manifest(root / "manifest")
    tables = [
        pq.read_table(root / segment.path, columns=list(columns), partitioning=None)
        for segment in manifest.segments
        if segment.table == table
    ]
    waiting = [number for number in log_numbers(root / "log") if number > manifest.log_done]
    bodies = (body for number in waiting for body, _ in read_log(log_path(root / "log", number)))
    rest = drain(bodies, seqs=manifest.seqs, positions=manifest.positions).tables.get(table)
    found = [*tables, *([rest.select(list(columns))] if rest is not None else [])]
    return [row for one in found for row in zip(*(column.to_pylist() for column in one.columns), strict=True)]


def test_relay_that_is_killed_loses_nothing_and_the_verdict_comes_through(tmp_path: Path) -> None:
    job = Job("nic_down", rank=FAULTY, until_ns=time.time_ns())
    _, batches = next(job.batches(first_ns=job.last - job.first))
    agents = [Agents(batches[::2]), Agents(batches[1::2])]
    spools = [tmp_path / f"r{number}" / "live" / "relay" / "spool" for number in range(2)]
    spooled: set[str] = set()
    quick = ("--port", "0", "--segment-seconds", "0.5")

    def until(condition: Callable[[], bool], urls: Sequence[str]) -> None:
        """Let the agents speak until something is so, and note what the relays have to send."""
        while not condition():
            for mine, url, spool in zip(agents, urls, spools, strict=True):
                mine.speak(url)
                spooled.update(path.name for path in spool.glob("*.batch"))
            SPEAKING.wait(0.2)

    with started("collect", "--data", str(tmp_path / "up"), *quick) as above:
        upstream = ("--upstream", above.url, "--summary-seconds", "0.5")

        def relay(number: int) -> tuple[str, ...]:
            return ("collect", "--data", str(tmp_path / f"r{number}"), *quick, *upstream, "--relay-name", f"r{number}")

        with started(*relay(0)) as first, started(*relay(1)) as second:
            urls = [first.url, second.url]
            until(lambda: has_told(tmp_path / "up", "relay.r0"), urls)
            first.kill()
            left = {path.name for path in spools[0].glob("*.batch")}
            # Nobody has judged until now: the verdict needs the relay that is started again.
            with started(*relay(0)) as again, started("watch", "--data", str(tmp_path / "up")):
                urls[0] = again.url
                state = LiveState(State(tmp_path / "up"))
                until(lambda: any(is_judged(incident) for incident in state.incidents()), urls)
                until(lambda: not left & {path.name for path in spools[0].glob("*.batch")}, urls)
    [incident] = [incident for incident in state.incidents() if is_judged(incident)]
    assert FAULTY in incident.ranks and len(incident.ranks) <= 2 and incident.category == "link_fault"
    requests = state.requests(incident.incident)
    assert sorted(request.host for request in requests) == ["relay.r0", "relay.r1"]  # once each
    told = stored(tmp_path / "up", "summary", ("relay", "boot", "seq", "rank", "comm"))
    assert set(Counter(told).values()) == {1}
    there = {(boot, seq) for _, boot, seq, _, _ in told}
    assert len({boot for boot, _ in there}) == 3  # one of the two relays was started twice
    # Whatever has left a spool was acknowledged; a summary without rows leaves none.
    for name in spooled - {path.name for spool in spools for path in spool.glob("*.batch")}:
        _, boot, seq, rows, *_ = name.split("-")
        assert rows == "0" or (boot, int(seq)) in there
    # And what agents were told is safe lies in the relay that was killed, once.
    for number, mine in enumerate(agents):
        for kind in ("op", "flow", "state", "heartbeat"):
            rows = Counter(stored(tmp_path / f"r{number}", kind, ("process", "position")))
            assert set(rows.values()) == {1}
            assert len(rows) == sum(batch.tables[kind].num_rows for batch in mine.batches)
