"""`mycroft serve`: the dashboard, until Ctrl-C."""

from __future__ import annotations

import argparse
import socket
import sys
from typing import TYPE_CHECKING

from mycroft.app.commands import options
from mycroft.app.commands.command import Command
from mycroft.app.terminal import Progress

if TYPE_CHECKING:
    from mycroft.app.live.config import LiveConfig


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_paths(parser, nargs="*")
    options.add_data(parser)
    options.add_serving(parser)
    parser.add_argument(
        "--store",
        metavar="URL",
        help="a fleet's store to read history from: a folder or s3://bucket/prefix (default: that of the collector "
        "in --data)",
    )
    parser.add_argument("--live", action="store_true", help="also collect what agents send, and watch the jobs")
    options.add_collecting(parser)
    options.add_watching(parser)


def agents_command(live: LiveConfig) -> str:
    """Return what starts an agent that sends to this server."""
    # Where all addresses are listened on, other hosts know this one by its name.
    host = socket.gethostname() if live.host in {"0.0.0.0", "::"} else live.host  # noqa: S104 - compared, not bound
    shown = f"[{host}]" if ":" in host else host
    return f"mycroft agent http://{shown}:{live.port}" + (" --token-file FILE" if live.token_file else "")


def run(arguments: argparse.Namespace) -> int:
    """Load the paths, if any, then serve; the links go to standard output."""
    from mycroft.app.processes import Server

    config = options.app_config(arguments)
    # The port is taken first: nobody waits for a load only to learn that it is in use.
    server = Server(config, options.live_config(arguments) if arguments.live else None)
    links: list[str] = []
    try:
        if arguments.paths:
            from mycroft.app.ingest import Stages, ingest
            from mycroft.app.urls import path_of

            sources, title = options.evidence(arguments.paths)
            with Progress() as progress:
                published = ingest(sources, config.data_dir, title=title, stages=Stages.on_terminal(progress))
            links.append(path_of("diagnosis", trace=published.trace, incident=published.page))
        server.start()
        print(f"Mycroft is at {server.url}/  (Ctrl-C ends it)", flush=True)
        if server.live is not None:
            print(f"agents: {agents_command(server.live)}", flush=True)
            print(f"{server.url}/live", flush=True)
        for link in links:
            print(f"{server.url}{link}", flush=True)
        server.wait()
        print("stopping", file=sys.stderr)
    finally:
        server.stop()
    return 0


COMMAND = Command(
    name="serve",
    summary="serve the dashboard, after loading the paths that are given",
    configure=configure,
    run=run,
)
