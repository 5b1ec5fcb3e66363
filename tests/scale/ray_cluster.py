"""A Ray cluster of a head and two nodes, and an analysis on it while parts of it are killed.

`unshare -n sh -c 'ip link set lo up && exec python -m tests.scale.ray_cluster STORE'`: Ray listens on all interfaces,
so it gets a network of its own in which there is none but loopback. Prints one JSON line a run; exit status 1 where a
digest differs from that of the local run. A cluster that does not come up within its deadline is tried once more.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mycroft.analysis.fleet import LocalExecutor, RayExecutor, Window, digest, run
from mycroft.analysis.fleet.reductions import ACTIVITY
from mycroft.loaders.fleet import FleetReader, open_fleet
from mycroft.loaders.fleet.pieces import pieces_of

WHOLE = Window(0, 1 << 62)
START_S = 150.0


class Cluster:
    """A head without processors, so that all work is on the two nodes."""

    def __init__(self) -> None:
        cluster_utils = importlib.import_module("ray.cluster_utils")
        self._made: Any = cluster_utils.Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": 128 << 20, "include_dashboard": False},
        )
        self.nodes = [self.add(), self.add()]
        self.address: str = self._made.address

    def add(self) -> Any:
        return self._made.add_node(num_cpus=1, object_store_memory=128 << 20, wait=True)

    def kill_node(self) -> None:
        self._made.remove_node(self.nodes.pop(), allow_graceful=False)

    def close(self) -> None:
        self._made.shutdown()


def started() -> Cluster:
    """Start a cluster; once more where the first did not come up in time. Ray wants the main thread for it."""

    def too_late(*_: object) -> None:
        raise TimeoutError(f"no cluster after {START_S:g} s")

    signal.signal(signal.SIGALRM, too_late)
    for attempt in (1, 2):
        signal.alarm(int(START_S))
        try:
            return Cluster()
        except Exception as error:
            print(f"attempt {attempt}: {error}", file=sys.stderr)
        finally:
            signal.alarm(0)
    raise SystemExit("no Ray cluster came up")


def kill_a_worker() -> bool:
    """SIGKILL a process that is at work for us."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes().startswith(b"ray::_same_release"):
                os.kill(int(entry.name), signal.SIGKILL)
                return True
    return False


def one_run(name: str, reader: FleetReader, executor: Any, meanwhile: Any = None) -> dict[str, Any]:
    segments = reader.manifest.of(ACTIVITY.table)
    size = max(1, sum(segment.size_bytes for segment in segments) // 12)
    pieces = pieces_of(reader.url, segments, piece_bytes=size)
    began = time.monotonic()
    done = threading.Event()
    disturbed: list[str] = []
    disturber = threading.Thread(target=_disturb, args=(meanwhile, done, disturbed))
    disturber.start()
    found = run(ACTIVITY, pieces, WHOLE, executor)
    done.set()
    disturber.join()
    return {
        "run": name,
        "rows": sum(segment.rows for segment in segments),
        "tasks": len(pieces),
        "groups": found.num_rows,
        "seconds": round(time.monotonic() - began, 2),
        "digest": digest(found),
        "disturbed": disturbed,
    }


def _disturb(meanwhile: Any, done: threading.Event, disturbed: list[str]) -> None:
    """Do it as soon as there is something to disturb, and once only."""
    while meanwhile is not None and not done.wait(0.02):
        said = meanwhile()
        if said:
            disturbed.append(said)
            return


def main() -> int:
    reader = open_fleet(sys.argv[1])
    runs = [one_run("local", reader, LocalExecutor(threads=1))]
    began = time.monotonic()
    cluster = started()
    print(json.dumps({"run": "start", "seconds": round(time.monotonic() - began, 2)}), flush=True)
    try:
        executor = RayExecutor(cluster.address)
        runs.append(one_run("ray, first", reader, executor))
        runs.append(one_run("ray", reader, executor))
        runs.append(one_run("ray, worker killed", reader, executor, lambda: "worker" if kill_a_worker() else ""))

        def kill_node_at_work() -> str:
            if not any(_is_at_work(entry) for entry in Path("/proc").iterdir()):
                return ""
            cluster.kill_node()
            return "node"

        runs.append(one_run("ray, node killed", reader, executor, kill_node_at_work))
        executor.close()
    finally:
        cluster.close()
    for each in runs:
        print(json.dumps(each), flush=True)
    wrong = [each["run"] for each in runs if each["digest"] != runs[0]["digest"]]
    undisturbed = [each["run"] for each in runs if "killed" in each["run"] and not each["disturbed"]]
    return 1 if wrong or undisturbed else 0


def _is_at_work(entry: Path) -> bool:
    with contextlib.suppress(OSError):
        return entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"ray::_same_release")
    return False


if __name__ == "__main__":
    sys.exit(main())
