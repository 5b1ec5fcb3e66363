"""Every scenario through every version of the ABI: the decoded trace is what the script did, exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tracer.comparison import compare, load
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


def test_driver_knows_exactly_these_scenarios(tools: Tools) -> None:
    import subprocess

    listed = subprocess.run([str(tools.driver), "--list"], capture_output=True, text=True, check=True)
    assert set(listed.stdout.split()) == set(SCENARIOS)
