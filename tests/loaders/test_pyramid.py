"""The timeline's levels: every cell is what a plain loop over the rows finds, at every level, from tiles and afresh."""

from __future__ import annotations

import gzip
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.loaders import pyramid
from mycroft.loaders.pyramid import METRICS, SIDE, Plan, Rows
from mycroft.loaders.store import Store, open_store
from mycroft.loaders.timeline_blocks import ABSENT, Ops, joined, unpack
from tests.app import flow_trace
from tests.app.trace_writer import write_rows

Row = tuple[int, int, int, int, int | None, int | None]


def rows_of(rows: list[Row]) -> Rows:
    """Return rows of start, length, y, state, late, wait as the columns that the cells are made of."""
    columns = [
        (start - (max(late or 0, 0) if state != ABSENT else 0), start, start + length, y, state, _or(late), _or(wait))
        for start, length, y, state, late, wait in rows
    ]
    return Rows(*np.array(columns, np.int64).reshape(len(rows), 7).T)


def _or(value: int | None) -> int:
    return -1 if value is None else value


def all_ops(store: Store) -> Ops:
    """Return every operation that the timeline of a trace holds."""
    blocks = store.frame("SELECT content FROM timeline_blocks ORDER BY rowid")["content"].to_list()
    return joined([unpack(block) for block in blocks])


def plainly(rows: list[Row], metric: str, bin_ns: int, y: int, bin_: int) -> int:
    """Return the code of one cell by looking at each row in turn."""
    low, high = bin_ * bin_ns, (bin_ + 1) * bin_ns
    worst = busy = 0
    for start, length, row, state, late, wait in rows:
        if row != y:
            continue
        end = start + max(length, 1)
        inside = start < high and end > low
        if metric == "busy":
            if state != ABSENT:
                busy += max(0, min(start + length, high) - max(start, low))
        elif metric == "state":
            worst = max(worst, state if inside else 0)
        elif metric == "wait":
            if inside and state != ABSENT:
                worst = max(worst, code(-1 if wait is None else wait))
        elif inside and state == ABSENT:
            worst = max(worst, code(-1 if late is None else late))
        elif state != ABSENT:
            worst = max(worst, 1 if inside else 0)
            if late is not None and code(late) > 1 and start - late < high and start >= low:
                worst = max(worst, code(late))
    if metric == "busy":
        return 1 + min(busy, bin_ns) * 253 // bin_ns if busy else 0
    return worst


def code(ns: int) -> int:
    return int(pyramid.code_of_ns(np.array([ns]))[0])


row_of = st.tuples(
    st.integers(0, 4000),
    st.integers(0, 3000),
    st.integers(0, 2),
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(-500, 2000).map(lambda v: v * 1000)),
    st.one_of(st.none(), st.integers(0, 2000).map(lambda v: v * 1000)),
).map(lambda row: (row[0] * 1000, row[1] * 1000, *row[2:]))


@settings(max_examples=60)
@given(st.lists(row_of, max_size=12), st.integers(1, 40), st.integers(0, 60), st.sampled_from(METRICS))
def test_a_cell_is_the_worst_of_the_rows_that_reach_into_it(
    rows: list[Row], bin_us: int, first: int, metric: str
) -> None:
    bin_ns = bin_us * 10_000
    made = pyramid.cells(rows_of(rows), metric=metric, bin_ns=bin_ns, first_bin=first, bins=24, height=3)
    wanted = [[plainly(rows, metric, bin_ns, y, first + bin_) for bin_ in range(24)] for y in range(3)]
    assert made.tolist() == wanted


@settings(max_examples=30)
@given(st.lists(row_of, max_size=12), st.sampled_from(["late", "wait", "state"]))
def test_a_coarser_level_is_what_its_longer_bins_would_hold(rows: list[Row], metric: str) -> None:
    found = rows_of(rows)
    fine = pyramid.cells(found, metric=metric, bin_ns=50_000, first_bin=0, bins=150, height=3)
    coarse = pyramid.cells(found, metric=metric, bin_ns=200_000, first_bin=0, bins=38, height=3)
    assert np.array_equal(pyramid.coarser(fine), coarse)


@given(st.integers(1, 10**14), st.integers(1, 200_000), st.integers(0, 10**10))
def test_levels_are_four_times_as_long_and_the_coarsest_fits_one_tile(span: int, ranks: int, ops: int) -> None:
    made = pyramid.plan(0, span, ranks, ops)
    assert made.bins(0) <= SIDE
    assert all(a == b * pyramid.STEP for a, b in zip(made.bins_ns, made.bins_ns[1:], strict=False))
    assert made.bins(made.stored - 1) * ranks * pyramid.OPS_A_CELL <= max(ops, ranks * SIDE * pyramid.OPS_A_CELL)
    assert Plan.from_json(made.to_json()) == made


def test_codes_keep_the_order_of_times_and_say_when_they_overflow() -> None:
    times = np.array([-5, 0, 9_999, 10_000, 10**6, 3 * 10**8, 10**12, 10**12 + 1])
    codes = pyramid.code_of_ns(times).tolist()
    assert codes == sorted(codes)
    assert codes[:3] == [1, 1, 1] and codes[3] == 2 and codes[-2] == 254 and codes[-1] == 255
    for ns in (10_000, 123_456, 3 * 10**8, 5 * 10**11):
        assert pyramid.ns_of_code(code(ns)) == pytest.approx(ns, rel=0.08)
        assert pyramid.ns_of_code(code(ns)) <= ns * 1.0001


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    path = tmp_path_factory.mktemp("pyramid") / "trace.duckdb"
    write_rows(path, flow_trace.rows("ring"))
    made = pyramid.build(path)
    assert made is not None
    return path, made


def test_tiles_that_are_kept_are_those_that_the_rows_give(built: tuple[Path, Plan]) -> None:
    path, made = built
    with open_store(path) as store:
        rows = Rows.of(all_ops(store), 0)
        kept = store.frame("SELECT metric, level, y, x, cells FROM timeline_tiles").to_dicts()
    found = {(t["metric"], t["level"], t["y"], t["x"]): t["cells"] for t in kept}
    for metric in METRICS:
        for level in range(made.stored):
            bin_ns = made.bins_ns[level]
            for x in range(-(-made.bins(level) // SIDE)):
                bins = min(SIDE, made.bins(level) - x * SIDE)
                wanted = pyramid.cells(rows, metric=metric, bin_ns=bin_ns, first_bin=x * SIDE, bins=bins)
                content = found.get((metric, level, 0, x))
                if content is None:
                    assert not wanted.any()
                    continue
                tile = np.frombuffer(gzip.decompress(content), np.uint8).reshape(SIDE, SIDE)
                assert np.array_equal(tile[:, :bins], wanted)


@pytest.mark.parametrize("most", [1, 7, 50])
def test_pieces_of_any_size_make_the_same_timeline(
    built: tuple[Path, Plan], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where more operations begin at one moment than a piece holds."""
    path = tmp_path / "pieces.duckdb"
    write_rows(path, flow_trace.rows("ring"))
    monkeypatch.setattr(pyramid, "_PIECE_ROWS", most)
    monkeypatch.setattr(pyramid, "_SHARE_ROWS", 3 * most)
    assert pyramid.build(path) == built[1]

    def content(of: Path) -> tuple[list[tuple[object, ...]], list[tuple[int, ...]]]:
        with open_store(of) as store:
            tiles = store.frame("FROM timeline_tiles ORDER BY metric, level, y, x").rows()
            ops = all_ops(store)
            counts = store.frame("SELECT sum(ops)::BIGINT FROM timeline_blocks").item()
        assert counts == len(ops)
        return tiles, sorted(zip(*(getattr(ops, field.name).tolist() for field in fields(Ops)), strict=True))

    assert content(path) == content(built[0])


def test_a_member_that_did_not_come_is_marked_until_the_end(tmp_path: Path) -> None:
    rows = flow_trace.rows("ring")
    rows["coll_ops"] = [op for op in rows["coll_ops"] if (op["rank"], op["op_seq"]) != (3, flow_trace.SEQ)]
    path = tmp_path / "absent.duckdb"
    write_rows(path, rows)
    made = pyramid.build(path)
    assert made is not None
    with open_store(path) as store:
        ops = all_ops(store)
    absent = ops.take(ops.state == ABSENT)
    assert (absent.y.tolist(), absent.seq.tolist()) == ([3], [flow_trace.SEQ])
    assert absent.end_us.tolist() == [made.span_ns // 1000]
    assert absent.late_us.tolist() == [made.span_ns // 1000 - absent.start_us[0]]


def test_a_stall_of_300_ms_survives_every_level_of_a_day(tmp_path: Path) -> None:
    """The rank comes 300 ms late once in 24 hours: at every level, also those made afresh, its cell says so."""
    path, (made, at) = tmp_path / "day.duckdb", day_trace(tmp_path / "day.duckdb")
    with open_store(path) as store:
        rows = Rows.of(all_ops(store), 0)
    wanted = code(300_000_000)
    for level, bin_ns in enumerate(made.bins_ns):
        first = at // bin_ns
        cells = pyramid.cells(rows, metric="late", bin_ns=bin_ns, first_bin=first, bins=1, height=4)
        assert cells[2, 0] == wanted, f"level {level}"
        assert max(cells[0, 0], cells[1, 0], cells[3, 0]) < wanted


def day_trace(path: Path) -> tuple[Plan, int]:
    """Write a day of operations of four ranks; rank 2 is 300 ms late once. Return the plan and that moment, ns."""
    late_at = 700
    ops: list[dict[str, Any]] = []
    for seq in range(1440):
        for rank in range(4):
            late = 0.3 if (seq, rank) == (late_at, 2) else 0.0
            start = flow_trace.START + timedelta(minutes=seq, milliseconds=rank * 0.001, seconds=late)
            ops.append(
                {
                    "rank": rank,
                    "comm_id": 0,
                    "op_seq": seq,
                    "op_kind": "all_reduce",
                    "start_ts": start,
                    "enq_ts": start,
                    "dur_ns": int((0.5 - late) * 1e9),
                    "state": "completed",
                }
            )
    made = flow_trace.rows("ring", blamed=False)
    made |= {"coll_ops": ops, "flow_state": [], "flow_ops": [], "members": made["members"][:4]}
    made |= {"ranks": made["ranks"][:4], "jobs": [{"job_id": 0, "world_size": 4}]}
    write_rows(path, made)
    plan = pyramid.build(path)
    assert plan is not None
    return plan, late_at * 60_000_000_000 + 150_000_000


def test_a_trace_without_times_has_no_timeline(tmp_path: Path) -> None:
    rows = flow_trace.rows("ring")
    path = tmp_path / "none.duckdb"
    write_rows(path, {**rows, "coll_ops": []})
    assert pyramid.build(path) is None
    with open_store(path) as store:
        assert pyramid.META_KEY not in store.meta
