"""What the launcher tells its agents: the scenario, where things are, and the variables of each rank."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mycroft.tracer.testbed.faults import FAULT_BY_NAME
from mycroft.tracer.testbed.layout import Layout
from mycroft.tracer.testbed.namespaces import Network
from mycroft.tracer.testbed.scenarios import Scenario, Work

RING_MB = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`folder` is the run's output, `scratch` holds socket and rings and is removed at the end."""

    scenario: Scenario
    folder: Path
    scratch: Path
    plugin: str
    namespaces: bool

    @property
    def socket(self) -> Path:
        """Where the launcher listens."""
        return self.scratch / "control"

    @property
    def rings(self) -> Path:
        """Where the trace files are."""
        return self.scratch / "rings"

    def host_name(self, host: int) -> str:
        """Return the name of a host."""
        return f"node{host}"

    def address(self, rank: int) -> str:
        """Return the address of a rank."""
        return Network.address(rank) if self.namespaces else "127.0.0.1"

    def environment(self, rank: int, local: int) -> dict[str, str]:
        """Return the variables that a launcher sets for a rank, and the tracer's."""
        layout = self.scenario.layout
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(layout.world),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(len(layout.ranks_of_host(layout.host(rank)))),
            "GROUP_RANK": str(layout.host(rank)),
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": "29500",
            "NCCL_PROFILER_PLUGIN": self.plugin,
            "MYCROFT_DIR": str(self.rings),
            "MYCROFT_RING_MB": str(RING_MB),
            "MYCROFT_BUDGET_MB": str(RING_MB * (layout.world + 1)),
            "MYCROFT_EVENTS": "coll,p2p,proxy,kernel",
        }

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        scenario = asdict(self.scenario) | {"fault": self.scenario.fault.name}
        return {
            "scenario": scenario,
            "folder": str(self.folder),
            "scratch": str(self.scratch),
            "plugin": self.plugin,
            "namespaces": self.namespaces,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """Read what `to_json` wrote."""
        values = dict(data["scenario"])
        values["fault"] = FAULT_BY_NAME[values["fault"]]
        values["layout"] = Layout(**values["layout"])
        values["work"] = Work(**values["work"])
        return cls(
            scenario=Scenario(**values),
            folder=Path(data["folder"]),
            scratch=Path(data["scratch"]),
            plugin=data["plugin"],
            namespaces=data["namespaces"],
        )
