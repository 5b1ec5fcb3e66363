"""One rule, one test: each has an input here in which it is the one that accuses, and nobody else would.

A rule that is taken out of the lists of `culprits` turns its line red: what it explains is then told by no rule, or by
a more general one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mycroft.analysis.case import Case
from mycroft.analysis.claims import Suspicion
from mycroft.analysis.culprits import blame
from mycroft.analysis.diagnosis import build_case
from mycroft.analysis.facts import read_facts
from tests.analysis import incidents as make
from tests.analysis.test_culprits import job
from tests.analysis.test_machine_claims import FALLEN, WAITERS, late, matrix
from tests.analysis.test_slowness import blocking_job
from tests.analysis.trace_builder import TraceBuilder
from tests.loaders.sources import loaded

CaseOf = Callable[[TraceBuilder], Case]


def told(suspicions: list[Suspicion]) -> list[tuple[str, tuple[int, ...]]]:
    """Return which rule accuses whom."""
    return [(s.rule, s.ranks) for s in suspicions]


def lonely_waiter() -> TraceBuilder:
    """Rank 2 waits in a group that nobody else entered, the others for it in another."""
    trace, group = job()
    other = trace.group("default_pg", [0, 1, 2, 3], kind="world")
    for rank in range(4):
        trace.call(rank, *((other, 1) if rank == 2 else (group, 4)), done=False)
    return trace


def unlisted_member() -> TraceBuilder:
    """Three groups that no dump lists: one is whole, of two others one member each left no dump."""
    trace = TraceBuilder(world=12)
    sisters = [range(0, 4), range(4, 8), range(8, 12)]
    groups = [trace.group(f"dp_{i}", list(ranks), kind="dp", declared=False) for i, ranks in enumerate(sisters)]
    for group, ranks in zip(groups, sisters, strict=True):
        for rank in ranks:
            for seq in (1, 2):
                trace.call(rank, group, seq, done=(seq, group) != (2, groups[0]))
    for lost in (3, 7):
        trace.rows["coll_ops"] = [r for r in trace.rows["coll_ops"] if r["rank"] != lost]
        trace.without_dump(lost)
    return trace


TRACES: dict[str, tuple[Callable[[], TraceBuilder], tuple[int, ...]]] = {
    "alone": (lonely_waiter, (2,)),
    "unseen": (unlisted_member, (3, 7)),
    "slow": (lambda: blocking_job({3: 15.0}), (3,)),
}


@pytest.mark.parametrize("rule", TRACES)
def test_the_rule_over_dumps_accuses(rule: str, case_of: CaseOf) -> None:
    trace, ranks = TRACES[rule]
    assert told(blame(case_of(trace()))) == [(rule, ranks)]


FILES: dict[str, tuple[Mapping[str, str], tuple[int, ...]]] = {
    "gpu_fault": (
        {"console.log": make.start_up(8) + WAITERS, "journal-n2.txt": make.kernel("n2", "17:00", FALLEN)},
        (5,),
    ),
    "slow_machine": (late(5), (5,)),
    "benchmarks": (matrix({(0, 2), (1, 2), (2, 3)}), ()),
}


@pytest.mark.parametrize("rule", FILES)
def test_the_rule_over_logs_and_machines_accuses(rule: str, tmp_path: Path) -> None:
    files, ranks = FILES[rule]
    with loaded(tmp_path, files) as store:
        assert told(blame(build_case(read_facts(store)))) == [(rule, ranks)]
