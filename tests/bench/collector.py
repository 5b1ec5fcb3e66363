"""The collector under load, killed with SIGKILL at random moments: what was acknowledged, what is there afterwards.

`python -m tests.bench.collector kill [--times 20]` prints one line a kill and a sum; exit status 1 if anything that was
acknowledged is missing or anything is there twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from mycroft.loaders.collector.log import log_numbers, log_path, read_log
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.tracer.agent.batch import key_of
from mycroft.tracer.agent.sender import Collector as Client
from mycroft.tracer.trace import TABLES
from tests.tracer.agent.batches import a_batch, numbered


class Running:
    """A `mycroft collect` of its own session, so that SIGKILL takes all of it at one moment."""

    def __init__(self, data: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mycroft.app.cli", "collect", "--data", str(data), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if os.environ.get("QUIET") else None,
            text=True,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("collecting at "), line
        self.url = line.split()[-1]

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def stored(data: Path) -> tuple[Counter[tuple[str, int]], int]:
    """Every batch that a restarted collector would know, and how often each row is in the segments."""
    root = data / "live" / "store"
    manifest = read_manifest(root / "manifest")
    seqs: Counter[tuple[str, int]] = Counter()
    for number in log_numbers(root / "log"):
        if number > manifest.log_done:
            for body, _ in read_log(log_path(root / "log", number)):
                key = key_of(body)
                seqs[f"{key.host}/{key.boot}", key.seq] += 1
    rows: Counter[tuple[str, str, int]] = Counter()
    for segment in manifest.segments:
        if segment.table not in TABLES:
            continue
        table = pq.read_table(root / segment.path, columns=["process", "position"], partitioning=None)
        for process, position in zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True):
            rows[segment.table, process, position] += 1
            # The number of its batch is in the position: see `numbered`.
            seqs[f"{process.rpartition('-')[2]}/boot", position // 1_000_000] |= 0
    in_segments = {(f"{p.rpartition('-')[2]}/boot", position // 1_000_000) for _, p, position in rows}
    for key in in_segments:
        seqs[key] += 1
    return seqs, sum(count > 1 for count in rows.values())


def whole_batches(data: Path, rows: int) -> set[tuple[str, int]]:
    """Batches that are whole: all their rows in segments, or the batch itself still in the log."""
    root = data / "live" / "store"
    manifest = read_manifest(root / "manifest")
    counts: Counter[tuple[str, int]] = Counter()
    in_log: set[tuple[str, int]] = set()
    for number in log_numbers(root / "log"):
        if number > manifest.log_done:
            keys = [key_of(body) for body, _ in read_log(log_path(root / "log", number))]
            in_log |= {(f"{key.host}/{key.boot}", key.seq) for key in keys}
    for segment in manifest.segments:
        if segment.table in TABLES:
            table = pq.read_table(root / segment.path, columns=["process", "position"], partitioning=None)
            for process, position in zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True):
                counts[f"{process.rpartition('-')[2]}/boot", position // 1_000_000] += 1
    return in_log | {key for key, count in counts.items() if count == rows}


class Load:
    """Threads that post numbered batches, each as its own host, and remember what was acknowledged."""

    def __init__(self, hosts: int, batch: object, *, seed: int) -> None:
        self.hosts = [f"host{i}" for i in range(hosts)]
        self.batch = batch
        self.acknowledged: set[tuple[str, int]] = set()
        self.repeats = random.Random(seed)
        self.next = dict.fromkeys(self.hosts, 1)
        self.lock = threading.Lock()

    def run(self, url: str, stop: threading.Event) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._post, args=(url, host, stop), daemon=True) for host in self.hosts]
        for thread in threads:
            thread.start()
        return threads

    def _post(self, url: str, host: str, stop: threading.Event) -> None:
        client = Client(url)
        while not stop.is_set():
            seq = self.next[host]
            answer = client.post("/api/v1/batch", numbered(self.batch, seq, host=host))  # type: ignore[arg-type]
            if answer.taken:
                with self.lock:
                    self.acknowledged.add((f"{host}/boot", seq))
                    again = self.repeats.random() < 0.1
                # As after an answer that was lost: the same batch once more.
                self.next[host] = seq if again else seq + 1
            elif answer.status == 0:
                stop.wait(0.05)
        client.close()


def kill(times: int, seed: int, hosts: int = 6) -> int:
    draw = random.Random(seed)
    lost_in_all = twice_in_all = 0
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as scratch:
        data = Path(scratch) / "data"
        batch = a_batch(Path(scratch) / "rings")
        load = Load(hosts, batch, seed=seed)
        for turn in range(times):
            # Short segments, so that kills also meet the making of segments and manifests.
            running = Running(data, "--segment-seconds", "0.5")
            stop = threading.Event()
            threads = load.run(running.url, stop)
            before = len(load.acknowledged)
            while len(load.acknowledged) == before:
                time.sleep(0.01)
            time.sleep(draw.uniform(0.0, 2.0))
            running.kill()
            stop.set()
            for thread in threads:
                thread.join()
            seqs, twice = stored(data)
            lost = load.acknowledged - set(seqs)
            double = [key for key, count in seqs.items() if count > 1]
            lost_in_all += len(lost)
            twice_in_all += twice + len(double)
            print(
                f"kill {turn + 1}: {len(load.acknowledged)} acknowledged, {len(lost)} lost, "
                f"{len(double)} batches and {twice} rows twice",
                flush=True,
            )
        running = Running(data, "--segment-seconds", "0.5")
        running.stop()
        seqs, twice = stored(data)
        # A batch of which rows are missing counts as lost.
        whole = whole_batches(data, batch.rows)
        lost = load.acknowledged - (set(seqs) & whole)
        told = f"{len(lost)} of {len(load.acknowledged)} lost, {twice} rows twice"
        print(f"{len(whole)} batches are whole; after a last start and stop: {told}")
    return 1 if lost_in_all or twice_in_all or lost or twice or not load.acknowledged else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("kill")
    one.add_argument("--times", type=int, default=20)
    one.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return kill(given.times, given.seed)


if __name__ == "__main__":
    sys.exit(main())
