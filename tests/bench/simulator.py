"""How fast the simulator is, in rank-operations per CPU second: the table of docs/simulator.md.

`python -m tests.bench.simulator`
"""

from __future__ import annotations

import resource
import sys
import time

from mycroft.tracer import _simulator
from mycroft.tracer.simulator import Simulation

CASES = (
    ("T32", True, 200),
    ("T512", True, 10),
    ("M128", True, 20),
    ("T32", False, 400),
    ("T512", False, 50),
    ("T2048", False, 20),
    ("T10240", True, 1),
    ("T10240", False, 5),
    ("T102400", False, 1),
)


def main() -> int:
    print(
        "| topology | rows kept | M rank-operations/CPU-s | CPU-s per iteration | M rank-operations | M slices | rows |"
    )
    print("|---|---|---|---|---|---|---|")
    for topology, rows, iterations in CASES:
        job = _simulator.Job(Simulation(topology=topology, settings={"rows": rows}).config())
        job.run(1)
        before, kept, started = job.counts, job.row_count, time.process_time()
        job.run(iterations)
        seconds = time.process_time() - started
        done = {name: value - before[name] for name, value in job.counts.items()}
        operations = done["rank_operations"]
        print(
            f"| {topology} | {'all' if rows else 'none'} | {operations / seconds / 1e6:.2f} "
            f"| {seconds / iterations:.4f} | "
            f"{operations / iterations / 1e6:.3f} | {done['slices'] / iterations / 1e6:.2f} | "
            f"{(job.row_count - kept) // iterations} |",
            flush=True,
        )
    print(f"\nlargest memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
