"""Whether the process that writes a trace still exists, asked of this machine and only about its own processes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mycroft.tracer.trace import Process, ProcessState

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_OWN_NAMESPACE: Final = Path("/proc/self/ns/pid")
# Field of /proc/<pid>/stat, counted from the state letter: start time in clock ticks since boot.
_START_FIELD: Final = 19


def process_state(process: Process) -> ProcessState | None:
    """Return the state of a traced process; None: it ran on another machine, boot or pid namespace."""
    try:
        boot = _BOOT_ID.read_text().strip().replace("-", "")
        namespace = _OWN_NAMESPACE.stat().st_ino
    except OSError:
        return None
    if boot != process.boot_id or namespace != process.pid_namespace or not process.proc_start:
        return None
    try:
        # The command in parentheses may hold anything.
        fields = Path(f"/proc/{process.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        same = int(fields[_START_FIELD]) == process.proc_start
    except (OSError, IndexError, ValueError):
        return ProcessState(exists=False)
    return ProcessState(exists=True, letter=fields[0]) if same else ProcessState(exists=False)
