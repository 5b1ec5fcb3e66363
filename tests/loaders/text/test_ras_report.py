"""RAS reports as text, whole, in part, repeated, and the lines of the monitor mode."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.evidence_wrappers import WRAPPERS
from tests.loaders.text.recorder import Recorder, read

DATA = Path(__file__).parents[2] / "data"
HEAD = "NCCL version 2.26.2 compiled with CUDA 12.6\nCUDA runtime version 12060, driver version 12060\n\n"
TABLE = """\
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING  MISMATCH
    1         8         2         1         2        16   INIT,RUNNING      OK

Errors
======

Warnings
========

"""


def report(details: str, table: str = TABLE) -> str:
    return HEAD + table + details


def members(found: Recorder, **wanted: Any) -> list[dict[str, Any]]:
    return found.rows(kind="ras_member", **wanted)


def test_the_table_of_communicators(tmp_path: Path) -> None:
    rows = read(tmp_path, report("")).rows(kind="ras_comm")
    assert [(r["name"], r["detail"], r["value"], r["seq"], r["group_name"]) for r in rows] == [
        ("MISMATCH", "RUNNING", 16, 16, "#0"),
        ("OK", "INIT,RUNNING", 2, 2, "#1"),
    ]


def test_a_table_of_unequal_nodes(tmp_path: Path) -> None:
    table = TABLE.replace("         8        16        16", "       7-8        15        15")
    assert read(tmp_path, report("", table)).rows(kind="ras_comm")[0]["value"] == 15


@pytest.mark.parametrize(
    ("word", "op"), [("AllReduce", "all_reduce"), ("AllGather", "all_gather"), ("collective", None)]
)
def test_counts_that_differ(tmp_path: Path, word: str, op: str | None) -> None:
    found = read(
        tmp_path,
        report(
            "#0-0 (9d11c0de7705aa31) MISMATCH\n"
            f"  Communicator ranks have different {word} operation counts\n"
            "  15 ranks have launched up to operation 48211\n"
            "  Rank 13 has launched up to operation 48210 -- GPU 5 managed by process 70213 on node 10.20.31.5\n"
        ),
    )
    many, one = members(found, name="count")
    assert (many["value"], many["seq"], many.get("op_kind"), many.get("comm_rank")) == (15, 48211, op, None)
    assert (one["comm_rank"], one["seq"], one["pid"], one["device"]) == (13, 48210, 70213, "GPU 5")
    assert found.host_name(one) == "10.20.31.5"
    assert one["group_name"] == "0x9d11c0de7705aa31"


def test_members_belong_to_the_count_before_them(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        report(
            "#0-0 (9d11c0de7705aa31) MISMATCH\n"
            "  Communicator ranks have different AllReduce operation counts\n"
            "  14 ranks have launched up to operation 7\n"
            "  2 ranks have launched up to operation 6\n"
            "  Rank 3 -- GPU 3 managed by process 11 on node 10.0.0.1\n"
            "  Rank 9 -- GPUs 1,2 (NVML 1,2) managed by process 12 on node 10.0.0.2\n"
        ),
    )
    assert [(r["comm_rank"], r["seq"]) for r in members(found) if "comm_rank" in r] == [(3, 6), (9, 6)]


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("  4 ranks have not launched any operations", None),
        ("  Rank 9 has not launched any operations -- GPU 1 managed by process 12 on node 10.0.0.2", 9),
    ],
)
def test_nothing_launched_yet_is_operation_zero(tmp_path: Path, line: str, rank: int | None) -> None:
    found = read(
        tmp_path,
        report(
            "#0-0 (9d11c0de7705aa31) MISMATCH\n  Communicator ranks have different Broadcast operation counts\n"
            f"{line}\n"
        ),
    )
    (row,) = members(found)
    assert (row["seq"], row.get("comm_rank"), row["op_kind"]) == (0, rank, "broadcast")


def test_status_that_differs(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        report(
            "#0-0 (9d11c0de7705aa31) MISMATCH\n  Communicator ranks have different status\n"
            "  15 ranks have status RUNNING\n"
            "  Rank 4 has status INIT -- GPU 4 managed by process 12 on node 10.0.0.2\n"
        ),
    )
    many, one = members(found, name="status")
    assert (many["detail"], many["value"]) == ("RUNNING", 15)
    assert (one["detail"], one["comm_rank"], one["pid"]) == ("INIT", 4, 12)


def test_errors_that_ranks_reported(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        report(
            "#0-0 (9d11c0de7705aa31) ERROR\n  Asynchronous errors on 3 ranks\n"
            "  2 ranks reported remote process exited or network error\n"
            "  Rank 4 reported internal error -- GPU 4 managed by process 12 on node 10.0.0.2\n"
        ),
    )
    many, one = members(found, name="error")
    assert (many["value"], one["comm_rank"], one["detail"], one["level"]) == (2, 4, "internal error", "error")


@pytest.mark.parametrize(("section", "name"), [("INCOMPLETE", "missing"), ("DEAD", "dead")])
def test_processes_that_do_not_answer(tmp_path: Path, section: str, name: str) -> None:
    found = read(
        tmp_path,
        report(
            f"{section}\n  Missing communicator data from 1 job process\n"
            "  Process 3467978 on node 10.194.132.77 managing GPU 6\n\n"
            "#0-0 (3b2fe521bf43bc04) INCOMPLETE\n  Missing communicator data from 1 rank\n"
            "  Rank 6 -- GPU 6 managed by process 3467978 on node 10.194.132.77\n"
        ),
    )
    peer = found.event("ras_peer")
    assert (peer["name"], peer["pid"], peer["device"]) == (name, 3467978, "GPU 6")
    (member,) = members(found, name="missing")
    assert (member["comm_rank"], member["pid"], member["level"]) == (6, 3467978, "error")


def test_timeouts_while_gathering(tmp_path: Path) -> None:
    found = read(
        tmp_path, report("TIMEOUT\n  Encountered 2 communication timeouts while gathering communicator data\n")
    )
    assert found.event("ras_peer")["value"] == 2


def test_repeated_captures_are_told_apart_and_dated(tmp_path: Path) -> None:
    detail = (
        "#0-0 (9d11c0de7705aa31) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        "  15 ranks have launched up to operation 48211\n"
    )
    text = "".join(f"$ date; ncclras\n{date}\n{report(detail)}\n" for date in ("Tue Mar  3 02:17:05 UTC 2026", "Tue Mar  3 02:17:35 UTC 2026"))  # fmt: skip
    rows = members(read(tmp_path, text))
    assert [(r["code"], r["ts"]) for r in rows] == [
        (0, datetime(2026, 3, 3, 2, 17, 5)),
        (1, datetime(2026, 3, 3, 2, 17, 35)),
    ]


def test_a_part_without_its_beginning(tmp_path: Path) -> None:
    text = (
        "#0-0 (9d11c0de7705aa31) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        "  15 ranks have launched up to operation 48211\n"
    )
    assert members(read(tmp_path, text))[0]["seq"] == 48211


def test_other_lines_in_between_end_the_report_or_are_left_alone(tmp_path: Path) -> None:
    head = "a1:10:11 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>\n"
    found = read(tmp_path, report("#0-0 (9d11c0de7705aa31) MISMATCH\n") + head)
    assert found.event("identity")["peer"] == "10.0.0.5"


@pytest.mark.parametrize(
    ("event", "level"),
    [
        ("PEER_NEW", "info"),
        ("PEER_CONNECTED", "info"),
        ("PEER_DISCONNECTED", "warning"),
        ("PEER_SEND_STUCK", "warning"),
        ("PEER_KEEPALIVE_TIMEOUT", "warning"),
        ("PEER_UNRESPONSIVE", "warning"),
        ("PEER_RECOVERED", "info"),
        ("PEER_TIMEOUT_DEAD", "error"),
        ("PEER_DEAD", "error"),
    ],
)
def test_the_monitor_s_lines(tmp_path: Path, event: str, level: str) -> None:
    found = read(tmp_path, f"[2026-02-02 06:04:12] {event}: Process 6605 on node 10.8.1.12 managing GPU 1\n")
    row = found.event("ras_peer")
    assert (row["name"], row["level"], row["pid"], row["device"], row["ts"]) == (event, level, 6605, "GPU 1", datetime(2026, 2, 2, 6, 4, 12))  # fmt: skip
    assert found.host_name(row) == "10.8.1.12"


@pytest.mark.parametrize("name", ["rccl_v2283_text_healthy.txt", "rccl_v2283_text_degraded.txt"])
def test_rccl_s_reports(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, (DATA / "public" / "ras_inspector" / name).read_text())
    degraded = "degraded" in name
    assert [r["name"] for r in found.rows(kind="ras_comm")] == (["INCOMPLETE"] * 2 if degraded else ["OK"])
    assert len(found.rows(kind="ras_peer")) == degraded
    assert not found.rows(kind="unparsed")


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_wrappers_change_nothing(tmp_path: Path, wrapper: str) -> None:
    found = read(tmp_path, WRAPPERS[wrapper]((DATA / "logs" / "ras-mismatch-stuck" / "ras-1.txt").read_text()))
    (one,) = [r for r in members(found, name="count") if "comm_rank" in r]
    assert (one["comm_rank"], one["pid"], one["seq"], found.host_name(one)) == (13, 70213, 48210, "10.20.31.5")
