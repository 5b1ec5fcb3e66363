"""`mycroft doctor`: says what this host lacks for being watched."""

from __future__ import annotations

import argparse
from pathlib import Path

from mycroft.app.commands.command import Command

MARKS = {"good": "ok", "missing": "--", "wrong": "!!", "unknown": "??"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--dir", metavar="DIR", help="folder of trace files (default: $MYCROFT_DIR, else /dev/shm/…)")
    parser.add_argument("--collector", metavar="URL", help="also try whether the collector can be reached")


def run(arguments: argparse.Namespace) -> int:
    """Look and print; 1 if anything is wrong."""
    from mycroft.app.live.doctor import examine
    from mycroft.tracer.agent.agent import default_folder

    folder = Path(arguments.dir) if arguments.dir else default_folder()
    checks = examine(folder=folder, collector=arguments.collector)
    width = max(len(check.what) for check in checks)
    for check in checks:
        print(f"{MARKS[check.state]}  {check.what:{width}}  {check.found}")
        if check.do:
            print(f"    {'':{width}}  {check.do}")
    return 1 if any(check.state == "wrong" for check in checks) else 0


COMMAND = Command(
    name="doctor",
    summary="say what this host lacks for being watched: plugin, NCCL, shared memory, py-spy, ports",
    configure=configure,
    run=run,
    epilog="ok: as it should be; --: not there; !!: in the way; ??: cannot be seen from here. It changes nothing.",
)
