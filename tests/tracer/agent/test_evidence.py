"""What an agent brings of a process: from real processes, bounded, and with the reason where there is nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mycroft.tracer import read_export
from mycroft.tracer.agent import evidence
from mycroft.tracer.agent.rings import Ring, Rings

ROOT = Path(__file__).resolve().parents[3]
# A process that is traced, and that dumps when asked through its pipe, as PyTorch's monitor thread does.
PROGRAM = """
import os, sys, threading
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.tracer.agent.batches import recorder, write_ops
pipe = os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
def monitor():
    descriptor = os.open(pipe + "0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    print("ready", flush=True)
    asked = b""
    while not asked:
        try:
            asked = os.read(descriptor, 16)
        except BlockingIOError:
            pass  # opened by the agent, nothing written yet
    Path(os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + "0").write_bytes(b"a dump")
writer = recorder(Path({folder!r}))
write_ops(writer, 3)
if pipe:
    if {answers}:
        os.mkfifo(pipe + "0.pipe")
        threading.Thread(target=monitor, daemon=True).start()
    else:
        print("ready", flush=True)
else:
    print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(folder: Path, *, log: Path, answers: bool = True, **environment: str) -> Iterator[Ring]:
    program = PROGRAM.format(root=str(ROOT), folder=str(folder / "rings"), answers=answers)
    with log.open("w") as sink:
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env={**os.environ, **environment},
        )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n", log.read_text()
        rings = Rings((folder / "rings",), host="host0")
        rings.turn()
        yield rings.live[0]
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


def by_name(ring: Ring) -> dict[str, evidence.Found]:
    return {found.name: found for found in evidence.gather(ring)}


def test_flight_recorder_is_asked_through_its_pipe(tmp_path: Path) -> None:
    where = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "fr_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "dump_"),
    }
    with process(tmp_path, log=tmp_path / "err", **where) as ring:
        found = by_name(ring)
    assert found["rank0.fr"].data == b"a dump"


def test_pipe_that_is_none_is_said_and_not_written_to(tmp_path: Path) -> None:
    victim = tmp_path / "fr_0.pipe"
    victim.write_text("a file of somebody's")
    where = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(tmp_path / "fr_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "dump_"),
    }
    with process(tmp_path, log=tmp_path / "err", answers=False, **where) as ring:
        found = by_name(ring)
    assert "is no pipe" in found["rank0.fr"].problem
    assert victim.read_text() == "a file of somebody's"


def test_only_the_end_of_a_long_log_is_brought_from_a_whole_line_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "LOG_BYTES", 100)
    log = tmp_path / "err"
    with process(tmp_path, log=log) as ring:
        log.write_text("".join(f"line {number}\n" for number in range(1000)))
        found = by_name(ring)
    data = found["rank0.stderr.log"].data
    assert len(data) <= 100 and data.startswith(b"line ") and data.endswith(b"line 999\n")


def test_ring_is_brought_as_an_export_that_the_loaders_read(tmp_path: Path) -> None:
    with process(tmp_path, log=tmp_path / "err") as ring:
        found = by_name(ring)
    path = tmp_path / "back.parquet"
    path.write_bytes(found["rank0.trace.parquet"].data)
    (trace,) = read_export(path)
    assert trace.tables["op"].num_rows > 0
    assert trace.state is not None and trace.state.exists


def test_process_that_has_ended_leaves_its_ring_and_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "err"
    with process(tmp_path, log=log) as ring:
        log.write_text("ValueError: the last words\n")
    found = by_name(ring)
    assert set(found) == {"rank0.stacks.txt", "rank0.stderr.log", "rank0.trace.parquet"}
    assert "has ended" in found["rank0.stacks.txt"].problem
    assert found["rank0.stderr.log"].data == b"ValueError: the last words\n"
    assert found["rank0.trace.parquet"].data


@pytest.mark.parametrize("by", ["link", "file"])
def test_file_put_in_the_place_of_a_log_is_not_read(tmp_path: Path, by: str) -> None:
    log = tmp_path / "err"
    with process(tmp_path, log=log) as ring:
        pass
    secret = tmp_path / "secret"
    secret.write_text("not for the collector")
    log.rename(tmp_path / "err.1")
    if by == "link":
        log.symlink_to(secret)
    else:
        log.hardlink_to(secret)
    found = by_name(ring)["rank0.stderr.log"]
    assert found.data == b"" and found.problem


def test_missing_py_spy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "py_spy", lambda: None)
    with process(tmp_path, log=tmp_path / "err") as ring:
        found = by_name(ring)
    assert found["rank0.stacks.txt"].problem == "py-spy is not installed beside the agent"
