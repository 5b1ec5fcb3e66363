"""From claims to a category: a table that is read from the top, most specific first.

A general class is replaced by a more specific one only when a claim of its own says so. One row, one test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mycroft.analysis.claims import Suspicion
from mycroft.analysis.verdict import Component, Status


@dataclass(frozen=True, slots=True)
class ClassRule:
    """One row: a suspicion with any of `needs`, and all of `also`, and none of `unless`, is of this category."""

    name: str
    needs: tuple[str, ...]
    category: str
    component: Component
    status: Status = "hang"
    also: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


CLASSES: Final[tuple[ClassRule, ...]] = (
    # What a rank did differs from what the others did: code, whatever became of the process afterwards.
    ClassRule("another operation", ("odd_type",), "code_divergence", "code"),
    ClassRule("another size or dtype", ("odd_size", "odd_dtype"), "size_mismatch", "code"),
    # A device that failed takes its process with it: whatever that printed last is a consequence.
    ClassRule("its GPU failed", ("gpu_fault",), "gpu_fault", "gpu", "crash"),
    # How a process ended.
    ClassRule("no memory", ("out_of_memory",), "out_of_memory", "process", "crash"),
    ClassRule("ended by a signal", ("killed",), "process_died", "process", "crash"),
    ClassRule("its address is taken", ("exception",), "init_timeout", "config", "crash", also=("address_in_use",)),
    ClassRule("lost by its launcher", ("exited",), "process_died", "process", "crash", unless=("exception",)),
    ClassRule("its own exception", ("exception",), "exception", "code", "crash"),
    ClassRule("dead by NCCL's own account", ("killed_by_ras",), "process_died", "process", "crash"),
    ClassRule("its node is gone", ("node_failed",), "process_died", "host", "crash"),
    # Links and start-up.
    ClassRule("did not join at start-up", ("never_joined",), "init_timeout", "process"),
    ClassRule("another version", ("other_version",), "misconfigured_interface", "config"),
    ClassRule("on the GPU of another rank", ("same_gpu",), "misconfigured_interface", "config", "crash"),
    ClassRule("an address nobody can reach", ("wrong_interface",), "misconfigured_interface", "config"),
    ClassRule("a host nobody can reach at start-up", ("unreachable",), "init_timeout", "process"),
    ClassRule("its port lost the link", ("link_down", "at_all_ends"), "link_fault", "nic"),
    # The order and number of operations.
    ClassRule("two groups in the other order", ("swapped",), "order_deadlock", "code"),
    ClassRule(
        "alone in one group, missed in its twin group", ("alone",), "order_deadlock", "code", also=("crossed_groups",)
    ),
    ClassRule("left the common sequence", ("left_path", "alone", "odd_place"), "code_divergence", "code"),
    # Devices.
    ClassRule("its device does not get there", ("device_behind", "device_not_started"), "device_hang", "gpu"),
    # Where the absent rank is.
    ClassRule("in its data loader", ("in_dataloader",), "dataloader", "code"),
    ClassRule("in its checkpoint", ("in_checkpoint",), "checkpoint", "code"),
    ClassRule("in evaluation that others do not run", ("in_evaluation",), "code_divergence", "code"),
    ClassRule("on the way out", ("in_exception",), "exception", "code"),
    ClassRule("finished before the others", ("finished",), "code_divergence", "code"),
    # Alive or gone, without a stack.
    ClassRule("alive and not running", ("stopped",), "process_stopped", "process"),
    ClassRule("gone without a word", ("silent",), "process_died", "process", "crash"),
    ClassRule("not even a dump", ("no_dump",), "process_died", "process", "hang", also=("dumps_of_all_others",)),
    ClassRule("no dump, nothing else known", ("no_dump",), "absent", "unknown"),
    ClassRule("in its own code", ("in_code",), "absent", "process"),
    ClassRule("does not answer", ("unresponsive",), "process_stopped", "process"),
    ClassRule("its connections closed", ("closed_by",), "process_died", "process", "crash", unless=("absent",)),
    ClassRule("did not come", ("absent", "behind"), "absent", "process"),
    # Slowness: a measured lateness with its reason, then without.
    ClassRule("late, and its GPU throttles", ("late",), "slow_gpu", "gpu", "slow", also=("throttled",)),
    ClassRule("late, and its GPU runs slower", ("late",), "slow_gpu", "gpu", "slow", also=("slow_clock",)),
    ClassRule("late behind a narrow link", ("late",), "pcie_degraded", "host", "slow", also=("narrow_link",)),
    ClassRule(
        "slow behind a narrow link",
        ("slow_host", "slow_transfer"),
        "pcie_degraded",
        "host",
        "slow",
        also=("narrow_link",),
    ),
    ClassRule("the congested receiver", ("congested",), "network_congestion", "network", "slow"),
    ClassRule(
        "slow, and its port counts errors", ("slow_transfer",), "link_fault", "nic", "slow", also=("link_errors",)
    ),
    ClassRule("slow with every partner", ("slow_host",), "slow_nic", "nic", "slow"),
    ClassRule("slow on one path", ("slow_path",), "network_congestion", "network", "slow"),
    ClassRule("wrong results", ("wrong_results",), "unknown", "unknown", "slow"),
    ClassRule("slow on all alike", ("slow_transfer",), "slow_group", "network", "slow"),
    ClassRule("throttles", ("throttled", "slow_clock"), "slow_gpu", "gpu", "slow"),
    ClassRule("a narrow link", ("narrow_link",), "pcie_degraded", "host", "slow"),
    ClassRule("late by its input", ("late_input",), "dataloader", "code", "slow"),
    ClassRule("late, found in its data loader", ("late",), "dataloader", "code", "slow", also=("in_dataloader",)),
    ClassRule("late by its work", ("late",), "slow_compute", "unknown", "slow"),
    ClassRule("a slow group", ("slow_operations",), "slow_group", "unknown", "slow"),
    # Everybody is in.
    ClassRule("nobody stands out", ("stuck_in",), "unknown", "unknown"),
)


SLOW_KINDS: Final = ("late", "late_input", "slow_operations", "slow_transfer", "slow_host", "slow_path")


def classify(suspicion: Suspicion) -> ClassRule:
    """Return the first row whose claims the suspicion has. What is slow is only of a class for what is slow."""
    kinds = {claim.kind for claim in suspicion.claims}
    slow = bool(kinds & set(SLOW_KINDS))
    for rule in CLASSES:
        if slow and rule.status != "slow":
            continue
        if kinds & set(rule.needs) and set(rule.also) <= kinds and not kinds & set(rule.unless):
            return rule
    return ClassRule("no rule fits", (), "unknown", "unknown")
