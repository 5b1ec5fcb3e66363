"""DeepSpeed's own launcher: ranks, processes and how they ended, per node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loaders.text.recorder import read

HEAD = "[2025-03-04 10:00:01,000] [INFO] [launch.py:152:main] "
COMMAND = "['/usr/bin/python3', '-u', 'train.py', '--local_rank={}']"


def node(number: int, *, mapping: bool) -> list[str]:
    """What one node prints: two processes, of which the second is killed on node 1."""
    lines = [f"{HEAD}nnodes=2, num_local_procs=2, node_rank={number}"]
    if mapping:
        lines.append(f"{HEAD}global_rank_mapping=defaultdict(<class 'list'>, {{'w-0': [0, 1], 'w-1': [2, 3]}})")
    lines += [f"{HEAD}process {500 + 10 * number + r} spawned with command: {COMMAND.format(r)}" for r in (0, 1)]
    return lines + ([f"[ERROR] {COMMAND.format(1)} exits with return code = -9"] if number else [])


@pytest.mark.parametrize("mapping", [True, False])
def test_a_local_rank_that_ends_is_the_rank_and_process_it_was_started_as(tmp_path: Path, *, mapping: bool) -> None:
    text = "".join(f"w-{n}: {line}\n" for n in (0, 1) for line in node(n, mapping=mapping))
    recorder = read(tmp_path, text)
    row = recorder.event("launcher_failure")
    assert (row["rank"], row["local_rank"], row["pid"], row["code"]) == (3, 1, 511, -9)
    assert recorder.host_name(row) == "w-1"
    assert {rank: told["pid"] for rank, told in recorder.ranks.items()} == {0: 500, 1: 501, 2: 510, 3: 511}


def test_a_node_that_says_nothing_of_itself_leaves_the_rank_open(tmp_path: Path) -> None:
    row = read(tmp_path, f"[ERROR] {COMMAND.format(1)} exits with return code = 1\n").event("launcher_failure")
    assert (row["local_rank"], row["code"]) == (1, 1)
    assert "rank" not in row
