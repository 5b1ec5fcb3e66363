"""NCCL Inspector's records of all versions, and its gauges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.inspector import InspectorLoader, InspectorPrometheusLoader, size_of_label
from tests.loaders.sources import columns, dropped, load_with, ns
from tests.loaders.text.recorder import Recorder

SAMPLE = Path(__file__).parents[1] / "data" / "public" / "ras_inspector" / "inspector_v5_sample.jsonl"
DUMPED = 1_716_700_000_000_000


def record(rank: int = 0, sn: int = 7, micros: int = 390, **perf: Any) -> dict[str, Any]:
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 2, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "abc",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": DUMPED + sn,
            "hostname": f"n{rank}",
            "pid": 100 + rank,
        },
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": sn,
            "coll_msg_size_bytes": 1 << 21,
            "coll_exec_time_us": micros,
            "coll_algobw_gbs": 200.0,
            "coll_busbw_gbs": 400.0,
            **perf,
        },
    }


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(r) + "\n" for r in records).encode()


def load(folder: Path, content: bytes | dict[str, bytes]) -> Recorder:
    return load_with(InspectorLoader(), folder, content if isinstance(content, dict) else {"n0-pid100.log": content})


def test_the_public_sample(tmp_path: Path) -> None:
    found = load(tmp_path, SAMPLE.read_bytes())
    rows = columns(found, "comm_rank", "op_kind", "seq", "bytes", "dur_ms", "value", table="events")
    assert rows == [
        (0, "all_reduce", 8500, 2097152, 0.39, 408.6),
        (1, "all_reduce", 8500, 2097152, 0.405, 393.6),
        (8, "all_reduce", 8500, 2097152, 0.398, 401.0),
        (0, "reduce_scatter", 1500, 524288, 0.082, 47.5),
    ]
    assert not dropped(found)


@pytest.mark.parametrize("name", [None, "unknown", "tp"])
@pytest.mark.parametrize("source", [None, "kernel_gpu", "kernel_cpu", "collective_cpu"])
def test_versions_4_and_5(tmp_path: Path, name: str | None, source: str | None) -> None:
    more: dict[str, Any] = {"coll_timing_source": source} if source else {}
    one = record(1, **more)
    if name:
        one["header"]["comm_name"] = name
    found = load(tmp_path, lines(record(0), one))
    row = found.rows(comm_rank=1)[0]
    assert (row["rank"], row["seq"], row["pid"], row.get("name")) == (1, 7, 101, source)
    assert found.host_name(row) == "n1"
    assert row["time_quality"] == "order_only"
    assert [desc for _, desc in found.comms] == ["tp" if name == "tp" else None]


def test_a_late_rank_has_the_shortest_time(tmp_path: Path) -> None:
    found = load(tmp_path, lines(record(0, micros=9000), record(1, micros=400)))
    assert columns(found, "rank", "dur_ms", table="events") == [(0, 9.0), (1, 0.4)]


def test_point_to_point(tmp_path: Path) -> None:
    one = record(0)
    del one["coll_perf"]
    one["p2p_perf"] = {
        "p2p": "Send",
        "p2p_sn": 4,
        "p2p_peer": 1,
        "p2p_msg_size_bytes": 4096,
        "p2p_exec_time_us": 10,
        "p2p_busbw_gbs": 3.0,
    }
    row = load(tmp_path, lines(one, record(1))).rows(op_kind="send")[0]
    assert (row["seq"], row["peer_rank"], row["bytes"], row["dur_ms"], row["value"]) == (4, 1, 4096, 0.01, 3.0)


def test_verbose_records_have_real_times(tmp_path: Path) -> None:
    start = 1_716_699_000_000_000
    times = {
        "coll_start_ts": start,
        "coll_stop_ts": start + 5,
        "kernel_events": [
            {"channel_id": 0, "kernel_start_ts": start + 30, "kernel_stop_ts": start + 390, "kernel_record_ts": 1},
            {"channel_id": 1, "kernel_start_ts": start + 20, "kernel_stop_ts": start + 400, "kernel_record_ts": 1},
        ],
    }
    found = load(tmp_path, lines(record(0, event_trace_sn={"coll_start_sn": 1}, event_trace_ts=times), record(1)))
    (op,) = found.rows("coll_ops")
    assert (op["op_seq"], op["channels"], op["state"], op["dur_ns"]) == (7, 2, "completed", 380_000)
    assert ns(found, "enq_ts") == [start * 1000]
    assert ns(found, "kstart_ts") == [(start + 20) * 1000]
    assert found.rows(comm_rank=0)[0]["time_quality"] == "exact"


def test_verbose_records_without_kernels(tmp_path: Path) -> None:
    found = load(tmp_path, lines(record(0, event_trace_ts={"coll_start_ts": DUMPED}), record(1)))
    (op,) = found.rows("coll_ops")
    assert "dur_ns" not in op
    assert "kstart_ts" not in op


def test_unknown_keys_are_kept(tmp_path: Path) -> None:
    one = record(0, coll_new_thing=5)
    one["something"] = {"a": 1}
    assert json.loads(load(tmp_path, lines(one, record(1))).rows(comm_rank=0)[0]["text"]) == {
        "coll_new_thing": 5,
        "something": {"a": 1},
    }


def test_files_of_one_process_each(tmp_path: Path) -> None:
    found = load(tmp_path, {f"n{r}-pid{100 + r}.log": lines(record(r, 1), record(r, 2)) for r in (0, 1)})
    assert [report.rank for report in found.reports] == [0, 1]
    assert found.ranks[1]["host"] == "n1"


def test_a_group_s_ranks_are_found_by_process(tmp_path: Path) -> None:
    world = [record(r) for r in (0, 1, 2, 3)]
    for one in world:
        one["header"]["n_ranks"] = 4
    group = [record(r) for r in (2, 3)]
    for place, one in enumerate(group):
        one["header"] |= {"id": "0x55", "rank": place}
    found = load(tmp_path, lines(*world, *group))
    assert columns(found, "rank", "comm_rank", table="events", group_name="0x55") == [(2, 0), (3, 1)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"header": {"id": "0x1"\n', "record cut short or broken"),
        (b"not json\n", "line is no record"),
        (b'{"header": {"id": "0x1", "rank": 0}}\n', "record without communicator, rank or operation"),
        (b'{"header": {"id": "0x1", "rank": 0}, "coll_perf": {"coll_sn": 1}}\n', "record without communicator, rank or operation"),  # noqa: E501
        (b'{"header": {"id": -5, "rank": 0}, "coll_perf": {"coll": "AllReduce"}}\n', "record without communicator, rank or operation"),  # noqa: E501
        (b"{" * 5000 + b"\n", "record cut short or broken"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_counted(tmp_path: Path, bad: bytes, reason: str) -> None:
    found = load(tmp_path, lines(record(0)) + bad + lines(record(1)))
    assert dropped(found) == {reason: 1}
    assert [row["line"] for row in found.rows()] == [1, 3]


def test_two_writers_in_one_file(tmp_path: Path) -> None:
    torn = json.dumps(record(0)).encode()[:150] + json.dumps(record(1)).encode() + b"\n"
    found = load(tmp_path, lines(record(0)) + torn)
    assert dropped(found) == {"torn record": 1}
    assert [row["comm_rank"] for row in found.rows()] == [0, 1]


@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, None, -1, 1e300, 2**70, True])
def test_members_of_a_wrong_kind_do_no_harm(tmp_path: Path, value: Any) -> None:
    for part in ("header", "metadata", "coll_perf"):
        for key in [*record()[part], None]:
            broken = record(0)
            if key is None:
                broken[part] = value
            else:
                broken[part][key] = value
            found = load(tmp_path / f"{part}{key}", lines(record(1), broken))
            assert 1 in [row["line"] for row in found.rows()], (part, key)


PROM = """\
# HELP nccl_bus_bandwidth_gbs Bus bandwidth
# TYPE nccl_bus_bandwidth_gbs gauge
nccl_bus_bandwidth_gbs{node="n1",gpu="GPU-aa",comm_name="tp",nranks="8",collective="AllReduce",message_size="1-2MB",algo_proto="RING_LL"} 401.5 1716700000000
nccl_collective_exec_time_microseconds{node="n1",gpu="GPU-aa",comm_name="tp",nranks="8",collective="AllReduce",message_size="1-2MB",algo_proto="RING_LL"} 390 1716700000000
nccl_p2p_exec_time_microseconds{node="n1",gpu="GPU-aa",p2p_operation="Send",message_size="4K"} 12
go_threads 7
nccl_bus_bandwidth_gbs{broken
"""  # noqa: E501


def test_gauges(tmp_path: Path) -> None:
    found = load_with(InspectorPrometheusLoader(), tmp_path, {"nccl_inspector_metrics_GPU-aa.prom": PROM.encode()})
    one, two = found.rows()
    wanted = ("all_reduce", 2 << 20, 0.39, 401.5, "GPU-aa", "RING_LL", "tp")
    assert tuple(one[k] for k in ("op_kind", "bytes", "dur_ms", "value", "device", "name", "group_desc")) == wanted
    assert (two["op_kind"], two["dur_ms"], two["bytes"], "ts" in two) == ("send", 0.012, 4096, False)
    assert found.host_name(one) == "n1"
    assert dropped(found) == {"gauge of another program": 1, "line is no sample": 1}


@pytest.mark.parametrize(
    ("label", "size"),
    [("1-2MB", 2 << 20), ("4K", 4096), ("512", 512), ("1.5GB", 1610612736), ("big", None), ("", None)],
)
def test_size_classes(label: str, size: int | None) -> None:
    assert size_of_label(label) == size
