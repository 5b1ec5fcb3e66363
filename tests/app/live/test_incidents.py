"""Incidents: opened, revised, merged and closed, without flapping."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mycroft.app.live.incidents import AGREE_S, CLOSE_S, RECALL_S, SLOW_S, Incidents
from mycroft.app.live.judge import Seen
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.state import State


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def finding(
    category: str = "link_fault",
    ranks: tuple[int, ...] = (5,),
    *,
    status: str = "hang",
    confidence: str = "medium",
    hosts: tuple[str, ...] = (),
) -> dict[str, Any]:
    return {
        "id": "f1",
        "status": status,
        "category": category,
        "confidence": confidence,
        "root_cause": {"ranks": list(ranks), "hosts": list(hosts), "one_of": False},
        "summary": f"{category} at {list(ranks)}",
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[tuple[str, Incident]]:
    return []


@pytest.fixture
def make(tmp_path: Path, clock: Clock, told: list[tuple[str, Incident]]) -> Callable[[], Incidents]:
    state = LiveState(State(tmp_path))
    return lambda: Incidents("job", state, lambda event, incident: told.append((event, incident)), clock=clock)


def names(told: list[tuple[str, Incident]]) -> list[str]:
    return [event for event, _ in told]


def test_stall_opens_at_once_and_slowness_once_it_lasts(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take([finding()], judged=False, why="")
    assert names(told) == ["opened"]
    slow = finding("slow_gpu", (9,), status="slow")
    incidents.take([slow], judged=True, why="")
    assert names(told) == ["opened"]
    incidents.take([slow], judged=True, why="")
    assert names(told) == ["opened"]
    clock.now += SLOW_S
    incidents.take([slow], judged=True, why="")
    assert names(told) == ["opened", "opened"]


def test_slowness_of_one_look_alone_opens_nothing(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    slow = finding("slow_gpu", (9,), status="slow")
    for _ in range(3):
        incidents.take([slow], judged=True, why="")
        clock.now += SLOW_S
        incidents.take([], judged=True, why="")
    assert told == []
    incidents.take([], judged=True, why="")
    assert not incidents.doubts
    # It is looked for a while longer: no detector will tell of it a second time.
    assert incidents.any_open
    clock.now += RECALL_S
    assert not incidents.any_open


def test_slowness_that_one_look_misses_is_still_told(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    slow = finding("slow_nic", (2,), status="slow")
    for found in ([slow], [slow], [], [slow]):
        incidents.take(found, judged=True, why="")
        clock.now += SLOW_S / 2
    assert names(told) == ["opened"]


def test_same_finding_again_is_no_revision(make: Callable[[], Incidents], told: list[tuple[str, Incident]]) -> None:
    incidents = make()
    for _ in range(5):
        incidents.take([finding()], judged=True, why="")
    assert names(told) == ["opened"]


def test_surer_verdict_revises_at_once_and_keeps_what_was_said(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]]
) -> None:
    incidents = make()
    incidents.take([finding("absent", confidence="medium")], judged=False, why="silence")
    incidents.take([finding("dataloader", confidence="high")], judged=False, why="a stack")
    assert names(told) == ["opened", "revised"]
    incident = told[-1][1]
    revisions = incidents.state.revisions(incident.incident)
    assert [(r.revision, r.why, r.finding["category"]) for r in revisions] == [
        (1, "silence", "absent"),
        (2, "a stack", "dataloader"),
    ]


def test_less_sure_verdict_does_not_take_the_place(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take([finding("process_died", (2,), confidence="high")], judged=False, why="")
    for _ in range(10):
        clock.now += 5
        incidents.take([finding("device_hang", (2, 3), confidence="low")], judged=True, why="")
    assert names(told) == ["opened"]
    assert incidents.any_open


def test_verdicts_that_take_turns_do_not_revise_each_time(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    one, two = finding("link_fault", (5,)), finding("slow_nic", (5,))
    for number in range(20):
        clock.now += AGREE_S / 4
        incidents.take([one if number % 2 == 0 else two], judged=False, why="")
    assert names(told) == ["opened"]
    clock.now += AGREE_S
    incidents.take([two], judged=False, why="")
    assert names(told) == ["opened", "revised"]


def test_incident_closes_after_it_was_not_found_for_a_while(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take([finding()], judged=True, why="")
    clock.now += CLOSE_S * 2
    # Looks that judge nothing say nothing about its end.
    incidents.take([], judged=False, why="")
    assert names(told) == ["opened"]
    incidents.take([], judged=True, why="")
    assert names(told) == ["opened", "closed"]
    assert not incidents.any_open


def test_finding_that_joins_two_incidents_makes_them_one(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]]
) -> None:
    incidents = make()
    incidents.take([finding(ranks=(1,)), finding(ranks=(7,))], judged=True, why="")
    assert names(told) == ["opened", "opened"]
    incidents.take([finding("network_congestion", (1, 7), confidence="high")], judged=True, why="")
    opened = incidents.state.incidents(only_open=True)
    assert len(opened) == 1 and opened[0].ranks == (1, 7)
    merged = [i for i in incidents.state.incidents() if i.merged_into]
    assert [i.merged_into for i in merged] == [opened[0].incident]
    # Whoever was told of the one that is gone must hear of its end.
    assert [(event, incident.incident) for event, incident in told if event in ("closed", "merged")] == [
        ("merged", merged[0].incident)
    ]


def test_two_faults_at_once_are_two_incidents(make: Callable[[], Incidents], clock: Clock) -> None:
    incidents = make()
    for _ in range(3):
        clock.now += SLOW_S
        incidents.take([finding(ranks=(1,)), finding("slow_gpu", (7,), status="slow")], judged=True, why="")
    assert len(incidents.state.incidents(only_open=True)) == 2


def test_ranks_that_wait_for_an_open_incident_open_none_of_their_own(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take([finding("proxy_stall", (2,), confidence="high")], judged=False, why="")
    for _ in range(5):
        clock.now += 2.0
        incidents.take([finding("device_hang", (7,), confidence="low")], judged=False, why="")
        incidents.take([finding("proxy_stall", (2,), confidence="high")], judged=False, why="")
    assert names(told) == ["opened"]
    # One that is as sure is a fault of its own.
    incidents.take([finding("process_died", (7,), status="crash", confidence="high")], judged=False, why="")
    assert names(told) == ["opened", "opened"]


def test_next_watch_goes_on_with_what_was_open(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    make().take([finding()], judged=True, why="")
    again = make()
    again.take([finding()], judged=True, why="")
    assert names(told) == ["opened"]
    clock.now += CLOSE_S * 2
    again.take([], judged=True, why="")
    assert names(told) == ["opened", "closed"]


def test_brought_evidence_is_not_taken_back_by_a_look_without_it(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take([finding("absent", confidence="high")], judged=False, why="")
    incident = told[0][1]
    clock.now += 3
    incidents.take([finding("absent", confidence="high")], judged=False, why="")
    incidents.revise(incident, finding("dataloader", confidence="high"), "5 files of evidence arrived")
    for _ in range(10):
        clock.now += AGREE_S
        incidents.take([finding("absent", confidence="high")], judged=True, why="")
    assert incidents.state.incident(incident.incident).category == "dataloader"
    assert names(told) == ["opened", "revised"]


def test_incidents_that_ended_long_ago_are_forgotten_with_all_that_hangs_on_them(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]]
) -> None:
    incidents = make()
    incidents.take([finding(ranks=(1,)), finding(ranks=(7,))], judged=True, why="")
    state = incidents.state
    over, still = (incident.incident for _, incident in told)
    state.ask(over, "h", ["p"])
    state.plan_alert(over, "t", "opened")
    state.close_incident(over)
    assert state.sweep(keep_s=3600.0) == []
    assert state.sweep(keep_s=-1.0) == [over]
    assert [incident.incident for incident in state.incidents()] == [still]
    assert state.revisions(over) == [] == state.requests(over) and state.alerts(incident=over) == []


def test_candidate_that_is_named_with_one_rank_more_is_still_the_same(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take([finding("slow_nic", (2,), status="slow")], judged=True, why="")
    assert incidents.doubts
    clock.now += SLOW_S
    incidents.take([finding("slow_nic", (0, 2), status="slow")], judged=True, why="")
    assert names(told) == ["opened"] and told[0][1].ranks == (0, 2)
    assert not incidents.doubts


def test_another_class_of_slowness_at_the_same_rank_waits_for_its_own_second_look(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take([finding("slow_nic", (2,), status="slow")], judged=True, why="")
    clock.now += SLOW_S
    incidents.take([finding("slow_gpu", (2,), status="slow")], judged=True, why="")
    assert not told and incidents.doubts


def test_slowness_is_not_seen_again_while_the_job_stands(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    slow = finding("slow_nic", (12,), status="slow", confidence="high")
    incidents.take([slow], judged=True, why="")
    for _ in range(5):  # the same iterations again and again
        clock.now += SLOW_S
        incidents.take([slow], judged=True, why="", stands=True)
        incidents.take([], judged=True, why="", stands=True)
    assert told == [] and incidents.doubts
    incidents.take([slow], judged=True, why="")
    assert names(told) == ["opened"]


def test_slow_end_that_looks_sure_for_a_moment_does_not_take_the_place_of_both(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    both = finding("slow_nic", (0, 4), status="slow", confidence="low")
    ends = [finding("slow_nic", (rank,), status="slow", confidence="high") for rank in (0, 4)]
    for found in (both, both, ends[0], both, ends[1], ends[0], ends[1]):
        incidents.take([found], judged=True, why="")
        clock.now += SLOW_S
    assert names(told) == ["opened"]
    incidents.take([ends[1]], judged=True, why="")
    assert names(told) == ["opened", "revised"] and told[-1][1].ranks == (4,)


SECOND = 1_000_000_000
SLOW = finding("slow_nic", (2,), status="slow")


def iterations(*found: bool, since_s: float = 100.0, every_s: float = 0.5) -> list[Seen]:
    """Iterations that ended one after the other, in some of which rank 2 was slow."""
    return [Seen(round((since_s + n * every_s) * SECOND), (SLOW,) if slow else ()) for n, slow in enumerate(found)]


def at(seconds: float) -> int:
    return round(seconds * SECOND)


@pytest.mark.parametrize("looks", [1, 3, 9])
def test_slowness_must_last_by_the_clock_of_the_job_however_often_somebody_looks(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], looks: int
) -> None:
    incidents = make()
    seen = iterations(*[True] * 9)  # the last ends 4 s after the first
    for number in range(looks):
        part = seen[number * len(seen) // looks : (number + 1) * len(seen) // looks]
        incidents.take_iterations(part, at_ns=part[-1].at_ns - (1 if part[-1] is seen[-1] else 0), stands=False)
    assert told == [] and incidents.doubts and not incidents.unsure
    incidents.take_iterations([], at_ns=at(104.0), stands=False)
    assert names(told) == ["opened"]
    assert not incidents.doubts


def test_slowness_of_some_iterations_only_opens_nothing(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]]
) -> None:
    incidents = make()
    incidents.take_iterations(iterations(*[True, False] * 20), at_ns=at(120.0), stands=False)
    assert told == []
    incidents.take_iterations(iterations(*[True] * 5, False, False, since_s=200.0), at_ns=at(230.0), stands=False)
    assert told == [] and not incidents.doubts


def test_newest_iteration_must_show_it_still(make: Callable[[], Incidents], told: list[tuple[str, Incident]]) -> None:
    incidents = make()
    incidents.take_iterations(iterations(*[True] * 9, False), at_ns=at(104.6), stands=False)
    assert told == [] and incidents.doubts
    incidents.take_iterations(iterations(True, since_s=105.0), at_ns=at(105.0), stands=False)
    assert names(told) == ["opened"]


def test_iteration_that_takes_longer_than_all_of_it_counts_alone(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]]
) -> None:
    incidents = make()
    incidents.take_iterations(iterations(True), at_ns=at(103.9), stands=False)
    assert told == []
    incidents.take_iterations([], at_ns=at(104.0), stands=False)
    assert names(told) == ["opened"]


def test_job_that_stands_says_nothing_of_who_was_slow(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]]
) -> None:
    incidents = make()
    incidents.take_iterations(iterations(True, True), at_ns=at(110.0), stands=True)
    assert told == [] and incidents.doubts


def test_iterations_keep_an_open_incident_of_slowness_open(
    make: Callable[[], Incidents], told: list[tuple[str, Incident]], clock: Clock
) -> None:
    incidents = make()
    incidents.take_iterations(iterations(*[True] * 10), at_ns=at(104.5), stands=False)
    for number in range(10):
        clock.now += CLOSE_S / 2
        incidents.take_iterations(iterations(True, since_s=200.0 + number), at_ns=at(201.0 + number), stands=False)
        incidents.take([], judged=True, why="")
    assert names(told) == ["opened"]
    clock.now += CLOSE_S + 1
    incidents.take([], judged=True, why="")
    assert names(told) == ["opened", "closed"]
