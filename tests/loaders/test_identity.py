"""Rank, host, process, pod, GPU, NIC and rank inside a group, joined from whatever is there."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders import Store
from tests.loaders.sources import loaded

BUS = ("1b000", "43000", "52000", "9d000")


def init(
    host: str, pid: int, rank: int, size: int, bus: str, *, comm: str = "0xab", pointer: str = "0x7f", dev: int = 0
) -> str:
    return (
        f"{host}:{pid}:{pid + 1} [{dev}] NCCL INFO ncclCommInitRank comm {pointer} rank {rank} nranks {size} cudaDev {dev} "
        f"nvmlDev {dev} busId {bus} commId {comm} - Init COMPLETE\n"
    )


WORLD = "".join(init(f"n{r // 2}", 100 + r, r, 4, BUS[r % 2], dev=r % 2) for r in range(4))


def events(store: Store, kind: str, *columns: str) -> list[tuple[Any, ...]]:
    names = ", ".join(columns)
    return store.frame(f"SELECT {names} FROM events WHERE kind = '{kind}' ORDER BY file_id, line").rows()


def ranks(store: Store) -> dict[int, tuple[str | None, int | None, str | None]]:
    sql = "SELECT r.rank, h.name, r.pid, r.gpu FROM ranks r LEFT JOIN hosts h USING (host_id) ORDER BY 1"
    return {row[0]: row[1:] for row in store.frame(sql).rows()}


def claims(store: Store, attribute: str) -> dict[int, tuple[str, str, bool]]:
    sql = f"SELECT rank, value, reason, ambiguous FROM identity WHERE attribute = '{attribute}' ORDER BY rank"
    return {row[0]: row[1:] for row in store.frame(sql).rows()}


def test_nccl_s_world_gives_ranks_to_processes(tmp_path: Path) -> None:
    with loaded(tmp_path, {"nccl.log": WORLD}) as store:
        assert ranks(store) == {
            0: ("n0", 100, "0000:1b:00.0"),
            1: ("n0", 101, "0000:43:00.0"),
            2: ("n1", 102, "0000:1b:00.0"),
            3: ("n1", 103, "0000:43:00.0"),
        }
        assert store.frame("SELECT world_size FROM jobs").rows() == [(4,)]
        assert claims(store, "pid")[2][:2] == ("102", "rank in NCCL's world communicator")


@pytest.mark.parametrize(
    ("line", "kind", "rank"),
    [
        ("n1:103:900 [1] NCCL INFO NET/IB : No device found.\n", "nic_state", None),
        ("\nn1:103:900 [1] misc/socket.cc:1 NCCL WARN something new\n", "nccl_error", 3),
        (
            "2026-03-03T02:17:05+00:00 n1 kernel: NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n",
            "xid",
            3,
        ),
        (
            "2026-03-03T02:17:05+00:00 n1 kernel: Out of memory: Killed process 102 (python3) total-vm:9kB\n",
            "oom_kill",
            2,
        ),
        (
            "2026-03-03T02:17:05+00:00 n1 kernel: NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus.\n",
            "xid",
            None,
        ),
        (
            "2026-03-03T02:17:05+00:00 n9 kernel: Out of memory: Killed process 102 (python3) total-vm:9kB\n",
            "oom_kill",
            None,
        ),
        ("[12.000001] Out of memory: Killed process 102 (python3) total-vm:9kB\n", "oom_kill", 2),
    ],
)
def test_lines_that_name_a_process_or_a_device_get_their_rank(
    tmp_path: Path, line: str, kind: str, rank: int | None
) -> None:
    with loaded(tmp_path, {"a-nccl.log": WORLD, "b-other.log": line}) as store:
        assert events(store, kind, "rank") == [(rank,)]


def test_the_name_of_a_file_is_the_host_of_its_lines(tmp_path: Path) -> None:
    xid = "[12.000001] NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n"
    with loaded(tmp_path, {"nccl.log": WORLD, "dmesg-n0.txt": xid, "dmesg-n1.txt": xid}) as store:
        assert events(store, "xid", "rank") == [(1,), (3,)]


def test_a_device_that_two_hosts_have_stays_open(tmp_path: Path) -> None:
    xid = "[12.000001] NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n"
    with loaded(tmp_path, {"nccl.log": WORLD, "dmesg.txt": xid}) as store:
        assert events(store, "xid", "rank") == [(None,)]


def test_a_process_number_that_two_hosts_have_stays_open(tmp_path: Path) -> None:
    twice = "".join(init(f"n{r}", 100, r, 2, BUS[0]) for r in range(2))
    killed = "Out of memory: Killed process 100 (python3) total-vm:9kB\n"
    with loaded(
        tmp_path, {"nccl.log": twice, "a.txt": f"[12.000001] {killed}", "b-n1.txt": f"[12.000001] {killed}"}
    ) as store:
        assert events(store, "oom_kill", "rank") == [(None,), (1,)]


def test_ranks_of_a_group_are_turned_into_global_ones(tmp_path: Path) -> None:
    group = "".join(init("n1", 102 + i, i, 2, BUS[i], comm="0xcd", pointer="0x8f") for i in range(2))
    ras = (
        "NCCL version 2.26.2 compiled with CUDA 12.6\n#1-0 (00000000000000cd) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  Rank 1 has launched up to operation 7 -- GPU 1 managed by process 103 on node n1\n"
    )
    with loaded(tmp_path, {"nccl.log": WORLD + group, "ras.txt": ras}) as store:
        assert events(store, "ras_member", "comm_rank", "rank") == [(1, 3)]
        sql = "SELECT m.rank FROM members m JOIN communicators c USING (comm_id) WHERE c.name = '0xcd' ORDER BY 1"
        assert store.frame(sql).rows() == [(2,), (3,)]


def test_edges_are_between_global_ranks_and_have_both_devices(tmp_path: Path) -> None:
    lines = WORLD
    for rank, side in ((1, "send"), (2, "receive")):
        host, pid = f"n{rank // 2}", 100 + rank
        lines += f"{host}:{pid}:{pid + 1} [0] NCCL INFO NET/IB : Using [0]mlx5_{rank}:1/IB ; OOB ib0:10.0.0.{rank}<0>\n"
        lines += f"{host}:{pid}:{pid + 1} [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [{side}] via NET/IB/0/GDRDMA\n"
    with loaded(tmp_path, {"nccl.log": lines}) as store:
        sql = "SELECT src, dst, CAST(transport AS VARCHAR), nic, dst_nic FROM edges"
        assert store.frame(sql).rows() == [(1, 2, "net_ib", "mlx5_1", "mlx5_2")]
        assert claims(store, "nic")[2][0] == "mlx5_2"


def test_a_host_under_its_address(tmp_path: Path) -> None:
    bootstrap = "n1:102:103 [0] NCCL INFO Bootstrap : Using eth0:10.20.31.5<0>\n"
    ras = (
        "NCCL version 2.26.2 compiled with CUDA 12.6\nDEAD\n  Process 103 on node 10.20.31.5 managing GPU 1\n"
        "#0-0 (00000000000000ab) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 3 -- GPU 1 managed by process 103 on node 10.20.31.5\n"
    )
    with loaded(tmp_path, {"nccl.log": WORLD + bootstrap, "ras.txt": ras}) as store:
        assert events(store, "ras_peer", "rank") == [(3,)]
        assert claims(store, "address")[2][0] == "10.20.31.5"


@pytest.mark.parametrize(("other", "same"), [("n1.cluster.local", True), ("N1.cluster.local", True), ("n10", False)])
def test_a_host_with_and_without_its_domain(tmp_path: Path, other: str, same: bool) -> None:
    line = f"2026-03-03T02:17:05+00:00 {other} kernel: Out of memory: Killed process 102 (python3) total-vm:9kB\n"
    with loaded(tmp_path, {"nccl.log": WORLD, "syslog.txt": line}) as store:
        assert events(store, "oom_kill", "rank") == [(2 if same else None,)]


def test_pods_lead_to_nodes(tmp_path: Path) -> None:
    lines = "".join(init(f"llm-worker-{r}", 1, r, 2, BUS[0]) for r in range(2))
    pods = (
        "NAME           READY   STATUS    RESTARTS   AGE   IP          NODE         NOMINATED NODE   READINESS GATES\n"
        "llm-worker-0   1/1     Running   0          3d    10.1.0.4    gpu-node-7   <none>           <none>\n"
        "llm-worker-1   1/1     Running   0          3d    10.1.0.5    gpu-node-8   <none>           <none>\n"
    )
    xid = "2026-03-03T02:17:05+00:00 gpu-node-8 kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
    with loaded(tmp_path, {"nccl.log": lines, "pods.txt": pods, "journal.txt": xid}) as store:
        assert events(store, "xid", "rank") == [(1,)]
        assert claims(store, "node")[1][0] == "gpu-node-8"


def test_a_gpu_by_its_index_and_its_uuid(tmp_path: Path) -> None:
    csv = "index, uuid, pci.bus_id, temperature.gpu\n0, GPU-aa, 00000000:1B:00.0, 50\n1, GPU-bb, 00000000:43:00.0, 91\n"
    dmon = "# gpu    pwr  gtemp\n# Idx      W      C\n    1    690     91\n"
    with loaded(tmp_path, {"nccl.log": WORLD, "smi-n1.csv": csv, "dmon-n1.txt": dmon}) as store:
        hot = store.frame("SELECT DISTINCT rank FROM events WHERE name = 'temperature_c' AND value > 90").rows()
        assert hot == [(3,)]
        assert claims(store, "uuid")[3][0] == "GPU-bb"


def test_gpus_in_order_are_a_guess_that_says_so(tmp_path: Path) -> None:
    ras = (
        "NCCL version 2.26.2 compiled with CUDA 12.6\nGroup     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n    #  in group  per comm  per node  per comm  in group\n    0         1         1         2         2         2   RUNNING  MISMATCH\n#0-0 (00000000000000ab) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        + "".join(
            f"  Rank {r} has launched up to operation 7 -- GPU {r} managed by process {100 + r} on node n0\n"
            for r in range(2)
        )
    )
    smi = "".join(
        f"GPU 00000000:{bus}:00.0\n    Minor Number : {i}\n    Temperature\n        GPU Current Temp : {90 * i} C\n"
        for i, bus in enumerate(("1B", "43"))
    )
    with loaded(tmp_path, {"ras.txt": ras, "smi-n0.txt": smi}) as store:
        assert store.frame("SELECT rank FROM events WHERE name = 'temperature_c' AND value = 90").rows() == [(1,)]


def test_two_runs_of_one_job_do_not_confuse_each_other(tmp_path: Path) -> None:
    again = "".join(init(f"n{r // 2}", 500 + r, r, 4, BUS[r % 2], comm="0xef", dev=r % 2) for r in range(4))
    warn = "\nn1:503:900 [1] misc/socket.cc:1 NCCL WARN something new\n"
    with loaded(tmp_path, {"nccl.log": WORLD + again + warn}) as store:
        assert events(store, "nccl_error", "rank") == [(3,)]


def test_two_halves_of_a_job_are_no_world(tmp_path: Path) -> None:
    halves = "".join(
        init(f"n{r // 2}", 100 + r, r % 2, 2, BUS[r % 2], comm=f"0xa{r // 2}", dev=r % 2) for r in range(4)
    )
    with loaded(tmp_path, {"nccl.log": halves}) as store:
        assert not ranks(store)


def test_sources_that_contradict_each_other_are_marked(tmp_path: Path) -> None:
    other = "[rank3]: n7:103:900 [1] NCCL INFO Bootstrap : Using eth0:10.0.0.9<0>\n"
    with loaded(tmp_path, {"a.log": WORLD, "b.log": other}) as store:
        sql = "SELECT value, ambiguous FROM identity WHERE rank = 3 AND attribute = 'host' ORDER BY value"
        found = store.frame(sql).rows()
        assert ("n1", False) in found or {ambiguous for _, ambiguous in found} == {True}


def test_ranks_of_a_benchmark_are_not_the_job_s(tmp_path: Path) -> None:
    bench = (
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
        "#  Rank  0 Group  0 Pid   5092 on       n1 device  0 [0000:1b:00] NVIDIA H100\n"
        "  134217728  33554432  float  sum  -1  857.6  156.51  293.46  0  819.6  163.76  307.05  0\n"
    )
    with loaded(tmp_path, {"nccl.log": WORLD, "bench.txt": bench}) as store:
        assert {row[0] for row in events(store, "bench_row", "rank")} == {None}
        assert ranks(store)[0] == ("n0", 100, "0000:1b:00.0")


def test_a_stack_gets_its_rank_from_its_process(tmp_path: Path) -> None:
    stack = 'Process 103: python3 train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread 103 (active): "MainThread"\n    wait (threading.py:320)\n    <module> (train.py:9)\n'
    with loaded(tmp_path, {"nccl.log": WORLD, "pyspy-n1.txt": stack}) as store:
        assert store.frame("SELECT DISTINCT rank, pid FROM stacks").rows() == [(3, 103)]


def test_the_order_of_files_changes_nothing(tmp_path: Path) -> None:
    parts = [init(f"n{r // 2}", 100 + r, r, 4, BUS[r % 2], dev=r % 2) for r in range(4)]
    found: list[object] = []
    for number, order in enumerate(((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1))):
        contents = {f"{place}.log": parts[part] for place, part in enumerate(order)}
        with loaded(tmp_path / str(number), contents) as store:
            found.append(ranks(store))
    assert found[0] == found[1] == found[2]


def test_a_process_without_its_host_is_known_where_its_number_is_used_once(tmp_path: Path) -> None:
    ray = "".join(f"(TrainWorker pid={2200 + r}, ip=10.1.1.3) [rank{r}]: step 1 loss 2.0\n" for r in range(4))
    kernel = "[Thu Apr  2 03:10:44 2026] Memory cgroup out of memory: Killed process 2202 (ray) total-vm:9kB\n"
    with loaded(tmp_path, {"ray.log": ray, "dmesg.txt": kernel}) as store:
        assert events(store, "oom_kill", "rank") == [(2,)]


def test_the_state_of_a_pod_of_one_rank_is_that_rank_s(tmp_path: Path) -> None:
    log = "".join(init(f"worker-{r}", 7, r, 3, BUS[0]) for r in range(3))
    pods = (
        "Name:             worker-1\nNode:             pool-7/10.0.0.7\n    Last State:     Terminated\n"
        "      Reason:       OOMKilled\n      Exit Code:    137\n"
    )
    with loaded(tmp_path, {"nccl.log": log, "describe.txt": pods}) as store:
        assert events(store, "oom_kill", "rank") == [(1,)]


def test_a_collector_that_puts_its_own_name_before_every_line(tmp_path: Path) -> None:
    text = "".join(
        f"collector: {line}\n" for line in ("NIC statistics:", "     tx_prio3_pause: 5000", "     rx_prio3_pause: 7")
    )
    counters = {f"t{t}/n{h}.txt": text for t in range(2) for h in range(2)}
    with loaded(tmp_path, {"nccl.log": WORLD, **counters}) as store:
        sql = "SELECT DISTINCT f.path, h.name FROM events e JOIN hosts h USING (host_id) JOIN files f USING (file_id) WHERE e.kind = 'nic_counter'"
        found = dict(store.frame(sql).rows())
        assert {path.rpartition("/")[2]: host for path, host in found.items()} == {"n0.txt": "n0", "n1.txt": "n1"}


@pytest.mark.parametrize(("collector", "rank"), [("logs-1", 2), ("n0", None)])
def test_one_file_behind_a_collector_s_name_is_of_the_host_that_it_is_named_after(
    tmp_path: Path, collector: str, rank: int | None
) -> None:
    killed = f"{collector} kernel: Out of memory: Killed process 102 (python3) total-vm:8kB, anon-rss:4kB, file-rss:0kB"
    files = {"nccl.log": WORLD, "dmesg-n1.log": f"Jul  7 05:05:00 {killed}\n"}
    with loaded(tmp_path, files) as store:
        # On `n0` ranks run: what it says of itself is its own, whatever the file is called.
        assert events(store, "oom_kill", "rank") == [(rank,)]


def test_a_world_without_a_name_is_that_of_the_greatest_size(tmp_path: Path) -> None:
    def old(pid: int, rank: int, size: int) -> str:
        return f"n0:{pid}:{pid + 1} [0] NCCL INFO comm 0x{pid}{size} rank {rank} nranks {size} cudaDev 0 busId {BUS[0]} - Init COMPLETE\n"

    log = "".join(old(100 + r, r, 4) + old(100 + r, r % 2, 2) for r in range(4))
    xid = "2026-03-03T02:17:05+00:00 n0 kernel: NVRM: Xid (PCI:0000:1b:00): 31, pid=102, name=python3, MMU Fault\n"
    with loaded(tmp_path, {"nccl.log": log, "dmesg.txt": xid}) as store:
        assert events(store, "xid", "rank") == [(2,)]


def test_two_worlds_without_a_name_give_no_ranks(tmp_path: Path) -> None:
    log = "".join(
        f"n0:{100 + p}:9 [0] NCCL INFO comm 0x{p} rank {p % 2} nranks 2 cudaDev 0 busId {BUS[0]} - Init COMPLETE\n"
        for p in range(4)
    )
    with loaded(tmp_path, {"nccl.log": log}) as store:
        assert events(store, "comm_init", "rank") == [(None,)] * 4


@pytest.mark.parametrize(("said", "rank"), [((0, 1, 2), 3), ((0, 1), None), ((0, 1, 2, 5), None)])
def test_a_tensor_parallel_rank_is_the_rank_where_the_numbers_leave_no_gap(
    tmp_path: Path, said: tuple[int, ...], rank: int | None
) -> None:
    log = "[2026-03-04 11:20:05 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
    log += '  File "/s/scheduler.py", line 24, in run\n    self.loop()\nValueError: bad batch\n'
    log += "".join(
        f"[rank{r}]:[E304 11:30:00.1 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=60) ran for 61 milliseconds before timing out.\n"
        for r in said
    )
    with loaded(tmp_path, {"sglang.log": log}) as store:
        assert events(store, "exception", "rank") == [(rank,)]
