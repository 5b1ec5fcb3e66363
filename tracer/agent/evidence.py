"""What an agent brings of a process when an incident is open: stacks, ends of logs, a Flight Recorder dump, the ring.

What is done is listed here and nowhere else; a request names processes, never commands, files or options. Everything
is bounded in time and bytes, reads only, and does not stop the process (`py-spy --nonblocking`).
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mycroft.tracer.agent.rings import Ring
from mycroft.tracer.export import export_bytes
from mycroft.tracer.process_state import local_pid, process_state

PY_SPY_S: Final = 10.0
LOG_BYTES: Final = 512 << 10
RING_RECORDS: Final = 200_000
DUMP_BYTES: Final = 32 << 20
DUMP_WAIT_S: Final = 4.0
_STEP_S: Final = 0.1
MOST_PROCESSES: Final = 8
_PIPE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_SERVER: Final = "TORCH_WORKER_SERVER_SOCKET"
# What a worker server is asked for, the best first: NCCL's recorder, else that of the CPU backends.
_RECORDERS: Final = ("dump_nccl_trace_json", "fr_trace_json")
_DUMP_FILES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


@dataclass(frozen=True, slots=True)
class Found:
    """One file for the incident; `data` empty: `problem` says why there is none."""

    name: str
    data: bytes = b""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Subject:
    """Whose evidence it is; `number` is what the process is called in our own pid namespace, 0 once it has ended."""

    ring: Ring
    label: str
    number: int


def gather(ring: Ring) -> Iterator[Found]:
    """Yield everything of one process, the quickest first; what cannot be had comes as a problem."""
    label = f"rank{ring.process.rank}" if ring.process.rank is not None else f"pid{ring.process.pid}"
    state = process_state(ring.process)
    number = local_pid(ring.process) if state is not None and state.exists else None
    subject = _Subject(ring, label, number or 0)
    actions: tuple[Callable[[_Subject], Iterator[Found]], ...] = (
        (_left_logs, _ring) if number is None else (_stacks, _logs, _flight_recorder, _worker_server, _ring)
    )
    if number is None:
        yield Found(f"{label}.stacks.txt", problem="the process has ended or lives in another pid namespace")
    for action in actions:
        try:
            yield from action(subject)
        except OSError as error:
            yield Found(f"{label}.{action.__name__.strip('_')}", problem=f"{error.strerror or error}")


def py_spy() -> str | None:
    """Return the py-spy of this installation, else the one on the path; None: there is none."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _stacks(subject: _Subject) -> Iterator[Found]:
    name = f"{subject.label}.stacks.txt"
    program = py_spy()
    if program is None:
        yield Found(name, problem="py-spy is not installed beside the agent")
        return
    try:
        done = subprocess.run(
            [program, "dump", "--nonblocking", "--pid", str(subject.number)],
            capture_output=True,
            timeout=PY_SPY_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        yield Found(name, problem=f"py-spy did not end within {PY_SPY_S:.0f} s")
        return
    if done.returncode != 0:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-300:]
        yield Found(name, problem=f"py-spy ended with {done.returncode}: {said}")
        return
    yield Found(name, done.stdout[:LOG_BYTES])


def _logs(subject: _Subject) -> Iterator[Found]:
    """The ends of what standard output and error go to, where that is a file."""
    told: set[tuple[int, int]] = set()
    for descriptor, name in ((2, "stderr"), (1, "stdout")):
        path = Path(f"/proc/{subject.number}/fd/{descriptor}")
        try:
            # Through the link: a file that was rotated away is still the one the process writes to.
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            yield Found(f"{subject.label}.{name}.log", problem=f"cannot be opened: {error.strerror}")
            continue
        with contextlib.closing(os.fdopen(file, "rb", buffering=0)) as source:
            about = os.fstat(source.fileno())
            if not stat.S_ISREG(about.st_mode):
                yield Found(f"{subject.label}.{name}.log", problem="goes to no file; its reader may have it")
                continue
            if (about.st_dev, about.st_ino) in told:
                continue
            told.add((about.st_dev, about.st_ino))
            if data := _end_of(source, about.st_size):
                yield Found(f"{subject.label}.{name}.log", data)


def _left_logs(subject: _Subject) -> Iterator[Found]:
    """The ends of the files that a process which has ended wrote to: its last words often say why."""
    told: set[tuple[int, int]] = set()
    for log in subject.ring.logs:
        name = f"{subject.label}.{log.name}.log"
        if (log.device, log.inode) in told:
            continue
        told.add((log.device, log.inode))
        try:
            file = os.open(log.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
        except OSError as error:
            yield Found(name, problem=f"cannot be opened: {error.strerror}")
            continue
        with contextlib.closing(os.fdopen(file, "rb", buffering=0)) as source:
            about = os.fstat(source.fileno())
            # The path may mean another file by now, also one that somebody put there for us to read.
            if (about.st_dev, about.st_ino) != (log.device, log.inode) or not stat.S_ISREG(about.st_mode):
                yield Found(name, problem="was moved or replaced since")
            elif data := _end_of(source, about.st_size):
                yield Found(name, data)


def _end_of(source: io.RawIOBase, size: int) -> bytes:
    """Return the end of a log, from a whole line on."""
    source.seek(max(0, size - LOG_BYTES))
    data = source.read(LOG_BYTES) or b""
    return data[data.find(b"\n") + 1 :] if size > LOG_BYTES else data


def _flight_recorder(subject: _Subject) -> Iterator[Found]:
    """Ask PyTorch's monitor thread for a dump through its pipe, where the job was started with one."""
    variables = _environment(subject)
    target = next((variables[name] for name in _DUMP_FILES if variables.get(name)), None)
    if not variables.get(_PIPE) or target is None or subject.ring.process.rank is None:
        return
    with (
        _as_seen_by(subject, Path(f"{target}{subject.ring.process.rank}")) as dump,
        _as_seen_by(subject, Path(f"{variables[_PIPE]}{subject.ring.process.rank}.pipe")) as pipe,
    ):
        yield _asked_dump(subject, f"{subject.label}.fr", dump=dump, pipe=pipe)


def _asked_dump(subject: _Subject, name: str, *, dump: _Place, pipe: _Place) -> Found:
    before = _stamp(dump.path)
    try:
        descriptor = os.open(pipe.path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        return Found(name, problem=f"{pipe.name} cannot be opened: {error.strerror}")
    with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)) as sink:
        if not stat.S_ISFIFO(os.fstat(sink.fileno()).st_mode):
            return Found(name, problem=f"{pipe.name} is no pipe")
        sink.write(b"1\n")
    deadline = time.monotonic() + DUMP_WAIT_S
    last = before
    while time.monotonic() < deadline:
        time.sleep(_STEP_S)
        stamp = _stamp(dump.path)
        if stamp is not None and stamp[1] > 0 and stamp != before and stamp == last:
            break
        last = stamp
    else:
        return Found(name, problem=f"no new dump at {dump.name} within {DUMP_WAIT_S:.0f} s")
    with contextlib.closing(os.fdopen(os.open(dump.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")) as source:
        about = os.fstat(source.fileno())
        # Whoever runs as root reads what others may not: only what the process wrote itself is brought.
        if not stat.S_ISREG(about.st_mode) or about.st_uid != _owner(subject):
            return Found(name, problem=f"{dump.name} is no file of the process's user")
        data = source.read(DUMP_BYTES + 1)
    if len(data) > DUMP_BYTES:
        return Found(name, problem=f"{dump.name} is larger than {DUMP_BYTES >> 20} MiB")
    return Found(name, data)


@dataclass(frozen=True, slots=True)
class _Place:
    """A path that a process names: as we reach it, and as it is called there."""

    path: Path
    name: str


@contextlib.contextmanager
def _as_seen_by(subject: _Subject, path: Path) -> Iterator[_Place]:
    """Reach a path as the process means it: it may have a container's files, or a /tmp of its own.

    Where its files are others than ours no link is followed: one that begins with `/` would lead to ours.

    Raises:
        OSError: the folder is not there, or not reached without following a link.
    """
    its = Path(f"/proc/{subject.number}")
    try:
        elsewhere = path.is_absolute() and not (its / "ns/mnt").samefile("/proc/self/ns/mnt")
    except PermissionError:
        elsewhere = False
    with contextlib.ExitStack() as opened:
        reached = path
        if elsewhere:
            try:
                reached = Path(f"/proc/self/fd/{_folder_inside(its / 'root', path, opened)}") / path.name
            except OSError as error:
                # An agent in a sandbox beside a process that is in none: links lead to the same files for both.
                if error.errno not in (errno.ELOOP, errno.ENOTDIR) or not (its / "root").samefile("/"):
                    raise
        yield _Place(reached, str(path))


def _folder_inside(root: Path, path: Path, opened: contextlib.ExitStack) -> int:
    """Open the folder of a path below a root, one name after the other."""
    if ".." in path.parts:
        raise OSError(errno.ELOOP, f"{path} leads up")
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY)
    opened.callback(os.close, folder)
    for part in path.parent.parts[1:]:
        folder = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        opened.callback(os.close, folder)
    return folder


def _owner(subject: _Subject) -> int:
    return Path(f"/proc/{subject.number}").stat().st_uid


def _environment(subject: _Subject) -> dict[str, str]:
    """Return the variables that a process was started with."""
    with Path(f"/proc/{subject.number}/environ").open("rb") as source:
        pairs = [part.partition(b"=") for part in source.read(1 << 20).split(b"\0")]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DUMP_WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _worker_server(subject: _Subject) -> Iterator[Found]:
    """Ask PyTorch's worker server for what it records, where the job was started with one (`torchrun` jobs can be)."""
    named = _environment(subject).get(_SERVER)
    if not named:
        return
    with _as_seen_by(subject, Path(named)) as place:
        yield _asked_server(subject, f"{subject.label}.fr.json", place)


def _asked_server(subject: _Subject, name: str, place: _Place) -> Found:
    about = place.path.lstat()
    # Of the process's own user: another could have put a socket there that answers what it likes.
    if not stat.S_ISSOCK(about.st_mode) or about.st_uid != _owner(subject):
        return Found(name, problem=f"{place.name} is no socket of the process's user")
    try:
        with contextlib.closing(_SocketConnection(place.path)) as connection:
            known = _answer(connection, "GET", "/handler/", 64 << 10)
            asked = next((h for h in _RECORDERS if f'"{h}"'.encode() in known), None)
            if asked is None:
                return Found(name, problem="PyTorch's worker server records no operations")
            return Found(name, _answer(connection, "POST", f"/handler/{asked}", DUMP_BYTES))
    except (http.client.HTTPException, ValueError) as error:
        return Found(name, problem=f"PyTorch's worker server: {error}")


def _answer(connection: http.client.HTTPConnection, method: str, path: str, most: int) -> bytes:
    """Return the body of an answer.

    Raises:
        ValueError: it is no success, or longer than `most`.
    """
    connection.request(method, path, headers={"Content-Length": "0"})
    answer = connection.getresponse()
    data = answer.read(most + 1)
    if answer.status != 200:
        raise ValueError(f"{path} answered {answer.status}")
    if len(data) > most:
        raise ValueError(f"{path} answered more than {most >> 20} MiB")
    return data


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _ring(subject: _Subject) -> Iterator[Found]:
    ring = subject.ring
    head = ring.file.header["head"]
    state = process_state(ring.process)
    trace = ring.file.read(max(0, head - RING_RECORDS), live=state is None or state.exists)
    # No file on the way: the units of deploy/ leave an agent nowhere to write but its state, not even /tmp.
    yield Found(f"{subject.label}.trace.parquet", export_bytes([replace(trace, process=ring.process, state=state)]))
