"""Every scenario through every version of the ABI: the decoded trace is what the script did, exactly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.tracer.comparison import compare, load, rows
from tests.tracer.tools import Tools

# Kept here and not asked of the driver, so that a scenario that disappears is a failure.
SCENARIOS = {
    "ring_all_reduce": 3,
    "tree_all_reduce": 4,
    "reduce_scatter": 3,
    "all_gather": 3,
    "broadcast": 3,
    "send_recv": 3,
    "several_comms": 4,
    "graph_replay": 2,
    "intra_node": 1,
    "kernel_events": 1,
    "kernel_events_lost": 1,
    "kernel_events_asked_only": 1,
    "stall_kernel": 1,
    "stall_in_kernel": 1,
    "abort_kernel": 1,
    "stall_absent": 4,
    "stall_gpu_idle": 4,
    "stall_gpu": 4,
    "stall_send_proxy": 4,
    "stall_recv_proxy": 4,
    "stall_network": 4,
    "stall_flush": 4,
    "stall_tree_network": 5,
    "stall_tree_gpu": 5,
    "stall_tree_absent": 5,
    "stall_pair_absent": 3,
    "stall_pair_network": 3,
    "stall_across_comms": 4,
    "crash": 4,
    "repeats": 2,
    "foreign": 1,
    "missing_stops": 2,
    "double_stops": 2,
    "null_args": 2,
    "start_without_stop": 2,
    "reuse": 2,
    "reload": 2,
    "finalize_race": 2,
    "parallel": 2,
    "backwards": 2,
    "abort_open": 2,
    "forced_steps": 2,
    "control": 2,
}
ABIS = range(1, 8)
# Several threads move the clock there: counts are compared, times are not.
INEXACT = {"parallel"}


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_trace_is_exactly_what_the_script_did(tools: Tools, tmp_path: Path, scenario: str, abi: int) -> None:
    done = tools.replay(scenario, abi, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    ranks = load(tmp_path)
    assert len(ranks) == SCENARIOS[scenario]
    wrong = {
        truth["rank"]: differences
        for truth, trace in ranks
        if (differences := compare(truth, trace, exact_times=scenario not in INEXACT))
    }
    assert wrong == {}


@pytest.mark.parametrize("abi", range(3, 8))
@pytest.mark.parametrize(("scenario", "starts"), [("stall_kernel", [False, False]), ("stall_in_kernel", [True])])
def test_open_operation_tells_whether_its_kernel_has_started(
    tools: Tools, tmp_path: Path, scenario: str, starts: list[bool], abi: int
) -> None:
    assert tools.replay(scenario, abi, tmp_path).returncode == 0
    [(_, trace)] = load(tmp_path)
    last = {op["op_id"]: op for op in rows(trace.tables["op"])}
    assert [op["kstart_ts"] is not None for op in last.values() if op["op_state"] == "open"] == starts


@pytest.mark.parametrize("abi", [2, 7])
@pytest.mark.parametrize("scenario", ["ring_all_reduce", "tree_all_reduce", "send_recv", "several_comms", "abort_open"])
def test_counts_are_exact_and_times_consistent_by_the_cycle_counter(
    tools: Tools, tmp_path: Path, scenario: str, abi: int
) -> None:
    before = time.time_ns()
    assert tools.replay(scenario, abi, tmp_path, real_clock=True).returncode == 0
    after = time.time_ns()
    for truth, trace in load(tmp_path):
        assert compare(truth, trace, exact_times=False) == []
        ops, flows = rows(trace.tables["op"]), rows(trace.tables["flow"])
        assert all(before <= o["enq_ts"] <= o["enq_ts"] + (o["dur_ns"] or 0) <= after for o in ops)
        # All records of one operation agree on its beginning, however the clock was adjusted meanwhile.
        assert len({(o["op_id"], o["enq_ts"]) for o in ops}) == len({o["op_id"] for o in ops})
        spent = after - before
        for f in flows:
            assert before <= f["end_ts"] <= after
            for name in ("net_busy_ns", "peer_wait_ns", "post_delay_ns", "flush_ns"):
                assert f[name] is None or 0 <= f[name] <= spent
            for total, largest in (("net_busy_ns", "net_max_ns"), ("post_delay_ns", "post_delay_max_ns")):
                # What ended before its end had begun up to eight slices (NCCL's slots) more than it had done.
                begun = f["slices"] + 8 * f["partial"]
                assert f[total] is None or f[largest] <= f[total] <= f[largest] * begun


def test_driver_knows_exactly_these_scenarios(tools: Tools) -> None:
    import subprocess

    listed = subprocess.run([str(tools.driver), "--list"], capture_output=True, text=True, check=True)
    assert set(listed.stdout.split()) == set(SCENARIOS)
