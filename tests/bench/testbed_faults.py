"""Every fault of the testbed, several times: its signature, what it did to the job, what it left behind.

`python -m tests.bench.testbed_faults [--times N] [FAULT ...]` prints the table of docs/testbed.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from mycroft.tracer.testbed import SCENARIOS, Outcome, run_job
from mycroft.tracer.testbed.faults import FAULT_BY_NAME
from tests.tracer.frames import frames
from tests.tracer.signatures import signature


def left_behind(before: set[str]) -> list[str]:
    """What is on the machine now and was not before: agents and ranks, shared memory, interfaces, namespaces."""
    return sorted(belongings() - before)


def belongings() -> set[str]:
    found: set[str] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            own = any(f"mycroft-testbed-{os.getpid()}-".encode() in argument for argument in arguments)
            if own and state != "Z":
                found.add(f"process {entry.name}")
    found |= {f"shm {path.name}" for path in Path("/dev/shm").glob(f"mycroft-testbed-{os.getpid()}-*")}
    found |= {f"interface {path.name}" for path in Path("/sys/class/net").iterdir() if path.name != "lo"}
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return found | {f"namespace {line.split()[0]}" for line in listed.splitlines()}


def effect(outcome: Outcome) -> str:
    if outcome.stood_s:
        return f"stood {outcome.stood_s:.0f} s"
    before, after = outcome.before_s, outcome.after_s
    if before is None or after is None:
        return outcome.ended
    at = outcome.truth["at_iteration"] or 0
    worst = max(outcome.iteration_s[at:], default=0.0)
    return f"{before * 1000:.0f} to {after * 1000:.0f} ms, longest {worst * 1000:.0f} ms"


def run(name: str, seed: int) -> tuple[bool, str, str, list[str], float]:
    base = SCENARIOS[name]
    chosen = replace(base, seed=seed, patience_s=6.0, stacks=False)
    layout, drawn = chosen.layout, chosen.drawn()
    before = belongings()
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as folder:
        outcome = run_job(chosen, Path(folder) / "run")
        assert drawn.rank is not None
        shown, words = signature(
            frames(Path(folder) / "run" / "trace.parquet"),
            outcome.truth,
            drawn.rank,
            list(layout.ranks_of_host(layout.host(drawn.rank))),
            {group.name: group.ranks for group in layout.groups()},
        )
    return shown, words, effect(outcome), left_behind(before), outcome.wall_s


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=11)
    parser.add_argument("faults", nargs="*", default=[name for name in FAULT_BY_NAME if name != "none"])
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.faults:
        walls: list[float] = []
        good = clean = 0
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.times):
            shown, words, did, left, wall = run(name, seed)
            walls.append(wall)
            good += shown
            clean += not left
            print(f"  {name} seed {seed}: {'shown' if shown else 'NOT SHOWN'}: {words}; {did}; left {left}", flush=True)
        failed += good < arguments.times or clean < arguments.times
        print(
            f"| {name} | {good}/{arguments.times} | {words} | {did} | {clean}/{arguments.times} | "
            f"{statistics.median(walls):.0f} s |",
            flush=True,
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
