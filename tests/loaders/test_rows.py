"""Rows on their way to the store, bytes on their way in."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.base import LoadReport
from mycroft.loaders.byte_stream import LineCount, lines, pieces
from mycroft.loaders.profiled_ops import ProfiledOp, clock_offsets
from mycroft.loaders.prometheus import samples
from mycroft.loaders.rows import MAX_TEXT, RowBuffer, clip
from tests.loaders.text.recorder import Recorder


def events(**values: Any) -> tuple[Recorder, LoadReport]:
    recorder, report = Recorder(), LoadReport(0, "x")
    buffer = RowBuffer(recorder, "events", report)
    buffer.add(kind="op_perf", file_id=0, line=1, name="sound")
    buffer.add(**{"kind": "op_perf", "file_id": 0, "line": 2, **values})
    buffer.flush()
    return recorder, report


@pytest.mark.parametrize(
    ("column", "value"),
    [("rank", -1), ("rank", 2**32), ("seq", 2**64), ("dur_ms", "x"), ("ts", 2**70)],
)
def test_a_value_that_does_not_fit_is_left_out_and_counted(column: str, value: object) -> None:
    recorder, report = events(**{column: value})
    rows = recorder.rows()
    assert [row.get("name") for row in rows] == ["sound", None]
    assert column not in rows[1]
    assert report.dropped == {"value out of range": 1}
    assert report.rows == 2


def test_a_row_without_what_it_must_have_is_dropped() -> None:
    recorder, report = Recorder(), LoadReport(0, "x")
    buffer = RowBuffer(recorder, "coll_ops", report)
    for rank in (3, -1):
        buffer.add(rank=rank, comm_id=0, op_seq=1, op_kind="all_reduce", state="started", file_id=0)
    buffer.flush()
    assert [row["rank"] for row in recorder.rows("coll_ops")] == [3]
    assert report.dropped == {"a required value is out of range": 1}
    assert report.rows == 1


def test_a_column_that_is_none_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="has no column"):
        events(nonsense=1)


def test_long_texts_are_cut() -> None:
    assert clip("x" * MAX_TEXT) == "x" * MAX_TEXT
    assert len(clip("x" * (MAX_TEXT + 1))) == MAX_TEXT
    assert clip("x" * (MAX_TEXT + 1)).endswith("…")


def test_pieces_undo_gzip_also_of_several_members(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"a" * 3_000_000) + gzip.compress(b"b"))
    report = LoadReport(0, "x")
    assert b"".join(pieces(path, report)) == b"a" * 3_000_000 + b"b"
    assert not report.problems


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_gzip_cut_short_gives_what_it_can(tmp_path: Path, keep: float) -> None:
    noise = random.Random(3).randbytes(200_000)
    packed = gzip.compress(noise)
    path = tmp_path / "x.gz"
    path.write_bytes(packed[: int(len(packed) * keep)])
    report = LoadReport(0, "x")
    found = b"".join(pieces(path, report))
    assert noise.startswith(found)
    assert len(found) > len(noise) * keep * 0.8
    assert report.problems == ["gzip cut short; kept what could be read"]


def test_gzip_that_breaks_in_the_middle(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(random.Random(3).randbytes(200_000)))
    packed[100_000:100_100] = bytes(100)
    path = tmp_path / "x.gz"
    path.write_bytes(packed)
    report = LoadReport(0, "x")
    b"".join(pieces(path, report))
    assert "gzip" in report.problems[0]


def test_gzip_that_grows_without_end_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20), 9))
    report = LoadReport(0, "x")
    total = sum(len(piece) for piece in pieces(path, report))
    assert total <= (64 << 20)
    # Zeros compress a thousand times; what is let through is bounded by what came in.
    assert total == 64 << 20 or "grows more than" in report.problems[0]


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    report = LoadReport(0, "x")
    assert list(pieces(tmp_path / "none", report)) == []
    assert "cannot be read" in report.problems[0]


def test_lines_have_numbers_and_no_ends(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\r\n\nb\nc")
    assert list(lines(path, LoadReport(0, "x"))) == [(1, b"a"), (2, b""), (3, b"b"), (4, b"c")]


@pytest.mark.parametrize("size", [1 << 20, 5 << 20])
def test_a_line_too_long_is_passed_over_and_counted(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\n" + b"x" * size + b"\nb\n" + b"y" * size)
    report = LoadReport(0, "x")
    assert list(lines(path, report, max_line=1 << 19)) == [(1, b"a"), (3, b"b")]
    assert sum(report.dropped.values()) == 2


@pytest.mark.parametrize("width", [1, 3, 100])
def test_lines_of_offsets(width: int) -> None:
    data = b"ab\ncd\n\nef"
    count = LineCount()
    at = 0
    found: list[int] = []
    for begin in range(0, len(data), width):
        count.feed(data[begin : begin + width])
        while at < min(begin + width, len(data)):
            found.append(count.line(at))
            at += 1
    assert found == [1, 1, 1, 2, 2, 2, 3, 4, 4]


def test_samples_of_prometheus(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text('# TYPE a gauge\na{x="1\\"2",y="\\\\"} 1.5 1700000000000\nb 7\nc{ NaN\n d{z="q"} +Inf\n')
    report = LoadReport(0, "x")
    found = list(samples(path, report))
    assert [(s.line, s.name, s.labels) for s in found[:2]] == [(2, "a", (("x", '1"2'), ("y", "\\"))), (3, "b", ())]
    assert (found[0].value, found[0].ts_ns, found[1].ts_ns) == (1.5, 1_700_000_000_000_000_000, None)
    assert report.dropped["line is no sample"] >= 1


def op(clock: int, seq: int, end: int | None, hash_: int = 1) -> ProfiledOp:
    return ProfiledOp(clock, 1, clock, hash_, clock, seq, "all_reduce", 0, end)


def test_clocks_meet_where_shared_operations_end() -> None:
    ops = [op(clock, seq, 1000 * seq + shift) for clock, shift in ((0, 0), (1, 500), (2, -70)) for seq in range(9)]
    assert clock_offsets(ops) == {0: 0, 1: -500, 2: 70}


def test_one_odd_end_does_not_move_a_clock() -> None:
    ops = [op(0, seq, 1000 * seq) for seq in range(9)] + [op(1, seq, 1000 * seq + 5) for seq in range(8)]
    assert clock_offsets([*ops, op(1, 8, 99_999_999)])[1] == -5


def test_clocks_are_joined_through_others() -> None:
    ops = [
        op(0, 1, 10, hash_=1),
        op(1, 1, 110, hash_=1),
        op(1, 1, 200, hash_=2),
        op(2, 1, 250, hash_=2),
        op(3, 1, 5, hash_=3),
    ]
    assert clock_offsets(ops) == {0: 0, 1: -100, 2: -150, 3: 0}


def test_operations_that_never_ended_tell_nothing_of_clocks() -> None:
    assert clock_offsets([op(0, 1, None), op(1, 1, 5)]) == {0: 0, 1: 0}
