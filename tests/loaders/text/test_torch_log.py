"""Every release's shape of what torch prints of stuck collectives. All lines are made up."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.loaders.text.recorder import Recorder, read

WORK = "WorkNCCL(SeqNum=2191, OpType=ALLREDUCE, NumelIn=25557032, NumelOut=25557032, Timeout(ms)=600000)"
CAUGHT = f"Watchdog caught collective operation timeout: {WORK} ran for 600024 milliseconds before timing out."
RAN = {"seq": 2191, "op_kind": "all_reduce", "name": "ALLREDUCE", "in_numel": 25557032, "out_numel": 25557032}

PREFIXES = {
    "2.4 and later": (
        "[rank3]:[E217 09:14:03.013057536 ProcessGroupNCCL.cpp:629] ",
        3,
        datetime(2026, 2, 17, 9, 14, 3, 13057),
    ),
    "2.4, month of two digits": (
        "[rank3]:[E1118 09:14:03.013057536 ProcessGroupNCCL.cpp:607] ",
        3,
        datetime(2026, 11, 18, 9, 14, 3, 13057),
    ),
    "2.2 and 2.3": ("[rank3]:[E ProcessGroupNCCL.cpp:563] ", 3, None),
    "up to 2.1": ("[E ProcessGroupNCCL.cpp:475] ", None, None),
    "glog": ("E0217 09:14:03.013057  4711 ProcessGroupNCCL.cpp:629] ", None, datetime(2026, 2, 17, 9, 14, 3, 13057)),
}


@pytest.mark.parametrize("release", PREFIXES)
def test_timeouts_of_every_release(tmp_path: Path, release: str) -> None:
    prefix, rank, moment = PREFIXES[release]
    event = read(tmp_path, f"{prefix}[Rank 3] {CAUGHT}\n").event("watchdog_timeout")
    assert {key: event[key] for key in RAN} == RAN
    assert (event["comm_rank"], event["dur_ms"], event["value"]) == (3, 600024.0, 600000.0)
    assert event.get("rank") == rank
    assert event.get("ts") == moment
    assert event["time_quality"] == ("year_assumed" if moment else "order_only")


def test_the_number_in_brackets_is_never_taken_for_the_global_rank(tmp_path: Path) -> None:
    event = read(tmp_path, f"[rank97]:[E217 09:14:03.013057536 ProcessGroupNCCL.cpp:629] [Rank 6] {CAUGHT}\n").event(
        "watchdog_timeout"
    )
    assert (event["rank"], event["comm_rank"]) == (97, 6)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("WorkNCCL(OpType=BROADCAST, Timeout(ms)=1800000)", {"op_kind": "broadcast"}),
        ("WorkNCCL(SeqNum=7, OpType=_ALLGATHER_BASE, Timeout(ms)=1800000)", {"op_kind": "all_gather", "seq": 7}),
        (
            "WorkNCCL(SeqNum=7, OpType=ALLTOALL_BASE, NumelIn=4, NumelOut=8, Timeout(ms)=1)",
            {"in_numel": 4, "out_numel": 8},
        ),
        ("WorkHCCL(SeqNum=9, OpType=_REDUCE_SCATTER_BASE, Timeout(ms)=5)", {"op_kind": "reduce_scatter"}),
        ("WorkNCCL(SeqNum=9, OpType=SEND, NumelIn=3, NumelOut=3, Timeout(ms)=5)", {"op_kind": "send"}),
        ("WorkNCCL(SeqNum=9, OpType=SOMETHING_NEW, NumelIn=3, NumelOut=3, Timeout(ms)=5)", {"op_kind": "other"}),
    ],
)
def test_operations_of_all_kinds_and_ages(tmp_path: Path, work: str, expected: dict[str, object]) -> None:
    line = (
        f"[Rank 1] Watchdog caught collective operation timeout: {work} ran for 1800123 milliseconds before timing out."
    )
    event = read(tmp_path, line + "\n").event("watchdog_timeout")
    assert {key: event.get(key) for key in expected} == expected


def test_blocking_wait_is_a_timeout_too(tmp_path: Path) -> None:
    event = read(
        tmp_path, f"[rank3]: RuntimeError: Work {WORK} timed out in blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).\n"
    ).event("watchdog_timeout")
    assert (event["rank"], event["seq"]) == (3, 2191)


def test_repeats_of_one_timeout_are_one_row(tmp_path: Path) -> None:
    text = (
        f"[rank3]:[E217 09:14:03.013057536 ProcessGroupNCCL.cpp:629] [Rank 3] {CAUGHT}\n"
        "[rank3]:[E217 09:15:03.013057536 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group "
        f"watchdog thread terminated with exception: [Rank 3] {CAUGHT}\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated with exception: [Rank 3] {CAUGHT}\n"
    )
    assert read(tmp_path, text).event("watchdog_timeout")["rank"] == 3


def test_timeouts_of_two_ranks_at_one_number_are_two_rows(tmp_path: Path) -> None:
    text = "".join(f"[rank{rank}]:[E ProcessGroupNCCL.cpp:563] [Rank 0] {CAUGHT}\n" for rank in (3, 7))
    assert [row["rank"] for row in read(tmp_path, text).rows(kind="watchdog_timeout")] == [3, 7]


STATUS = {
    "2.3": (
        "[PG 0 Rank 3] Timeout at NCCL work: 75, last enqueued NCCL work: 139, last completed NCCL work: 74.",
        "0",
        None,
    ),
    "2.4": (
        "[PG 2 (mesh_tp) Rank 3] Exception (either an error or timeout) detected by watchdog at work: 75, "
        "last enqueued NCCL work: 139, last completed NCCL work: 74.",
        None,
        "mesh_tp",
    ),
    "2.5": (
        "[PG ID 2 PG GUID 9(mesh_fsdp) Rank 3] Exception (either an error or timeout) detected by watchdog at work: 75, "
        "last enqueued NCCL work: 139, last completed NCCL work: 74.",
        "9",
        "mesh_fsdp",
    ),
    "2.6": (
        "[PG ID 2 PG GUID 9(mesh_fsdp) Rank 3]  failure detected by watchdog at work sequence id: 75 PG status: "
        "last enqueued work: 139, last completed work: 74",
        "9",
        "mesh_fsdp",
    ),
    "2.6, no description": (
        "[PG ID 1 PG GUID 8f2c Rank 3]  failure detected by watchdog at work sequence id: 75 PG status: "
        "last enqueued work: 139, last completed work: 74",
        "8f2c",
        None,
    ),
}


@pytest.mark.parametrize("release", STATUS)
def test_status_lines_of_every_release(tmp_path: Path, release: str) -> None:
    line, name, description = STATUS[release]
    recorder = read(tmp_path, f"[rank11]:[E217 09:14:03.013057536 ProcessGroupNCCL.cpp:2168] {line}\n")
    event = recorder.event("pg_status")
    assert (event["seq"], event["last_enqueued"], event["last_completed"]) == (75, 139, 74)
    assert (event["rank"], event["comm_rank"]) == (11, 3)
    assert (event.get("group_name"), event.get("group_desc")) == (name, description)
    (status,) = recorder.rows("group_status")
    assert (status["rank"], status["last_enqueued"], status["last_completed"]) == (11, 139, 74)


def test_minus_one_means_none_yet(tmp_path: Path) -> None:
    line = "[rank1]:[E217 09:14:03.0 p.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1]  failure detected by watchdog at work sequence id: 1 PG status: last enqueued work: 1, last completed work: -1\n"
    recorder = read(tmp_path, line)
    assert recorder.event("pg_status")["last_completed"] == -1
    assert "last_completed" not in recorder.rows("group_status")[0]


def test_a_timeout_gets_the_group_of_its_status_line(tmp_path: Path) -> None:
    text = (
        f"[rank9]:[E217 09:14:03.1 ProcessGroupNCCL.cpp:629] [Rank 1] {CAUGHT}\n"
        "[rank9]:[E217 09:14:03.2 ProcessGroupNCCL.cpp:2168] [PG ID 3 PG GUID 12(dp) Rank 1]  failure detected by watchdog at "
        "work sequence id: 2191 PG status: last enqueued work: 2194, last completed work: 2190\n"
    )
    event = read(tmp_path, text).event("watchdog_timeout")
    assert (event["group_name"], event["group_desc"]) == ("12", "dp")


def test_a_timeout_that_fits_two_groups_gets_none(tmp_path: Path) -> None:
    status = "failure detected by watchdog at work sequence id: 2191 PG status: last enqueued work: 2194, last completed work: 2190"
    text = f"[rank9]:[E217 09:14:03.1 p.cpp:629] [Rank 1] {CAUGHT}\n" + "".join(
        f"[rank9]:[E217 09:14:03.2 p.cpp:2168] [PG ID {n} PG GUID {n}(g{n}) Rank 1]  {status}\n" for n in (1, 2)
    )
    assert "group_name" not in read(tmp_path, text).event("watchdog_timeout")


def test_group_ranks_of_the_default_group_are_ranks(tmp_path: Path) -> None:
    line = "[PG 0 (default_pg) Rank 5] Timeout at NCCL work: 75, last enqueued NCCL work: 139, last completed NCCL work: 74."
    assert read(tmp_path, f"[E ProcessGroupNCCL.cpp:1] {line}\n").event("pg_status")["rank"] == 5


def test_group_ranks_of_other_groups_need_the_members(tmp_path: Path) -> None:
    line = "[E p.cpp:1] [PG 4 (mesh_tp) Rank 1] Timeout at NCCL work: 75, last enqueued NCCL work: 139, last completed NCCL work: 74.\n"
    assert "rank" not in read(tmp_path, line).event("pg_status")


TAIL = "Last enqueued NCCL work: 2194, last completed NCCL work: 2190.This is most likely caused by …"
SIGNALS = {
    "from another": (
        "Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug info. "
        + TAIL,
        "remote",
        2,
    ),
    "from this": (
        "Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the debug info. "
        + TAIL,
        "local",
        None,
    ),
    "2.3, this": (
        "Received a timeout signal from this local rank and will start to dump the debug info. " + TAIL,
        "local",
        None,
    ),
    "2.3, another": (
        "Received a global timeout from another rank and will start to dump the debug info. " + TAIL,
        "remote",
        None,
    ),
}


@pytest.mark.parametrize("case", SIGNALS)
def test_dump_signals_tell_how_far_every_rank_came(tmp_path: Path, case: str) -> None:
    text, name, source = SIGNALS[case]
    recorder = read(tmp_path, f"[rank5]:[E217 09:14:03.1 p.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank 5] {text}\n")
    event = recorder.event("dump_signal")
    assert (event["rank"], event["name"], event.get("peer_rank")) == (5, name, source)
    assert (event["last_enqueued"], event["last_completed"]) == (2194, 2190)
    assert len(recorder.rows("group_status")) == 1


def test_the_dump_signal_of_2_2_has_no_numbers(tmp_path: Path) -> None:
    event = read(
        tmp_path,
        "[rank5]:[E p.cpp:1] Received a global timeout from another rank and will start to dump the debug info.\n",
    ).event("dump_signal")
    assert "last_enqueued" not in event


OTHERS = [
    (
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
        "heartbeat_stuck",
        "watchdog",
        480.0,
    ),
    (
        "Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=3",
        "heartbeat_stuck",
        "monitor",
        3.0,
    ),
    ("Could not acquire GIL within 300 ms on exit, possible GIL induced hang", "heartbeat_stuck", "gil", None),
    ("[TC] watchdog got stuck for 600 seconds without making progress", "heartbeat_stuck", "watchdog", 600.0),
    ("To avoid data inconsistency, we are taking the entire process down.", "other", "abort", None),
    (
        "Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
        "other",
        "abort",
        None,
    ),
    (
        'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe',
        "store_error",
        "store_gone",
        None,
    ),
    (
        "An unbatched P2P op (send/recv) was called on this ProcessGroup with size 4.  In lazy initialization mode",
        "other",
        "unbatched_p2p",
        4.0,
    ),
]


@pytest.mark.parametrize(("text", "kind", "name", "value"), OTHERS)
def test_other_lines_of_the_process_group(tmp_path: Path, text: str, kind: str, name: str, value: float | None) -> None:
    event = read(tmp_path, f"[rank3]:[E217 09:14:03.1 ProcessGroupNCCL.cpp:1] {text}\n").event(kind)
    assert (event["rank"], event["name"], event.get("value")) == (3, name, value)


NOISE = [
    "[PG ID 0 PG GUID 0(default_pg) Rank 5] Observed flight recorder dump signal from another rank via TCPStore.",
    "[PG ID 0 PG GUID 0(default_pg) Rank 5] First PG on this rank to signal dumping.",
    "[PG ID 0 PG GUID 0(default_pg) Rank 5] ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1, only active collectives: 0",
    "[PG ID 0 PG GUID 0(default_pg) Rank 5] timed out after waiting for 60000ms flight recorder dumps to finish.",
    "Broadcasting flight recorder dump signal to other processes via TCPStore.",
    "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled.",
    "[Rank 5] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, …",
]


@pytest.mark.parametrize("text", NOISE)
def test_neighbours_are_understood_and_say_nothing(tmp_path: Path, text: str) -> None:
    recorder = read(tmp_path, f"[rank5]:[E217 09:14:03.1 ProcessGroupNCCL.cpp:1] {text}\n")
    assert recorder.kinds() == []
    assert not recorder.reports[0].dropped


def test_the_call_of_a_failed_collective_goes_with_its_timeout(tmp_path: Path) -> None:
    text = (
        f"[rank3]:[E217 09:14:03.1 p.cpp:629] [Rank 3] {CAUGHT}\n"
        "[rank3]:[E217 09:14:03.2 p.cpp:667] Stack trace of the failed collective: \n"
        "#0 all_reduce from /opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:2806\n"
        "#1 train_step from /app/train.py:88\n"
        "\n"
        "step 5\n"
    )
    recorder = read(tmp_path, text)
    stack = recorder.stacks[recorder.event("watchdog_timeout")["stack_id"]]
    assert stack[1] == "train_step (/app/train.py:88)"
    assert len(stack) == 2


def test_an_asynchronous_error_keeps_what_nccl_said_last(tmp_path: Path) -> None:
    text = (
        f"[rank12]:[E520 13:05:41.9 p.cpp:542] [Rank 12] Collective {WORK} raised the following async exception: NCCL error: "
        "remote process exited or there was a network error, NCCL version 2.21.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\n"
        "socketProgress: Connection closed by remote peer node-03<38012>\n"
        "step 7 loss 2.0\n"
    )
    event = read(
        tmp_path,
        text.replace("\nnccl", "\n[rank12]:nccl")
        .replace("\nLast", "\n[rank12]:Last")
        .replace("\nsocket", "\n[rank12]:socket"),
    ).event("nccl_error")
    assert (event["rank"], event["seq"], event["op_kind"]) == (12, 2191, "all_reduce")
    assert event["name"] == "remote process exited or there was a network error"
    assert event["peer"] == "node-03<38012>"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2",
            "unhandled system error",
        ),
        ("NCCL error in: ../torch/csrc/x.cpp:5, invalid usage, NCCL version 2.18.1", "invalid usage"),
        ("NCCL Error 2: unhandled system error", "unhandled system error"),
        (
            "[Rank 3] found async exception when checking for NCCL errors: NCCL error: unhandled cuda error, NCCL version 2.1",
            "unhandled cuda error",
        ),
    ],
)
def test_nccl_errors_as_torch_words_them(tmp_path: Path, text: str, name: str) -> None:
    assert read(tmp_path, f"[rank3]: {text}\n").event("nccl_error")["name"] == name


def test_who_waits_for_the_unique_id(tmp_path: Path) -> None:
    text = "[rank3]: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset\n"
    event = read(tmp_path, text).event("store_error")
    assert (event["name"], event["comm_rank"], event["peer"]) == ("unique_id", 3, "0")


def test_hccl_timeouts_have_a_local_device_and_a_pid(tmp_path: Path) -> None:
    text = "torch.distributed: [WARNING] [8641] Process group work ALLGATHER, seq_num 250 dispatch timeout. device 6: the current working event is 0x1.\n"
    event = read(tmp_path, text).event("watchdog_timeout")
    assert (event["seq"], event["op_kind"], event["local_rank"], event["pid"]) == (250, "all_gather", 6, 8641)
    assert "rank" not in event


def torn(recorder: Recorder) -> list[tuple[int, int]]:
    return [(row["rank"], row["comm_rank"]) for row in recorder.rows(kind="watchdog_timeout")]


def test_messages_are_found_anywhere_in_a_torn_line(tmp_path: Path) -> None:
    text = (
        f" 13%|## | 5/40 [00:10<01:10, 2.0s/it][rank2]:[E217 09:14:03.1 p.cpp:629] [Rank 0] Watch[rank6]:[E217 09:14:03.2 p.cpp:629] [Rank 1] {CAUGHT}"
        f"[rank7]:[E217 09:14:03.3 p.cpp:629] [Rank 2] {CAUGHT}\n"
    )
    assert torn(read(tmp_path, text)) == [(6, 1), (7, 2)]


def test_numbers_too_long_to_be_numbers_do_no_harm(tmp_path: Path) -> None:
    digits = "9" * 400
    text = f"[rank{digits}]:[E p.cpp:1] [Rank {digits}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={digits}, OpType=ALLREDUCE, NumelIn={digits}, NumelOut=1, Timeout(ms)=1) ran for 12 milliseconds before timing out.\n"
    event = read(tmp_path, text).event("watchdog_timeout")
    assert "seq" not in event
    assert "comm_rank" not in event
