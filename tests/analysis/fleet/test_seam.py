from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.analysis.fleet import LocalExecutor, Window, digest, merge, partial, run
from mycroft.analysis.fleet.reductions import ACTIVITY, REDUCTIONS, SERVICE, SNAPSHOT
from mycroft.analysis.fleet.seam import Reduction
from tests.analysis.fleet.pieces import START, TablePiece, made_up, split

WHOLE = Window(0, START + 10**15)


def as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()


def merged_at_random(reduction: Reduction, parts: list[pa.Table], draw: random.Random) -> pa.Table:
    """Merge two or three of them at a time, whichever, until one is left."""
    parts = list(parts)
    while len(parts) > 1:
        draw.shuffle(parts)
        count = min(len(parts), draw.choice((2, 2, 3)))
        parts = [*parts[count:], merge(reduction, parts[:count])]
    return parts[0]


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda r: r.name)
@settings(max_examples=15, deadline=None)
@given(rows=st.integers(0, 120), pieces=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_any_split_and_any_order_of_merging_give_the_bytes_of_the_single_run(
    reduction: Reduction, rows: int, pieces: int, seed: int
) -> None:
    table = made_up(reduction.table, rows, seed=seed)
    single = partial(reduction, TablePiece(table), WHOLE)
    parts = [partial(reduction, piece, WHOLE) for piece in split(table, pieces, seed=seed)]
    together = merged_at_random(reduction, parts, random.Random(seed))
    assert together.equals(single)
    assert as_bytes(together) == as_bytes(single)
    assert digest(together) == digest(single)


def test_result_is_what_the_rows_say() -> None:
    """The property above would hold for a reduction that returns nothing."""
    table = made_up("state", 400, seed=1)
    found = partial(ACTIVITY, TablePiece(table), WHOLE).to_pylist()
    rows = table.set_column(2, "ts", table.column("ts").cast(pa.int64())).to_pylist()
    expected: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        key = row["process"], row["ts"] // 60_000_000_000
        group = expected.setdefault(key, {"rows": 0, "idle": []})
        group["rows"] += 1
        group["idle"] += [row["idle_ms"]] if row["idle_ms"] is not None else []
    assert {
        (row["process"], row["minute"]): (row["rows"], row["idle_ms_max"], row["idle_to_300"]) for row in found
    } == {
        key: (group["rows"], max(group["idle"], default=None), sum(idle < 300 for idle in group["idle"]))
        for key, group in expected.items()
    }


def test_last_row_of_a_flow_is_the_latest_also_where_its_counters_are_unknown() -> None:
    table = made_up("state", 300, seed=2)
    whole = partial(SNAPSHOT, TablePiece(table), WHOLE)
    place = whole.schema.get_field_index("last_ts")
    found = whole.set_column(place, "last_ts", whole.column(place).cast(pa.int64())).to_pylist()
    keys = ("process", "comm", "op_seq", "channel", "send", "peer", "flow_id")
    newest: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in table.set_column(2, "ts", table.column("ts").cast(pa.int64())).to_pylist():
        key = tuple(row[name] for name in keys)
        newest[key] = max(newest.get(key, (0, 0)), (row["ts"], row["position"]))
    at = {tuple(r[k] for k in keys): (r["last_ts"], r["last_position"]) for r in found}
    assert at == newest
    assert any(row["last_done"] is None for row in found), "the sample has no unknown counter; the test shows nothing"


def test_rows_outside_of_the_window_do_not_count() -> None:
    table = made_up("flow", 200, seed=3)
    window = Window(START + 1, START + 80_000_000_000)
    inside = table.filter(pa.compute.equal(table.column("end_ts").cast(pa.int64()), START + 40_000_000_000))
    found = partial(SERVICE, TablePiece(table), window)
    assert sum(found.column("flows").to_pylist()) == inside.num_rows > 0


def test_nothing_is_a_result_too() -> None:
    assert run(SNAPSHOT, [], WHOLE, LocalExecutor()).num_rows == 0
    assert digest(merge(SNAPSHOT, [])) == digest(partial(SNAPSHOT, TablePiece(made_up("state", 0, seed=0)), WHOLE))


def test_digest_tells_values_unknown_values_and_columns_apart() -> None:
    base = pa.table({"a": pa.array([1, None, 3])})
    others = [
        pa.table({"a": pa.array([1, 2, 3])}),
        pa.table({"a": pa.array([1, 3, None])}),
        pa.table({"b": pa.array([1, None, 3])}),
        pa.table({"a": pa.array([1, None, 3], pa.int32())}),
    ]
    assert len({digest(table) for table in (base, *others)}) == 5
    # What lies under an unknown value does not count.
    hidden = pa.Array.from_buffers(
        pa.int64(), 3, [base.column(0).chunk(0).buffers()[0], pa.array([1, 9, 3]).buffers()[1]]
    )
    assert digest(pa.table({"a": hidden})) == digest(base)


def test_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="no window"):
        Window(2, 1)
