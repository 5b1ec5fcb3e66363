"""Runs a simulation: healthy up to the fault, then broken; the healthy part can be shared by many faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mycroft.tracer import _simulator
from mycroft.tracer.simulator.scenarios import FAULTS, Simulation, SimulatorError


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What a simulation came to. `rows`: NumPy columns by kind of record, `trace` being the global rank."""

    simulation: Simulation
    config: _simulator.Config
    rows: dict[str, dict[str, Any]]
    horizon_ns: float
    injected_ns: int | None
    iteration_ns: tuple[float, ...]
    counts: dict[str, int]


def healthy_prefix(simulation: Simulation) -> _simulator.Job:
    """Simulate what comes before the fault: whole iterations, the last of which ends before it."""
    drawn = simulation.drawn()
    assert drawn.at_s is not None
    try:
        job = _simulator.Job(drawn.config())
    except ValueError as error:
        raise SimulatorError(str(error)) from error
    while True:
        ahead = job.fork_state()
        ahead.run(1)
        if ahead.now_ns >= drawn.at_s * 1e9:
            return job
        job.run(1)


def simulate(simulation: Simulation, *, prefix: _simulator.Job | None = None) -> Simulated:
    """Simulate. `prefix`: what `healthy_prefix` returned for the same seed, topology and time; it is not changed."""
    drawn = simulation.drawn()
    assert drawn.at_s is not None and drawn.rank is not None
    job = healthy_prefix(drawn) if prefix is None else prefix.fork()
    if drawn.fault != "none":
        job.inject(drawn.fault, rank=drawn.rank, at_ns=drawn.at_s * 1e9, severity=drawn.severity)
    for other, rank in drawn.also:
        job.inject(other, rank=rank, at_ns=drawn.at_s * 1e9, severity=drawn.severity)
    horizon = (drawn.at_s + drawn.after_s) * 1e9
    job.run_until(horizon)
    return Simulated(
        simulation=drawn,
        config=drawn.config(),
        rows=job.take_rows(),
        horizon_ns=horizon,
        injected_ns=None if drawn.fault == "none" else _simulator.START_UTC_NS + int(drawn.at_s * 1e9),
        iteration_ns=tuple(job.iteration_ns),
        counts=job.counts,
    )


def truth(simulated: Simulated) -> dict[str, Any]:
    """Return what was really wrong, in the words of the verdict."""
    simulation, config = simulated.simulation, simulated.config
    fault = FAULTS[simulation.fault]
    assert simulation.rank is not None
    hit = simulation.fault != "none"
    host = f"sim{simulation.rank // config.ranks_per_host}"
    causes = [_cause(simulation.fault, simulation.rank, config.ranks_per_host)]
    causes += [_cause(name, rank, config.ranks_per_host) for name, rank in simulation.also]
    return {
        "title": f"simulated {simulation.topology}: {simulation.fault}"
        + (f" at rank {simulation.rank}" if hit and not fault.on_host else f" on {host}" if hit else ""),
        "root_cause": causes[0],
        **({"root_causes": causes} if len(causes) > 1 else {}),
        "category": fault.category,
        "hang": fault.status in ("hang", "crash"),
        "status": fault.status,
        "explanation": "simulated on virtual time",
        "fault": simulation.fault,
        "severity": simulation.severity,
        "injected_ns": simulated.injected_ns,
        "seed": simulation.seed,
    }


def _cause(name: str, rank: int, per_host: int) -> dict[str, Any]:
    hit = name != "none"
    return {
        "ranks": [rank] if hit and not FAULTS[name].on_host else [],
        "hosts": [f"sim{rank // per_host}"] if hit else [],
    }
