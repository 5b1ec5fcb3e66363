"""`mycroft demo`: the packaged incidents, loaded, diagnosed and served."""

from __future__ import annotations

import argparse
import sys

from mycroft.app.commands import options
from mycroft.app.commands.command import Command
from mycroft.app.terminal import Progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_data(parser)
    options.add_serving(parser)
    parser.add_argument("--no-serve", action="store_true", help="only load and diagnose")


def run(arguments: argparse.Namespace) -> int:
    """Load what is not loaded yet, serve, and print the link of each diagnosis."""
    from mycroft.app.demo import incidents
    from mycroft.app.ingest import Stages, ingest
    from mycroft.app.processes import Server
    from mycroft.app.urls import path_of

    config = options.app_config(arguments)
    server = None if arguments.no_serve else Server(config)
    try:
        lines: list[tuple[str, str]] = []
        for incident in incidents():
            with Progress() as progress:
                stages = Stages.on_terminal(progress, prefix=f"{incident.name}: ")
                published = ingest([incident.path], config.data_dir, title=incident.name, stages=stages)
            lines.append((path_of("diagnosis", trace=published.trace, incident=published.page), published.summary))
        if server is not None:
            server.start()
            print(f"Mycroft is at {server.url}/  (Ctrl-C ends it)\n", flush=True)
        for link, summary in lines:
            print(f"{server.url if server else ''}{link}\n    {summary}", flush=True)
        if server is not None:
            server.wait()
            print("stopping", file=sys.stderr)
    finally:
        if server is not None:
            server.stop()
    return 0


COMMAND = Command(
    name="demo",
    summary="load the packaged incidents, diagnose them, serve them and print the links",
    configure=configure,
    run=run,
)
