"""What `mycroft demo` shows: packaged incidents, and a job that is broken while one watches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import mycroft

if TYPE_CHECKING:
    from mycroft.tracer.testbed import Scenario

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

LIVE_FAULTS: Final = ("absent", "exception", "killed", "sigstop", "recv_nopost", "gpu_hang")
"""Faults of the testbed from which the live demo draws: the rank was named in every try. `--fault` takes any."""
SEEDS: Final = 1 << 16


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


def live_job(*, seed: int, fault: str | None = None, rank: int | None = None) -> Scenario:
    """Return the job of the live demo: 8 ranks on two hosts, with a fault and a rank drawn from `seed` unless given.

    Raises:
        TestbedError: if the testbed has no such fault, or the rank is not one of the job's.
    """
    from dataclasses import replace

    from mycroft.tracer.testbed import scenario

    drawn = random.Random(seed).choice(LIVE_FAULTS)  # noqa: S311 - which fault it is must be repeatable, not secret
    job = replace(scenario("demo"), fault=scenario(fault or drawn).fault, seed=seed, rank=rank)
    job.check()
    return job.drawn()
