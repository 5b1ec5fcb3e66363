"""Scenarios: a job, a fault, when and where; everything a run depends on."""

from __future__ import annotations

import importlib.util
import random
from dataclasses import dataclass, field, replace
from typing import Final

from mycroft.errors import MycroftError
from mycroft.tracer.testbed.faults import FAULT_BY_NAME, FAULTS, Fault
from mycroft.tracer.testbed.layout import Layout


class TestbedError(MycroftError):
    """A scenario that cannot be run, or a run that went wrong in a way that is no fault of the scenario."""

    __test__ = False  # the name begins like a test's


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one training step does. Kernels do `kernel_units` of arithmetic and take at least `kernel_ms`."""

    microbatches: int = 4
    kernel_units: int = 300
    kernel_ms: float = 8.0
    activation_elements: int = 8192
    gradient_elements: int = 1 << 18
    checkpoint_every: int = 8
    evaluate_every: int = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run. `rank` and `at_iteration` None: drawn from `seed`.

    `iterations`: of a job that is not stopped by its fault. `patience_s`: how long a job may stand before the run is
    ended and its evidence taken. `nic_bytes_per_s`: what each rank's network interface carries.
    """

    fault: Fault
    layout: Layout = field(default_factory=lambda: Layout(tp=2, pp=2, dp=2, hosts=4))
    work: Work = field(default_factory=Work)
    rank: int | None = None
    at_iteration: int | None = None
    seed: int = 1
    iterations: int = 24
    patience_s: float = 18.0
    timeout_s: float = 12.0
    channels: int = 2
    connections: int = 1
    slot_bytes: int = 16384
    abi: int = 7
    nic_bytes_per_s: float = 50e6
    algo: str = "RING"
    trace: bool = True
    pin: bool = False
    namespaces: bool = True
    stacks: bool = True
    torch: bool = False  # operations go through torch.distributed

    def drawn(self) -> Scenario:
        """Return the scenario with rank and time drawn from its seed where they were left open."""
        draw = random.Random(self.seed)  # noqa: S311 - which rank breaks must be repeatable, not secret
        rank = draw.randrange(self.layout.world)
        at = draw.randrange(4, 9)
        return replace(
            self,
            rank=self.fault.rank if self.fault.rank is not None else rank if self.rank is None else self.rank,
            at_iteration=at if self.at_iteration is None else self.at_iteration,
        )

    def check(self) -> None:
        """Say what cannot be run.

        Raises:
            TestbedError: if the fault needs what the layout lacks, or sizes are out of range.
        """
        layout = self.layout
        if not 2 <= layout.world <= 64:
            raise TestbedError(f"{layout.world} ranks: the testbed runs 2 to 64 processes; use simulate for more")
        if not 1 <= layout.hosts <= layout.world or layout.hosts > 32:
            raise TestbedError(f"{layout.hosts} hosts: expected 1 to 32, and no more than ranks")
        if self.rank is not None and not 0 <= self.rank < layout.world:
            raise TestbedError(f"rank {self.rank}: the job has ranks 0 to {layout.world - 1}")
        if layout.ep > 1 and layout.dp % layout.ep:
            raise TestbedError(f"ep {layout.ep}: expected a divisor of dp {layout.dp}")
        if self.torch and not _has_torch():
            raise TestbedError("torch is not installed here; install it, or run without --torch")
        lacking = {
            "crossing": layout.hosts < 2,
            "tp": layout.tp < 2,
            "dp": layout.dp < 2,
        }
        for need in self.fault.needs:
            if lacking[need]:
                what = "groups that cross hosts" if need == "crossing" else f"{need} of at least 2"
                raise TestbedError(f"fault {self.fault.name} needs {what}; choose another layout")


def _has_torch() -> bool:
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def _named() -> dict[str, Scenario]:
    found: dict[str, Scenario] = {}
    for fault in FAULTS:
        base = Scenario(fault=fault)
        if fault.name == "bg_compute":
            # A host's ranks share one processor, and kernels are arithmetic alone, so that other load is felt.
            base = replace(
                base,
                layout=Layout(tp=2, dp=4, hosts=2),
                work=Work(kernel_units=2500, kernel_ms=0.0, microbatches=2),
                pin=True,
            )
        elif fault.name == "bg_traffic":
            base = replace(base, layout=Layout(tp=2, dp=4, hosts=4))
        elif fault.name == "qp_slow30":
            # A network slow enough to matter: a third less of one connection must cost the job something.
            base = replace(base, nic_bytes_per_s=8e6, work=Work(kernel_ms=4.0))
        elif fault.name == "link_flap":
            base = replace(base, iterations=40)
        found[fault.name] = base
    found["demo"] = replace(found["absent"], layout=Layout(tp=2, pp=2, dp=2, hosts=2), patience_s=17.0)
    # A mixture of experts: expert groups cross hosts and exchange by all_to_all in every pass.
    experts = Layout(tp=2, dp=4, ep=4, hosts=4)
    for name in ("none", "nic_down", "nic_bw", "absent", "recv_nopost"):
        found["moe" if name == "none" else f"moe_{name}"] = replace(found[name], layout=experts)
    found["healthy16"] = replace(found["none"], layout=Layout(tp=4, pp=2, dp=2, hosts=4), iterations=12)
    return found


SCENARIOS: Final[dict[str, Scenario]] = _named()


def scenario(name: str) -> Scenario:
    """Return a scenario by name.

    Raises:
        TestbedError: if there is none of that name.
    """
    if name not in SCENARIOS:
        raise TestbedError(f"scenario {name!r}: expected one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


__all__ = ["FAULT_BY_NAME", "SCENARIOS", "Scenario", "TestbedError", "Work", "scenario"]
