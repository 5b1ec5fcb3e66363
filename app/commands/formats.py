"""`mycroft formats`: what can be read."""

from __future__ import annotations

import argparse
import json
import textwrap

from mycroft.app.commands.command import Command


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print every format in the order in which files are tried."""
    from mycroft.loaders import LOADERS

    if arguments.json:
        listed = [
            {
                "name": loader.name,
                "title": loader.title,
                "recognised_by": loader.recognised_by,
                "yields": loader.yields,
            }
            for loader in LOADERS
        ]
        print(json.dumps({"formats": listed}, indent=2, ensure_ascii=False))
        return 0
    for loader in LOADERS:
        print(f"{loader.name}: {loader.title}")
        for label, text in (("recognised by", loader.recognised_by), ("yields", loader.yields)):
            print(textwrap.fill(f"{label}: {text}", width=100, initial_indent="    ", subsequent_indent="      "))
    print("\nFolders and archives (tar, tar.gz, tar.zst, zip, gz, zst, xz, nested) of any mix are unpacked first.")
    return 0


COMMAND = Command(
    name="formats",
    summary="list what can be read, how each format is recognised and what it yields",
    configure=configure,
    run=run,
)
