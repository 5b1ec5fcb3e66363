"""`mycroft watch`: looks at every job of a collector's store again and again, and raises alarms."""

from __future__ import annotations

import argparse
import logging
import signal
import sys

from mycroft.app.commands import options
from mycroft.app.commands.command import Command


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_data(parser)
    options.add_watching(parser)


def run(arguments: argparse.Namespace) -> int:
    """Watch until SIGTERM or Ctrl-C."""
    from mycroft.app.live.watching import Watching

    config = options.live_config(arguments)
    watch = Watching(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: watch.stop())
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    print(f"watching {config.store_dir}", file=sys.stderr, flush=True)
    watch.run()
    return 0


COMMAND = Command(
    name="watch",
    summary="look at every job of a collector's store every two seconds, and raise alarms",
    configure=configure,
    run=run,
)
