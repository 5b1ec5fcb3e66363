"""Several runs in one file."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

from tests.loaders.text.recorder import read

BANNER = "W0217 08:43:03.4 51142 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1\n"
FAILED = "E0217 09:15:07.0 51142 api.py:874] failed (exitcode: -9) local_rank: 2 (pid: 51214) of binary: /opt/env/bin/python3.11\n"


def jobs(tmp_path: Path, text: str) -> list[tuple[float, str | None]]:
    return [(row["value"], row.get("job")) for row in read(tmp_path, text).rows(kind="step")]


def test_a_start_after_a_failure_is_another_run(tmp_path: Path) -> None:
    text = BANNER + "step 1\n" + FAILED + BANNER + "step 2\n"
    assert jobs(tmp_path, text) == [(1.0, "run 1"), (2.0, "run 2")]


def test_nodes_that_start_together_are_one_run(tmp_path: Path) -> None:
    assert jobs(tmp_path, BANNER * 4 + "step 1\n" + FAILED) == [(1.0, None)]


def test_workers_that_are_started_again_are_another_run(tmp_path: Path) -> None:
    restart = "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
    recorder = read(tmp_path, BANNER + "step 1\n" + FAILED + restart + "step 2\n")
    assert [row["job"] for row in recorder.rows(kind="step")] == ["run 1", "run 2"]
    assert recorder.event("other", name="restart")["value"] == 2.0


def test_jobs_that_name_themselves_keep_their_names(tmp_path: Path) -> None:
    text = BANNER + "[jobA] step 1\n" + FAILED + BANNER + "[jobB] step 2\n"
    assert jobs(tmp_path, text) == [(1.0, "jobA"), (2.0, "jobB")]
