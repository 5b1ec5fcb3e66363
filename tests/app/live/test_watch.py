"""The watch over a simulated job that its agents tell second by second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mycroft.app.live.config import LiveConfig
from mycroft.app.live.incidents import CLOSE_S, Incidents, blind_finding
from mycroft.app.live.judge import Look
from mycroft.app.live.publishing import LivePublished
from mycroft.app.live.receiver import incident_folder
from mycroft.app.live.spans import Spans
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.live.watch import LEFT_S, PATIENCE_S, Watch, WatchError
from mycroft.app.state import State
from mycroft.loaders.catalogue import Catalogue
from mycroft.loaders.collector import Process, Window
from mycroft.tracer.simulator import truth
from mycroft.tracer.trace import ProcessState
from tests.app.live.simulated import SECOND, Job
from tests.app.live.test_incidents import finding

FAULTY = 5


class Told:
    """Remembers what the watch told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Incident]] = []

    def __call__(self, event: str, incident: Incident, title: str) -> None:
        self.events.append((event, incident))


class Operations(Spans):
    """Remembers the operations that were told, in place of a receiver."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []

    def operations(self, incident: Incident, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows += rows


@pytest.fixture(scope="module")
def job() -> Job:
    return Job("nic_down", rank=FAULTY, until_ns=time.time_ns())


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def operations() -> Operations:
    return Operations()


@pytest.fixture
def watch(tmp_path: Path, told: Told, operations: Operations) -> Iterator[Watch]:
    config = LiveConfig(data_dir=tmp_path / "data")
    state = LiveState(State(config.data_dir))
    opened = Watch(config, state, Window(config.store_dir, span_s=3600.0), told=told, spans=operations)
    yield opened
    opened.close()


def feed(watch: Watch, job: Job, *, seconds: int) -> None:
    """Give the watch the first seconds of the job; it has not looked yet."""
    _, batches = next(job.batches(first_ns=seconds * SECOND))
    for batch in batches:
        watch.window.take(batch)


def test_fault_becomes_one_incident_with_the_right_ranks_and_a_trace(
    watch: Watch, told: Told, operations: Operations, job: Job
) -> None:
    since_fault = truth(job.simulated)["injected_ns"] + 3 * SECOND - job.first
    opened_after = None
    for at, batches in job.batches(first_ns=since_fault):
        for batch in batches:
            watch.window.take(batch)
        for known in watch._jobs.values():
            known.next_look = 0.0  # the job is replayed faster than it ran: every second of it is looked at
        watch.tick()
        if told.events:
            opened_after = (at - job.shift - truth(job.simulated)["injected_ns"]) / SECOND
            break
    assert [event for event, _ in told.events] == ["opened"]
    assert opened_after is not None and opened_after <= 12
    incident = watch.state.incidents()[0]
    assert FAULTY in incident.ranks and len(incident.ranks) <= 2
    assert incident.category == "link_fault"
    # The agents of the suspects, and of one rank that waits, are asked once.
    hosts = {request.host for request in watch.state.requests(incident.incident)}
    assert hosts and len(hosts) <= watch.config.evidence_hosts
    asked = {key for request in watch.state.requests(incident.incident) for key in request.processes}
    assert {f"{rank:04}" for rank in incident.ranks} <= asked
    while not watch._queue.empty():
        watch.publish_one(watch._queue.get())
    incident = watch.state.incident(incident.incident)
    catalogue = Catalogue(watch.config.data_dir)
    assert incident.trace is not None and incident.generation in catalogue.generations(incident.trace)
    assert catalogue.get(incident.trace).summary["status"] == "hang"
    assert catalogue.get(incident.trace).summary["ranks_seen"] == 16
    # The operation that stands is told as each rank saw it, once.
    stuck = incident.finding["collective"]
    assert {(row["comm"], row["seq"]) for row in operations.rows} == {(stuck["comm"], stuck["seq"])}
    assert FAULTY in [row["rank"] for row in operations.rows]
    assert all(row["begun"] for row in operations.rows) and any(row["ended"] is None for row in operations.rows)


def test_second_watch_of_a_folder_is_refused(watch: Watch) -> None:
    with pytest.raises(WatchError, match="another watch"):
        Watch(watch.config, watch.state, watch.window)


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at is of no account: nothing is found."""
    monkeypatch.setattr(
        "mycroft.app.live.watch.look", lambda *_, at_ns, judge, **__: Look(at_ns, (), (), "", judge, 0.0)
    )


@pytest.mark.usefixtures("no_looks")
def test_job_of_which_nobody_speaks_is_said_to_be_unseen_until_somebody_does(
    watch: Watch, told: Told, job: Job
) -> None:
    feed(watch, job, seconds=3)
    for process in watch.window.processes.values():
        process.arrived_s -= 100.0

    def tick_much_later() -> list[str]:
        for known in watch._jobs.values():
            known.next_look = known.judged = 0.0
            for seen in known.incidents._open.values():
                seen.last -= 2 * CLOSE_S
        watch.tick()
        return [event for event, _ in told.events]

    assert tick_much_later() == ["opened"]
    incident = told.events[0][1]
    assert incident.status == "cannot_tell" and "blind" in incident.summary
    assert incident.ranks == () == incident.hosts
    for _ in range(3):
        assert tick_much_later() == ["opened"]
    for process in watch.window.processes.values():
        process.arrived_s += 100.0
        process.told_ns += SECOND
    assert tick_much_later() == ["opened", "closed"]


def test_job_that_breaks_the_rules_does_not_stop_the_watch(
    watch: Watch, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ValueError("a bug of the rules")

    monkeypatch.setattr("mycroft.app.live.watch.look", breaks)
    feed(watch, job, seconds=3)
    watch.tick()
    problems = watch.state.numbers()["tick"][1]["problems"]
    assert list(problems.values()) == ["ValueError: a bug of the rules"]


def test_process_that_was_replaced_is_left_out(watch: Watch, job: Job) -> None:
    from mycroft.app.live.ranks import newest_of_each_rank

    feed(watch, job, seconds=2)
    group = watch.window.jobs()[0]
    older = replace(group[0], key="older", status=replace(group[0].status, key="older"))
    older.status = replace(older.status, process=replace(older.status.process, started_ns=-1))
    kept = newest_of_each_rank([older, *group])
    assert "older" not in {process.key for process in kept} and len(kept) == len(group)


def test_process_that_runs_is_not_left_out_for_one_that_ended_by_a_faster_clock(watch: Watch, job: Job) -> None:
    from mycroft.app.live.ranks import newest_of_each_rank

    feed(watch, job, seconds=2)
    group = watch.window.jobs()[0]
    ended = replace(group[0].status, key="ended", state=ProcessState(exists=False))
    ended = replace(ended, process=replace(ended.process, started_ns=1 << 61))
    gone = replace(group[0], key="ended", host="elsewhere", status=ended)
    for order in ([gone, *group], [*group, gone]):
        kept = newest_of_each_rank(order)
        assert "ended" not in {process.key for process in kept} and len(kept) == len(group)
    # On one machine the clock tells which is the later.
    here = replace(gone, host=group[0].host)
    assert "ended" in {process.key for process in newest_of_each_rank([here, *group])}


def test_what_a_silent_agent_said_last_is_not_taken_for_now(
    watch: Watch, told: Told, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[list[Process]] = []

    def look(group: list[Process], *, at_ns: int, **_: object) -> Look:
        looked.append(group)
        return Look(at_ns, (gone(9),), (), "", False, 0.0)

    def gone(rank: int) -> dict[str, Any]:
        return finding("process_died", (rank,), status="crash", confidence="high") | {"confidence_why": []}

    monkeypatch.setattr("mycroft.app.live.watch.look", look)
    feed(watch, job, seconds=3)
    mine = [process for process in watch.window.processes.values() if process.host == "sim2"]
    for process in mine:
        process.arrived_s -= PATIENCE_S + 1
    # Its last word of one was that it is gone.
    mine.sort(key=lambda process: process.key)
    mine[0].status = replace(mine[0].status, state=ProcessState(exists=False))
    watch.tick()
    states = {process.key: process.status.state for process in looked[0]}
    # That a process was gone stays true. That it was there does not: it was called stopped, with high confidence, when
    # the network of its agent was down and the job stood for another reason.
    assert states[mine[0].key] == ProcessState(exists=False)
    assert {states[process.key] for process in mine[1:]} == {None}
    others = [state for key, state in states.items() if key not in {process.key for process in mine}]
    assert others and all(state is not None and state.exists for state in others)
    # The rules take silence for the end of a process: nobody is sure of that here.
    incident = told.events[0][1]
    assert (incident.ranks, incident.confidence) == ((9,), "low")
    assert incident.finding["confidence_why"][0].startswith("nothing is heard of sim2")
    # Of 8 its agent has told that it is gone, and that of 3 speaks.
    known = watch._jobs[incident.job]
    assert known.weighed([gone(8), gone(3)]) == (gone(8), gone(3))


def test_incidents_of_a_job_that_has_left_are_over_unless_nothing_is_known_of_it(watch: Watch, told: Told) -> None:
    for name, ended in (("crashed", 16), ("unseen", 3)):
        facts = {"processes": 16, "ended": ended}
        watch.state.see_job(name, title=name, processes=[name], facts=facts)
        watch.state.open_incident(name, blind_finding(name, ["h"], 60.0), why="")
    watch.tick()
    assert [(event, incident.job) for event, incident in told.events] == [("closed", "crashed")]
    assert [incident.job for incident in watch.state.incidents(only_open=True)] == ["unseen"]
    with watch.state._state.connection() as connection:
        connection.execute("UPDATE live_jobs SET seen = seen - ?", (LEFT_S + 1,))
    watch._minded_left = -1e9
    watch.tick()
    assert watch.state.incidents(only_open=True) == []


@pytest.mark.usefixtures("no_looks")
def test_evidence_is_followed_while_nobody_looks(watch: Watch, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(watch, job, seconds=3)
    watch.tick()
    name = watch.state.jobs()[0].job
    incident = watch.state.open_incident(name, blind_finding(name, ["h"], 60.0), why="")
    folder = incident_folder(watch.config.data_dir, incident.incident) / "h"
    folder.mkdir(parents=True)
    (folder / "rank0.stderr.log").write_bytes(b"one line\n")
    verdict = {"findings": [dict(incident.finding)]}
    monkeypatch.setattr("mycroft.app.live.watch.publish_live", lambda *_, trace, **__: LivePublished(trace, 1, verdict))
    monkeypatch.setattr(Watch, "_tell_operations", lambda *_: None)
    free: list[bool] = []

    def revise(_self: Incidents, revised: Incident, *_: object) -> Incident:
        def look() -> None:
            free.append(watch._judging.acquire(blocking=False))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return revised

    monkeypatch.setattr(Incidents, "revise", revise)
    group = watch.window.jobs()[0]
    watch._publish(watch._jobs[name], incident, group, "evidence")
    while not watch._queue.empty():
        watch.publish_one(watch._queue.get())
    # A tick of another thread would have changed the window and the incidents under it.
    assert free == [False]


def test_job_that_may_stand_is_looked_at_without_rest_and_not_before_a_rule_could_say_so(
    watch: Watch, job: Job
) -> None:
    from mycroft.app.live.ranks import is_due

    feed(watch, job, seconds=3)
    group = watch.window.jobs()[0]

    def silent(seconds: float) -> None:
        for process in group:
            comms = process.status.communicators
            begun = process.told_ns - int(seconds * SECOND)
            process.status = replace(process.status, communicators=tuple(replace(c, last_enq_ns=begun) for c in comms))

    for seconds, with_rest, without in (
        (0.2, True, False),
        (4.0, False, False),
        (5.5, True, True),
        (90.0, True, False),
    ):
        silent(seconds)
        assert (is_due(group, 0, rested=True), is_due(group, 0, rested=False)) == (with_rest, without), seconds
    # Once an incident was told, each second counts no more.
    silent(5.5)
    assert not is_due(group, 0, rested=False, told=True) and is_due(group, 0, rested=True, told=True)
    # A process that ended is looked at, once.
    silent(0.2)
    group[0].status = replace(group[0].status, closed=True)
    assert is_due(group, 0, rested=False) and not is_due(group, 1, rested=False)
    # A minority that is silent is in nobody's way.
    for process in group[1 : len(group) // 2 - 1]:
        comms = process.status.communicators
        old = process.told_ns - 9 * SECOND
        process.status = replace(process.status, communicators=tuple(replace(c, last_enq_ns=old) for c in comms))
    assert not is_due(group, 1, rested=False) and is_due(group, 1, rested=True)
