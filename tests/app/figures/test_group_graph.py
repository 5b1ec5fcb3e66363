"""The walk as a graph of groups: operations, the ranks between them, and an end at the root cause."""

from __future__ import annotations

import re
from typing import Any

from mycroft.app.figures import group_graph as gg


def step(waiter: int, blocker: int, comm: str | None, op: str, seq: int | None, **more: Any) -> dict[str, Any]:
    return {
        "waiter": waiter,
        "blocker": blocker,
        "comm": comm,
        "group": comm and comm.upper(),
        "op": op,
        "seq": seq,
        "why": f"rank {blocker} has not entered it",
        "evidence": [],
        **more,
    }


CASCADE = [
    step(4, 6, "pp-1a", "recv", 61),
    step(6, 7, "tp-2b", "all_reduce", 940),
    step(5, 7, "tp-2b", "all_reduce", 940),
    step(7, 13, "dp-3c", "reduce_scatter", 1208),
]


def draw(chain: list[dict[str, Any]], culprits: list[int], *, sure: bool = True) -> str:
    return gg.group_graph_svg(
        gg.graph_of(chain, culprits),
        culprits=culprits,
        sure=sure,
        hosts={13: "hx-a04"},
        rank_href=lambda rank: f"/rank/{rank}",
        op_href=lambda step: None if step["seq"] is None else f"/op/{step['comm']}/{step['seq']}",
        record_href=lambda link: f"/files/{link['waiter']}",
    )


def test_a_cascade_goes_through_its_groups_to_the_root_cause() -> None:
    nodes = gg.graph_of(CASCADE, [13])
    assert gg.groups_in(nodes) == 3
    tensor = nodes["tp-2b", "all_reduce", "940"]
    assert tensor.waiters == {5, 6}
    assert list(tensor.leads) == [("dp-3c", "reduce_scatter", "1208")]
    assert list(tensor.leads["dp-3c", "reduce_scatter", "1208"]) == [7]
    assert sorted(gg.columns_of(nodes).values()) == [0, 1, 2, 3]


def test_boxes_and_arrows_lead_to_operations_and_records() -> None:
    svg = draw(CASCADE, [13])
    assert re.findall(r'href="(/op/[^"]*)"', svg) == ["/op/dp-3c/1208", "/op/tp-2b/940", "/op/pp-1a/61"]
    assert set(re.findall(r'href="(/files/\d+)"', svg)) == {"/files/4", "/files/6", "/files/7"}
    assert svg.count("chain-box--cause") == 1 and svg.count("chain-edge--cause") == 1
    assert "data parallel · DP-3C" in svg and "2 ranks waiting" in svg


def test_only_the_root_cause_is_in_the_hue_and_a_suspect_is_outlined() -> None:
    svg = draw(CASCADE, [13], sure=False)
    assert "chain-box--cause" not in svg and svg.count("chain-box--suspect") == 1


def test_sends_and_operations_that_are_not_recorded_are_of_their_rank() -> None:
    chain = [
        step(0, 2, None, "send/recv", None),
        step(6, 4, None, "send/recv", None),
        step(2, 6, "dp-1", "all_reduce", 3),
    ]
    nodes = gg.graph_of([*chain, step(4, 5, "tp-1", "all_reduce", 9)], [5])
    assert sum(node.rank is None for node in nodes.values()) == 4
    assert sorted(gg.columns_of(nodes).values()) == [0, 1, 2, 3, 4]
    assert gg.groups_in(nodes) == 2


def test_a_walk_that_ends_without_a_culprit_ends_at_its_last_rank() -> None:
    nodes = gg.graph_of(CASCADE[:2], [])
    ends = [node.rank for node in nodes.values() if node.rank is not None]
    assert ends == [7]
    assert "what it waits for is not in the evidence" in draw(CASCADE[:2], [])


def test_a_cycle_is_drawn_and_ends() -> None:
    chain = [step(0, 1, "tp-1", "all_reduce", 1), step(1, 0, "dp-1", "all_gather", 2)]
    svg = draw(chain, [0, 1])
    assert svg.count("chain-box--cause") == 2
    assert draw(chain, []).count("chain-box--wait") == 2


def test_a_large_walk_is_cut_at_its_far_end() -> None:
    chain = [step(n, n + 1, f"pp-{n:x}", "all_reduce", n) for n in range(100)]
    nodes = gg.graph_of(chain, [100])
    shown = gg.drawn_of(nodes)
    assert len(shown) == gg.NODES_MAX and nodes[shown[0]].rank == 100
    assert "rank 100" in draw(chain, [100]) and "all_reduce 0 " not in draw(chain, [100])


def test_names_from_the_evidence_are_escaped() -> None:
    assert "<script>" not in draw([step(0, 1, "<script>", "<b>", 1), step(1, 2, "x", "y", 2)], [2])
