"""Who became slow, as summaries alone tell: simulated jobs, several faults and seeds; right, one of several, wrong.

`python -m tests.bench.slow_windows [--topology T512] [--seeds 101,102,103] [--faults none,gpu_power] [--window 10]`

Each job is learnt for nine windows, then something breaks at a rank drawn from the seed, and goes on for thirteen
windows more; healthy jobs are watched for `--healthy` windows. What counts is what would become an incident: who is
accused at two windows in a row; the first such decides. Nothing is fetched: what rows add tells
`tests.bench.hierarchy`.
Exit status 1 if anybody is accused of a healthy job.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from mycroft.analysis.fleet.accusations import accusations
from mycroft.analysis.verdict import Finding
from mycroft.tracer.simulator import simulate, simulation, truth
from tests.analysis.fleet.simulated_fleet import Fleet
from tests.analysis.fleet.simulated_windows import Windows

FAULTS = "none,slow_gpu20,gpu_power,nic_bw,pcie,bg_compute,bg_traffic,qp_slow30,proxy_delay,link_flap"
BROKEN_AT, GOES_ON = 9.3, 13.0


def first_lasting(made: Windows) -> tuple[int, tuple[Finding, ...]] | None:
    """What would open an incident: the same is accused at two windows in a row."""
    before: set[tuple[object, ...]] = set()
    places = {host: f"sim{host // made.fleet.simulated.config.ranks_per_host}" for host in made.hosts}
    for number, _, accused in made.judged():
        found = accusations(accused, places) if accused is not None else ()
        keys = {(one.category, one.root_cause.ranks, one.root_cause.hosts) for one in found}
        if keys & before:
            return number - made.numbers.start, found
        before = keys
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="T512")
    parser.add_argument("--seeds", default="101,102,103")
    parser.add_argument("--faults", default=FAULTS)
    parser.add_argument("--window", type=float, default=10.0)
    parser.add_argument("--healthy", type=int, default=60)
    parser.add_argument("--microbatches", type=int, default=4)
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    counts: dict[str, Counter[str]] = {}
    for fault in arguments.faults.split(","):
        for seed in map(int, arguments.seeds.split(",")):
            began = time.process_time()
            after = arguments.healthy - BROKEN_AT if fault == "none" else GOES_ON
            made = simulation(
                fault,
                topology=arguments.topology,
                seed=seed,
                at_s=BROKEN_AT * arguments.window,
                after_s=after * arguments.window,
                settings={"microbatches": arguments.microbatches, "interval_ns": 1e9},
            )
            fleet = Fleet(simulate(made.drawn()), 1 << 30)
            found = first_lasting(Windows(fleet, window_s=arguments.window))
            how, said = "nothing", ""
            if found is not None:
                cause = truth(fleet.simulated)["root_cause"]
                one = found[1][0]
                who = list(one.root_cause.ranks) or list(one.root_cause.hosts)
                said = f"window {found[0]}: {one.category} {one.confidence} {who}"
                if fault == "none":
                    how = "ACCUSED"
                elif set(one.root_cause.ranks) == set(cause["ranks"]) or (
                    not one.root_cause.ranks and set(one.root_cause.hosts) == set(cause["hosts"])
                ):
                    how = "right"
                else:
                    how = "one of several" if set(cause["ranks"]) < set(one.root_cause.ranks) else "WRONG"
            counts.setdefault(fault, Counter())[how] += 1
            what = f"{arguments.topology} {fault} seed {seed} rank {fleet.simulated.simulation.rank}"
            print(f"{what}: {how} {said} ({time.process_time() - began:.0f} CPU s)")
    for fault, counted in counts.items():
        print(f"{fault}: {dict(counted)}")
    return int(any("ACCUSED" in counted for counted in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
