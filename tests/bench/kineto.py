"""Measures how fast a profiler's trace is read, against `json.load` and one pass over its events in the same run.

`python -m tests.bench.kineto [MIB]` writes a trace of that size (default 128), plain and as gzip, reads it in a process
of one core, and prints medians of three runs: MB of JSON per CPU second, and the growth of the peak memory. The bar is
60 MB/s with a memory that does not grow with the file.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.kineto import KinetoLoader
from tests.bench.text import Sink, measured

MB: Final = 1_000_000
HEAD: Final = {
    "schemaVersion": 1,
    "distributedInfo": {
        "backend": "nccl",
        "rank": 2,
        "world_size": 8,
        "pg_count": 1,
        "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))}],
        "nccl_version": "2.27.3",
    },
    "baseTimeNanoseconds": 1_790_000_000_000_000_000,
}
# Of a training step with stacks and shapes two events of a hundred are of communication.
_SHARE: Final = 50


def event(number: int) -> dict[str, object]:
    """Return one event: an operator, a launch or a kernel; of every fifty one is a collective on the device."""
    ts = round(1_000_000 + number * 7.125, 3)
    if number % _SHARE == 0:
        return {
            "ph": "X",
            "cat": "kernel",
            "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "pid": 2,
            "tid": 20,
            "ts": ts,
            "dur": 312.25,
            "args": {
                "External id": number,
                "Collective name": "allreduce",
                "In msg nelems": 16_777_216,
                "Out msg nelems": 16_777_216,
                "Group size": 8,
                "dtype": "BFloat16",
                "Process Group Name": "0",
                "Process Group Description": "default_pg",
                "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
                "Seq": number // _SHARE,
                "stream": 20,
                "device": 2,
            },
        }
    kind = ("cpu_op", "cuda_runtime", "kernel")[number % 3]
    return {
        "ph": "X",
        "cat": kind,
        "name": {
            "cpu_op": "aten::scaled_dot_product_attention",
            "cuda_runtime": "cudaLaunchKernel",
            "kernel": "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int, float)",
        }[kind],
        "pid": 4242,
        "tid": 4242 + number % 5,
        "ts": ts,
        "dur": 6.5,
        "args": {
            "External id": number,
            "Record function id": 0,
            "Sequence number": number // 3,
            "Fwd thread id": 0,
            "Input Dims": [[4, 32, 2048, 128], [4, 32, 2048, 128], []],
            "Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"],
            "Ev Idx": number,
        },
    }


def write(path: Path, mib: int) -> int:
    """Write a trace of about that size as the profiler does, one event a line; return its size in bytes."""
    with path.open("w") as out:
        out.write(json.dumps(HEAD)[:-1] + ', "traceEvents": [\n')
        number = 0
        while out.tell() < mib << 20:
            out.write(",\n".join(json.dumps(event(n)) for n in range(number, number + 2_000)) + ",\n")
            number += 2_000
        out.write(json.dumps(event(number)) + "\n]}\n")
        return out.tell()


def plain(path: Path) -> int:
    """Load the whole trace and look at each event once."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as content:
        return sum("nccl" in one["name"] for one in json.load(content)["traceEvents"])


def ours(path: Path) -> int:
    """Read with the loader."""
    with path.open("rb") as content:
        head = content.read(64 << 10)
    file = EvidenceFile(0, path.name, path, path.stat().st_size, "", head)
    (report,) = KinetoLoader().load([file], Sink())
    return report.rows


def main() -> None:
    """Print the table; one core, so that the numbers are per core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    print(f"| trace of {mib} MiB | ours MB/s | rows | memory + | plain MB/s | memory + |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path, packed = Path(folder) / "h0_4242.1.pt.trace.json", Path(folder) / "h0_4242.1.pt.trace.json.gz"
        size = write(path, mib)
        with path.open("rb") as content, gzip.open(packed, "wb", compresslevel=1) as out:
            shutil.copyfileobj(content, out)
        # Ours first: the other fills the memory.
        found = {one: measured(ours, one) for one in (path, packed)}
        for one, (took, rows, grown) in found.items():
            slow, _, filled = measured(plain, one)
            print(
                f"| {''.join(one.suffixes[-2:]):<12} | {size / MB / took:.0f} | {rows} | {grown >> 20} MiB "
                f"| {size / MB / slow:.0f} | {filled >> 20} MiB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
