"""Relays over HTTP: summaries of all ranks, a trigger, rows of the suspects, a verdict; bytes and time of each tier.

`python -m tests.bench.hierarchy [--topology T10240] [--fault nic_down] [--rank 5003] [--times 1]`
`python -m tests.bench.hierarchy --topology T102400 --fault recv_nopost --rank 50003 --times 10`
`python -m tests.bench.hierarchy --slow 2 --fault gpu_power [--topology T10240] [--rank 5003] [--seed 1]`

A simulated job as its agents would have sent it: a batch of each host goes into the log of its relay's collector, a
relay has 256 hosts. The relays are those of `mycroft collect --upstream`, one after the other in this process; they
post to a real `mycroft collect`, whose store the real watch looks at. It asks for rows in the answers, gets them, and
opens and revises an incident. Simulated hosts do not go on to speak: they count as speaking while they are replayed.

`--times N`: then the summaries of a job of N times as many data-parallel replicas are posted by N times as many relays,
merged and judged; nothing is fetched. Exit status 1 unless the verdict names the rank that is at fault, alone or as one
of several.

`--slow S`: a job that becomes slow, or with `--fault none` none that does, in windows of S seconds of the job. Rows go
straight into the windows of the relays, window by window; summaries, pulls and the verdict go the way they always do.
Exit status 1 unless who is slow is named, or nobody where nobody is.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mycroft.analysis.fleet.slow_windows import WINDOW_LIMITS
from mycroft.app.live.config import LiveConfig
from mycroft.app.live.relay import Relay
from mycroft.app.live.relay_measures import Measures
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.live.watch import Watch
from mycroft.app.state import State
from mycroft.loaders.collector import Collector, CollectorSettings, Window
from mycroft.tracer.agent.batch import Batch, BatchKey, RingStatus, encode
from mycroft.tracer.agent.sender import Collector as Client
from mycroft.tracer.agent.summary import COLUMNS, RELAY_PREFIX, Part, Summary
from mycroft.tracer.simulator import truth
from mycroft.tracer.trace import TABLES, ProcessState
from tests.analysis.fleet.simulated_fleet import Fleet, small_fleet
from tests.app.live.simulated import coded
from tests.bench.collector import Running
from tests.bench.replayed import Replay, repeated_measures

RECORD_BYTES = 64
HOSTS_PER_RELAY = 256
# Of a replay, in which a second of the job may take a minute: nobody is silent.
SUMMARY_S = 600.0


class Clock:
    """CPU seconds of this process and seconds of the clock by stage, each beginning where the one before ended."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[float, float]] = {}
        self._cpu, self._wall = time.process_time(), time.monotonic()

    def lap(self, stage: str) -> None:
        cpu, wall = time.process_time(), time.monotonic()
        before = self.stages.get(stage, (0.0, 0.0))
        self.stages[stage] = (before[0] + cpu - self._cpu, before[1] + wall - self._wall)
        self._cpu, self._wall = cpu, wall

    def report(self) -> None:
        print("stage: CPU s, s")
        for stage, (cpu, wall) in self.stages.items():
            print(f"  {stage}: {cpu:.2f}, {wall:.2f}")


def children_cpu_s(session: int) -> float:
    """CPU seconds of the processes of a session."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def batches(fleet: Fleet, ranks: range) -> Iterator[bytes]:
    """What the agents of some hosts send of the whole job, one batch a host."""
    per_host = fleet.simulated.config.ranks_per_host
    tables: dict[str, tuple[pa.Table, np.ndarray]] = {}
    for kind in TABLES:
        if kind in fleet.tables:
            table, owners = fleet.tables[kind]
            first, last = int(fleet.bounds[kind][ranks.start]), int(fleet.bounds[kind][ranks.stop])
            part = table.slice(first, last - first)
            rows = coded(kind, part, 0)
            place = rows.schema.get_field_index("position")
            rows = rows.set_column(place, rows.schema.field("position"), part.column("position").cast(pa.uint64()))
            ring = pa.array((owners[first:last] % per_host).astype(np.uint16))
            tables[kind] = (rows.set_column(0, rows.schema.field(0), ring).combine_chunks(), owners[first:last])
    for host in range(ranks.start, ranks.stop, per_host):
        mine = range(host, min(host + per_host, ranks.stop))
        parts: dict[str, pa.Table] = {}
        for kind, (rows, owners) in tables.items():
            first, last = np.searchsorted(owners, [mine.start, mine.stop])
            if last > first:
                parts[kind] = rows.slice(int(first), int(last - first))
        rings = tuple(_status(fleet, rank) for rank in mine)
        count = sum(table.num_rows for table in parts.values())
        key = BatchKey(host=f"sim{host // per_host}", boot="sim", seq=1, made_ns=fleet.last_ns, rows=count)
        yield encode(Batch(key=key, rings=rings, tables=parts, agent="bench"))


def _status(fleet: Fleet, rank: int) -> RingStatus:
    trace = fleet.bare(rank)
    table, _ = fleet.tables["heartbeat"]
    first, last = int(fleet.bounds["heartbeat"][rank]), int(fleet.bounds["heartbeat"][rank + 1])
    beats = pc.max(table.column("ts").slice(first, last - first).cast(pa.int64())).as_py()
    gone = beats is not None and beats < fleet.last_ns - 2_000_000_000
    return RingStatus(
        key=f"p{rank}",
        process=trace.process,
        communicators=trace.communicators,
        last_tick_ns=beats,
        state=ProcessState(exists=not gone, letter="" if gone else "S"),
        job="simulated",
        next=1 << 40,
    )


class Bench:
    """An upper collector that is a process of its own, and the watch of its store in this one."""

    def __init__(self, scratch: Path, clock: Clock) -> None:
        self.scratch = scratch
        self.clock = clock
        self.running = Running(scratch / "up", "--segment-seconds", "3600")
        self.config = LiveConfig(data_dir=scratch / "up")
        self.state = LiveState(State(self.config.data_dir))
        self.heard: list[str] = []
        self.watch = Watch(
            self.config,
            self.state,
            Window(self.config.store_dir, span_s=7200.0),
            told=lambda event, _incident, _title: self.heard.append(event),
        )
        self.relays: list[Relay] = []
        self.told: dict[str, pa.Table] = {}
        """The first summaries of each relay."""
        self.windows: dict[str, list[Summary]] = {}
        """All summaries of each relay that told of a window."""

    def close(self) -> None:
        self.watch.close()
        for relay in self.relays:
            relay.close()
        self.running.kill()

    def bare_relay(self, number: int, window_ns: int) -> Relay:
        """Make a relay that is given rows by hand, and tells of windows of some length however slow the replay is."""
        data = self.scratch / f"relay{number}"
        relay = Relay(
            LiveConfig(data_dir=data, upstream=self.running.url, relay_name=f"r{number:03}", summary_s=SUMMARY_S)
        )
        relay._measures = Measures(window_ns)
        self.relays.append(relay)
        return relay

    def relay(self, number: int, wires: Iterator[bytes]) -> tuple[Relay, int, int]:
        """Make a relay whose collector has acknowledged some batches; return it with their number and bytes."""
        data = self.scratch / f"relay{number}"
        settings = CollectorSettings(
            folder=data / "live" / "store", segment_s=7200.0, segment_bytes=1 << 40, reserve_bytes=0, helper=True
        )
        collector = Collector(settings)
        collector.start()
        done = threading.Semaphore(0)
        count = size = 0
        for wire in wires:
            collector.offer(wire, lambda tickets: done.release(len(tickets)))
            count, size = count + 1, size + len(wire)
            if count % 32 == 0:
                for _ in range(32):
                    done.acquire()
        for _ in range(count % 32):
            done.acquire()
        self.clock.lap("agents encode, collectors of the relays acknowledge")
        collector.close()
        relay = Relay(
            LiveConfig(data_dir=data, upstream=self.running.url, relay_name=f"r{number:03}", summary_s=SUMMARY_S)
        )
        relay.window.refresh()
        self.clock.lap("relays read their logs")
        self.relays.append(relay)
        return relay, count, size

    def tell(self, relay: Relay) -> int:
        """Have a relay tell its summaries; return their bytes."""
        for process in relay.window.processes.values():
            process.arrived_s = time.time() + SUMMARY_S
        summary = relay.turn()
        self.told.setdefault(relay.name, summary.rows)
        if any(part.window for part in summary.parts):
            self.windows.setdefault(relay.name, []).append(summary)
        self.clock.lap("relays summarise")
        size = relay.spool.size_bytes
        while len(relay.spool):
            relay.sender.send_one()
        self.clock.lap("summaries over HTTP")
        return size

    def look(self, stage: str) -> None:
        if self.watch._relayed is not None:
            # Windows of ten seconds are replayed in less: the rest after each look is left out.
            self.watch._relayed._next.clear()
        self.watch.window.refresh()
        self.clock.lap(f"{stage}: summaries into the watch")
        self.watch.tick()
        self.clock.lap(f"{stage}: merge, find suspects, open an incident")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="T10240")
    parser.add_argument("--fault", default="nic_down")
    parser.add_argument("--rank", type=int, default=5003)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--slow", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    clock = Clock()
    fleet = small_fleet(
        arguments.fault,
        topology=arguments.topology,
        rank=arguments.rank,
        ranks_per_relay=HOSTS_PER_RELAY * 8,
        microbatches=2,
        interval_ns=5e8,
        **(slow_timing(arguments.slow, arguments.windows) if arguments.slow else {}),
        seed=arguments.seed,
    )
    rows = {kind: table.num_rows for kind, (table, _) in fleet.tables.items()}
    clock.lap("simulate")
    print(f"{fleet.world:,} ranks, {len(fleet.relays)} relays, {arguments.fault} at rank {arguments.rank}; rows {rows}")
    with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as folder:
        bench = Bench(Path(folder), clock)
        try:
            if arguments.slow:
                right = slow_end_to_end(bench, fleet, int(arguments.slow * 1e9))
            else:
                right = end_to_end(bench, fleet)
            told = list(bench.told.values())
            windows = list(bench.windows.values())
            print(f"CPU of the upper collector: {children_cpu_s(bench.running.process.pid):.2f} s")
        finally:
            bench.close()
            clock.report()
    if arguments.times > 1:
        with tempfile.TemporaryDirectory(prefix="mycroft-bench-") as folder:
            bench = Bench(Path(folder), clock)
            try:
                if arguments.slow:
                    right &= windows_only(bench, fleet, windows, arguments.times)
                else:
                    summaries_only(bench, fleet, told, arguments.times)
                print(f"CPU of the upper collector: {children_cpu_s(bench.running.process.pid):.2f} s")
            finally:
                bench.close()
        clock.report()
    print(f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    return 0 if right else 1


def slow_timing(window_s: float, windows: int) -> dict[str, float]:
    """When it becomes slow, and for how long it goes on: what is usual must be learnt first."""
    healthy = WINDOW_LIMITS.warm + WINDOW_LIMITS.learn + 1.5
    return {"at_s": healthy * window_s, "after_s": (windows - healthy) * window_s}


def slow_end_to_end(bench: Bench, fleet: Fleet, window_ns: int) -> bool:
    statuses = {rank: replace(_status(fleet, rank), next=0) for rank in range(fleet.world)}
    replays = [
        (bench.bare_relay(number, window_ns), Replay(fleet, ranks, statuses))
        for number, ranks in enumerate(fleet.relays)
    ]
    bench.clock.lap("statuses of processes")
    began_ns = int(pc.min(fleet.tables["heartbeat"][0].column("ts").cast(pa.int64())).as_py())
    first, last = began_ns // window_ns, fleet.last_ns // window_ns
    cause = truth(fleet.simulated)["root_cause"] if fleet.simulated.simulation.fault != "none" else None
    size = windows = 0
    for number in range(first, last):
        for relay, replay in replays:
            batches = replay.batches(number, number * window_ns, (number + 1) * window_ns)
            bench.clock.lap("cut the rows of the simulator")
            relay.window._take_all(batches)
            bench.clock.lap("relays take rows")
            size += bench.tell(relay)
        windows += 1
        bench.look("windows")
        if bench.state.incidents():
            break
    measures = sum(told.measures.num_rows for mine in bench.windows.values() for told in mine)
    raw = sum(table.num_rows for table, _ in fleet.tables.values()) * RECORD_BYTES
    per = size / windows / fleet.world
    print(f"tier 1, rings: {raw / 1e6:,.0f} MB of records")
    print(f"tier 2, to the centre: {windows} windows, {size / 1e6:,.2f} MB, {per:.1f} B a rank and window, of")
    summaries = sum(table.num_rows for table in bench.told.values())
    print(f"  {measures / windows / fleet.world:.1f} measures and {summaries / fleet.world:.1f} summaries each")
    print(held_by(bench.state.numbers()["tick"][1]["relays"], fleet.world))
    found = bench.state.incidents()
    if cause is None or not found:
        print(f"truth: {cause}; {len(found)} incidents {[one.summary for one in found]}")
        return cause is None and not found
    incident = only_incident(bench.state)
    print(f"incident after {windows} windows: {incident.confidence}: {incident.summary}\n  {incident.finding['why']}")
    fetch(bench, fleet.world, incident)
    bench.watch.tick()
    incident = bench.state.incident(incident.incident)
    how = judged(incident, cause)
    print(f"verdict: {incident.status} {incident.category} {incident.confidence}: {incident.summary}")
    print(f"truth: {cause}; named {list(incident.ranks)} {list(incident.hosts)}: {how}; told {bench.heard}")
    return how != "WRONG"


def fetch(bench: Bench, world: int, incident: Incident) -> None:
    """Have the rows of the suspects of an incident fetched, judged and published."""
    asked = bench.state.requests(incident.incident)
    count = sum(len(request.processes) for request in asked)
    # The collector looks up twice a second who is to be asked.
    pulled(bench, {request.host for request in asked})
    size = sum(row["size"] for row in bench.state.evidence(incident.incident))
    print(f"fetched: {count} ranks ({count / world:.2%}) from {len(asked)} relays, {size / 1e6:,.2f} MB")
    bench.watch.tick()
    bench.clock.lap("the watch finds the rows")
    while not bench.watch._queue.empty():
        bench.watch.publish_one(bench.watch._queue.get())
    bench.clock.lap("load, diagnose and publish what was fetched")


def held_by(numbers: dict[str, int], world: int) -> str:
    held = numbers["series_bytes"]
    return f"the centre holds {numbers['entities']:,} entities, {held / 1e6:,.1f} MB, {held / world:.0f} B a rank"


def judged(incident: Incident, cause: dict[str, list[Any]]) -> str:
    """Whether an incident names who is at fault: the ranks, or where all of a host are slow the host."""
    named, at_fault = set(incident.ranks), set(cause["ranks"])
    if named == at_fault or (not named and set(incident.hosts) == set(cause["hosts"])):
        return "right"
    return "right, one of several" if at_fault < named else "WRONG"


def end_to_end(bench: Bench, fleet: Fleet) -> bool:
    raw = sum(table.num_rows for table, _ in fleet.tables.values()) * RECORD_BYTES
    hosts = wire = sent = 0
    for number, ranks in enumerate(fleet.relays):
        _, count, size = bench.relay(number, batches(fleet, ranks))
        hosts, wire = hosts + count, wire + size
    for relay in bench.relays:
        sent += bench.tell(relay)
    rows = sum(table.num_rows for table in bench.told.values())
    print(f"tier 1, rings: {raw / 1e6:,.0f} MB of records; to the relays: {hosts:,} batches, {wire / 1e6:,.0f} MB")
    print(f"tier 2, to the centre: {rows:,} summaries, {sent / 1e6:,.2f} MB, {sent / rows:.1f} B each")
    bench.look(f"{fleet.world:,} ranks")
    incident = only_incident(bench.state)
    asked = bench.state.requests(incident.incident)
    print(f"incident: {incident.summary}\n  {incident.finding['why']}")
    fetch(bench, fleet.world, incident)
    incident = bench.state.incident(incident.incident)
    # Once an incident: what it goes on to see asks for nothing more.
    again = len(bench.state.requests(incident.incident)) == len(asked)
    cause = truth(fleet.simulated)["root_cause"]
    named = list(incident.ranks)
    how = (
        "right" if named == cause["ranks"] else "right, one of several" if set(cause["ranks"]) < set(named) else "WRONG"
    )
    print(f"verdict: {incident.status} {incident.category} {incident.confidence}: {incident.summary}")
    print(f"truth: {cause}; named {named}: {how}; revisions {incident.revisions}; asked once: {again}")
    return how != "WRONG" and again


def only_incident(state: LiveState) -> Incident:
    found = state.incidents()
    if len(found) != 1:
        raise SystemExit(f"expected one incident, found {[incident.summary for incident in found]}")
    return found[0]


def pulled(bench: Bench, hosts: set[str]) -> None:
    """Let the relays speak until each that is asked has heard it, and bring what it is asked for."""
    waiting = {relay.name: relay for relay in bench.relays if relay.name in hosts}
    deadline = time.monotonic() + 120.0
    while waiting and time.monotonic() < deadline:
        for name, relay in list(waiting.items()):
            bench.tell(relay)
            if (request := relay.requests.next()) is not None:
                problems = relay.serve_request(request)
                if problems:
                    print(f"{name}: {problems}")
                del waiting[name]
            bench.clock.lap("relays cut and bring the rows")
    if waiting:
        raise SystemExit(f"{sorted(waiting)} were not asked")


def repeated(told: list[pa.Table], times: int, fleet: Fleet) -> Iterator[pa.Table]:
    """Summaries of a job of `times` as many data-parallel replicas. Communicators of a replica are new in each copy."""
    dp_ranks = fleet.simulated.config.dp
    for copy in range(times):
        for rows in told:
            sizes = rows.column("comm_size")
            shared = pc.equal(sizes, dp_ranks)
            fresh = pc.bit_wise_xor(rows.column("comm"), pa.scalar(copy << 32, pa.uint64()))
            columns = {name: rows.column(name) for name in COLUMNS.names}
            columns["rank"] = pc.add(rows.column("rank"), pa.scalar(copy * fleet.world, pa.uint32()))
            columns["comm"] = pc.if_else(shared, rows.column("comm"), fresh)
            moved = pc.add(rows.column("comm_rank"), pa.scalar(copy * dp_ranks, pa.uint32()))
            columns["comm_rank"] = pc.if_else(shared, moved, rows.column("comm_rank"))
            columns["comm_size"] = pc.if_else(shared, pa.scalar(dp_ranks * times, pa.uint32()), sizes)
            yield pa.table(columns, schema=COLUMNS)


def windows_only(bench: Bench, fleet: Fleet, told: list[list[Summary]], times: int) -> bool:
    """Let N times as many relays tell of the same windows; nothing is fetched."""
    client = Client(bench.running.url)
    cause = truth(fleet.simulated)["root_cause"]
    at_fault = list(cause["ranks"])
    dp_ranks = fleet.simulated.config.dp
    known = {c.hash for rank in range(fleet.world) for c in fleet.bare(rank).communicators if c.size == dp_ranks}
    shared_comms = pa.array(sorted(known), pa.uint64())
    count = min(map(len, told))
    sent = 0
    for window in range(count):
        now = [mine[window] for mine in told]
        rows = repeated([one.rows for one in now], times, fleet)
        for number, table in enumerate(rows):
            copy, one = number // len(now), now[number % len(now)]
            at_ns = max(part.at_ns for part in one.parts)
            places = tuple((rank + copy * fleet.world, f"{name}c{copy}") for rank, name in one.parts[0].places)
            parts = [
                msgspec.structs.replace(
                    part, at_ns=at_ns, window=one.parts[0].window, places=places if not index else ()
                )
                for index, part in enumerate(parts_of(table, fleet, fleet.world * times))
            ]
            summary = Summary(
                at_ns=at_ns,
                rows=table,
                parts=parts,
                every_s=SUMMARY_S,
                measures=repeated_measures(one.measures, copy, fleet, shared_comms, at_fault),
                window_ns=one.window_ns,
            )
            key = BatchKey(
                host=f"{RELAY_PREFIX}r{number:04}",
                boot="b",
                seq=window + 1,
                made_ns=time.time_ns(),
                rows=table.num_rows,
            )
            wire = encode(Batch(key=key, summary=summary))
            bench.clock.lap("make the windows of many")
            answer = client.post("/api/v1/batch", wire)
            if not answer.taken:
                raise SystemExit(f"{answer}")
            bench.clock.lap("windows of many over HTTP")
            sent += len(wire)
        bench.look("windows of many")
    client.close()
    world = fleet.world * times
    numbers = bench.state.numbers()["tick"][1]["relays"]
    print(f"{world:,} ranks, {count} windows only, {len(told) * times} relays: {sent / 1e6:,.1f} MB,", end=" ")
    print(f"{sent / count / world:.1f} B a rank and window")
    print(held_by(numbers, world))
    for one in bench.state.incidents():
        asked = bench.state.requests(one.incident)
        print(f"incident: {one.confidence}: {one.summary}; {sum(len(r.processes) for r in asked)} ranks asked for")
    return [judged(one, cause) for one in bench.state.incidents()] == ["right"]


def parts_of(table: pa.Table, fleet: Fleet, world_size: int) -> list[Part]:
    """What a relay says of its rows: of ranks that share no communicator at it as if they were of several jobs."""
    found = []
    for number in range(pc.max(table.column("part")).as_py() + 1):
        mine = table.filter(pc.equal(table.column("part"), number))
        ranks = pc.count_distinct(mine.column("rank")).as_py()
        least = pc.min(mine.column("comm")).as_py()
        found.append(
            Part(
                at_ns=fleet.last_ns,
                comm=least,
                job="simulated",
                processes=ranks,
                hosts=ranks // 8,
                world_size=world_size,
            )
        )
    return found


def summaries_only(bench: Bench, fleet: Fleet, told: list[pa.Table], times: int) -> None:
    client = Client(bench.running.url)
    sent = rows = relays = 0
    for number, table in enumerate(repeated(told, times, fleet)):
        summary = Summary(
            at_ns=fleet.last_ns, rows=table, parts=parts_of(table, fleet, fleet.world * times), every_s=SUMMARY_S
        )
        key = BatchKey(host=f"{RELAY_PREFIX}r{number:04}", boot="b", seq=1, made_ns=time.time_ns(), rows=table.num_rows)
        wire = encode(Batch(key=key, summary=summary))
        bench.clock.lap("make the summaries of many")
        answer = client.post("/api/v1/batch", wire)
        if not answer.taken:
            raise SystemExit(f"{answer}")
        bench.clock.lap("summaries of many over HTTP")
        sent, rows, relays = sent + len(wire), rows + table.num_rows, relays + 1
    client.close()
    bench.look(f"{fleet.world * times:,} ranks")
    incident = only_incident(bench.state)
    asked = bench.state.requests(incident.incident)
    count = sum(len(request.processes) for request in asked)
    print(f"{fleet.world * times:,} ranks, summaries only: {rows:,} rows of {relays} relays, {sent / 1e6:,.1f} MB")
    print(f"incident: {incident.summary}\n  {incident.finding['why']}")
    print(f"{count:,} ranks of {len(asked)} relays would be asked for their rows")


if __name__ == "__main__":
    sys.exit(main())
