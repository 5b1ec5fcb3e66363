"""Evidence of several jobs in one folder, and of one job that only looks like several."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from mycroft.loaders import Store
from mycroft.loaders.jobs import Facts, JobFinder, Jobs
from tests.analysis import incidents as make
from tests.loaders.sources import loaded


def jobs_of(store: Store) -> list[list[str]]:
    """Return the paths that each job of a trace was made from."""
    return [
        [path.rpartition("evidence/")[2] for path in job.frame("SELECT path FROM files ORDER BY path")["path"]]
        for job in store.jobs()
    ]


def stopped(ranks: range, *, day: int = 3, seq: int = 900) -> str:
    """Ranks that time out on a day of March."""
    text = "".join(make.timed_out(rank, seq=seq) for rank in ranks)
    return text.replace("E303 ", f"E3{day:02d} ")


def test_days_apart(tmp_path: Path) -> None:
    contents = {"a/console.log": stopped(range(4)), "b/console.log": stopped(range(4), day=20)}
    with loaded(tmp_path, contents) as store:
        assert jobs_of(store)[1:] == [["b/console.log"]]
        main, other = store.jobs()
        assert main.frame("SELECT count(*) FROM events WHERE kind = 'watchdog_timeout'").item() == 4
        assert other.frame("SELECT count(*) FROM events WHERE kind = 'watchdog_timeout'").item() == 4
        assert store.frame("SELECT path LIKE '%a/%', job_id FROM files ORDER BY path").rows() == [(True, 0), (False, 1)]


def test_one_rank_cannot_stop_in_two_operations(tmp_path: Path) -> None:
    contents = {"a/console.log": stopped(range(4)), "b/console.log": stopped(range(4), seq=77)}
    with loaded(tmp_path, contents) as store:
        assert len(store.jobs()) == 2


def test_files_side_by_side_are_told_apart_too(tmp_path: Path) -> None:
    contents = {
        f"{name}{r}.log": stopped(range(r, r + 1), seq=seq) for name, seq in (("x", 5), ("y", 9)) for r in range(3)
    }
    contents |= {f"{name}-all.log": stopped(range(3), seq=seq) for name, seq in (("x", 5), ("y", 9))}
    with loaded(tmp_path, contents) as store:
        groups = [{path[0] for path in paths} for paths in jobs_of(store)]
        assert groups[1:] == [{"y"}]


def test_one_rank_on_two_hosts(tmp_path: Path) -> None:
    one, two = ("".join(make.nccl(rank, "Using network IB") for rank in range(4)) for _ in range(2))
    tagged = "".join(f"[1,{rank}]<stdout>:{line}\n" for rank, line in enumerate(one.splitlines()))
    other = "".join(
        f"[1,{rank}]<stdout>:{line}\n"
        for rank, line in enumerate(two.replace("n0:10", "m0:20").replace("n1:10", "m1:20").splitlines())
    )
    with loaded(tmp_path, {"a/out.txt": tagged, "b/out.txt": other}) as store:
        assert len(store.jobs()) == 2


SAME = {
    "a folder per host": {
        "n0/nccl.log": "".join(make.start_up(4).splitlines(keepends=True)[:8]),
        "n1/nccl.log": "".join(make.start_up(4).splitlines(keepends=True)[8:]),
    },
    "logs and stacks": {
        "logs/console.log": stopped(range(4)),
        "stacks/pyspy-rank3.txt": 'Process 7: python3 train.py\nPython v3.11.9 (x)\n\nThread 7 (active): "MainThread"\n    <module> (train.py:9)\n',
    },
    "an old kernel log": {
        "logs/console.log": make.start_up(4) + stopped(range(4)),
        "dmesg/n1.txt": "2026-01-02T02:17:05+00:00 n1 kernel: NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n",
    },
    "one node's part of a group": {
        "logs/console.log": make.start_up(4),
        "nccl/n1.log": "".join(
            make.nccl(2 + i, f"ncclCommInitRank comm 0x9{i} rank {i} nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xcdcdcdcd - Init COMPLETE")
            for i in range(2)
        ),
    },
}  # fmt: skip


@pytest.mark.parametrize("layout", SAME)
def test_one_job_stays_one(tmp_path: Path, layout: str) -> None:
    with loaded(tmp_path, SAME[layout]) as store:
        assert len(store.jobs()) == 1


def test_what_names_no_rank_goes_with_its_hosts_else_with_all(tmp_path: Path) -> None:
    nfs = "fs1:/export mounted on /ckpt:\n\n   op/s  rpc bklog\n   2.0   4.0\n"
    xid = "2026-03-03T02:17:05+00:00 n1 kernel: NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n"
    contents = {
        "a/out.log": make.start_up(4) + stopped(range(4)),
        "b/out.log": make.start_up(4).replace("n0:", "m0:").replace("n1:", "m1:").replace("0xab12", "0xef34") + stopped(range(4), day=25),
        "c/nfsiostat.txt": nfs,
        "d/journal.txt": xid,
    }  # fmt: skip
    with loaded(tmp_path, contents) as store:
        first, second = jobs_of(store)
        assert second == ["b/out.log", "c/nfsiostat.txt"]
        main, _other = store.jobs()
        assert main.frame("SELECT count(*) FROM events WHERE kind = 'xid'").item() == 1
        assert first == sorted(contents)


def test_shared_communicators_overrule_all_but_time() -> None:
    mine, other = Facts(comms={"0xab12cd34"}), Facts(comms={"0xab12cd34"})
    mine.stops[0], other.stops[0] = {1}, {2}
    assert not mine.contradicts(other)
    mine.first = mine.last = 10**18
    other.first = other.last = 2 * 10**18
    assert mine.contradicts(other)


def test_ranks_that_share_a_host_here_and_not_there() -> None:
    mine, other = Facts(), Facts()
    for rank in range(4):
        mine.processes[rank] = {("one", -1)}
        other.processes[rank] = {(f"h{rank // 2}", -1)}
    assert mine.contradicts(other)
    for rank in range(4):
        other.processes[rank] = {("10.0.0.1", -1)}
    assert not mine.contradicts(other)


def test_nothing_is_told_without_rows() -> None:
    assert JobFinder().jobs({3: "a/x", 1: "b/y"}, []) == Jobs([[1, 3]])
