"""The verbs of the command line, one module each; the tuple is the list of what exists, in the order of `--help`."""

from mycroft.app.commands import (
    agent,
    collect,
    demo,
    diagnose,
    doctor,
    export,
    fleet,
    formats,
    load,
    plugin_path,
    score,
    serve,
    simulate,
    sql,
    testbed,
    trace,
    watch,
)
from mycroft.app.commands.command import Command

COMMANDS: tuple[Command, ...] = (
    diagnose.COMMAND,
    serve.COMMAND,
    demo.COMMAND,
    load.COMMAND,
    formats.COMMAND,
    sql.COMMAND,
    export.COMMAND,
    score.COMMAND,
    testbed.COMMAND,
    simulate.COMMAND,
    plugin_path.COMMAND,
    trace.COMMAND,
    agent.COMMAND,
    collect.COMMAND,
    watch.COMMAND,
    fleet.COMMAND,
    doctor.COMMAND,
)

__all__ = ["COMMANDS", "Command"]
