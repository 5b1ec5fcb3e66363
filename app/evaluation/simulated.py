"""Simulated jobs through loader, store and rules, in memory: simulate, spoil, load, follow, compare.

Seeds 0-99 are for tuning, those from 900 on for evaluation; a change of the rules asks for new evaluation seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_S, FlowLimits
from mycroft.analysis.evaluation import Answer, Run, Truth, answer_of
from mycroft.analysis.facts import Frames
from mycroft.analysis.follow import follow
from mycroft.analysis.paper_rules import PAPER_LIMITS, PaperLimits, paper_reports, sampled_ranks
from mycroft.analysis.verdict import RULES_VERSION
from mycroft.app.evaluation.whole_job import store_of
from mycroft.errors import MycroftError
from mycroft.tracer.simulator import FAULTS, Simulated, Simulation, simulate
from mycroft.tracer.simulator.simulate import healthy_prefix

TUNING_SEEDS: Final = range(100)
# 900-919 evaluated the rules up to version 4, 920-924 version 5, and were looked at.
EVALUATION_SEEDS: Final = range(925, 935)
# The seven of the paper first.
DEFAULT_FAULTS: Final = (
    "nic_down", "nic_bw", "pcie", "gpu_power", "bg_compute", "bg_traffic", "proxy_delay", "crash", "absent",
    "qp_slow30", "slow_gpu20", "link_flap", "recv_nopost", "ckpt_stall", "gpu_hang",
)  # fmt: skip
STALL_FAULTS: Final = ("nic_down", "crash", "absent", "recv_nopost", "ckpt_stall", "gpu_hang")
# What may be said of a fault, the plain word first. A simulated job leaves nothing that tells a stopped process from a
# dead one.
COMPONENTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "nic_down": ("nic",),
    "nic_bw": ("nic",),
    "pcie": ("pcie",),
    "gpu_power": ("gpu",),
    "slow_gpu20": ("gpu",),
    "bg_compute": ("host_gpu",),
    "bg_traffic": ("host_nic",),
    "proxy_delay": ("proxy",),
    "crash": ("crash", "stopped"),
    "sigstop": ("stopped", "crash"),
    "absent": ("app",),
    "ckpt_stall": ("app",),
    "qp_slow30": ("qp",),
    "link_flap": ("nic",),
    "recv_nopost": ("recv_proxy",),
    "gpu_hang": ("gpu",),
}
RULES: Final = ("ours", "paper", "paper-0.1s", "paper-all")
PAPER_RULES: Final[Mapping[str, PaperLimits]] = {
    "paper": PAPER_LIMITS,
    "paper-0.1s": replace(PAPER_LIMITS, late_ns=NS_PER_S // 10),
    "paper-all": replace(PAPER_LIMITS, late_ns=NS_PER_S // 10, most_ranks=0),
}


class EvaluationError(MycroftError):
    """An evaluation that cannot be run as asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way in which a job, its rows or the limits differ. `spoil` changes the rows after the simulation."""

    name: str
    title: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    spoil: Callable[[Simulated], None] | None = None
    severity: float = 1.0
    at_s: float | None = None
    limits: FlowLimits | None = None
    also: str | None = None
    """A second fault at the same time, on the rank that `_other` says."""


# ---- rows made worse -------------------------------------------------------------------------


def _kept(simulated: Simulated, mask_of: Callable[[str, dict[str, Any]], Any]) -> None:
    for kind, columns in simulated.rows.items():
        mask = mask_of(kind, columns)
        if mask is not None:
            simulated.rows[kind] = {name: values[mask] for name, values in columns.items()}


def lose_rows(simulated: Simulated, *, share: float = 0.1) -> None:
    """Lose this share of all rows, drawn from the seed."""
    draw = np.random.default_rng(simulated.simulation.seed)
    _kept(simulated, lambda _, columns: draw.random(len(columns["trace"])) >= share)


def shuffle_rows(simulated: Simulated) -> None:
    """Put the rows of each kind in another order, but for operations, whose order is how a rank issued them."""
    draw = np.random.default_rng(simulated.simulation.seed)
    _kept(simulated, lambda kind, columns: draw.permutation(len(columns["trace"])) if kind != "op" else None)


def shift_clocks(simulated: Simulated, *, seconds: float = 2.0) -> None:
    """Set the clock of every second host ahead or back by `seconds`, in turn."""
    per_host = simulated.config.ranks_per_host
    for columns in simulated.rows.values():
        host = np.asarray(columns["trace"]) // per_host
        shift = np.where(host % 2 == 1, np.where(host % 4 == 1, seconds, -seconds), 0.0) * NS_PER_S
        for name in list(columns):
            if name.endswith("_ts") or name == "ts":
                values = np.asarray(columns[name])
                columns[name] = np.where(values < 0, values, values + shift.astype(np.int64))


def send_side_only(simulated: Simulated) -> None:
    """Leave out every receiving half."""
    _kept(simulated, lambda kind, columns: columns["send"] == 1 if kind in ("state", "flow") else None)


def keep_ten_ranks(simulated: Simulated) -> None:
    """Keep the traces of ten ranks only: those that the paper's rules would sample."""
    world = simulated.config.tp * simulated.config.pp * simulated.config.dp
    whole = {kind: dict(columns) for kind, columns in simulated.rows.items()}
    _kept(simulated, lambda _, columns: np.asarray(columns["trace"]) < 0)
    with store_of(simulated) as store:
        chosen = sampled_ranks(store, most=10)
    assert len(chosen) <= world
    simulated.rows.update(whole)
    _kept(simulated, lambda _, columns: np.isin(columns["trace"], chosen))


def _effects(scale: float) -> FlowLimits:
    """Return the limits with every least effect scaled: 1.10 at x2 is 1.20."""
    names = ("eff_gpu", "eff_host", "eff_flow", "eff_nic")
    return replace(FLOW_DEFAULTS, **{name: 1 + (getattr(FLOW_DEFAULTS, name) - 1) * scale for name in names})


def _cusum(h: float) -> FlowLimits:
    """Return the limits with another limit of the CUSUM; that of hosts keeps its ratio."""
    ratio = FLOW_DEFAULTS.cusum_h_host / FLOW_DEFAULTS.cusum_h
    return replace(FLOW_DEFAULTS, cusum_h=h, cusum_h_host=h * ratio)


VARIANTS: Final = {
    v.name: v
    for v in (
        Variant(name="plain", title="as simulated"),
        Variant(name="loss10", title="10 % of all rows lost", spoil=lose_rows),
        Variant(name="shuffled", title="rows in another order", spoil=shuffle_rows),
        Variant(name="offset2", title="every second host's clock 2 s ahead or behind", spoil=shift_clocks),
        Variant(name="send-only", title="no receiving halves", spoil=send_side_only),
        Variant(name="ten-ranks", title="traces of ten ranks only", spoil=keep_ten_ranks),
        Variant(name="noise2", title="noise x2", settings={"noise": 2.0}),
        Variant(name="noise3", title="noise x3", settings={"noise": 3.0}),
        Variant(name="start0", title="broken from the first step", at_s=0.0),
        Variant(name="two", title="and a GPU 20 % slower elsewhere", also="slow_gpu20"),
        Variant(name="severity0.25", title="a quarter of the severity", severity=0.25),
        Variant(name="severity0.5", title="half the severity", severity=0.5),
        Variant(name="severity2", title="twice the severity", severity=2.0),
        Variant(name="h3", title="CUSUM limit 3", limits=_cusum(3)),
        Variant(name="h5", title="CUSUM limit 5", limits=_cusum(5)),
        Variant(name="h20", title="CUSUM limit 20", limits=_cusum(20)),
        Variant(name="h40", title="CUSUM limit 40", limits=_cusum(40)),
        Variant(name="eff0.25", title="least effect x0.25", limits=_effects(0.25)),
        Variant(name="eff0.5", title="least effect x0.5", limits=_effects(0.5)),
        Variant(name="eff2", title="least effect x2", limits=_effects(2)),
    )
}


# ---- rules -----------------------------------------------------------------------------------


def answers_by(rules: str, store: Frames, *, limits: FlowLimits = FLOW_DEFAULTS, per_host: int = 8) -> list[Answer]:
    """Return what some rules report over a whole trace, in order of time, each looking at the past alone.

    Raises:
        EvaluationError: if there are no such rules.
    """
    if rules == "ours":
        return [answer_of(report.at_ns, report.findings) for report in follow(store, limits=limits)]
    if rules not in PAPER_RULES:
        raise EvaluationError(f"rules {rules!r}: expected one of {', '.join(RULES)}")
    found: list[Answer] = []
    for report in paper_reports(store, limits=PAPER_RULES[rules]):
        ranks = () if report.rank is None else (report.rank,)
        found.append(
            Answer(
                at_ns=report.trigger.at_ns,
                component=report.component or "other",
                ranks=ranks,
                hosts=tuple(f"sim{r // per_host}" for r in ranks),
                words=f"{report.trigger.kind} seen by rank {report.trigger.rank}: {report.why}",
            )
        )
    return found


# ---- runs ------------------------------------------------------------------------------------


def truth_of(simulated: Simulated) -> Truth:
    """Return what was broken in a simulated job."""
    simulation, per_host = simulated.simulation, simulated.config.ranks_per_host
    if simulation.fault == "none":
        return Truth(fault="none", components=())
    assert simulation.rank is not None
    host = simulation.rank // per_host
    on_host = FAULTS[simulation.fault].on_host
    return Truth(
        fault=simulation.fault,
        components=COMPONENTS_OF[simulation.fault],
        ranks=tuple(range(host * per_host, (host + 1) * per_host)) if on_host else (simulation.rank,),
        hosts=(f"sim{host}",),
        on_host=on_host,
        injected_ns=simulated.injected_ns,
        also=tuple(rank for _, rank in simulation.also),
    )


def _other(simulation: Simulation, rank: int) -> int:
    """Return a rank for a second fault: another host, another place in its groups."""
    config = simulation.config()
    return (rank + config.ranks_per_host + 3) % (config.tp * config.pp * config.dp)


def evaluate(
    simulated: Simulated,
    *,
    rules: Sequence[str] = ("ours",),
    variant: Variant = VARIANTS["plain"],
) -> list[Run]:
    """Spoil and load one simulated job, and return what each set of rules makes of it."""
    if variant.spoil is not None:
        variant.spoil(simulated)
    runs: list[Run] = []
    with store_of(simulated) as store:
        for name in rules:
            started = time.process_time()
            answers = answers_by(
                name, store, limits=variant.limits or FLOW_DEFAULTS, per_host=simulated.config.ranks_per_host
            )
            runs.append(
                Run(
                    topology=simulated.simulation.topology,
                    seed=simulated.simulation.seed,
                    rules=name,
                    variant=variant.name,
                    truth=truth_of(simulated),
                    answers=tuple(answers),
                    watched_s=simulated.horizon_ns / NS_PER_S,
                    cpu_s=time.process_time() - started,
                    version=RULES_VERSION if name == "ours" else "",
                )
            )
    return runs


def fault_runs(
    topology: str,
    faults: Sequence[str],
    seeds: Sequence[int],
    *,
    rules: Sequence[str] = ("ours",),
    variant: Variant = VARIANTS["plain"],
    done: Callable[[str, int], bool] = lambda *_: False,
) -> Iterator[list[Run]]:
    """Yield the runs of every fault and seed; the healthy part of a seed is simulated once for all its faults.

    Args:
        topology: one of the simulator's.
        faults: names of the simulator's faults.
        seeds: each draws rank, time and everything that varies; all faults of a seed hit the same rank.
        rules: see `RULES`.
        variant: how job, rows or limits differ.
        done: says which (fault, seed) need not be run.

    Raises:
        EvaluationError: if a fault does not exist.
    """
    unknown = [fault for fault in faults if fault not in COMPONENTS_OF]
    if unknown:
        raise EvaluationError(f"fault {unknown[0]!r}: expected one of {', '.join(COMPONENTS_OF)}")
    for seed in seeds:
        left = [fault for fault in faults if not done(fault, seed)]
        if not left:
            continue
        base = Simulation(topology=topology, seed=seed, settings=variant.settings, at_s=variant.at_s)
        prefix = healthy_prefix(base)
        for fault in left:
            chosen = replace(base, fault=fault, severity=variant.severity)
            if variant.also is not None:
                rank = chosen.drawn().rank
                assert rank is not None
                chosen = replace(chosen, also=((variant.also, _other(chosen, rank)),))
            simulated = simulate(chosen, prefix=prefix)
            yield evaluate(simulated, rules=rules, variant=variant)


def healthy_runs(
    topology: str,
    hours: float,
    *,
    first_seed: int,
    piece_s: float = 600.0,
    rules: Sequence[str] = ("ours",),
    variant: Variant = VARIANTS["plain"],
    done: Callable[[int], bool] = lambda _: False,
) -> Iterator[list[Run]]:
    """Yield runs of healthy jobs with all benign events until so many simulated hours are full.

    Args:
        topology: one of the simulator's.
        hours: simulated hours in all.
        first_seed: seed of the first job; the others follow.
        piece_s: length of one job, simulated s.
        rules: see `RULES`.
        variant: how job, rows or limits differ.
        done: says which seeds need not be run.
    """
    for number in range(max(1, round(hours * 3600 / piece_s))):
        if done(first_seed + number):
            continue
        simulation = Simulation(
            topology=topology, seed=first_seed + number, at_s=0.0, after_s=piece_s, settings=variant.settings
        )
        yield evaluate(simulate(simulation), rules=rules, variant=variant)
