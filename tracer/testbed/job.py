"""The launcher: starts hosts and ranks, breaks one, waits, takes the evidence, leaves nothing behind."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mycroft.tracer.export import export_trace
from mycroft.tracer.plugin import plugin_path
from mycroft.tracer.testbed import namespaces
from mycroft.tracer.testbed.control import Channel
from mycroft.tracer.testbed.plan import Plan
from mycroft.tracer.testbed.scenarios import Scenario, TestbedError
from mycroft.tracer.trace import Trace, open_trace

_START_S = 60.0
_TURN_S = 0.1
_DUMP_S = 5.0
_FLOWS_PER_RANK = 3
# Shares of the network interface, and times of an outage.
_SLOW_NIC = 0.2
_FLAP_DOWN_S, _FLAP_UP_S = 2.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to. Times are seconds; `iteration_s` and `cpu_s` are rank 0's and all ranks', per iteration."""

    folder: Path
    truth: dict[str, Any]
    ended: str
    hosts_are: str
    iterations: int
    iteration_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    before_s: float | None
    after_s: float | None
    stood_s: float
    exits: dict[int, int]
    wall_s: float


@dataclass
class _Rank:
    pid: int = 0
    port: int = 0
    channel: Channel | None = None
    iteration: int = -1
    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    exit: int | None = None
    finished: bool = False
    dumped: bool = False


class Job:
    """One run of a scenario. Use `run_job`."""

    def __init__(self, scenario: Scenario, folder: Path, *, say: Callable[[str], None]) -> None:
        scenario.check()
        self.scenario = scenario.drawn()
        self.say = say
        self.folder = folder
        why = namespaces.available() if scenario.namespaces else "not asked for"
        self.hosts_are = "network namespaces" if not why else f"shaped in process ({why})"
        self.scratch = Path(tempfile.mkdtemp(prefix=f"mycroft-testbed-{os.getpid()}-", dir=_memory_folder()))
        self.janitor = _janitor(self.scratch)
        self.plan = Plan(
            scenario=self.scenario,
            folder=folder.resolve(),
            scratch=self.scratch,
            plugin=str(plugin_path()),
            namespaces=not why,
        )
        self.ranks = [_Rank() for _ in range(self.scenario.layout.world)]
        self.agents: dict[int, tuple[Channel, int]] = {}
        self.processes: list[subprocess.Popen[str]] = []
        self.network: namespaces.Network | None = None
        self.selector = selectors.DefaultSelector()
        self.listener: socket.socket | None = None
        self.fault_at: float | None = None
        self.fault_ns = 0
        self.how = ""
        self.link_up = True
        self.flap_at = 0.0
        self.progress_at = time.monotonic()
        self.iteration_at_fault = -1

    # --- start ---

    def start(self) -> None:
        """Start hosts and ranks, and let them find each other."""
        for name in ("logs", "job"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.plan.rings.mkdir(mode=0o700)
        plan_file = self.scratch / "plan.json"
        plan_file.write_text(json.dumps(self.plan.to_json()))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.plan.socket))
        self.listener.listen(256)
        self.selector.register(self.listener, selectors.EVENT_READ, None)
        layout = self.scenario.layout
        if self.plan.namespaces:
            self.network = namespaces.Network(bytes_per_s=self.scenario.nic_bytes_per_s)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MYCROFT_", "NCCL_"))}
        for host in range(layout.hosts):
            if not layout.ranks_of_host(host):
                continue
            prepare = (
                namespaces.isolate(self.plan.host_name(host)) if self.plan.namespaces else namespaces.die_with_parent
            )
            with (self.folder / "logs" / f"node{host}.agent.log").open("w") as log:
                agent = subprocess.Popen(
                    [sys.executable, "-m", "mycroft.tracer.testbed.agent", str(plan_file), str(host)],
                    preexec_fn=prepare,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            self.processes.append(agent)
            if self.network is not None:
                self.network.add_host(agent.pid, layout.ranks_of_host(host))
            assert agent.stdin is not None
            agent.stdin.write("go\n")
            agent.stdin.flush()
        deadline = time.monotonic() + _START_S
        while not all(rank.channel for rank in self.ranks) or len(self.agents) < len(self.processes):
            self.turn()
            if time.monotonic() > deadline or any(agent.poll() is not None for agent in self.processes):
                raise TestbedError(
                    f"{sum(rank.channel is None for rank in self.ranks)} of {len(self.ranks)} ranks did not start; "
                    f"see {self.folder / 'logs'}"
                )
        ports = [rank.port for rank in self.ranks]
        for rank in self.ranks:
            assert rank.channel is not None
            rank.channel.send(kind="peers", ports=ports)
        self.progress_at = time.monotonic()

    # --- messages ---

    def turn(self) -> None:
        """Take what ranks and agents say, for a tenth of a second at most."""
        for key, _ in self.selector.select(_TURN_S):
            if key.data is None:
                assert self.listener is not None
                connection, _ = self.listener.accept()
                channel = Channel(connection)
                self.selector.register(channel.fileno(), selectors.EVENT_READ, channel)
                continue
            channel = key.data
            messages = channel.receive()
            if messages is None:
                self.selector.unregister(key.fd)
                channel.close()
                continue
            for message in messages:
                self.take(channel, message)

    def take(self, channel: Channel, message: dict[str, Any]) -> None:
        """Take one message."""
        kind = message["kind"]
        if kind == "agent":
            self.agents[message["host"]] = (channel, message["port"])
            return
        rank = self.ranks[message["rank"]]
        if kind == "rank":
            rank.pid, rank.port, rank.channel = message["pid"], message["port"], channel
        elif kind == "iteration":
            rank.iteration = message["iteration"]
            rank.seconds.append(message["seconds"])
            rank.cpu_s.append(message["cpu_s"])
            self.progress_at = time.monotonic()
        elif kind == "finished":
            rank.finished = True
        elif kind == "dumped":
            rank.dumped = True
        elif kind == "exit":
            rank.exit = message["code"]

    # --- the fault ---

    def break_it(self) -> None:
        """Cause the fault, now or, if it is in the code, from the next iteration on."""
        fault, target = self.scenario.fault, self.scenario.rank
        assert target is not None
        layout = self.scenario.layout
        self.fault_at, self.fault_ns = time.monotonic(), time.time_ns()
        self.iteration_at_fault = max(rank.iteration for rank in self.ranks)
        self.progress_at = time.monotonic()
        rank = self.ranks[target]
        how: list[str] = []
        if fault.signal:
            os.kill(rank.pid, getattr(signal, f"SIG{fault.signal}"))
            how.append(f"SIG{fault.signal} to process {rank.pid}")
        if fault.code and rank.channel is not None:
            rank.channel.send(kind="code", code=fault.code, at_iteration=rank.iteration + 2)
            how.append(f"the rank's own code, from iteration {rank.iteration + 2}")
        if fault.conditions and rank.channel is not None:
            values = dict(fault.conditions)
            if values.get("channel_bytes_per_s", 2.0) <= 1.0:
                values["channel_bytes_per_s"] *= self.scenario.nic_bytes_per_s
            rank.channel.send(kind="condition", values=values)
            how.append(f"conditions of its engine: {values}")
        if fault.network:
            how.append(self.break_network(target))
        if fault.agent:
            how.append(self.load_host(layout.host(target)))
        self.how = "; ".join(how)
        self.say(f"fault {fault.name} at rank {target}: {self.how}")

    def break_network(self, target: int) -> str:
        """Take the link down, or limit it."""
        fault = self.scenario.fault
        slow = self.scenario.nic_bytes_per_s * _SLOW_NIC
        channel = self.ranks[target].channel
        local = target - self.scenario.layout.ranks_of_host(self.scenario.layout.host(target))[0]
        if self.network is None:
            assert channel is not None
            values = {"nic_bytes_per_s": slow} if fault.network == "slow" else {"nic_down": 1}
            channel.send(kind="condition", values=values)
            self.link_up = fault.network == "slow"
            self.flap_at = time.monotonic() + _FLAP_DOWN_S
            return f"the rank's proxy keeps to {values}"
        if fault.network == "slow":
            self.network.set_rate(target, local, slow)
            return f"tc tbf {slow / 1e6:.0f} MB/s on both ends of its link"
        self.network.set_link(target, up=False)
        self.link_up = False
        self.flap_at = time.monotonic() + _FLAP_DOWN_S
        return f"ip link set v{target} down" + (" and up again, in turn" if fault.network == "flap" else "")

    def flap(self) -> None:
        """Switch a flapping link when it is time."""
        if self.scenario.fault.network != "flap" or self.fault_at is None or time.monotonic() < self.flap_at:
            return
        self.link_up = not self.link_up
        assert self.scenario.rank is not None
        channel = self.ranks[self.scenario.rank].channel
        if self.network is not None:
            self.network.set_link(self.scenario.rank, up=self.link_up)
        elif channel is not None:
            channel.send(kind="condition", values={"nic_down": 0 if self.link_up else 1})
        self.flap_at = time.monotonic() + (_FLAP_UP_S if self.link_up else _FLAP_DOWN_S)

    def load_host(self, host: int) -> str:
        """Let other work run on a host, or other traffic leave it."""
        layout = self.scenario.layout
        channel, _ = self.agents[host]
        ranks = layout.ranks_of_host(host)
        if self.scenario.fault.agent == "burn":
            channel.send(kind="burn", processes=len(ranks))
            return f"{len(ranks)} processes that compute, on {self.plan.host_name(host)}"
        if self.network is None:
            for rank in ranks:
                to = self.ranks[rank].channel
                if to is not None:
                    to.send(kind="condition", values={"nic_bytes_per_s": self.scenario.nic_bytes_per_s * _SLOW_NIC})
            return "the proxies of all its ranks keep to a fifth of the rate"
        # Spread over all other hosts, so that it is this one's interfaces that are full.
        others = [rank for rank in range(layout.world) if layout.host(rank) != host]
        flows: list[tuple[str, str, int]] = []
        for place, rank in enumerate(ranks):
            for number in range(_FLOWS_PER_RANK):
                target = others[(place + number * len(ranks)) % len(others)]
                flows.append((self.plan.address(rank), self.plan.address(target), self.agents[layout.host(target)][1]))
        channel.send(kind="traffic", flows=flows)
        return f"{len(flows)} competing TCP flows from {self.plan.host_name(host)} to the other hosts"

    # --- run ---

    def over(self) -> str:
        """Return why the job is over, "" if it is not."""
        if all(rank.finished or rank.exit is not None for rank in self.ranks) and any(
            rank.finished for rank in self.ranks
        ):
            return "finished"
        # A job that is still whole may only be slow, on a machine that does other things.
        whole = self.fault_at is None
        patience_s = max(self.scenario.patience_s, _START_S) if whole else self.scenario.patience_s
        if time.monotonic() - self.progress_at > patience_s:
            return "stood"
        if all(rank.exit is not None for rank in self.ranks):
            return "all ranks ended"
        return ""

    def run(self) -> str:
        """Run until it is over and return why."""
        at = self.scenario.at_iteration or 0
        while not (why := self.over()):
            self.turn()
            due = min(rank.iteration for rank in self.ranks) >= at - 1
            if self.fault_at is None and due and self.scenario.fault.name != "none":
                self.break_it()
            self.flap()
        return why

    # --- evidence ---

    def collect(self) -> None:
        """Read the trace of every rank, as it is now, and export all of them to one file."""
        traces: list[Trace] = []
        for path in sorted(self.plan.rings.iterdir()):
            if path.is_file() and path.name != "control":
                trace = open_trace(path)
                # The file outlives its processes: nobody shall look for them on the machine that reads it.
                process = replace(trace.process, boot_id="")
                if not self.plan.namespaces and process.rank is not None:
                    process = replace(process, host=self.plan.host_name(self.scenario.layout.host(process.rank)))
                traces.append(replace(trace, process=process))
        traces.sort(key=lambda trace: (trace.process.rank is None, trace.process.rank or 0))
        if traces:
            export_trace(traces, self.folder / "trace.parquet", format_="parquet")

    def take_dumps(self) -> None:
        """Ask every rank for torch's Flight Recorder dump; those that do not answer in time leave none."""
        if not self.scenario.torch:
            return
        asked = [rank for rank in self.ranks if rank.exit is None and rank.channel is not None and not rank.finished]
        for rank in asked:
            assert rank.channel is not None
            rank.channel.send(kind="dump")
        until = time.monotonic() + _DUMP_S
        while time.monotonic() < until and not all(rank.dumped or rank.exit is not None for rank in asked):
            self.turn()

    def take_stacks(self) -> None:
        """Ask py-spy for the Python stacks of every rank that is there."""
        beside = Path(sys.executable).with_name("py-spy")
        found = str(beside) if beside.exists() else shutil.which("py-spy")
        if found is None or not self.scenario.stacks:
            return
        (self.folder / "stacks").mkdir(exist_ok=True)
        for index, rank in enumerate(self.ranks):
            if rank.exit is not None or not rank.pid:
                continue
            done = subprocess.run(
                [found, "dump", "--nonblocking", "--pid", str(rank.pid)], capture_output=True, text=True, timeout=30
            )
            if done.returncode == 0:
                (self.folder / "stacks" / f"rank{index}.txt").write_text(done.stdout)

    def truth(self) -> dict[str, Any]:
        """Return what was really done, in the words of the verdict."""
        scenario, fault = self.scenario, self.scenario.fault
        assert scenario.rank is not None
        host = scenario.layout.host(scenario.rank)
        hit = fault.on == "rank"
        return {
            "title": f"testbed: {fault.name}" + (f" at rank {scenario.rank}" if hit else ""),
            "root_cause": {
                "ranks": [scenario.rank] if hit else [],
                "hosts": [self.plan.host_name(host)] if fault.on != "nothing" else [],
            },
            "category": fault.category,
            "hang": fault.status in ("hang", "crash"),
            "status": fault.status,
            "explanation": f"{self.how or 'nothing was done'}; hosts are {self.hosts_are}",
            "fault": fault.name,
            "injected_ns": self.fault_ns or None,
            "at_iteration": self.iteration_at_fault + 1 if self.fault_at is not None else None,
            "seed": scenario.seed,
            "details": fault.details,
        }

    def end(self) -> None:
        """End everything that was started and remove what it used."""
        for channel, _ in self.agents.values():
            channel.send(kind="end")
        for agent in self.processes:
            try:
                agent.wait(timeout=5)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
            if agent.stdin is not None:
                agent.stdin.close()
        # Ranks die with their agent; the rings go only once nobody can write to them.
        for rank in self.ranks:
            while rank.pid and _is_there(rank.pid):
                os.sched_yield()
        if self.network is not None:
            self.network.close()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.data, Channel):
                key.data.close()
        self.selector.close()
        if self.listener is not None:
            self.listener.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.janitor.kill()
        self.janitor.communicate()
        shutil.rmtree(self.folder / "job", ignore_errors=True)

    def outcome(self, ended: str, started: float) -> Outcome:
        """Sum up."""
        seconds = list(self.ranks[0].seconds)
        at = self.iteration_at_fault + 1 if self.fault_at is not None else len(seconds)
        before, after = seconds[1:at], seconds[at + 1 :]
        count = min(len(rank.cpu_s) for rank in self.ranks)
        return Outcome(
            folder=self.folder,
            truth=self.truth(),
            ended=ended,
            hosts_are=self.hosts_are,
            iterations=len(seconds),
            iteration_s=tuple(seconds),
            cpu_s=tuple(sum(rank.cpu_s[i] for rank in self.ranks) for i in range(count)),
            before_s=statistics.median(before) if before else None,
            after_s=statistics.median(after) if after else None,
            stood_s=time.monotonic() - self.progress_at if ended == "stood" else 0.0,
            exits={i: rank.exit for i, rank in enumerate(self.ranks) if rank.exit is not None},
            wall_s=time.monotonic() - started,
        )


def _janitor(folder: Path) -> subprocess.Popen[bytes]:
    """Start what removes a folder when this process is gone, even if it was killed: its pipe ends then."""
    return subprocess.Popen(
        ["sh", "-c", 'cat > /dev/null; sleep 1; exec rm -rf -- "$1"', "janitor", str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _torch_recorder() -> str:
    """Have torch's recorder compiled, once and not by every agent; returns why it cannot be."""
    from mycroft.tracer.testbed import torch_backend

    return torch_backend.load_recorder()


def _memory_folder() -> str | None:
    shm = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it, with a random name
    return str(shm) if os.access(shm, os.W_OK) else None


def _is_there(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")


def run_job(scenario: Scenario, folder: Path, *, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Run a scenario and leave `trace.parquet`, `truth.json`, logs and stacks in a new folder.

    Whatever happens, also Ctrl-C, everything that was started has ended when this returns.

    Raises:
        TestbedError: if the scenario cannot be run, or the folder exists and is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise TestbedError(f"{folder}: exists and is not empty; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    before = signal.signal(signal.SIGTERM, _interrupt)
    job = Job(scenario, folder, say=say)
    try:
        if job.scenario.torch and (why := _torch_recorder()):
            say(f"no Flight Recorder dumps: {why}")
        say(f"{job.scenario.layout.world} ranks on {job.scenario.layout.hosts} hosts, {job.hosts_are}")
        job.start()
        ended = job.run()
        say(f"job {ended} after {max(rank.iteration for rank in job.ranks) + 1} iterations")
        job.collect()
        job.take_dumps()
        if ended == "stood":
            job.take_stacks()
        outcome = job.outcome(ended, started)
        (folder / "truth.json").write_text(json.dumps(outcome.truth, indent=1) + "\n")
    finally:
        # A second Ctrl-C must not stop the clean-up.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            job.end()
        finally:
            signal.signal(signal.SIGINT, interrupt)
            signal.signal(signal.SIGTERM, before)
    return outcome


def _interrupt(_number: int, _frame: Any) -> None:
    raise KeyboardInterrupt
