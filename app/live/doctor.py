"""What a host lacks for being always watched: looked at, said in words, with what to do. Changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

State = Literal["good", "missing", "wrong", "unknown"]
LEAST_SHM: Final = 512 << 20
_MARK: Final = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")
_PART: Final = 4 << 20
_FIRST_NCCL: Final = (2, 23)


@dataclass(frozen=True, slots=True)
class Check:
    """What was found of one thing, and what to do about it; `what` names it, `do` is empty where nothing is to do."""

    what: str
    state: State
    found: str
    do: str = ""


def examine(*, folder: Path, collector: str | None = None, environ: dict[str, str] | None = None) -> list[Check]:
    """Look at this host.

    Args:
        folder: where trace files are to lie.
        collector: address of the collector; None: no agent is planned.
        environ: environment in which jobs start; None: this one.
    """
    variables = dict(os.environ) if environ is None else environ
    checks: Sequence[Callable[[], Check]] = (
        plugin,
        lambda: attached(variables),
        lambda: nccl(variables),
        lambda: shared_memory(folder),
        lambda: traces(folder),
        py_spy,
        flight_recorder_of(variables),
        kernel_log,
        *([lambda: reach(collector)] if collector is not None else []),
    )
    found: list[Check] = []
    for check in checks:
        try:
            found.append(check())
        except OSError as error:
            found.append(Check(getattr(check, "__name__", "a check"), "unknown", f"cannot be looked at: {error}"))
    return found


def plugin() -> Check:
    """Whether the plugin is there, and can be loaded."""
    from mycroft.tracer import plugin_path

    try:
        path = Path(plugin_path())
    except (OSError, RuntimeError) as error:
        return Check("plugin", "missing", str(error), "install Mycroft again")
    if not path.is_file():
        return Check("plugin", "missing", f"{path} is not there", "install Mycroft again")
    import ctypes

    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return Check("plugin", "wrong", f"{path} cannot be loaded: {error}", "build it on this system: make build")
    return Check("plugin", "good", str(path))


def attached(environ: dict[str, str]) -> Check:
    """Whether jobs that start here load the plugin."""
    value = environ.get("NCCL_PROFILER_PLUGIN", "")
    if "mycroft" in value:
        return Check("NCCL_PROFILER_PLUGIN", "good", value)
    do = "export NCCL_PROFILER_PLUGIN=$(mycroft plugin-path) where jobs start"
    return Check("NCCL_PROFILER_PLUGIN", "missing", f"is {value!r}" if value else "is not set here", do)


def nccl(environ: dict[str, str]) -> Check:
    """Which NCCL is here, by its file; it is not loaded."""
    folders = [Path(part) for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    folders += [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/local/lib"), Path("/usr/lib64")]
    import sysconfig

    folders.append(Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "nccl" / "lib")
    for folder in folders:
        path = folder / "libnccl.so.2"
        if not path.is_file():
            continue
        version = _version(path)
        if version is None:
            return Check("NCCL", "unknown", f"{path} tells no version")
        number = tuple(int(part) for part in version.split(".")[:2])
        if number < _FIRST_NCCL:
            return Check("NCCL", "wrong", f"{version} at {path}", "the profiler interface begins with NCCL 2.23")
        return Check("NCCL", "good", f"{version} at {path}")
    return Check("NCCL", "unknown", "no libnccl.so.2 where it usually lies; jobs may bring their own")


def _version(path: Path) -> str | None:
    tail = b""
    with path.open("rb") as source:
        while piece := source.read(_PART):
            found = _MARK.search(tail + piece)
            if found:
                return found[1].decode()
            tail = piece[-64:]
    return None


def shared_memory(folder: Path) -> Check:
    """Whether the file system of the traces has room for their budget."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    usage = shutil.disk_usage(there)
    text = f"{usage.free >> 20} MiB of {usage.total >> 20} free at {there}"
    if usage.total < LEAST_SHM:
        do = (
            "give the container more (docker: --shm-size=2g; Kubernetes: an emptyDir of medium Memory), "
            "or lower MYCROFT_BUDGET_MB"
        )
        return Check("shared memory", "wrong", text, do)
    return Check("shared memory", "good", text)


def traces(folder: Path) -> Check:
    """Whether there are traces, and whether they are ours to read."""
    if not folder.is_dir():
        return Check("trace files", "unknown", f"{folder} is not there yet: no traced job has run here as this user")
    found = sorted(folder.glob("*.ring"))
    unreadable = [path for path in found if not os.access(path, os.R_OK)]
    if unreadable:
        return Check(
            "trace files",
            "wrong",
            f"{len(unreadable)} of {len(found)} cannot be read",
            "run the agent as the jobs' user",
        )
    return Check("trace files", "good", f"{len(found)} in {folder}")


def py_spy() -> Check:
    """Whether stacks of other processes can be taken: py-spy is there and may trace."""
    from mycroft.tracer.agent.evidence import py_spy as find

    program = find()
    if program is None:
        return Check("py-spy", "missing", "not installed", "pip install py-spy")
    child = subprocess.Popen(
        ["sleep", "30"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        # What matters is whether the kernel lets us look into another process of ours that is no child of py-spy.
        memory = Path(f"/proc/{child.pid}/mem")
        with memory.open("rb", buffering=0):
            pass
    except OSError as error:
        scope = _first_line(Path("/proc/sys/kernel/yama/ptrace_scope"))
        do = "give the agent CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0"
        return Check("py-spy", "wrong", f"may not look into processes ({error.strerror}; ptrace_scope {scope})", do)
    finally:
        child.kill()
        child.wait()
    scope = _first_line(Path("/proc/sys/kernel/yama/ptrace_scope"))
    if scope not in ("0", "?") and os.geteuid() != 0:
        do = "give the agent CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0: jobs are no children of the agent"
        return Check("py-spy", "wrong", f"{program}; ptrace_scope is {scope}", do)
    return Check("py-spy", "good", program)


def _first_line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "?"


def flight_recorder_of(environ: dict[str, str]) -> Callable[[], Check]:
    """Whether PyTorch's Flight Recorder can be asked for a dump while a job hangs."""

    def flight_recorder() -> Check:
        pipe = environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
        target = environ.get("TORCH_FR_DUMP_TEMP_FILE") or environ.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
        if pipe and target:
            return Check("Flight Recorder", "good", f"dumps to {target}<rank> when asked through {pipe}<rank>.pipe")
        do = (
            "export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr_ TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/tmp/fr_dump_ "
            "where jobs start"
        )
        return Check("Flight Recorder", "missing", "agents cannot ask for a dump (optional)", do)

    return flight_recorder


def kernel_log() -> Check:
    """Whether the kernel's messages can be read: Xid and out-of-memory kills stand there."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        do = "give the agent CAP_SYSLOG, or sysctl kernel.dmesg_restrict=0"
        return Check("kernel log", "missing", f"/dev/kmsg: {error.strerror} (optional)", do)
    os.close(descriptor)
    return Check("kernel log", "good", "/dev/kmsg can be read")


def reach(collector: str) -> Check:
    """Whether the collector's port answers."""
    parts = urlsplit(collector)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return Check("collector", "wrong", f"{collector!r} is no address", "give it as http://collector:8060")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname, port), timeout=3.0):
            pass
    except OSError as error:
        do = "start `mycroft collect` there, and let the port through"
        return Check("collector", "wrong", f"{parts.hostname} port {port}: {error}", do)
    return Check("collector", "good", f"{parts.hostname} port {port} answers")
