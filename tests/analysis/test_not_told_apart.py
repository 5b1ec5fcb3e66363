"""What the rows cannot tell apart is a set, or said not to be excluded, with what would decide it."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from mycroft.analysis.config import FLOW_DEFAULTS
from mycroft.analysis.diagnosis import diagnose
from mycroft.analysis.flow import OpenOp, OpKey, Snapshot
from mycroft.analysis.flow_findings import flow_findings, stalls_of
from mycroft.analysis.slow_findings import slow_findings
from mycroft.analysis.verdict import Finding
from tests.analysis.simulated_jobs import Rows, damaged, job, without


def stall(fault: str) -> Finding:
    broken = job(fault)
    (finding,) = flow_findings(broken.store, at=broken.after(20.0))
    return finding


def not_excluded(finding: Finding) -> set[str]:
    return {a.category for a in finding.alternatives if "not excluded" in a.rejected}


def test_two_ends_of_one_stuck_flow_are_a_set_and_never_sure() -> None:
    finding = stall("nic_down")
    assert finding.root_cause.one_of
    assert len(finding.root_cause.ranks) == 2 and 9 in finding.root_cause.ranks
    assert finding.confidence != "high"
    assert "switch port" in finding.next_steps[0]


def test_narrow_bus_without_slower_flushes_is_a_slow_device_and_the_bus_is_named_as_the_same() -> None:
    def same_flush(rows: Rows) -> Rows:
        flow = rows["flow"]
        # Of receives the third sum is the time of flushes.
        receives = flow["send"] == 0
        flow["peer_wait_ns"][receives] = 5_000 * flow["slices"][receives]
        return rows

    (finding, *_) = slow_findings(damaged("pcie", same_flush).store)

    assert (finding.category, finding.root_cause.ranks) == ("slow_nic", (9,))
    assert any(a.category == "pcie_degraded" and "looks the same" in a.rejected for a in finding.alternatives)
    assert "lnksta" in finding.next_steps[0] and "switch port" in finding.next_steps[0]


def test_slow_gpu_says_that_its_clocks_would_tell_why() -> None:
    (finding,) = slow_findings(job("gpu_power").store)
    assert finding.category == "slow_compute"
    assert any("look the same without its clocks" in a.rejected for a in finding.alternatives)
    assert "CLOCK" in finding.next_steps[0]


def test_traffic_of_a_host_and_of_its_leaf_are_named_as_the_same() -> None:
    (finding,) = slow_findings(job("bg_traffic").store)
    assert (finding.category, finding.root_cause.ranks) == ("network_congestion", ())
    assert finding.root_cause.hosts == (job("bg_traffic").host,)
    assert any("leaf look the same" in a.rejected for a in finding.alternatives)


@pytest.mark.parametrize("fault", ["absent", "ckpt_stall"])
def test_rank_that_does_not_come_may_load_save_fail_or_be_elsewhere(fault: str) -> None:
    finding = stall(fault)
    assert finding.category == "absent"
    assert {"dataloader", "checkpoint", "exception", "code_divergence"} <= not_excluded(finding)
    assert "py-spy" in finding.next_steps[0]


@pytest.mark.parametrize("fault", ["crash", "sigstop"])
def test_silence_may_be_a_process_that_is_stopped(fault: str) -> None:
    finding = stall(fault)
    assert finding.root_cause.ranks == (9,)
    assert "process_stopped" in not_excluded(finding)
    assert "process exists" in finding.next_steps[0]


def test_sender_and_receiver_are_one_of_two_where_only_the_sender_is_seen() -> None:
    blind = damaged("recv_nopost", partial(without, receives=True))
    findings = flow_findings(blind.store, at=blind.after(20.0))
    assert all(f.confidence == "low" for f in findings)
    named = [f for f in findings if 9 in f.root_cause.ranks]
    assert named and all(f.root_cause.one_of for f in named)


def test_stall_inside_a_host_names_the_group_and_asks_for_the_driver() -> None:
    op = OpKey(comm=0, seq=7)
    ranks = (0, 1, 2, 3)
    second = 1_000_000_000
    snapshot = Snapshot(
        at_ns=100 * second,
        ranks=ranks,
        silent={},
        progress=dict.fromkeys(ranks, 80 * second),
        heard=dict.fromkeys(ranks, 100 * second),
        open={r: (OpenOp(r, op, "all_reduce", 80 * second, started=True),) for r in ranks},
        members={0: ranks},
        reached={(0, r): 7 for r in ranks},
        finished=frozenset(),
        algo={op: ("all_reduce", "RING", "SIMPLE")},
        send={},
        recv={},
    )

    (finding,) = stalls_of(job("none").store, snapshot, FLOW_DEFAULTS)

    assert (finding.category, finding.root_cause.ranks, finding.root_cause.one_of) == ("device_hang", ranks, True)
    assert finding.confidence == "low"
    assert "xid" in finding.next_steps[0]


def test_operations_without_steps_are_never_more_than_a_set_of_members() -> None:
    """Registered buffers, CUDA graphs, NVLS: no post and no step is seen, only that nothing completes."""

    def no_steps(rows: Rows) -> Rows:
        for kind in ("state", "flow"):
            rows[kind] = {name: values[:0] for name, values in rows[kind].items()}
        return rows

    verdict = diagnose(damaged("nic_down", no_steps).store)

    (first, *_) = verdict.findings
    assert first.root_cause.one_of and 9 in first.root_cause.ranks
    assert first.confidence != "high"
    assert first.next_steps


def test_all_slower_and_nobody_standing_out_is_said_without_a_culprit() -> None:
    def stretched(rows: Rows) -> Rows:
        begin = 1_767_225_600_000_000_000 + 24_000_000_000
        for columns in rows.values():
            for name in ("ts", "end_ts", "enq_ts", "kstart_ts", "progress_ts", "oldest_open_ts"):
                if name in columns:
                    late = columns[name] > begin
                    columns[name] = np.where(late, begin + (columns[name] - begin) * 3 // 2, columns[name])
        op = rows["op"]
        late = (op["enq_ts"] > begin) & (op["dur_ns"] > 0)
        op["dur_ns"] = np.where(late, op["dur_ns"] * 3 // 2, op["dur_ns"])
        return rows

    verdict = diagnose(damaged("none", stretched).store)

    assert all(not f.root_cause.ranks for f in verdict.findings)
    assert any("all are slower" in u.what and "nobody stands out" in u.what for u in verdict.unknown)


def test_verdict_with_certainty_cost_and_standing_keeps_the_contract() -> None:
    body = json.loads(diagnose(job("nic_bw").store).to_json())
    assert body["findings"][0]["cost"]["assumption"]
    assert 0 <= body["findings"][0]["certainty"] <= 1
    assert body["standing"] == [] or all(s["ratio"] > 1 for s in body["standing"])
