"""Evidence of several jobs in one folder, and of one job that only looks like several."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import polars as pl
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


def test_a_time_without_its_year_is_laid_into_the_year_of_the_other() -> None:
    day = 86_400 * 10**9
    summer = 20_600 * day
    exact, guessed = Facts(first=summer, last=summer), Facts(guessed=(summer - 365 * day, summer - 365 * day))
    assert not exact.contradicts(guessed)
    assert not guessed.contradicts(exact)
    guessed.guessed = (summer - 340 * day, summer - 340 * day)
    assert exact.contradicts(guessed)
    assert Facts(first=summer - 365 * day, last=summer - 365 * day).contradicts(exact)


def test_a_profiler_s_groups_of_one_size_are_of_one_job_and_of_two_sizes_of_two() -> None:
    def side(host: str, size: int, seen: int) -> Facts:
        facts = Facts(hosts={host}, comms={f"0x{host}"})
        facts.groups[size] = set(range(seen))
        return facts

    assert not side("a", 8, 8).contradicts(side("b", 8, 8))
    assert side("a", 4, 4).contradicts(side("b", 8, 8))
    assert not side("a", 8, 8).contradicts(side("b", 8, 7))
    assert not side("a", 4, 4).contradicts(side("b", 8, 7))


def test_a_process_that_a_source_names_without_a_row_joins_its_file() -> None:
    finder = JobFinder()
    for file_id in (1, 2):
        rows = pl.DataFrame({"file_id": [file_id] * 2, "rank": [0, 1], "pid": [70 + file_id, 80 + file_id]})
        finder.see("stacks", rows.select("file_id", "rank", *(["pid"] if file_id == 1 else [])))
    names = {1: "stacks/all.txt", 2: "trace.parquet"}
    assert len(finder.jobs(names, ["node0"]).parts) == 2
    finder.process(2, 0, 71)
    assert finder.jobs(names, ["node0"]).parts == []


def test_one_file_for_each_rank_is_one_side() -> None:
    files = [Facts(ranks={rank}, names={("run", "rank", str(rank), "log")}) for rank in range(3)]
    assert files[0].related(files[2])
    again = Facts(ranks={0}, names={("run", "rank", "9", "log")})
    assert not files[0].related(again)


def test_ranks_outside_of_a_whole_world_are_not_joined_with_it() -> None:
    world = Facts(hosts={"a"}, size=4, ranks={0, 1, 2, 3})
    for rank in range(4):
        world.members[rank] = {("a", 70 + rank)}
    assert not world.joined(Facts(hosts={"b"}, ranks={13}))
    assert world.joined(Facts(ranks={13}))
    assert world.joined(Facts(hosts={"b"}, ranks={13}, comms={"0xab"}, first=1, last=2)) is False
    del world.members[3]
    assert world.joined(Facts(hosts={"b"}, ranks={13}))


BESIDE = (
    ("x-console.log", "y-console.log", "x-pyspy-rank1.txt"),
    ("console-1.log", "console-2.log", "journal-n1.txt"),
)


@pytest.mark.parametrize(("one", "two", "beside"), BESIDE)
def test_what_fits_both_goes_with_the_host_in_its_name_or_with_files_named_alike(
    tmp_path: Path, one: str, two: str, beside: str
) -> None:
    stack = 'Process 7: python3 train.py\nPython v3.11.9 (x)\n\nThread 7 (active): "MainThread"\n    <module> (train.py:9)\n'
    xid = "[12345.678901] NVRM: Xid (PCI:0000:43:00): 79, GPU has fallen off the bus.\n"
    contents = {
        one: make.start_up(4) + stopped(range(4)),
        two: stopped(range(4), seq=77),
        beside: xid if "journal" in beside else stack,
    }
    with loaded(tmp_path, contents) as store:
        assert jobs_of(store) == [sorted(contents), [two]]
        mine = store.frame("SELECT path FROM files WHERE job_id = 0")["path"]
        assert {path.rpartition("/")[2] for path in mine} == {one, beside}


def test_nothing_is_told_without_rows() -> None:
    assert JobFinder().jobs({3: "a/x", 1: "b/y"}, []) == Jobs([[1, 3]])
