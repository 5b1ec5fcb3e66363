"""Who is to blame: the rules in their order, and what is done with their answers.

`RULES` is read from the top. Each rule takes the case and the sinks of the graph that no rule before it has explained,
and returns suspicions together with the sinks they explain. One rule, one reason, one test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mycroft.analysis import claims_device, machine_rules
from mycroft.analysis.case import Case, Explained, Rule, place_claims
from mycroft.analysis.claims import Suspicion
from mycroft.analysis.rules_absence import (
    absent,
    blind_to_pairs,
    by_stacks,
    device_behind,
    ended,
    finished_early,
    has_reason,
    silent,
    stuck_together,
    unseen,
)
from mycroft.analysis.rules_path import alone, crossed, mismatched
from mycroft.analysis.slowness import slow_suspicions


def blame(case: Case) -> list[Suspicion]:
    """Apply the rules until every sink is explained; equal faults are put together.

    Rules over slowness are asked only when nothing stands still. A dump that may be of a running job, on a recorder
    that sees no end of an operation, is read as slow where one rank is late again and again.
    """
    if case.graph.waiting and case.liveness.state == "in_flight":
        return _apply(case, SLOW_RULES)
    found = _without_echoes(case, claims_device.tied(case.machine, _apply(case, RULES)))
    if (
        case.graph.waiting
        and case.liveness.state == "unknown"
        and any(not d.has_events for d in case.facts.dumps.values())
    ):
        doubt = ("medium", case.liveness.why)
        slow = [replace(s, doubts=(*s.doubts, doubt)) for s in _apply(case, SLOW_RULES)]
        return slow or found
    if case.graph.waiting or not all(s.rule in INDEPENDENT for s in found):
        return found
    return [*_apply(case, SLOW_RULES), *found]


def _without_echoes(case: Case, suspicions: list[Suspicion]) -> list[Suspicion]:
    """Leave out ranks that only report that others stopped, when somebody else is accused."""
    solid = [s for s in suspicions if s.rule != "absent" or not all(_may_wait_unseen(case, r) for r in s.ranks)]
    return solid or suspicions


def _may_wait_unseen(case: Case, rank: int) -> bool:
    """Say whether a rank that stands still may be an echo: it says so, or its recorder keeps no send or receive."""
    if case.is_victim(rank):
        return True
    return blind_to_pairs(case, [rank]) and not has_reason(case, rank)


def _apply(case: Case, rules: Sequence[tuple[str, Rule]]) -> list[Suspicion]:
    left = set(range(len(case.graph.sinks)))
    suspicions: list[Suspicion] = []
    for name, rule in rules:
        found, explained = rule(case, left)
        named = {r for s in suspicions for r in s.ranks}
        own = name in INDEPENDENT
        fresh = [s for s in found if (not set(s.ranks) <= named if s.ranks else own or not suspicions)]
        # Ranks that merely print nothing are explained by the one among them, or its host, that something accuses.
        blamed = named | {r for s in suspicions for host in s.hosts for r in case.machine.ranks_on(host)}
        fresh = [s for s in fresh if not (machine_rules.only_silent(s) and blamed & set(s.ranks))]
        suspicions += [machine_rules.enrich(case, replace(s, rule=name)) for s in fresh]
        left -= explained
    return suspicions


def slow(case: Case, left: set[int]) -> Explained:
    """Nobody stands still, but a group is slow, or one rank is where lateness begins in most steps."""
    found: list[Suspicion] = []
    for item in slow_suspicions(case.facts, case.matched, case.limits):
        if item.rule == "late" and item.one_of:
            item = _who_works(case, item)
        found.append(
            replace(item, claims=(*item.claims, *place_claims(case, item.ranks))) if item.rule == "late" else item
        )
    return found, set()


def _who_works(case: Case, item: Suspicion) -> Suspicion:
    """Of ranks that are late together, name the one that is at work while the others wait, if the stacks show one."""
    seen = [r for r in item.ranks if r in case.places]
    working = tuple(r for r in seen if not case.places[r].waits)
    if len(seen) < len(item.ranks) or len(working) != 1:
        return item
    doubt = ("medium", "told from the ranks that are late with it by the stacks of one moment")
    claims = tuple(c for c in item.claims if c.ranks == working)
    waiting = tuple(sorted({*item.waiting, *item.ranks} - set(working)))
    return replace(item, ranks=working, claims=claims, one_of=False, doubts=(doubt,), waiting=waiting)


RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("mismatch", mismatched),
    ("gpu_fault", machine_rules.gpu_fault),
    ("reports", machine_rules.reports),
    ("ended", ended),
    ("transport", machine_rules.transport),
    ("start_up", machine_rules.start_up),
    ("gone", machine_rules.gone),
    ("watchdog", machine_rules.watchdog),
    ("ras", machine_rules.ras),
    ("device_behind", device_behind),
    ("alone", alone),
    ("cycle", crossed),
    ("finished_early", finished_early),
    ("silent", silent),
    ("absent", absent),
    ("stuck_together", stuck_together),
    ("unseen", unseen),
    ("by_stacks", by_stacks),
    ("benchmarks", machine_rules.benchmarks),
)
# What these say of hosts is not explained by what holds up the job.
INDEPENDENT: Final = ("benchmarks",)
SLOW_RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("slow", slow),
    ("slow_machine", machine_rules.slow),
)
