"""The numbers beside the blame of a rank: how far its sends came, how long it waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycroft.app.open_stores import OpenStores
from mycroft.app.queries import TraceReader
from mycroft.app.reads import blame
from tests.app import flow_trace
from tests.app.flow_trace import BROKEN, SEQ, SILENT, TOTAL
from tests.app.trace_writer import write_rows

FLOW = {"channel": BROKEN[0], "peer": BROKEN[2], "dir": "send", "qp": None}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    path = tmp_path_factory.mktemp("blame") / "trace.duckdb"
    write_rows(path, flow_trace.rows("ring"))
    return TraceReader(trace="t", title="t", generation=1, path=path, stores=OpenStores())


def test_each_rank_is_told_by_the_send_that_is_furthest_behind(reader: TraceReader) -> None:
    found = blame.sent_by_rank(reader, "dp-0a", SEQ)
    assert found[BROKEN[1]] == blame.Sent(BROKEN[0], BROKEN[2], 10, 10, 8, TOTAL)
    # Of the channel that is done nothing is told, as the other is behind; what is silent is left out, and not at zero.
    assert {sent.channel for sent in found.values()} == {BROKEN[0]} and SILENT not in found


def test_the_sender_that_is_blamed_is_told_by_the_flow_that_is_blamed(reader: TraceReader) -> None:
    other = {**FLOW, "channel": 0}
    assert blame.sent_by_rank(reader, "dp-0a", SEQ, FLOW)[BROKEN[1]].done == 8
    assert blame.sent_by_rank(reader, "dp-0a", SEQ, other)[BROKEN[1]].done == TOTAL


def test_a_wait_reaches_to_the_last_state(reader: TraceReader) -> None:
    waits = blame.open_waits(reader)
    assert waits[0] == 5_900_000_000 and waits[5] == 5_895_000_000 and SILENT not in waits


def test_without_states_nobody_knows_how_long_a_rank_waited(tmp_path: Path) -> None:
    rows = flow_trace.rows("ring")
    rows["flow_state"] = []
    write_rows(tmp_path / "trace.duckdb", rows)
    reader = TraceReader(trace="t", title="t", generation=1, path=tmp_path / "trace.duckdb", stores=OpenStores())
    assert blame.open_waits(reader) == {}
    # Of what ended, all were inside for as long.
    assert set(blame.usual_waits(reader, "dp-0a").values()) == {0}
