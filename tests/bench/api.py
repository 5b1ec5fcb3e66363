"""Measures the way from files to an answer: the command's time, and the server's answers, cold and warm.

`python -m tests.bench.api [RANKS] [ENTRIES]` makes Flight Recorder dumps of that many ranks (default 256 of 2,000
entries), runs `mycroft diagnose` on them in a process of its own, loads them, starts a server and asks each address:
the first time, then the median and the 95th percentile of further times. All times are wall time on this machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from mycroft.app.config import AppConfig
from mycroft.app.ingest import Published, Stages, ingest
from mycroft.app.jobs import Stage
from mycroft.app.processes import Server
from tests.bench.uploads import request

RUNS: Final = 40
GENERATOR: Final = Path(__file__).resolve().parents[1] / "data" / "flight_recorder" / "make_nccl_fr.py"


def make_dumps(folder: Path, *, ranks: int, entries: int) -> Path:
    """Write the dumps of a job in which one rank is stuck, and return their folder."""
    layout = ["--tp", "8", "--pp", "4" if ranks % 32 == 0 else "1"]
    fault = ["--fault", "missing_rank", "--fault-rank", str(ranks // 3)]
    command = [sys.executable, str(GENERATOR), str(folder), "--world", str(ranks), *layout, *fault]
    subprocess.run([*command, "--entries", str(entries)], check=True, stdout=subprocess.DEVNULL)
    return folder / "fr"


def command_cost(folder: Path) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds and peak memory in MiB of `mycroft diagnose`."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "mycroft.app.cli", "diagnose", str(folder), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        verdict = json.loads(process.stdout.read())
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    print(f"verdict: {verdict['summary']}", file=sys.stderr)
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def load(folder: Path, data_dir: Path) -> tuple[Published, dict[str, float]]:
    """Load in this process and return the seconds of each stage."""
    seen: dict[str, Stage] = {}

    def note(stages: Any, _: Any) -> None:
        seen.update({stage.name: stage for stage in stages})

    published = ingest([folder], data_dir, title="bench", stages=Stages(note))
    return published, {name: (stage.finished or stage.started) - stage.started for name, stage in seen.items()}


def page_body(path: str) -> bytes:
    """Return the request with which a browser asks the router for a page."""
    return json.dumps(
        {
            "output": "..page.children...page-title.data..",
            "outputs": [{"id": "page", "property": "children"}, {"id": "page-title", "property": "data"}],
            "inputs": [{"id": "url", "property": "pathname", "value": path}],
            "state": [{"id": "url", "property": "search", "value": ""}],
            "changedPropIds": ["url.pathname"],
        }
    ).encode()


def timed(server: Server, method: str, path: str, body: bytes | None) -> tuple[float, int]:
    """Return milliseconds and bytes of one answer, connection included."""
    started = time.perf_counter()
    content = request(server.config.port, method, path, body)
    return (time.perf_counter() - started) * 1e3, len(content)


def main(argv: list[str] | None = None) -> int:
    """Print the tables."""
    arguments = sys.argv[1:] if argv is None else argv
    ranks = int(arguments[0]) if arguments else 256
    entries = int(arguments[1]) if len(arguments) > 1 else 2000
    with tempfile.TemporaryDirectory() as scratch:
        dumps = make_dumps(Path(scratch) / "job", ranks=ranks, entries=entries)
        wall, cpu, peak = command_cost(dumps)
        print(f"`mycroft diagnose`, {ranks} ranks x {entries} entries: {wall:.1f} s, {cpu:.1f} CPU-s, {peak:.0f} MiB\n")
        published, stages = load(dumps, Path(scratch) / "data")
        print("| stage | s |\n|---|---|")
        for name, seconds in stages.items():
            print(f"| {name} | {seconds:.2f} |")
        trace = published.trace
        asked: list[tuple[str, str, bytes | None]] = [
            (f"/api/v1/traces/{trace}/verdict", "GET", None),
            (f"/api/v1/traces/{trace}/files", "GET", None),
            (f"/api/v1/traces/{trace}/sql?q=SELECT%20count(*)%20FROM%20coll_ops", "GET", None),
            (f"/api/v1/traces/{trace}/export.html", "GET", None),
            ("/api/v1/traces", "GET", None),
        ]
        pages = [f"/t/{trace}/d/{published.page}", f"/t/{trace}", f"/t/{trace}/rank/{ranks // 3}", f"/t/{trace}/files"]
        asked += [(page, "POST", page_body(page)) for page in pages]
        print("\n| address | first, ms | median, ms | p95, ms | KiB |\n|---|---|---|---|---|")
        with Server(AppConfig(data_dir=Path(scratch) / "data", port=0)) as server:
            for path, method, body in asked:
                target = "/_dash-update-component" if method == "POST" else path
                first, size = timed(server, method, target, body)
                times = sorted(timed(server, method, target, body)[0] for _ in range(RUNS))
                p95 = times[int(0.95 * (len(times) - 1))]
                shown = path.replace(trace, "<trace>")
                print(f"| {shown} | {first:.0f} | {statistics.median(times):.1f} | {p95:.1f} | {size / 1024:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
