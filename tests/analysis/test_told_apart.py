"""What the evidence cannot tell apart is reported as such: a set or a general class, and what would decide it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from mycroft.analysis import diagnose
from mycroft.analysis.verdict import Finding
from mycroft.app.evaluation.whole_job import store_of
from mycroft.tracer.simulator import simulate, simulation
from tests.analysis.simulated_jobs import Rows, damaged, job


@cache
def first(fault: str) -> Finding:
    """The answer for one fault of the job of 16 ranks; rank 9 is broken."""
    return diagnose(job(fault).store).findings[0]


def steps(finding: Finding) -> str:
    return " ".join(finding.next_steps)


def test_the_two_ends_of_a_stuck_flow_are_a_set() -> None:
    finding = first("nic_down")
    assert finding.root_cause.one_of
    assert 9 in finding.root_cause.ranks
    assert len(finding.root_cause.ranks) == 2
    assert finding.confidence != "high"
    assert "ibstat" in steps(finding) or "ethtool" in steps(finding)


def without_flush_sign(rows: Rows) -> Rows:
    """A bus that is narrower and whose flushes are as fast as ever. Of receiving halves the third sum is the flush."""
    flow = rows["flow"]
    receives = flow["send"] == 0
    flow["peer_wait_ns"] = np.where(receives, flow["slices"] * 5000, flow["peer_wait_ns"])
    return rows


def test_a_narrow_bus_without_slow_flushes_may_be_the_device_or_the_port() -> None:
    finding = diagnose(damaged("pcie", without_flush_sign).store).findings[0]
    assert (finding.category, finding.root_cause.ranks) == ("slow_nic", (9,))
    assert "pcie_degraded" in {a.category for a in finding.alternatives}
    assert "lnksta" in steps(finding).lower()


def test_device_cable_and_switch_port_are_named_together() -> None:
    finding = first("nic_bw")
    assert (finding.category, finding.root_cause.ranks) == ("slow_nic", (9,))
    assert "switch port" in steps(finding)


def test_a_slow_gpu_is_not_called_hot_or_capped_without_its_clocks() -> None:
    finding = first("gpu_power")
    assert (finding.category, finding.component, finding.root_cause.ranks) == ("slow_compute", "gpu", (9,))
    assert "slow_gpu" in {a.category for a in finding.alternatives}
    assert "PERFORMANCE" in steps(finding)
    assert "pmon" in steps(finding)


def test_traffic_of_a_host_and_of_its_leaf_switch_look_the_same() -> None:
    finding = first("bg_traffic")
    assert (finding.category, finding.root_cause.hosts) == ("network_congestion", (job("bg_traffic").host,))
    assert any("leaf" in a.rejected for a in finding.alternatives)
    assert "leaf" in steps(finding)


@pytest.mark.parametrize("fault", ["absent", "ckpt_stall"])
def test_why_a_rank_does_not_come_takes_its_stack(fault: str) -> None:
    finding = first(fault)
    assert (finding.category, finding.root_cause.ranks) == ("absent", (job(fault).rank,))
    assert "py-spy" in steps(finding)


def test_whether_process_host_or_tracer_is_gone_takes_the_host() -> None:
    finding = first("crash")
    assert (finding.category, finding.root_cause.ranks) == ("process_died", (9,))
    assert "host answers" in steps(finding)


def test_without_receiving_halves_neither_proxy_nor_credit_is_named_for_sure() -> None:
    def sends_only(rows: Rows) -> Rows:
        for kind in ("state", "flow"):
            kept = rows[kind]["send"] == 1
            rows[kind] = {name: values[kept] for name, values in rows[kind].items()}
        return rows

    verdict = diagnose(damaged("recv_nopost", sends_only).store)
    assert all(f.confidence != "high" for f in verdict.findings)
    assert not verdict.findings or 9 in verdict.findings[0].root_cause.ranks


@pytest.mark.parametrize(("fault", "severity"), [("slow_gpu20", 0.2), ("qp_slow30", 0.2)], ids=["gpu", "flow"])
def test_a_gpu_or_a_flow_that_is_a_few_percent_slower_is_below_what_is_told(fault: str, severity: float) -> None:
    # The GPU takes 4 % longer, the one flow 9 %.
    simulated = simulate(simulation(fault, topology="T16", seed=5, rank=9, at_s=24.0, after_s=22.0, severity=severity))
    with store_of(simulated) as store:
        assert diagnose(store).findings == ()
