from __future__ import annotations

import random
from typing import Any

import pytest

from mycroft.analysis.fleet.hosts import stand_out
from mycroft.analysis.fleet.report import Happened, fleet_report

HOUR = 3600.0


def happened(number: int, **given: Any) -> Happened:
    values: dict[str, Any] = {
        "incident": f"i{number}",
        "job": "a",
        "title": "job a",
        "opened": 0.0,
        "closed": HOUR,
        "status": "hang",
        "category": "device_hang",
        "confidence": "high",
        "summary": "it stands",
        "hosts": ("gpu-1",),
        "gpus": 100,
    }
    return Happened(**values | given)


def test_hours_of_a_job_that_stood_count_once_however_many_incidents_it_had() -> None:
    found = fleet_report(
        [
            happened(1, opened=0.0, closed=2 * HOUR),
            happened(2, opened=HOUR, closed=3 * HOUR),
            happened(3, job="b", opened=5 * HOUR, closed=None, gpus=8),
        ],
        [],
        since=0.5 * HOUR,
        until=6 * HOUR,
    )
    assert found.gpu_hours_standing == pytest.approx(2.5 * 100 + 1 * 8)
    assert (found.jobs, len(found.incidents), found.not_costed) == (2, 3, 0)


def test_what_nobody_knows_the_size_or_loss_of_is_in_no_sum_and_is_said() -> None:
    found = fleet_report(
        [
            happened(1, gpus=None),
            happened(2, status="slow", share=None),
            happened(3, status="slow", share=0.25, job="c"),
        ],
        [],
        since=0.0,
        until=HOUR,
    )
    assert (found.gpu_hours_standing, found.gpu_hours_slow, found.not_costed) == (0.0, 25.0, 2)


def test_incidents_outside_of_the_window_are_left_out() -> None:
    found = fleet_report(
        [happened(1), happened(2, opened=9 * HOUR, closed=None), happened(3, opened=4 * HOUR, closed=5 * HOUR)],
        [],
        since=2 * HOUR,
        until=6 * HOUR,
    )
    assert [one.incident for one in found.incidents] == ["i3"]


def test_who_is_named_alone_and_surely_twice_is_an_offender_and_a_candidate_is_not() -> None:
    incidents = [
        happened(1, hosts=("gpu-1",), devices=("mlx5_0",), job="a", component="nic"),
        happened(2, hosts=("gpu-1",), devices=("mlx5_0",), job="b", component="nic", category="slow_nic"),
        happened(3, hosts=("gpu-2", "gpu-3"), job="a"),
        happened(4, hosts=("gpu-2", "gpu-3"), job="b"),
        happened(5, hosts=("gpu-4",), one_of=True, job="a"),
        happened(6, hosts=("gpu-4",), one_of=True, job="b"),
        happened(7, hosts=("gpu-5",), confidence="low", job="a"),
        happened(8, hosts=("gpu-5",), confidence="low", job="b"),
        happened(9, hosts=("gpu-6",), job="a"),
        *(happened(n, hosts=("gpu-7",), devices=("0000:17:00.0",), job="c", component="gpu") for n in (10, 11)),
        # Two GPUs of a host, each once, are the host.
        *(happened(n, hosts=("gpu-8",), devices=(f"0000:{n}:00.0",), job="c", component="gpu") for n in (12, 13)),
        # What an older release pushed does not say what it is.
        *(happened(n, hosts=("gpu-9",), devices=("x",), job="c") for n in (14, 15)),
    ]
    found = fleet_report(incidents, [], since=0.0, until=HOUR).offenders
    assert [(o.kind, o.name, o.incidents, o.jobs) for o in found] == [
        ("host", "gpu-1", 2, 2),
        ("nic", "gpu-1 mlx5_0", 2, 2),
        ("device", "gpu-9 x", 2, 1),
        ("gpu", "gpu-7 0000:17:00.0", 2, 1),
        ("host", "gpu-7", 2, 1),
        ("host", "gpu-8", 2, 1),
        ("host", "gpu-9", 2, 1),
    ]
    assert found[0].categories == ("device_hang", "slow_nic")


def test_offender_of_several_jobs_comes_before_one_of_a_single_job() -> None:
    """Several incidents of one job may be the job; of several jobs they are the hardware."""
    incidents = [happened(n, hosts=("one-job",), opened=n * 10.0) for n in range(5)]
    incidents += [happened(10 + n, hosts=("two-jobs",), job=f"j{n}") for n in range(2)]
    found = fleet_report(incidents, [], since=0.0, until=HOUR).offenders
    assert [o.name for o in found] == ["two-jobs", "one-job"]


def health(jobs: dict[str, list[str]], slow: dict[str, dict[str, float]], *, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of hosts that differ by a few percent; `slow`: by host, factors of columns."""
    draw = random.Random(seed)
    rows = []
    for job, hosts in jobs.items():
        for host in hosts:
            factors = slow.get(host, {})
            row = {"host": host, "job": job, "timed": 10_000, "flows": 10_000, "flow_bytes": 10**12}
            for name in ("dur_sum_ns", "gpu_hold_sum_ns", "post_delay_sum_ns", "net_sum_ns"):
                row[name] = int(10**12 * draw.uniform(0.95, 1.05) * factors.get(name, 1.0))
            rows.append(row)
    return rows


HOSTS = [f"gpu-{n}" for n in range(12)]
JOBS = {"a": HOSTS[:8], "b": HOSTS[4:], "c": HOSTS[::2]}


def test_host_that_is_slow_in_job_after_job_stands_out_alone() -> None:
    found = stand_out(health(JOBS, {"gpu-6": {"gpu_hold_sum_ns": 2.0}}))
    assert [(s.host, s.trait, s.jobs, s.of_jobs) for s in found] == [("gpu-6", "gpu", ("a", "b", "c"), 3)]
    assert 1.7 < found[0].ratio < 2.3


def test_host_for_which_the_others_wait_is_the_one_that_waits_least() -> None:
    found = stand_out(health(JOBS, {"gpu-6": {"dur_sum_ns": 0.5}, "gpu-4": {"dur_sum_ns": 2.0}}))
    assert [(s.host, s.trait) for s in found] == [("gpu-6", "compute")]


def test_host_that_differs_in_one_job_is_not_named() -> None:
    """In a pipeline some stage always differs; only the same host in other jobs tells the host from its place."""
    rows = health({"a": HOSTS[:8]}, {"gpu-1": {"net_sum_ns": 5.0}})
    assert stand_out(rows) == ()
    rows += health({"b": HOSTS[:8], "c": HOSTS[:8], "d": HOSTS[:8]}, {}, seed=1)
    assert stand_out(rows) == ()


@pytest.mark.parametrize("seed", range(20))
def test_hosts_that_differ_by_a_few_percent_are_not_named(seed: int) -> None:
    assert stand_out(health(JOBS, {}, seed=seed)) == ()


def test_job_of_few_hosts_few_operations_or_unknown_values_names_nobody() -> None:
    rows = health({"a": HOSTS[:3], "b": HOSTS[:3]}, {"gpu-1": {"net_sum_ns": 5.0}})
    assert stand_out(rows) == ()
    rows = health(JOBS, {"gpu-6": {"gpu_hold_sum_ns": 5.0}})
    assert stand_out([row | {"timed": 5, "flows": 5} for row in rows]) == ()
    assert stand_out([row | {"gpu_hold_sum_ns": None} for row in rows]) == ()
