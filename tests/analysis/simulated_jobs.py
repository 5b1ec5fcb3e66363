"""Small simulated jobs in memory, whole or damaged: what the tests of the rules over flows look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from mycroft.loaders.memory import load_traces
from mycroft.loaders.store import MemoryStore
from mycroft.tracer.simulator import Simulated, simulate, simulated_traces, simulation

# Sixteen ranks on four hosts: TP 4, PP 2, DP 2. An iteration takes about 0.8 s; the learning part is over at 20 s.
AT_S, AFTER_S = 24.0, 22.0
TIMES = ("ts", "end_ts", "enq_ts", "kstart_ts", "oldest_open_ts", "progress_ts")
Rows = dict[str, dict[str, np.ndarray[Any, Any]]]
Damage = Callable[[Rows], Rows]


class Job:
    """One simulated job with its truth."""

    def __init__(self, simulated: Simulated) -> None:
        self.simulated = simulated
        self.store: MemoryStore = load_traces(simulated_traces(simulated), name="simulated")
        self.rank = simulated.simulation.rank
        assert self.rank is not None
        self.host = f"sim{self.rank // simulated.config.ranks_per_host}"
        self.start_ns = simulated.injected_ns or 0

    def after(self, seconds: float) -> int:
        """A moment after the fault, ns UTC."""
        return self.start_ns + round(seconds * 1e9)


@cache
def job(
    fault: str, *, rank: int = 9, seed: int = 5, topology: str = "T16", after_s: float = AFTER_S, **settings: Any
) -> Job:
    """A job with a fault; every caller sees the same one."""
    return Job(_simulated(fault, rank, seed, topology, after_s, tuple(sorted(settings.items()))))


def damaged(fault: str, damage: Damage, *, rank: int = 9, seed: int = 5, topology: str = "T16") -> Job:
    """The same job, with its rows damaged on the way to the loader."""
    whole = _simulated(fault, rank, seed, topology, AFTER_S, ())
    copied = {kind: {name: np.array(v) for name, v in columns.items()} for kind, columns in whole.rows.items()}
    return Job(replace(whole, rows=damage(copied)))


@cache
def _simulated(
    fault: str, rank: int, seed: int, topology: str, after_s: float, settings: tuple[tuple[str, Any], ...]
) -> Simulated:
    return simulate(
        simulation(fault, topology=topology, rank=rank, seed=seed, at_s=AT_S, after_s=after_s, settings=dict(settings))
    )


def shuffled(rows: Rows) -> Rows:
    """Rows in another order."""
    draw = np.random.default_rng(1)
    for columns in rows.values():
        order = draw.permutation(len(columns["trace"]))
        for name in columns:
            columns[name] = columns[name][order]
    return rows


def with_clock_off(rows: Rows, *, ranks: range = range(4, 8), seconds: float = 2.0) -> Rows:
    """The clock of one host ahead."""
    for columns in rows.values():
        there = np.isin(columns["trace"], list(ranks))
        for name in TIMES:
            if name in columns:
                moved = there & (columns[name] >= 0)
                columns[name] = np.where(moved, columns[name] + round(seconds * 1e9), columns[name])
    return rows


def thinned(rows: Rows, *, share: float = 0.1) -> Rows:
    """A tenth of the rows of every kind lost."""
    draw = np.random.default_rng(2)
    for columns in rows.values():
        kept = draw.random(len(columns["trace"])) >= share
        for name in columns:
            columns[name] = columns[name][kept]
    return rows


def without(rows: Rows, *, kinds: tuple[str, ...] = (), receives: bool = False, kernels: bool = False) -> Rows:
    """Rows of a tracer that sees less: kinds of records, receiving halves, or starts of kernels missing."""
    for kind, columns in rows.items():
        kept = np.full(len(columns["trace"]), kind not in kinds)
        if receives and "send" in columns:
            kept &= columns["send"] == 1
        if kernels and "kstart_ts" in columns:
            columns["kstart_ts"] = np.full_like(columns["kstart_ts"], -1)
        for name in columns:
            columns[name] = columns[name][kept]
    return rows
