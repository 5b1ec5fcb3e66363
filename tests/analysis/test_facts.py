from __future__ import annotations

from pathlib import Path

from mycroft.analysis.facts import family, read_facts
from tests.analysis.trace_builder import TraceBuilder


def test_sister_groups_are_one_family() -> None:
    assert family("tp_0", "tp") == family("tp_13", "tp")
    assert family("tp_0", "tp") != family("dp_0", "dp")


def test_a_rank_without_a_dump_is_found_by_the_gap_in_its_family(tmp_path: Path) -> None:
    trace = TraceBuilder(world=4, events=False)
    pairs = [trace.group(f"tp_{i}", [2 * i, 2 * i + 1], kind="tp", declared=False) for i in (0, 1)]
    for rank in range(4):
        trace.call(rank, pairs[rank // 2], 1)
    trace.without_dump(3)
    facts = read_facts(trace.store(tmp_path))
    assert facts.groups[pairs[1]].members == (2, 3)


def test_two_ranks_without_a_dump_are_not_dealt_out_to_two_groups(tmp_path: Path) -> None:
    trace = TraceBuilder(world=6, events=False)
    pairs = [trace.group(f"tp_{i}", [2 * i, 2 * i + 1], kind="tp", declared=False) for i in (0, 1, 2)]
    for rank in range(6):
        trace.call(rank, pairs[rank // 2], 1)
    trace.without_dump(3, 5)
    groups = read_facts(trace.store(tmp_path)).groups
    assert [(groups[p].members, groups[p].unseen) for p in pairs] == [((0, 1), 0), ((2,), 1), ((4,), 1)]


def test_a_gather_tells_the_size_of_its_group(tmp_path: Path) -> None:
    trace = TraceBuilder(world=3, events=False)
    group = trace.group("ep", [0, 1, 2], kind="ep", declared=False)
    for rank in range(3):
        trace.call(rank, group, 1, kind="all_gather", size=8, out=24)
    trace.without_dump(2)
    assert read_facts(trace.store(tmp_path)).groups[group].members == (0, 1, 2)


def test_a_group_of_everybody_with_a_dump_is_one_of_everybody(tmp_path: Path) -> None:
    trace = TraceBuilder(world=4, events=False)
    group = trace.group("grad_sync", [0, 1, 2, 3], declared=False)
    for rank in range(4):
        trace.call(rank, group, 1)
    trace.without_dump(3)
    assert read_facts(trace.store(tmp_path)).groups[group].members == (0, 1, 2, 3)


def test_every_rank_is_in_the_default_group(tmp_path: Path) -> None:
    trace = TraceBuilder(world=3, events=False)
    world = trace.group("default_pg", [0, 1, 2], kind="world", declared=False)
    trace.call(0, world, 1)
    assert read_facts(trace.store(tmp_path)).groups[world].members == (0, 1, 2)


def test_a_gap_in_the_numbers_is_a_rank(tmp_path: Path) -> None:
    trace = TraceBuilder(world=4)
    group = trace.group("dp", [0, 3], kind="dp", declared=False)
    for rank in (0, 3):
        trace.call(rank, group, 1)
    trace.without_dump(1, 2)
    facts = read_facts(trace.store(tmp_path))
    assert facts.expected == (0, 1, 2, 3)
    assert facts.without_dump() == (1, 2)
