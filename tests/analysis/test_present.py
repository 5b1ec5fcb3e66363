"""How a running job stands: what stands now, and who was slow at each iteration, told once."""

from __future__ import annotations

from mycroft.analysis.present import Present, present
from mycroft.analysis.trigger import SPAN
from tests.analysis.simulated_jobs import Job, job

SECOND = 1_000_000_000


def looked(broken: Job, since_s: float, until_s: float) -> Present:
    since, until = (broken.after(s) for s in (since_s, until_s))
    return present(broken.store, since_ns=since, until_ns=until, seen_ns=since)


def test_each_iteration_is_told_once_however_often_somebody_looks() -> None:
    broken = job("gpu_power")
    at_once = looked(broken, 0.0, 20.0)
    seen = broken.after(0.0)
    told = []
    for number in range(1, 5):
        part = present(broken.store, since_ns=seen, until_ns=broken.after(5.0 * number), seen_ns=seen).sightings
        told += part
        seen = max([seen, *(sighting.at_ns for sighting in part)])
    assert [s.at_ns for s in told] == [s.at_ns for s in at_once.sightings]
    assert [bool(s.findings) for s in told] == [bool(s.findings) for s in at_once.sightings]


def test_who_is_slow_is_told_from_the_iteration_that_confirms_it_to_the_newest() -> None:
    broken = job("gpu_power")
    found = looked(broken, -10.0, 25.0).sightings
    slow = [bool(sighting.findings) for sighting in found]
    first = slow.index(True)
    assert found[first].at_ns >= broken.after(5.0)
    assert all(slow[first:])
    assert {f.root_cause.ranks for sighting in found for f in sighting.findings} == {(9,)}


def test_only_iterations_that_are_over_are_told() -> None:
    broken = job("gpu_power")
    until = broken.after(15.0)
    found = present(broken.store, since_ns=until - 5 * SECOND, until_ns=until, seen_ns=until - 5 * SECOND).sightings
    assert found and all(until - 5 * SECOND < sighting.at_ns < until for sighting in found)


def test_what_stands_now_is_found_and_why_it_was_looked_for_is_said() -> None:
    broken = job("nic_down")
    assert not looked(broken, 0.0, 2.0).findings
    found = looked(broken, 6.0, 8.0)
    assert broken.rank in found.findings[0].root_cause.ranks
    assert "without progress" in found.fired


def test_healthy_job_has_iterations_and_nothing_to_tell() -> None:
    store = job("none").store
    last = int(store.frame(SPAN).row(0)[1])
    found = present(store, since_ns=last - 2 * SECOND, until_ns=last, seen_ns=last - 20 * SECOND)
    assert found.findings == () and not found.fired
    assert found.sightings and not any(sighting.findings for sighting in found.sightings)
