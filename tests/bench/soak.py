"""Agent, collector and watch for hours: `python -m tests.bench.soak HOURS [--ranks 8] [--every 60] [--restart 600]`.

A job of `--ranks` ranks in one process writes real rings, two operations a second and rank, and begins anew every
`--restart` seconds with new rings; agent, collector (and its helper) and watch run as they are installed. Every
`--every` seconds a line: resident memory, open files and threads of each, and what the store, the spool and the list
of incidents hold. At the end memory and files of the last quarter are compared with those of the second; exit status 1
if a process was started anew, has a tenth (and 16 MiB) more memory or more than two files more, or an incident was
opened: the job is healthy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from mycroft.app.live.state import LiveState
from mycroft.app.state import State
from mycroft.loaders.collector.manifest import read_manifest
from tests.bench.collector import Running
from tests.tracer.agent.batches import recorder

MIB = 1 << 20
MOST_MORE = 0.10
MOST_MORE_BYTES = 16 * MIB
MOST_MORE_FILES = 2


@dataclass
class Samples:
    """What one process used, at each look."""

    memory: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    cpu_s: float = 0.0


def write(folder: Path, ranks: int, restart_s: float) -> int:
    """What the job's process does until it is ended: healthy iterations of half a second."""
    ended = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    while not ended:
        with ExitStack() as stack:
            writers = [
                stack.enter_context(recorder(folder, rank=rank, host=os.uname().nodename)) for rank in range(ranks)
            ]
            groups = [writer.comm("dp", rank=rank, size=ranks) for rank, writer in enumerate(writers)]
            began = time.monotonic()
            while not ended and time.monotonic() - began < restart_s:
                due = time.monotonic() + 0.5
                ops = [group.start("all_reduce", size_bytes=1 << 20) for group in groups]
                for rank, op in enumerate(ops):
                    flow = op.flow(peer=(rank + 1) % ranks, send=True, total=4)
                    flow.reach(posted=4, ready=4, moved=4, done=4, size=1 << 20)
                    flow.stop()
                for op in ops:
                    op.end()
                for writer in writers:
                    writer.tick()
                time.sleep(max(0.0, due - time.monotonic()))
        for path in folder.glob("*.ring"):
            path.unlink(missing_ok=True)
    return 0


def processes(roots: dict[str, int]) -> dict[str, int]:
    """Pids by name: the processes that were started, and what they started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = dict(roots)
    for name, root in roots.items():
        line = [root]
        for pid in line:
            for child in sorted(pid_ for pid_, parent in parents.items() if parent == pid):
                line.append(child)
                found[f"{name}.{len(line) - 1}"] = child
    return found


def look(samples: dict[str, Samples], roots: dict[str, int]) -> None:
    page, ticks = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    for name, pid in processes(roots).items():
        with suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            one = samples.setdefault(name, Samples())
            one.memory.append(int(fields[21]) * page)
            one.files.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))
            one.threads.append(int(fields[17]))
            one.pids.add(pid)
            one.cpu_s = (int(fields[11]) + int(fields[12])) / ticks


def grown(samples: Samples) -> str:
    """Say what a process has more of in its last quarter than in its second; empty: nothing."""
    count = len(samples.memory)
    if count < 8:
        return ""
    early, late = slice(count // 4, count // 2), slice(-(count // 4), None)
    memory = [statistics.median(samples.memory[part]) for part in (early, late)]
    files = [statistics.median(samples.files[part]) for part in (early, late)]
    said = []
    if memory[1] > memory[0] * (1 + MOST_MORE) and memory[1] > memory[0] + MOST_MORE_BYTES:
        said.append(f"memory grew from {memory[0] / MIB:.0f} to {memory[1] / MIB:.0f} MiB")
    if files[1] > files[0] + MOST_MORE_FILES:
        said.append(f"open files grew from {files[0]:.0f} to {files[1]:.0f}")
    return "; ".join(said)


def soak(hours: float, ranks: int, every_s: float, restart_s: float) -> int:
    samples: dict[str, Samples] = {}
    with tempfile.TemporaryDirectory(prefix="mycroft-soak-") as scratch, ExitStack() as stack:
        base = Path(scratch)
        rings = Path(tempfile.mkdtemp(prefix="mycroft-soak-", dir="/dev/shm"))
        stack.callback(shutil.rmtree, rings, ignore_errors=True)
        running = Running(base / "data")
        stack.callback(running.stop)
        mycroft = [sys.executable, "-m", "mycroft.app.cli"]
        commands = {
            "agent": [*mycroft, "agent", running.url, "--dir", str(rings), "--state", str(base / "agent")],
            "watch": [*mycroft, "watch", "--data", str(base / "data")],
            "job": [
                sys.executable,
                "-m",
                "tests.bench.soak",
                "--write",
                str(rings),
                "--ranks",
                str(ranks),
                "--restart",
                str(restart_s),
                "0",
            ],
        }
        started: dict[str, subprocess.Popen[bytes]] = {}
        for name, command in commands.items():
            log = stack.enter_context((base / f"{name}.log").open("wb"))
            started[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            stack.callback(_end, started[name])
        roots = {"collector": running.process.pid, **{n: p.pid for n, p in started.items() if n != "job"}}
        begin = time.monotonic()
        state = LiveState(State(base / "data"))
        gone = ""
        while time.monotonic() - begin < hours * 3600 and not gone:
            time.sleep(min(every_s, max(0.0, begin + hours * 3600 - time.monotonic())))
            look(samples, roots)
            manifest = read_manifest(base / "data" / "live" / "store" / "manifest")
            spooled = sum(path.stat().st_size for path in (base / "agent" / "spool").glob("*") if path.exists())
            parts = [
                f"{name} {one.memory[-1] / MIB:.0f} MiB {one.files[-1]} files {one.threads[-1]} threads"
                for name, one in samples.items()
            ]
            parts += [
                f"store {manifest.size_bytes / MIB:.1f} MiB in {len(manifest.segments)} segments",
                f"spool {spooled / MIB:.1f} MiB",
                f"{len(state.incidents(limit=1000))} incidents",
            ]
            print(f"{time.monotonic() - begin:6.0f} s | {' | '.join(parts)}", flush=True)
            gone = ", ".join(name for name, process in started.items() if process.poll() is not None)
        incidents = state.incidents(limit=1000)
        tick = state.numbers().get("tick", (0.0, {}))
        failed = bool(gone or incidents)
        if gone:
            log = (base / f"{gone.partition(',')[0]}.log").read_bytes()[-2000:].decode(errors="replace")
            print(f"ended by itself: {gone}: {log}")
        for name, one in samples.items():
            said = grown(one)
            if len(one.pids) > 1:
                said = f"{said}; was started anew {len(one.pids) - 1} times".strip("; ")
            failed = failed or bool(said)
            ranges = ", ".join(
                f"{what} {min(values)} to {max(values)}"
                for what, values in (
                    ("memory (MiB)", [size // MIB for size in one.memory]),
                    ("files", one.files),
                    ("threads", one.threads),
                )
            )
            print(f"{name:<12} {one.cpu_s:8.1f} CPU-s, {ranges}: {said or 'flat'}")
        print(f"watch's last tick {tick[1]}; incidents {[(i.category, i.summary) for i in incidents]}")
    return 1 if failed else 0


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hours", type=float)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--restart", type=float, default=600.0)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write is not None:
        return write(given.write, given.ranks, given.restart)
    return soak(given.hours, given.ranks, given.every, given.restart)


if __name__ == "__main__":
    sys.exit(main())
