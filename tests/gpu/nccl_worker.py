"""One rank of the check on a GPU: real NCCL, several ranks on one device, socket transport.

    python nccl_worker.py measure|run [--late-rank R --late-ms T]

`measure` prints one line of JSON from rank 0: medians of time and bus bandwidth of each operation. `run` repeats steps
until it is ended from outside. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which rank it is. Needs PyTorch with
CUDA and nothing of ours.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

# What the bytes on the wire are relative to the size of the buffer, for n ranks (as nccl-tests count).
BUS_FACTOR: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "send_recv": lambda _: 1.0,
}
SIZE_BYTES = 8 << 20
WARM, REPEATS = 5, 40


def operations(rank: int, world: int, size_bytes: int) -> dict[str, Callable[[], None]]:
    """Return the operations, each on tensors of its own."""
    count = size_bytes // 4 // world * world
    whole = torch.ones(count, device="cuda")
    part = torch.ones(count // world, device="cuda")
    other = torch.empty_like(whole)
    after, before = (rank + 1) % world, (rank - 1) % world

    def send_recv() -> None:
        requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, whole, after), dist.P2POp(dist.irecv, other, before)])
        for request in requests:
            request.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "send_recv": send_recv,
    }


def measure(rank: int, world: int) -> None:
    """Time each operation from a common start to its end on the device."""
    result = {}
    for name, run in operations(rank, world, SIZE_BYTES).items():
        times = []
        for i in range(WARM + REPEATS):
            dist.barrier()
            torch.cuda.synchronize()
            started = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if i >= WARM:
                times.append(time.perf_counter() - started)
        middle = statistics.median(times)
        result[name] = {"ms": middle * 1e3, "busbw_gbs": SIZE_BYTES * BUS_FACTOR[name](world) / middle / 1e9}
    if rank == 0:
        print(json.dumps({"nccl": ".".join(map(str, torch.cuda.nccl.version())), "ops": result}), flush=True)


def run(rank: int, world: int, late_rank: int, late_ms: float) -> None:
    """Repeat a step of compute and communication; one rank may come late to each."""
    ops = operations(rank, world, 1 << 20)
    matrix = torch.ones(512, 512, device="cuda")
    step = 0
    while True:
        matrix = torch.tanh(matrix @ matrix)
        if rank == late_rank:
            time.sleep(late_ms / 1e3)
        for call in ops.values():
            call()
        torch.cuda.synchronize()
        step += 1
        if rank == 0 and step in (20, 200):
            print(f"step {step}", flush=True)


def main() -> None:
    """Join the job and do as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("measure", "run"))
    parser.add_argument("--late-rank", type=int, default=-1)
    parser.add_argument("--late-ms", type=float, default=0)
    arguments = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    if arguments.what == "measure":
        measure(rank, world)
        dist.destroy_process_group()
    else:
        run(rank, world, arguments.late_rank, arguments.late_ms)


if __name__ == "__main__":
    sys.exit(main())
