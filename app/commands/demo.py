"""`mycroft demo`: a job that is broken live, and the packaged incidents; loaded, diagnosed and served."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from mycroft.app.commands import options
from mycroft.app.commands.command import Command
from mycroft.app.terminal import Progress
from mycroft.scratch import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path

    from mycroft.app.config import AppConfig
    from mycroft.app.ingest import Published

RUN = "run"
"""Name of the folder of the live job, inside the scratch folder."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_data(parser)
    options.add_serving(parser)
    parser.add_argument("--no-serve", action="store_true", help="only load and diagnose")
    parser.add_argument("--no-live", action="store_true", help="run no job, only load the packaged incidents")
    parser.add_argument("--seed", type=int, metavar="N", help="draws the fault and the rank of the live job")
    parser.add_argument("--fault", metavar="NAME", help="break it this way: one of `mycroft testbed list`")
    parser.add_argument("--rank", type=int, metavar="N", help="break this rank")
    parser.add_argument("--keep", metavar="DIR", help="new folder that keeps the live job's trace, logs and truth.json")


def run(arguments: argparse.Namespace) -> int:
    """Run and break a job, load what is not loaded yet, serve, and print the link of each diagnosis."""
    from mycroft.app.demo import incidents
    from mycroft.app.ingest import Stages, ingest
    from mycroft.app.processes import Server
    from mycroft.app.urls import path_of

    config = options.app_config(arguments)
    server = None if arguments.no_serve else Server(config)
    try:
        shown: list[tuple[Published, list[str]]] = []
        if not arguments.no_live:
            shown.append(live(arguments, config))
        for incident in incidents():
            with Progress() as progress:
                stages = Stages.on_terminal(progress, prefix=f"{incident.name}: ")
                published = ingest([incident.path], config.data_dir, title=incident.name, stages=stages)
            shown.append((published, [published.summary]))
        if server is not None:
            server.start()
            print(f"Mycroft is at {server.url}/  (Ctrl-C ends it)\n", flush=True)
        for published, lines in shown:
            link = path_of("diagnosis", trace=published.trace, incident=published.page)
            print(f"{server.url if server else ''}{link}", *lines, sep="\n    ", flush=True)
        if server is not None:
            _open(server.url + path_of("diagnosis", trace=shown[0][0].trace, incident=shown[0][0].page))
            server.wait()
            print("stopping", file=sys.stderr)
    finally:
        if server is not None:
            server.stop()
    return 0


def live(arguments: argparse.Namespace, config: AppConfig) -> tuple[Published, list[str]]:
    """Run the live job and diagnose it; returns what was published, and verdict and truth as lines."""
    import random
    from pathlib import Path

    from mycroft.app.demo import SEEDS, live_job
    from mycroft.app.ingest import Stages, ingest
    from mycroft.tracer.testbed import run_job

    seed = random.SystemRandom().randrange(SEEDS) if arguments.seed is None else arguments.seed
    job = live_job(seed=seed, fault=arguments.fault, rank=arguments.rank)
    print(
        f"A training job of {job.layout.world} processes runs, and one of them is broken (--seed {seed}) ...",
        flush=True,
    )
    started = time.monotonic()

    with scratch_folder("mycroft-demo-") as scratch:
        folder: Path = Path(arguments.keep or scratch / RUN)

        def say(text: str) -> None:
            # What was broken is told beside the verdict, not before it.
            if not text.startswith("fault"):
                print(f"  {time.monotonic() - started:4.0f} s  {text}", flush=True)

        outcome = run_job(job, folder, say=say)
        with Progress() as progress:
            stages = Stages.on_terminal(progress, prefix="live job: ")
            published = ingest([folder], config.data_dir, title=f"live job, seed {seed}", stages=stages)
    print(f"  {time.monotonic() - started:4.0f} s  diagnosed\n", flush=True)
    truth = outcome.truth
    hosts = ", ".join(truth["root_cause"]["hosts"])
    return published, [
        f"verdict: {published.summary}",
        f"truth:   {truth['fault']} at rank {job.rank} on {hosts} ({truth['explanation']})",
    ]


def _open(address: str) -> None:
    """Open a browser where somebody sits in front of one."""
    if sys.stdout.isatty() and (
        sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        import webbrowser

        webbrowser.open(address)


COMMAND = Command(
    name="demo",
    summary="break a live 8-rank job, diagnose it and the packaged incidents, serve them and print the links",
    configure=configure,
    run=run,
)
