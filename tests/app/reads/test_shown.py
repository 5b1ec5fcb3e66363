"""What the pictures move to for a claim: the window of its operation, its rank and its channel."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from mycroft.app.open_stores import OpenStores
from mycroft.app.queries import TraceReader
from mycroft.app.reads import shown, timeline
from mycroft.loaders import pyramid
from tests.app import flow_trace
from tests.app.flow_trace import SEQ
from tests.app.trace_writer import write_rows


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    path = tmp_path_factory.mktemp("shown") / "trace.duckdb"
    write_rows(path, flow_trace.rows("ring"))
    pyramid.build(path)
    return TraceReader(trace="t", title="t", generation=1, path=path, stores=OpenStores())


@pytest.mark.parametrize("group", [{"comm": "dp-0a"}, {"comm_id": 0}])
def test_an_open_operation_is_shown_from_before_its_start(reader: TraceReader, group: dict[str, object]) -> None:
    found = shown.shown(reader, {**group, "op_seq": SEQ, "rank": 5, "channel": 1})
    assert {name: found[name] for name in ("r", "ch", "c", "op")} == {"r": 5, "ch": 1, "c": "dp-0a", "op": SEQ}
    first, last = found["t"]
    bars = timeline.hits(reader, 1_500_000, 1_500_100, 5)["ops"]
    (start,) = {op["start_us"] for op in bars if op["seq"] == SEQ}
    assert first <= start < last <= timeline.plan_of(reader).span_ns // 1000


def test_a_claim_of_a_rank_alone_selects_the_rank_and_keeps_the_window(reader: TraceReader) -> None:
    assert shown.shown(reader, {"rank": 3}) == {"r": 3}


@pytest.mark.parametrize("key", [None, {}, {"comm": "nobody", "op_seq": 7}, {"comm": "dp-0a", "op_seq": 999}])
def test_what_no_picture_shows_moves_nothing(reader: TraceReader, key: dict[str, object] | None) -> None:
    assert shown.shown(reader, key) == {}


def test_a_flow_of_a_pair_is_shown_by_the_number_that_its_rank_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "trace.duckdb"
    write_rows(path, two_sends())
    pyramid.build(path)
    reader = TraceReader(trace="t", title="t", generation=1, path=path, stores=OpenStores())
    key = {"comm_id": 0, "rank": 5, "peer": 6, "dir": "send", "op_seq": 1}
    assert shown.shown(reader, key, "flow_state")["op"] == 3
    # The rows of an operation are numbered by its rank already, and another kind with the number is another flow.
    assert shown.shown(reader, key, "coll_ops")["op"] == 1
    assert shown.shown(reader, {**key, "peer": 4}, "flow_state")["op"] == 1


def two_sends() -> dict[str, list[dict[str, object]]]:
    """Rank 5 sends to rank 7 twice and then to rank 6: its third send is the first of that pair."""
    rows = flow_trace.rows("ring", blamed=False)
    rows["flow_state"] = [
        {"ts": flow_trace.START, "rank": 5, "comm_id": 0, "peer": 6, "op_seq": 1, "op_kind": "send", "dir": "send"}
    ]
    rows["coll_ops"] = [
        {
            "rank": 5,
            "comm_id": 0,
            "op_seq": seq,
            "pair_seq": pair,
            "op_kind": "send",
            "peer": peer,
            "is_p2p": True,
            "start_ts": flow_trace.START + timedelta(seconds=seq),
            "state": "started",
            "file_id": 0,
        }
        for seq, peer, pair in ((1, 7, 1), (2, 7, 2), (3, 6, 1))
    ]
    return rows
