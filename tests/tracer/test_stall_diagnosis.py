"""What `diagnose` says of the rings that a replayed stall leaves behind: who, which stage, which flow."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from mycroft.analysis.diagnosis import diagnose
from mycroft.analysis.verdict import Finding, Verdict
from mycroft.app.cli import main
from mycroft.loaders.load import load
from mycroft.loaders.store import open_store
from tests.tracer.tools import Tools


@dataclass(frozen=True)
class Expected:
    """`stage` are words of the finding's `why`; `flow` is (peer, direction), told from the sender if it is blamed."""

    ranks: tuple[int, ...]
    category: str
    stage: str
    flow: tuple[int, str] | None = None
    status: str = "hang"
    one_of: bool = False


NETWORK = "handed over, not acknowledged"
GPU = "kernel neither fills nor consumes"
STALLS = {
    "stall_absent": Expected((2,), "absent", "did not enter"),
    "stall_gpu_idle": Expected((1,), "device_hang", GPU, (2, "send")),
    "stall_gpu": Expected((2,), "device_hang", GPU, (3, "send")),
    # A link that lost the receiver's word of its buffers looks the same: both ends stay.
    "stall_send_proxy": Expected(
        (1, 2), "proxy_stall", "sender's proxy: ready, not handed over", (2, "send"), one_of=True
    ),
    "stall_recv_proxy": Expected((3,), "proxy_stall", "receiver's proxy: free slots, nothing posted", (2, "recv")),
    "stall_network": Expected((0, 1), "link_fault", NETWORK, (1, "send"), one_of=True),
    "stall_flush": Expected((2,), "pcie_degraded", "received, not visible to the GPU"),
    "stall_tree_network": Expected((1, 3), "link_fault", NETWORK, (1, "send"), one_of=True),
    "stall_tree_gpu": Expected((1,), "device_hang", GPU),
    "stall_tree_absent": Expected((3,), "absent", "did not enter"),
    "stall_pair_absent": Expected((1,), "absent", "did not enter"),
    "stall_pair_network": Expected((0, 1), "link_fault", NETWORK, (1, "send"), one_of=True),
    "stall_across_comms": Expected((2, 3), "link_fault", NETWORK, (2, "send"), one_of=True),
    "crash": Expected((2,), "process_died", "process gone", status="crash"),
    "abort_open": Expected((0, 1), "link_fault", NETWORK, (1, "send"), one_of=True),
}


def verdict_of(folder: Path, out: Path) -> Verdict:
    for truth in folder.glob("truth-*.json"):
        truth.unlink()
    load([folder], out)
    with open_store(out) as store:
        return diagnose(store)


def named(finding: Finding) -> tuple[int, str] | None:
    flow = finding.root_cause.flow
    if flow is None or flow.peer is None or flow.dir is None:
        return None
    return flow.peer, flow.dir


@pytest.mark.parametrize("abi", [1, 3, 4, 7])
@pytest.mark.parametrize("scenario", STALLS)
def test_stall_is_named_with_its_stage_and_flow(tools: Tools, tmp_path: Path, scenario: str, abi: int) -> None:
    assert tools.replay(scenario, abi, tmp_path / "rings").returncode == 0

    verdict = verdict_of(tmp_path / "rings", tmp_path / "trace.duckdb")

    expected = STALLS[scenario]
    (finding,) = verdict.findings
    assert (verdict.status, finding.category) == (expected.status, expected.category)
    assert (finding.root_cause.ranks, finding.root_cause.one_of) == (expected.ranks, expected.one_of)
    assert expected.stage.lower() in finding.why.lower()
    if expected.flow is not None:
        assert named(finding) == expected.flow
    assert not set(finding.victims) & set(expected.ranks)
    if expected.one_of:
        assert finding.confidence != "high"


@pytest.mark.parametrize("scenario", ["ring_all_reduce", "tree_all_reduce", "send_recv", "several_comms", "intra_node"])
def test_healthy_job_is_healthy_although_it_paused(tools: Tools, tmp_path: Path, scenario: str) -> None:
    assert tools.replay(scenario, 7, tmp_path / "rings").returncode == 0

    verdict = verdict_of(tmp_path / "rings", tmp_path / "trace.duckdb")

    assert (verdict.status, verdict.findings) == ("healthy", ())


def test_less_is_claimed_when_the_culprit_left_no_trace(tools: Tools, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    assert tools.replay("stall_recv_proxy", 7, rings).returncode == 0
    full = verdict_of(rings, tmp_path / "full.duckdb")
    next(rings.glob("rank3-*.ring")).unlink()

    partial = verdict_of(rings, tmp_path / "partial.duckdb")

    assert full.findings[0].confidence == "high"
    assert all(f.confidence != "high" for f in partial.findings)


def test_order_of_files_does_not_change_the_verdict(tools: Tools, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    assert tools.replay("stall_across_comms", 7, rings).returncode == 0
    one = verdict_of(rings, tmp_path / "one.duckdb")
    for path in rings.glob("*.ring"):
        rank = int(path.name[4])
        path.rename(rings / f"{9 - rank}-{path.name}")

    other = verdict_of(rings, tmp_path / "other.duckdb")

    assert one.findings == other.findings


def test_command_line_names_stage_and_flow(tools: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rings = tmp_path / "rings"
    assert tools.replay("stall_network", 7, rings).returncode == 0
    for truth in rings.glob("truth-*.json"):
        truth.unlink()

    status = main(["diagnose", str(rings), "--json"])

    verdict = json.loads(capsys.readouterr().out)
    assert status == 1
    assert "handed to the network and not acknowledged" in verdict["summary"]
    assert "from rank 0 to rank 1 on channels 0, 1" in verdict["summary"]
    assert verdict["findings"][0]["root_cause"]["flow"] == {"channel": None, "peer": 1, "dir": "send", "qp": None}


LOADER_STACK = """\
Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    read (storage.py:88)
    next_batch (data/loader.py:41)
    __next__ (torch/utils/data/dataloader.py:701)
    train_step (train.py:120)
    <module> (train.py:200)
"""
TRACEBACK = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 120, in <module>
[rank1]:     step()
[rank1]: ValueError: bad sample 7
"""


def test_stack_of_the_absent_rank_says_why_it_does_not_come(tools: Tools, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    assert tools.replay("stall_pair_absent", 7, rings).returncode == 0
    (rings / "stack_rank_1.txt").write_text(LOADER_STACK.format(pid=4711))

    (finding,) = verdict_of(rings, tmp_path / "trace.duckdb").findings

    assert (finding.root_cause.ranks, finding.category) == ((1,), "dataloader")
    assert "data loader" in finding.summary
    assert any(e.file == "stack_rank_1.txt" for e in finding.evidence)
    assert finding.confidence_why[0] == "stacks agree"


def test_last_words_of_the_absent_rank_are_its_exception(tools: Tools, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    assert tools.replay("stall_pair_absent", 7, rings).returncode == 0
    (rings / "rank1.log").write_text(TRACEBACK)

    (finding,) = verdict_of(rings, tmp_path / "trace.duckdb").findings

    assert (finding.root_cause.ranks, finding.category, finding.status) == ((1,), "exception", "crash")


def test_stack_of_a_rank_that_waits_changes_nothing(tools: Tools, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    assert tools.replay("stall_pair_absent", 7, rings).returncode == 0
    (rings / "stack_rank_0.txt").write_text(LOADER_STACK.format(pid=4712))

    (finding,) = verdict_of(rings, tmp_path / "trace.duckdb").findings

    assert (finding.root_cause.ranks, finding.category) == ((1,), "absent")


WAITING_STACK = """\
Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    train_step (train.py:131)
    <module> (train.py:200)
"""


def test_stack_that_does_not_go_with_it_halves_how_sure_an_absence_is(tools: Tools, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    assert tools.replay("stall_pair_absent", 7, rings).returncode == 0
    (rings / "stack_rank_1.txt").write_text(WAITING_STACK.format(pid=4711))

    (finding,) = verdict_of(rings, tmp_path / "trace.duckdb").findings

    assert (finding.root_cause.ranks, finding.category) == ((1,), "absent")
    assert finding.certainty is not None and finding.certainty <= 0.5
    assert finding.confidence != "high"
    assert "speaks against it (corroboration 0.50)" in finding.confidence_why[0]
    assert any(e.file == "stack_rank_1.txt" for e in finding.evidence)
