"""What fails or slows down in a GPU, and devices that only look like it."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json
import random
from typing import Any

from tests.data.log_cases.case import Case, truth


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
