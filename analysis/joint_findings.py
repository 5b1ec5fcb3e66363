"""Findings of the flows and of other sources of one incident put together: each fault is told once, by who knows most.

The flows know who holds whom up and how sure that is; stacks, logs and the order of calls know why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mycroft.analysis.verdict import Finding

# Ranks that did not mean the same; and what others look like that wait for them.
_MEANT: Final = ("code_divergence", "size_mismatch")
_SURE: Final = ("low", "medium", "high")
_WHY_ELSEWHERE: Final = ("absent", "process_died")
_WAITS: Final = ("absent", "device_hang", "order_deadlock", "unknown")


def with_flows(others: Sequence[Finding], flows: Sequence[Finding]) -> tuple[Finding, ...]:
    """Put findings over flows before those of other sources, and drop what says the same with less.

    An absent or dead rank with its own evidence (a stack, an exit code) stays as the other sources tell it: they know
    why. A stall that names only ranks which wait for something else is that stall, seen from further away. Ranks that
    did not mean the same operation are why: the flows show only how the others came to stand.
    """
    meant = [f for f in others if f.category in _MEANT and f.root_cause.ranks and not f.root_cause.one_of]
    if meant and all(f.status in ("hang", "crash") for f in flows):
        comm = meant[0].collective.comm if meant[0].collective is not None else None
        flows = tuple(f for f in flows if not _follows_from(f, set(meant[0].root_cause.ranks), comm))
        flows = (meant[0], *flows)
    if not flows:
        return tuple(replace(f, id=f"f{n}") for n, f in enumerate(others, 1))
    better: list[Finding] = []
    kept: list[Finding] = []
    for flow in flows:
        same = [f for f in others if set(f.root_cause.ranks) == set(flow.root_cause.ranks)]
        told = [f for f in same if flow.category in _WHY_ELSEWHERE and f.category not in (*_WAITS, "unknown")]
        # Of two that say the same, the one with more doubts knows of something that speaks against it.
        as_sure = [f for f in same if _SURE.index(f.confidence) <= _SURE.index(flow.confidence)]
        told = told or [f for f in as_sure if flow.category == f.category and flow.category in _WHY_ELSEWHERE]
        better.append(told[0] if told else flow)
    involved = {r for f in flows for r in (*f.root_cause.ranks, *f.victims)}
    for other in others:
        if any(other is b for b in better):
            continue
        if other.status in ("hang", "crash") and set(other.root_cause.ranks) <= involved:
            continue
        kept.append(other)
    return tuple(replace(f, id=f"f{n}") for n, f in enumerate((*better, *kept), 1))


def _follows_from(stall: Finding, odd: set[int], comm: str | None) -> bool:
    """Whether a stall is what becomes of a job in which some ranks meant another operation or size in `comm`.

    Whoever stands then waits, in the end, for them; or for data of that communicator that does not fit.
    """
    accused = set(stall.root_cause.ranks)
    if stall.category in ("process_died", "process_stopped"):
        return False
    there = stall.collective is not None and stall.collective.comm == comm
    return bool(odd & {*accused, *stall.victims}) and (there or stall.category in _WAITS)
