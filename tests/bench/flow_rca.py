"""What trigger and root cause of a stall cost: a window of 10 s of up to 10,240 simulated ranks.

`python -m tests.bench.flow_rca [TOPOLOGY …]` prints the table: a trace file is written, and asked by another process;
CPU time of that one, memory its largest resident size. The window ends 6 s after a network device went down. The
paper's rules and a plain walk over dictionaries answer the same question on the same rows in the same run.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.facts import Frames
from mycroft.analysis.flow_findings import flow_findings
from mycroft.analysis.host_clocks import clock_offsets
from mycroft.analysis.paper_rules import PaperTrigger, paper_cause
from mycroft.analysis.trigger import scan
from mycroft.app.evaluation.whole_job import write_job
from mycroft.loaders.store import StoreWriter, open_store
from mycroft.tracer.simulator import Simulated, Simulation, simulate, truth

TOPOLOGIES = ("T512", "T2048", "T10240")
WINDOW_S = 10.0
STUCK_S = 6.0
TIMES = 3
# No benign events: the first iteration would be three times as long, and the window is the start of the job.
SETTINGS = {"benign": False, "channels": 10, "microbatches": 7}


def window(topology: str) -> Simulated:
    """A job whose first 10 s are the window; its last 6 s it stands still."""
    return simulate(
        Simulation(
            fault="nic_down",
            topology=topology,
            rank=11,
            at_s=WINDOW_S - STUCK_S,
            after_s=STUCK_S,
            settings=SETTINGS,
        )
    )


def measured(work: Callable[[], Any], times: int = TIMES) -> tuple[float, Any]:
    """Return the median CPU seconds of some calls, and what the last of them returned."""
    spent: list[float] = []
    result: Any = None
    for _ in range(times):
        started = time.process_time()
        result = work()
        spent.append(time.process_time() - started)
    return statistics.median(spent), result


LAST_ROWS = """
SELECT rank, comm_id AS comm, op_seq AS seq, CAST(op_kind AS VARCHAR) AS kind, channel, peer,
       CAST(dir AS VARCHAR) AS dir, epoch_ns(ts) AS ts, chunks_total AS total, posted, ready, moved, done, idle_ms
FROM flow_state
WHERE epoch_ns(ts) > ?
ORDER BY ts
"""


def plain_walk(store: Frames, at_ns: int) -> set[int]:
    """The same question without any care: last rows into a dictionary, stuck flows by sender, most touched rank."""
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in store.frame(LAST_ROWS, [at_ns - 3 * NS_PER_S // 2]).to_dicts():
        last[row["rank"], row["comm"], row["seq"], row["kind"], row["channel"], row["peer"], row["dir"]] = row
    touched: dict[int, int] = defaultdict(int)
    for row in last.values():
        if row["dir"] == "send" and row["moved"] > row["done"] and row["idle_ms"] > 2_000:
            touched[row["rank"]] += 1
            touched[row["peer"]] += 1
    most = max(touched.values(), default=0)
    return {rank for rank, count in touched.items() if count == most}


def write(topology: str, path: Path) -> None:
    """Simulate one topology into a trace file, with what is asked of it beside."""
    simulated = window(topology)
    about = {
        "flows": sum(len(simulated.rows[kind]["trace"]) for kind in ("state", "flow")),
        "ops": len(simulated.rows["op"]["trace"]),
        "expected": truth(simulated)["root_cause"]["ranks"],
        "world": simulated.config.tp * simulated.config.pp * simulated.config.dp,
        "at_ns": int((simulated.injected_ns or 0) + STUCK_S * NS_PER_S),
    }
    writer = StoreWriter(path)
    write_job(simulated, writer)
    writer.finish()
    path.with_suffix(".json").write_text(json.dumps(about))


def peak_gb() -> float:
    """Return the largest resident size of this process so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def run(topology: str, path: Path) -> None:
    """Measure one topology and print its line."""
    about = json.loads(path.with_suffix(".json").read_text())
    expected, at_ns = set(about["expected"]), about["at_ns"]
    with open_store(path, threads=1) as store:
        before = peak_gb()
        stall, findings = measured(lambda: flow_findings(store, at=at_ns))
        peak = peak_gb()
        each_second, since = ("stall", "intermittent"), at_ns - NS_PER_S
        offsets = clock_offsets(store, at=at_ns)
        tick, _ = measured(lambda: scan(store, since_ns=since, until_ns=at_ns, detectors=each_second, offsets=offsets))
        # Every ten seconds, over all that the window holds; with it the offsets of the clocks for the ticks until then.
        slow, _ = measured(lambda: scan(store, since_ns=since, until_ns=at_ns, detectors=("slow",)))
        peak_slow = peak_gb()
        paper, report = measured(lambda: paper_cause(store, PaperTrigger(at_ns, "failure", 0, WINDOW_S)))
        plain, walked = measured(lambda: plain_walk(store, at_ns))
    named = set(findings[0].root_cause.ranks) if findings else set()
    words = ["right" if expected <= who else "wrong" for who in (named, {report.rank}, walked)]
    print(
        f"| {topology} | {about['world']} | {about['flows'] / 1e6:.2f} | {about['ops'] / 1e6:.2f} "
        f"| {1000 * tick:.0f} + {1000 * slow / WINDOW_S:.0f} | {1000 * stall:.0f}, {words[0]} "
        f"| {peak:.2f} (+{peak - before:.2f}), {peak_slow:.2f} "
        f"| {1000 * paper:.0f}, {words[1]} | {1000 * plain:.0f}, {words[2]} |",
        flush=True,
    )


HEAD = """
| topology | ranks | M flow rows | M op rows | trigger per tick: each second \
+ slowness of 10 s / 10, CPU-ms | stall to its cause, CPU-ms | memory, GB: for the cause, with slowness \
| the paper's rules, CPU-ms | a plain walk, CPU-ms |
|---|---|---|---|---|---|---|---|---|"""


def main() -> int:
    """Write and measure each topology in processes of their own, so that the memory is that of the analysis alone."""
    if len(sys.argv) == 4 and sys.argv[1] in ("--write", "--one"):
        (write if sys.argv[1] == "--write" else run)(sys.argv[2], Path(sys.argv[3]))
        return 0
    print(HEAD.strip("\n"))
    failed = 0
    for topology in sys.argv[1:] or TOPOLOGIES:
        with tempfile.TemporaryDirectory() as folder:
            for step in ("--write", "--one"):
                command = [sys.executable, "-m", "tests.bench.flow_rca", step, topology, f"{folder}/trace.duckdb"]
                failed += subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
