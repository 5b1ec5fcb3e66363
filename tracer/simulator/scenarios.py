"""What is simulated: topology, fault, when and where."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mycroft.errors import MycroftError
from mycroft.tracer import _simulator

# Topologies of the evaluation, as fields of the compiled configuration.
TOPOLOGIES: Final[dict[str, dict[str, Any]]] = {
    "T16": {"tp": 4, "pp": 2, "dp": 2, "ranks_per_host": 4, "microbatches": 4},
    "T32": {"tp": 8, "pp": 2, "dp": 2},
    "T512": {"tp": 8, "pp": 4, "dp": 16},
    "M128": {"tp": 8, "pp": 2, "dp": 8, "ep": 8, "microbatches": 4},
    "T2048": {"tp": 8, "pp": 8, "dp": 32, "microbatches": 16},
    "T10240": {"tp": 8, "pp": 16, "dp": 80, "microbatches": 32},
    "T102400": {"tp": 8, "pp": 16, "dp": 800, "microbatches": 32},
}


EXPERTS: Final = "moe"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFault:
    """`category` is a word of the verdict's list; `status` what a perfect analyst would say."""

    category: str
    status: str
    on_host: bool = False
    rank: int | None = None


FAULTS: Final[dict[str, SimulatedFault]] = {
    "none": SimulatedFault(category="healthy", status="healthy"),
    "nic_down": SimulatedFault(category="link_fault", status="hang"),
    "nic_bw": SimulatedFault(category="slow_nic", status="slow"),
    "pcie": SimulatedFault(category="pcie_degraded", status="slow"),
    "gpu_power": SimulatedFault(category="slow_gpu", status="slow"),
    "slow_gpu20": SimulatedFault(category="slow_compute", status="slow"),
    "bg_compute": SimulatedFault(category="slow_compute", status="slow", on_host=True),
    "bg_traffic": SimulatedFault(category="network_congestion", status="slow", on_host=True),
    "proxy_delay": SimulatedFault(category="proxy_stall", status="slow"),
    "crash": SimulatedFault(category="process_died", status="crash"),
    "sigstop": SimulatedFault(category="process_stopped", status="hang"),
    "absent": SimulatedFault(category="absent", status="hang"),
    "ckpt_stall": SimulatedFault(category="checkpoint", status="hang", rank=0),
    "qp_slow30": SimulatedFault(category="slow_nic", status="slow"),
    "link_flap": SimulatedFault(category="link_fault", status="slow"),
    "recv_nopost": SimulatedFault(category="proxy_stall", status="hang"),
    "gpu_hang": SimulatedFault(category="device_hang", status="hang"),
}


class SimulatorError(MycroftError):
    """A simulation that cannot be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """One simulated job. `rank` and `at_s` None: drawn from `seed`. `settings` override the topology's."""

    fault: str = "none"
    topology: str = "T32"
    rank: int | None = None
    at_s: float | None = None
    after_s: float = 36.0
    seed: int = 1
    severity: float = 1.0
    settings: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    also: tuple[tuple[str, int], ...] = ()
    """Further faults and their ranks, at the same time as the first."""

    def config(self) -> _simulator.Config:
        """Return the compiled configuration.

        Raises:
            SimulatorError: if a topology or a setting does not exist.
        """
        if self.topology not in TOPOLOGIES:
            raise SimulatorError(f"topology {self.topology!r}: expected one of {', '.join(TOPOLOGIES)}")
        config = _simulator.Config()
        for name, value in {**TOPOLOGIES[self.topology], **self.settings, "seed": self.seed}.items():
            if not hasattr(config, name):
                raise SimulatorError(f"setting {name!r}: the simulator has none of that name")
            setattr(config, name, value)
        return config

    def drawn(self) -> Simulation:
        """Return it with rank and time drawn from the seed where they were left open."""
        if self.fault not in FAULTS:
            raise SimulatorError(f"fault {self.fault!r}: expected one of {', '.join(FAULTS)}")
        config = self.config()
        ranks = config.tp * config.pp * config.dp
        for fault, other in self.also:
            if fault not in FAULTS or not 0 <= other < ranks:
                raise SimulatorError(f"further fault {fault!r} at rank {other}: no such fault, or no such rank")
        draw = random.Random(self.seed)  # noqa: S311 - must be repeatable, not secret
        rank, at_s = draw.randrange(ranks), draw.uniform(34, 46)
        fixed = FAULTS[self.fault].rank
        if self.rank is not None and not 0 <= self.rank < ranks:
            raise SimulatorError(f"rank {self.rank}: {self.topology} has ranks 0 to {ranks - 1}")
        return replace(
            self,
            rank=fixed if fixed is not None else rank if self.rank is None else self.rank,
            at_s=at_s if self.at_s is None else self.at_s,
        )


def simulation(name: str, *, topology: str | None = None, **options: Any) -> Simulation:
    """Return a simulation by the name of its fault; `moe` and `moe_FAULT` are a mixture of experts (M128).

    Raises:
        SimulatorError: if there is no such scenario.
    """
    experts = name == EXPERTS or name.startswith(f"{EXPERTS}_")
    fault = (name.removeprefix(EXPERTS).removeprefix("_") or "none") if experts else name
    if fault not in FAULTS:
        raise SimulatorError(
            f"scenario {name!r}: expected {EXPERTS}, or {EXPERTS}_ and, or only, one of {', '.join(FAULTS)}"
        )
    return Simulation(fault=fault, topology=topology or ("M128" if experts else "T32"), **options)
