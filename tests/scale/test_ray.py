"""An analysis on a real Ray cluster, while a worker and a whole node of it are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.scale import make

ROOT = Path(__file__).resolve().parents[2]


def test_cluster_gives_the_digest_of_the_local_run_also_when_a_worker_and_a_node_are_killed(tmp_path: Path) -> None:
    """In a network of its own: Ray listens on all interfaces, also when it is told not to."""
    make(tmp_path, 1_000_000)
    command = 'ip link set lo up && exec "$0" -m tests.scale.ray_cluster "$1"'
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", command, sys.executable, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    # Ray writes between our lines.
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    runs = {line["run"]: line for line in told}
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    digests = {runs[name]["digest"] for name in ("local", "ray", "ray, worker killed", "ray, node killed")}
    assert len(digests) == 1
    assert runs["ray, worker killed"]["disturbed"] == ["worker"]
    assert runs["ray, node killed"]["disturbed"] == ["node"]
