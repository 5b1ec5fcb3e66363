"""A store of any size: the window of a root-cause analysis, a group-by over all, memory, the heat map of a day.

`python -m tests.bench.scale [--rows 1000000,10000000] [--keep FOLDER]`; 10^8 rows need 0.6 GB of disk.

Rows are made up: 1,280 hosts of 8 processes, one row of `state` each tick of 100 ms, segments of 128 hosts and 10 s as
a collector makes them. CPU seconds; each number of a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from mycroft.analysis.fleet import LocalExecutor, Window, digest, run
from mycroft.analysis.fleet.reductions import ACTIVITY, SNAPSHOT
from mycroft.app.fleet import heat_map
from mycroft.app.pages.fleet import View, heat_panel
from mycroft.loaders.collector.rollups import SCHEMAS
from mycroft.loaders.collector.segments import table_schema, write_segment
from mycroft.loaders.fleet import FleetReader, FleetSegment, FleetStore, open_fleet, open_place

START = 1_790_000_000 // 3600 * 3600 * 10**9
HOSTS, PER_HOST, GROUP = 1280, 8, 128
TICKS = 100
TICK_NS = 100_000_000
SEGMENT_NS = TICKS * TICK_NS
HOUR_NS = 3600 * 10**9
ROWS_OF_SEGMENT = GROUP * PER_HOST * TICKS
# A day that ends now begins within a file and ends within another: `cut`. `minutes`: as files without peaks are read.
HEATS = ("heat 1h", "heat 24h", "heat 24h cut", "heat 24h minutes")
CUT_NS = 7 * 60 * 10**9
FRESH = 7


def state_rows(group: int, number: int) -> pa.Table:
    draw = np.random.default_rng(group * 1_000_003 + number)
    processes = GROUP * PER_HOST
    count = ROWS_OF_SEGMENT
    tick = np.tile(np.arange(TICKS), processes)
    owner = np.repeat(np.arange(processes), TICKS)
    names = [f"gpu-{group * GROUP + p // PER_HOST:05}/{p}-5f0e{p:04x}" for p in range(processes)]
    done = draw.integers(0, 57, count)
    columns = {
        "process": pa.array(names).take(pa.array(owner)),
        "position": number * TICKS + tick,
        "ts": START + number * SEGMENT_NS + tick * TICK_NS,
        "comm": np.full(count, 3),
        "op_seq": number * 14 + tick // 7,
        "op_kind": np.zeros(count),
        "channel": tick % 2,
        "send": tick // 2 % 2,
        "peer": np.repeat(draw.integers(0, 80, processes), TICKS),
        "chunks_total": np.full(count, 64),
        "posted": done + 7,
        "ready": done + 4,
        "moved": done + 2,
        "done": done,
        "idle_ms": draw.geometric(0.02, count) - 1,
        "bytes": done * 1_048_576,
        "flow_id": tick % 4 + 1,
        "running": np.ones(count),
        "foreign": np.zeros(count),
    }
    schema = table_schema("state")
    arrays = [
        c if isinstance(c := columns[f.name], pa.Array) else pa.array(c.astype(np.int64)).cast(f.type) for f in schema
    ]
    return pa.table(arrays, schema=schema)


def minute_rows(hour: int) -> pa.Table:
    draw = np.random.default_rng(hour)
    count = HOSTS * 60
    host = pa.array([f"gpu-{h:05}" for h in range(HOSTS)]).take(pa.array(np.repeat(np.arange(HOSTS), 60)))
    given = {
        "host": host,
        "job": pa.array(["job"]).take(pa.array(np.zeros(count, dtype=np.int64))),
        "minute": pa.array(START - (hour + 1) * HOUR_NS + np.tile(np.arange(60), HOSTS) * 60 * 10**9).cast(
            pa.timestamp("ns")
        ),
    }
    schema = SCHEMAS["host_minute"]
    arrays = [
        given[f.name] if f.name in given else pa.array(draw.integers(0, 10_000, count)).cast(f.type) for f in schema
    ]
    return pa.table(arrays, schema=schema)


def make(folder: Path, rows: int) -> None:
    """Write a store of at least so many rows of `state`, and a day of `host_minute`."""
    segments: list[FleetSegment] = []

    def write(table: str, content: pa.Table, group: str) -> None:
        made = write_segment(folder, table, content)
        segments.append(
            FleetSegment(
                table=table,
                path=made.path,
                first_ns=made.first_ns,
                last_ns=made.last_ns,
                rows=made.rows,
                size_bytes=made.size_bytes,
                made=made.made,
                group=group,
            )
        )

    for number in range(max(1, -(-rows // (ROWS_OF_SEGMENT * HOSTS // GROUP)))):
        for group in range(HOSTS // GROUP):
            write("state", state_rows(group, number), f"g{group}")
    for hour in range(24):
        write("host_minute", minute_rows(hour), "all")
    FleetStore(open_place(str(folder))).add(segments)


def measure(folder: str, what: str) -> dict[str, object]:
    """One measurement in this process."""
    reader = open_fleet(folder)
    states = reader.manifest.of("state")
    last = max(segment.last_ns for segment in states)
    runs = []
    drawing: tuple[float, float] | None = None
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        if what == "window":
            window = Window(last - SEGMENT_NS + TICK_NS, last + 1)
            found = run(SNAPSHOT, open_fleet(folder).pieces("state", since_ns=window.since_ns, until_ns=window.until_ns), window, LocalExecutor(threads=1))  # fmt: skip  # noqa: E501
            groups, said = found.num_rows, digest(found)[:12]
        elif what == "group-by":
            found = run(ACTIVITY, reader.pieces_of(states), Window(0, 1 << 62), LocalExecutor(threads=1))
            groups, said = found.num_rows, digest(found)[:12]
        else:
            _, span, *how = what.split(" ")
            until = START - CUT_NS if "cut" in how else START
            if "minutes" in how:
                FleetReader.peaks = lambda *_: None  # type: ignore[method-assign]
            wall, cpu = time.perf_counter(), time.process_time()
            window = Window(until - int(span.removesuffix("h")) * HOUR_NS, until)
            heat = heat_map(open_fleet(folder), "idle_max_ms", window)
            drawn = time.perf_counter(), time.process_time()
            heat_panel(heat, View(span=span, until_s=until // 10**9))
            drawing = time.perf_counter() - drawn[0], time.process_time() - drawn[1]
            groups, said = heat.grid.values.size, hashlib.sha256(heat.grid.values.tobytes()).hexdigest()[:12]
        runs.append((time.perf_counter() - wall, time.process_time() - cpu))
    runs_cpu = sorted(cpu for _, cpu in runs)
    return {
        "what": what,
        "rows": sum(segment.rows for segment in states),
        "files": len(states),
        "first_cpu_s": round(runs[0][1], 3),
        "first_wall_s": round(runs[0][0], 3),
        "cpu_s": round(runs_cpu[1], 3),
        "wall_s": round(sorted(wall for wall, _ in runs)[1], 3),
        # In each of the times above, too.
        **({} if drawing is None else {"drawing_wall_s": round(drawing[0], 4), "drawing_cpu_s": round(drawing[1], 4)}),
        "groups": groups,
        "result": said,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def looks(folder: Path) -> None:
    """Print the first look of fresh processes: what is compared takes turns, for a machine has its moments."""
    found: dict[str, list[dict[str, Any]]] = {what: [] for what in HEATS}
    for _ in range(FRESH):
        for what, told in found.items():
            command = [sys.executable, "-m", "tests.bench.scale", "--measure", str(folder), what]
            told.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    for what, told in found.items():
        first = sorted(one["first_cpu_s"] * 1e3 for one in told)
        again = median(one["cpu_s"] * 1e3 for one in told)
        results = {one["result"] for one in told}
        print(
            f"{what}: first look of {FRESH} processes, CPU ms: median {median(first):.0f}, {first[0]:.0f} to "
            f"{first[-1]:.0f}; then {again:.0f}; {' '.join(results)}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1000000,10000000", help="sizes of stores, rows of `state`")
    parser.add_argument("--keep", type=Path, help="folder to make the stores in, and leave them there")
    parser.add_argument("--measure", nargs=2, metavar=("STORE", "WHAT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return 0
    root = arguments.keep or Path(tempfile.mkdtemp(prefix="mycroft-scale-"))
    try:
        for rows in (int(float(text)) for text in arguments.rows.split(",")):
            folder = root / f"rows{rows}"
            if not folder.exists():
                began = time.process_time()
                make(folder, rows)
                size = sum(path.stat().st_size for path in folder.rglob("state/*/*.parquet"))
                print(
                    f"{rows:,} rows: made in {time.process_time() - began:.0f} CPU-s, {size / 1e6:,.0f} MB", flush=True
                )
            for what in ("window", "group-by"):
                subprocess.run([sys.executable, "-m", "tests.bench.scale", "--measure", str(folder), what], check=True)
            looks(folder)
    finally:
        if arguments.keep is None:
            shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
