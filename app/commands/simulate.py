"""`mycroft simulate`: a job in virtual time, with a fault of which the truth is known."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mycroft.app.commands.command import Command

if TYPE_CHECKING:
    from mycroft.tracer.simulator import Simulated


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("scenario", metavar="SCENARIO", help="the fault: none, nic_down, …; `list` names all")
    parser.add_argument("--topology", help="T16, T32 (default), T512, M128 (default of moe), T2048, T10240, T102400")
    parser.add_argument(
        "--out", metavar="DIR", help="new folder for trace and truth.json (default: simulated-SCENARIO)"
    )
    parser.add_argument("--rank", metavar="N", type=int, help="the rank to break (default: drawn from the seed)")
    parser.add_argument("--at", metavar="S", type=float, dest="at_s", help="when it breaks, simulated seconds")
    parser.add_argument("--after", metavar="S", type=float, dest="after_s", help="how long to go on after that (36)")
    parser.add_argument("--seed", metavar="N", type=int, help="the same seed gives the same trace (1)")
    parser.add_argument("--severity", metavar="X", type=float, help="scales the fault; 1 is the default fault")
    parser.add_argument("--noise", metavar="X", type=float, help="scales everything that varies in a healthy job")
    parser.add_argument("--tree", action="store_true", help="data-parallel all_reduce over trees instead of rings")
    parser.add_argument(
        "--diagnose",
        action="store_true",
        help="say what the analysis finds, beside the truth; nothing is written unless --out is given",
    )
    parser.add_argument("--no-rows", action="store_true", help="only simulate: write nothing, print the speed")
    parser.add_argument("--format", choices=("parquet", "arrow"), default="parquet", help="of the exported trace")


def run(arguments: argparse.Namespace) -> int:
    """Simulate, write or diagnose, print; with --diagnose the exit status is the verdict's."""
    from mycroft.tracer.simulator import EXPERTS, FAULTS, SimulatorError, export_tables, simulate, simulation, truth

    if arguments.scenario == "list":
        for name, fault in FAULTS.items():
            print(f"{name:12} {fault.status:8} {fault.category}")
        print(f"{EXPERTS}, {EXPERTS}_FAULT  the same with expert groups that exchange by all_to_all (M128)")
        return 0
    if arguments.no_rows and arguments.diagnose:
        raise SimulatorError("--no-rows leaves nothing that --diagnose could read; give one of them")
    settings: dict[str, object] = {"tree": arguments.tree, "rows": not arguments.no_rows}
    if arguments.noise is not None:
        settings["noise"] = arguments.noise
    names = ("rank", "at_s", "after_s", "seed", "severity")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    chosen = simulation(arguments.scenario, topology=arguments.topology, settings=settings, **given)
    folder = Path(arguments.out or f"simulated-{arguments.scenario}")
    writes = not arguments.no_rows and (arguments.out is not None or not arguments.diagnose)
    if writes and folder.exists() and any(folder.iterdir()):
        raise SimulatorError(f"{folder}: exists and is not empty; name a new folder")
    started = time.process_time()
    done = simulate(chosen)
    cpu_s = time.process_time() - started
    operations = done.counts["rank_operations"]
    print(
        f"{truth(done)['title']}: {done.counts['iterations']} iterations, {operations / 1e6:.2f} M rank-operations "
        f"in {cpu_s:.2f} CPU-s ({operations / max(cpu_s, 1e-9) / 1e6:.2f} M/s)"
    )
    if writes:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"trace.{arguments.format}"
        rows = export_tables(done, path, format_=arguments.format)
        (folder / "truth.json").write_text(json.dumps(truth(done), indent=1) + "\n")
        print(f"{path}: {rows} rows")
    return _diagnose(done) if arguments.diagnose else 0


def _diagnose(simulated: Simulated) -> int:
    """Diagnose the rows where they are, in memory; returns the exit status of the verdict."""
    from mycroft.analysis import diagnose
    from mycroft.analysis.report import render
    from mycroft.loaders.memory import load_traces
    from mycroft.tracer.simulator import simulated_traces, truth

    with load_traces(simulated_traces(simulated), name="simulated") as store:
        verdict = diagnose(store)
    told = truth(simulated)
    who = [f"rank {rank}" for rank in told["root_cause"]["ranks"]] + told["root_cause"]["hosts"]
    print(f"\n{render(verdict)}\ntruth     {told['category']} at {', '.join(who) or 'nobody'}")
    return verdict.exit_code


COMMAND = Command(
    name="simulate",
    summary="simulate a training job of up to 100,000 ranks and break it",
    configure=configure,
    run=run,
    epilog="kept in the folder: trace.parquet (or .arrow) and truth.json; diagnose reads it",
)
