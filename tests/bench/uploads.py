"""Measures what an upload costs the web processes: memory beyond their rest, and rate.

`python -m tests.bench.uploads [GIB]` starts a real server on loopback, sends one file in chunks over three connections
as the page does, and prints the growth of the resident memory of all web processes together (peak against before).
The content is never loaded: the upload is cancelled at the end.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from mycroft.app.access import WRITE_HEADER
from mycroft.app.config import GIB, MIB, AppConfig
from mycroft.app.processes import Server

CONNECTIONS = 3
HEADERS = {WRITE_HEADER: "1"}


@dataclass(frozen=True, slots=True)
class UploadCost:
    """Bytes sent, seconds it took, and growth of the web processes' resident memory together, bytes."""

    sent_bytes: int
    seconds: float
    grown_bytes: int
    before_bytes: int


def descendants(pid: int) -> list[int]:
    """Return a process and all that it started."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def resident_bytes(pids: list[int]) -> int:
    """Return the resident memory of processes together; what they share counts for each."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def request(port: int, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
    """Send one request; raises for any status from 400."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body, HEADERS | {"Content-Type": kind})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
    return content


def upload(server: Server, size: int) -> UploadCost:
    """Upload `size` bytes and cancel; the memory is sampled after every chunk."""
    port = server.config.port
    web = descendants(server.pids["web"])
    for _ in range(20):
        request(port, "GET", "/")
    wanted = {"files": [{"path": "big.bin", "size": size, "mtime": 0}]}
    made = json.loads(request(port, "POST", "/api/v1/uploads", json.dumps(wanted).encode()))
    chunk_bytes = made["chunk_bytes"]
    chunk = os.urandom(chunk_bytes)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(-(-size // chunk_bytes)):
        waiting.put(number)
    before = resident_bytes(web)
    peaks = [before]
    failures: list[Exception] = []

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            while True:
                number = waiting.get_nowait()
                length = min(chunk_bytes, size - number * chunk_bytes)
                connection.request("PUT", f"/api/v1/uploads/{made['upload']}/0/{number}", chunk[:length], HEADERS)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"chunk {number}: {answer.status}")
                peaks.append(resident_bytes(web))
        except queue.Empty:
            pass
        except Exception as error:
            failures.append(error)
        finally:
            connection.close()

    started = time.perf_counter()
    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if failures:
        raise failures[0]
    state = json.loads(request(port, "GET", f"/api/v1/uploads/{made['upload']}"))
    if state["received_bytes"] != size:
        raise RuntimeError(f"{state['received_bytes']} of {size} bytes arrived")
    request(port, "DELETE", f"/api/v1/uploads/{made['upload']}")
    return UploadCost(size, seconds, max(peaks) - before, before)


def main(argv: list[str] | None = None) -> int:
    """Print one row of the table."""
    arguments = sys.argv[1:] if argv is None else argv
    size = int(float(arguments[0]) * GIB) if arguments else 2 * GIB
    with tempfile.TemporaryDirectory() as folder, Server(AppConfig(data_dir=Path(folder), port=0)) as server:
        cost = upload(server, size)
    rate = cost.sent_bytes / MIB / cost.seconds
    growth = f"web processes grow by {cost.grown_bytes / MIB:.1f} MiB, from {cost.before_bytes / MIB:.0f} MiB"
    print(f"| upload of {cost.sent_bytes / GIB:.2f} GiB | {cost.seconds:.1f} s | {rate:.0f} MiB/s | {growth} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
