"""What the tracer costs: plugin, ring and decoder, with the bars that must hold.

    python -m tests.bench.tracer [--against OTHER.so] [--runs 9] [--write]

The replay driver's host calls the plugin as NCCL does; a plugin that does nothing is the zero. Each figure is the
median of `--runs` processes, ours, the empty one and the other one in turn, so that drift of the machine meets all of
them. CPU time of the measured thread, not wall time: other load on the machine hardly counts.

Ends with 1 if a bar does not hold. `--write` puts the table into docs/overhead.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from mycroft.tracer import Recorder, TraceFile
from tests.tracer.tools import ROOT, Tools, build, clean_environment

PAGE = ROOT / "docs/overhead.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
RANKS_PER_HOST = 8


@dataclass(frozen=True)
class Row:
    """One line of the table. `holds` is None where there is no bar."""

    what: str
    bar: str
    ours: str
    other: str
    spread: str
    holds: bool | None


class Bench:
    """Runs measurements of plugins, each in a process of its own."""

    def __init__(self, tools: Tools, runs: int, against: Path | None) -> None:
        self.tools = tools
        self.runs = runs
        self.plugins = {"ours": tools.plugin, "empty": tools.empty_plugin}
        if against is not None:
            self.plugins["other"] = against

    def once(self, plugin: str | None, what: str, *, threads: int = 1) -> dict[str, float]:
        """Run one measurement of one plugin."""
        with tempfile.TemporaryDirectory(prefix="mycroft-bench-", dir="/dev/shm") as folder:
            command = [str(self.tools.tool("mycroft_bench")), "--threads", str(threads)]
            if plugin is not None:
                command += ["--plugin", str(self.plugins[plugin])]
            # One file as eight ranks of a host would have it; Inspector and others are told where to put theirs.
            environment = {**clean_environment(), "MYCROFT_DIR": folder, "NCCL_INSPECTOR_DUMP_DIR": folder}
            done = subprocess.run([*command, what], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} {what}: {done.stderr.strip() or done.returncode}")
        return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}

    def all(self, what: str, key: str, *, threads: int = 1, runs: int | None = None) -> dict[str, list[float]]:
        """Run every plugin in turn, `runs` times."""
        found: dict[str, list[float]] = {name: [] for name in self.plugins}
        for _ in range(runs or self.runs):
            for name, values in found.items():
                values.append(self.once(name, what, threads=threads)[key])
        return found


def net(values: dict[str, list[float]], name: str) -> list[float]:
    """Return what a plugin costs above the empty one, run by run."""
    return [a - b for a, b in zip(values[name], values["empty"], strict=True)]


def spread(values: list[float], digits: int = 1) -> str:
    """Return least and most."""
    return f"{min(values):.{digits}f} – {max(values):.{digits}f}"


def compared(what: str, bar: str, values: dict[str, list[float]], limit: float, unit: str, digits: int = 1) -> Row:
    """Make the row of a cost that is measured against the empty plugin."""
    mine = net(values, "ours")
    other = f"{median(net(values, 'other')):.{digits}f} {unit}" if "other" in values else ""
    holds = median(mine) <= limit
    return Row(what, bar, f"{median(mine):.{digits}f} {unit}", other, spread(mine, digits), holds)


def steps(bench: Bench) -> list[Row]:
    """The five callbacks of a proxy step."""
    rows = []
    for threads in (1, 2):
        for side in ("send", "recv"):
            values = bench.all(f"step-{side}", "ns", threads=threads)
            title = f"one proxy step, {side} side (5 callbacks), {threads} thread{'s' if threads > 1 else ''}, net"
            rows.append(compared(title, "≤ 40 ns", values, 40, "ns"))
    return rows


def poll(bench: Bench) -> list[Row]:
    """A repeated poll callback: as it is, the call included."""
    values = bench.all("poll", "ns")
    other = f"{median(values['other']):.1f} ns" if "other" in values else ""
    mine = values["ours"]
    return [
        Row(
            "a repeated poll callback, the call included",
            "≤ 5 ns",
            f"{median(mine):.1f} ns",
            other,
            spread(mine),
            median(mine) <= 5,
        )
    ]


def operation(bench: Bench) -> list[Row]:
    """An operation with one flow: start, stop, announcement, head, stop with its record."""
    values = bench.all("op", "ns")
    other = f"{median(net(values, 'other')):.0f} ns" if "other" in values else ""
    mine = net(values, "ours")
    row = Row(
        "one operation with one flow (6 callbacks), net", "", f"{median(mine):.0f} ns", other, spread(mine, 0), None
    )
    return [row]


def writing(bench: Bench) -> list[Row]:
    """Completion and state records of one rank."""
    found = [bench.once(None, "write")["records_per_second"] / 1e6 for _ in range(bench.runs)]
    title = "completion and state records written per second by one rank"
    return [Row(title, "≥ 2 M", f"{median(found):.1f} M", "", spread(found), median(found) >= 2)]


def memory(bench: Bench) -> list[Row]:
    """Resident memory beside the ring, 256 flows of 64 operations of 64 communicators in flight."""
    values = bench.all("memory", "kb")
    values = {name: [v / 1024 for v in found] for name, found in values.items()}
    return [compared("resident memory per rank beside the ring", "≤ 2 MB", values, 2, "MB", 2)]


def sampler(bench: Bench) -> list[Row]:
    """The sampler's CPU time; the median of fewer runs, each is seconds long."""
    found = [bench.once("ours", "sampler")["percent"] for _ in range(bench.runs)]
    title = "sampler, 64 operations in flight, of a core"
    return [Row(title, "≤ 0.1 %", f"{median(found):.3f} %", "", spread(found, 3), median(found) <= 0.1)]


def volume(bench: Bench) -> list[Row]:
    """Growth of the rings of a host in the shape of the design."""
    found = [bench.once("ours", "volume")["bytes_per_rank_and_second"] for _ in range(3)]
    kilobytes = [RANKS_PER_HOST * b / 1000 for b in found]
    title = "trace volume per host: 8 ranks, 40 state and 8 completion records a second each (and a heartbeat)"
    holds = median(kilobytes) <= 28
    return [Row(title, "≤ 28 KB/s", f"{median(kilobytes):.1f} KB/s", "", spread(kilobytes), holds)]


def fill(folder: Path) -> Path:
    """Make a ring that is full: five state records to one completion, as in the shape of the design."""
    with Recorder(directory=folder, ring_mb=64, rank=0, sampler=False) as recorder:
        comm = recorder.comm("dp", rank=0, size=8)
        slots = TraceFile(recorder.path).header["ring_records"]
        op = comm.start("all_reduce")
        flows = [op.flow(peer=i % 8, send=i % 2 == 0, total=100, channel=i % 32) for i in range(320)]
        for flow in flows:
            flow.reach(posted=8, moved=6, ready=7, done=4, size=1 << 20)
        while TraceFile(recorder.path).header["head"] < slots:
            recorder.tick()
            for _ in range(64):
                with recorder.op(comm, "all_reduce", size_bytes=1 << 20):
                    pass
        return recorder.path


def decoding(bench: Bench) -> list[Row]:
    """Decode a full ring of 64 MB to Arrow."""
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-", dir="/dev/shm") as folder:
        file = TraceFile(fill(Path(folder)))
        rates: list[float] = []
        for _ in range(bench.runs + 1):
            before = time.process_time()
            batches = file.batches()
            spent = time.process_time() - before
            rates.append(sum(b.num_rows for b in batches.values()) / spent / 1e6)
            del batches
    first, rest = rates[0], rates[1:]
    title = "decode to Arrow, per core"
    bar = "≥ 20 M records/s"
    return [
        Row("the first decode of a process: the kernel clears its memory", "", f"{first:.1f} M/s", "", "", None),
        Row(title, bar, f"{median(rest):.1f} M/s", "", spread(rest), median(rest) >= 20),
    ]


PARTS: dict[str, Callable[[Bench], list[Row]]] = {
    "step": steps,
    "poll": poll,
    "operation": operation,
    "write": writing,
    "memory": memory,
    "sampler": sampler,
    "volume": volume,
    "decode": decoding,
}


def table(rows: list[Row], other: Path | None) -> str:
    """Return the table in Markdown."""
    title = f" {other.name} |" if other is not None else ""
    lines = [f"| | bar | measured | least – most |{title} |", "|---|---|---|---|" + ("---|" if title else "") + "---|"]
    for row in rows:
        word = "" if row.holds is None else "holds" if row.holds else "**does not hold**"
        extra = f" {row.other} |" if title else ""
        lines.append(f"| {row.what} | {row.bar} | {row.ours} | {row.spread} |{extra} {word} |")
    return "\n".join(lines)


def machine() -> str:
    """Return what was measured on, without names of machines."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.*)", info.read_text())):
        model = found.group(1)
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, gcc build of the plugin (-O3)"


def main() -> int:
    """Measure, print the table, and return 1 if a bar does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tracer")
    parser.add_argument("--against", type=Path, help="another profiler plugin, measured in the same run")
    parser.add_argument("--runs", type=int, default=9, help="processes per figure; the median counts")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given again")
    parser.add_argument("--write", action="store_true", help="put the table into docs/overhead.md")
    arguments = parser.parse_args()
    tools = build(targets=("mycroft_plugin", "mycroft_empty_plugin", "mycroft_bench"))
    bench = Bench(tools, arguments.runs, arguments.against)
    rows: list[Row] = []
    for name, part in PARTS.items():
        if arguments.only and name not in arguments.only:
            continue
        rows += part(bench)
        print(f"{rows[-1].what}: {rows[-1].ours}", file=sys.stderr, flush=True)
    text = table(rows, arguments.against)
    print(text)
    if arguments.write:
        load = f"load average {os.getloadavg()[0]:.1f} at the end"
        page = PAGE.read_text()
        head, rest = page.split(BEGIN)
        tail = rest.split(END)[1]
        note = f"\nMeasured on: {machine()}; medians of {arguments.runs} runs; {load}.\n\n"
        PAGE.write_text(f"{head}{BEGIN}\n{note}{text}\n\n{END}{tail}")
    return int(any(row.holds is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
