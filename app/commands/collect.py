"""`mycroft collect`: takes the batches of agents and keeps them."""

from __future__ import annotations

import argparse
import logging
import sys

from mycroft.app.commands import options
from mycroft.app.commands.command import Command


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    options.add_data(parser)
    options.add_collecting(parser, prefix="")


def run(arguments: argparse.Namespace) -> int:
    """Collect until SIGTERM or Ctrl-C."""
    from mycroft.app.live.serving import serve_collector
    from mycroft.app.processes import listen

    config = options.live_config(arguments)
    config.tokens()
    listener = listen(config.host, config.port)
    listener.set_inheritable(True)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING, stream=sys.stderr)
    host, port = listener.getsockname()[:2]
    print(f"collecting at http://{host}:{port}", flush=True)
    serve_collector(config, listen_fd=listener.fileno())
    return 0


COMMAND = Command(
    name="collect",
    summary="take the batches of agents and keep them: acknowledged once they are on disk",
    configure=configure,
    run=run,
    epilog="agents: `mycroft agent URL`; what is kept is read by `mycroft watch`; numbers for Prometheus at /metrics",
)
