from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from mycroft.analysis.fleet import ExecutorError, LocalExecutor, ProcessExecutor, RayExecutor, Window, digest, run
from mycroft.analysis.fleet.reductions import OPERATIONS
from tests.analysis.fleet import dying
from tests.analysis.fleet.pieces import START, made_up, split


def test_processes_give_the_digest_of_the_local_run() -> None:
    pieces = split(made_up("op", 200, seed=1), 5, seed=1)
    window = Window(0, START * 2)
    local = run(OPERATIONS, pieces, window, LocalExecutor(threads=1))
    beside = run(OPERATIONS, pieces, window, ProcessExecutor(processes=1))
    assert local.num_rows > 1
    assert digest(beside) == digest(local)


def test_item_whose_process_is_killed_is_done_again_and_each_result_comes_once(tmp_path: Path) -> None:
    items = [(tmp_path / "died", number) for number in range(8)]
    found = [table.to_pylist()[0] for table in ProcessExecutor(processes=2).map(dying.dies_once, items)]
    assert (tmp_path / "died").exists()
    assert sorted(row["square"] for row in found) == [number * number for number in range(8)]
    assert os.getpid() not in {row["process"] for row in found}


def test_work_that_kills_every_process_is_given_up_with_a_reason() -> None:
    with pytest.raises(ExecutorError, match="processes died 4 times"):
        list(ProcessExecutor(processes=1).map(dying.dies, [1]))


def test_ray_that_is_not_installed_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ExecutorError, match="pip install ray"):
        RayExecutor()


@pytest.mark.parametrize("address", ["local", ""])
def test_no_cluster_is_ever_started(address: str) -> None:
    with pytest.raises(ExecutorError, match="connects to one that runs"):
        RayExecutor(address)
