"""SQLite exports of Nsight Systems, whole, partial and hostile."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mycroft.loaders.nsight import NsightLoader
from tests.loaders.sources import columns, dropped, load_with, ns, problems
from tests.loaders.text.recorder import Recorder

PID = 5 << 24 | 0x1000000000000
UTC = 1_771_200_000_000_000_000
STRINGS = """
create table StringIds(id integer primary key, value text);
insert into StringIds values
  (1, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)'), (2, 'gemm'),
  (3, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL'), (4, 'ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)'),
  (5, 'ncclAllReduce');
"""
KERNELS = f"""
create table CUPTI_ACTIVITY_KIND_KERNEL(start int, end int, deviceId int, contextId int, streamId int,
  correlationId int, globalPid int, demangledName int, shortName int);
insert into CUPTI_ACTIVITY_KIND_KERNEL values
  (500, 800, 0, 1, 7, 54, {PID}, 2, 2), (1000, 2000, 0, 1, 7, 55, {PID}, 1, 3), (3000, 3500, 0, 1, 7, 56, {PID}, 1, 3),
  (4000, 4100, 0, 1, 9, 57, {PID}, 4, 4);
"""
RUNTIME = """
create table CUPTI_ACTIVITY_KIND_RUNTIME(start int, end int, globalTid int, correlationId int, nameId int);
insert into CUPTI_ACTIVITY_KIND_RUNTIME values (900, 950, 0, 55, 9), (2900, 2950, 0, 56, 9);
"""
SESSION = f"create table TARGET_INFO_SESSION_START_TIME(utcEpochNs int); insert into TARGET_INFO_SESSION_START_TIME values ({UTC});"  # noqa: E501
HOST = "create table TARGET_INFO_SYSTEM_ENV(name text, value text); insert into TARGET_INFO_SYSTEM_ENV values ('Hostname', 'n1');"  # noqa: E501
NVTX = f"""
create table NVTX_EVENTS(start int, end int, eventType int, text text, textId int, globalTid int, domainId int);
insert into NVTX_EVENTS values (100, 200, 59, null, 5, {PID | 77}, 1), (300, null, 59, 'ncclBroadcast', null, {PID}, 1),
  (10, 20, 59, 'step', null, {PID}, 0), (10, 20, 34, 'ncclX', null, {PID}, 0);
"""


def load(folder: Path, *scripts: str, name: str = "report_rank_3.sqlite") -> Recorder:
    folder.mkdir(exist_ok=True)
    path = folder / "made.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("".join(scripts))
        db.commit()
    return load_with(NsightLoader(), folder, {name: path.read_bytes()})


def test_kernels_calls_and_host(tmp_path: Path) -> None:
    found = load(tmp_path, STRINGS, KERNELS, RUNTIME, SESSION, HOST)
    ops = columns(found, "rank", "op_seq", "op_kind", "dur_ns", "stream", "algo", "proto")
    assert ops == [
        (3, 0, "all_reduce", 1000, 7, "RING", "LL"),
        (3, 1, "all_reduce", 500, 7, "RING", "LL"),
        (3, 0, "coalesced", 100, 9, "RING", "SIMPLE"),
    ]
    assert ns(found, "kstart_ts")[:2] == [UTC + 1000, UTC + 3000]
    assert ns(found, "enq_ts")[:2] == [UTC + 900, UTC + 2900]
    assert found.ranks[3] == {"host": "n1", "pid": 5}
    row = found.rows(kind="op_perf")[0]
    assert (row["pid"], row["device"], found.host_name(row), row["time_quality"]) == (5, "GPU 0", "n1", "exact")


@pytest.mark.parametrize("columns_", ["shortName", "demangledName"])
def test_either_name_of_a_kernel_will_do(tmp_path: Path, columns_: str) -> None:
    other = {"shortName": "demangledName", "demangledName": "shortName"}[columns_]
    drop = f"alter table CUPTI_ACTIVITY_KIND_KERNEL drop column {other};"
    found = load(tmp_path, STRINGS, KERNELS, drop, SESSION)
    assert len(found.rows("coll_ops")) == 3
    assert all("enq_ts" not in op for op in found.rows("coll_ops"))


def test_without_kernels_the_ranges_are_taken(tmp_path: Path) -> None:
    found = load(tmp_path, STRINGS, NVTX, SESSION)
    rows = [(r["name"], r["op_kind"], r.get("dur_ms"), r["pid"]) for r in found.rows(kind="op_perf")]
    assert rows == [("ncclAllReduce", "all_reduce", 0.0001, 5), ("ncclBroadcast", "broadcast", None, 5)]


def test_without_a_start_time_only_the_order_counts(tmp_path: Path) -> None:
    row = load(tmp_path, STRINGS, KERNELS).rows(kind="op_perf")[0]
    assert (row["time_quality"], "ts" in row) == ("order_only", False)


def test_a_report_of_several_processes_has_no_rank(tmp_path: Path) -> None:
    second = f"insert into CUPTI_ACTIVITY_KIND_KERNEL values (1, 2, 1, 1, 7, 58, {PID + (1 << 24)}, 1, 3);"
    found = load(tmp_path, STRINGS, KERNELS, second, SESSION)
    assert "coll_ops" not in found._frames
    assert len(found.rows(kind="op_perf")) == 4


def test_a_report_without_nccl_says_what_to_do(tmp_path: Path) -> None:
    assert "--trace=cuda,nvtx" in problems(load(tmp_path, STRINGS, SESSION))


def test_views_are_not_asked(tmp_path: Path) -> None:
    slow = "create view CUPTI_ACTIVITY_KIND_KERNEL as with recursive c(x) as (select 1 union all select x + 1 from c) select x as start, x as end, x as deviceId, x as streamId, x as correlationId, x as shortName from c;"  # noqa: E501
    assert "no NCCL kernels" in problems(load(tmp_path, STRINGS, SESSION, slow))


@pytest.mark.parametrize(
    "script",
    [
        "update CUPTI_ACTIVITY_KIND_KERNEL set start = 'x';",
        "update CUPTI_ACTIVITY_KIND_KERNEL set end = 0;",
        "update StringIds set value = x'ff6e63636c';",
    ],
)
def test_values_of_a_wrong_kind_do_no_harm(tmp_path: Path, script: str) -> None:
    found = load(tmp_path, STRINGS, KERNELS, RUNTIME, SESSION, script)
    assert problems(found) or dropped(found) or "coll_ops" not in found._frames


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_file_cut_short_is_reported(tmp_path: Path, share: float) -> None:
    load(tmp_path / "whole", STRINGS, KERNELS, RUNTIME, SESSION, HOST)
    content = (tmp_path / "whole" / "made.sqlite").read_bytes()
    cut = bytearray(content[: int(len(content) * share)])
    found = load_with(NsightLoader(), tmp_path, {"report_rank_3.sqlite": bytes(cut)}, sniffed=False)
    assert problems(found) or found.rows("coll_ops")
