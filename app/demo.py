"""The packaged incidents of `mycroft demo`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import mycroft

SUFFIX: Final = ".tar.zst"

# Name of the archive in `demo_data`, and what the reader is told it is. The order is that of the list.
INCIDENTS: Final[tuple[tuple[str, str], ...]] = (
    ("stuck_dataloader", "8 ranks hang in training"),
    ("sigkill", "a job that died"),
    ("pg_order", "8 ranks hang, two groups"),
    ("size_mismatch", "a job that failed with an error"),
    ("straggler", "a job that runs, slowly"),
    ("healthy", "a job that ran to its end"),
)


@dataclass(frozen=True, slots=True)
class Incident:
    """One packaged incident."""

    name: str
    about: str
    path: Path


def incidents() -> Iterator[Incident]:
    """Return the packaged incidents in their order."""
    folder = Path(mycroft.__file__).parent / "app" / "demo_data"
    for name, about in INCIDENTS:
        yield Incident(name, about, folder / f"{name}{SUFFIX}")
