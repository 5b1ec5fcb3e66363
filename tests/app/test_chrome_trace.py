"""Operations as Chrome trace JSON: sound, streamed, bounded, and its limits said in the file."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from mycroft.app import chrome_trace
from tests.app import page_trace
from tests.app.plain_reader import PlainReader


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("chrome") / "trace.duckdb"
    # One operation of rank 0 that overlaps another of its group, and one without any time.
    overlap = {
        "rank": 0,
        "comm_id": 0,
        "op_seq": 900,
        "op_kind": "barrier",
        "start_ts": page_trace.START.replace(second=1, microsecond=5000),
        "dur_ns": 3_000_000_000,
        "state": "completed",
    }
    untimed = {"rank": 0, "comm_id": 0, "op_seq": 901, "op_kind": "barrier", "state": "completed"}
    page_trace.write(path, None, more={"coll_ops": [overlap, untimed]})
    return PlainReader(path)


def written(reader: Any, **options: Any) -> dict[str, Any]:
    limits = chrome_trace.extent(reader, **options)
    return json.loads("".join(chrome_trace.chrome_trace(reader, limits)))


def operations(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in body["traceEvents"] if event["ph"] != "M"]


def test_every_operation_with_a_time_is_there_once(reader: Any) -> None:
    body = written(reader)
    timed = reader.frame("SELECT rank, op_seq, op_kind FROM coll_ops WHERE start_ts IS NOT NULL").rows()
    found = Counter((e["pid"], e["name"]) for e in operations(body))
    assert found == Counter((rank, f"{kind} {seq}") for rank, seq, kind in timed)
    assert body["otherData"]["operations"] == body["otherData"]["written"] == len(timed)
    assert body["otherData"]["left_out"] == "1 operation without a time left out"


def test_slices_of_a_thread_never_overlap(reader: Any) -> None:
    threads: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in operations(written(reader)):
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        slices.sort()
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(slices))
    names = [e["args"]["name"] for e in written(reader)["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 0]
    assert "default_pg world-434b (2)" in names


def test_what_did_not_finish_begins_and_never_ends(reader: Any) -> None:
    begun = [event for event in operations(written(reader)) if event["ph"] == "B"]
    assert {(event["pid"], event["name"]) for event in begun if event["cat"] == "tp-c345"} == {
        (rank, "all_reduce 41") for rank in (4, 6, 7)
    }
    assert all("dur" not in event and event["args"]["state"] == "open" for event in begun)


def test_of_more_than_fit_the_newest_are_written_and_it_is_said(reader: Any) -> None:
    body = written(reader, most=10)
    found = operations(body)
    everything = sorted(operations(written(reader)), key=lambda event: event["ts"])
    assert len(found) == body["otherData"]["written"] == 10
    assert {event["name"].split()[1] for event in found} <= {event["name"].split()[1] for event in everything[-20:]}
    assert body["otherData"]["left_out"].startswith("only the newest 10 of ")


def test_a_window_holds_what_begins_in_it(reader: Any) -> None:
    start = 1_772_424_600 * 10**9 + 10 * 10**9
    body = written(reader, window=(start, start + 10**9 - 1))
    seqs = {event["name"].split()[1] for event in operations(body)}
    assert seqs == {"10"} and all(0 <= event["ts"] < 1e6 for event in operations(body))


def test_it_is_written_piece_by_piece(reader: Any) -> None:
    pieces = chrome_trace.chrome_trace(reader, chrome_trace.extent(reader))
    assert next(pieces).startswith('{"displayTimeUnit"')
    assert max(map(len, pieces)) < 1000
