"""What a source says about somebody: the currency in which sources vote.

A claim never names a class of fault by itself; `classes.py` turns the claims about one suspect into a category. Later
sources (NCCL logs, RAS, Xid, counters) add kinds here and rules there; nothing else has to know them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Strength = Literal["proof", "strong", "weak"]
"""`proof`: cannot be otherwise if the source is right. `strong`: a person would act on it. `weak`: a hint."""

# Every kind of claim, with what it says. The keys are the vocabulary of the rules in `classes.py`.
KINDS: Final[dict[str, str]] = {
    "absent": "did not enter an operation that others wait in",
    "no_dump": "left no dump although others did",
    "dumps_of_all_others": "is the only one without a dump, although a stuck process still writes one",
    "crossed_groups": "waits in one of two groups with equal members, the others in the other",
    "device_behind": "did not finish an operation that all others finished",
    "device_not_started": "issued an operation that its device has not started, while others' devices have",
    "stuck_in": "is in an operation that everybody entered and nobody finishes",
    "odd_type": "issued another operation than the others at the same sequence number",
    "odd_size": "passed another size than the others",
    "odd_dtype": "passed another dtype than the others",
    "alone": "waits alone in an operation that nobody else entered, while they wait for it elsewhere",
    "left_path": "left the sequence of operations of its twins",
    "swapped": "issued the operations of two groups in the opposite order",
    "killed": "was ended by a signal",
    "out_of_memory": "ran out of memory",
    "exception": "ended by an exception of its own",
    "exited": "was lost by its launcher without a word of its own",
    "finished": "finished normally while others wait",
    "silent": "stopped writing without a last word",
    "node_failed": "its node is gone, says the launcher",
    "closed_by": "its peers saw its connection close",
    "stopped": "is alive and does not run",
    "in_dataloader": "is in its data loader",
    "in_checkpoint": "is in its checkpoint code",
    "in_evaluation": "is in evaluation code",
    "in_exception": "is on its way out after an exception",
    "in_code": "is in its own code",
    "waits_elsewhere": "is itself in an operation",
    "odd_place": "is not where the ranks of the same role are",
    "late": "arrives last, again and again",
    "late_input": "is late by a constant extra period that does not depend on the work",
    "slow_operations": "every operation of the group is slow although all arrive on time",
    # links, devices and machines
    "gpu_fault": "its GPU reported a fatal error in time",
    "gpu_remedy": "the driver asks for a reset, a reboot or a drain",
    "gpu_unwell": "its GPU counts errors that it could not correct",
    "throttled": "its GPU runs slower than asked, and says why",
    "slow_clock": "its GPU runs slower than its sisters",
    "link_down": "its own port lost the link",
    "link_errors": "the error counters of its port grow, those of others do not",
    "at_all_ends": "it is one end of the failed connections",
    "uses_device": "whose traffic goes over the device",
    "narrow_link": "a PCIe link trained to fewer lanes than both ends can",
    "storage_stalls": "its storage answers late or not at all",
    # start-up
    "wrong_interface": "offers an address that the others cannot reach",
    "unreachable": "cannot be reached by the others",
    "never_joined": "is not among those that joined at start-up",
    "address_in_use": "could not listen on its own address",
    "other_version": "runs another version of the library than the other hosts",
    "other_environment": "has other settings than the other hosts",
    "same_gpu": "uses the GPU of another rank",
    "right_interface": "has an interface in the subnet of the others",
    # NCCL RAS
    "behind": "has launched fewer operations than the others",
    "unchanged": "and did not move between two queries",
    "killed_by_ras": "is considered dead by NCCL RAS",
    "unresponsive": "does not answer NCCL RAS",
    # slowness, measured
    "slow_transfer": "an operation became slow on all members alike: nobody is late",
    "congested": "told others to stop sending, and dropped packets",
    "paused": "was told to stop sending",
    "slow_host": "is slow with every partner, which are fast with each other",
    "slow_path": "is slow with one partner alone",
    "wrong_results": "computed wrong results",
}


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a claim can be opened: a line of a file, or rows of a table."""

    claim: str
    file: int | None = None
    line: int | None = None
    table: str | None = None
    key: tuple[tuple[str, Any], ...] = ()
    source: str = "dumps"


@dataclass(frozen=True, slots=True)
class Claim:
    """One source's word on some ranks, hosts or devices. `since` is ns UTC where the source has a time."""

    source: str
    kind: str
    ranks: tuple[int, ...]
    strength: Strength
    text: str
    refs: tuple[Ref, ...] = ()
    since: int | None = None
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One fault as the rules see it: who, in what operation, on which grounds; not yet a finding.

    `doubts` are reasons against full confidence, each with the level it allows at most. `one_of`: the evidence fits
    each of `ranks` alone.
    """

    rule: str
    ranks: tuple[int, ...]
    claims: tuple[Claim, ...]
    one_of: bool = False
    comm: int | None = None
    seq: int | None = None
    op: str = ""
    missing: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    sinks: tuple[int, ...] = ()
    """Indices of the sinks of the graph that it explains: they give chain and victims."""
    since: int | None = None
    doubts: tuple[tuple[str, str], ...] = ()
    passed_over: tuple[tuple[str, tuple[int, ...], str], ...] = field(default=())
    """Other explanations: (category, ranks, why it was rejected)."""
    hosts: tuple[str, ...] = ()
    """Hosts to blame where the ranks do not say so, or no rank is known."""
    devices: tuple[str, ...] = ()

    def has(self, *kinds: str) -> bool:
        """Say whether any claim is of one of these kinds."""
        return any(c.kind in kinds for c in self.claims)

    def first(self, *kinds: str) -> Claim | None:
        """Return the first claim of one of these kinds."""
        return next((c for c in self.claims if c.kind in kinds), None)
