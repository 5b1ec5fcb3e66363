"""Where the walk over flows ends, told from snapshots made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_S
from mycroft.analysis.facts import read_facts
from mycroft.analysis.flow import FlowKey, Half, OpenOp, OpKey, Snapshot
from mycroft.analysis.flow_findings import stalls_of
from mycroft.analysis.flow_graph import Cause, FlowGraph, flow_of
from mycroft.analysis.joint_findings import with_flows
from mycroft.analysis.matching import match
from mycroft.analysis.mismatch import find_mismatches
from mycroft.analysis.stall_causes import grouped, kind_of
from mycroft.analysis.verdict import Collective, Finding, RootCause
from tests.analysis.simulated_jobs import Rows, damaged, job

AT = 100 * NS_PER_S
OP = OpKey(comm=0, seq=9)


def half(rank: int, posted: int, ready: int, moved: int, done: int, *, total: int = 28) -> Half:
    return Half(rank, total, posted, ready, moved, done, idle_ns=20 * NS_PER_S, ts=AT)


def snapshot(
    ranks: tuple[int, ...],
    *,
    algo: str,
    send: dict[tuple[int, int], Half],
    recv: dict[tuple[int, int], Half],
    inside: tuple[int, ...] | None = None,
    **more: Any,
) -> Snapshot:
    """One all_reduce over one channel; `send` and `recv` by (from, to). `inside`: who has entered it."""
    here = ranks if inside is None else inside
    return Snapshot(
        at_ns=AT,
        ranks=ranks,
        silent=more.pop("silent", {}),
        progress=dict.fromkeys(ranks, AT - 20 * NS_PER_S),
        heard=dict.fromkeys(ranks, AT),
        open={r: (OpenOp(r, OP, "all_reduce", AT - 20 * NS_PER_S, started=True),) for r in here} | more.pop("open", {}),
        members={0: ranks} | more.pop("members", {}),
        reached=dict.fromkeys(((0, r) for r in here), OP.seq),
        finished=more.pop("finished", frozenset()),
        algo={OP: ("all_reduce", algo, "SIMPLE")},
        send={FlowKey(OP, 0, *ends): h for ends, h in send.items()},
        recv={FlowKey(OP, 0, *ends): h for ends, h in recv.items()},
        **more,
    )


def causes(found: Snapshot) -> list[Cause]:
    graph = FlowGraph(found, FLOW_DEFAULTS)
    graph.build()
    return graph.causes()


def ring_of_four_hosts(**more: Any) -> Snapshot:
    """Ranks 0 to 7, two a host: data goes 0 -> 1 inside a host and 1 -> 2 over the network. Rank 2 does not come."""
    send = {(1, 2): half(1, 4, 1, 0, 0), (5, 6): half(5, 8, 4, 4, 4), (7, 0): half(7, 12, 8, 8, 8)}
    recv = {(3, 4): half(4, 4, 0, 0, 0), (5, 6): half(6, 8, 4, 4, 4), (7, 0): half(0, 12, 8, 8, 8)}
    inside = (0, 1, 4, 5, 6, 7)
    hosts = {r: r // 2 for r in range(8)}
    return snapshot(tuple(range(8)), algo="RING", send=send, recv=recv, inside=inside, hosts=hosts, **more)


def test_gpu_whose_input_comes_from_inside_its_host_is_not_blamed_for_what_that_lacks() -> None:
    found = causes(ring_of_four_hosts())

    assert {(c.kind, c.nodes[0].key) for c in found} == {("app", (2,)), ("app", (3,))}
    assert {0, 1, 4, 5, 6, 7} <= {r for c in found for r in c.blocked}


def test_data_that_a_host_has_and_does_not_pass_on_may_stand_at_any_gpu_there() -> None:
    send = {(1, 2): half(1, 8, 4, 4, 4), (3, 0): half(3, 8, 4, 4, 4)}
    recv = {(1, 2): half(2, 8, 8, 8, 4), (3, 0): half(0, 8, 4, 4, 4)}
    hosts = {r: r // 2 for r in range(4)}

    found = causes(snapshot((0, 1, 2, 3), algo="RING", send=send, recv=recv, hosts=hosts))

    assert ("gpus", (2, 3)) in [(c.kind, c.nodes[0].key) for c in found]
    assert all(c.kind != "gpu" for c in found)


# A tree of four, root 0: 3 -> 2 -> 1 -> 0 goes up, the other way goes down.
PARENTS = {
    (0, 0, 3, 2): True,
    (0, 0, 2, 1): True,
    (0, 0, 1, 0): True,
    (0, 0, 0, 1): False,
    (0, 0, 1, 2): False,
    (0, 0, 2, 3): False,
}


def test_root_of_a_tree_that_has_consumed_what_came_waits_for_more() -> None:
    """It sends nothing down yet: its kernel reduces everything first."""
    up = {(3, 2): (31, 31, 31, 23), (2, 1): (31, 23, 23, 23), (1, 0): (31, 23, 23, 23)}
    at = {(3, 2): (31, 23, 23, 23), (2, 1): (31, 23, 23, 23), (1, 0): (31, 23, 23, 23)}
    down = {(0, 1): (8, 0, 0, 0), (1, 2): (8, 0, 0, 0), (2, 3): (8, 0, 0, 0)}
    send = {ends: half(ends[0], *counts, total=32) for ends, counts in {**up, **down}.items()}
    recv = {ends: half(ends[1], *counts, total=32) for ends, counts in {**at, **down}.items()}

    found = causes(snapshot((0, 1, 2, 3), algo="TREE", send=send, recv=recv, parents=PARENTS))

    assert [c.kind for c in found] == ["net"]
    assert {(flow_of(n).src, flow_of(n).dst) for c in found for n in c.nodes} == {(3, 2)}


def test_rank_that_has_sent_all_of_its_part_up_is_no_root() -> None:
    """Its flow to the parent has ended and left no row; what it sends down needs what the parent sends."""
    down = {(0, 1): (8, 0, 0, 0), (1, 2): (8, 0, 0, 0), (2, 3): (8, 0, 0, 0)}
    send = {ends: half(ends[0], *counts, total=32) for ends, counts in down.items()}
    recv = {ends: half(ends[1], *counts, total=32) for ends, counts in down.items()}

    found = causes(snapshot((0, 1, 2, 3), algo="TREE", send=send, recv=recv, parents=PARENTS))

    assert [(c.kind, c.nodes[0].key) for c in found] == [("gpu", (0,))]


def test_sender_that_has_finished_while_its_receiver_lacks_data_is_one_end_of_the_flow_in_doubt() -> None:
    found = causes(
        snapshot(
            (0, 1),
            algo="RING",
            send={(0, 1): half(0, 4, 1, 0, 0)},
            recv={(1, 0): half(0, 4, 0, 0, 0)},
            inside=(0,),
            finished=frozenset({(1, OP)}),
        )
    )
    assert [kind_of(c) for c in grouped(found)] == ["net"]


def finding(
    category: str, ranks: tuple[int, ...], victims: tuple[int, ...], *, comm: str, one_of: bool = False
) -> Finding:
    return Finding(
        id="f0",
        status="hang",
        category=category,
        component="code",
        confidence="high",
        root_cause=RootCause(ranks=ranks, one_of=one_of),
        summary=category,
        collective=Collective(comm=comm),
        victims=victims,
    )


def test_ranks_that_meant_another_operation_are_why_the_flows_show_a_circle() -> None:
    circle = finding("order_deadlock", (0, 2, 3), (1, 4), comm="dp0", one_of=True)
    odd = finding("code_divergence", (2,), (0, 1, 3, 4), comm="dp0")

    assert [f.category for f in with_flows([odd], [circle])] == ["code_divergence"]
    # A process that died is no consequence of it.
    dead = finding("process_died", (4,), (0, 1, 2, 3), comm="dp0")
    assert [f.category for f in with_flows([odd], [dead])] == ["code_divergence", "process_died"]
    # Nor does it decide where nobody knows which side is the odd one.
    tie = finding("code_divergence", (0, 2), (1, 3, 4), comm="dp0", one_of=True)
    assert [f.category for f in with_flows([tie], [circle])] == ["order_deadlock"]


def test_what_the_tracer_says_of_bytes_shows_who_passed_another_size() -> None:
    def half_as_much(rows: Rows) -> Rows:
        op = rows["op"]
        mine = np.nonzero((op["trace"] == 9) & (op["comm"] == 3) & (op["dur_ns"] >= 0))[0]
        op["bytes"][mine[np.argmax(op["op_seq"][mine])]] //= 2
        return rows

    facts = read_facts(damaged("absent", half_as_much).store)
    found = find_mismatches(facts, match(facts))

    assert [(m.aspect, m.odd) for m in found] == [("size", (9,))]


def test_gpu_that_stands_is_not_named_before_a_rank_that_keeps_more_waiting_has_had_its_time() -> None:
    """A rank that does not come may pause for 15 s, a GPU is told after 8 s: at 10 s a victim might lead."""
    pair = OpKey(comm=1, seq=4)
    beside = FlowKey(pair, 0, 4, 5)
    found = replace(
        snapshot(
            (0, 1, 2, 3, 4, 5),
            algo="RING",
            send={},
            recv={},
            inside=(0, 1, 3),
            open={r: (OpenOp(r, pair, "all_gather", AT - 20 * NS_PER_S, started=True),) for r in (4, 5)},
            members={0: (0, 1, 2, 3), 1: (4, 5)},
        ),
        send={beside: half(4, 4, 0, 0, 0)},
        recv={beside: half(5, 4, 0, 0, 0)},
    )
    young = replace(found, at_ns=AT - 10 * NS_PER_S)

    assert stalls_of(job("none").store, young, FLOW_DEFAULTS) == ()
    late = stalls_of(job("none").store, found, FLOW_DEFAULTS)
    assert [(f.category, f.root_cause.ranks) for f in late] == [("absent", (2,)), ("device_hang", (4,))]


def test_on_sockets_only_the_receivers_half_tells_credit_from_network() -> None:
    """A send is accepted without credit there: handed over and not acknowledged is either."""
    sent = {(0, 1): half(0, 4, 4, 4, 0)}
    (unseen,) = stalls_of(job("none").store, snapshot((0, 1), algo="RING", send=sent, recv={}), FLOW_DEFAULTS)
    assert (unseen.category, unseen.root_cause.ranks, unseen.root_cause.one_of) == ("link_fault", (0, 1), True)
    assert unseen.confidence == "low"
    assert {"proxy_stall", "absent"} <= {a.category for a in unseen.alternatives if "not excluded" in a.rejected}

    nothing_posted = {(0, 1): half(1, 0, 0, 0, 0)}
    (seen,) = stalls_of(job("none").store, snapshot((0, 1), algo="RING", send=sent, recv=nothing_posted), FLOW_DEFAULTS)
    assert (seen.category, seen.root_cause.ranks, seen.root_cause.one_of) == ("proxy_stall", (1,), False)
