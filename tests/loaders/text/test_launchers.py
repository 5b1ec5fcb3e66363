"""How launchers say that processes ended, in all their ages."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.loaders.text.recorder import read

FAILED = "failed (exitcode: -9) local_rank: 3 (pid: 42065) of binary: /usr/bin/python3"
SENDING = "Sending process 51207 closing signal SIGTERM"
API = "torch.distributed.elastic.multiprocessing.api"
AGES = {
    "2.3 and later": ("E0217 09:15:06.010000 51142 site-packages/torch/distributed/elastic/multiprocessing/api.py:900] ", datetime(2026, 2, 17, 9, 15, 6, 10000)),
    "2.0 to 2.2": (f"[2026-04-22 16:20:35,000] {API}: [WARNING] ", datetime(2026, 4, 22, 16, 20, 35)),
    "1.x": (f"WARNING:{API}:", None),
}  # fmt: skip


@pytest.mark.parametrize("age", AGES)
def test_the_agent_s_lines_of_every_age(tmp_path: Path, age: str) -> None:
    prefix, moment = AGES[age]
    recorder = read(tmp_path, f"{prefix}{SENDING}\n{prefix}{FAILED}\n")
    signal = recorder.event("launcher_signal")
    failure = recorder.event("launcher_failure")
    assert (signal["pid"], signal["name"], signal["code"]) == (51207, "SIGTERM", -15)
    assert (failure["code"], failure["local_rank"], failure["pid"], failure["name"]) == (-9, 3, 42065, "failed")
    assert failure.get("ts") == moment
    assert "rank" not in failure


BLOCK = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-02-17_09:15:07
  host      : hx-a03
  rank      : 12 (local_rank: 4)
  exitcode  : 1 (pid: 51215)
  error_file: /tmp/x/error.json
  traceback : Traceback (most recent call last):
    File "/app/train.py", line 3, in main
      run()
  ValueError: bad shard
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-02-17_09:15:06
  host      : hx-a03
  rank      : 10 (local_rank: 2)
  exitcode  : -6 (pid: 51214) (SIGABRT)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 51214
============================================================
after 1
"""


def test_a_block_is_a_row_for_every_failure(tmp_path: Path) -> None:
    recorder = read(tmp_path, BLOCK)
    failure, root = recorder.rows(kind="launcher_failure")
    assert (failure["name"], failure["rank"], failure["local_rank"], failure["code"]) == ("failure", 12, 4, 1)
    assert "ValueError: bad shard" in failure["text"]
    assert (root["name"], root["rank"], root["pid"], root["code"]) == ("root_cause", 10, 51214, -6)
    assert root["ts"] == datetime(2026, 2, 17, 9, 15, 6)
    assert recorder.host_name(root) == "hx-a03"
    assert recorder.ranks[10]["pid"] == 51214


@pytest.mark.parametrize("first", ["=====", "Failures:", "Root Cause"])
def test_a_block_without_the_exception_above_it_is_read_as_well(tmp_path: Path, first: str) -> None:
    rows = read(tmp_path, BLOCK[BLOCK.index(first) :]).rows(kind="launcher_failure")
    assert rows[-1]["name"] == "root_cause"
    (tmp_path / "whole").mkdir()
    assert rows[-1]["rank"] == read(tmp_path / "whole", BLOCK).rows(kind="launcher_failure")[-1]["rank"]


def test_no_other_failures(tmp_path: Path) -> None:
    start, _, rest = BLOCK.partition("[1]:\n")
    text = start + "  <NO_OTHER_FAILURES>\n" + rest[rest.index("----") :]
    (root,) = read(tmp_path, text).rows(kind="launcher_failure")
    assert root["rank"] == 10


def test_a_block_cut_short_keeps_what_is_there(tmp_path: Path) -> None:
    text = BLOCK[: BLOCK.index("  error_file: <N/A>")]
    rows = read(tmp_path, text).rows(kind="launcher_failure")
    assert [(row["name"], row["rank"]) for row in rows] == [("failure", 12), ("root_cause", 10)]


def test_blocks_of_two_nodes_in_one_console_stay_apart(tmp_path: Path) -> None:
    one = [f"0: {line}" for line in BLOCK.splitlines()]
    two = [f"1: {line}" for line in BLOCK.replace("hx-a03", "hx-b01").replace(": 1", ": 2").splitlines()]
    text = "\n".join(line for pair in zip(one, two, strict=True) for line in pair) + "\n"
    recorder = read(tmp_path, text)
    rows = recorder.rows(kind="launcher_failure")
    assert sorted((recorder.host_name(row), row["rank"]) for row in rows) == [
        ("hx-a03", 10),
        ("hx-a03", 12),
        ("hx-b01", 20),
        ("hx-b01", 22),
    ]


def test_a_launcher_s_line_in_a_rank_s_file_is_not_of_that_rank(tmp_path: Path) -> None:
    assert "rank" not in read(tmp_path, f"WARNING:{API}:{SENDING}\n", "rank_3.log").event("launcher_signal")


def test_slurm_tasks_are_listed_one_by_one(tmp_path: Path) -> None:
    text = (
        "srun: error: node-03: task 2: Exited with exit code 1\n"
        "srun: error: node-04: tasks 4-6,9: Killed\n"
        "srun: error: node-05: task 11: Out Of Memory\n"
        "srun: error: node-05: task 12: Segmentation fault (core dumped)\n"
    )
    recorder = read(tmp_path, text)
    said = [(row["kind"], row["value"], row["code"], recorder.host_name(row)) for row in recorder.rows()]
    assert said == [
        ("exit", 2.0, 1, "node-03"),
        *(("signal", float(task), -9, "node-04") for task in (4, 5, 6, 9)),
        ("oom_kill", 11.0, -9, "node-05"),
        ("signal", 12.0, -11, "node-05"),
    ]
    assert all("rank" not in row for row in recorder.rows())


def test_slurm_lists_the_nodes_that_failed(tmp_path: Path) -> None:
    recorder = read(tmp_path, "srun: error: Node failure on gpu-12,gpu-[08-09,11]\n")
    rows = recorder.rows(kind="host_fault")
    assert {row["name"] for row in rows} == {"node_failure"}
    assert [recorder.host_name(row) for row in rows] == ["gpu-12", "gpu-08", "gpu-09", "gpu-11"]


def test_slurm_says_why_a_step_was_cancelled(tmp_path: Path) -> None:
    text = (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=771204.0. Some of the step tasks have been OOM Killed.\n"
        "slurmstepd: error: *** STEP 771204.0 ON node-01 CANCELLED AT 2026-05-20T13:06:01 DUE TO TIME LIMIT ***\n"
    )
    recorder = read(tmp_path, text)
    assert recorder.event("oom_kill")["name"] == "cgroup_event"
    cancelled = recorder.event("launcher_signal")
    assert (cancelled["name"], cancelled["peer"], cancelled["ts"]) == (
        "TIME LIMIT",
        "771204.0",
        datetime(2026, 5, 20, 13, 6, 1),
    )


def test_open_mpi_and_mpich(tmp_path: Path) -> None:
    text = (
        "mpirun noticed that process rank 3 with PID 77 on node n2 exited on signal 9 (Killed).\n"
        "  Process name: [[12345,1],5]\n  Exit code:    2\n"
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 4711 RUNNING AT n7\n=   EXIT CODE: 139\n"
    )
    recorder = read(tmp_path, text)
    signal = recorder.event("signal")
    assert (signal["rank"], signal["pid"], signal["code"], recorder.host_name(signal)) == (3, 77, -9, "n2")
    open_mpi, mpich = recorder.rows(kind="exit")
    assert (open_mpi["rank"], open_mpi["code"]) == (5, 2)
    assert (mpich["pid"], mpich["code"], recorder.host_name(mpich)) == (4711, -11, "n7")


def test_spawned_processes(tmp_path: Path) -> None:
    text = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGKILL\n"
    event = read(tmp_path, text).event("signal")
    assert (event["local_rank"], event["code"]) == (2, -9)


PODS = """\
NAME           READY   STATUS      RESTARTS      AGE   IP           NODE            NOMINATED NODE   READINESS GATES
llm-worker-0   1/1     Running     0             3h    10.0.0.4     ip-10-44-7-21   <none>           <none>
llm-worker-1   0/1     OOMKilled   2 (5m ago)    3h    10.0.0.5     ip-10-44-7-88   <none>           <none>
"""


def test_pods_and_their_nodes(tmp_path: Path) -> None:
    recorder = read(tmp_path, PODS)
    first, _, second, _ = recorder.rows()
    assert (first["kind"], first["name"], recorder.host_name(first)) == ("pod_state", "llm-worker-0", "ip-10-44-7-21")
    assert (second["kind"], second["name"], recorder.host_name(second)) == ("oom_kill", "llm-worker-1", "ip-10-44-7-88")


def test_pods_and_their_addresses(tmp_path: Path) -> None:
    recorder = read(tmp_path, PODS.replace("10.0.0.5 ", "<none>   "))
    (address,) = recorder.rows(kind="identity")
    assert (address["name"], address["peer"], recorder.host_name(address)) == ("address", "10.0.0.4", "llm-worker-0")


def test_the_description_of_a_pod(tmp_path: Path) -> None:
    text = (
        "Name:             llm-worker-1\nNode:             ip-10-44-7-88/10.44.7.88\n"
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
    )
    recorder = read(tmp_path, text)
    killed = recorder.event("oom_kill")
    assert (killed["name"], recorder.host_name(killed)) == ("llm-worker-1", "ip-10-44-7-88")
    assert recorder.event("exit")["code"] == -9


def test_events_of_the_cluster(tmp_path: Path) -> None:
    text = (
        "LAST SEEN   TYPE      REASON         OBJECT                  MESSAGE\n"
        "3m          Warning   NodeNotReady   node/ip-10-44-7-88      Node is not ready\n"
        "2m          Warning   Evicted        pod/llm-worker-1        The node was low on resource: memory\n"
    )
    recorder = read(tmp_path, text)
    node, pod = recorder.rows(kind="pod_state")
    assert (recorder.host_name(node), node["peer"]) == ("ip-10-44-7-88", "NodeNotReady")
    assert (pod["name"], pod["peer"]) == ("llm-worker-1", "Evicted")


def test_ray_workers_that_died(tmp_path: Path) -> None:
    text = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID: ab Node ID: cd "
        "Worker IP address: 10.0.0.4 Worker port: 10012 Worker PID: 8123 Worker exit type: SYSTEM_ERROR Worker exit detail: …\n"
    )
    event = read(tmp_path, text).event("exit")
    assert (event["name"], event["pid"], event["peer"]) == ("ray_worker", 8123, "10.0.0.4")


def test_the_end_of_a_job_stream(tmp_path: Path) -> None:
    text = "".join(f"run7.node-a.nolog [stderr] line {i}\n" for i in range(4)) + "run7.node-a.nolog [end] rc=137\n"
    recorder = read(tmp_path, text)
    event = recorder.event("exit")
    assert (event["code"], event["job"], recorder.host_name(event)) == (-9, "run7", "node-a")
