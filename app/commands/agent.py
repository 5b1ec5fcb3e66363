"""`mycroft agent`: follows the traces of a host and sends them to a collector."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from mycroft.app.commands import options
from mycroft.app.commands.command import Command

NICE = 10
MIB = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("collector", metavar="URL", help="address of the collector, as http://collector:8060")
    parser.add_argument(
        "--dir",
        metavar="DIR",
        action="append",
        dest="folders",
        help="folder of trace files, may be repeated (default: $MYCROFT_DIR, else /dev/shm/mycroft-<uid>)",
    )
    parser.add_argument("--token-file", metavar="FILE", help="file with the token that the collector expects")
    parser.add_argument(
        "--kafka-settings", metavar="FILE", help="TLS and SASL of kafka:// brokers: lines name=value, as librdkafka has"
    )
    parser.add_argument("--job", metavar="NAME", default="", help="name of the job (default: as its launcher calls it)")
    parser.add_argument("--host-name", metavar="NAME", help="name of this host (default: as the system has it)")
    parser.add_argument(
        "--state", metavar="DIR", help="folder of spool and positions (default: the user's state folder)"
    )
    parser.add_argument(
        "--spool-mb", metavar="N", type=options.count, default=256, help="size of the spool (%(default)s)"
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=options.seconds,
        default=1.0,
        help="seconds between batches (1); half of it while the collector takes them at once",
    )
    parser.add_argument(
        "--no-devices",
        action="store_true",
        help="do not read the host's devices (ports and their counters, GPU clocks, PCIe links, the kernel's log)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Follow until SIGTERM or Ctrl-C."""
    from mycroft.app.config import read_token
    from mycroft.tracer.agent import Agent, AgentSettings
    from mycroft.tracer.agent.kafka import SCHEME
    from mycroft.tracer.agent.kafka_settings import read_settings

    # The token of the dashboard is another one: an agent must not be able to read what all jobs do.
    token = read_token(arguments.token_file, environ={}) if arguments.token_file else None
    given = {
        "folders": tuple(Path(folder) for folder in arguments.folders) if arguments.folders else None,
        "host": arguments.host_name,
        "state": Path(arguments.state) if arguments.state else None,
    }
    settings = AgentSettings(
        collector=arguments.collector,
        job=arguments.job,
        token=token,
        kafka=read_settings(arguments.kafka_settings) if arguments.collector.startswith(f"{SCHEME}://") else {},
        interval_s=arguments.interval,
        spool_bytes=arguments.spool_mb * MIB,
        devices=not arguments.no_devices,
        **{name: value for name, value in given.items() if value is not None},  # pyright: ignore[reportArgumentType]
    )
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    with contextlib.suppress(OSError):
        os.nice(NICE)
    agent = Agent(settings)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: agent.stop())
    folders = ", ".join(str(folder) for folder in settings.folders)
    print(f"following {folders} on {settings.host} for {settings.collector}", file=sys.stderr, flush=True)
    agent.run()
    return 0


COMMAND = Command(
    name="agent",
    summary="follow the traces of this host, read-only, and send them to a collector",
    configure=configure,
    run=run,
    epilog="one per host; never waits for a training process and never makes one wait",
)
