"""The reads of the pages over a small invented trace."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from mycroft.app.reads import evidence, hosts, operations, ranks, verdicts
from tests.app import page_trace
from tests.app.plain_reader import PlainReader


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("reads") / "trace.duckdb"
    verdict = {"findings": [{"evidence": [{"file": "core.7741"}, {"file": "gone"}], "collective": {"comm": "tp-c345"}}]}
    page_trace.write(path, verdict)
    return PlainReader(path)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trace with nothing in it: no source said anything."""
    from mycroft.loaders.schema import SCHEMA_VERSION
    from mycroft.loaders.store import StoreWriter

    path = tmp_path_factory.mktemp("reads") / "empty.duckdb"
    writer = StoreWriter(path)
    writer.append("trace_meta", pl.DataFrame({"key": ["schema_version"], "value": [str(SCHEMA_VERSION)]}))
    writer.finish()
    return PlainReader(path)


def test_every_rank_of_the_job_is_there_also_the_silent_one(reader: Any) -> None:
    rows = ranks.all_ranks(reader)
    assert [row.rank for row in rows] == list(range(page_trace.WORLD))
    silent = rows[page_trace.NO_DUMP]
    assert (silent.dumps, silent.ops, silent.host, silent.last_op) == (0, None, None, None)
    stuck = rows[page_trace.STUCK]
    assert stuck.place == "DP 0 · PP 1 · TP 1"
    assert stuck.open_ops == 0
    assert rows[4].open_ops == 1


def test_a_rank_is_known_to_be_behind_in_its_groups(reader: Any) -> None:
    groups = {group["desc"]: group for group in ranks.groups_of(reader, page_trace.STUCK)}
    stuck = groups["TENSOR_MODEL_PARALLEL_GROUP"]
    assert (stuck["last_seq"], stuck["furthest_seq"], stuck["last_enqueued"]) == (40, 41, 40)


def test_a_limit_is_never_silent(reader: Any) -> None:
    shown, total = ranks.operations_of(reader, 0, limit=10)
    assert (len(shown), total) == (10, 162)
    listed, count = evidence.files(reader, limit=3)
    assert (len(listed), count) == (3, 20)


def test_lateness_is_against_the_median_of_groups_of_three_and_more(reader: Any) -> None:
    late = ranks.lateness_of(reader, 2, limit=1000)
    assert len(late) == 81
    assert min(row["late_ns"] for row in late) > 5_000_000
    assert {row["comm"].split("-")[0] for row in late} == {"world", "tp"}


def test_the_members_of_an_operation_are_there_with_and_without_dumps(reader: Any) -> None:
    group = operations.communicator(reader, "world-434b")
    assert group is not None
    members = operations.members(reader, group["comm_id"])
    assert [m["rank"] for m in members if not m["dumps"]] == [page_trace.NO_DUMP]
    assert len(operations.operation(reader, group["comm_id"], 40)) == 15
    assert operations.neighbours(reader, group["comm_id"], 40) == (39, None)
    assert operations.communicator(reader, "nothing") is None


def test_operations_of_a_group_are_counted_by_number(reader: Any) -> None:
    group = operations.communicator(reader, "tp-c345")
    assert group is not None
    found, total = operations.operations_of_comm(reader, group["comm_id"], limit=5)
    assert total == 41
    newest = found[0]
    assert (newest["seq"], newest["entered"], newest["finished"]) == (41, 3, 0)


def test_both_sides_of_a_send_are_matched_by_their_order(reader: Any) -> None:
    group = operations.communicator(reader, "pp-1970")
    assert group is not None
    sides = operations.other_sides(reader, group["comm_id"], 7)
    assert [(s["rank"], s["kind"], s["peer"], s["other_seq"]) for s in sides] == [(0, "send", 4, 7), (4, "recv", 0, 7)]


def test_the_other_side_without_a_dump_is_unknown(reader: Any) -> None:
    group = operations.communicator(reader, "pp-5c87")
    assert group is not None
    sides = operations.other_sides(reader, group["comm_id"], 7)
    assert [(s["rank"], s["other_seq"], s["peer_has_dump"]) for s in sides] == [(15, None, False)]


def test_the_latest_rank_of_a_group_leads(reader: Any) -> None:
    late = operations.lateness_by_rank(reader, "tp-7e84")
    assert late[0]["rank"] == 2
    assert late[0]["median_ns"] > 5_000_000 > late[1]["median_ns"]
    assert operations.lateness_by_rank(reader, "dp-f272") == []


def test_text_is_read_by_lines_and_its_length_is_known(reader: Any) -> None:
    window = evidence.text_of(reader, 17, first=40, last=99)
    assert (window.first, window.total, len(window.lines)) == (40, 42, 3)
    assert "step 39" in window.lines[0]
    assert evidence.text_of(reader, 0, first=1, last=10).lines == ()


def test_entries_are_read_around_one(reader: Any) -> None:
    low, high, count = evidence.entries_extent(reader, 5)
    assert low is not None
    assert high is not None
    assert count == 160
    entries = evidence.entries_of(reader, 5, first=low, last=low + 300)
    assert entries[0]["line"] == low


def test_files_and_groups_of_a_verdict_are_found_by_name(reader: Any) -> None:
    verdict = verdicts.verdict_of(reader)
    assert verdict is not None
    assert verdicts.file_ids(reader, verdict) == {"core.7741": 19}
    assert verdicts.group_sizes(reader, verdict) == {"tp-c345": 4}


def test_a_host_is_known_by_name_with_its_severe_lines_first(reader: Any) -> None:
    found = hosts.host(reader, "hx-a01")
    assert found is not None
    events, total = hosts.events_of(reader, found["host_id"], limit=5)
    assert (len(events), total) == (1, 1)
    assert events[0]["kind"] == "watchdog_timeout"
    assert hosts.host(reader, "nowhere") is None


def test_the_newest_main_thread_of_each_rank_counts(reader: Any) -> None:
    stacks = evidence.main_stacks(reader)
    assert len(stacks) == page_trace.WORLD - 1
    assert evidence.stacks_of(reader, page_trace.STUCK)[0]["frames"][0] == "wait (threading.py:331)"


def test_a_trace_without_anything_is_read_without_an_error(empty: Any) -> None:
    assert verdicts.verdict_of(empty) is None
    assert ranks.all_ranks(empty) == []
    assert operations.communicators(empty) == []
    assert evidence.files(empty, limit=10) == ([], 0)
    assert evidence.job(empty) is None
    assert evidence.dump_kinds(empty) == []
    assert evidence.main_stacks(empty) == []
    assert evidence.entries_extent(empty, 0) == (None, None, 0)
