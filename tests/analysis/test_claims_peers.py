"""One rule, one test: who is gone as others tell it, and who never came."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

from tests.analysis import incidents as make
from tests.analysis.incidents import named, verdict_of

UP = make.start_up(8)
PODS = make.start_up(4, per_host=1)


def closed(rank: int, host: str, *, per_host: int = 2) -> str:
    return make.nccl(
        rank, f"socketProgress: Connection closed by remote peer {host}.cluster<40112>", level="WARN", per_host=per_host
    )


def test_a_node_that_the_launcher_lost_takes_its_ranks(tmp_path: Path) -> None:
    text = UP + closed(0, "n2") + "srun: error: Node failure on n2\n"
    text += "slurmstepd: error: *** STEP 8.0 ON n0 CANCELLED AT 2026-03-03T02:17:05 DUE TO NODE FAILURE ***\n"
    assert named(verdict_of(tmp_path, {"slurm.out": text})) == ("process_died", "high", (4, 5), ("n2",))


def test_the_host_that_all_closed_connections_lead_to(tmp_path: Path) -> None:
    text = PODS + closed(0, "n2", per_host=1) + closed(3, "n2", per_host=1)
    assert named(verdict_of(tmp_path, {"nccl.log": text})) == ("process_died", "medium", (2,), ("n2",))


def test_a_host_of_several_ranks_is_one_of_them(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, {"nccl.log": UP + closed(0, "n2") + closed(6, "n2")})
    assert named(verdict) == ("process_died", "medium", (4, 5), ("n2",))
    assert verdict.findings[0].root_cause.one_of


def test_closed_connections_that_lead_to_several_hosts_tell_nothing(tmp_path: Path) -> None:
    assert not verdict_of(tmp_path, {"nccl.log": UP + closed(0, "n2") + closed(6, "n1")}).findings


def test_one_closed_connection_tells_nothing(tmp_path: Path) -> None:
    assert not verdict_of(tmp_path, {"nccl.log": UP + closed(0, "n2")}).findings


def joined(ranks: int, of: int) -> str:
    text = "".join(f"[rank{r}]: starting rank {r} of {of}\n" for r in range(ranks))
    return (
        text
        + f"[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. {ranks}/{of} clients joined.\n"
    )


def test_who_never_joined_is_who_has_no_line(tmp_path: Path) -> None:
    assert named(verdict_of(tmp_path, {"log.txt": joined(6, 8)}))[:3] == ("init_timeout", "medium", (6, 7))


def test_more_lines_than_clients_do_not_tell_who_is_missing(tmp_path: Path) -> None:
    text = joined(6, 8) + "[rank6]: starting rank 6 of 8\n"
    assert not verdict_of(tmp_path, {"log.txt": text}).findings


def test_an_address_in_use_is_a_fault_of_the_start(tmp_path: Path) -> None:
    text = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/train.py", line 31, in <module>\n'
        "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, name: EADDRINUSE, message: address already in use\n"
    )
    assert named(verdict_of(tmp_path, {"log.txt": text}))[:3] == ("init_timeout", "high", (0,))


def test_a_silent_rank_that_ras_holds_for_dead_died(tmp_path: Path) -> None:
    log = "".join(make.timed_out(rank) for rank in range(8) if rank != 5)
    gone = {"rank": 5, "host": "n2", "pid": 1005, "status": {"unresponsive": True, "considered_dead": True}}
    here = [
        {"rank": r, "host": make.host_of(r), "pid": make.pid_of(r), "cuda_dev": 0, "nvml_dev": 0, "status": {"init_state": 0, "async_error": 0}, "collective_counts": {"AllReduce": 9}}
        for r in range(8)
        if r != 5
    ]  # fmt: skip
    report = {"nccl_version": "2.28.7", "timestamp": "2026-03-03 02:20:00", "communicators": [{"hash": "0xab12", "size": 8, "ranks_count": 7, "missing_ranks_count": 1, "ranks": here, "missing_ranks": [gone]}], "ras": {}}  # fmt: skip
    verdict = verdict_of(tmp_path, {"log.txt": log, "ras.json": make.json.dumps(report)})
    assert named(verdict)[0] == "process_died"
    assert named(verdict)[2] == (5,)


def test_ranks_that_only_print_nothing_are_no_second_fault(tmp_path: Path) -> None:
    waiters = "".join(make.timed_out(rank) for rank in (0, 1, 2))
    xid = make.kernel(
        "n2", "17:00", "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    verdict = verdict_of(tmp_path, {"console.log": UP + waiters, "journal-n2.txt": xid})
    assert [tuple(f.root_cause.ranks) for f in verdict.findings] == [(5,)]


def test_the_store_that_nobody_reaches_is_named_not_those_who_say_it(tmp_path: Path) -> None:
    text = "".join(
        f"w{n}: [rank{n}]: torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (w0, 29400).\n"
        for n in (1, 2, 3)
    )
    assert named(verdict_of(tmp_path, {"pdsh.log": text})) == ("init_timeout", "medium", (), ("w0",))


def test_a_host_that_runs_another_version_of_the_library(tmp_path: Path) -> None:
    text = "".join(
        make.nccl(rank, f"NCCL version {'2.18.5+cuda12.1' if rank > 5 else '2.21.5+cuda12.4'}") for rank in range(8)
    )
    skew = make.nccl(6, "Mismatched NCCL version detected : rank 6 version 21805 rank 0 version 21205", level="WARN")
    assert named(verdict_of(tmp_path, {"nccl.log": text + skew}))[3] == ("n3",)
    assert not verdict_of(tmp_path / "2", {"nccl.log": text}).findings


def test_a_full_dev_shm_is_a_fault_of_its_own_host(tmp_path: Path) -> None:
    text = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/app/ft.py", line 9, in <module>\n'
        "[rank2]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219, unhandled system error, NCCL version 2.19.3\n"
        "[rank2]: Last error:\n[rank2]: Error while creating shared memory segment /dev/shm/nccl-kE3xIu (size 9637888)\n"
    )
    assert named(verdict_of(tmp_path, {"job.log": text}))[:3] == ("exception", "high", (2,))


def test_profiles_of_a_healthy_job_are_healthy(tmp_path: Path) -> None:
    assert verdict_of(tmp_path, make.inspector(4, 30, lambda _rank, _op: 2000)).status == "healthy"


TABLE = "NAME   READY   STATUS    RESTARTS   AGE   IP         NODE\n"


def test_the_one_pod_that_failed_is_named(tmp_path: Path) -> None:
    log = PODS + closed(0, "n9", per_host=1)
    table = TABLE + "".join(f"n{n}     1/1     Running   0          3h    10.0.0.{n}   m{n}\n" for n in range(3))
    table += "n3     0/1     Error     0          3h    10.0.0.3   m3\n"
    assert named(verdict_of(tmp_path, {"nccl.log": log, "pods.txt": table})) == (
        "process_died",
        "medium",
        (3,),
        ("n3",),
    )


def test_a_failed_pod_of_another_job_is_not(tmp_path: Path) -> None:
    log = PODS + closed(0, "n9", per_host=1)
    table = TABLE + "".join(f"n{n}     1/1     Running   0          3h    10.0.0.{n}   m{n}\n" for n in range(3))
    table += "web-0  0/1     Error     0          3h    10.0.0.3   m3\n"
    assert not verdict_of(tmp_path, {"nccl.log": log, "pods.txt": table}).findings


def test_a_node_whose_daemon_mpirun_lost_is_gone(tmp_path: Path) -> None:
    text = (
        UP
        + "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[61233,0],0] on node n0\n  Remote daemon: [[61233,0],2] on node n2\n"
    )
    assert named(verdict_of(tmp_path, {"mpi.out": text})) == ("process_died", "high", (4, 5), ("n2",))


def test_a_pod_that_the_cluster_evicted_is_named(tmp_path: Path) -> None:
    events = "LAST SEEN   TYPE      REASON    OBJECT   MESSAGE\n5m          Warning   Evicted   pod/n2   The node was low on resource: memory.\n"
    found = named(verdict_of(tmp_path, {"nccl.log": PODS + closed(0, "n9", per_host=1), "events.txt": events}))
    assert found == ("process_died", "medium", (2,), ("n2",))


def test_a_host_of_which_there_is_no_line_is_known_by_its_closed_connections(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, {"nccl.log": PODS + closed(0, "m7", per_host=1) + closed(3, "m7", per_host=1)})
    assert named(verdict) == ("process_died", "medium", (), ("m7.cluster",))


def test_ranks_on_one_gpu_are_named_together(tmp_path: Path) -> None:
    text = make.nccl(2, "Duplicate GPU detected : rank 3 and rank 2 both on CUDA device 1b000", level="WARN")
    assert named(verdict_of(tmp_path, {"nccl.log": UP.replace("COMPLETE", "START") + text}))[:3] == (
        "misconfigured_interface",
        "high",
        (2, 3),
    )
