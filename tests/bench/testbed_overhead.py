"""What tracing costs a testbed job: iterations with the plugin and without, in pairs, in turn.

`python -m tests.bench.testbed_overhead [--pairs N]` prints median ratios with their interval. CPU time of all ranks
is what counts on a machine that does other things too; wall time is printed beside it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from mycroft.tracer.testbed import run_job, scenario
from mycroft.tracer.testbed.layout import Layout

# Set-up, and the first iterations in which connections are made, do not count.
SKIPPED = 3


def once(*, trace: bool, iterations: int) -> tuple[float, float]:
    """Median CPU and wall seconds of an iteration of one job."""
    chosen = replace(
        scenario("none"), layout=Layout(tp=2, dp=2, hosts=2), iterations=iterations, trace=trace, namespaces=False
    )
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as folder:
        outcome = run_job(chosen, Path(folder) / "run")
    assert outcome.ended == "finished", outcome.ended
    return statistics.median(outcome.cpu_s[SKIPPED:]), statistics.median(outcome.iteration_s[SKIPPED:])


def interval(values: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=24)
    arguments = parser.parse_args()
    ratios: dict[str, list[float]] = {"cpu": [], "wall": []}
    for pair in range(arguments.pairs):
        first = pair % 2 == 0
        runs = {trace: once(trace=trace, iterations=arguments.iterations) for trace in (first, not first)}
        for index, name in enumerate(ratios):
            ratios[name].append(runs[True][index] / runs[False][index])
        print(f"  pair {pair}: cpu {ratios['cpu'][-1]:.4f}, wall {ratios['wall'][-1]:.4f}", flush=True)
    for name, values in ratios.items():
        low, high = interval(values)
        print(f"{name}: median {statistics.median(values):.4f}, 95 % {low:.4f} to {high:.4f}, {len(values)} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
