"""The doctor: says what is there, what is missing and what to do, and changes nothing."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mycroft.app.cli import main
from mycroft.app.live import doctor


def test_version_of_nccl_is_read_from_its_file_without_loading_it(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(bytes((4 << 20) - 10) + b"NCCL version 2.27.3+cuda12.9" + bytes(100))
    found = doctor.nccl({"LD_LIBRARY_PATH": str(tmp_path)})
    assert (found.state, found.found) == ("good", f"2.27.3 at {library}")
    library.write_bytes(b"NCCL version 2.18.6")
    assert doctor.nccl({"LD_LIBRARY_PATH": str(tmp_path)}).state == "wrong"
    library.write_bytes(b"nothing")
    assert doctor.nccl({"LD_LIBRARY_PATH": str(tmp_path)}).state == "unknown"


def test_what_is_not_set_is_said_with_the_line_that_sets_it() -> None:
    assert doctor.attached({}).do.startswith("export NCCL_PROFILER_PLUGIN=")
    assert doctor.attached({"NCCL_PROFILER_PLUGIN": "/x/libnccl-profiler-mycroft.so"}).state == "good"
    assert doctor.flight_recorder_of({})().state == "missing"


def test_small_shared_memory_is_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_SHM", 1 << 62)
    found = doctor.shared_memory(tmp_path / "not" / "there")
    assert found.state == "wrong" and "--shm-size" in found.do


def test_traces_are_counted(tmp_path: Path) -> None:
    assert doctor.traces(tmp_path / "none").state == "unknown"
    (tmp_path / "rank0-1-1.ring").write_bytes(b"")
    assert doctor.traces(tmp_path).found.startswith("1 in ")


def test_port_that_nobody_serves_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        # Bound and not listening: nobody else gets it, and nobody answers.
        assert main(["doctor", "--dir", str(tmp_path), "--collector", f"http://127.0.0.1:{port}"]) == 1
    assert f"!!  collector             127.0.0.1 port {port}" in capsys.readouterr().out
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert doctor.reach(f"http://127.0.0.1:{listening.getsockname()[1]}").state == "good"
