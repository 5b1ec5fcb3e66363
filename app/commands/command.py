"""What a verb of the command line is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One verb. `configure` declares its arguments; `run` does the work and returns the exit status.

    A module of a command imports nothing heavy at its top: `mycroft --help` reads all of them.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: str | None = None
