"""RAS reports and monitor events as JSON."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.ras import RasJsonLoader, time_of
from mycroft.loaders.ras_monitor import monitor_level
from tests.loaders.sources import columns, dropped, load_with, problems
from tests.loaders.text.recorder import Recorder

HEALTHY = Path(__file__).parents[1] / "data" / "public" / "ras_inspector" / "rccl_v2289_json_healthy.json"


def member(rank: int, launched: int = 48211, **status: Any) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": f"n{rank // 2}",
        "pid": 100 + rank,
        "cuda_dev": 0,
        "nvml_dev": rank % 2,
        "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "abort_flag": False, **status},
        "collective_counts": {"AllReduce": launched, "AllGather": 12, "Broadcast": 0},
    }


def report(ranks: list[dict[str, Any]], missing: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    missing = missing or []
    return {
        "nccl_version": "2.28.7",
        "cuda_runtime_version": 12080,
        "timestamp": "2026-03-03 02:17:05",
        "communicators": [
            {
                "hash": "0xabc123def456",
                "size": len(ranks) + len(missing),
                "ranks_count": len(ranks),
                "missing_ranks_count": len(missing),
                "ranks": ranks,
                "missing_ranks": missing,
            }
        ],
        "ras": {"collection_time_sec": 0.2, "timeouts_count": 0},
        **more,
    }


def load(folder: Path, content: bytes | dict[str, Any], name: str = "ras.json") -> Recorder:
    return load_with(
        RasJsonLoader(), folder, {name: content if isinstance(content, bytes) else json.dumps(content).encode()}
    )


def test_a_healthy_report(tmp_path: Path) -> None:
    found = load(tmp_path, HEALTHY.read_bytes())
    assert columns(found, "name", "value", "seq", "line", table="events", kind="ras_comm") == [("OK", 8.0, 8, 8)]
    counts = columns(found, "comm_rank", "op_kind", "seq", table="events", kind="ras_member", comm_rank=3)
    assert sorted(counts, key=str) == [
        (3, "all_gather", 20),
        (3, "all_reduce", 100),
        (3, "broadcast", 10),
        (3, "reduce_scatter", 20),
    ]
    assert found.event("nccl_version")["name"] == "2.28.9"
    assert not problems(found)
    assert not dropped(found)


def test_a_rank_that_is_behind(tmp_path: Path) -> None:
    found = load(tmp_path, report([member(0), member(1, 48210), member(2)]))
    (comm,) = found.rows(kind="ras_comm")
    assert (comm["name"], comm["group_name"], comm["level"]) == ("MISMATCH", "0xabc123def456", "warning")
    assert comm["ts"] == datetime(2026, 3, 3, 2, 17, 5)
    assert columns(found, "comm_rank", "seq", table="events", kind="ras_member", op_kind="all_reduce") == [
        (0, 48211),
        (1, 48210),
        (2, 48211),
    ]


def test_the_largest_communicator_is_the_world(tmp_path: Path) -> None:
    found = load(tmp_path, report([member(0), member(1, 48210), member(2)]))
    assert columns(found, "rank", "pid", table="events", comm_rank=1, op_kind="all_reduce") == [(1, 101)]
    assert found.ranks[1]["host"] == "n0"
    assert found.host_name(found.rows(comm_rank=2)[0]) == "n1"


@pytest.mark.parametrize(
    ("status", "word", "level"),
    [
        ({"init_state": 7}, "init in progress", "warning"),
        ({"async_error": 6}, "async_error remote process exited or network error", "error"),
        ({"abort_flag": True}, "abort_flag", "error"),
    ],
)
def test_a_rank_s_status(tmp_path: Path, status: dict[str, Any], word: str, level: str) -> None:
    found = load(tmp_path, report([member(0), member(1, **status)]))
    (row,) = found.rows(kind="ras_member", name="status")
    assert word in row["text"]
    assert (row["comm_rank"], row["level"]) == (1, level)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"unresponsive": True, "considered_dead": False}, "unresponsive"),
        ({"unresponsive": True, "considered_dead": True}, "dead"),
        ({}, "missing"),
    ],
)
def test_a_rank_that_does_not_answer(tmp_path: Path, status: dict[str, Any], word: str) -> None:
    lost = {"rank": 1, "host": "n9", "pid": 77, "cuda_dev": 1, "status": status}
    found = load(tmp_path, report([member(0)], [lost]))
    (row,) = found.rows(kind="ras_member", comm_rank=1)
    assert (row["name"], row["pid"], row["device"], found.host_name(row)) == (word, 77, "GPU 1", "n9")
    assert found.event("ras_comm")["name"] == "INCOMPLETE"


def test_the_invalid_json_of_2_28_9(tmp_path: Path) -> None:
    lost = {"rank": 1, "host": "n9", "pid": 77, "cuda_dev": 1, "nvml_dev": 5, "status": {"considered_dead": True}}
    text = json.dumps(report([member(0)], [lost]), indent=2)
    broken = text.replace('"nvml_dev": 5,', '"nvml_dev": 5')
    assert broken != text
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken)
    found = load(tmp_path, broken.encode())
    assert columns(found, "name", "device", table="events", comm_rank=1) == [("dead", "GPU 5")]
    assert not dropped(found)


def test_reports_one_after_the_other_are_captures(tmp_path: Path) -> None:
    first, second = report([member(0)]), report([member(0)], timestamp="2026-03-03 02:18:05")
    found = load(tmp_path, (json.dumps(first, indent=1) + "\n" + json.dumps(second)).encode())
    assert columns(found, "code", "ts", table="events", kind="ras_comm") == [
        (0, datetime(2026, 3, 3, 2, 17, 5)),
        (1, datetime(2026, 3, 3, 2, 18, 5)),
    ]


def test_timeouts_of_the_query(tmp_path: Path) -> None:
    found = load(tmp_path, report([member(0)], ras={"timeouts_count": 3}))
    assert found.event("ras_peer")["value"] == 3


def event(number: int, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-02-02 06:04:{number:02d}",
        "group": "LIFECYCLE",
        "event": "PEER_DEAD",
        "peer": {"host": "n1", "pid": 6605, "cuda_devs": [1], "nvml_devs": [5]},
        "details": "gone",
        **more,
    }


@pytest.mark.parametrize("indent", [None, 2])
def test_monitor_events_pretty_or_not(tmp_path: Path, indent: int | None) -> None:
    events = [event(1), event(2, event="PEER_RETRY", peer={"addr": "10.0.0.4:300"}, group="TRACE")]
    found = load(tmp_path, "\n".join(json.dumps(e, indent=indent) for e in events).encode())
    one, two = found.rows(kind="ras_peer")
    assert (one["name"], one["pid"], one["device"], one["level"], one["line"]) == (
        "PEER_DEAD",
        6605,
        "GPU 5",
        "error",
        2 if indent else 1,
    )
    assert (two["name"], two["peer"], two["level"], two["ts"]) == (
        "PEER_RETRY",
        "10.0.0.4:300",
        "warning",
        datetime(2026, 2, 2, 6, 4, 2),
    )
    assert two["line"] > one["line"]


def test_a_report_cut_in_the_middle_keeps_whole_communicators(tmp_path: Path) -> None:
    two = report([member(0)])
    two["communicators"].append({**two["communicators"][0], "hash": "0x77"})
    content = json.dumps(two).encode()
    found = load(tmp_path, content[: content.index(b"0x77") + 40])
    assert len(found.rows(kind="ras_comm")) == 1
    assert "ends in the middle" in problems(found)


def test_a_communicator_without_a_hash_is_counted(tmp_path: Path) -> None:
    broken = report([member(0)])
    del broken["communicators"][0]["hash"]
    assert dropped(load(tmp_path, broken)) == {"communicator without a hash": 1}


@pytest.mark.parametrize("value", [3, "x", [1], None])
def test_members_of_a_wrong_type_do_no_harm(tmp_path: Path, value: Any) -> None:
    for key in ("rank", "host", "pid", "nvml_dev", "status", "collective_counts"):
        found = load(tmp_path / key, report([{**member(0), key: value}], [{**member(1), key: value}]))
        assert len(found.rows(kind="ras_comm")) == 1, key
    for key in ("hash", "size", "ranks", "missing_ranks"):
        broken = report([member(0)])
        broken["communicators"].append({**broken["communicators"][0], key: value})
        found = load(tmp_path / key, broken)
        assert found.rows(kind="ras_comm"), key


def test_a_banner_before_the_json(tmp_path: Path) -> None:
    content = b"RCCL version 2.28.9 compiled with ROCm\n" + json.dumps(report([member(0)])).encode()
    assert load(tmp_path, content).event("ras_comm")["name"] == "OK"


def test_other_json_is_not_taken(tmp_path: Path) -> None:
    for head in (b'{"traceEvents": []}', b'{"event": "x", "group": "y"}', b'{"communicators": 3}'):
        assert not RasJsonLoader().sniff(EvidenceFile(0, "x.json", tmp_path, len(head), "", head))


@pytest.mark.parametrize(
    ("text", "quality"),
    [
        ("2026-03-03 02:17:05", "zone_assumed"),
        ("2026-03-03T02:17:05Z", "exact"),
        ("2026-03-03T04:17:05+02:00", "exact"),
    ],
)
def test_times(text: str, quality: str) -> None:
    assert time_of(text) == (1_772_504_225_000_000_000, quality)
    assert time_of("2026-13-03 02:17:05") == (None, None)
    assert time_of(None) == (None, None)


def test_grades_of_monitor_events() -> None:
    assert [monitor_level(e) for e in ("PEER_NEW", "INIT_TIMEOUT", "TIMEOUT_DEAD")] == ["info", "warning", "error"]
