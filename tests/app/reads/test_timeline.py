"""Reads of the timeline: tiles of every level, bars and their limit, what is under the pointer."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mycroft.app.open_stores import OpenStores
from mycroft.app.queries import TraceReader
from mycroft.app.reads import timeline
from mycroft.loaders import pyramid
from mycroft.loaders.pyramid import METRICS, SIDE, Rows
from mycroft.loaders.timeline_blocks import OPEN
from tests.app import flow_trace
from tests.app.flow_trace import BROKEN, SEQ, SILENT, WORLD
from tests.app.trace_writer import write_rows
from tests.loaders.test_pyramid import all_ops


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    path = tmp_path_factory.mktemp("timeline") / "trace.duckdb"
    write_rows(path, flow_trace.rows("ring"))
    pyramid.build(path)
    return TraceReader(trace="t", title="t", generation=1, path=path, stores=OpenStores())


def decoded(body: bytes) -> dict[str, Any]:
    version, count, total, _ = struct.unpack("<4I", body[:16])
    at = 16
    columns: dict[str, Any] = {"version": version, "count": count, "total": total}
    for name, kind in (
        ("start", "<f4"),
        ("end", "<f4"),
        ("row", "<u2"),
        ("kind", "u1"),
        ("state", "u1"),
        ("seq", "<u4"),
        ("comm", "<u4"),
    ):
        columns[name] = np.frombuffer(body, kind, count, at)
        at += count * np.dtype(kind).itemsize
    assert at == len(body)
    return columns


def test_a_tile_of_a_level_that_is_not_kept_is_made_from_the_rows(reader: TraceReader) -> None:
    plan = timeline.plan_of(reader)
    with reader.store() as store:
        rows = Rows.of(all_ops(store), 0)
    for metric in METRICS:
        for level in range(plan.stored, len(plan.bins_ns)):
            last = (plan.bins(level) - 1) // SIDE
            for x in sorted({0, last // 3, last // 2, last}):
                bins = min(SIDE, plan.bins(level) - x * SIDE)
                wanted = pyramid.cells(rows, metric=metric, bin_ns=plan.bins_ns[level], first_bin=x * SIDE, bins=bins)
                content = timeline.tile(reader, metric, level, 0, x)
                found = np.zeros((SIDE, SIDE), np.uint8)
                if content is not None:
                    found = np.frombuffer(gzip.decompress(content), np.uint8).reshape(SIDE, SIDE)
                assert np.array_equal(found[:, :bins], wanted), (metric, level, x)


@pytest.mark.parametrize(
    ("metric", "level", "y", "x"), [("none", 0, 0, 0), ("late", 99, 0, 0), ("late", 0, 1, 0), ("late", 0, 0, 9)]
)
def test_a_tile_that_does_not_exist_is_refused(reader: TraceReader, metric: str, level: int, y: int, x: int) -> None:
    with pytest.raises(timeline.TileError):
        timeline.tile(reader, metric, level, y, x)


def test_bars_are_the_operations_of_the_window(reader: TraceReader) -> None:
    span = -(-timeline.plan_of(reader).span_ns // 1000)
    found = decoded(timeline.bars(reader, 0, span, 0, WORLD - 1))
    assert (found["version"], found["count"]) == (1, 2 * (WORLD - 1))
    assert sorted(set(found["row"].tolist())) == [rank for rank in range(WORLD) if rank != SILENT]
    open_ = found["seq"] == SEQ
    assert set(found["state"][open_].tolist()) == {OPEN}
    assert found["end"][open_].tolist() == pytest.approx([span] * open_.sum(), rel=1e-4)
    some = decoded(timeline.bars(reader, 10, 20, 4, 5))
    assert some["row"].tolist() == [] or set(some["row"].tolist()) <= {0, 1}


def test_too_many_bars_are_counted_and_not_sent(reader: TraceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "BARS_MAX", 5)
    found = decoded(timeline.bars(reader, 0, 10**7, 0, WORLD - 1))
    assert (found["count"], found["total"]) == (0, 2 * (WORLD - 1))


def test_a_window_of_very_many_blocks_is_estimated_and_says_so(
    reader: TraceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "BLOCKS_MAX", 0)
    span = timeline.plan_of(reader).span_ns // 1000
    version, count, total, estimated = struct.unpack("<4I", timeline.bars(reader, 0, span, 0, WORLD - 1))
    assert (version, count, estimated) == (1, 0, 1)
    assert total == 2 * (WORLD - 1)
    assert struct.unpack("<4I", timeline.bars(reader, 0, span, 0, WORLD // 2 - 1))[2] == WORLD - 1


def test_under_the_pointer_is_the_nearest_operation(reader: TraceReader) -> None:
    found = timeline.hits(reader, 1_500_000, 1_500_100, BROKEN[1])
    assert found["total"] == 1
    assert (found["ops"][0]["seq"], found["ops"][0]["kind"], found["ops"][0]["state"]) == (SEQ, "all_reduce", 2)
    assert timeline.hits(reader, 1_500_000, 1_500_100, SILENT) == {"total": 0, "ops": []}


def test_the_description_names_who_is_silent_and_who_is_to_blame(reader: TraceReader) -> None:
    found = timeline.describe(reader)
    assert found["ranks"] == list(range(WORLD)) and found["silent"] == [SILENT]
    (incident,) = found["incidents"]
    assert incident["ranks"] == [BROKEN[1]] and incident["sure"]
    assert incident["since_us"] == 2_200_000
    assert found["levels"][0]["stored"] and found["levels"][0]["bins"] <= SIDE


def test_a_trace_without_a_timeline_says_so(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    write_rows(path, flow_trace.rows("ring"))
    old = TraceReader(trace="t", title="t", generation=1, path=path, stores=OpenStores())
    assert not timeline.has_timeline(old)
    with pytest.raises(timeline.NoTimelineError, match="load the evidence again"):
        timeline.describe(old)
