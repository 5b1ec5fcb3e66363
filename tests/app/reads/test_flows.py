"""Chunk flows: the shape of the group, the states of each half, and the verdict's edge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycroft.app.open_stores import OpenStores
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.verdict_band import Context
from mycroft.app.queries import TraceReader
from mycroft.app.reads import flows
from tests.app import flow_trace
from tests.app.flow_trace import BROKEN, SEQ, SILENT, STALL_TICK, TICKS, TOTAL, WORLD
from tests.app.trace_writer import write_rows

Reads = Callable[[str], TraceReader]


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Reads:
    folder = tmp_path_factory.mktemp("flows")
    stores = OpenStores()

    def make(shape: str, rows: dict[str, Any] | None = None, name: str | None = None) -> TraceReader:
        path = folder / f"{name or shape}.duckdb"
        if not path.exists():
            write_rows(path, rows or flow_trace.rows(shape))
        return TraceReader(trace="t", title="t", generation=1, path=path, stores=stores)

    return make


def flow_of(reader: TraceReader, seq: int = SEQ) -> dict[str, Any]:
    found = flows.flow_of(reader, "dp-0a", seq)
    assert found is not None
    return found


def half(flow: dict[str, Any], channel: int, rank: int, peer: int, *, sends: bool) -> list[Any]:
    (found,) = [h for h in flow["halves"] if h[:4] == [channel, rank, peer, int(sends)]]
    return found


def test_a_ring_is_in_the_order_in_which_its_ranks_send(reads: Reads) -> None:
    flow = flow_of(reads("ring"))
    assert flow["shape"] == "ring"
    assert flow["orders"] == {"0": list(range(WORLD)), "1": list(range(WORLD))}


def test_a_tree_has_the_parents_that_it_had_when_it_was_healthy(reads: Reads) -> None:
    flow = flow_of(reads("tree"))
    assert flow["shape"] == "tree"
    for channel in (0, 1):
        tree = flow["trees"][str(channel)]
        assert tree["known"]
        assert {int(child): parent for child, parent in tree["parents"].items()} == flow_trace.parents(channel)


def test_all_to_all_is_pairs(reads: Reads) -> None:
    flow = flow_of(reads("pairs"))
    assert flow["shape"] == "pairs"
    assert len({(h[1], h[2]) for h in flow["halves"] if h[3]}) == (WORLD - 1) * (WORLD - 1)


def test_the_broken_edge_is_that_of_the_verdict(reads: Reads) -> None:
    for shape in ("ring", "tree"):
        (cause,) = flow_of(reads(shape))["causes"]
        assert cause["edges"] == [list(BROKEN)] or shape == "tree"
        assert cause["ranks"] == [BROKEN[1]] and cause["sure"]


def test_without_a_verdict_nothing_is_blamed(reads: Any) -> None:
    reader = reads("ring", flow_trace.rows("ring", blamed=False), "nobody")
    assert flow_of(reader)["causes"] == []


def test_a_verdict_on_another_operation_blames_nothing_here(reads: Reads) -> None:
    assert flow_of(reads("ring"), SEQ - 1)["causes"] == []


def test_every_state_between_two_changes_is_the_one_before(reads: Reads) -> None:
    flow = flow_of(reads("ring"))
    channel, src, dst = BROKEN
    steps = half(flow, channel, src, dst, sends=True)[7]
    assert flow["tick_ms"] == 100 and flow["ticks"] == TICKS
    for tick in range(TICKS):
        posted, ready, moved, done = flow_trace.counters("ring", channel, src, dst, tick)[0]
        last = [step for step in steps if step[0] <= tick][-1]
        assert last[1:5] == [posted, ready, moved, done]
    assert steps[-1][0] <= STALL_TICK, "nothing changes after the stall, so nothing is sent for it"


def test_a_finished_half_is_done_although_its_last_state_was_not(reads: Reads) -> None:
    found = half(flow_of(reads("ring"), SEQ - 1), 0, 0, 1, sends=True)
    assert found[6] is None and found[7][-1][1:5] == [TOTAL] * 4


def test_a_rank_without_a_log_has_no_half_and_is_told_so(reads: Reads) -> None:
    flow = flow_of(reads("ring"))
    assert not [h for h in flow["halves"] if h[1] == SILENT]
    assert flow["ranks"][str(SILENT)] == {"host": "hx-b02", "log": False, "entered": False}
    assert SILENT in flow["orders"]["0"]


def test_an_operation_without_flows_has_no_picture(reads: Reads) -> None:
    assert flows.flow_of(reads("ring"), "dp-0a", 1) is None
    assert flows.flow_of(reads("ring"), "no-such", SEQ) is None
    assert not flows.has_flows(reads("ring"), 0, 1)


def test_too_many_states_make_the_steps_longer_and_it_is_said(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "STEPS_MAX", 200)
    flow = flow_of(reads("ring"))
    assert flow["tick_ms"] > 100
    assert any(f"every {flow['tick_ms']} ms" in text for text in flow["limits"])
    channel, src, dst = BROKEN
    assert half(flow, channel, src, dst, sends=True)[7][-1][4] == 8


def test_too_many_halves_keep_the_channel_that_lags_and_it_is_said(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "HALVES_MAX", 30)
    flow = flow_of(reads("ring"))
    assert flow["channels"] == [BROKEN[0]]
    assert any("1 of 2 channels" in text for text in flow["limits"])


@given(st.permutations(range(9)), st.sets(st.integers(0, 8), max_size=4))
def test_a_ring_with_gaps_keeps_everybody_and_every_known_neighbour(order: list[int], gaps: set[int]) -> None:
    edges = [(order[i], order[(i + 1) % 9]) for i in range(9) if i not in gaps]
    found = flows.ring_order(edges, sorted(order))
    assert sorted(found) == list(range(9))
    apart = sum(found[(found.index(src) + 1) % 9] != dst for src, dst in edges)
    assert apart == 0


def test_the_ring_begins_at_its_first_member() -> None:
    assert flows.ring_order([(0, 2), (2, 1), (1, 0)], [0, 1, 2]) == [0, 2, 1]


def test_the_number_of_a_pair_leads_to_the_number_of_its_rank(tmp_path: Path) -> None:
    made = flow_trace.rows("ring")
    sent = {"comm_id": 0, "is_p2p": True, "state": "started", "start_ts": flow_trace.START, "file_id": 0}
    made["coll_ops"] += [
        {**sent, "rank": 2, "op_seq": 41, "op_kind": "send", "peer": 3, "pair_seq": 20},
        {**sent, "rank": 3, "op_seq": 55, "op_kind": "recv", "peer": 2, "pair_seq": 20},
    ]
    half_of_pair = {"comm_id": 0, "op_seq": 20, "channel": 0, "chunks_total": 8, "ts": flow_trace.START}
    made["flow_state"] += [
        {**half_of_pair, "rank": 2, "peer": 3, "dir": "send", "op_kind": "send", "done": 3},
        {**half_of_pair, "rank": 3, "peer": 2, "dir": "recv", "op_kind": "recv", "done": 2},
    ]
    path = tmp_path / "pair.duckdb"
    write_rows(path, made)
    reader = TraceReader(trace="t", title="t", generation=1, path=path, stores=OpenStores())
    assert flows.number_of_pair(reader, "dp-0a", 20, "recv", [3]) == 55
    assert flows.number_of_pair(reader, "dp-0a", 20, "send", [2, 3]) == 41
    assert flows.number_of_pair(reader, "dp-0a", 21, "recv", [3]) is None
    assert flows.number_in_addresses(reader, "dp-0a", 20, "all_reduce", [3]) == 20
    links = Context(links=TraceLinks("t"), number_of=partial(flows.number_in_addresses, reader))
    named = {"comm": "dp-0a", "seq": 20, "op": "recv"}
    assert links.op(named, [3]) == "/t/t/op/dp-0a/55"
    assert links.op({**named, "op": "all_reduce"}, [3]) == "/t/t/op/dp-0a/20"
    assert links.op({**named, "seq": None}, [3]) is None
    for seq in (41, 55):
        flow = flow_of(reader, seq)
        assert flow["shape"] == "pairs"
        assert sorted(h[1:4] for h in flow["halves"]) == [[2, 3, 1], [3, 2, 0]]
