"""Stalls told from flows at any moment: who, from when on, and what lost or odd rows change."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mycroft.analysis.diagnosis import diagnose
from mycroft.analysis.flow_findings import flow_findings
from mycroft.analysis.verdict import Verdict
from mycroft.loaders.collector.segments import TIME_OF
from mycroft.loaders.memory import load_traces
from mycroft.tracer import Trace
from mycroft.tracer.simulator import simulated_traces
from tests.analysis.simulated_jobs import Damage, Job, damaged, job, shuffled, thinned, with_clock_off, without

# Fault -> category, and seconds after which it must have been told: its own limit and one iteration.
STALLS = {
    "nic_down": ("link_fault", 7.0),
    "recv_nopost": ("proxy_stall", 7.0),
    "gpu_hang": ("device_hang", 10.0),
    "crash": ("process_died", 7.0),
    "absent": ("absent", 18.0),
}
SLOW = {"gpu_power": "slow_compute", "nic_bw": "slow_nic", "qp_slow30": "slow_nic"}


def until(trace: Trace, last_ns: int) -> Trace:
    """A trace as far as its agent told of it."""
    tables = {
        kind: table.filter(pc.fill_null(pc.less_equal(table.column(TIME_OF[kind]).cast(pa.int64()), last_ns), True))
        for kind, table in trace.tables.items()
    }
    return replace(trace, tables=tables, last_tick_ns=min(trace.last_tick_ns or last_ns, last_ns))


def told(verdict: Verdict) -> tuple[str, str, tuple[int, ...], tuple[str, ...], bool]:
    first = verdict.findings[0]
    cause = first.root_cause
    return verdict.status, first.category, cause.ranks, cause.hosts, cause.one_of


@pytest.mark.parametrize("fault", STALLS)
def test_stall_is_told_once_its_limit_has_passed_and_not_before(fault: str) -> None:
    category, seconds = STALLS[fault]
    broken = job(fault)

    early = flow_findings(broken.store, at=broken.after(3.0))
    (finding,) = flow_findings(broken.store, at=broken.after(seconds))

    assert early == ()
    assert finding.category == category
    assert broken.rank in finding.root_cause.ranks
    assert not set(finding.victims) & set(finding.root_cause.ranks)


@pytest.mark.parametrize("seconds", [8.0, 12.0, 20.0])
def test_nothing_later_than_the_moment_is_looked_at(seconds: float) -> None:
    broken = job("nic_down")
    moment = broken.after(seconds)

    now = flow_findings(broken.store, at=moment)
    then = flow_findings(broken.store.until(moment), at=moment)

    assert now and now == then


def test_a_job_that_goes_on_is_healthy_whoever_waits_at_that_moment() -> None:
    healthy = job("none")
    start = 1_767_225_600_000_000_000
    for second in (10.0, 20.0, 33.3):
        assert flow_findings(healthy.store, at=start + round(second * 1e9)) == ()
    assert diagnose(healthy.store).status == "healthy"


@pytest.mark.parametrize(
    "change", [shuffled, with_clock_off, thinned], ids=["shuffled", "clock off by 2 s", "a tenth lost"]
)
@pytest.mark.parametrize("fault", [*STALLS, *SLOW])
def test_rows_shuffled_lost_or_of_a_wrong_clock_change_no_verdict(fault: str, change: Damage) -> None:
    whole = job(fault)
    moment = whole.after(20.0)
    expected = told(diagnose(whole.store, at=moment))

    other = damaged(fault, change)

    assert told(diagnose(other.store, at=moment)) == expected


def test_stack_of_the_clocks_does_not_move_the_reported_moment_by_more_than_a_tick() -> None:
    other = damaged("nic_down", with_clock_off)
    assert flow_findings(other.store, at=other.after(3.5)) == ()
    assert flow_findings(other.store, at=other.after(7.5)) != ()


def test_without_receive_rows_no_receiver_is_accused_with_confidence() -> None:
    moment = job("recv_nopost").after(20.0)
    blind = damaged("recv_nopost", partial(without, receives=True))

    findings = flow_findings(blind.store, at=moment)

    assert all(f.confidence != "high" or f.root_cause.ranks == (blind.rank,) for f in findings)


def test_without_receive_rows_a_network_fault_is_still_told_and_the_doubt_said() -> None:
    blind = damaged("nic_down", partial(without, receives=True))

    (finding,) = flow_findings(blind.store, at=blind.after(20.0))

    assert finding.category in ("link_fault", "absent", "unknown")
    assert finding.confidence != "high"


def test_operations_alone_still_name_a_rank_that_does_not_come() -> None:
    blind = damaged("absent", partial(without, kinds=("state", "flow")))

    (finding,) = flow_findings(blind.store, at=blind.after(20.0))

    assert (finding.category, finding.root_cause.ranks) == ("absent", (blind.rank,))


def test_operations_alone_do_not_tell_a_broken_network_from_a_broken_gpu_with_confidence() -> None:
    blind = damaged("nic_down", partial(without, kinds=("state", "flow")))

    findings = flow_findings(blind.store, at=blind.after(20.0))

    assert all(f.confidence != "high" for f in findings)


def test_without_kernel_events_nobody_else_is_named_for_a_gpu_that_hangs() -> None:
    blind = damaged("gpu_hang", partial(without, kernels=True))

    findings = flow_findings(blind.store, at=blind.after(20.0))

    assert all(blind.rank in f.root_cause.ranks or f.confidence != "high" for f in findings)


@pytest.mark.parametrize(("before_s", "confidence"), [(0.0, "medium"), (8.0, "low")])
def test_silence_of_an_agent_is_no_sure_sign_that_its_ranks_are_dead(before_s: float, confidence: str) -> None:
    broken = job("crash")
    last = broken.after(-before_s)
    traces = [
        replace(until(trace, last), unheard=True) if trace.process.host == broken.host else trace
        for trace in simulated_traces(broken.simulated)
    ]
    store = load_traces(traces, name="unheard")

    (finding,) = flow_findings(store, at=broken.after(12.0))

    assert (finding.category, finding.root_cause.hosts) == ("process_died", (broken.host,))
    assert finding.confidence == confidence
    (why,) = [why for why in finding.confidence_why if "nothing is heard of" in why]
    assert why.startswith(f"nothing is heard of {broken.host}: it may be the host, or only its agent")
    assert ("as the job stopped" in why) == (before_s == 0.0)
    # The same after the fact, from the same rows.
    assert [f.confidence for f in diagnose(store).findings] == [confidence]


@pytest.mark.parametrize("fault", ["crash", "gpu_hang", "absent", "recv_nopost"])
def test_a_host_whose_agent_fell_silent_before_is_not_blamed_for_another(fault: str) -> None:
    broken = job(fault)
    # Rank 1 on it is who the broken rank works with.
    traces = [
        replace(until(trace, broken.after(-8.0)), unheard=True) if trace.process.host == "sim0" else trace
        for trace in simulated_traces(broken.simulated)
    ]

    (finding,) = flow_findings(load_traces(traces, name="unheard"), at=broken.after(18.0))

    assert finding.root_cause.ranks == (broken.rank,)
    assert finding.confidence == "medium"
    assert "nothing is heard of 4 ranks (data 0.75)" in finding.confidence_why


def test_where_nothing_else_stands_out_the_host_that_is_not_heard_is_all_that_is_told() -> None:
    broken = job("nic_down")
    traces = [
        replace(until(trace, broken.after(-8.0)), unheard=True) if trace.process.host == "sim0" else trace
        for trace in simulated_traces(broken.simulated)
    ]

    (finding,) = flow_findings(load_traces(traces, name="unheard"), at=broken.after(18.0))

    # What rank 9 waits for is rank 1, on either end of the broken way.
    assert (finding.root_cause.hosts, finding.confidence) == (("sim0",), "low")


def test_every_term_of_the_certainty_is_shown() -> None:
    broken: Job = job("recv_nopost")
    (finding,) = flow_findings(broken.store, at=broken.after(10.0))

    shown = " ".join(finding.confidence_why)

    assert all(f"({name}" in shown for name in ("set size", "blame", "margin", "sides", "age", "data", "corroboration"))
    assert finding.confidence_why[-1] == f"in numbers {finding.certainty:.2f} of 1"
    assert finding.certainty is not None and 0.8 <= finding.certainty <= 1


def test_what_shares_the_pattern_of_the_sender_is_excluded_by_numbers() -> None:
    broken = job("recv_nopost")
    (finding,) = flow_findings(broken.store, at=broken.after(10.0))

    rejected = {(a.category, a.rejected.split(" ")[0]) for a in finding.alternatives}

    assert {"absent", "link_fault", "proxy_stall", "device_hang", "pcie_degraded"} <= {c for c, _ in rejected}
    assert all(a.rejected for a in finding.alternatives)
