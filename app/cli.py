"""The `mycroft` command: finds the verb, runs it, and turns what went wrong into one line and an exit status.

Nothing heavy is imported before the verb is known; each verb imports what it needs when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mycroft import __version__, scratch
from mycroft.app.commands import COMMANDS
from mycroft.app.termination import INTERRUPTED, Termination
from mycroft.errors import MycroftError

USAGE_ERROR = 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="mycroft",
        description="Names the rank, NIC, GPU or line of code that stalls or slows a distributed training job.",
    )
    top.add_argument("--version", action="version", version=f"mycroft {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for command in COMMANDS:
        verb = verbs.add_parser(
            command.name,
            help=command.summary,
            description=command.summary[:1].upper() + command.summary[1:] + ".",
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.configure(verb)
        verb.set_defaults(run=command.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        arguments = parser().parse_args(argv)
    except SystemExit as ended:  # argparse: 0 after --help and --version, 2 after a wrong usage
        return ended.code if isinstance(ended.code, int) else USAGE_ERROR
    status = USAGE_ERROR
    with Termination() as ending:
        try:
            status = _run(arguments)
        except KeyboardInterrupt:
            # Of a handler that the command had put in the place of ours.
            ending.status = INTERRUPTED
        except BaseException:
            if ending.status is None:
                raise
        finally:
            # Whatever the command made of the signal, by now it has ended, and what it left is nobody's.
            ending.settle()
            scratch.remove_all()
    ending.say()
    return status if ending.status is None else ending.status


def _run(arguments: argparse.Namespace) -> int:
    try:
        status = arguments.run(arguments)
        sys.stdout.flush()
    except MycroftError as error:
        print(f"mycroft: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has left (`| head`); whatever is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return USAGE_ERROR
    except Exception as error:
        if os.environ.get("MYCROFT_DEBUG"):
            raise
        told = one_line(str(error)) or "no message"
        print(
            f"mycroft: internal error, please report it: {type(error).__name__}: {told} (MYCROFT_DEBUG=1 shows where)",
            file=sys.stderr,
        )
        return USAGE_ERROR
    return status


def one_line(text: str) -> str:
    """Return text on one line, without control characters that could speak to the terminal."""
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))


if __name__ == "__main__":
    sys.exit(main())
