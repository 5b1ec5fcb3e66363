"""xpu_timer: timelines, stacks and gauges."""

from __future__ import annotations

from pathlib import Path

import pytest

from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.xpu_timer import XpuTimerLoader, XpuTimerMetricsLoader
from tests.loaders.proto_bytes import field
from tests.loaders.sources import dropped, load_with, ns, problems

T0 = 1_771_200_000_000_000


def kernel(
    seq: int = 42, *, hash_: int = 0x5D7C1E90AB12F4, size: int = 8, start: int = T0, direction: int = 0
) -> bytes:
    nccl = field(3, hash_) + field(4, 1024) + field(5, "bf16") + field(6, size) + field(7, 1) + field(8, seq)
    nccl += field(10, direction) if direction else b""
    body = field(1, 1) + field(2, 3) + field(3, start) + field(4, 500) + field(5, 20) + field(6, 1) + field(9, nccl)
    return field(1, body)


MATMUL = field(1, field(1, 0) + field(2, 9) + field(3, T0) + field(4, 100))
GC = field(2, field(1, T0) + field(2, 99_000) + field(3, "GC") + field(4, 2))
META = b"3,xpu_timer_AllReduce_RING\n4,xpu_timer_host_trace@x\n9,gemm\nbroken\n"


def test_a_timeline(tmp_path: Path) -> None:
    contents = {
        "00002-00008.timeline": kernel() + MATMUL + kernel(43, hash_=0x77, size=2) + GC + field(3, 4242),
        "00002-00008.timeline.meta": META,
    }
    found = load_with(XpuTimerLoader(), tmp_path, contents)
    one, two = found.rows("coll_ops")
    wanted = {"rank": 2, "op_seq": 42, "op_kind": "all_reduce", "bytes": 1024, "dur_ns": 500_000, "state": "completed"}
    assert {key: one[key] for key in wanted} == wanted
    assert ns(found, "kstart_ts")[0] == T0 * 1000
    assert ns(found, "enq_ts")[0] == (T0 - 20) * 1000
    assert two["comm_id"] != one["comm_id"]
    assert {name for name, _ in found.comms} == {"0x5d7c1e90ab12f4", "0x77"}
    pause = found.event("phase")
    assert (pause["name"], pause["dur_ms"], pause["rank"]) == ("gc", 99, 2)
    assert found.ranks[2]["pid"] == 4242


@pytest.mark.parametrize(("direction", "kind"), [(1, "send"), (2, "recv")])
def test_point_to_point(tmp_path: Path, direction: int, kind: str) -> None:
    contents = {"00002-00008.timeline": kernel(direction=direction)}
    (op,) = load_with(XpuTimerLoader(), tmp_path, contents).rows("coll_ops")
    assert (op["op_kind"], op["is_p2p"]) == (kind, True)


def test_without_names_the_numbers_still_count(tmp_path: Path) -> None:
    (op,) = load_with(XpuTimerLoader(), tmp_path, {"00002-00008.timeline": kernel()}).rows("coll_ops")
    assert (op["op_name"], op["op_seq"]) == ("unknown", 42)


def test_stacks_of_a_hang(tmp_path: Path) -> None:
    frame = field(1, "get") + field(2, "q.py:3")
    python = field(
        2, field(1, 4242) + field(3, "MainThread") + field(5, 1) + field(6, 1) + field(7, frame) + field(7, frame)
    )
    native = field(1, field(1, 4243) + field(2, "nccl") + field(3, field(1, "poll") + field(2, "libc.so")))
    found = load_with(XpuTimerLoader(), tmp_path, {"00002-00008.stacktrace": python + native + field(11, "T")})
    main, other = sorted(found.rows("stacks"), key=lambda row: row["tool"], reverse=True)
    assert (main["rank"], main["is_main"], main["state"], main["tool"]) == (2, True, "active+gil", "py_spy")
    assert found.stacks[main["stack_id"]] == ("get (q.py:3)", "get (q.py:3)")
    assert (other["tool"], other["pid"]) == ("gdb", 4243)
    assert found.event("other")["level"] == "error"


def test_a_file_cut_short_keeps_what_came_before(tmp_path: Path) -> None:
    found = load_with(XpuTimerLoader(), tmp_path, {"00002-00008.timeline": (kernel(1) + kernel(2))[:-7]})
    assert [op["op_seq"] for op in found.rows("coll_ops")] == [1]
    assert "broken after record 1" in problems(found)


def test_a_broken_record_is_counted(tmp_path: Path) -> None:
    broken = field(1, field(1, 1) + field(9, 5))
    found = load_with(XpuTimerLoader(), tmp_path, {"00002-00008.timeline": kernel(1) + broken + kernel(2)})
    assert dropped(found) == {"kernel record broken": 1}
    assert len(found.rows("coll_ops")) == 2


@pytest.mark.parametrize(
    ("name", "head", "taken"),
    [
        ("00002-00008.timeline", kernel(), True),
        ("x/00002-00008.stacktrace", field(2, "x"), True),
        ("00002-00008.timeline.meta", b"3,x", True),
        ("00002-00008.timeline", b"", False),
        ("00002-00008.timeline", b"{}", False),
        ("2-8.timeline", kernel(), False),
        ("00002-00008.timeline.json", kernel(), False),
    ],
)
def test_what_is_taken(tmp_path: Path, name: str, head: bytes, taken: bool) -> None:
    assert XpuTimerLoader().sniff(EvidenceFile(0, name, tmp_path, len(head), "", head)) is taken


GAUGES = b"""\
XPU_TIMER_COMMON_HANG{ip="10.0.0.5",rank="3",local_rank="3",pod_name="w-1"} 1 1716700000000
XPU_TIMER_COLL_KERNEL_AVG_LATENCY{rank="3",operation="AllReduce",algorithm="Ring",dtype="bf16"} 500
XPU_TIMER_COLL_KERNEL_BANDWIDTH{rank="3",operation="AllReduce",algorithm="Ring",dtype="bf16"} 120.5
XPU_TIMER_MM_KERNEL_FLOPS{rank="x"} 1
"""


def test_gauges(tmp_path: Path) -> None:
    found = load_with(XpuTimerMetricsLoader(), tmp_path, {"metrics.txt": GAUGES})
    hang = found.event("other")
    assert (hang["name"], hang["level"], hang["rank"], hang["local_rank"]) == ("hang", "error", 3, 3)
    assert [(r.get("dur_ms"), r.get("value")) for r in found.rows(kind="op_perf")] == [(0.5, None), (None, 120.5)]
    assert found.ranks[3]["host"] == "10.0.0.5"
