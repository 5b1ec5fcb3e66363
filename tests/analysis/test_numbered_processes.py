"""Processes that servers and launchers number in their own ways, and the ranks these numbers are."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

from tests.analysis.incidents import named, verdict_of

RAISED = (
    'Traceback (most recent call last):\n  File "/sgl/scheduler.py", line 2300, in run\n    loop()\nIndexError: 4097\n'
)
SERVER = "[2026-03-04 10:00:0{n} {name}] Init torch distributed begin.\n"


def served(*names: str, failed: str) -> str:
    start = "".join(SERVER.format(n=n % 10, name=name) for n, name in enumerate(names))
    return start + f"[2026-03-04 10:05:11 {failed}] Scheduler hit an exception: {RAISED}"


def test_the_processes_of_one_tensor_parallel_server_are_numbered_by_rank(tmp_path: Path) -> None:
    text = served(*(f"TP{n}" for n in range(4)), failed="TP2")
    assert named(verdict_of(tmp_path, {"server.log": text}))[:3] == ("exception", "high", (2,))


def test_with_data_parallel_attention_too(tmp_path: Path) -> None:
    text = served(*(f"DP{n // 2} TP{n}" for n in range(4)), failed="DP1 TP2")
    assert named(verdict_of(tmp_path, {"server.log": text}))[:3] == ("exception", "high", (2,))


def test_replicas_with_the_same_numbers_are_not_told_apart(tmp_path: Path) -> None:
    text = served("DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1", failed="DP1 TP1")
    assert not verdict_of(tmp_path, {"server.log": text}).findings


def test_a_worker_that_vllm_lost_is_named(tmp_path: Path) -> None:
    text = "(EngineCore_0 pid=2300) ERROR 03-04 10:32:47 [multiproc_executor.py:154] Worker proc VllmWorker-2 died unexpectedly, shutting down executor.\n"
    assert named(verdict_of(tmp_path, {"vllm.log": text}))[:3] == ("process_died", "high", (2,))


def test_what_composer_repeats_of_a_process_is_that_rank_s(tmp_path: Path) -> None:
    text = (
        "ERROR:composer.cli.launcher:Rank 3 crashed with exit code 1.\n----------Begin global rank 3 STDERR----------\n"
    )
    text += 'Traceback (most recent call last):\n  File "/app/train.py", line 3, in <module>\n    fit()\nValueError: bad shard\n'
    text += "----------End global rank 3 STDERR----------\nERROR:composer.cli.launcher:Global rank 0 (PID 4100) exited with code -15\n"
    assert named(verdict_of(tmp_path, {"composer.log": text}))[:3] == ("exception", "high", (3,))


def test_a_line_that_gives_both_numbers_of_a_process_introduces_its_node(tmp_path: Path) -> None:
    text = "".join(f"[default{n}]:INFO global rank {4 + n} local rank {n} world size 8\n" for n in range(4))
    text += "".join(f"[default2]:{line}\n" for line in RAISED.splitlines())
    assert named(verdict_of(tmp_path, {"node1.log": text}))[:3] == ("exception", "high", (6,))
