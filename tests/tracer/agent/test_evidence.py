"""What an agent brings of a process: from real processes, bounded, and with the reason where there is nothing."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from threading import Thread

import pytest

from mycroft.tracer import read_export
from mycroft.tracer.agent import evidence
from mycroft.tracer.agent.rings import Ring, Rings
from mycroft.tracer.process_state import process_state
from mycroft.tracer.trace import ProcessState

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
writer = recorder(Path({folder!r}), host={host!r})
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
def process(
    folder: Path,
    *,
    log: Path,
    answers: bool = True,
    host: str = "host0",
    around: tuple[str, ...] = (),
    **environment: str,
) -> Iterator[Ring]:
    program = PROGRAM.format(root=str(ROOT), folder=str(folder / "rings"), answers=answers, host=host)
    with log.open("w") as sink:
        child = subprocess.Popen(
            [*around, sys.executable, "-c", program],
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


def container(own: Path) -> tuple[str, ...]:
    """What starts a program as a container does: with numbers of its own, and with other files at a path."""
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    namespaces = ("unshare", *user, "--pid", "--fork", "--kill-child", "--mount-proc")
    return (*namespaces, "sh", "-c", f'mount -t tmpfs none {shlex.quote(str(own))} && exec "$@"', "sh")


def test_process_of_a_container_is_followed_and_looked_into_from_around_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    where = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(own / "fr_"),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(own / "dump_"),
    }
    with process(tmp_path, log=tmp_path / "err", host="a-pod", around=container(own), **where) as ring:
        assert (ring.process.pid, ring.process.host) == (1, "host0")
        found = by_name(ring)
        assert not list(own.iterdir())
    assert found["rank0.fr"].data == b"a dump"
    assert b"MainThread" in found["rank0.stacks.txt"].data
    (tmp_path / "back.parquet").write_bytes(found["rank0.trace.parquet"].data)
    (trace,) = read_export(tmp_path / "back.parquet")
    assert trace.state is not None and trace.state.exists
    assert process_state(ring.process) == ProcessState(exists=False)


def test_links_of_a_container_do_not_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "tmp").symlink_to("/etc")
    for path in ("/tmp/dump_0", "/../etc/dump_0"):
        with contextlib.ExitStack() as opened, pytest.raises(OSError):
            evidence._folder_inside(tmp_path, Path(path), opened)


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


def test_ring_is_brought_as_an_export_that_the_loaders_read_also_where_no_temporary_files_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
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


class WorkerServer:
    """Answers over a socket as PyTorch's worker server does, and notes what it is asked."""

    def __init__(self, path: Path, answers: dict[str, tuple[int, bytes]]) -> None:
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.asked.append(f"{self.command} {self.path}")
                status, data = answers.get(self.path, (404, b"Handler not found"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self.do_GET()

            def address_string(self) -> str:
                return "socket"

            def log_message(self, *_: object) -> None:
                pass

        self.server = UnixStreamServer(str(path), Handler)
        self.thread = Thread(target=self.server.serve_forever)

    def __enter__(self) -> WorkerServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


NAMES = b'["ping","fr_trace_json","dump_traceback"]'
BOTH = b'["fr_trace_json","dump_nccl_trace_json"]'


@pytest.mark.parametrize(
    ("answers", "data", "problem"),
    [
        ({"/handler/": (200, NAMES), "/handler/fr_trace_json": (200, b"{}")}, b"{}", ""),
        ({"/handler/": (200, BOTH), "/handler/dump_nccl_trace_json": (200, b"[1]")}, b"[1]", ""),
        ({"/handler/": (200, b'["ping"]')}, b"", "records no operations"),
        ({"/handler/": (200, NAMES)}, b"", "answered 404"),
        ({"/handler/": (200, NAMES), "/handler/fr_trace_json": (200, b"x" * 101)}, b"", "answered more than"),
    ],
    ids=["cpu", "nccl", "no recorder", "not there", "too long"],
)
def test_worker_server_is_asked_for_its_recorder_and_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, tuple[int, bytes]],
    data: bytes,
    problem: str,
) -> None:
    monkeypatch.setattr(evidence, "DUMP_BYTES", 100)
    path = tmp_path / "ws"
    where = {"TORCH_WORKER_SERVER_SOCKET": str(path)}
    with WorkerServer(path, answers) as server, process(tmp_path, log=tmp_path / "err", **where) as ring:
        found = by_name(ring)["rank0.fr.json"]
    assert found.data == data and problem in found.problem and bool(found.problem) == bool(problem)
    assert set(server.asked) <= {"GET /handler/", "POST /handler/fr_trace_json", "POST /handler/dump_nccl_trace_json"}


def test_file_in_the_place_of_the_worker_server_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ws"
    path.write_text("a file of somebody's")
    with process(tmp_path, log=tmp_path / "err", TORCH_WORKER_SERVER_SOCKET=str(path)) as ring:
        assert "is no socket" in by_name(ring)["rank0.fr.json"].problem


def test_worker_server_that_is_gone_is_said(tmp_path: Path) -> None:
    where = str(tmp_path / "gone")
    with process(tmp_path, log=tmp_path / "err", TORCH_WORKER_SERVER_SOCKET=where) as ring:
        assert any("No such file" in found.problem for found in evidence.gather(ring))
