"""`mycroft testbed`: jobs of real processes without GPUs, really broken."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mycroft.app.commands.command import Command


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verbs.add_parser("list", help="name the scenarios and what each breaks")
    run = verbs.add_parser("run", help="run a scenario and keep its trace, logs and truth.json")
    run.add_argument("scenario", metavar="SCENARIO", help="one of `mycroft testbed list`")
    run.add_argument("--out", metavar="DIR", help="new folder for what is kept (default: testbed-SCENARIO)")
    run.add_argument("--seed", metavar="N", type=int, help="draws the rank and the time where they are not given")
    run.add_argument("--rank", metavar="N", type=int, help="the rank to break")
    run.add_argument("--at", metavar="N", type=int, dest="at_iteration", help="the iteration to break it at")
    run.add_argument("--layout", metavar="TPxPPxDP", help="sizes of the parallel dimensions, as 2x2x2")
    run.add_argument("--hosts", metavar="N", type=int, help="number of hosts")
    run.add_argument("--iterations", metavar="N", type=int, help="iterations of a job that is not stopped")
    run.add_argument("--patience", metavar="S", type=float, dest="patience_s", help="how long a job may stand, seconds")
    run.add_argument("--abi", metavar="V", type=int, choices=range(1, 8), help="version of NCCL's profiler ABI")
    run.add_argument("--connections", metavar="N", type=int, help="connections per channel")
    run.add_argument("--algo", choices=("RING", "TREE"), help="algorithm of all_reduce")
    run.add_argument(
        "--torch", action="store_true", default=None, help="through torch.distributed, with Flight Recorder dumps"
    )
    run.add_argument("--no-trace", action="store_false", dest="trace", default=None, help="load no plugin")
    run.add_argument(
        "--no-namespaces", action="store_false", dest="namespaces", default=None, help="shape in process, also as root"
    )


def run(arguments: argparse.Namespace) -> int:
    """List or run."""
    from mycroft.tracer.testbed import SCENARIOS

    if arguments.action == "list":
        for name, scenario in SCENARIOS.items():
            print(f"{name:14} {scenario.fault.status:8} {scenario.fault.signature}")
        return 0
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from mycroft.tracer.testbed import TestbedError, run_job, scenario

    chosen = scenario(arguments.scenario)
    layout = chosen.layout
    if arguments.layout is not None:
        try:
            tp, pp, dp = (int(part) for part in arguments.layout.split("x"))
        except ValueError:
            raise TestbedError(f"layout {arguments.layout!r}: expected three numbers, as 2x2x2") from None
        layout = replace(layout, tp=tp, pp=pp, dp=dp)
    if arguments.hosts is not None:
        layout = replace(layout, hosts=arguments.hosts)
    names = (
        "seed", "rank", "at_iteration", "iterations", "patience_s", "abi", "connections", "algo", "trace", "namespaces",
        "torch",
    )  # fmt: skip
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    chosen = replace(chosen, layout=layout, **given)
    folder = Path(arguments.out or f"testbed-{arguments.scenario}")
    outcome = run_job(chosen, folder, say=lambda text: print(f"mycroft: {text}", file=sys.stderr))
    print(f"{folder}: {outcome.truth['title']}")
    if outcome.before_s is not None:
        print(f"iteration {outcome.before_s * 1000:.0f} ms before the fault", end="")
        if outcome.after_s is not None:
            print(f", {outcome.after_s * 1000:.0f} ms after it", end="")
        print()
    if outcome.stood_s:
        print(f"the job stood still for {outcome.stood_s:.1f} s")
    for rank, code in outcome.exits.items():
        if code:
            print(f"rank {rank} ended with {code}")
    return 0


COMMAND = Command(
    name="testbed",
    summary="run a training job of real processes without GPUs, and really break it",
    configure=configure,
    run=run,
    epilog="kept in the folder: trace.parquet, truth.json, logs/, stacks/ (of a job that stood); diagnose reads it",
)
