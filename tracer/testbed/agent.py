"""The agent of one host: forks its ranks, watches them, causes other load. `python -m mycroft.tracer.testbed.agent`.

Imports are done once, before the fork; each rank is then a process of its own with its own variables, streams and
threads. When the launcher dies, the kernel kills the agent, and with it its ranks.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mycroft.tracer import _testbed
from mycroft.tracer.testbed import logs
from mycroft.tracer.testbed.control import Channel
from mycroft.tracer.testbed.namespaces import die_with_parent
from mycroft.tracer.testbed.plan import Plan
from mycroft.tracer.testbed.scenarios import Scenario
from mycroft.tracer.testbed.training import Orders, Training

_TURN_S = 0.1
_FLOOD_BYTES = 1 << 16


def _kind(scenario: Scenario) -> type[Training]:
    """Return what runs the job; torch is imported only where it is asked for."""
    if not scenario.torch:
        return Training
    from mycroft.tracer.testbed.torch_training import TorchTraining

    return TorchTraining


def run_rank(plan: Plan, rank: int, local: int) -> None:
    """Be one rank, to the end of the job. Never returns."""
    scenario = plan.scenario
    layout = scenario.layout
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    folder = plan.folder / "logs" / f"rank{rank}"
    folder.mkdir(parents=True, exist_ok=True)
    log = os.open(folder / "stderr.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    os.dup2(log, 1)
    os.environ.update(plan.environment(rank, local))
    status = 1
    try:
        engine = _testbed.Engine(
            rank=rank,
            address=plan.address(rank),
            plugin=plan.plugin if scenario.trace else "",
            abi=scenario.abi,
            slot_bytes=scenario.slot_bytes,
        )
        if not plan.namespaces:
            engine.set_condition("nic_bytes_per_s", scenario.nic_bytes_per_s)
        channel = Channel.connect(plan.socket)
        channel.send(kind="rank", rank=rank, pid=os.getpid(), port=engine.port)
        orders = Orders()
        peers: dict[str, Any] = {}
        known: list[Any] = []
        ready = threading.Event()

        def obey(message: dict[str, Any]) -> None:
            if message["kind"] == "peers":
                peers.update(message)
                ready.set()
            elif message["kind"] == "condition":
                for name, value in message["values"].items():
                    engine.set_condition(name, float(value))
            elif message["kind"] == "code":
                with orders.lock:
                    orders.code, orders.at_iteration = message["code"], message["at_iteration"]
            elif message["kind"] == "dump":
                # As torch's watchdog does: from another thread, wherever the rank stands.
                for one in known:
                    one.write_dump(plan.folder / "flight_recorder")
                channel.send(kind="dumped", rank=rank)

        channel.listen(obey, name="orders")
        ready.wait()
        members = [(plan.address(r), port, plan.host_name(layout.host(r))) for r, port in enumerate(peers["ports"])]
        training = _kind(scenario)(scenario, rank, engine, members, plan.folder / "job", orders)
        known.append(training)

        def report(iteration: int, seconds: float, cpu_s: float) -> None:
            channel.send(kind="iteration", rank=rank, iteration=iteration, seconds=seconds, cpu_s=cpu_s)

        training.train(report)
        # Nobody leaves while a neighbour still drains what was sent.
        training.all_reduce("world", 1)
        engine.drain(10_000_000_000)
        engine.shut_down()
        channel.send(kind="finished", rank=rank)
        status = 0
    except Exception as error:
        logs.print_exception(rank, error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def burn() -> None:
    """Take processor time, as another job on the host would."""
    die_with_parent()
    value = 1.0
    while True:
        for _ in range(100_000):
            value = value * 1.000001 % 10.0


def flood(source: str, target: str, port: int) -> None:
    """Send as much as the network takes, with some milliseconds of it on the way: congestion, not an outage."""
    die_with_parent()
    block = bytes(_FLOOD_BYTES)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _FLOOD_BYTES)
        connection.bind((source, 0))
        connection.connect((target, port))
        while True:
            connection.sendall(block)


def sink(listener: socket.socket) -> None:
    """Take what floods of other hosts send."""

    def drain(connection: socket.socket) -> None:
        buffer = bytearray(1 << 16)
        while connection.recv_into(buffer):
            pass

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=drain, args=(connection,), daemon=True).start()


class Agent:
    """Watches the ranks of a host."""

    def __init__(self, plan: Plan, host: int) -> None:
        self.plan = plan
        self.host = host
        self.children: dict[int, int] = {}  # pid -> rank
        self.load: list[int] = []
        self.failures: list[tuple[int, int, int, int, float]] = []
        self.log = (plan.folder / "logs" / f"{plan.host_name(host)}.launcher.log").open("a", buffering=1)

    def fork(self, run: Any, *arguments: Any) -> int:
        """Fork a child that runs a function."""
        pid = os.fork()
        if pid == 0:
            try:
                run(*arguments)
            finally:
                os._exit(0)
        return pid

    def start_ranks(self) -> None:
        """Fork the ranks."""
        if self.plan.scenario.pin:
            usable = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {usable[self.host % len(usable)]})
        for local, rank in enumerate(self.plan.scenario.layout.ranks_of_host(self.host)):
            self.children[self.fork(run_rank, self.plan, rank, local)] = rank

    def obey(self, message: dict[str, Any]) -> None:
        """Cause other load on this host."""
        if message["kind"] == "burn":
            self.load += [self.fork(burn) for _ in range(message["processes"])]
        elif message["kind"] == "traffic":
            for source, target, port in message["flows"]:
                self.load.append(self.fork(flood, source, target, port))

    def reap(self, channel: Channel) -> None:
        """Notice children that have ended."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            rank = self.children.pop(pid, None)
            if rank is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            channel.send(kind="exit", rank=rank, code=code)
            if code:
                local = rank - self.plan.scenario.layout.ranks_of_host(self.host)[0]
                self.log.write(logs.failed_line(exitcode=code, local_rank=local, pid=pid) + "\n")
                self.failures.append((rank, local, pid, code, time.time()))

    def run(self, channel: Channel) -> None:
        """Until all ranks have ended and the launcher is gone."""
        listener = socket.create_server(("" if self.plan.namespaces else "127.0.0.1", 0))
        self.start_ranks()
        threading.Thread(target=sink, args=(listener,), daemon=True).start()
        channel.send(kind="agent", host=self.host, pid=os.getpid(), port=listener.getsockname()[1])
        while True:
            readable, _, _ = select.select([channel], [], [], _TURN_S)
            if readable:
                messages = channel.receive()
                if messages is None or any(message["kind"] == "end" for message in messages):
                    return
                for message in messages:
                    self.obey(message)
            self.reap(channel)

    def end(self) -> None:
        """Kill what is left and write the launcher's report."""
        for pid in [*self.children, *self.load]:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue
        if self.failures:
            host = self.plan.host_name(self.host)
            self.log.write(logs.failure_report(script="train.py", host=host, failures=self.failures) + "\n")
        self.log.close()


def main(arguments: list[str]) -> int:
    """Run the agent of one host."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides when to end
    plan = Plan.from_json(json.loads(Path(arguments[0]).read_text()))
    host = int(arguments[1])
    if plan.scenario.torch:
        # Before the fork, so that it is loaded once; the launcher has had the recorder compiled.
        from mycroft.tracer.testbed import torch_backend

        torch_backend.load_recorder()
    sys.stdin.readline()  # the launcher has made our interfaces
    agent = Agent(plan, host)
    channel = Channel.connect(plan.socket)
    try:
        agent.run(channel)
    finally:
        agent.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
