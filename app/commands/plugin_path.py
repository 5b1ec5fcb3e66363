"""`mycroft plugin-path`: where the NCCL profiler plugin is."""

from __future__ import annotations

import argparse

from mycroft.app.commands.command import Command
from mycroft.errors import MycroftError


class PluginMissingError(MycroftError):
    """The build has no plugin: says where it was looked for and what to do."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--folder", action="store_true", help="print the folder, for LD_LIBRARY_PATH")


def run(arguments: argparse.Namespace) -> int:
    """Print the path."""
    from mycroft.tracer import plugin_path

    try:
        path = plugin_path()
    except FileNotFoundError as error:
        raise PluginMissingError(str(error)) from error
    print(path.parent if arguments.folder else path)
    return 0


COMMAND = Command(
    name="plugin-path",
    summary="print the path of the NCCL profiler plugin",
    configure=configure,
    run=run,
    epilog="example: NCCL_PROFILER_PLUGIN=$(mycroft plugin-path) torchrun ...",
)
