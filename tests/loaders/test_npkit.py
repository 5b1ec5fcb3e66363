"""NPKit: raw buffers and the trace made of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.npkit import NpkitLoader
from tests.loaders.sources import dropped, load_with, problems
from tests.loaders.text.recorder import Recorder

Raw = tuple[int, int, int, int]


def records(*rows: Raw) -> bytes:
    """Rows of (event, bytes, slot, time)."""
    return b"".join(
        struct.pack("<BIHBQ", event, size, slot & 0xFFFF, slot >> 16, time) for event, size, slot, time in rows
    )


def load(folder: Path, raw: bytes, **clock: str) -> Recorder:
    contents = {"cpu_events_rank_1_channel_3": raw}
    contents |= {f"cpu_clock_period_{key}_rank_1": value.encode() for key, value in clock.items()}
    return load_with(NpkitLoader(), folder, contents)


@pytest.mark.parametrize(("send", "recv"), [(0x2F, 0x31), (0x25, 0x27)])
def test_transfers_of_both_families_of_builds(tmp_path: Path, send: int, recv: int) -> None:
    raw = records(
        (send, 100, 1, 1000),
        (send, 200, 2, 1100),
        (send + 1, 0, 1, 2000),
        (send + 1, 0, 2, 3100),
        (recv, 50, 1, 1000),
        (recv + 1, 0, 1, 1500),
    )
    found = load(tmp_path, raw, num="1", den="1000000000")
    rows = {row["name"]: row for row in found.rows()}
    assert (rows["net_send"]["bytes"], rows["net_send"]["seq"], rows["net_send"]["rank"]) == (300, 2, 1)
    assert rows["net_send"]["dur_ms"] == 0.002
    assert rows["net_send"]["value"] == 300 / 3000
    assert rows["net_recv"]["device"] == "channel 3"
    assert found.reports[-1].rank == 1 or any(report.rank == 1 for report in found.reports)


def test_the_clock_s_period_scales_the_times(tmp_path: Path) -> None:
    raw = records((0x2F, 100, 1, 1000), (0x30, 0, 1, 2000))
    found = load(tmp_path, raw, num="1", den="500000000")
    assert found.rows(name="net_send")[0]["dur_ms"] == 0.002


def test_without_the_clock_ticks_are_ns(tmp_path: Path) -> None:
    found = load(tmp_path, records((0x2F, 100, 1, 1000), (0x30, 0, 1, 2000)))
    assert "times taken as ns" in problems(found)
    assert found.rows(name="net_send")[0]["dur_ms"] == 0.001


def test_what_does_not_pair_is_counted(tmp_path: Path) -> None:
    raw = records((0x30, 0, 1, 2000), (0x2F, 100, 2, 1000)) + b"abc"
    assert dropped(load(tmp_path, raw, num="1", den="1")) == {
        "record cut short": 1,
        "end without a beginning": 1,
        "transfer had not ended": 1,
    }


def test_numbers_of_an_unknown_build(tmp_path: Path) -> None:
    found = load(tmp_path, records((0x77, 1, 1, 1)))
    assert "of a build we do not know" in problems(found)
    assert not found.rows()


def test_gpu_primitives_are_counted(tmp_path: Path) -> None:
    found = load_with(NpkitLoader(), tmp_path, {"gpu_events_rank_0_buf_7": bytes(64)})
    assert dropped(found) == {"GPU primitive": 4}


def processed(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"traceEvents": list(rows), "displayTimeUnit": "ns"}).encode()


def test_the_trace(tmp_path: Path) -> None:
    begin = {
        "ph": "B",
        "ts": 10.0,
        "pid": 2,
        "tid": 5,
        "cat": "CPU",
        "name": "NPKIT_EVENT_NET_SEND_ENTRY",
        "args": {"rank": 2, "channel": 1, "slot": 0, "size_0": 4096},
    }
    end = {"ph": "E", "ts": 14.0, "pid": 2, "tid": 5, "args": {"size": 4096, "bw (GB/s)": 1.0}}
    gpu = {
        "ph": "B",
        "ts": 1.0,
        "pid": 2,
        "tid": 9,
        "cat": "GPU",
        "name": "NPKIT_EVENT_PRIM_SIMPLE_ENTRY",
        "args": {"rank": 2},
    }
    found = load_with(
        NpkitLoader(), tmp_path, {"npkit_event_trace.json": processed(gpu, begin, end, {**end, "tid": 77})}
    )
    row = found.rows(name="net_send")[0]
    assert (row["rank"], row["device"], row["bytes"], row["dur_ms"], row["value"]) == (
        2,
        "channel 1",
        4096,
        0.004,
        1.024,
    )


def test_a_trace_cut_short(tmp_path: Path) -> None:
    begin = {
        "ph": "B",
        "ts": 10.0,
        "pid": 2,
        "tid": 5,
        "name": "NPKIT_EVENT_NET_SEND_ENTRY",
        "args": {"rank": 2, "channel": 1},
    }
    found = load_with(NpkitLoader(), tmp_path, {"npkit_event_trace.json": processed(begin, begin)[:-60]})
    assert "ends in the middle" in problems(found)


@pytest.mark.parametrize(
    ("name", "head", "taken"),
    [
        ("d/cpu_events_rank_0_channel_0", b"", True),
        ("gpu_clock_rate_rank_0", b"1", True),
        ("trace.json", b'{"traceEvents": [{"name": "NPKIT_EVENT_X"', True),
        ("trace.json", b'{"traceEvents": [{"name": "x"', False),
        ("cpu_events_rank_0_channel_0.txt", b"", False),
    ],
)
def test_what_is_taken(tmp_path: Path, name: str, head: bytes, taken: bool) -> None:
    assert NpkitLoader().sniff(EvidenceFile(0, name, tmp_path, len(head), "", head)) is taken
