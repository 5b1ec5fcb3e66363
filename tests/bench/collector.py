"""The collector in trouble: killed under load, on a full disk, away for longer than an agent can wait.

`python -m tests.bench.collector kill [--times 20]`: SIGKILL at random moments; one line a kill and a sum. Exit status 1
if anything that was acknowledged is missing or anything is there twice.

`python -m tests.bench.collector full [--mib 6]`: on a file system of a few MiB (tmpfs in a mount namespace). Exit
status 1 unless the collector says that the disk is full, lives, drops the oldest raw rows and takes batches to the end.

`python -m tests.bench.collector away [--seconds 60]`: a process writes a ring, an agent with a small spool follows it,
and the collector is killed for the middle third of the time. Exit status 1 unless what is missing is told as a gap,
every row is there or told to be missing, and the agent's memory and spool stayed bounded. What writing an operation
costs the job is printed for each third.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from mycroft.loaders.collector.log import log_numbers, log_path, read_log
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.tracer.agent.batch import key_of
from mycroft.tracer.agent.sender import Collector as Client
from mycroft.tracer.trace import TABLES
from tests.tracer.agent.batches import a_batch, numbered, recorder


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
        # Its helper ends after what it is at; nobody wants that any more, and its folder is about to be removed.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
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


def full(mib: int, seconds: float) -> int:
    """What `full` does, in a mount namespace of its own."""
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as scratch:
        data = Path(scratch) / "small"
        data.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(data)], check=True)
        try:
            return _fill(data, Path(scratch), seconds)
        finally:
            subprocess.run(["umount", str(data)], check=True)


def _fill(data: Path, scratch: Path, seconds: float) -> int:
    from tests.bench.fleet import HOST, Wires, number_of, template

    wires = Wires(template(scratch / "rings"))
    running = Running(data, "--segment-seconds", "0.5")
    client = Client(running.url)
    answers: Counter[int] = Counter()
    said: set[str] = set()
    seq = after = 0
    begin = time.monotonic()
    # Until rows have gone, and then a while longer.
    while time.monotonic() - begin < seconds and after < 300:
        wires.begin(seq + 1, time.time_ns())
        answer = client.post("/api/v1/batch", wires.wire(HOST, time.time_ns()))
        answers[answer.status] += 1
        if answer.taken:
            seq += 1
        else:
            said.add(answer.text)
            time.sleep(0.2)  # an agent waits longer
        if seq % 20 == 0:
            after += 20 if read_manifest(data / "live/store/manifest").dropped else 0
    lives = running.process.poll() is None
    free = os.statvfs(data)
    refused = number_of(running.url, "mycroft_rows_dropped_total")
    running.stop()
    client.close()
    manifest = read_manifest(data / "live" / "store" / "manifest")
    left: Counter[str] = Counter()
    for segment in manifest.segments:
        left[segment.table] += segment.rows
    newest = max(segment.last_ns for segment in manifest.segments if segment.table == "state")
    age_s = time.time() - newest / 1e9
    print(f"answers {dict(answers)}; lives: {lives}; {free.f_bavail * free.f_bsize >> 10} KiB free at the end")
    print(f"said: {sorted(said)}; dropped by its own count: {refused:.0f}")
    print(f"rows dropped {manifest.dropped}")
    print(f"rows left {dict(left)}; the newest states were {age_s:.1f} s old when it was stopped")
    first = manifest.dropped.get("state", 0) > 0 and not manifest.dropped.get("host_minute", 0)
    good = lives and answers[507] and all("full" in text or "disk" in text for text in said)
    return 0 if good and first and after >= 300 else 1


OPS = 4000


def ring_writer(folder: Path, out: Path) -> int:
    """What the job of `away` does until it is ended: 4,000 operations a second, and what each second of them cost."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    spent: list[tuple[float, float]] = []
    with recorder(folder, host="host0") as writer:
        group = writer.comm("dp", rank=0, size=2)
        while not ended.is_set():
            cpu = time.process_time()
            for _ in range(OPS):
                op = group.start("all_reduce", size_bytes=1 << 20)
                flow = op.flow(peer=1, send=True, total=4)
                flow.reach(posted=4, ready=4, moved=4, done=4, size=1 << 20)
                flow.stop()
                op.end()
            writer.tick()
            spent.append((time.time(), (time.process_time() - cpu) / OPS * 1e6))
            ended.wait(1.0)
    out.write_text(json.dumps(spent))
    return 0


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def away(seconds: float) -> int:
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as scratch:
        base = Path(scratch)
        data, rings, out = base / "data", base / "rings", base / "spent"
        running = Running(data)
        port = running.url.rpartition(":")[2]
        write = [sys.executable, "-m", "tests.bench.collector", "write"]
        writing = subprocess.Popen([*write, str(rings), str(out)])
        # The same at the same time, followed by nobody: what else the machine does costs both.
        control = subprocess.Popen([*write, str(base / "alone"), str(base / "alone.spent")])
        agent = subprocess.Popen(
            [sys.executable, "-m", "mycroft.app.cli", "agent", running.url, "--dir", str(rings), "--spool-mb", "1",
             "--state", str(base / "agent"), "--host-name", "host0", "--interval", "0.1"]
        )  # fmt: skip
        memory: list[list[int]] = [[], [], []]
        spool = 0
        marks = [time.time()]
        for third in range(3):
            if third == 1:
                running.kill()
            if third == 2:
                running = Running(data, "--port", port)
            begin = time.monotonic()
            while time.monotonic() - begin < seconds / 3:
                time.sleep(0.5)
                memory[third].append(resident(agent.pid))
                spool = max(spool, sum(p.stat().st_size for p in _there(base / "agent" / "spool")))
            marks.append(time.time())
        for process in (writing, control):
            process.terminate()
            process.wait()
        # All that the ring still holds, and all that waits, is told before the agent ends.
        begin = time.monotonic()
        while (time.monotonic() - begin < 5 or any(_there(base / "agent" / "spool"))) and time.monotonic() - begin < 60:
            time.sleep(0.5)
        agent.terminate()
        agent.wait()
        running.stop()
        running = Running(data, "--segment-seconds", "0.5")  # makes segments of what its predecessor left in the log
        while (manifest := read_manifest(data / "live/store/manifest")).log_done < max(
            log_numbers(data / "live/store/log"), default=0
        ):
            time.sleep(0.5)
        running.stop()
        rows: set[tuple[str, int]] = set()
        lost = twice = 0
        for segment in manifest.segments:
            path = data / "live/store" / segment.path
            if segment.table in TABLES:
                found = pq.read_table(path, columns=["position"], partitioning=None).column("position").to_pylist()
                twice += len(found) - len({(segment.table, position) for position in found} - rows)
                rows |= {(segment.table, position) for position in found}
            elif segment.table == "gaps":
                gaps = pq.read_table(path, partitioning=None)
                lost += sum(gaps.column("rows").to_pylist())
        head = max(position for _, position in rows) + 1
        for name, third in zip(("collector there", "collector away", "there again"), range(3), strict=True):
            costs, alone = (
                statistics.median(
                    cost for at, cost in json.loads(path.read_text()) if marks[third] <= at < marks[third + 1]
                )
                for path in (out, base / "alone.spent")
            )
            print(
                f"{name:<16} an operation costs the job {costs:.2f} us of CPU, one of a ring that nobody follows "
                f"{alone:.2f}: {costs / alone:.3f}; agent {min(memory[third]) >> 20} to {max(memory[third]) >> 20} MiB"
            )
        print(f"spool at most {spool / 1e6:.2f} MB of 1.05; {head} records written, {len(rows)} stored, {twice} twice, "
              f"{lost} told as missing")  # fmt: skip
        grew = max(memory[1]) - statistics.median(memory[0])
        return 0 if lost > 0 and len(rows) + lost == head and not twice and spool <= 1 << 20 and grew < 32 << 20 else 1


def _there(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.batch") if path.exists()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("kill")
    one.add_argument("--times", type=int, default=20)
    one.add_argument("--seed", type=int, default=1)
    two = verbs.add_parser("full")
    two.add_argument("--mib", type=int, default=6)
    two.add_argument("--seconds", type=float, default=240.0)
    two.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    three = verbs.add_parser("away")
    three.add_argument("--seconds", type=float, default=60.0)
    four = verbs.add_parser("write")
    four.add_argument("folder", type=Path)
    four.add_argument("out", type=Path)
    given = parser.parse_args()
    if given.verb == "kill":
        return kill(given.times, given.seed)
    if given.verb == "away":
        return away(given.seconds)
    if given.verb == "write":
        return ring_writer(given.folder, given.out)
    if given.inside:
        return full(given.mib, given.seconds)
    return subprocess.run(
        ["unshare", "-rm", sys.executable, "-m", "tests.bench.collector", *sys.argv[1:], "--inside"]
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
