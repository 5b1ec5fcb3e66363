"""`mycroft load`: put evidence into a data folder, as a trace with its verdict."""

from __future__ import annotations

import argparse

from mycroft.app.commands import options
from mycroft.app.commands.command import Command
from mycroft.app.terminal import Progress


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_paths(parser)
    options.add_data(parser)
    parser.add_argument("--title", help="name of the trace in lists (default: name of the first path)")


def run(arguments: argparse.Namespace) -> int:
    """Load all paths as one trace and print its id, generation and verdict."""
    from mycroft.app.ingest import Stages, ingest

    folder = options.data_dir(arguments)
    sources, title = options.evidence(arguments.paths)
    with Progress() as progress:
        published = ingest(sources, folder, title=arguments.title or title, stages=Stages.on_terminal(progress))
    print(f"{published.trace} generation {published.generation}: {published.summary}")
    return 0


COMMAND = Command(
    name="load",
    summary="load evidence into the data folder and diagnose it, for serve, sql and export",
    configure=configure,
    run=run,
)
