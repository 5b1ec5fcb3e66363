"""Processes, pods and nodes that end, and what the others print of it."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json

from tests.data.log_cases.case import Case, truth


def ras_json_dead() -> Case:
    """NCCL 2.28.7 RAS as JSON: one member is considered dead; the console has the others' timeouts."""
    members = [
        {
            "rank": r,
            "host": f"10.9.0.{1 + r // 4}",
            "pid": 8100 + r,
            "cuda_dev": r % 4,
            "nvml_dev": r % 4,
            "status": {
                "init_state": 0,
                "async_error": 0,
                "finalize_called": False,
                "destroy_flag": False,
                "abort_flag": False,
            },
            "collective_counts": {
                "Broadcast": 2,
                "Reduce": 0,
                "AllGather": 9120,
                "ReduceScatter": 4560,
                "AllReduce": 331,
            },
        }
        for r in range(8)
        if r != 5
    ]
    gone = {
        "rank": 5,
        "host": "10.9.0.2",
        "pid": 8105,
        "cuda_dev": 1,
        "nvml_dev": 1,
        "status": {"unresponsive": True, "considered_dead": True},
    }
    report = {
        "nccl_version": "2.28.7",
        "cuda_runtime_version": 12090,
        "cuda_driver_version": 13000,
        "timestamp": "2026-05-04 16:20:11",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0x6f1d220b8e11c0aa",
                "secondary_hash": "0x1",
                "size": 8,
                "ranks_count": 7,
                "missing_ranks_count": 1,
                "ranks": members,
                "missing_ranks": [gone],
            }
        ],
        "ras": {"collection_time_sec": 5.1, "timeouts_count": 0},
    }
    log = "".join(
        f"[rank{r}]:[E504 16:19:0{r}.000000000 ProcessGroupNCCL.cpp:683] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=14011, OpType=_ALLGATHER_BASE, NumelIn=65536, NumelOut=524288, Timeout(ms)=300000) ran for 30002{r} milliseconds before timing out.\n"
        for r in range(8)
        if r != 5
    )
    return {"ras.json": json.dumps(report, indent=2), "console.log": log}, truth(
        "RAS holds rank 5 for dead", "process died", ranks=(5,), mention=("rank 5",), spare=(0,)
    )


def node_failure() -> Case:
    """Slurm loses a node; NCCL 2.21 closes its connections. No kernel log, no watchdog lines of that node."""
    lines: list[str] = []
    for rank in range(16):
        host, pid = f"gpu-{11 + rank // 8}", 600 + rank
        lines.append(
            f"{rank}: {host}:{pid}:{pid + 30} [{rank % 8}] NCCL INFO ncclCommInitRank comm 0x{rank:x}0aa rank {rank} nranks 16 cudaDev {rank % 8} nvmlDev {rank % 8} busId {rank % 8 + 1:x}b000 commId 0x92cc01d57e33a0b4 - Init COMPLETE"
        )
    for rank in (0, 3, 7):
        lines.append(f"{rank}: ")
        lines.append(
            f"{rank}: gpu-11:{600 + rank}:{700 + rank} [{rank % 8}] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer gpu-12.cluster<4{rank}112>"
        )
    lines += [
        "srun: error: Node failure on gpu-12",
        "slurmstepd: error: *** STEP 88410.0 ON gpu-11 CANCELLED AT 2026-06-01T04:10:22 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: error: gpu-11: tasks 0-7: Killed",
    ]
    return {"slurm-88410.out": "\n".join(lines) + "\n"}, truth(
        "Node gpu-12 failed",
        "process died",
        ranks=tuple(range(8, 16)),
        hosts=("gpu-12",),
        mention=("gpu-12",),
        spare=(0, 3, 7),
    )


def ray_killed() -> Case:
    """Ray Train: the memory monitor kills one worker; the lines of the others are folded."""
    lines: list[str] = []
    for rank in range(8):
        lines.append(
            f"(RayTrainWorker pid={2200 + rank}, ip=10.1.1.{3 + rank // 4}) [rank{rank}]: world rank {rank} local rank {rank % 4} on node-{rank // 4} ready"
        )
    lines += [
        "(raylet, ip=10.1.1.4) [2026-04-02 03:10:44,118 E 900 900] (raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: 7c1e, IP: 10.1.1.4) over the last time period.",
        "(RayTrainWorker pid=2201, ip=10.1.1.3) [rank1]:[E402 03:21:05.118220431 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=721, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, Timeout(ms)=600000) ran for 600019 milliseconds before timing out. [repeated 6x across cluster]",
        "A worker died or was killed while executing a task by an unexpected system error. Worker ID: 44ab Node ID: 7c1e Worker IP address: 10.1.1.4 Worker port: 10031 Worker PID: 2206 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.",
    ]
    kernel = "[Thu Apr  2 03:10:44 2026] Memory cgroup out of memory: Killed process 2206 (ray::RayTrainWor) total-vm:918233904kB, anon-rss:731987612kB, file-rss:98124kB, shmem-rss:33556480kB, UID:0 pgtables:501240kB oom_score_adj:900\n"
    return {"ray.log": "\n".join(lines) + "\n", "dmesg-node-1.txt": kernel}, truth(
        "The kernel killed rank 6 for memory", "OOM", ranks=(6,), mention=("2206",), spare=(1,)
    )


def pod_oom_killed() -> Case:
    """One rank per pod: kubectl describe says OOMKilled, the others' logs end in closed connections."""
    files: dict[str, str] = {}
    for rank in range(4):
        out = f"ddp-worker-{rank}:1:{60 + rank} [0] NCCL INFO Bootstrap: Using eth0:10.8.0.{20 + rank}<0>\n"
        out += f"ddp-worker-{rank}:1:{60 + rank} [0] NCCL INFO ncclCommInitRank comm 0x{rank}1 rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 1e000 commId 0xc001d00d1234abcd - Init COMPLETE\n"
        out += "".join(f"[rank{rank}]: epoch 0 step {s} loss 1.{s}\n" for s in range(5))
        if rank in (1, 3):
            out += f"\n[2026-07-07 05:05:0{rank}] ddp-worker-{rank}:1:88 [0] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer ddp-worker-2.ddp.default.svc.cluster.local<40912>\n"
        if rank == 0:
            out += "[rank0]:[E707 05:05:09.118220431 ProcessGroupNCCL.cpp:552] [Rank 0] Collective WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, Timeout(ms)=600000) raised the following async exception: NCCL error: remote process exited or there was a network error, NCCL version 2.26.2\n"
        files[f"logs/ddp-worker-{rank}.log"] = out
    files["describe.txt"] = (
        "Name:             ddp-worker-2\nNamespace:        default\nNode:             pool-a-77/10.8.9.9\nStatus:           Running\n"
        "Containers:\n  pytorch:\n    State:          Waiting\n      Reason:       CrashLoopBackOff\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"
        "      Started:      Tue, 07 Jul 2026 04:00:01 +0000\n      Finished:     Tue, 07 Jul 2026 05:05:00 +0000\n    Ready:          False\n    Restart Count:  1\n"
    )
    return files, truth(
        "Pod ddp-worker-2 (rank 2) was killed for memory",
        "OOM",
        ranks=(2,),
        mention=("OOMKilled", "ddp-worker-2"),
        spare=(0, 1, 3),
    )


def deepspeed_pdsh() -> Case:
    """DeepSpeed's own launcher over pdsh, torch 2.6: one process killed by the OOM killer, local rank and pid only."""
    mapping = ", ".join(f"'worker-{n}': [{2 * n}, {2 * n + 1}]" for n in range(4))
    command = "['/usr/bin/python3', '-u', 'train.py', '--local_rank={}', '--deepspeed_config', 'ds.json']"
    out: list[str] = []
    for node in range(4):
        head = f"worker-{node}: [2025-03-04 10:00:01,{node * 11:03d}] [INFO]"
        out += [
            f"{head} [launch.py:152:main] nnodes=4, num_local_procs=2, node_rank={node}",
            f"{head} [launch.py:163:main] global_rank_mapping=defaultdict(<class 'list'>, {{{mapping}}})",
            f"{head} [launch.py:164:main] dist_world_size=8",
        ]
        out += [
            f"{head} [launch.py:256:main] process {6200 + node * 100 + local} spawned with command: {command.format(local)}"
            for local in range(2)
        ]
    out += [
        "worker-0: [2025-03-04 10:05:00,221] [INFO] [logging.py:96:log_dist] [Rank 0] step=40, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]",
        "worker-2: [2025-03-04 10:06:12,345] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 6400",
        "worker-2: [2025-03-04 10:06:12,390] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 6401",
        f"worker-2: [2025-03-04 10:06:12,391] [ERROR] [launch.py:322:sigkill_handler] {command.format(1)} exits with return code = -9",
        "pdsh@head: worker-2: ssh exited with exit code 247",
    ]
    for rank in (0, 1, 2, 3, 6, 7):
        out += [
            f"worker-{rank // 2}: [rank{rank}]:[E304 10:36:40.10000{rank:04d} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=50331648, NumelOut=50331648, Timeout(ms)=1800000) ran for 18000{10 + rank} milliseconds before timing out.",
            f"worker-{rank // 2}: [rank{rank}]:[E304 10:36:40.20000{rank:04d} ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 4411 PG status: last enqueued work: 4411, last completed work: 4410",
        ]
    kernel = (
        "[  512.114001] mlx5_core 0000:17:00.0 mlx5_0: Port: 1 Link ACTIVE\n"
        "[91233.501112] python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0\n"
        "[91233.501900] Out of memory: Killed process 6401 (python3) total-vm:812345678kB, anon-rss:412345678kB, file-rss:1024kB, shmem-rss:0kB, UID:1000 pgtables:812340kB oom_score_adj:0\n"
    )
    return {"deepspeed.log": "\n".join(out) + "\n", "dmesg-worker-2.log": kernel}, truth(
        "Rank 5 on worker-2 was killed by the OOM killer",
        "OOM",
        ranks=(5,),
        hosts=("worker-2",),
        mention=("6401",),
        spare=(0, 1, 2, 3, 4, 6, 7),
    )


def shm_full() -> Case:
    """Pods with a small /dev/shm, NCCL 2.19: initialisation fails on one pod."""
    lines: list[str] = []
    for rank in range(4):
        pod = f"ft-{rank // 2}"
        lines.append(
            f"{pod}:{21 + rank % 2}:{60 + rank} [{rank % 2}] NCCL INFO Bootstrap : Using eth0:10.3.0.{rank // 2 + 4}<0>"
        )
        lines.append(
            f"{pod}:{21 + rank % 2}:{60 + rank} [{rank % 2}] NCCL INFO comm 0x5{rank} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} busId {('1b', '43')[rank % 2]}000 commId 0x77aa00cc11dd22ee - Init START"
        )
    lines += [
        "",
        "ft-1:21:62 [0] misc/shmutils.cc:72 NCCL WARN Call to posix_fallocate failed : No space left on device",
        "",
        "ft-1:21:62 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-kE3xIu (size 9637888)",
        "ft-1:21:62 [0] NCCL INFO transport/shm.cc:114 -> 2",
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "/app/ft.py", line 9, in <module>',
        "[rank2]:     dist.barrier()",
        "[rank2]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3",
        "[rank2]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "[rank2]: Last error:",
        "[rank2]: Error while creating shared memory segment /dev/shm/nccl-kE3xIu (size 9637888)",
    ]
    return {"job.log": "\n".join(lines) + "\n"}, truth(
        "/dev/shm of pod ft-1 is full", "exception", ranks=(2,), hosts=("ft-1",), mention=("shm",), spare=(0,)
    )


def swallowed_exception() -> Case:
    """srun -l with a task per rank, torch 2.6: rank 3 catches its exception and goes on without the collective."""
    lines: list[str] = []
    for rank in range(8):
        lines.append(f"{rank}: [2026-01-22 10:00:00,1{rank}4] step 411 loss 2.88{rank}")
    lines += [
        "3: [rank3]: Traceback (most recent call last):",
        '3: [rank3]:   File "/w/train.py", line 140, in train_step',
        "3: [rank3]:     batch = self.mixer.next(domain)",
        '3: [rank3]:   File "/w/mixer.py", line 55, in next',
        "3: [rank3]:     return self.queues[domain].popleft()",
        "3: [rank3]: KeyError: 'math-v2'",
        "3: WARNING batch skipped, continuing",
    ]
    for rank in (1, 0, 2, 4, 7, 6, 5):
        lines.append(
            f"{rank}: [rank{rank}]:[E122 10:10:0{rank}.118220431 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41100, OpType=ALLREDUCE, NumelIn=25600, NumelOut=25600, Timeout(ms)=600000) ran for 6000{rank + 10} milliseconds before timing out."
        )
        lines.append(
            f"{rank}: [rank{rank}]:[E122 10:10:0{rank}.218220431 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 41100 PG status: last enqueued work: 41100, last completed work: 41099"
        )
    lines.append(
        "3: [rank3]:[E122 10:10:02.318220431 ProcessGroupNCCL.cpp:1683] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump signal due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL work: 41099, last completed NCCL work: 41099.This is most likely caused by incorrect usages of collectives."
    )
    lines.append("srun: error: nid001: task 1: Aborted (core dumped)")
    return {"slurm-88211.out": "\n".join(lines) + "\n"}, truth(
        "Rank 3 raised KeyError and skipped a collective",
        "exception",
        ranks=(3,),
        mention=("KeyError", "41100"),
        spare=(1,),
    )


def gloo_assertion() -> Case:
    """Training on CPUs under accelerate, gloo: one traceback without a rank, and a summary that calls rank 0 the root."""
    trace = 'Traceback (most recent call last):\n  File "/w/train_cpu.py", line 97, in <module>\n    main(rank={0})\n'
    out = trace.format(3) + (
        '  File "/w/train_cpu.py", line 71, in main\n    assert x.isfinite().all(), "bad batch"\n'
        "AssertionError: bad batch 118\n"
    )
    for rank in range(3):
        lost = (
            '  File "/opt/py/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", line 2501, in all_reduce\n'
            "    work.wait()\n"
            f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.14]:3801{rank}\n"
        )
        out += "".join(f"[rank{rank}]: {line}\n" for line in (trace.format(rank) + lost).splitlines())
    block = "  time      : 2026-02-03_04:05:0{2}\n  host      : cpu-4\n  rank      : {0} (local_rank: {0})\n  exitcode  : 1 (pid: {1})\n  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    rule, line = "=" * 60, "-" * 60
    out += f"{rule}\ntrain_cpu.py FAILED\n{line}\nFailures:\n[1]:\n{block.format(3, 903, 5)}{line}\n"
    out += f"Root Cause (first observed failure):\n[0]:\n{block.format(0, 900, 6)}{rule}\n"
    return {"accelerate.log": out}, truth(
        "Rank 3 failed an assertion",
        "exception",
        ranks=(3,),
        mention=("AssertionError",),
        spare=(0, 1, 2),
    )
