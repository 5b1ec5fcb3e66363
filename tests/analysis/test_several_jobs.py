"""Two incidents in one folder come out as two."""

from __future__ import annotations

from pathlib import Path

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
