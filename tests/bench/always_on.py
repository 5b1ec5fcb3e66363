"""From a fault to its alert: a testbed job on four hosts, an agent on each, collector, watch, and a webhook that waits.

`python -m tests.bench.always_on [FAULT ...] [--times 1] [--seed 1] [--hosts 4]` prints the table of docs/always-on.md:
seconds from the injection to the opening of an incident that names anybody, to the alert, and what was named.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from mycroft.app.live.state import LiveState
from mycroft.app.state import State
from mycroft.tracer.testbed.job import Job
from mycroft.tracer.testbed.scenarios import SCENARIOS
from tests.bench.collector import Running

DEFAULT = ("killed", "sigstop", "nic_down", "gpu_hang", "recv_nopost", "absent", "gpu_power", "nic_bw")


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


def command(*arguments: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("w") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "mycroft.app.cli", *arguments], stdout=sink, stderr=sink, start_new_session=True
        )


def stop(process: subprocess.Popen[bytes]) -> float:
    """End it and return its CPU seconds."""
    process.send_signal(signal.SIGTERM)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_utime + used.ru_stime


def run(name: str, seed: int, hosts: int, settle_s: float, patience_s: float, scratch: Path) -> dict[str, Any]:
    data = scratch / "data"
    webhook = Webhook()
    alerts = scratch / "alerts.toml"
    scratch.mkdir(parents=True)
    alerts.write_text(f'[[target]]\nname = "bench"\nkind = "webhook"\nurl = "{webhook.url}"\n')
    collector = Running(data)
    watch = command("watch", "--data", str(data), "--alerts", str(alerts), log=scratch / "watch.log")
    base = SCENARIOS[name]
    # The fault comes when the rules have learnt what is usual: 4 + 18 iterations.
    at = 5 if base.fault.status in ("hang", "crash") else 26
    chosen = replace(
        base,
        layout=replace(base.layout, hosts=min(hosts, base.layout.world)),
        seed=seed,
        at_iteration=at,
        iterations=at + int((patience_s + 30.0) / 0.3),
        patience_s=patience_s,
        stacks=False,
    )
    job = Job(chosen, scratch / "job", say=lambda _: None)
    state = LiveState(State(data))
    agents: list[subprocess.Popen[bytes]] = []
    cpu: dict[str, float] = {}
    try:
        job.start()
        # Without namespaces of the host name all ranks say the name of this machine.
        names = {job.plan.host_name(h) for h in range(job.scenario.layout.hosts)} if job.plan.namespaces else {None}
        for number, host in enumerate(sorted(names, key=str)):
            options = ["--host-name", host] if host else []
            agents.append(
                command(
                    "agent",
                    collector.url,
                    "--dir",
                    str(job.plan.rings),
                    "--job",
                    f"testbed-{name}",
                    "--state",
                    str(scratch / f"agent{number}"),
                    *options,
                    log=scratch / f"agent{number}.log",
                )
            )
        deadline: float | None = None
        due = chosen.at_iteration or 0
        watched = False
        while True:
            job.turn()
            # Agents and watch are at work for hours when a fault comes; their start is no part of a delay.
            watched = watched or any(j.facts.get("processes") == job.scenario.layout.world for j in state.jobs())
            ready = watched and min(rank.iteration for rank in job.ranks) >= due - 1
            if job.fault_at is None and ready and chosen.fault.name != "none":
                job.break_it()
                deadline = time.monotonic() + patience_s
            job.flap()
            if deadline is None and chosen.fault.name == "none":
                deadline = time.monotonic() + patience_s
            if deadline is not None and time.monotonic() > deadline:
                break
            found = [i for i in state.incidents() if i.ranks or i.hosts]
            if found and webhook.alerts and deadline is not None:
                deadline = min(deadline, time.monotonic() + settle_s)
            if job.over() in ("finished", "all ranks ended"):
                break
        truth = job.truth()
    finally:
        cpu["agents"] = sum(stop(agent) for agent in agents)
        job.end()
        cpu["watch"] = stop(watch)
        collector.stop()
        webhook.server.shutdown()
    injected = job.fault_ns / 1e9
    incidents = sorted(state.incidents(), key=lambda i: i.opened)
    evidence = {i.incident: [dict(row) for row in state.evidence(i.incident)] for i in incidents}
    return {
        "truth": truth,
        "injected": injected,
        "incidents": incidents,
        "revisions": {i.incident: state.revisions(i.incident) for i in incidents},
        "evidence": evidence,
        "requests": {i.incident: state.requests(i.incident) for i in incidents},
        "alerts": webhook.alerts,
        "cpu": cpu,
        "before_s": sorted(job.ranks[0].seconds[1:due])[len(job.ranks[0].seconds[1:due]) // 2] if due > 2 else None,
    }


def judged(truth: dict[str, Any], incident: Any) -> str:
    """Right, wrong or abstained: the ranks named, or the hosts where the truth has no ranks."""
    cause = truth["root_cause"]
    if incident is None or (not incident.ranks and not incident.hosts):
        return "abstained"
    told, named = (
        (set(cause["ranks"]), set(incident.ranks)) if cause["ranks"] else (set(cause["hosts"]), set(incident.hosts))
    )
    if named == told:
        return "right"
    if told <= named and incident.finding["root_cause"].get("one_of"):
        return f"right, one of {len(named)}"
    return "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", default=DEFAULT)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--settle", type=float, default=15.0, help="seconds for evidence after the first alert")
    parser.add_argument("--patience", type=float, default=45.0, help="seconds that a fault may take to be found")
    parser.add_argument("--keep", help="folder for logs and stores")
    given = parser.parse_args()
    print("| fault | incident after | alert after | says | verdict | revisions, evidence | CPU-s agents, watch |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as temporary:
        root = Path(given.keep or temporary)
        for name in given.faults:
            for turn in range(given.times):
                seed = given.seed + turn
                found = run(name, seed, given.hosts, given.settle, given.patience, root / f"{name}-{seed}")
                print(row(name, found), flush=True)
    return 0


def row(name: str, found: dict[str, Any]) -> str:
    incidents = found["incidents"]
    healthy = found["truth"]["fault"] == "none"
    first = next((i for i in incidents if i.ranks or i.hosts), incidents[0] if incidents else None)
    cpu = f"{found['cpu']['agents']:.1f}, {found['cpu']['watch']:.1f}"
    if first is None:
        verdict = "right: no alert" if healthy else "not found"
        return f"| `{name}` | none | none | | {verdict} | | {cpu} |"
    opened = first.opened - found["injected"] if found["injected"] else 0.0
    alert = next((at for at, body in found["alerts"] if body["incident"] == first.incident), None)
    after = f"{alert - found['injected']:.1f} s" if alert is not None and found["injected"] else "none"
    who = f"ranks {list(first.ranks)}" if first.ranks else f"hosts {list(first.hosts)}"
    more = f" (+{len(incidents) - 1} incidents)" if len(incidents) > 1 else ""
    files = len(found["evidence"][first.incident])
    verdict = "false alarm" if healthy else judged(found["truth"], first)
    return (
        f"| `{name}` | {opened:.1f} s | {after} | {first.category}, {who}, {first.confidence}{more} | {verdict} "
        f"| {first.revisions}, {files} files | {cpu} |"
    )


if __name__ == "__main__":
    sys.exit(main())
