"""A whole fleet replayed into one collector: `python -m tests.bench.fleet [--hosts 1250] [--seconds 600]`.

Every host has 8 processes and tells 384 records of 72 bytes a second (28 KB) on a connection of its own, batches as
agents make them, one a second. A second process sends them; positions and times go on, so that every row is new.
Times, durations and counters have noise of their own in every batch. Printed at the end: what was sent and taken, time
until a batch was acknowledged, CPU and memory of the collector and of its helper, bytes of the log that wait to become
segments. With `--rca T10240` a third process judges a stall of 10,240 ranks meanwhile: the trigger each second, the
root cause each ten, as the watch of a job with an open incident does; with `--watch` a `mycroft watch` follows the
store, and how long its looks took is printed.

Exit status 1 if not every batch of the time was taken, or not every row is in the segments afterwards.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import selectors
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import numpy as np
import pyarrow as pa
import zstandard

from mycroft.app.live.state import LiveState
from mycroft.app.state import State
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.tracer.agent.batch import Batch, BatchKey, encode, sealed, tables_of
from mycroft.tracer.agent.rings import Rings
from mycroft.tracer.trace import TABLES
from tests.bench.collector import Running
from tests.tracer.agent.batches import recorder

RANKS = 8
ROWS = {"state": 280, "op": 64, "flow": 32, "heartbeat": 8}
ROWS_S = sum(ROWS.values())
RECORD_BYTES = 72
CAUSE_EVERY_S = 10
HOST = "host-000000"
_TIMES = ("ts", "end_ts", "enq_ts", "kstart_ts", "oldest_open_ts", "progress_ts")
_NOISY = ("dur_ns", "net_busy_ns", "net_max_ns", "peer_wait_ns", "post_delay_ns", "flush_ns", "gpu_hold_ns", "bytes")


def template(folder: Path) -> Batch:
    """One second of one host, from rings that were really written: as many rows of each kind as `ROWS` says."""
    folder.mkdir()
    with ExitStack() as stack:
        for rank in range(RANKS):
            writer = stack.enter_context(recorder(folder, rank=rank, host=HOST))
            group = writer.comm("dp", rank=rank, size=1250 * RANKS)
            for _ in range(8):
                op = group.start("all_reduce", size_bytes=64 << 20)
                flow = op.flow(peer=(rank + 1) % RANKS, send=True, total=64)
                for chunk in range(6):
                    flow.reach(posted=8 * chunk + 8, ready=8 * chunk + 4, moved=8 * chunk + 2, done=8 * chunk, size=1)
                    writer.tick()
                flow.stop()
                op.end()
            writer.tick()
        turn = Rings((folder,), host=HOST).turn()
    tables = {kind: table.slice(0, ROWS[kind]) for kind, table in tables_of(turn.parts).items() if kind in ROWS}
    # In turns of the processes, as an agent would have it: rows of each kind of each of them.
    short = {kind: table.num_rows for kind, table in tables.items() if table.num_rows < ROWS[kind]}
    if short:
        tables = {
            kind: pa.concat_tables([table] * (ROWS[kind] // table.num_rows + 1)).slice(0, ROWS[kind]).combine_chunks()
            for kind, table in tables.items()
        }
    key = BatchKey(host=HOST, boot="boot", seq=0, rows=ROWS_S)
    numbered = {
        kind: _set(table, ring=np.arange(table.num_rows) * RANKS // table.num_rows) for kind, table in tables.items()
    }
    rings = tuple(replace(ring, key=f"{HOST}.{i}", next=10**15) for i, ring in enumerate(turn.rings))
    return Batch(key=key, rings=rings, tables=numbered, agent="bench")


def _set(table: pa.Table, **columns: np.ndarray) -> pa.Table:
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values.astype("uint16")))
    return table.combine_chunks()


class Wires:
    """Makes batches of many hosts from one: positions and times are written into its columns, names into its header."""

    def __init__(self, batch: Batch) -> None:
        wire = encode(batch)
        size = struct.unpack_from("<I", wire, 8)[0]
        content = zstandard.ZstdDecompressor().decompress(wire[16 + size :])
        head = struct.unpack_from("<I", content)[0]
        self._header = bytes(content[4 : 4 + head])
        self._body = bytearray(content[4 + head :])
        self._positions: list[tuple[np.ndarray, np.ndarray]] = []
        self._times: list[tuple[np.ndarray, np.ndarray]] = []
        self._noisy: list[np.ndarray] = []
        # Mostly small, now and then large, as waiting times are.
        self._noise = (np.random.default_rng(1).lognormal(11, 1, 1 << 20)).astype(np.int64)
        at = 0
        frame = pa.py_buffer(self._body)
        for kind, length, _ in json.loads(self._header)["tables"]:
            rows = pa.ipc.read_record_batch(frame.slice(at, length), batch.tables[kind].schema)
            for name in rows.schema.names:
                if name == "position" or name in _TIMES or ((name in _NOISY and kind != "op") or name == "dur_ns"):
                    start = rows.column(name).buffers()[1].address - frame.address
                    view = np.frombuffer(self._body, dtype=np.int64, count=rows.num_rows, offset=start)
                    if name == "position":
                        self._positions.append((view, view.copy()))
                    elif name in _TIMES:
                        self._times.append((view, view.copy()))
                    else:
                        self._noisy.append(view)
            at += length
        self._compressor = zstandard.ZstdCompressor(level=1)
        self.sequence = 0
        self._at = 0

    def begin(self, sequence: int, now_ns: int) -> None:
        """Set what is the same for all hosts of this second."""
        self.sequence = sequence
        self._next = f"{10**15 + sequence * 10_000}".encode()
        for view, _ in self._positions:
            # Rising within each process of each kind, and from second to second.
            view[:] = 10**15 + (sequence - 1) * 10_000 + np.arange(len(view))
        self._now_ns = now_ns

    def _some(self, count: int) -> np.ndarray:
        self._at = (self._at + 7919) % (len(self._noise) - count)
        return self._noise[self._at : self._at + count]

    def wire(self, host: str, now_ns: int) -> bytes:
        """Return the batch of one host; its name is as long as `HOST`."""
        for view, first in self._times:
            view[:] = self._some(len(view))
            view += self._now_ns - 10**9 + first % 10**8
        for view in self._noisy:
            view[:] = self._some(len(view))
        header = self._header.replace(HOST.encode(), host.encode()).replace(f"{10**15}".encode(), self._next)
        content = b"".join((struct.pack("<I", len(header)), header, self._body))
        key = msgspec.json.encode(BatchKey(host=host, boot="boot", seq=self.sequence, made_ns=now_ns, rows=ROWS_S))
        return sealed(key, len(content), self._compressor.compress(content))


class _Host:
    def __init__(self, number: int, address: tuple[str, int]) -> None:
        self.number = number
        self.name = f"host-{number:06}"
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent_at = 0.0
        self.wire = b""
        self.next = 1


class Sender:
    """All hosts, each with a connection and one batch a second.

    A host whose batch is not acknowledged yet keeps the next for later, as an agent does.
    """

    def __init__(self, url: str, hosts: int, folder: Path) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        self._wires = Wires(template(folder))
        self._hosts = [_Host(i, (parts.hostname, parts.port)) for i in range(hosts)]
        self._ready = selectors.DefaultSelector()
        for host in self._hosts:
            self._ready.register(host.socket, selectors.EVENT_READ, host)
        self.took: list[float] = []
        self.refused = 0
        self.size = 0
        self.behind_s = 0.0
        """The most that any batch was sent after its time."""

    def run(self, seconds: int) -> float:
        """Send `seconds` batches of every host; return how long it took until the last was acknowledged."""
        count = len(self._hosts)
        begin = time.monotonic()
        due = [(begin + i / count, i) for i in range(count)]
        waiting = 0
        shown = begin + 10.0
        while due or waiting:
            now = time.monotonic()
            while due and due[0][0] <= now:
                at, number = heapq.heappop(due)
                self._post(self._hosts[number])
                self.behind_s = max(self.behind_s, now - at)
                waiting += 1
            for event, _ in self._ready.select(max(0.0, due[0][0] - now) if due else 1.0):
                host = event.data
                answer = host.socket.recv(4096)
                if not answer:
                    raise SystemExit(f"{host.name}: the collector closed the connection")
                waiting -= 1
                now = time.monotonic()
                if answer.startswith(b"HTTP/1.1 20"):
                    self.took.append(now - host.sent_at)
                    host.wire = b""
                    host.next += 1
                    if host.next <= seconds:
                        heapq.heappush(due, (begin + host.next - 1 + host.number / count, host.number))
                else:
                    self.refused += 1
                    heapq.heappush(due, (now + 1.0, host.number))
            if now >= shown:
                shown += 10.0
                print(f"{now - begin:5.0f} s: {len(self.took)} acknowledged, {waiting} in flight", flush=True)
        return time.monotonic() - begin

    def _post(self, host: _Host) -> None:
        if not host.wire:
            if self._wires.sequence != host.next:
                self._wires.begin(host.next, time.time_ns())
            body = self._wires.wire(host.name, time.time_ns())
            head = f"POST /api/v1/batch HTTP/1.1\r\nHost: collector\r\nContent-Length: {len(body)}\r\n\r\n"
            host.wire = head.encode() + body
        host.sent_at = time.monotonic()
        host.socket.sendall(host.wire)
        self.size += len(host.wire)


def send(url: str, hosts: int, seconds: int, out: Path) -> int:
    """What the sending process does: the result goes to `out`."""
    sender = Sender(url, hosts, out.with_suffix(".rings"))
    wall = sender.run(seconds)
    took = sorted(sender.took)
    result = {
        "batches": len(took),
        "wall_s": wall,
        "bytes": sender.size,
        "refused": sender.refused,
        "behind_s": sender.behind_s,
        "median_ms": statistics.median(took) * 1e3,
        "p99_ms": took[int(len(took) * 0.99)] * 1e3,
        "most_ms": took[-1] * 1e3,
        "cpu_s": time.process_time(),
    }
    out.write_text(json.dumps(result))
    return 0


def used(session: int) -> dict[str, tuple[float, int]]:
    """CPU seconds and resident bytes of the processes of a collector, by role."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found: dict[str, tuple[float, int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            role = "helper" if b"collector.helper" in (entry / "cmdline").read_bytes() else "collector"
            cpu, memory = found.get(role, (0.0, 0))
            found[role] = (cpu + (int(fields[11]) + int(fields[12])) / ticks, memory + int(fields[21]) * page)
    return found


def number_of(url: str, name: str) -> float:
    """One number of the collector's page."""
    with urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))


def stored_rows(data: Path) -> int:
    """Rows in the segments, of all kinds of records."""
    manifest = read_manifest(data / "live" / "store" / "manifest")
    dropped = sum(count for name, count in manifest.dropped.items() if name in TABLES)
    return dropped + sum(segment.rows for segment in manifest.segments if segment.table in TABLES)


def replay(hosts: int, seconds: int, rca: str, where: Path | None, *, watch: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-", dir=where) as scratch:
        data, out = Path(scratch) / "data", Path(scratch) / "sent"
        running = Running(data)
        me = [sys.executable, "-m", "tests.bench.fleet"]
        sending = subprocess.Popen(
            [*me, "--send", running.url, "--hosts", str(hosts), "--seconds", str(seconds), "--out", str(out)]
        )
        judging = subprocess.Popen(["nice", "-n", "5", *me, "--judge", rca], stdout=subprocess.PIPE) if rca else None
        watching = (
            subprocess.Popen(
                [sys.executable, "-m", "mycroft.app.cli", "watch", "--data", str(data)], start_new_session=True
            )
            if watch
            else None
        )
        state = LiveState(State(data)) if watch else None
        looks: list[float] = []
        watch_cpu = 0.0
        begin = time.monotonic()
        most: dict[str, int] = {}
        backlog: list[float] = []
        while sending.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                sending.wait(5.0)
            for role, (_, memory) in used(running.process.pid).items():
                most[role] = max(most.get(role, 0), memory)
            if watching is not None and state is not None:
                tick = state.numbers().get("tick", (0.0, {}))[1]
                looks.append(float(tick.get("seconds", 0.0)))
                for _, (cpu, memory) in used(watching.pid).items():
                    most["watch"] = max(most.get("watch", 0), memory)
                    watch_cpu = cpu
            backlog.append(number_of(running.url, "mycroft_log_waiting_bytes"))
        drained = time.monotonic()
        while number_of(running.url, "mycroft_log_waiting_bytes") and time.monotonic() - drained < seconds + 60:
            time.sleep(0.5)
        drained_s = time.monotonic() - drained
        if watching is not None:
            watching.terminate()
            watching.wait()
        judged = ""
        if judging is not None:
            judging.terminate()
            judged = judging.communicate()[0].decode()
        spent = used(running.process.pid)
        wall = drained - begin
        running.stop()
        if sending.returncode:
            return 1
        sent = json.loads(out.read_text())
        rows = stored_rows(data)
        wanted = hosts * seconds * ROWS_S
        store = read_manifest(data / "live" / "store" / "manifest")
        told = {
            "hosts": f"{hosts}, {RANKS} processes each, {ROWS_S} records a second each",
            "batches": f"{sent['batches']} in {sent['wall_s']:.1f} s: {sent['batches'] / sent['wall_s']:.0f}/s",
            "records": f"{sent['batches'] * ROWS_S * RECORD_BYTES / sent['wall_s'] / 1e6:.1f} MB/s as the rings have "
            f"them, {sent['bytes'] / sent['wall_s'] / 1e6:.1f} MB/s on the wire",
            "refused for a moment": f"{sent['refused']}; the latest was sent {sent['behind_s']:.2f} s after its time",
            "acknowledged after": f"median {sent['median_ms']:.0f} ms, p99 {sent['p99_ms']:.0f} ms, "
            f"most {sent['most_ms']:.0f} ms",
            **{
                role: f"{cpu:.1f} CPU-s ({100 * cpu / wall:.0f} % of a core), at most {most[role] >> 20} MiB"
                for role, (cpu, _) in sorted(spent.items())
            },
            "sender": f"{sent['cpu_s']:.1f} CPU-s ({100 * sent['cpu_s'] / wall:.0f} % of a core)",
            "log that waits": f"median {statistics.median(backlog) / 1e6:.1f} MB, most {max(backlog) / 1e6:.1f} MB, "
            f"all in segments {drained_s:.1f} s after the last batch",
            "store": f"{rows} of {wanted} rows, {store.size_bytes / 1e6:.0f} MB in {len(store.segments)} segments "
            f"({store.size_bytes / max(rows, 1):.1f} bytes a row)",
        }
        if looks:
            told["watch"] = (
                f"{watch_cpu:.1f} CPU-s, at most {most['watch'] >> 20} MiB; a tick took "
                f"{statistics.median(looks):.2f} s (median), at most {max(looks):.2f} s"
            )
        for name, text in told.items():
            print(f"{name:<25} {text}")
        if judged:
            print(judged, end="")
    return 0 if rows == wanted and sent["batches"] == hosts * seconds else 1


def judge(topology: str) -> int:
    """What the judging process does until it is told to stop: a line with the median of its times at the end."""
    from mycroft.analysis.config import NS_PER_S
    from mycroft.analysis.flow_findings import flow_findings
    from mycroft.analysis.host_clocks import clock_offsets
    from mycroft.analysis.trigger import scan
    from mycroft.app.evaluation.whole_job import store_of
    from tests.bench.flow_rca import STUCK_S, window

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    simulated = window(topology)
    at_ns = int((simulated.injected_ns or 0) + STUCK_S * NS_PER_S)
    ticks: list[tuple[float, float]] = []
    causes: list[tuple[float, float]] = []
    with store_of(simulated) as store:
        offsets = clock_offsets(store, at=at_ns)
        seconds, since = ("stall", "intermittent"), at_ns - NS_PER_S

        def tick() -> None:
            scan(store, since_ns=since, until_ns=at_ns, detectors=seconds, offsets=offsets)

        second = 0
        while not stop.wait(1.0):
            second += 1
            works: list[tuple[Callable[[], object], list[tuple[float, float]]]] = [(tick, ticks)]
            if second % CAUSE_EVERY_S == 0:
                works.append((lambda: flow_findings(store, at=at_ns), causes))
            for work, times in works:
                wall, cpu = time.monotonic(), time.process_time()
                work()
                times.append((time.monotonic() - wall, time.process_time() - cpu))
    for name, times in (("trigger tick", ticks), ("root cause", causes)):
        if times:
            wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"{name:<25} {topology}: median {wall:.2f} s, {cpu:.2f} CPU-s, of {len(times)} meanwhile", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1250)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--rca", default="", metavar="TOPOLOGY")
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--where", type=Path, help="folder for the store (default: the system's temporary one)")
    parser.add_argument("--send", default="", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--judge", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.send:
        return send(given.send, given.hosts, given.seconds, given.out)
    return (
        judge(given.judge)
        if given.judge
        else replay(given.hosts, given.seconds, given.rca, given.where, watch=given.watch)
    )


if __name__ == "__main__":
    sys.exit(main())
