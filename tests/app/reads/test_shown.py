"""What the pictures move to for a claim: the window of its operation, its rank and its channel."""

from __future__ import annotations

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
