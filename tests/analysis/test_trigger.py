"""When a detector fires, what is reported when, and that pauses of a healthy job do not count."""

from __future__ import annotations

import pytest

from mycroft.analysis.follow import follow
from mycroft.analysis.intermittent import Event, HeldFlow, events, repeated
from mycroft.analysis.intermittent_findings import intermittent_findings
from mycroft.analysis.trigger import scan
from tests.analysis.simulated_jobs import Rows, damaged, job


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
