"""Whether the process that writes a trace still exists, asked of this machine and only about its own processes.

A process of a container has another number there than it has here. From a pid namespace around that of the container
(on the host, or in a pod with `hostPID`) it is found; from one beside it nobody can say anything.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from mycroft.tracer.trace import Process, ProcessState

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PROC: Final = Path("/proc")
_OWN_NAMESPACE: Final = Path("/proc/self/ns/pid")
# The kernel's own number of the namespace that is around all others.
_OUTERMOST: Final = 0xEFFFFFFC
# Field of /proc/<pid>/stat, counted from the state letter: start time in clock ticks since boot.
_START_FIELD: Final = 19
_LOOK_S: Final = 5.0
_MOST_STATUS: Final = 8192
_MOST_KNOWN: Final = 4096


def same_boot(process: Process) -> bool:
    """Whether a trace was written on this machine since it was started, whatever the host is called in there."""
    try:
        return bool(process.boot_id) and _BOOT_ID.read_text().strip().replace("-", "") == process.boot_id
    except OSError:
        return False


def in_container(process: Process) -> bool:
    """Whether a trace was written in another pid namespace than this process has."""
    try:
        return bool(process.pid_namespace) and _OWN_NAMESPACE.stat().st_ino != process.pid_namespace
    except OSError:
        return False


def local_pid(process: Process) -> int | None:
    """Return the number that a process of this machine has here; None: of another machine, not to be seen, or gone."""
    if not same_boot(process) or not process.proc_start:
        return None
    if not in_container(process):
        return process.pid
    return _CONTAINERS.find(process)[0]


def process_state(process: Process) -> ProcessState | None:
    """Return the state of a traced process; None: of another machine or boot, or not to be seen from here."""
    if not same_boot(process) or not process.proc_start:
        return None
    if not in_container(process):
        return _state(process.pid, process)
    number, gone = _CONTAINERS.find(process)
    if number is not None:
        return _state(number, process)
    return ProcessState(exists=False) if gone else None


def _state(number: int, process: Process) -> ProcessState:
    try:
        # The command in parentheses may hold anything.
        fields = (_PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        same = int(fields[_START_FIELD]) == process.proc_start
    except (OSError, IndexError, ValueError):
        return ProcessState(exists=False)
    return ProcessState(exists=True, letter=fields[0]) if same else ProcessState(exists=False)


class _Containers:
    """The processes of pid namespaces inside ours: their numbers there and here. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: dict[tuple[int, int], int] = {}
        self._whole = False
        self._looked = float("-inf")
        # Found once: its number here stays its own, and with it the end is seen at once.
        self._known: dict[tuple[int, int, int], int] = {}

    def find(self, process: Process) -> tuple[int | None, bool]:
        """Return the number of a process here, or None and whether it is surely gone."""
        key = (process.pid_namespace, process.pid, process.proc_start)
        with self._lock:
            if (number := self._known.get(key)) is not None:
                return number, False
            fresh = time.monotonic() - self._looked > _LOOK_S
            if fresh:
                self._look()
            number = self._inside.get((process.pid_namespace, process.pid))
            if number is not None and _state(number, process).exists:
                while len(self._known) >= _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[key] = number
                return number, False
            # Only a look after it had begun to write can tell that it is gone, and only where all can be seen.
            return None, fresh and self._whole

    def _look(self) -> None:
        self._inside.clear()
        try:
            # Where processes of other users are hidden, the first one is.
            first = _PROC / "1" / "status"
            self._whole = _OWN_NAMESPACE.stat().st_ino == _OUTERMOST and bool(first.read_bytes())
            folders = [folder for folder in _PROC.iterdir() if folder.name.isdecimal()]
        except OSError:
            self._whole, folders = False, []
        for folder in folders:
            inner = _number_inside(folder)
            if inner is None:
                continue
            try:
                self._inside[(folder / "ns" / "pid").stat().st_ino, inner] = int(folder.name)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            except OSError:
                # Of another user: whether it is the one that is looked for cannot be seen.
                self._whole = False
        self._looked = time.monotonic()


def _number_inside(folder: Path) -> int | None:
    """Return the number of a process in the innermost namespace that it is in; None: that is ours, or it has ended."""
    try:
        with (folder / "status").open("rb") as source:
            status = source.read(_MOST_STATUS)
    except OSError:
        return None
    numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
    return int(numbers[-1]) if len(numbers) > 1 else None


_CONTAINERS: Final = _Containers()
