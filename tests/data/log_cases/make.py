"""Writes the cases beside it: `python tests/data/log_cases/make.py`. They are written, not recorded.

The fixed texts are those that the programs print in the versions that a case names; names, hosts, addresses and
numbers are invented. Each case is a function that returns its files and its truth.
"""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Case = tuple[dict[str, str], dict[str, Any]]
HERE = Path(__file__).parent


def truth(
    title: str,
    category: str,
    *,
    ranks: tuple[int, ...] = (),
    hosts: tuple[str, ...] = (),
    mention: tuple[str, ...] = (),
    spare: tuple[int, ...] = (),
    spare_hosts: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return what `truth.json` holds."""
    made: dict[str, Any] = {
        "title": title,
        "root_cause": {"ranks": list(ranks), "hosts": list(hosts)},
        "category": category,
        "hang": category != "healthy",
        "must_mention": list(mention),
    }
    if spare or spare_hosts:
        made["must_not_blame"] = {"ranks": list(spare), "hosts": list(spare_hosts)}
    return made


def stamp(seconds: int, *, start: str = "09:10:00") -> str:
    """Return a time of day some seconds after `start`."""
    hour, minute, second = (int(part) for part in start.split(":"))
    total = hour * 3600 + minute * 60 + second + seconds
    return f"{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}"


def ray_nvlink() -> Case:
    """Two nodes of vLLM under Ray, NCCL 2.27, torch 2.7: an NVLink of one GPU fails, Xid 74."""
    lines: list[str] = []
    for rank in range(16):
        ip, pid = f"10.0.4.{7 + rank // 8}", 5120 + rank
        head = f"(RayWorkerWrapper pid={pid}, ip={ip})"
        host = f"ip-10-0-4-{7 + rank // 8}"
        bus = ("0f", "2d", "44", "5b", "89", "a8", "c0", "d8")[rank % 8]
        lines.append(
            f"{head} {host}:{pid}:{pid + 300} [{rank % 8}] NCCL INFO ncclCommInitRank comm 0x{rank:x}a0c8 rank {rank} nranks 16 cudaDev {rank % 8} nvmlDev {rank % 8} busId {bus}000 commId 0x41d0aa9be217c355 - Init COMPLETE"
        )
    lines.append(
        "(EngineCore_0 pid=4100) INFO 04-11 09:12:30 [loggers.py:118] Engine 000: Avg prompt throughput: 812.4 tokens/s, Running: 61 reqs"
    )
    lines.append(
        "(RayWorkerWrapper pid=5131, ip=10.0.4.8) [rank11]:[E411 09:20:04.118220431 ProcessGroupNCCL.cpp:1901] [PG ID 2 PG GUID 3 Rank 11] Process group watchdog thread terminated with exception: CUDA error: uncorrectable NVLink error detected during the execution"
    )
    lines.append(
        "(RayWorkerWrapper pid=5131, ip=10.0.4.8) CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    )
    for rank in (3, 0, 9, 14, 5, 8, 2):
        ip = f"10.0.4.{7 + rank // 8}"
        lines.append(
            f"(RayWorkerWrapper pid={5120 + rank}, ip={ip}) [rank{rank}]:[E411 09:30:0{rank % 8}.41822{rank:02d}31 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=90133, OpType=ALLREDUCE, NumelIn=4194304, NumelOut=4194304, Timeout(ms)=600000) ran for 6000{rank + 11} milliseconds before timing out."
        )
    lines.append(
        "(RayWorkerWrapper pid=5121, ip=10.0.4.7) [rank1]:[E411 09:30:07.118220431 ProcessGroupNCCL.cpp:2268] [PG ID 2 PG GUID 3 Rank 1]  failure detected by watchdog at work sequence id: 90133 PG status: last enqueued work: 90133, last completed work: 90132 [repeated 9x across cluster]"
    )
    kernel = (
        "Apr 11 09:20:03 ip-10-0-4-8 kernel: NVRM: Xid (PCI:0000:5b:00): 74, pid='5131', name=ray::RayWorkerW, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)\n"
        "Apr 11 09:20:03 ip-10-0-4-8 kernel: NVRM: Xid (PCI:0000:5b:00): 45, pid=5131, name=ray::RayWorkerW, Ch 00000008, errorString CTX SWITCH TIMEOUT\n"
    )
    return {"serve.log": "\n".join(lines) + "\n", "journal-ip-10-0-4-8.txt": kernel}, truth(
        "An NVLink of rank 11's GPU failed (Xid 74)",
        "GPU fault Xid",
        ranks=(11,),
        hosts=("ip-10-0-4-8",),
        mention=("Xid 74", "rank 11"),
        spare=(1, 3),
    )


def port_error_223() -> Case:
    """Four nodes of Megatron, NCCL 2.23 under torchrun --tee: a port of one host goes, no other evidence."""
    lines: list[str] = []
    hosts = ("tg031", "tg032", "tg033", "tg034")
    for rank in range(16):
        host, pid = hosts[rank // 4], 71000 + rank * 3
        head = f"[default{rank % 4}]:{host}:{pid}:{pid + 900} [{rank % 4}] NCCL INFO"
        lines.append(f"{head} Bootstrap: Using ib0:172.16.8.{31 + rank // 4}<0>")
        lines.append(
            f"{head} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_4:1/IB [3]mlx5_5:1/IB [RO]; OOB ib0:172.16.8.{31 + rank // 4}<0>"
        )
        lines.append(
            f"{head} ncclCommInitRankConfig comm 0x{rank:x}b91e0 rank {rank} nranks 16 cudaDev {rank % 4} nvmlDev {rank % 4} busId {(1, 4, 8, 12)[rank % 4]:x}1000 commId 0x77c1d5e0aa31904b - Init COMPLETE"
        )
    for step in range(3):
        lines.append(
            f"[default3]: iteration {1200 + step}/ 50000 | consumed samples: {(1200 + step) * 512} | elapsed time per iteration (ms): 8127.4 | learning rate: 1.2E-04 | lm loss: 2.31{step}E+00 |"
        )
    lines.append("[default2]:")
    lines.append(
        "[default2]:tg033:71030:72122 [2] transport/net_ib.cc:1299 NCCL WARN NET/IB : mlx5_5:1 Got async error event: port error"
    )
    for rank, peer in ((8, 32), (4, 33), (12, 33), (10, 34)):
        host, pid = hosts[rank // 4], 71000 + rank * 3
        lines.append(f"[default{rank % 4}]:")
        lines.append(
            f"[default{rank % 4}]:{host}:{pid}:{pid + 1200} [{rank % 4}] transport/net_ib.cc:1903 NCCL WARN NET/IB: Got completion from peer 172.16.8.{peer}<47{rank:02d}9> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_5"
        )
    for rank in (0, 5, 12):
        lines.append(
            f"[default{rank % 4}]:[rank{rank}]:[E612 22:14:5{rank % 10}.118220431 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=33810, OpType=_REDUCE_SCATTER_BASE, NumelIn=134217728, NumelOut=8388608, Timeout(ms)=1800000) ran for 18000{rank + 20} milliseconds before timing out."
        )
    return {"megatron.log": "\n".join(lines) + "\n"}, truth(
        "mlx5_5 of tg033 lost its port",
        "NIC or IB link error",
        hosts=("tg033",),
        mention=("tg033", "mlx5_5"),
        spare=(0, 4, 12),
        spare_hosts=("tg032", "tg034"),
    )


def roce_down_229() -> Case:
    """NCCL 2.29 in pods (CRI logs), RoCE: an Ethernet link goes down; dmesg -T of the nodes."""
    files: dict[str, str] = {}
    for pod in range(4):
        t = f"2026-08-20T06:4{pod}:00.00000000{pod}Z"
        out: list[str] = []
        for local in range(2):
            rank, pid = pod * 2 + local, 90 + local
            head = f"{t} stdout F"
            out.append(
                f"{head} llama-{pod}:{pid}:{pid + 40} [{local}] NCCL INFO Bootstrap: Using eth0:10.244.{pod}.9<0>"
            )
            out.append(
                f"{head} llama-{pod}:{pid}:{pid + 40} [{local}] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.244.{pod}.9<0>"
            )
            out.append(
                f"{head} llama-{pod}:{pid}:{pid + 40} [{local}] NCCL INFO ncclCommInitRankConfig comm 0x5{rank}c0 rank {rank} nranks 8 cudaDev {local} nvmlDev {local} busId {('1b', '43')[local]}000 commId 0x10c9d37be2aa4f11 - Init COMPLETE"
            )
        files[f"pods/llama-{pod}_train.log"] = ""
        late = "2026-08-20T07:02:1"
        if pod == 2:
            out.append(f"{late}1.000000001Z stderr F ")
            out.append(
                f"{late}1.000000002Z stderr F [2026-08-20 07:02:11] llama-2:90:188 [0] transport/net_ib/common.cc:211 (ncclIbAsyncThreadMain) NCCL WARN NET/IB : mlx5_1:1 Got non-fatal async event: port error(10)"
            )
        for me, peer in ((1, 2), (3, 2)):
            if pod == me:
                out.append(f"{late}8.000000001Z stderr F ")
                out.append(
                    f"{late}8.000000002Z stderr F [2026-08-20 07:02:18] llama-{me}:91:199 [1] transport/net_ib/p2p.cc:604 (ncclIbTest) NCCL WARN NET/IB: Got completion from peer 10.244.{peer}.9<52110> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=129  localGid ::ffff:192.168.9.{me} remoteGids ::ffff:192.168.9.{peer} hca mlx5_1"
                )
        if pod != 2:
            for local in range(2):
                rank = pod * 2 + local
                out.append(
                    f"2026-08-20T07:12:0{rank}.000000001Z stderr F [rank{rank}]:[E820 07:12:0{rank}.000118220 ProcessGroupNCCL.cpp:757] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5120, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 60004{rank} milliseconds before timing out."
                )
        files[f"pods/llama-{pod}_train.log"] = "\n".join(out) + "\n"
    files["dmesg/k8s-node-c.txt"] = (
        "[Thu Aug 20 07:02:10 2026] mlx5_core 0000:9b:00.1 ens5f1np1: Link down\n"
        "[Thu Aug 20 07:02:10 2026] mlx5_core 0000:9b:00.1: Port module event: module 1, Cable unplugged\n"
    )
    files["kubectl-get-pods.txt"] = (
        "NAME      READY   STATUS    RESTARTS   AGE   IP            NODE         NOMINATED NODE   READINESS GATES\n"
        + "".join(
            f"llama-{p}   1/1     Running   0          3h    10.244.{p}.9    k8s-node-{'abcd'[p]}   <none>           <none>\n"
            for p in range(4)
        )
    )
    return files, truth(
        "The RoCE link of pod llama-2 on k8s-node-c went down",
        "NIC or IB link error",
        hosts=("llama-2",),
        mention=("llama-2", "mlx5_1"),
        spare_hosts=("llama-1", "llama-3"),
    )


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


def fingerprint() -> Case:
    """torch 2.4 with TORCH_DISTRIBUTED_DEBUG=DETAIL under mpirun --tag-output: one rank's batch is another."""
    odd = "CollectiveFingerPrint(SequenceNumber=77, OpType=ALLGATHER, TensorShape=[12, 4096], TensorDtypes=BFloat16, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))"
    usual = odd.replace("[12, 4096]", "[16, 4096]")
    lines: list[str] = []
    for rank in range(4):
        other, theirs, mine = (2, odd, usual) if rank != 2 else (0, usual, odd)
        lines.append(f"[1,{rank}]<stderr>:[rank{rank}]: Traceback (most recent call last):")
        lines.append(f'[1,{rank}]<stderr>:[rank{rank}]:   File "/app/pretrain.py", line 221, in gather_logits')
        lines.append(f"[1,{rank}]<stderr>:[rank{rank}]:     dist.all_gather(parts, logits)")
        lines.append(
            f"[1,{rank}]<stderr>:[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: {mine}, but Rank {other} is running collective: {theirs}.Collectives differ in the following aspects: \t Tensor Tensor shapes: 16 4096vs 12 4096"
        )
    lines.append("mpirun noticed that process rank 1 with PID 40211 on node nd-2 exited on signal 6 (Aborted).")
    return {"mpi.out": "\n".join(lines) + "\n"}, truth(
        "Rank 2 gathers 12 rows, the others 16", "size mismatch", ranks=(2,), mention=("rank 2",), spare=(0, 1)
    )


def address_in_use() -> Case:
    """torchrun of torch 2.5: the store's port is taken by a process of an older job."""
    log = (
        "[W1014 08:00:01.402118220 socket.cpp:755] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 - Address already in use).\n"
        "[W1014 08:00:01.402122220 socket.cpp:755] [c10d] The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address already in use).\n"
        "[E1014 08:00:01.402130220 socket.cpp:791] [c10d] The server socket has failed to listen on any local network address.\n"
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/app/train.py", line 31, in <module>\n'
        '[rank0]:     dist.init_process_group("nccl")\n'
        "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
        "W1014 08:00:02.010000 7700 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process 7741 closing signal SIGTERM\n"
        "W1014 08:00:02.010000 7700 site-packages/torch/distributed/elastic/multiprocessing/api.py:897] Sending process 7742 closing signal SIGTERM\n"
        "E1014 08:00:02.310000 7700 site-packages/torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 7740) of binary: /usr/bin/python3\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        + "=" * 60
        + "\ntrain.py FAILED\n"
        + "-" * 60
        + "\nFailures:\n  <NO_OTHER_FAILURES>\n"
        + "-" * 60
        + "\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2026-10-14_08:00:02\n  host      : box-9\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 7740)\n  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
        + "=" * 60
        + "\n"
    )
    return {"torchrun.txt": log}, truth(
        "Port 29500 on box-9 is in use", "timeouts at init", ranks=(0,), hosts=("box-9",), mention=("EADDRINUSE",)
    )


def desync_report() -> Case:
    """torch 2.1 with TORCH_NCCL_DESYNC_DEBUG, glog prefixes: rank 6 did not join."""
    lines = [
        "E0712 03:00:11.204512  5012 ProcessGroupNCCL.cpp:474] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600441 milliseconds before timing out.",
        "E0712 03:00:11.204612  5012 ProcessGroupNCCL.cpp:488] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        "terminate called after throwing an instance of 'std::runtime_error'",
        "  what():  [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4411, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for 600441 milliseconds before timing out.",
        "\t - [0] Timeout at collective: ALLREDUCE, #4523",
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "\t   - [6] finished collective #4410, but didn't join collective #4411 (count from 1)",
        "\t - Snapshot of ranks' latest states:",
        "\t   #4410 finished ranks:",
        "\t     [6] finished ALLREDUCE",
        "\t   #4411 started ranks:",
        "\t     [0, 1, 2, 3, 4, 5, 7] started ALLREDUCE",
    ]
    return {"rank0.err": "\n".join(lines) + "\n"}, truth(
        "Rank 6 did not join collective 4411", "rank absent from collective", ranks=(6,), mention=("4411",), spare=(0,)
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


def ecc_deepspeed() -> Case:
    """DeepSpeed over pdsh, torch 2.3: an uncorrectable ECC error on one GPU, then everybody's NCCL errors."""
    lines: list[str] = []
    for rank in range(16):
        host, pid = f"worker-{rank // 8}", 3300 + rank
        lines.append(
            f"{host}: {host}:{pid}:{pid + 80} [{rank % 8}] NCCL INFO comm 0x7f{rank:02x}00 rank {rank} nranks 16 cudaDev {rank % 8} nvmlDev {rank % 8} busId {(0x07, 0x0A, 0x44, 0x4A, 0x84, 0x8A, 0xC0, 0xC3)[rank % 8]:x}000 commId 0x3a5b0c1f99d2e871 - Init COMPLETE"
        )
    lines += [
        "worker-1: [rank9]: Traceback (most recent call last):",
        'worker-1: [rank9]:   File "/ds/run.py", line 88, in main',
        "worker-1: [rank9]:     loss.backward()",
        "worker-1: [rank9]: RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "worker-1: [rank9]:[E308 12:40:10.552118220 ProcessGroupNCCL.cpp:1182] [PG 0 Rank 9] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered",
    ]
    for rank in (0, 1, 8, 10):
        lines.append(
            f"worker-{rank // 8}: [rank{rank}]:[E308 12:40:2{rank % 10}.552118220 ProcessGroupNCCL.cpp:1182] [PG 0 Rank {rank}] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.20.5"
        )
    lines += [
        "worker-1: [2026-03-08 12:40:31,402] [INFO] [launch.py:316:sigkill_handler] Killing subprocess 3309",
        "worker-1: [2026-03-08 12:40:31,402] [ERROR] [launch.py:322:sigkill_handler] ['/usr/bin/python3', '-u', 'run.py', '--local_rank=1'] exits with return code = 1",
    ]
    kernel = (
        "2026-03-08T12:40:07.118220+00:00 worker-1 kernel: NVRM: Xid (PCI:0000:0a:00): 63, pid=3309, name=python3, Row Remapper: New row marked for remapping, reset gpu to activate.\n"
        "2026-03-08T12:40:07.218220+00:00 worker-1 kernel: NVRM: Xid (PCI:0000:0a:00): 48, pid=3309, name=python3, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physical location\n"
        "2026-03-08T12:40:09.218220+00:00 worker-1 kernel: NVRM: Xid (PCI:0000:0a:00): 45, pid=3309, name=python3, Ch 00000010\n"
    )
    return {"deepspeed.log": "\n".join(lines) + "\n", "journal-worker-1.log": kernel}, truth(
        "An uncorrectable ECC error on the GPU of rank 9",
        "GPU fault Xid",
        ranks=(9,),
        hosts=("worker-1",),
        mention=("Xid 48",),
        spare=(0, 8),
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


def wrong_interface_224() -> Case:
    """Pods read by stern, NCCL 2.24: one pod bootstraps over docker0, whose address nobody reaches."""
    lines: list[str] = []
    for rank in range(8):
        pod = f"trainer-{rank // 2}"
        using = "docker0:172.17.0.1" if rank // 2 == 3 else f"eth0:10.32.7.{10 + rank // 2}"
        net = "docker0:172.17.0.1<0>" if rank // 2 == 3 else f"eth0:10.32.7.{10 + rank // 2}<0>"
        head = f"{pod} pytorch {pod}:{41 + rank % 2}:{97 + rank % 2} [{rank % 2}] NCCL INFO"
        lines.append(f"{head} Bootstrap: Using {using}<0>")
        lines.append(f"{head} NET/Socket : Using [0]{net}")
        lines.append(
            f"{head} ncclCommInitRank comm 0x{rank}aa1 rank {rank} nranks 8 cudaDev {rank % 2} nvmlDev {rank % 2} busId {('1b', '43')[rank % 2]}000 commId 0x51d21c70ee90ab13 - Init START"
        )
    for rank in (0, 4, 5):
        pod = f"trainer-{rank // 2}"
        lines.append(f"{pod} pytorch ")
        lines.append(
            f"{pod} pytorch [2026-02-02 02:02:0{rank}] {pod}:{41 + rank % 2}:{99 + rank % 2} [{rank % 2}] misc/socket.cc:587 NCCL WARN socketPollConnect: connect to 172.17.0.1<4{rank}901> returned Connection refused, exceeded error retry count after 35 attempts"
        )
        lines.append(
            f"{pod} pytorch {pod}:{41 + rank % 2}:{99 + rank % 2} [{rank % 2}] NCCL INFO misc/socket.cc:663 -> 6"
        )
    return {"stern.log": "\n".join(lines) + "\n"}, truth(
        "trainer-3 uses docker0, whose address the others cannot reach",
        "misconfigured interface",
        ranks=(6, 7),
        hosts=("trainer-3",),
        mention=("docker0", "172.17.0.1"),
        spare=(0, 4),
    )


def kineto_late() -> Case:
    """Profiler traces of torch 2.8: rank 2's kernels start late after a long input step, all others wait."""
    files: dict[str, str] = {}
    dice = random.Random(3)
    for rank in range(4):
        events: list[dict[str, Any]] = []
        for seq in range(30):
            base = 1_000_000.0 + seq * 50_000
            late = 21_000 if rank == 2 and seq >= 8 else dice.randrange(300)
            end = base + (23_000 if seq >= 8 else 2_400) + dice.randrange(30)
            args = {
                "Collective name": "allreduce",
                "In msg nelems": 1 << 24,
                "Out msg nelems": 1 << 24,
                "Group size": 4,
                "dtype": "BFloat16",
                "Process Group Name": "0",
                "Process Group Description": "default_pg",
                "Process Group Ranks": "[0, 1, 2, 3]",
                "Seq": seq + 1,
                "External id": seq,
                "stream": 20,
                "device": rank,
            }
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                    "pid": 0,
                    "tid": 20,
                    "ts": base + late,
                    "dur": end - base - late,
                    "args": args,
                }
            )
            if rank == 2 and seq >= 8:
                events.append(
                    {
                        "ph": "X",
                        "cat": "user_annotation",
                        "name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                        "pid": 7,
                        "tid": 7,
                        "ts": base - 900,
                        "dur": 21_500.0,
                        "args": {},
                    }
                )
        trace = {
            "schemaVersion": 1,
            "deviceProperties": [],
            "distributedInfo": {
                "backend": "nccl",
                "rank": rank,
                "world_size": 4,
                "pg_count": 1,
                "pg_config": [
                    {
                        "pg_name": "0",
                        "pg_desc": "default_pg",
                        "backend_config": "cuda:nccl",
                        "pg_size": 4,
                        "ranks": [0, 1, 2, 3],
                    }
                ],
                "nccl_version": "2.27.3",
            },
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_790_000_000_000_000_000,
            "traceEvents": events,
            "traceName": f"rank{rank}.pt.trace.json",
        }
        files[f"h{rank // 2}_{400 + rank}.1790000001.pt.trace.json"] = json.dumps(trace)
    return files, truth(
        "Rank 2 arrives about 21 ms late in every step from 9 on", "straggler", ranks=(2,), mention=("rank 2",)
    )


def sglang_oom() -> Case:
    """SGLang with tensor parallelism of 4: the scheduler of TP3 runs out of device memory."""
    lines = [
        f"[2026-03-04 11:18:2{tp} TP{tp}] Load weight end. type=LlamaForCausalLM, avail mem=11.2 GB." for tp in range(4)
    ]
    lines += [
        "[2026-03-04 11:20:05 TP3] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/sgl/managers/scheduler.py", line 2411, in run_scheduler_process',
        "    scheduler.event_loop_overlap()",
        '  File "/sgl/model_executor/model_runner.py", line 1180, in forward',
        "    ret = self.forward_extend(forward_batch)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.44 GiB. GPU 3 has a total capacity of 79.11 GiB of which 5.18 GiB is free.",
    ]
    for rank in (0, 1, 2):
        lines.append(
            f"[rank{rank}]:[E304 11:30:0{rank}.118220431 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8812, OpType=ALLREDUCE, NumelIn=16777216, NumelOut=16777216, Timeout(ms)=600000) ran for 60001{rank} milliseconds before timing out."
        )
    return {"sglang.log": "\n".join(lines) + "\n"}, truth(
        "TP rank 3 ran out of device memory", "OOM", ranks=(3,), mention=("out of memory",), spare=(0,)
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


def power_brake() -> Case:
    """Inspector v5 and `nvidia-smi --query-gpu`: one GPU is throttled by its power supply."""
    files: dict[str, str] = {}
    dice = random.Random(9)
    for rank in range(8):
        out: list[str] = []
        for sn in range(60):
            wait = 41_000 if sn >= 20 else 2_300
            own = 2_350 if rank == 5 else wait
            out.append(
                json.dumps(
                    {
                        "header": {
                            "id": "0xbe71002144cdaa09",
                            "comm_name": "dp",
                            "rank": rank,
                            "n_ranks": 8,
                            "nnodes": 1,
                        },
                        "metadata": {
                            "inspector_output_format_version": "v5.1",
                            "git_rev": "",
                            "rec_mechanism": "nccl_profiler_interface",
                            "dump_timestamp_us": 1_775_000_000_000_000 + sn * 90_000,
                            "hostname": "gn-77",
                            "pid": 500 + rank,
                        },
                        "coll_perf": {
                            "coll": "AllReduce",
                            "coll_sn": 9000 + sn,
                            "coll_msg_size_bytes": 1 << 28,
                            "coll_exec_time_us": own + dice.randrange(200),
                            "coll_timing_source": "kernel_gpu",
                            "coll_algobw_gbs": 3.1,
                            "coll_busbw_gbs": 5.4,
                        },
                    }
                )
            )
        files[f"inspector/gn-77-pid{500 + rank}.log"] = "\n".join(out) + "\n"
    smi = "index, pci.bus_id, utilization.gpu [%], clocks.current.sm [MHz], power.draw [W], temperature.gpu, clocks_event_reasons.hw_power_brake_slowdown\n"
    for gpu in range(8):
        hot = gpu == 5
        smi += f"{gpu}, 00000000:{(0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)[gpu]:02X}:00.0, 100 %, {345 if hot else 1980} MHz, {180.2 if hot else 402.1} W, {41 if hot else 60}, {'Active' if hot else 'Not Active'}\n"
    files["nvidia-smi-gn-77.csv"] = smi
    return files, truth(
        "The GPU of rank 5 is throttled by the power brake",
        "slow GPU thermal",
        ranks=(5,),
        hosts=("gn-77",),
        mention=("rank 5",),
    )


def store_clients() -> Case:
    """torchrun 2.6 on four nodes: one node never joins the store."""
    lines: list[str] = []
    for rank in range(24):
        lines.append(
            f"n{rank // 8}: [rank{rank}]: init_process_group: rank {rank} of 32, local rank {rank % 8}, host n{rank // 8}"
        )
    lines += [
        "n0: [rank0]: Traceback (most recent call last):",
        'n0: [rank0]:   File "/app/main.py", line 12, in <module>',
        'n0: [rank0]:     dist.init_process_group("nccl")',
        "n0: [rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 24/32 clients joined.",
    ]
    return {"clush.log": "\n".join(lines) + "\n"}, truth(
        "24 of 32 clients joined: the ranks of the fourth node never came",
        "timeouts at init",
        ranks=tuple(range(24, 32)),
        mention=("24/32",),
        spare=(0,),
    )


def healthy_old_xid() -> Case:
    """A job that runs, with an Xid of last week and a link that once flapped."""
    lines: list[str] = []
    for step in range(20):
        for rank in range(4):
            lines.append(
                f"[rank{rank}]: 2026-02-10 15:{step:02d}:0{rank} | step {step} | loss {3 - step / 30:.3f} | tokens/s 41200"
            )
    for rank in range(4):
        lines.append(f"[rank{rank}]: 2026-02-10 15:21:0{rank} | training finished, 20 steps")
    kernel = (
        "2026-02-03T09:11:02.100000+00:00 vm-4 kernel: NVRM: Xid (PCI:0000:3b:00): 43, pid=811, name=python3, Ch 00000008\n"
        "2026-02-08T11:00:00.100000+00:00 vm-4 kernel: mlx5_core 0000:c3:00.0 mlx5_3: Port: 1 Link DOWN\n"
        "2026-02-08T11:00:09.100000+00:00 vm-4 kernel: mlx5_core 0000:c3:00.0 mlx5_3: Port: 1 Link ACTIVE\n"
    )
    return {"train.log": "\n".join(lines) + "\n", "journal-vm-4.txt": kernel}, truth("Nothing is wrong", "healthy")


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


def order_files() -> Case:
    """Files of one rank each, torch 2.9, Lightning: rank 2 enters the group of experts first, the others that of tensors."""
    files: dict[str, str] = {}
    for rank in range(4):
        group, desc, seq, op, numel = (
            ("7", "mesh_tp", 4410, "ALLREDUCE", 2097152)
            if rank != 2
            else ("9", "mesh_ep", 731, "ALLTOALL_BASE", 524288)
        )
        out = f"[rank{rank}]:[E1128 23:01:0{rank}.000118220 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=300000) ran for 30001{rank} milliseconds before timing out.\n"
        out += f"[rank{rank}]:[E1128 23:01:0{rank}.100118220 ProcessGroupNCCL.cpp:2241] [PG ID {group} PG GUID {group}({desc}) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: {seq - 1}\n"
        files[f"lightning_logs/version_3/rank_{rank}.log"] = (
            f"GPU available: True (cuda), used: True\nEpoch 3:  12%|#2        | 120/1000 [01:10<08:33,  1.71it/s, v_num=3]\r{out}"
        )
    return files, truth(
        "Rank 2 entered mesh_ep before mesh_tp", "order deadlock", ranks=(2,), mention=("mesh_ep",), spare=(0,)
    )


def gil_held() -> Case:
    """py-spy as JSON of all ranks of a node: rank 1 sits in its own parser with the GIL, the others wait in all_gather."""

    def frame(name: str, file: str, line: int) -> dict[str, Any]:
        return {
            "name": name,
            "filename": f"/app/{file}",
            "module": None,
            "short_filename": file,
            "line": line,
            "locals": None,
            "is_entry": False,
        }

    files: dict[str, str] = {}
    for rank in range(4):
        busy = rank == 1
        frames = (
            [frame("parse_record", "mixture/parse.py", 88), frame("next_batch", "train.py", 61)]
            if busy
            else [
                frame("all_gather_into_tensor", "torch/distributed/distributed_c10d.py", 3890),
                frame("unshard", "torch/distributed/fsdp/_flat_param.py", 1290),
            ]
        )
        frames.append(frame("main", "train.py", 140))
        files[f"pyspy/rank_{rank}.json"] = json.dumps(
            [
                {
                    "pid": 900 + rank,
                    "thread_id": 1,
                    "thread_name": "MainThread",
                    "os_thread_id": 900 + rank,
                    "active": busy,
                    "owns_gil": busy,
                    "frames": frames,
                }
            ]
        )
    log = "".join(
        f"[rank{r}]:[E505 01:00:0{r}.000000000 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=810, OpType=_ALLGATHER_BASE, NumelIn=4096, NumelOut=16384, Timeout(ms)=600000) ran for 60000{r} milliseconds before timing out.\n"
        for r in (0, 2, 3)
    )
    return {**files, "train.log": log}, truth(
        "Rank 1 is in its own parser", "rank absent from collective", ranks=(1,), mention=("rank 1", "810"), spare=(0,)
    )


def off_the_bus_three_lines() -> Case:
    """An old driver's three-line form of a lost GPU, syslog, NCCL 2.12 without commId, torch 1.13."""
    lines: list[str] = []
    for rank in range(8):
        lines.append(
            f"c4:{500 + rank}:{600 + rank} [{rank}] NCCL INFO comm 0x7f{rank}0 rank {rank} nranks 8 cudaDev {rank} busId {(0x1A, 0x3C, 0x52, 0x6E, 0x9A, 0xB3, 0xCD, 0xE1)[rank]:x}000 - Init COMPLETE"
        )
    for rank in (0, 1, 2, 3, 4, 6, 7):
        lines.append(
            f"[E ProcessGroupNCCL.cpp:828] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1202, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 180{rank}811 milliseconds before timing out."
        )
    kernel = (
        "Mar  3 02:17:05 c4 kernel: [887110.110000] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "Mar  3 02:17:05 c4 kernel: [887110.110001] NVRM: (PCI ID: 10de:20b0) installed in this system has\n"
        "Mar  3 02:17:05 c4 kernel: [887110.110002] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    return {"out.log": "\n".join(lines) + "\n", "syslog-c4": kernel}, truth(
        "GPU b3 of c4 fell off the bus: rank 5", "GPU fault Xid", ranks=(5,), hosts=("c4",), mention=("b3",), spare=(0,)
    )


def retry_both_ways() -> Case:
    """Errors between two hosts only, both accuse each other, no local event: the link between, not one host."""
    lines: list[str] = []
    for rank in range(8):
        host = f"r1-{rank // 2 + 1}"
        lines.append(
            f"{host}:{80 + rank}:{180 + rank} [{rank % 2}] NCCL INFO Bootstrap : Using bond0:10.50.0.{rank // 2 + 1}<0>"
        )
        lines.append(
            f"{host}:{80 + rank}:{180 + rank} [{rank % 2}] NCCL INFO ncclCommInitRank comm 0x{rank}f rank {rank} nranks 8 cudaDev {rank % 2} nvmlDev {rank % 2} busId {('1b', '43')[rank % 2]}000 commId 0x8ad01c22e9b3f7d4 - Init COMPLETE"
        )
    for rank, me, peer in ((2, 2, 4), (6, 4, 2)):
        lines += [
            "",
            f"r1-{me}:{80 + rank}:{280 + rank} [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.50.0.{peer}<4810> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.50.0.{me} remoteGids::ffff:10.50.0.{peer} hca mlx5_0",
        ]
    known = truth(
        "The link between r1-2 and r1-4 failed",
        "NIC or IB link error",
        hosts=("r1-2", "r1-4"),
        mention=("r1-2", "r1-4"),
        spare_hosts=("r1-1", "r1-3"),
    )
    return {"nccl.log": "\n".join(lines) + "\n"}, known


def device_assert() -> Case:
    """FSDP under torchrun, torch 2.2: a device-side assert on rank 6, then NCCL errors of all."""
    lines = [
        "../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [311,0,0], thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "[rank6]: Traceback (most recent call last):",
        '[rank6]:   File "/w/fsdp.py", line 77, in step',
        "[rank6]:     out = self.embed(ids)",
        "[rank6]: RuntimeError: CUDA error: device-side assert triggered",
        "[rank6]: CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    ]
    for rank in (0, 1, 7):
        lines.append(
            f"[rank{rank}]:[E ProcessGroupNCCL.cpp:523] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=300, OpType=_ALLGATHER_BASE, NumelIn=1024, NumelOut=8192, Timeout(ms)=600000) ran for 60002{rank} milliseconds before timing out."
        )
    lines += [
        "[2024-05-05 10:10:10,000] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 6 (pid: 4406) of binary: /usr/bin/python",
    ]
    return {"console.txt": "\n".join(lines) + "\n"}, truth(
        "Rank 6 triggered a device-side assert", "exception", ranks=(6,), mention=("assert",), spare=(0, 1, 7)
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


def checkpoint_long() -> Case:
    """Megatron under srun with one task a node: rank 0 saves for longer than the timeout and says so."""
    lines: list[str] = []
    for rank in range(8):
        lines.append(
            f"{rank // 4}: [rank{rank}]: iteration     5000/  90000 | elapsed time per iteration (ms): 4120.4 | lm loss: 1.71E+00 |"
        )
    lines.append("0: [rank0]: saving checkpoint at iteration    5000 to /lustre/ckpt in torch_dist format")
    for rank in (5, 1, 2, 3, 4, 6, 7):
        lines.append(
            f"{rank // 4}: [rank{rank}]:[E910 11:40:0{rank}.000118220 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=20417, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 60004{rank} milliseconds before timing out."
        )
    lines.append("0: [rank0]: checkpoint shard 41/64 written (38.1 GiB)")
    kernel = "2026-09-10T11:31:02.000000+00:00 bl-01 kernel: LustreError: 11-0: lustre-OST0007-osc: operation ost_write to node 10.2.0.7@o2ib failed: rc = -107\n2026-09-10T11:31:09.000000+00:00 bl-01 kernel: INFO: task python3:4021 blocked for more than 120 seconds.\n"
    return {"slurm-11.out": "\n".join(lines) + "\n", "dmesg-bl-01.txt": kernel}, truth(
        "Rank 0 is still saving its checkpoint", "checkpoint", ranks=(0,), mention=("20417",), spare=(5,)
    )


def extra_call() -> Case:
    """COLL lines of NCCL 2.22 through docker compose: rank 1 calls AllGather where the others call ReduceScatter."""
    lines: list[str] = []
    for rank in range(4):
        head = f"trainer-{rank}  | tr{rank}:7:{40 + rank} [0] NCCL INFO"
        lines.append(
            f"{head} ncclCommInitRank comm 0xc{rank} rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x5150aabbccdd0011 - Init COMPLETE"
        )
        for number in range(20):
            op = "AllReduce" if number % 2 else "ReduceScatter"
            if number == 19:
                op = "AllGather" if rank == 1 else "ReduceScatter"
            lines.append(
                f"{head} {op}: opCount {number:x} sendbuff 0x1 recvbuff 0x2 count 65536 datatype 9 op 0 root 0 comm 0xc{rank} [nranks=4] stream 0x9"
            )
    for rank in range(4):
        lines.append(
            f"trainer-{rank}  | [rank{rank}]:[E122 04:00:0{rank}.000118220 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=20, OpType={'_ALLGATHER_BASE' if rank == 1 else '_REDUCE_SCATTER_BASE'}, NumelIn=65536, NumelOut=65536, Timeout(ms)=600000) ran for 60001{rank} milliseconds before timing out."
        )
    return {"compose.log": "\n".join(lines) + "\n"}, truth(
        "Rank 1 calls AllGather where the others call ReduceScatter",
        "user code branch divergence",
        ranks=(1,),
        mention=("ALLGATHER",),
        spare=(0,),
    )


def version_skew() -> Case:
    """Two builds of NCCL in one job: the node with the other one is named by the library itself."""
    lines: list[str] = []
    for rank in range(8):
        host = f"mx{rank // 2}"
        version = "2.18.5+cuda12.1" if rank // 2 == 3 else "2.21.5+cuda12.4"
        lines.append(f"[1,{rank}]<stdout>:{host}:{50 + rank}:{50 + rank} [{rank % 2}] NCCL INFO NCCL version {version}")
        lines.append(
            f"[1,{rank}]<stdout>:{host}:{50 + rank}:{90 + rank} [{rank % 2}] NCCL INFO Bootstrap : Using ib0:10.7.0.{rank // 2 + 1}<0>"
        )
    for rank in (6, 7):
        lines.append(
            f"[1,{rank}]<stderr>:mx3:{50 + rank}:{90 + rank} [{rank % 2}] init.cc:812 NCCL WARN Mismatched NCCL version detected : rank {rank} version 21805 rank 0 version 21205"
        )
    return {"mpi.log": "\n".join(lines) + "\n"}, truth(
        "mx3 runs another NCCL", "misconfigured interface", ranks=(6, 7), hosts=("mx3",), mention=("mx3",), spare=(0,)
    )


def healthy_inspector() -> Case:
    """A healthy job: Inspector with the usual noise, a GPU at another clock when idle, counters that stand still."""
    files: dict[str, str] = {}
    dice = random.Random(12)
    for rank in range(4):
        files[f"hw{rank // 2}-pid{70 + rank}.log"] = (
            "\n".join(
                json.dumps(
                    {
                        "header": {"id": "0x99", "rank": rank, "n_ranks": 4, "nnodes": 2},
                        "metadata": {
                            "inspector_output_format_version": "v4.0",
                            "dump_timestamp_us": 1_775_000_000_000_000 + sn,
                            "hostname": f"hw{rank // 2}",
                            "pid": 70 + rank,
                        },
                        "coll_perf": {
                            "coll": "AllReduce",
                            "coll_sn": sn,
                            "coll_msg_size_bytes": 1 << 26,
                            "coll_exec_time_us": 2000 + dice.randrange(900),
                            "coll_algobw_gbs": 30.0,
                            "coll_busbw_gbs": 50.0,
                        },
                    }
                )
                for sn in range(60)
            )
            + "\n"
        )
    return files, truth("Nothing is wrong", "healthy")


def tcpstore_master_late() -> Case:
    """Every worker fails to reach the master's port: the master's host is named, not those that print it."""
    lines = [
        f"w{n}: [rank{n}]: torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (w0, 29400)."
        for n in (1, 2, 3)
    ]
    lines += [
        f"w{n}: [W110 09:00:0{n}.402118220 socket.cpp:697] [c10d] The client socket has failed to connect to [w0]:29400 (errno: 111 - Connection refused)."
        for n in (1, 2, 3)
    ]
    return {"pdsh.log": "\n".join(sorted(lines)) + "\n"}, truth(
        "Nobody reaches the store on w0", "timeouts at init", hosts=("w0",), mention=("w0", "29400"), spare=(1, 2, 3)
    )


def issue_page() -> Case:
    """Quoted from the page of an issue, which makes links of file names: the port of one of two hosts failed."""

    def link(text: str) -> str:
        return f"[{text}](http://{text}/)"

    out: list[str] = []
    for rank, (host, pid, ip) in enumerate((("node201", 127799, "10.1.3.201"), ("node023", 10214, "10.1.3.23"))):
        out += [
            f"{host}:{pid}:{pid} [0] NCCL INFO Bootstrap : Using bond0:{ip}<0>",
            f"{host}:{pid}:{pid + 2} [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:{ip}<0>",
            f"{host}:{pid}:{pid + 2} [0] NCCL INFO comm 0x55d0c{pid:x} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 18000 commId 0xa1b2c3d4e5f60718 - Init COMPLETE",
        ]
    for _ in range(3):
        out += [
            "",
            f"node201:127799:127863 [0] transport/{link('net_ib.cc:101')} NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        ]
    for port in (33057, 33061):
        out += [
            "",
            f"node023:10214:10303 [0] transport/{link('net_ib.cc:1909')} NCCL WARN NET/IB : Got completion from peer {link('10.1.3.201')}<{port}> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:{link('10.206.1.23')} remoteGids::ffff:{link('10.206.1.11')} hca mlx5_0",
            f"node023:10214:10303 [0] NCCL INFO transport/{link('net.cc:1137')} -> 6",
        ]
    page = "Hi, our all-reduce fails:\n\n" + "".join(f"> {line}\n" for line in out) + "\nHappens every day. Any hint?\n"
    return {"issue.md": page}, truth(
        "The port of node201 failed",
        "NIC or IB link error",
        hosts=("node201",),
        mention=("mlx5_0",),
        spare_hosts=("node023",),
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


def host_on_sockets() -> Case:
    """NCCL 2.27 with a time in front of every line: one host finds no InfiniBand device, and no rank comes up."""
    out: list[str] = []

    def add(host: str, pid: int, local: int, text: str) -> None:
        out.append(f"[2026-05-05 11:22:01.{len(out):06d}] {host}:{pid}:{pid + 3} [{local}] NCCL INFO {text}")

    for rank in range(8):
        node, local = divmod(rank, 2)
        host, pid, ip = f"c{node + 1}", 900 + node + 100 * local, f"172.20.0.{node + 11}"
        add(host, pid, local, f"Bootstrap: Using ens3:{ip}<0>")
        if node == 2:
            add(host, pid, local, "NET/IB : No device found.")
            add(host, pid, local, f"NET/Socket : Using [0]ens3:{ip}<0>")
        else:
            add(host, pid, local, f"NET/IB : Using [0]mlx5_2:1/IB [1]mlx5_5:1/IB [RO]; OOB ens3:{ip}<0>")
        add(host, pid, local, f"Using network {'Socket' if node == 2 else 'IB'}")
        bus = ("1b000", "43000")[local]
        add(
            host,
            pid,
            local,
            f"[Rank {rank}] ncclCommInitRankConfig comm 0x5581{rank}0 rank {rank} nranks 8 cudaDev {local} nvmlDev {local} busId {bus} commId 0x91ab3c4d5e6f7081 - Init START",
        )
    out += [
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, internal error - please report this issue to the NCCL developers, NCCL version 2.27.5"
        for rank in (0, 1, 2, 3, 6, 7)
    ]
    return {"train.out": "\n".join(out) + "\n"}, truth(
        "c3 has no InfiniBand device and takes sockets",
        "misconfigured interface",
        ranks=(4, 5),
        hosts=("c3",),
        mention=("NET/Socket",),
        spare_hosts=("c1", "c2", "c4"),
    )


def dcgm_slow_clock() -> Case:
    """Steps become slow; `dcgmi dmon` of both hosts shows one GPU at a third of its clock, NCCL's log whose it is."""
    rng = random.Random(4)
    buses = ("0f000", "2d000", "44000", "5b000", "89000", "a8000", "c0000", "d8000")
    out = [
        f"hgx{1 + r // 8}:{3000 + r}:{3100 + r} [{r % 8}] NCCL INFO ncclCommInitRankConfig comm 0x56{r:02x}00 rank {r} nranks 16 cudaDev {r % 8} nvmlDev {r % 8} busId {buses[r % 8]} commId 0x4be1d0b7f36ac920 - Init COMPLETE"
        for r in range(16)
    ]
    for step in range(40):
        ms = (2630.5 if step >= 20 else 911.2) + rng.random() * 9
        out.append(
            f"2026-04-01 15:{step // 2:02d}:{30 * (step % 2):02d} INFO iteration {step * 10}/5000 | elapsed time per iteration (ms): {ms:.1f} | global batch size: 512 | lm loss: 2.31"
        )
    files = {"train.log": "\n".join(out) + "\n"}
    for host in (1, 2):
        rows = [
            "#Entity   SMCLK        MMCLK        GPUTL      POWER        TMPTR",
            "ID                                             %          W            C",
        ]
        for gpu in [*range(8)] * 4:
            slow = host == 2 and gpu == 5
            watts, heat = ("312.4", 91) if slow else (f"{640 + rng.random() * 20:.3f}", 60 + gpu % 5)
            rows.append(f"GPU {gpu}     {705 if slow else 1980}         2619         100        {watts}      {heat}")
        files[f"dcgm/hgx{host}-dmon.txt"] = "\n".join(rows) + "\n"
    return files, truth(
        "GPU 5 of hgx2 runs at a third of its clock",
        "slow GPU thermal",
        ranks=(13,),
        hosts=("hgx2",),
        mention=("705",),
        spare_hosts=("hgx1",),
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


CASES: dict[str, Callable[[], Case]] = {
    "issue-page-markdown": issue_page,
    "deepspeed-pdsh-oom": deepspeed_pdsh,
    "one-host-on-sockets-2.27": host_on_sockets,
    "dcgm-slow-clock": dcgm_slow_clock,
    "accelerate-gloo-assertion": gloo_assertion,
    "ray-vllm-nvlink-xid74": ray_nvlink,
    "megatron-port-error-2.23": port_error_223,
    "pods-roce-down-2.29": roce_down_229,
    "ras-json-dead-member": ras_json_dead,
    "mpirun-fingerprint": fingerprint,
    "torchrun-address-in-use": address_in_use,
    "desync-report-glog": desync_report,
    "srun-swallowed-exception": swallowed_exception,
    "deepspeed-ecc": ecc_deepspeed,
    "slurm-node-failure": node_failure,
    "stern-docker0-2.24": wrong_interface_224,
    "kineto-late-input": kineto_late,
    "sglang-device-memory": sglang_oom,
    "ray-worker-killed": ray_killed,
    "inspector-v5-power-brake": power_brake,
    "store-24-of-32": store_clients,
    "healthy-old-xid": healthy_old_xid,
    "pod-oomkilled": pod_oom_killed,
    "lightning-two-groups": order_files,
    "pyspy-json-parser": gil_held,
    "old-driver-off-the-bus": off_the_bus_three_lines,
    "two-hosts-accuse-each-other": retry_both_ways,
    "fsdp-device-assert": device_assert,
    "pods-shm-full": shm_full,
    "megatron-long-checkpoint": checkpoint_long,
    "compose-other-call": extra_call,
    "mpirun-version-skew": version_skew,
    "healthy-inspector": healthy_inspector,
    "store-host-unreachable": tcpstore_master_late,
}


def main() -> None:
    """Write every case anew."""
    for name, make in CASES.items():
        files, known = make()
        shutil.rmtree(HERE / name, ignore_errors=True)
        for path, text in {**files, "truth.json": json.dumps(known, indent=2) + "\n"}.items():
            target = HERE / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)


if __name__ == "__main__":
    main()
