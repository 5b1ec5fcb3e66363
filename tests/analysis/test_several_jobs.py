"""Two incidents in one folder come out as two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import log_cases
from tests.analysis import incidents as make
from tests.analysis.incidents import verdict_of
from tests.analysis.test_sample_logs import LOGS


def sample(case: str) -> dict[str, bytes]:
    """Return the files of a sample, in a folder of its name."""
    return {
        f"{case}/{path.relative_to(LOGS / case)}": path.read_bytes()
        for path in sorted((LOGS / case).rglob("*"))
        if path.is_file() and path.name != "truth.json"
    }


def test_both_culprits_are_named(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, sample("dataloader-stall-one-rank") | sample("oom-killed-rank-srun"))
    found = {(f.category, tuple(f.root_cause.ranks)) for f in verdict.findings}
    assert found == {("dataloader", (5,)), ("out_of_memory", (11,))}
    assert [f.id for f in verdict.findings] == ["f1", "f2"]
    assert verdict.summary.startswith("The evidence is of 2 jobs.")
    assert any("dataloader-stall-one-rank" in f.summary for f in verdict.findings)


def test_a_healthy_job_beside_a_sick_one(tmp_path: Path) -> None:
    steps = "".join(
        f"[rank{r}]: 2026-01-02 10:00:0{i} step {i} loss 2.5 time 0.5s\n" for i in range(5) for r in range(8)
    )
    stopped = "".join(make.timed_out(r, numel=999 if r == 3 else 1000) for r in range(8))
    verdict = verdict_of(tmp_path, {"a/console.log": steps, "b/console.log": stopped})
    assert [(f.category, tuple(f.root_cause.ranks)) for f in verdict.findings] == [("size_mismatch", (3,))]


def test_two_healthy_jobs(tmp_path: Path) -> None:
    steps = "".join(
        f"[rank{r}]: 2026-01-02 10:00:0{i} step {i} loss 2.5 time 0.5s\n" for i in range(5) for r in range(8)
    )
    verdict = verdict_of(tmp_path, {"a/console.log": steps, "b/console.log": steps.replace("-01-", "-04-")})
    assert not verdict.findings
    assert "2 jobs" in verdict.summary


def test_a_benchmark_beside_a_hang_is_said_too(tmp_path: Path) -> None:
    tables = {
        f"all_reduce_a{a}_a{b}.txt": make.bench((f"a{a}", f"a{b}"), 40.0 if 2 in (a, b) else 150.0)
        for a in range(4)
        for b in range(a + 1, 4)
    }
    stopped = "".join(make.timed_out(r, numel=999 if r == 3 else 1000) for r in range(8))
    verdict = verdict_of(tmp_path, {"console.log": stopped, **tables})
    assert {f.category for f in verdict.findings} == {"size_mismatch", "slow_nic"}


def console(odd: int) -> str:
    """The console of a job of which no line names a host: one rank passes another size."""
    return "".join(make.timed_out(r, numel=999 if r == odd else 1000) for r in range(8))


def nccl_logs(*, failing: bool) -> dict[str, str]:
    """NCCL's logs of a job that nothing joins with the console; its ranks have the same numbers."""
    text = make.start_up(8)
    if failing:
        text += make.nccl(4, "NET/IB : mlx5_1:1 Got async event : port error", level="WARN")
        text += "".join(make.failed_transfer(r, 2, stamp="2026-03-02 20:00:00") for r in (0, 2, 6))
    return {"nccl/job.log": text}


def test_sides_that_nothing_joins_and_that_accuse_different_ones_are_two_jobs(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, {"console.log": console(3), **nccl_logs(failing=True)})
    found = {(f.category, f.root_cause.ranks, f.root_cause.hosts) for f in verdict.findings}
    assert found == {("size_mismatch", (3,), ()), ("link_fault", (), ("n2",))}
    assert "nothing joins" in verdict.summary


SIDE_BY_SIDE = {
    "two slow profiles": ("healthy-inspector", "inspector-v5-power-brake", {("slow_gpu", (5,), ("gn-77",))}),
    "both told without being sure": (
        "dcgm-slow-clock",
        "store-24-of-32",
        {("slow_gpu", (13,), ("hgx2",)), ("init_timeout", tuple(range(24, 32)), ())},
    ),
    "one rank, two hosts": (
        "store-24-of-32",
        "torchrun-address-in-use",
        {("init_timeout", tuple(range(24, 32)), ()), ("init_timeout", (0,), ("box-9",))},
    ),
    "a file for each rank": (
        "lightning-two-groups",
        "ib-port-down-error-12",
        {("order_deadlock", (2,), ()), ("link_fault", (), ("gpu-b07",))},
    ),
    "a rank of each": (
        "inspector-v5-power-brake",
        "old-driver-off-the-bus",
        {("slow_gpu", (5,), ("gn-77",)), ("gpu_fault", (5,), ("c4",))},
    ),
    "stacks beside the log that is named like them": (
        "mpirun-fingerprint",
        "pyspy-json-parser",
        {("size_mismatch", (2,), ()), ("dataloader", (1,), ())},
    ),
    "another year": (
        "deepspeed-pdsh-oom",
        "ras-json-dead-member",
        {("out_of_memory", (5,), ("worker-2",)), ("process_died", (5,), ("10.9.0.2",))},
    ),
}


@pytest.mark.parametrize("pair", SIDE_BY_SIDE)
def test_two_incidents_in_one_flat_folder_are_two(tmp_path: Path, pair: str) -> None:
    one, two, both = SIDE_BY_SIDE[pair]
    verdict = verdict_of(tmp_path, log_cases.together(one, two, flat=True))
    assert {(f.category, f.root_cause.ranks, f.root_cause.hosts) for f in verdict.findings} == both


def test_what_a_side_says_alone_and_is_no_more_than_a_guess_is_left_open(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, log_cases.together("desync-report-glog", "two-hosts-accuse-each-other", flat=True))
    assert [(f.category, f.root_cause.ranks) for f in verdict.findings] == [("absent", (6,))]
    assert any("r1-2 or r1-4" in unknown.what and "nothing joins it" in unknown.what for unknown in verdict.unknown)


def test_a_side_that_knows_less_of_the_same_culprit_leaves_nothing_open(tmp_path: Path) -> None:
    # A trace with no stacks says "never entered", the stacks say where: nothing joins the two but the numbers of ranks.
    stacks = {
        f"stacks/rank{r}.txt": f"Process {900 + r}: python train.py\nPython v3.11.7 (/usr/bin/python3)\n\n"
        f'Thread {900 + r} (idle): "MainThread"\n'
        + (
            "    select (selectors.py:415)\n    _try_get_data (torch/utils/data/dataloader.py:1131)\n"
            "    __next__ (torch/utils/data/dataloader.py:633)\n    train (train.py:12)\n"
            if r == 5
            else "    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    train (train.py:20)\n"
        )
        for r in range(8)
    }
    logs = {f"logs/rank{r}/stderr.log": make.timed_out(r) for r in range(8) if r != 5}
    verdict = verdict_of(tmp_path, {**stacks, **logs})
    assert [f.root_cause.ranks for f in verdict.findings] == [(5,)]
    assert not [unknown.what for unknown in verdict.unknown if "of the same job" in unknown.what]


def test_a_rank_is_not_put_on_a_host_by_its_number_alone(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, {"console.log": console(3), **nccl_logs(failing=False)})
    (finding,) = verdict.findings
    assert (finding.root_cause.ranks, finding.root_cause.hosts) == ((3,), ())
    assert verdict.unknown[0].what.startswith("whether rank 3 ran on n1")


def test_a_console_that_names_a_process_is_joined_with_its_host(tmp_path: Path) -> None:
    block = (
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n  <NO_OTHER_FAILURES>\n{'-' * 60}\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-03_02:28:00\n  host      : n1\n"
        f"  rank      : 3 (local_rank: 1)\n  exitcode  : -6 (pid: {make.pid_of(3)})\n  error_file: <N/A>\n"
        f"  traceback : Signal 6 (SIGABRT) received by PID {make.pid_of(3)}\n{'=' * 60}\n"
    )
    verdict = verdict_of(tmp_path, {"console.log": console(3) + block, **nccl_logs(failing=False)})
    assert verdict.findings[0].root_cause.hosts == ("n1",)


def test_findings_of_another_job_open_files_and_no_rows_of_the_first(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, sample("dataloader-stall-one-rank") | sample("oom-killed-rank-srun"))
    first, other = verdict.findings if "dataloader" in verdict.findings[0].summary else verdict.findings[::-1]
    assert any(e.table for e in first.evidence)
    assert other.evidence
    assert all(e.table is None and e.key is None and e.file for e in other.evidence)


def test_the_last_start_of_an_elastic_job_comes_first(tmp_path: Path) -> None:
    memory = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total"
    first = {
        f"run/attempt_0/{r}/stderr.log": f"[rank{r}]: 2026-03-03 01:00:00 step 1 loss 2.5 time 0.5s\n" for r in range(4)
    }
    first["run/attempt_0/3/stderr.log"] = f"[rank3]: Traceback (most recent call last):\n{memory} capacity of 79 GiB.\n"
    second = {f"run/attempt_1/{r}/stderr.log": make.timed_out(r, numel=999 if r == 1 else 1000) for r in range(4)}
    verdict = verdict_of(tmp_path, first | second)
    found = [(f.category, f.root_cause.ranks) for f in verdict.findings]
    assert found == [("size_mismatch", (1,)), ("out_of_memory", (3,))]
    assert "run/attempt_1 (start 2 of the workers)" in verdict.findings[0].summary
