"""torch.profiler traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders import LOADERS
from mycroft.loaders.kineto import KinetoLoader, group_ranks, kernel_shape, phase_name, rank_of_name
from tests.loaders.text.recorder import Recorder, evidence

DATA = Path(__file__).parents[1] / "data" / "public" / "kineto"
BASE = 1_711_964_646_000_000_000


def event(name: str, cat: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 41, "tid": 7, "ts": ts, "dur": dur, "args": args}


def call(external: int, ts: float, **args: Any) -> dict[str, Any]:
    return event("record_param_comms", "cpu_op", ts, 9, **{"External id": external, **args})


def kernel(external: int, ts: float, dur: float, name: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", **args: Any):
    return event(name, "kernel", ts, dur, **{"External id": external, "stream": 20, **args})


def trace(events: list[dict[str, Any]], **members: Any) -> bytes:
    head: dict[str, Any] = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl",
            "rank": 3,
            "world_size": 4,
            "pg_config": [
                {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 4, "ranks": [0, 1, 2, 3]},
                {"pg_name": "9", "pg_desc": "mesh_tp", "pg_size": 2, "ranks": [2, 3]},
            ],
            "nccl_version": "2.21.5",
        },
        "baseTimeNanoseconds": BASE,
    }
    return json.dumps({**head, **members, "traceEvents": events}).encode()


def load(tmp_path: Path, content: bytes, name: str = "host_77.123.pt.trace.json") -> Recorder:
    recorder = Recorder()
    loader = KinetoLoader()
    files = evidence(tmp_path, {name: content})
    assert loader.sniff(files[0])
    recorder.reports = loader.load(files, recorder)
    return recorder


def ns(found: Recorder, column: str, table: str = "coll_ops") -> list[int | None]:
    """Return a time column in whole ns, which Python's own times cannot hold."""
    return found.frame(table)[column].dt.epoch("ns").to_list()


META = {
    "Collective name": "allreduce",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "dtype": "Float",
    "Process Group Name": "9",
    "Process Group Description": "mesh_tp",
}


def test_a_kernel_is_an_operation_with_arrival_enqueue_and_duration(tmp_path: Path):
    found = load(tmp_path, trace([call(5, 100.5, **META, Seq=42), kernel(5, 4458676524595.135, 20.25, **META, Seq=42)]))
    (op,) = found.rows("coll_ops")
    assert op["rank"] == 3
    assert (op["op_seq"], op["op_kind"], op["op_name"]) == (42, "all_reduce", "allreduce")
    assert op["kstart_ts"] == op["start_ts"]
    assert ns(found, "start_ts") == [BASE + 4_458_676_524_595_135]
    assert op["dur_ns"] == 20_250
    assert ns(found, "enq_ts") == [BASE + 100_500]
    assert (op["bytes"], op["algo"], op["proto"], op["state"]) == (4000, "RING", "LL", "completed")


def test_times_keep_nanoseconds_at_dates_of_today(tmp_path: Path):
    content = trace([kernel(1, 0, 1)]).replace(b'"ts": 0', b'"ts": 1682725898236567.123')
    found = load(tmp_path, content.replace(b"%d" % BASE, b"0"))
    assert ns(found, "start_ts") == [1_682_725_898_236_567_123]


def test_a_call_whose_kernel_never_ran_stays_scheduled(tmp_path: Path):
    found = load(
        tmp_path, trace([call(5, 1, **META, Seq=1), call(6, 2, **META, Seq=2), kernel(5, 3, 1, **META, Seq=1)])
    )
    assert {(op["op_seq"], op["state"]) for op in found.rows("coll_ops")} == {(1, "completed"), (2, "scheduled")}


def test_without_seq_operations_of_a_group_are_numbered_in_order_of_time(tmp_path: Path):
    meta = dict(META)
    found = load(tmp_path, trace([kernel(2, 50, 1, **meta), kernel(1, 10, 1, **meta), kernel(3, 90, 1, **meta)]))
    ops = sorted(found.rows("coll_ops"), key=lambda op: op["start_ts"])
    assert [op["op_seq"] for op in ops] == [0, 1, 2]


def test_a_trace_that_lists_groups_is_no_dump(tmp_path: Path):
    info = {"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}, "traceEvents": []}
    (file,) = evidence(tmp_path, {"h_1.1.pt.trace.json": json.dumps({"schemaVersion": 1, **info}).encode()})
    assert next(loader.name for loader in LOADERS if loader.sniff(file)) == "kineto"


def test_members_of_a_group_come_from_the_distributed_info(tmp_path: Path):
    recorder = Recorder()
    asked: list[dict[str, Any]] = []
    recorder.comm = lambda name, **facts: asked.append({"name": name, **facts}) or 0  # type: ignore[method-assign]
    KinetoLoader().load(evidence(tmp_path, {"a.json": trace([kernel(1, 1, 1, **META)])}), recorder)
    assert asked[0]["ranks"] == [2, 3]
    assert asked[0]["desc"] == "mesh_tp"


def test_steps_and_phases_are_events(tmp_path: Path):
    found = load(
        tmp_path,
        trace(
            [
                event("ProfilerStep#17", "user_annotation", 10, 1000),
                event("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", 20, 400),
                event("nccl:all_reduce", "user_annotation", 30, 1),
                event("## forward ##", "user_annotation", 40, 5),
            ]
        ),
    )
    assert found.event("step")["value"] == 17
    assert [(p["name"], p["dur_ms"]) for p in found.rows("events", kind="phase")] == [
        ("dataloader", 0.4),
        ("forward", 0.005),
    ]


def test_send_and_receive_know_their_peer(tmp_path: Path):
    found = load(
        tmp_path,
        trace([kernel(1, 1, 1, "ncclDevKernel_SendRecv(x)", **{**META, "Collective name": "send", "Dst Rank": 2})]),
    )
    (op,) = found.rows("coll_ops")
    assert (op["op_kind"], op["peer"], op["is_p2p"]) == ("send", 2, True)


def test_waits_and_other_kernels_are_no_operations(tmp_path: Path):
    found = load(
        tmp_path,
        trace(
            [call(1, 1, **{**META, "Collective name": "wait"}), event("gemm", "kernel", 1, 1), kernel(2, 2, 1, **META)]
        ),
    )
    assert len(found.rows("coll_ops")) == 1


def test_a_trace_cut_short_gives_what_was_written(tmp_path: Path):
    content = trace([kernel(i, i, 1, **META, Seq=i) for i in range(50)])
    found = load(tmp_path, content[: len(content) // 2])
    assert 5 < len(found.rows("coll_ops")) < 50
    assert "ends in the middle" in found.reports[0].problems[0]


def test_gzip_is_undone_on_the_way_also_when_cut(tmp_path: Path):
    packed = gzip.compress(trace([kernel(i, i, 1, **META, Seq=i) for i in range(500)]), mtime=0)
    assert len(load(tmp_path, packed, "rank3.json.gz").rows("coll_ops")) == 500
    cut = load(tmp_path, packed[: len(packed) // 2], "rank3.json.gz")
    assert cut.rows("coll_ops")
    assert any("gzip cut short" in p for p in cut.reports[0].problems)


def test_an_event_of_strange_types_is_dropped_and_the_others_stay(tmp_path: Path):
    bad = {"ph": "X", "cat": "kernel", "name": ["ncclKernel"], "ts": {"a": 1}, "args": 5}
    found = load(tmp_path, trace([bad, kernel(1, 1, 1, **META)]))
    assert len(found.rows("coll_ops")) == 1
    assert found.reports[0].dropped.total() == 1


def test_without_a_rank_operations_are_counted_not_guessed(tmp_path: Path):
    found = load(tmp_path, trace([kernel(1, 1, 1, **META)], distributedInfo={"backend": "nccl"}), "x.json")
    assert not found.rows("coll_ops")
    assert "unknown rank" in next(iter(found.reports[0].dropped))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank_3.json", 3),
        ("trace_rank12.json.gz", 12),
        ("a/rank-0.json", 0),
        ("worker.json", None),
        ("rank1_rank2.json", None),
    ],
)
def test_rank_of_a_file_name(name: str, rank: int | None):
    assert rank_of_name(name) == rank


def test_shortened_members_are_built_from_start_and_stride():
    assert group_ranks(
        {"Process Group Ranks": "[0, 2, ...]", "Global rank start": 0, "Global rank stride": 2, "Group size": 4}
    ) == [
        0,
        2,
        4,
        6,
    ]
    assert group_ranks({"Process Group Ranks": "[0, 1]", "Group size": 2}) == [0, 1]
    assert group_ranks({"Process Group Ranks": "[0, 1, ...]"}) is None


def test_names_of_kernels_of_all_releases_tell_algorithm_and_protocol():
    assert kernel_shape("ncclDevKernel_AllReduce_Sum_f32_TREE_LL128(ncclDevKernelArgsStorage<4096ul>)") == (
        "TREE",
        "LL128",
    )
    assert kernel_shape("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)") == (
        "RING",
        "LL",
    )
    assert kernel_shape("ncclDevKernel_SendRecv(x)") == (None, None)


def test_phases_have_one_word():
    assert phase_name("## data_load ##") == "dataloader"
    assert phase_name("save_checkpoint") == "checkpoint"
    assert phase_name("## backward ##") == "backward"


def test_real_trace_of_two_ranks_gives_its_operations(tmp_path: Path):
    found = load(tmp_path, (DATA / "nccl_data.json.gz").read_bytes(), "nccl_data.json.gz")
    ops = found.rows("coll_ops")
    assert len(ops) == 21
    assert {op["op_kind"] for op in ops} == {"all_reduce", "broadcast"}
    assert all(op["rank"] == 0 and op["dur_ns"] > 0 and op["enq_ts"] <= op["start_ts"] for op in ops)
    assert [step["value"] for step in found.rows("events", kind="step")] == [4, 5, 6]


def test_real_trace_without_distributed_info_gives_its_phases(tmp_path: Path):
    found = load(tmp_path, (DATA / "distributed_info_not_found.json.gz").read_bytes(), "x.json.gz")
    assert found.event("step")["value"] == 1009
    assert any(p["name"] == "dataloader" for p in found.rows("events", kind="phase"))


def test_real_trace_without_metadata_of_groups_is_told_apart_by_streams(tmp_path: Path):
    found = load(tmp_path, (DATA / "sampled_rank-0.json.gz").read_bytes(), "sampled_rank-0.json.gz")
    assert len(found.rows("coll_ops")) == 10
    assert all(name.startswith("stream ") for name, _ in found.comms)
