"""What tracing costs the testbed's training job: iterations with the plugin and without, in pairs, in turn.

    python -m tests.bench.testbed_overhead [--seconds 300]

Two jobs of four ranks live in this process, one traced and one not; the ranks are threads, each with an engine of its
own. They take turns by one iteration, in an order that is drawn for each pair, so that drift of the machine meets both.
CPU time is that of the process, all callers, proxies and devices; the sampler of the tracer runs on its own clock,
whoever's turn it is, so its time is taken out of both and added to the traced job as a share of an iteration. The
ratio is decided by the 95 % bootstrap interval of the median over all pairs, which narrows with their number.

Ends with 1 if the interval of the CPU ratio lies above the bar, 2 if it does not decide.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mycroft.tracer import _testbed, plugin_path
from mycroft.tracer.testbed import scenario
from mycroft.tracer.testbed.layout import Layout
from mycroft.tracer.testbed.training import Orders, Training

BAR = 1.005
# Connections are made and memory is touched in the first iterations.
WARM = 10
RESAMPLES = 2000


class Job:
    """One training job, all of whose ranks are in this process."""

    def __init__(self, folder: Path, *, plugin: str) -> None:
        chosen = scenario("none")
        work = replace(chosen.work, microbatches=2, kernel_ms=4.0, checkpoint_every=0, evaluate_every=0)
        chosen = replace(chosen, layout=Layout(tp=2, dp=2, hosts=2), work=work)
        ranks = range(chosen.layout.world)
        self.engines = [
            _testbed.Engine(rank=rank, plugin=plugin, abi=chosen.abi, slot_bytes=chosen.slot_bytes) for rank in ranks
        ]
        for engine in self.engines:
            engine.set_condition("nic_bytes_per_s", chosen.nic_bytes_per_s)
        hosts = [f"node{chosen.layout.host(rank)}" for rank in ranks]
        members = [("127.0.0.1", engine.port, host) for engine, host in zip(self.engines, hosts, strict=True)]
        self.pool = ThreadPoolExecutor(len(ranks))
        self.trainings = list(
            self.pool.map(lambda rank: Training(chosen, rank, self.engines[rank], members, folder, Orders()), ranks)
        )
        self.iteration = 0

    def step(self) -> None:
        """Run one iteration on all ranks."""
        number = self.iteration
        self.iteration += 1
        list(self.pool.map(lambda training: training.train_step(number), self.trainings))

    def end(self) -> None:
        """End the engines."""
        for engine in self.engines:
            engine.drain(5_000_000_000)
            engine.shut_down()
        self.pool.shutdown()


def sampler_ns() -> int:
    """CPU time of the tracer's own threads so far."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == "mycroft":
            total += int((task / "schedstat").read_text().split()[0])
    return total


@dataclass
class Times:
    """Of one job, per iteration, ns; `sampler` is what ran beside it."""

    cpu: list[int] = field(default_factory=lambda: list[int]())
    wall: list[int] = field(default_factory=lambda: list[int]())
    sampler: list[int] = field(default_factory=lambda: list[int]())

    def measure(self, job: Job) -> None:
        """Run one iteration."""
        sampled, cpu, wall = sampler_ns(), time.process_time_ns(), time.monotonic_ns()
        job.step()
        self.wall.append(time.monotonic_ns() - wall)
        self.cpu.append(time.process_time_ns() - cpu)
        self.sampler.append(sampler_ns() - sampled)


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Median and its 95 % bootstrap interval."""
    draw = np.random.default_rng(1)
    medians = [float(np.median(draw.choice(values, len(values)))) for _ in range(RESAMPLES)]
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(values)), float(low), float(high)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300.0, help="how long to measure")
    parser.add_argument("--events", default="coll,p2p,proxy", help="what the plugin asks for; add kernel")
    parser.add_argument("--null", action="store_true", help="trace neither: what the noise alone comes to")
    arguments = parser.parse_args()
    draw = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-", dir="/dev/shm") as folder:
        os.environ |= {"MYCROFT_DIR": folder, "MYCROFT_RING_MB": "8", "MYCROFT_EVENTS": arguments.events}
        with_, without = Times(), Times()
        jobs = [
            (with_, Job(Path(folder), plugin="" if arguments.null else str(plugin_path()))),
            (without, Job(Path(folder), plugin="")),
        ]
        for _ in range(WARM):
            for _, job in jobs:
                job.step()
        until = time.monotonic() + arguments.seconds
        while time.monotonic() < until:
            for times, job in draw.sample(jobs, 2):
                times.measure(job)
        for _, job in jobs:
            job.end()
    on, off = np.array(with_.cpu) - np.array(with_.sampler), np.array(without.cpu) - np.array(without.sampler)
    sampled = sum(with_.sampler) + sum(without.sampler)
    beside = sampled / (sum(with_.wall) + sum(without.wall)) * np.median(with_.wall) / np.median(off)
    cpu = interval(on / off + beside)
    wall = interval(np.array(with_.wall) / np.array(without.wall))
    print(
        f"{len(on)} pairs; an iteration is {np.median(without.wall) / 1e6:.1f} ms of wall and "
        f"{np.median(off) / 1e6:.1f} ms of CPU time without the plugin; the sampler adds {beside:.5f} of that"
    )
    for name, (median, low, high) in (("cpu", cpu), ("wall", wall)):
        print(f"{name}: median {median:.4f}, 95 % {low:.4f} to {high:.4f}")
    verdict = "holds" if cpu[2] <= BAR else "does not hold" if cpu[1] > BAR else "not decided"
    print(f"bar {BAR}: {verdict}; load {os.getloadavg()[0]:.1f} at the end")
    return {"holds": 0, "does not hold": 1, "not decided": 2}[verdict]


if __name__ == "__main__":
    sys.exit(main())
