"""What a program does otherwise on one rank: another call, size or order, or it does not come."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

import json
from typing import Any

from tests.data.log_cases.case import Case, truth


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
