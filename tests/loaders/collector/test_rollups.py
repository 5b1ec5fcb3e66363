"""Roll-ups: sums of minutes that are the same however rows were cut into files and files put together."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mycroft.loaders.collector import Collector, CollectorSettings
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.loaders.collector.rollups import HOST_MINUTE, OP_MINUTE, SCHEMAS, merge, read_rollup
from mycroft.tracer.agent import Batch, encode
from mycroft.tracer.agent.batch import Gap, HostFact, schema_of
from tests.tracer.agent.batches import a_batch, numbered

MINUTE = 60_000_000_000


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return a_batch(tmp_path_factory.mktemp("rings") / "r")


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    return Collector(CollectorSettings(folder=tmp_path / "store", segment_s=3600.0, reserve_bytes=0))


def take(collector: Collector, *wires: bytes) -> None:
    """Keep batches and turn them into segments: one file of the log."""
    collector.start()
    for wire in wires:
        collector.take(wire)
    collector.flush()


def every_row(collector: Collector, name: str) -> pa.Table:
    return pa.concat_tables(
        pq.read_table(collector.root / segment.path, partitioning=None)
        for segment in read_manifest(collector.manifest_folder).segments
        if segment.table == name
    )


def test_host_minutes_say_what_the_rows_say(collector: Collector, batch: Batch) -> None:
    take(collector, numbered(batch, 1), numbered(batch, 2), numbered(batch, 1, host="other"))
    found = {row["host"]: row for row in read_rollup(collector.root, HOST_MINUTE).cast(_plain(HOST_MINUTE)).to_pylist()}
    ops, flows, beats = batch.tables["op"], batch.tables["flow"], batch.tables["heartbeat"]
    assert set(found) == {"host0", "other"}
    for host, times in (("host0", 2), ("other", 1)):
        row = found[host]
        assert row["minute"] % MINUTE == 0
        assert row["minute"] == pc.min(ops.column("enq_ts").cast(pa.int64())).as_py() // MINUTE * MINUTE
        assert (row["ops"], row["flows"]) == (times * ops.num_rows, times * flows.num_rows)
        assert row["op_bytes"] == times * pc.sum(ops.column("bytes")).as_py()
        assert row["flow_bytes"] == times * pc.sum(flows.column("bytes")).as_py()
        assert row["dur_max_ns"] == pc.max(ops.column("dur_ns")).as_py()
        assert row["dur_min_ns"] == pc.min(ops.column("dur_ns")).as_py()
        assert row["timed"] == times * (ops.num_rows - ops.column("dur_ns").null_count)
        assert (row["dur_sum_ns"] or 0) == times * (pc.sum(ops.column("dur_ns")).as_py() or 0)
        assert row["open_ops_max"] == pc.max(beats.column("open_ops")).as_py()
        assert row["processes"] == 1
    collector.close()


def test_operation_counts_once_however_often_it_was_told_while_it_was_open(collector: Collector, batch: Batch) -> None:
    ops = batch.tables["op"]
    told = []
    for times, column in ((1, "op_state"), (2, "reopened")):
        # As the tracer tells what is open when it looks, and what ends again after a late part.
        value = 0 if column == "op_state" else 1
        changed = {
            "position": pc.add(ops.column("position"), pa.scalar(1000 * times, pa.uint64())),
            column: pa.array([value] * ops.num_rows, ops.schema.field(column).type),
        }
        again = ops
        for name, values in changed.items():
            again = again.set_column(ops.schema.get_field_index(name), ops.schema.field(name), values)
        told.append(again)
    tables = {**batch.tables, "op": pa.concat_tables([ops, *told])}
    rows = batch.key.rows + 2 * ops.num_rows
    again = replace(batch, tables=tables, key=replace(batch.key, rows=rows))
    take(collector, numbered(again, 1))
    (host,) = read_rollup(collector.root, HOST_MINUTE, columns=["ops", "op_bytes", "timed"]).to_pylist()
    (shape,) = read_rollup(collector.root, OP_MINUTE, columns=["ops", "timed"]).to_pylist()
    timed = ops.num_rows - ops.column("dur_ns").null_count
    assert (host["ops"], host["op_bytes"]) == (ops.num_rows, pc.sum(ops.column("bytes")).as_py())
    assert (shape["ops"], host["timed"], shape["timed"]) == (ops.num_rows, timed, timed)
    collector.close()


def _plain(name: str) -> pa.Schema:
    """The schema with times as integers: Python has none of a nanosecond."""
    return pa.schema([pa.field(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in SCHEMAS[name]])


def test_shapes_of_operations_have_names_and_sizes(collector: Collector, batch: Batch) -> None:
    take(collector, numbered(batch, 1), numbered(batch, 1, host="other"))
    (row,) = read_rollup(collector.root, OP_MINUTE).cast(_plain(OP_MINUTE)).to_pylist()
    comm = batch.rings[0].communicators[0]
    assert (row["op_kind"], row["bytes"], row["comm"]) == ("all_reduce", 1 << 20, comm.hash)
    assert (row["comm_name"], row["comm_size"], row["ops"]) == ("dp", 2, 2 * batch.tables["op"].num_rows)
    assert row["last_seq"] - row["first_seq"] + 1 == batch.tables["op"].num_rows
    collector.close()


def test_files_that_end_within_a_minute_change_nothing_nor_does_putting_them_together(
    tmp_path: Path, batch: Batch
) -> None:
    wires = [numbered(batch, seq, host=host) for seq in range(1, 17) for host in ("a", "b")]
    found: dict[str, list[pa.Table]] = {HOST_MINUTE: [], OP_MINUTE: []}
    for cut in (1, 32):
        collector = Collector(
            CollectorSettings(folder=tmp_path / f"{cut}", segment_s=3600.0, reserve_bytes=0, grace_s=0.0)
        )
        for at in range(0, len(wires), cut):
            take(collector, *wires[at : at + cut])
        for name, tables in found.items():
            files = [s for s in read_manifest(collector.manifest_folder).segments if s.table == name]
            assert len(files) == 1 if cut == 32 else any(file.level == 1 for file in files)
            tables.append(read_rollup(collector.root, name))
        collector.close()
    for name, (cut_up, whole) in found.items():
        assert cut_up == whole
        assert whole.num_rows == (2 if name == HOST_MINUTE else 1)


@pytest.mark.parametrize("name", [HOST_MINUTE, OP_MINUTE])
def test_merging_in_any_order_gives_the_same(name: str) -> None:
    draw = random.Random(7)
    rows = pa.Table.from_pylist([_random_row(name, draw) for _ in range(400)], schema=_plain(name)).cast(SCHEMAS[name])
    whole = merge(name, [rows])
    assert whole.num_rows < rows.num_rows
    for _ in range(10):
        order = list(range(rows.num_rows))
        draw.shuffle(order)
        cuts = sorted(draw.sample(range(1, rows.num_rows), 5))
        parts = [rows.take(order[a:b]) for a, b in zip([0, *cuts], [*cuts, rows.num_rows], strict=True)]
        left = merge(name, [merge(name, parts[:3]), *parts[3:]])
        assert left == whole
        assert merge(name, [merge(name, [part]) for part in reversed(parts)]) == whole


def _random_row(name: str, draw: random.Random) -> dict[str, object]:
    def value(field: pa.Field) -> object:
        if field.name == "minute":
            return draw.randrange(3) * MINUTE
        if pa.types.is_string(field.type):
            return draw.choice(["a", "b", None])
        return draw.choice([None, draw.randrange(3 if field.name in ("comm", "bytes") else 1000)])

    return {field.name: value(field) for field in SCHEMAS[name]}


def test_a_short_standstill_is_seen_in_its_minute(collector: Collector, batch: Batch) -> None:
    schema = schema_of("state")
    row = dict.fromkeys(schema.names, 0) | {"ts": 5 * MINUTE + 1, "idle_ms": 300, "position": 999}
    states = pa.Table.from_pylist([row, {**row, "idle_ms": 7, "position": 1000}], schema=schema)
    ring = batch.rings[0]
    take(collector, encode(replace(batch, tables={"state": states}, rings=(replace(ring, next=2000),))))
    (found,) = (
        read_rollup(collector.root, HOST_MINUTE, columns=["idle_max_ms"])
        .cast(
            pa.schema(
                [("minute", pa.int64()), ("host", pa.string()), ("job", pa.string()), ("idle_max_ms", pa.uint32())]
            )
        )
        .to_pylist()
    )
    assert (found["minute"], found["idle_max_ms"]) == (5 * MINUTE, 300)
    assert read_rollup(collector.root, HOST_MINUTE, since_ns=6 * MINUTE).num_rows == 0
    assert read_rollup(collector.root, HOST_MINUTE, until_ns=5 * MINUTE).num_rows == 0
    collector.close()


def test_lost_rows_and_errors_of_devices_are_counted(collector: Collector, batch: Batch) -> None:
    at = batch.key.made_ns
    told = replace(
        batch,
        gaps=(Gap(why="spool full", rows=17), Gap(why="spool full", rows=4)),
        facts=(
            HostFact(ts_ns=at, kind="xid", number=79.0, text="fallen off the bus"),
            HostFact(ts_ns=at, kind="sm_clock_mhz", number=1980.0),
        ),
    )
    take(collector, encode(told))
    rows = read_rollup(collector.root, HOST_MINUTE).to_pydict()
    assert (sum(n or 0 for n in rows["lost_rows"]), sum(n or 0 for n in rows["errors"])) == (21, 1)
    facts = every_row(collector, "facts").drop_columns(["ts"]).to_pydict()
    assert facts["host"] == ["host0", "host0"]
    assert sorted(facts["kind"]) == ["sm_clock_mhz", "xid"]
    collector.close()
