"""Tracebacks, fatal errors and uncaught C++ exceptions, alone, mixed and cut short."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.loaders.text.recorder import read

PLAIN = """\
Traceback (most recent call last):
  File "/app/train.py", line 412, in <module>
    main()
  File "/app/train.py", line 77, in main
    loss = step(batch)
           ^^^^^^^^^^^
  File "/opt/env/lib/python3.11/site-packages/lib/data.py", line 3, in step
    raise ValueError("bad shard")
ValueError: bad shard
"""


def prefixed(text: str, prefix: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def test_a_traceback_is_one_exception_with_its_stack(tmp_path: Path) -> None:
    recorder = read(tmp_path, "start\n" + PLAIN + "next line\n")
    event = recorder.event("exception")
    assert (event["name"], event["text"], event["line"]) == ("ValueError", "bad shard", 10)
    assert recorder.stacks[event["stack_id"]] == (
        "step (lib/data.py:3)",
        "main (/app/train.py:77)",
        "<module> (/app/train.py:412)",
    )
    assert not recorder.rows(kind="connection_closed")


def test_ranks_that_write_at_once_keep_their_tracebacks_apart(tmp_path: Path) -> None:
    one = prefixed(PLAIN, "[rank3]: ").splitlines()
    two = prefixed(PLAIN.replace("ValueError: bad shard", "KeyError: 'x'"), "[rank5]: ").splitlines()
    mixed = "\n".join(line for pair in zip(one, two, strict=True) for line in pair)
    rows = read(tmp_path, mixed + "\n").rows(kind="exception")
    assert [(row["rank"], row["name"]) for row in rows] == [(3, "ValueError"), (5, "KeyError")]


def test_the_first_time_seen_is_that_of_the_writer_s_last_stamp(tmp_path: Path) -> None:
    event = read(tmp_path, "2026-11-29 15:11:22,195 ERROR failed\n" + PLAIN).event("exception")
    assert event["ts"] == datetime(2026, 11, 29, 15, 11, 22, 195000)
    assert event["time_quality"] == "order_only"


def test_a_chain_is_an_exception_each(tmp_path: Path) -> None:
    text = (
        PLAIN
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + PLAIN.replace("ValueError", "my.pkg.LoadError")
    )
    assert [row["name"] for row in read(tmp_path, text).rows(kind="exception")] == ["ValueError", "my.pkg.LoadError"]


def test_a_traceback_that_breaks_off_is_told(tmp_path: Path) -> None:
    text = "\n".join(PLAIN.splitlines()[:5])
    assert read(tmp_path, text).event("exception")["name"] == "unfinished traceback"


def test_a_traceback_whose_start_is_cut_away_is_told(tmp_path: Path) -> None:
    text = prefixed("\n".join(["step(batch)", *PLAIN.splitlines()[3:]]), "[rank3]: ")
    recorder = read(tmp_path, text)
    event = recorder.event("exception")
    assert (event["rank"], event["name"]) == (3, "ValueError")
    assert recorder.stacks[event["stack_id"]] == ("step (lib/data.py:3)", "main (/app/train.py:77)")


def test_exceptions_of_lost_connections_are_told_apart(tmp_path: Path) -> None:
    message = (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/x.cpp:3690, remote process exited or there was a network error, NCCL version 2.26.2\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        "Last error:\n"
        "socketPollConnect: connect to 10.0.0.4<43017> returned Connection refused, exceeded error retry count after 35 attempts\n"
    )
    text = prefixed(PLAIN.replace("ValueError: bad shard\n", message), "[rank2]: ")
    recorder = read(tmp_path, text)
    exception = recorder.event("exception")
    assert (exception["rank"], exception["peer"]) == (2, "10.0.0.4<43017>")
    closed = recorder.event("connection_closed")
    assert (closed["rank"], closed["name"], closed["peer"]) == (2, "nccl", "10.0.0.4<43017>")


def test_the_agent_s_own_exception_is_not_one_of_a_rank(tmp_path: Path) -> None:
    text = PLAIN.replace("ValueError: bad shard", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:")
    assert not read(tmp_path, text).rows(kind="exception")


def test_a_progress_bar_does_not_end_a_traceback(tmp_path: Path) -> None:
    lines = PLAIN.splitlines()
    lines[3] = "\r 12%|#1  | 12/100\r" + lines[3]
    assert read(tmp_path, "\n".join(lines) + "\n").event("exception")["name"] == "ValueError"


FATAL = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f1ac8b3f740 (most recent call first):
  File "/opt/env/lib/python3.10/site-packages/tokfast/core.py", line 58 in encode_batch
  File "/app/train.py", line 77 in main

Thread 0x00007f1ac8000700 (most recent call first):
  File "/opt/env/lib/python3.10/threading.py", line 324 in wait

Extension modules: numpy, torch (total: 2)
"""


def test_a_fatal_error_is_a_signal_with_the_stack_of_its_thread(tmp_path: Path) -> None:
    recorder = read(tmp_path, FATAL + "step 3\n", "rank_1.log")
    event = recorder.event("signal")
    assert (event["rank"], event["name"], event["code"]) == (1, "SIGSEGV", -11)
    assert recorder.stacks[event["stack_id"]][0] == "encode_batch (tokfast/core.py:58)"
    stacks = recorder.rows("stacks")
    assert [(row["tool"], row.get("is_main")) for row in stacks] == [("faulthandler", True), ("faulthandler", None)]
    assert recorder.kinds().count("step") == 1


def test_a_dump_of_all_threads_is_stacks_without_a_signal(tmp_path: Path) -> None:
    text = FATAL.split("\n\n", 1)[1]
    recorder = read(tmp_path, text)
    assert len(recorder.rows("stacks")) == 2
    assert not recorder.rows(kind="signal")


def test_the_watchdog_s_own_end_is_no_exception_of_the_program(tmp_path: Path) -> None:
    what = "[PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600000 milliseconds before timing out."
    text = f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {what}\n"
    recorder = read(tmp_path, text)
    assert not recorder.rows(kind="exception")
    assert recorder.event("watchdog_timeout")["seq"] == 5


def test_an_uncaught_cpp_exception_keeps_what(tmp_path: Path) -> None:
    text = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported\n"
    recorder = read(tmp_path, text)
    event = recorder.event("exception")
    assert (event["name"], event["text"]) == ("c10::Error", "CUDA error: unspecified launch failure")
    assert recorder.event("cuda_error")["name"] == "unspecified launch failure"


def test_a_logger_s_head_before_every_line_is_no_part_of_the_traceback(tmp_path: Path) -> None:
    head = "(VllmWorker rank=3 pid=2421) ERROR 10-14 12:32:4{} [multiproc_executor.py:522] "
    lines = ("Traceback (most recent call last):", '  File "/vllm/worker.py", line 293, in run', "    step()")
    text = "".join(head.format(i) + line + "\n" for i, line in enumerate((*lines, "AssertionError: table overflow")))
    row = read(tmp_path, text).event("exception")
    assert (row["rank"], row["name"], row["text"]) == (3, "AssertionError", "table overflow")
