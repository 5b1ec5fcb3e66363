"""The verdict: the one object that CLI, page, API, alert and benchmark print.

Types only; nothing here looks at a store. `to_json` gives the contract `mycroft.verdict/1`, whose JSON Schema is
`verdict.schema.json` beside this file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

SCHEMA: Final = "mycroft.verdict/1"
RULES_VERSION: Final = "8"

Status = Literal["hang", "slow", "crash", "healthy", "cannot_tell"]
Confidence = Literal["high", "medium", "low"]
Component = Literal["code", "process", "gpu", "host", "nic", "network", "config", "unknown"]

CATEGORIES: Final = (
    "absent",
    "dataloader",
    "checkpoint",
    "code_divergence",
    "size_mismatch",
    "order_deadlock",
    "exception",
    "out_of_memory",
    "process_died",
    "process_stopped",
    "gpu_fault",
    "slow_gpu",
    "slow_compute",
    "pcie_degraded",
    "proxy_stall",
    "link_fault",
    "slow_nic",
    "network_congestion",
    "init_timeout",
    "misconfigured_interface",
    "slow_group",
    "device_hang",
    "healthy",
    "unknown",
)
EXIT_CODES: Final[dict[Status, int]] = {"healthy": 0, "hang": 1, "slow": 1, "crash": 1, "cannot_tell": 3}


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow to blame: channel, peer (global rank), direction, queue pair where known."""

    channel: int | None = None
    peer: int | None = None
    dir: str | None = None
    qp: int | None = None


@dataclass(frozen=True, slots=True)
class RootCause:
    """Who is to blame. `ranks` are global; `one_of` means one of them, not all."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    flow: Flow | None = None
    one_of: bool = False


@dataclass(frozen=True, slots=True)
class Collective:
    """The operation that is stuck or slow; `comm` is the communicator's key, as in URLs."""

    comm: str | None = None
    group: str | None = None
    seq: int | None = None
    op: str | None = None
    missing_ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the chain from symptom to cause: `waiter` cannot go on before `blocker` does."""

    waiter: int
    blocker: int
    group: str | None = None
    seq: int | None = None
    op: str | None = None
    comm: str | None = None
    why: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """One claim and where it can be opened: a line of a file, or rows of a table."""

    id: str
    claim: str
    file: str | None = None
    line: int | None = None
    table: str | None = None
    key: dict[str, Any] | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another explanation that was considered, and why it was rejected."""

    category: str
    ranks: tuple[int, ...] = ()
    rejected: str = ""


@dataclass(frozen=True, slots=True)
class Vote:
    """What one source says on its own: for whom, of what, how sure."""

    source: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    says: str = ""
    agrees: bool | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a slow job costs. `assumption` says what the numbers suppose."""

    seconds_per_iteration: float
    share: float
    """Of the time of an iteration."""
    gpu_hours_per_day: float
    assumption: str


@dataclass(frozen=True, slots=True)
class Standing:
    """An entity that differs from its peers since the start: told, not alarmed, because nothing healthy is known."""

    what: str
    rank: int
    channel: int | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault. Several ranks with the same fault are one finding; independent faults are several."""

    id: str
    status: Status
    category: str
    component: Component
    confidence: Confidence
    root_cause: RootCause
    summary: str
    why: str = ""
    confidence_why: tuple[str, ...] = ()
    collective: Collective | None = None
    since: str | None = None
    victims: tuple[int, ...] = ()
    chain: tuple[Link, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    next_steps: tuple[str, ...] = ()
    votes: tuple[Vote, ...] = ()
    certainty: float | None = None
    """The number behind `confidence`, 0 to 1, where the rules make one: what calibration compares with the hit rate."""
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something the evidence does not show, and what would decide it."""

    what: str
    would_decide: str


@dataclass(frozen=True, slots=True)
class EvidenceSummary:
    """What was looked at."""

    digest: str = ""
    files: int = 0
    formats: dict[str, int] = field(default_factory=lambda: dict[str, int]())
    ranks_expected: int | None = None
    ranks_seen: int = 0
    unread: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. `findings` are ordered: the first is the answer and gives `status`."""

    engine: str
    evidence: EvidenceSummary
    status: Status
    summary: str
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    standing: tuple[Standing, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit status of `mycroft diagnose`."""
        return EXIT_CODES[self.status]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the contract."""
        body = asdict(self)
        for finding in body["findings"]:
            ranks = finding["victims"]
            finding["victims"] = {"count": len(ranks), "ranks": list(ranks)}
        return {"schema": SCHEMA, **body}

    def to_json(self) -> str:
        """Return the contract as text: sorted keys, so that equal verdicts are equal bytes."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, ensure_ascii=False)
