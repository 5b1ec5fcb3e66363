"""From a fault to its alert, again and again: a testbed job, an agent on each host, collector, watch, and a webhook.

`python -m tests.bench.live_series [--faults NAME ...] [--times 10] [--ranks 16] [--results FILE]` runs each fault with
seeds 1, 2, ... A run that FILE holds already is not made again, so a series may be stopped and taken up. At the end, or
alone with `--table`, it prints the table of docs/always-on.md.
`--healthy HOURS` runs healthy jobs with checkpoints and evaluation, a quarter of an hour each, until FILE has so
much; any incident is a false alarm, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from mycroft.app.live.state import Incident, LiveState
from mycroft.app.state import State
from mycroft.tracer.testbed.job import Job
from mycroft.tracer.testbed.layout import Layout
from mycroft.tracer.testbed.scenarios import SCENARIOS, Scenario
from tests.bench.collector import Running

# Patient by design: a rank that does not come may be in a pause (analysis.md section 4).
PATIENT = ("absent", "ckpt_stall")
QUICK = (
    "killed", "sigstop", "exception", "nic_down", "link_flap", "nic_bw", "qp_slow30", "bg_traffic",
    "gpu_hang", "gpu_power", "pcie", "proxy_delay", "recv_nopost",
)  # fmt: skip
BAR_S = 12.0
# What may be said in place of a class: nothing here reads the clocks of a GPU that is simulated.
GENERAL = {"slow_gpu": ("slow_compute",)}
LAYOUTS = {8: Layout(tp=2, pp=2, dp=2, hosts=4), 16: Layout(tp=4, pp=2, dp=2, hosts=4)}
# Kernels of more ranks compute less: the job shares this machine with the watch, on a cluster it does not.
UNITS = {8: 300, 16: 100}
# Other traffic makes an iteration five times as long; with less to send it stays below the 0.7 s that are asked for.
GRADIENTS = {"bg_traffic": 1 << 16}
# ... and its messages must take longer on the wire than this machine's scheduler adds to them at random: bytes/s.
NETWORKS = {"bg_traffic": 8e6}
HEALTHY_PART_S = 900.0
WATCHED_WITHIN_S = 120.0
# An iteration that took so many times the usual shows the first effect of a fault that slows.
SLOWER = 1.15


class Webhook:
    """Takes alerts and notes when each came."""

    def __init__(self) -> None:
        self.alerts: list[tuple[float, dict[str, Any]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.alerts.append((time.time(), json.loads(body)))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/alert"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def command(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("w") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "mycroft.app.cli", *arguments], stdout=sink, stderr=sink, start_new_session=True
        )


def stop(process: subprocess.Popen[bytes]) -> float:
    """End it and return its CPU seconds."""
    if process.returncode is not None:
        return 0.0
    process.send_signal(signal.SIGTERM)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime


def used_s(pid: int) -> float:
    """Return the CPU seconds of a process by now."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def precede() -> None:
    """Give the niceness of this process to the sessions of all that it has started.

    Where the kernel groups processes by session, niceness says nothing between sessions, but the group's does.
    """
    parent = {int(path.parent.name): _fields(path) for path in Path("/proc").glob("[0-9]*/stat")}
    mine = {os.getpid()}
    while more := {pid for pid, fields in parent.items() if fields and int(fields[1]) in mine} - mine:
        mine |= more
    for pid in mine:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(os.nice(0)))


def _fields(path: Path) -> list[str]:
    """Return what the kernel says of a process from its state on; nothing of one that has ended."""
    try:
        return path.read_text().rpartition(") ")[2].split()
    except OSError:
        return []


class Run:
    """One run of one fault; `facts` is what the results keep of it."""

    def __init__(self, scenario: Scenario, scratch: Path, *, settle_s: float, part_s: float, torch: bool) -> None:
        # The fault comes when the rules have learnt what is usual: 4 + 18 iterations.
        at = 5 if scenario.fault.status in ("hang", "crash") else 26
        self.healthy = scenario.fault.name == "none"
        self.at = at
        self.part_s = part_s
        self.settle_s = settle_s
        self.scratch = scratch
        self.data = scratch / "data"
        chosen = replace(
            scenario,
            at_iteration=at,
            iterations=100_000,
            patience_s=part_s + WATCHED_WITHIN_S,
            timeout_s=part_s + WATCHED_WITHIN_S,
            stacks=False,
            torch=torch,
        )
        scratch.mkdir(parents=True)
        self.job = Job(chosen, scratch / "job", say=lambda _: None)
        self.webhook = Webhook()
        self.state = LiveState(State(self.data))
        self.cpu: dict[str, float] = {}
        self.ends: list[tuple[float, int]] = []  # when the broken rank ended an iteration
        self.watch_used: list[
            tuple[float, float]
        ] = []  # time, and CPU seconds of the watch by then, once all is watched
        self.problem = ""

    def run(self) -> dict[str, Any]:
        alerts = self.scratch / "alerts.toml"
        alerts.write_text(f'[[target]]\nname = "bench"\nkind = "webhook"\nurl = "{self.webhook.url}"\n')
        collector = Running(self.data)
        watch = command("watch", "--data", str(self.data), "--alerts", str(alerts), log=self.scratch / "watch.log")
        agents: list[subprocess.Popen[bytes]] = []
        try:
            self.job.start()
            agents = self._agents(collector.url)
            precede()
            self._follow(watch, agents)
            facts = self._facts()
        finally:
            self.cpu["agents"] = sum(stop(agent) for agent in agents)
            self.job.end()
            self.cpu["watch"] = stop(watch)
            collector.stop()
            self.webhook.close()
        return facts | {"cpu": self.cpu}

    def _agents(self, url: str) -> list[subprocess.Popen[bytes]]:
        plan = self.job.plan
        # Without namespaces of the host name all ranks say the name of this machine.
        hosts = range(self.job.scenario.layout.hosts)
        names = {plan.host_name(h) for h in hosts} if plan.namespaces else {None}
        found: list[subprocess.Popen[bytes]] = []
        for number, host in enumerate(sorted(names, key=str)):
            options = ["--dir", str(plan.rings), "--job", "bench", "--state", str(self.scratch / f"agent{number}")]
            options += ["--host-name", host] if host else []
            # These hosts share a kernel: what it says of one, all of them would say.
            options += ["--no-devices"]
            found.append(command("agent", url, *options, log=self.scratch / f"agent{number}.log"))
        return found

    def _follow(self, watch: subprocess.Popen[bytes], agents: Sequence[subprocess.Popen[bytes]]) -> None:
        """Break the job when all of it is watched, and wait for the alert and what comes after it."""
        started = [watch, *agents]
        job, world = self.job, self.job.scenario.layout.world
        target = job.scenario.rank or 0
        began = time.monotonic()
        deadline: float | None = None
        watched = False
        while deadline is None or time.monotonic() < deadline:
            job.turn()
            iteration = job.ranks[target].iteration
            if iteration >= 0 and (not self.ends or self.ends[-1][1] != iteration):
                self.ends.append((time.time(), iteration))
            # Agents and watch are at work for hours when a fault comes; their start is no part of a delay.
            if not watched and any(j.facts.get("processes") == world for j in self.state.jobs()):
                watched = True
                precede()
                self.watch_used.append((time.monotonic(), used_s(watch.pid)))
            if any(process.poll() is not None for process in started):
                self.problem = f"the watch or an agent has ended; see the logs in {self.scratch}"
                return
            if not watched and time.monotonic() - began > WATCHED_WITHIN_S:
                self.problem = f"not all of {world} ranks were watched within {WATCHED_WITHIN_S:.0f} s"
                return
            ready = watched and min(rank.iteration for rank in job.ranks) >= self.at - 1
            if deadline is None and ready:
                if not self.healthy:
                    job.break_it()
                deadline = time.monotonic() + self.part_s
            job.flap()
            if deadline is not None and not self.healthy and self.webhook.alerts:
                deadline = min(deadline, time.monotonic() + self.settle_s)
                self.settle_s = float("inf")  # counted from the first alert only
            if job.over() in ("finished", "all ranks ended") and self.healthy:
                self.problem = f"the healthy job ended: {job.over()}"
                return
        self.watch_used.append((time.monotonic(), used_s(watch.pid)))

    def _effect(self) -> float:
        """When the fault first showed, seconds since the epoch; its injection where nothing says that it was later."""
        injected = self.job.fault_ns / 1e9
        fault = self.job.scenario.fault
        last_whole = max((i for at, i in self.ends if at <= injected), default=-1)
        if fault.code:
            # The rank's own code breaks two iterations on: `Job.break_it`.
            return max(injected, max((at for at, i in self.ends if i <= last_whole + 1), default=injected))
        if fault.status != "slow":
            return injected
        spans = [(b[0] - a[0], a[0], b[1]) for a, b in zip(self.ends, self.ends[1:], strict=False)]
        before = [span for span, _, i in spans if i <= last_whole]
        usual = statistics.median(before) if before else float("inf")
        slower = [start for span, start, i in spans if i > last_whole and span > SLOWER * usual]
        return max(injected, min(slower, default=injected))

    def _watch_cores(self) -> float | None:
        """Share of a core that the watch took from when it saw all of the job; its start is no part of it."""
        if len(self.watch_used) < 2:
            return None
        (since, before), (until, after) = self.watch_used
        return (after - before) / (until - since)

    def _facts(self) -> dict[str, Any]:
        truth = self.job.truth()
        incidents = sorted(self.state.incidents(), key=lambda i: i.opened)
        first = next((i for i in incidents if i.ranks or i.hosts), incidents[0] if incidents else None)
        injected, effect = self.job.fault_ns / 1e9, None if self.healthy else self._effect()
        spans = [b[0] - a[0] for a, b in zip(self.ends, self.ends[1:], strict=False)]
        facts: dict[str, Any] = {
            "problem": self.problem,
            "ranks": self.job.scenario.layout.world,
            "hosts_are": self.job.hosts_are,
            "iteration_s": statistics.median(spans) if spans else None,
            "seconds": time.time() - self.ends[0][0] if self.ends else 0.0,
            "job_cores": sum(sum(rank.cpu_s) for rank in self.job.ranks) / max(1e-9, sum(self.job.ranks[0].seconds)),
            "load": os.getloadavg()[0],
            "injected": None if self.healthy else injected,
            "watch_cores": self._watch_cores(),
            "incidents": len(incidents),
            "alerts": len(self.webhook.alerts),
        }
        if self.healthy or first is None or effect is None:
            return facts | {"says": first.summary if first is not None else "", "opened": None, "verdict": "abstained"}
        revisions = self.state.revisions(first.incident)
        told = next((at for at, body in self.webhook.alerts if body["incident"] == first.incident), None)
        right = next((r.at for r in revisions if judged(truth, r.finding).startswith("right")), None)
        of_first = revisions[0].finding
        return facts | {
            "effect_after": effect - injected,
            "opened": first.opened - effect,
            "alert": None if told is None else told - effect,
            "right_after": None if right is None else right - effect,
            "verdict": judged(truth, of_first),
            "sure": of_first["confidence"],
            "says": f"{of_first['category']}, {who(first)}",
            "last": judged(truth, first.finding),
            "last_sure": first.confidence,
            "category": first.category,
            "right_class": is_right_class(of_first["category"], truth["category"]),
            "revisions": first.revisions,
            "evidence": [row["name"] for row in self.state.evidence(first.incident)],
            "missed": [text for r in self.state.requests(first.incident) for text in r.problems],
        }


def who(incident: Incident) -> str:
    return f"ranks {list(incident.ranks)}" if incident.ranks else f"hosts {list(incident.hosts)}"


def judged(truth: dict[str, Any], finding: Any) -> str:
    """Right, wrong or abstained: the ranks named, or the hosts where the truth has no ranks."""
    wanted, cause = truth["root_cause"], finding["root_cause"]
    if not cause["ranks"] and not cause["hosts"]:
        return "abstained"
    kind = "ranks" if wanted["ranks"] else "hosts"
    told, named = set(wanted[kind]), set(cause[kind])
    if named == told:
        return "right"
    if told <= named and cause.get("one_of"):
        return f"right, one of {len(named)}"
    return "wrong"


def is_right_class(told: str, wanted: str) -> bool:
    """Whether a category says what the truth does; a general one may stand for what only a clock could tell."""
    return told == wanted or told in GENERAL.get(wanted, ())


# ---- results ----------------------------------------------------------------------------


def read(results: Path) -> list[dict[str, Any]]:
    """Return the runs that were kept; a last line that was cut short is left out."""
    found: list[dict[str, Any]] = []
    for line in results.read_text().splitlines() if results.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{results}: a line that is none is left out", file=sys.stderr)
    return found


def keep(results: Path, row: dict[str, Any]) -> None:
    with results.open("a") as sink:
        sink.write(json.dumps(row) + "\n")


def at_share(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all do not pass; infinity stands for those that never came."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def seconds(value: float) -> str:
    return "never" if value == float("inf") else f"{value:.1f}"


def wrong_confident(row: dict[str, Any]) -> bool:
    return row["verdict"] == "wrong" and row.get("sure") == "high"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table of the series: seconds from the first effect."""
    lines = [
        "| fault | runs | incident: median | alert: median / 90 % / 95 % | right verdict: median / 95 % "
        "| first right / wrong / abstained | wrong and sure | class right | last right | iteration | watch |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    never = float("inf")
    for fault in sorted({row["fault"] for row in rows if row["fault"] != "none"}):
        lines.append(_row(f"`{fault}`", [row for row in rows if row["fault"] == fault]))
    quick = [row for row in rows if row["fault"] in QUICK and not row["problem"]]
    if quick:
        lines.append(_row("all but patient", quick))
        soon = [row for row in quick if (row.get("right_after") or never) <= BAR_S]
        within, classed = len(soon), sum(bool(row.get("right_class")) for row in soon)
        lines.append("")
        lines.append(
            f"{within} of {len(quick)} ({100 * within / len(quick):.0f} %) were told rightly within {BAR_S:.0f} s of "
            f"their first effect, {classed} of these with the right class at once."
        )
    healthy = [row for row in rows if row["fault"] == "none"]
    if healthy:
        hours = sum(row["seconds"] for row in healthy) / 3600
        alarms = sum(row["incidents"] for row in healthy)
        lines.append(
            f"Healthy jobs: {hours:.2f} h, {alarms} incidents, {sum(row['alerts'] for row in healthy)} alerts."
        )
    failed = [row for row in rows if row["problem"]]
    lines += [f"Not counted: {row['fault']}, seed {row['seed']}: {row['problem']}" for row in failed]
    return "\n".join(lines)


def _row(name: str, rows: Sequence[dict[str, Any]]) -> str:
    counted = [row for row in rows if not row["problem"]]
    if not counted:
        return f"| {name} | 0 | | | | | | | | | |"
    never = float("inf")
    opened, alert, right = (
        [never if row.get(key) is None else row[key] for row in counted] for key in ("opened", "alert", "right_after")
    )
    first = [row["verdict"].partition(",")[0] for row in counted]
    last = sum(row.get("last", "").startswith("right") for row in counted)
    usual = statistics.median(row["iteration_s"] or 0.0 for row in counted)
    watch = statistics.median(row.get("watch_cores") or 0.0 for row in counted)
    return (
        f"| {name} | {len(counted)} | {seconds(at_share(opened, 0.5))} "
        f"| {' / '.join(seconds(at_share(alert, share)) for share in (0.5, 0.9, 0.95))} "
        f"| {seconds(at_share(right, 0.5))} / {seconds(at_share(right, 0.95))} "
        f"| {first.count('right')} / {first.count('wrong')} / {first.count('abstained')} "
        f"| {sum(map(wrong_confident, counted))} | {sum(bool(row.get('right_class')) for row in counted)} | {last} "
        f"| {usual:.2f} s | {watch:.2f} |"
    )


# ---- the series -------------------------------------------------------------------------


def one(fault: str, seed: int, given: argparse.Namespace, root: Path, part_s: float) -> dict[str, Any]:
    base = SCENARIOS[fault]
    usual = SCENARIOS["none"].layout
    layout = LAYOUTS[given.ranks] if base.layout == usual else base.layout
    work = replace(
        base.work,
        kernel_ms=max(base.work.kernel_ms, given.kernel_ms) if base.work.kernel_ms else 0.0,
        kernel_units=min(base.work.kernel_units, UNITS[given.ranks]),
        gradient_elements=GRADIENTS.get(fault, base.work.gradient_elements),
    )
    scenario = replace(
        base,
        layout=layout,
        seed=seed,
        work=work if base.work.kernel_ms else base.work,
        nic_bytes_per_s=NETWORKS.get(fault, base.nic_bytes_per_s),
    )
    run = Run(scenario, root / f"{fault}-{seed}", settle_s=given.settle, part_s=part_s, torch=given.torch)
    return {"fault": fault, "seed": seed, **run.run()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", nargs="*", default=[*QUICK, *PATIENT])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the first run of each fault")
    parser.add_argument("--ranks", type=int, choices=sorted(LAYOUTS), default=16)
    parser.add_argument("--healthy", type=float, metavar="HOURS", help="healthy jobs instead of faults")
    parser.add_argument("--part", type=float, default=HEALTHY_PART_S, help="seconds of each healthy job")
    parser.add_argument("--kernel-ms", type=float, default=0.0, help="least time of a kernel, for longer iterations")
    parser.add_argument("--results", type=Path, default=Path("live-series.jsonl"))
    parser.add_argument("--settle", type=float, default=12.0, help="seconds for evidence after the first alert")
    parser.add_argument("--patience", type=float, default=45.0, help="seconds that a fault may take to be found")
    parser.add_argument("--torch", action="store_true", help="operations go through torch.distributed")
    parser.add_argument("--keep", help="folder for logs and stores")
    parser.add_argument("--table", action="store_true", help="print the table of FILE and run nothing")
    given = parser.parse_args()
    # As Ctrl-C does: what was started ends with the series.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = read(given.results)
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as temporary:
        root = Path(given.keep or temporary)
        if given.table:
            pass
        elif given.healthy is not None:
            seed = given.seed + sum(row["fault"] == "none" for row in rows)
            while sum(row["seconds"] for row in rows if row["fault"] == "none") < given.healthy * 3600:
                row = one("none", seed, given, root, given.part)
                seed += 1
                rows.append(row)
                keep(given.results, row)
                if row["problem"]:
                    break
        else:
            # Round by round, so that a series that is stopped has as many runs of each.
            for seed in range(given.seed, given.seed + given.times):
                for fault in given.faults:
                    done = {(row["fault"], row["seed"]) for row in rows if not row["problem"]}
                    if (fault, seed) not in done:
                        row = one(fault, seed, given, root, given.patience)
                        rows.append(row)
                        keep(given.results, row)
                        print(told_of(row), file=sys.stderr, flush=True)
    print(table(rows))
    return int(any(row["fault"] == "none" and (row["incidents"] or row["alerts"]) for row in rows))


def told_of(row: dict[str, Any]) -> str:
    if row["problem"]:
        return f"{row['fault']} {row['seed']}: {row['problem']}"
    alert = seconds(float("inf") if row.get("alert") is None else row["alert"])
    return f"{row['fault']} {row['seed']}: alert after {alert} s, {row['verdict']}, {row['says']} ({row.get('sure')})"


if __name__ == "__main__":
    sys.exit(main())
