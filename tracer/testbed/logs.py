"""Lines of the logs of a job, in the formats of torch, NCCL's watchdog and the launcher."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from datetime import UTC, datetime


def _glog_time() -> str:
    now = datetime.now(UTC)
    return f"{now:%m%d %H:%M:%S.%f}"


def say(rank: int, level: str, where: str, text: str) -> None:
    """Write one line as torch's C++ side does: `[rank3]:[I1129 …] …`."""
    line = f"[rank{rank}]:[{level}{_glog_time()} {where}] {text}\n"
    os.write(2, line.encode())


def say_plain(text: str) -> None:
    """Write one line of the training script."""
    os.write(2, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n".encode())


def watchdog_line(*, rank: int, group: str, seq: int, op: str, elements: int, timeout_ms: int, ran_ms: int) -> None:
    """Say that an operation has run for too long, as ProcessGroupNCCL's watchdog does."""
    say(
        rank,
        "E",
        "ProcessGroupNCCL.cpp:616",
        f"[PG GUID {group} Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={op}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)={timeout_ms}) ran for {ran_ms} "
        "milliseconds before timing out.",
    )


def print_exception(rank: int, error: BaseException) -> None:
    """Print a traceback with torch's prefix of the rank on every line."""
    for block in traceback.format_exception(error):
        for line in block.rstrip("\n").split("\n"):
            sys.stderr.write(f"[rank{rank}]: {line}\n")
    sys.stderr.flush()


def launcher_line(level: str, text: str) -> str:
    """Return one line of torchrun's agent."""
    now = datetime.now(UTC)
    return (
        f"{level}{now:%m%d %H:%M:%S.%f} {os.getpid()} "
        f"site-packages/torch/distributed/elastic/multiprocessing/api.py:900] {text}"
    )


def failed_line(*, exitcode: int, local_rank: int, pid: int) -> str:
    """Say that a child has failed, as torchrun's agent does."""
    text = f"failed (exitcode: {exitcode}) local_rank: {local_rank} (pid: {pid}) of binary: {sys.executable}"
    return launcher_line("E", text)


def failure_report(*, script: str, host: str, failures: list[tuple[int, int, int, int, float]]) -> str:
    """Return torchrun's block about children that failed.

    `failures`: (global rank, local rank, pid, exit code, UTC seconds), first observed first.
    """

    def block(index: int, failure: tuple[int, int, int, int, float]) -> str:
        rank, local_rank, pid, exitcode, at = failure
        name = f" ({signal.Signals(-exitcode).name})" if exitcode < 0 else ""
        told = (
            f"Signal {-exitcode} ({name[2:-1]}) received by PID {pid}"
            if exitcode < 0
            else "to enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        )
        return "\n".join(
            (
                f"[{index}]:",
                f"  time      : {time.strftime('%Y-%m-%d_%H:%M:%S', time.gmtime(at))}",
                f"  host      : {host}",
                f"  rank      : {rank} (local_rank: {local_rank})",
                f"  exitcode  : {exitcode} (pid: {pid}){name}",
                "  error_file: <N/A>",
                f"  traceback : {told}",
            )
        )

    rest = [block(i, failure) for i, failure in enumerate(failures[1:], 1)] or ["  <NO_OTHER_FAILURES>"]
    rule = "=" * 60
    return "\n".join(
        (
            rule,
            f"{script} FAILED",
            "-" * 60,
            "Failures:",
            *rest,
            "-" * 60,
            "Root Cause (first observed failure):",
            block(0, failures[0]),
            rule,
        )
    )
