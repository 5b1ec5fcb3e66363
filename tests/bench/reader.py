"""Measures how fast Flight Recorder dumps are read and loaded, against Python's own unpickler in the same run.

`python -m tests.bench.reader [RANKS ...]` makes dumps of 2,000 entries with stacks (default 256 ranks), then prints

* the reader alone on one core, from bytes in memory to columns: entries per CPU second, against a `pickle.Unpickler`
  that refuses every class (it yields Python objects, not columns, and does not bound its memory),
* the whole load, from files to a finished trace: wall and CPU seconds and peak memory of a process of its own, against
  the same unpickler followed by one polars frame and an insert into DuckDB.

Medians of five and three runs.
"""

from __future__ import annotations

import io
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mycroft.loaders._core import DumpReader
from tests.bench.api import make_dumps

ENTRIES: Final = 2000
READS: Final = 5
LOADS: Final = 3

_LOAD: Final = """
import sys
from pathlib import Path
from mycroft.loaders import load
load([sys.argv[1]], Path(sys.argv[2]))
"""
# What one would write without a reader of one's own: unpickle, flatten in Python, one frame, one insert.
_PLAIN: Final = """
import json, sys
from pathlib import Path
import duckdb, polars as pl
from tests.bench.reader import plain_rows
rows = [row for path in sorted(Path(sys.argv[1]).iterdir()) for row in plain_rows(path)]
frame = pl.DataFrame(rows, infer_schema_length=None)
connection = duckdb.connect(sys.argv[2])
connection.register("incoming", frame)
connection.execute("CREATE TABLE ops AS FROM incoming ORDER BY grp, seq, rank")
connection.close()
"""


class _Refusing(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def plain_rows(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a dump of our own making as flat rows."""
    rank = int(path.name.rsplit("_", 1)[1])
    return [
        {
            "rank": rank,
            "grp": entry["process_group"][0],
            "seq": entry["collective_seq_id"],
            "p2p_seq": entry["p2p_seq_id"],
            "name": entry["profiling_name"],
            "created": entry["time_created_ns"],
            "ended": entry["time_discovered_completed_ns"],
            "state": entry["state"],
            "retired": entry["retired"],
            "in_sizes": str(entry["input_sizes"]),
            "out_sizes": str(entry["output_sizes"]),
            "dtype": ",".join(entry["input_dtypes"]),
            "stack": "\n".join(f"{f['name']} ({f['filename']}:{f['line']})" for f in entry["frames"]),
        }
        for entry in _Refusing(io.BytesIO(path.read_bytes())).load()["entries"]
    ]


def median_cpu_s(runs: int, work: Callable[[list[bytes]], object], contents: list[bytes]) -> float:
    """Return the median CPU time of `work`, seconds: a busy machine changes it less than the wall time."""
    times: list[float] = []
    for _ in range(runs):
        started = time.process_time()
        work(contents)
        times.append(time.process_time() - started)
    return statistics.median(times)


def read_all(contents: list[bytes]) -> int:
    """Read dumps into columns on this thread; return the number of entries."""
    reader = DumpReader()
    return sum(len(reader.read_bytes(content)[1]) for content in contents)


def unpickle_all(contents: list[bytes]) -> int:
    """Read dumps into Python objects; return the number of entries."""
    return sum(len(_Refusing(io.BytesIO(content)).load()["entries"]) for content in contents)


def cost(script: str, folder: Path, scratch: Path) -> tuple[float, float, float]:
    """Return median wall seconds, CPU seconds and peak MiB of a script run on `folder` in a process of its own."""
    runs: list[tuple[float, float, float]] = []
    for number in range(LOADS):
        started = time.perf_counter()
        command = [sys.executable, "-c", script, str(folder), str(scratch / f"{time.monotonic_ns()}-{number}.duckdb")]
        with subprocess.Popen(command) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"ended with {process.returncode}: {script}")
        runs.append((time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024))
    wall, cpu, peak = (statistics.median(column) for column in zip(*runs, strict=True))
    return wall, cpu, peak


def main() -> None:
    """Measure and print."""
    for ranks in [int(argument) for argument in sys.argv[1:]] or [256]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = make_dumps(Path(scratch) / "job", ranks=ranks, entries=ENTRIES)
            contents = [path.read_bytes() for path in sorted(folder.iterdir())[:64]]
            entries = read_all(contents)
            ours = median_cpu_s(READS, read_all, contents)
            theirs = median_cpu_s(READS, unpickle_all, contents)
            print(f"{ranks} ranks x {ENTRIES} entries, {sum(map(len, contents)) / len(contents) / 1e3:.0f} kB a dump\n")
            print("reader alone, with stacks         entries/CPU s    ratio")
            print(f"  mycroft, to columns                {entries / ours:>10,.0f}  {theirs / ours:>6.2f}")
            print(f"  pickle.Unpickler, to objects       {entries / theirs:>10,.0f}    1.00\n")
            print("files to a finished trace              wall s    CPU s  peak MiB    ratio (CPU)")
            baseline = cost(_PLAIN, folder, Path(scratch))
            for name, (wall, cpu, peak) in (
                ("mycroft", cost(_LOAD, folder, Path(scratch))),
                ("Unpickler, polars, DuckDB", baseline),
            ):
                print(f"  {name:<33} {wall:>8.2f} {cpu:>8.2f} {peak:>9.0f}  {baseline[1] / cpu:>6.2f}")
            print()


if __name__ == "__main__":
    main()
