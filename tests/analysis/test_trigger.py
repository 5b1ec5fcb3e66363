"""When a detector fires, what is reported when, and that pauses of a healthy job do not count."""

from __future__ import annotations

import numpy as np
import pytest

from mycroft.analysis.follow import follow
from mycroft.analysis.intermittent import Event, HeldFlow, events, repeated
from mycroft.analysis.intermittent_findings import intermittent_findings
from mycroft.analysis.trigger import scan
from tests.analysis.simulated_jobs import Damage, Rows, damaged, job


def test_healthy_job_fires_nothing() -> None:
    assert scan(job("none").store) == ()
    assert follow(job("none").store) == ()


@pytest.mark.parametrize(("fault", "at_most_s"), [("nic_down", 7.0), ("gpu_hang", 10.0), ("absent", 18.0)])
def test_stall_fires_at_once_and_is_reported_when_its_limit_has_passed(fault: str, at_most_s: float) -> None:
    broken = job(fault)

    firing, report = scan(broken.store)[0], follow(broken.store)[0]

    assert firing.detector == "stall"
    assert broken.start_ns < firing.at_ns <= broken.after(5.5)
    assert broken.after(5.0) < report.at_ns <= broken.after(at_most_s)
    assert broken.rank in report.findings[0].root_cause.ranks


def test_pause_for_a_checkpoint_is_not_reported() -> None:
    paused = job("none", after_s=60.0, checkpoint_every_s=20.0)
    assert follow(paused.store) == ()


def test_slowness_fires_once_and_names_the_detector() -> None:
    broken = job("gpu_power")

    slow = [f for f in scan(broken.store) if f.detector == "slow"]

    assert [f.ranks for f in slow] == [(9,)]
    assert slow[0].value == pytest.approx(1.7, abs=0.1)
    assert slow[0].at_ns > broken.start_ns


def test_firing_depends_on_nothing_later() -> None:
    broken = job("nic_down")
    moment = broken.after(8.0)

    assert scan(broken.store, until_ns=moment) == scan(broken.store.until(moment), until_ns=moment)


def test_proxy_that_sleeps_is_told_from_the_network_it_delays() -> None:
    broken = job("proxy_delay", rank=8, seed=2, topology="T32", after_s=30.0)
    found = events(broken.store)

    assert found
    assert {(e.component, e.ranks) for e in found} == {("proxy", (8,))}


def test_link_that_flaps_is_narrowed_down_by_every_further_time() -> None:
    broken = job("link_flap", rank=8, seed=1, topology="T32", after_s=36.0)
    found = events(broken.store)

    assert len(found) > 1
    assert all(8 in e.ranks for e in found)
    (one,) = repeated(found, at_ns=found[-1].end_ns)
    assert one.ranks == (8,)
    (finding,) = intermittent_findings(broken.store)
    assert (finding.category, finding.root_cause.ranks) == ("link_fault", (8,))


def held(component: str, rank: int, flow: tuple[int, int], seen_by: int, at: int) -> Event:
    """One slice of one flow, held for a second up to second `at`, that one row shows."""
    src, dst = flow
    end = at * 1_000_000_000
    slow = HeldFlow(1, at, "send", 0, src, dst, 1_000_000_000, end, seen_by)
    return Event(component, (rank,), end - 1_000_000_000, end, (slow,), {src: 1, dst: 1})


def test_credit_that_the_network_lost_is_the_network_again() -> None:
    # Rank 7 could not send; that its link stood twice says why.
    found = [held("nic", 7, (3, 7), 3, 10), held("proxy", 7, (7, 3), 7, 20), held("nic", 7, (0, 7), 0, 30)]
    (one,) = repeated(found, at_ns=found[-1].end_ns)

    assert (one.component, one.ranks, len(one.events)) == ("nic", (7,), 3)


def test_thread_that_did_not_post_its_buffer_is_why_others_were_not_acknowledged() -> None:
    found = [held("proxy", 7, (3, 7), 7, 10), held("nic", 7, (0, 7), 0, 20), held("proxy", 7, (7, 3), 7, 30)]
    (one,) = repeated(found, at_ns=found[-1].end_ns)

    assert (one.component, one.ranks, len(one.events)) == ("proxy", (7,), 3)


def test_slice_handed_over_late_far_from_the_link_that_stood_is_another_story() -> None:
    found = [held("nic", 7, (3, 7), 3, 10), held("proxy", 5, (5, 1), 5, 20)]

    assert {one.component for one in repeated(found, at_ns=found[-1].end_ns)} == {"nic", "proxy"}


def test_moment_in_which_everything_stood_accuses_nobody() -> None:
    def stood(rows: Rows) -> Rows:
        flow = rows["flow"]
        last = flow["end_ts"] > flow["end_ts"].max() - 300_000_000
        for name in ("net_max_ns", "peer_wait_max_ns"):
            flow[name][last] = 2_000_000_000
        return rows

    assert events(damaged("none", stood).store) == ()


def held_while_late(late_ms: dict[int, int]) -> Damage:
    """Everything that rank 9 sent in one operation was not acknowledged for 2 s; meanwhile samplers came late."""

    def change(rows: Rows) -> Rows:
        flow, beat = rows["flow"], rows["heartbeat"]
        sent = (flow["trace"] == 9) & (flow["send"] != 0)
        end = int(flow["end_ts"][sent].max()) - 5_000_000_000
        flow["net_max_ns"][sent & (abs(flow["end_ts"] - end) < 200_000_000)] = 2_000_000_000
        beat["late_ms"] = np.zeros(len(beat["trace"]), dtype=np.uint32)
        then = (beat["ts"] > end - 1_500_000_000) & (beat["ts"] <= end + 200_000_000)
        for rank, late in late_ms.items():
            beat["late_ms"][then & (beat["trace"] == rank)] = late
        return rows

    return change


def test_device_of_a_process_that_was_run_is_named() -> None:
    # A few milliseconds are the kernel's timer, and somebody else's pause is none of this flow.
    found = events(damaged("none", held_while_late({9: 20, 14: 1_500})).store)

    # Nothing tells the two ends of a single flow apart.
    assert [(e.component, e.ranks) for e in found] == [("nic", (1, 9))]


def test_process_that_was_not_run_is_no_fault_of_its_network() -> None:
    job = damaged("none", held_while_late({9: 1_500}))

    (event,) = events(job.store)
    (finding,) = intermittent_findings(job.store)

    assert (event.component, event.ranks, event.late_ns) == ("process", (9,), 1_500_000_000)
    assert (finding.category, finding.component, finding.confidence) == ("process_stopped", "process", "medium")
    assert finding.root_cause.ranks == (9,)
    assert not finding.root_cause.one_of
    assert [e.table for e in finding.evidence] == ["heartbeat", "flow_ops"]
    assert {a.category for a in finding.alternatives} == {"link_fault", "proxy_stall"}


def test_process_that_was_away_for_a_part_of_the_time_excuses_its_network_and_is_not_named() -> None:
    assert events(damaged("none", held_while_late({9: 600})).store) == ()


def test_machine_that_ran_hardly_any_process_accuses_nobody() -> None:
    assert events(damaged("none", held_while_late(dict.fromkeys(range(4, 14), 1_500))).store) == ()


def test_link_that_stops_more_often_than_its_process_is_still_the_link() -> None:
    once = held("process", 7, (7, 3), 7, 10)
    found = [once, held("nic", 7, (3, 7), 3, 20), held("nic", 7, (0, 7), 0, 30)]
    assert {one.component for one in repeated(found, at_ns=found[-1].end_ns)} == {"process", "nic"}

    found = [once, held("process", 7, (7, 3), 7, 15), held("nic", 7, (3, 7), 3, 20)]
    (one,) = repeated(found, at_ns=found[-1].end_ns)
    assert (one.component, one.ranks, len(one.events)) == ("process", (7,), 3)
