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
def test_the_command_beside_an_exit_code_does_not_tell_which_process_of_a_node_ended(
    tmp_path: Path, *, mapping: bool
) -> None:
    text = "".join(f"w-{n}: {line}\n" for n in (0, 1) for line in node(n, mapping=mapping))
    recorder = read(tmp_path, text)
    row = recorder.event("launcher_failure")
    # The launcher prints the command that it started last, whichever process ended.
    assert [row.get(name) for name in ("rank", "local_rank", "pid", "code")] == [None, None, None, -9]
    assert recorder.host_name(row) == "w-1"
    assert {rank: told["pid"] for rank, told in recorder.ranks.items()} == {0: 500, 1: 501, 2: 510, 3: 511}


def test_the_only_process_of_a_node_is_the_one_that_ended(tmp_path: Path) -> None:
    lines = [
        f"{HEAD}nnodes=2, num_local_procs=1, node_rank=1",
        f"{HEAD}process 510 spawned with command: {COMMAND.format(0)}",
        f"[ERROR] {COMMAND.format(0)} exits with return code = -9",
    ]
    row = read(tmp_path, "\n".join(lines) + "\n").event("launcher_failure")
    assert (row["rank"], row["local_rank"], row["pid"]) == (1, 0, 510)


def test_a_node_that_says_nothing_of_itself_leaves_the_rank_open(tmp_path: Path) -> None:
    row = read(tmp_path, f"[ERROR] {COMMAND.format(1)} exits with return code = 1\n").event("launcher_failure")
    assert row["code"] == 1
    assert row.get("rank") is None
