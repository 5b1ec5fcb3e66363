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
    # How a process ended.
    ClassRule("no memory", ("out_of_memory",), "out_of_memory", "process", "crash"),
    ClassRule("ended by a signal", ("killed",), "process_died", "process", "crash"),
    ClassRule("its own exception", ("exception",), "exception", "code", "crash"),
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
    ClassRule("did not come", ("absent",), "absent", "process"),
    # Slowness.
    ClassRule("late by its input", ("late_input",), "dataloader", "code", "slow"),
    ClassRule("late by its work", ("late",), "slow_compute", "unknown", "slow"),
    ClassRule("a slow group", ("slow_operations",), "slow_group", "unknown", "slow"),
    # Everybody is in.
    ClassRule("nobody stands out", ("stuck_in",), "unknown", "unknown"),
)


def classify(suspicion: Suspicion) -> ClassRule:
    """Return the first row whose claims the suspicion has."""
    kinds = {claim.kind for claim in suspicion.claims}
    for rule in CLASSES:
        if kinds & set(rule.needs) and set(rule.also) <= kinds and not kinds & set(rule.unless):
            return rule
    return ClassRule("no rule fits", (), "unknown", "unknown")
