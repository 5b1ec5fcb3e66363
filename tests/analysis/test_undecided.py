"""What takes a suspicion back, and what the verdict then asks for: one gap, one test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mycroft.analysis.verdict import Unknown, Verdict
from tests.analysis import incidents as make
from tests.analysis.incidents import named, verdict_of


def asked(verdict: Verdict) -> Unknown:
    """Return what an undecided verdict asks for first."""
    assert verdict.status == "cannot_tell"
    assert not verdict.findings
    return verdict.unknown[0]


def slow_transfer(*, lost: int | None = None) -> dict[str, str]:
    files = make.inspector(8, 40, lambda _r, n: 5_000 if n < 20 else 21_000)
    return {name: text for name, text in files.items() if f"pid{1000 + lost}" not in name} if lost else files


def counters(pause: int) -> str:
    return f"$ ethtool -S ens2\nNIC statistics:\n     tx_prio3_pause: {pause}\n     rx_discards_phy: 0\n"


def test_a_member_without_a_profile_may_be_the_late_one(tmp_path: Path) -> None:
    found = asked(verdict_of(tmp_path, slow_transfer(lost=5)))
    assert "rank 5" in found.what
    assert found.would_decide == "the profiler's file of rank 5"


def test_counters_of_some_hosts_do_not_say_where_a_transfer_is_slow(tmp_path: Path) -> None:
    files = {f"t{t}/{host}.txt": counters(10 + t) for host in ("n0", "n1", "n3") for t in (0, 1)}
    found = asked(verdict_of(tmp_path, {**slow_transfer(), **files, "t0/n2.txt": counters(10)}))
    assert found.would_decide.endswith("of n2")


def watchdog_files(silent: set[int], *, shared: bool) -> dict[str, str]:
    told = {r: make.timed_out(r) + make.status(r, enqueued=901, completed=899) for r in range(8) if r not in silent}
    if shared:
        return {"console.log": "".join(told.values())}
    return {f"logs/rank_{r}.log": f"[rank{r}]: ready\n{text}" for r, text in told.items()}


def test_ranks_whose_logs_are_not_here_are_not_accused(tmp_path: Path) -> None:
    found = asked(verdict_of(tmp_path, watchdog_files({2, 3}, shared=False)))
    assert found.would_decide.startswith("the log of ranks 2, 3")


@pytest.mark.parametrize(("silent", "shared"), [({2, 3}, True), ({3}, False)])
def test_few_that_are_silent_beside_all_others_are_named(tmp_path: Path, silent: set[int], *, shared: bool) -> None:
    assert named(verdict_of(tmp_path, watchdog_files(silent, shared=shared)))[1:3] == ("medium", tuple(sorted(silent)))


def test_half_of_the_ranks_without_a_line_are_not_accused(tmp_path: Path) -> None:
    found = asked(verdict_of(tmp_path, watchdog_files({1, 3, 4, 6}, shared=True)))
    assert "too many to be all guilty" in found.what


def test_a_gpu_without_a_rank_asks_who_used_it(tmp_path: Path) -> None:
    line = make.kernel("n3", "10:00", "NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.")
    verdict = verdict_of(tmp_path, {"dmesg.txt": line})
    assert named(verdict)[0] == "gpu_fault"
    assert verdict.unknown[0].what == "which rank uses 0000:43:00.0 of n3"


def stack(rank: int, frames: list[tuple[str, str]]) -> str:
    shown = [{"name": name, "filename": file, "short_filename": file, "line": 7} for name, file in frames]
    return json.dumps([{"pid": 900 + rank, "thread_name": "MainThread", "active": True, "frames": shown}])


def test_of_stacks_alone_the_one_that_does_not_wait_is_named_with_doubt(tmp_path: Path) -> None:
    waits = [("all_reduce", "torch/distributed/distributed_c10d.py"), ("step", "train.py")]
    reads = [("__getitem__", "dataset.py"), ("step", "train.py")]
    files = {f"pyspy/rank_{r}.json": stack(r, reads if r == 2 else waits) for r in range(4)}
    assert named(verdict_of(tmp_path, files))[:3] == ("dataloader", "low", (2,))
    few = {f"pyspy/rank_{r}.json": stack(r, waits if r < 2 else reads) for r in range(4)}
    assert asked(verdict_of(tmp_path / "few", few)).would_decide.startswith("the console log of the job")


def test_a_worker_that_ray_lost_is_named_where_others_complain(tmp_path: Path) -> None:
    up = "".join(
        f"(RayTrainWorker pid={900 + r}, ip=10.0.0.1) [rank{r}]: world rank {r} local rank {r}\n" for r in range(4)
    )
    lost = (
        "A worker died or was killed while executing a task by an unexpected system error. Worker IP address: 10.0.0.1 "
        "Worker port: 10031 Worker PID: 902 Worker exit type: SYSTEM_ERROR Worker exit detail: unknown\n"
    )
    told = "".join(f"(RayTrainWorker pid={900 + r}, ip=10.0.0.1) {make.timed_out(r)}" for r in (0, 1, 3))
    assert named(verdict_of(tmp_path, {"ray.log": up + lost + told}))[::2] == ("process_died", (2,))
