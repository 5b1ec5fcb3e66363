"""Measures how fast traces in JSON are read, against the standard library making the same selection in the same run.

`python -m tests.bench.traces [MIB]` makes a torch.profiler trace of that size (default 256), plain and compressed, and
Inspector records, and reads each in a process of its own. Printed are medians of three runs: MB of the (uncompressed)
file per second, and by how much the peak memory grew.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.inspector import InspectorLoader
from mycroft.loaders.kineto import KinetoLoader

RUNS: Final = 3
MB: Final = 1_000_000
# Of 400 events of a training step about one is a collective.
_SHARE: Final = 400


class Sink:
    """Takes rows and forgets them."""

    def __init__(self) -> None:
        self.rows = 0

    def emit(self, table: str, frame: Any) -> None:
        """Count what a loader hands over."""
        self.rows += frame.height

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_args, **_facts: None if name in ("members",) else 0


def kineto(path: Path, size: int) -> None:
    """Write a trace as torch.profiler does: launches, kernels, a few collectives."""
    head = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "baseTimeNanoseconds": 17 * 10**17,
    }
    event = {
        "ph": "X",
        "cat": "kernel",
        "name": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "pid": 0,
        "tid": 7,
        "ts": 1.5,
        "dur": 2.5,
        "args": {
            "External id": 7,
            "queued": 0,
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": 88,
            "registers per thread": 32,
            "shared memory": 0,
            "blocks per SM": 12.1,
            "warps per SM": 48.4,
            "grid": [1600, 1, 1],
            "block": [128, 1, 1],
            "est. achieved occupancy %": 75,
        },
    }
    call = {
        **event,
        "cat": "cpu_op",
        "name": "record_param_comms",
        "args": {
            "External id": 0,
            "Collective name": "allreduce",
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "dtype": "Float",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Seq": 0,
        },
    }
    nccl = {
        **event,
        "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "args": {"External id": 0, "stream": 20},
    }
    with path.open("w") as out:
        out.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        number = written = 0
        common = json.dumps(event)
        while written < size:
            number += 1
            if number % _SHARE:
                text = common
            else:
                call["args"]["External id"] = nccl["args"]["External id"] = number
                call["args"]["Seq"] = number // _SHARE
                call["ts"], nccl["ts"] = float(number), number + 0.5
                text = json.dumps(call) + ",\n" + json.dumps(nccl)
            written += len(text) + 2
            out.write(text + ",\n")
        out.write(common + "\n]}\n")


def inspector(path: Path, size: int) -> None:
    """Write Inspector records of one process."""
    with path.open("w") as out:
        number = written = 0
        while written < size:
            number += 1
            text = json.dumps(
                {
                    "header": {"id": "0xab12", "rank": 3, "n_ranks": 8, "nnodes": 1},
                    "metadata": {
                        "inspector_output_format_version": "v4.0",
                        "git_rev": "x",
                        "rec_mechanism": "nccl_profiler_interface",
                        "dump_timestamp_us": 1716700000000000,
                        "hostname": "n0",
                        "pid": 7,
                    },
                    "coll_perf": {
                        "coll": "AllReduce",
                        "coll_sn": number,
                        "coll_msg_size_bytes": 1 << 26,
                        "coll_exec_time_us": 390 + number % 7,
                        "coll_algobw_gbs": 200.5,
                        "coll_busbw_gbs": 400.25,
                    },
                }
            )
            written += len(text) + 1
            out.write(text + "\n")


def plain_kineto(path: Path) -> int:
    """Read a trace whole with the standard library and pick the same events."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as stream:
        trace = json.load(stream)
    return sum(1 for e in trace["traceEvents"] if e.get("name") == "record_param_comms" or "nccl" in e.get("name", ""))


def plain_lines(path: Path) -> int:
    """Read records line by line with the standard library."""
    with path.open("rb") as stream:
        return sum(1 for line in stream if json.loads(line)["coll_perf"]["coll_exec_time_us"])


def ours(loader: Any, path: Path) -> int:
    """Read a file with a loader."""
    with path.open("rb") as stream:
        head = stream.read(64 << 10)
    sink = Sink()
    loader.load([EvidenceFile(0, path.name, path, path.stat().st_size, "", head)], sink)
    return sink.rows


def measured(work: Callable[[], int]) -> tuple[float, float, int]:
    """Return CPU seconds, growth of the peak memory in MB and the rows of `work`, done in a child process."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        rows = work()
        seconds = time.process_time() - began
        grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
        os.write(there, json.dumps([seconds, grew, rows]).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here) as stream:
        found = json.loads(stream.read())
    os.waitpid(child, 0)
    return found[0], found[1], found[2]


def report(name: str, size: int, work: Callable[[], int]) -> None:
    """Print the median of a few runs."""
    runs = [measured(work) for _ in range(RUNS)]
    seconds = statistics.median(run[0] for run in runs)
    print(
        f"{name:44} {size / seconds / MB:8.0f} MB/s {max(run[1] for run in runs):8.0f} MB {runs[0][2]:10,} rows",
        flush=True,
    )


def main() -> None:
    """Print the table; one core, so that the numbers are per core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    size = int(float(sys.argv[1]) * (1 << 20)) if len(sys.argv) > 1 else 256 << 20
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "host_1.1.pt.trace.json"
        kineto(trace, size)
        packed = Path(f"{trace}.gz")
        packed.write_bytes(gzip.compress(trace.read_bytes(), 6))
        records = Path(folder) / "n0-pid7.log"
        inspector(records, size // 4)
        print(f"{'':44} {'speed':>13} {'memory':>11}")
        for name, path in (("torch.profiler", trace), ("torch.profiler, gzip", packed)):
            report(f"{name}: mycroft", trace.stat().st_size, lambda path=path: ours(KinetoLoader(), path))
            report(f"{name}: json.load", trace.stat().st_size, lambda path=path: plain_kineto(path))
        report("Inspector: mycroft", records.stat().st_size, lambda: ours(InspectorLoader(), records))
        report("Inspector: json.loads per line", records.stat().st_size, lambda: plain_lines(records))


if __name__ == "__main__":
    main()
