"""The recorder as Python uses it: what is written, and what happens to the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mycroft.tracer import Recorder, TracerOffError, open_trace
from mycroft.tracer.recording import name_hash
from tests.tracer.comparison import rows


def recorder(folder: Path, **options: object) -> Recorder:
    return Recorder(directory=folder, ring_mb=1, rank=3, world_size=8, sampler=False, **options)  # type: ignore[arg-type]


def test_operation_ends_with_its_block_also_by_an_exception(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("dp", rank=1, size=4)
        with pytest.raises(RuntimeError), r.op(comm, "all_reduce", size_bytes=4096, dtype="float32"):
            raise RuntimeError("the library failed")
        with r.op(comm, "all_gather"):
            pass
        path = r.path

    ops = rows(open_trace(path).tables["op"])

    assert [(o["op_seq"], o["op_kind"], o["op_state"], o["bytes"], o["dtype"]) for o in ops] == [
        (0, "all_reduce", "completed", 4096, "float32"),
        (1, "all_gather", "completed", 0, None),
    ]
    assert all(o["dur_ns"] >= 0 for o in ops)


def test_open_operation_is_in_the_trace_of_a_process_that_hangs(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        op = r.comm("dp", rank=0, size=2).start("all_reduce")
        flow = op.flow(peer=1, send=True, total=10, channel=2)
        flow.reach(posted=4, ready=3, moved=3, done=2, size=300)
        r.tick()

        trace = open_trace(r.path)

        (state,) = rows(trace.tables["state"])
        assert [state[k] for k in ("posted", "ready", "moved", "done", "chunks_total")] == [4, 3, 3, 2, 10]
        assert (state["dir"], state["peer"], state["channel"], state["bytes"]) == ("send", 1, 2, 300)
        assert [o["op_state"] for o in rows(trace.tables["op"])] == ["open"]
        assert not trace.closed


def test_counters_never_move_backwards(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        flow = r.comm("dp", rank=0, size=2).start("all_reduce").flow(peer=1, send=False, total=5)
        flow.reach(posted=3, moved=3, ready=2, done=2)
        flow.reach(posted=1, moved=2, ready=1, done=1)
        flow.reach(posted=9)
        r.tick()
        (state,) = rows(open_trace(r.path).tables["state"])
    assert [state[k] for k in ("posted", "ready", "moved", "done")] == [3, 2, 3, 2]


def test_flow_that_is_stopped_twice_is_recorded_once(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        flow = r.comm("dp", rank=0, size=2).start("all_reduce").flow(peer=1, send=True, total=1)
        flow.reach(posted=1, ready=1, moved=1, done=1, size=7)
        flow.stop()
        flow.stop()
        (row,) = rows(open_trace(r.path).tables["flow"])
    assert (row["slices"], row["bytes"], row["partial"]) == (1, 7, False)


def test_operations_open_at_the_end_of_their_communicator_are_aborted(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("dp", rank=0, size=2)
        flow = comm.start("all_reduce").flow(peer=1, send=True, total=2)
        flow.reach(posted=1)
        comm.close()
        trace = open_trace(r.path)
    assert [o["op_state"] for o in rows(trace.tables["op"])] == ["aborted"]
    assert [f["aborted"] for f in rows(trace.tables["flow"])] == [True]
    assert trace.communicators[0].closed_ns is not None


def test_sends_and_receives_are_numbered_by_pair(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("pp", rank=1, size=4)
        for kind, peer in (("send", 2), ("recv", 0), ("send", 2), ("send", 3), ("recv", 0)):
            with r.op(comm, kind, peer=peer):
                pass
        ops = rows(open_trace(r.path).tables["op"])
    assert [(o["op_kind"], o["peer"], o["op_seq"], o["source_seq"]) for o in ops] == [
        ("send", 2, 0, 0),
        ("recv", 0, 0, 1),
        ("send", 2, 1, 2),
        ("send", 3, 0, 3),
        ("recv", 0, 1, 4),
    ]


def test_name_alone_identifies_a_communicator_on_all_ranks(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        r.comm("tensor parallel 3", rank=0, size=2)
        (comm,) = open_trace(r.path).communicators
    assert (comm.hash, comm.name, comm.rank, comm.size) == (name_hash("tensor parallel 3"), "tensor parallel 3", 0, 2)


def test_unknown_kinds_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("dp")
        with pytest.raises(ValueError, match="all_reduce, all_gather"):
            comm.start("allreduce")
        with pytest.raises(ValueError, match="bfloat16"):
            comm.start("all_reduce", dtype="fp32")


def test_nothing_is_recorded_while_it_is_off_and_numbers_go_on(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("dp", rank=0, size=2)
        for on in (True, False, True):
            r._core.enabled = on
            with r.op(comm, "all_reduce"):
                pass
        ops = rows(open_trace(r.path).tables["op"])
    assert [o["op_seq"] for o in ops] == [0, 2]


def test_child_of_a_fork_writes_nothing(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("dp", rank=0, size=2)
        child = os.fork()
        if child == 0:
            r.abandon()
            with r.op(comm, "all_reduce"):
                pass
            r.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        trace = open_trace(r.path)
    assert trace.tables["op"].num_rows == 0
    assert not trace.closed


def test_more_operations_than_slots_are_all_recorded(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("dp", rank=0, size=2)
        for _ in range(3000):
            with r.op(comm, "all_reduce"):
                pass
        ops = rows(open_trace(r.path).tables["op"])
    assert [o["op_seq"] for o in ops] == list(range(3000))


def test_more_open_operations_than_slots_leave_a_gap_that_says_so(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        comm = r.comm("dp", rank=0, size=2)
        for _ in range(1100):
            comm.start("all_reduce")
        r.tick()
        trace = open_trace(r.path)
    assert [(g["reason"], g["count"]) for g in rows(trace.tables["gap"])] == [("no_op_slot", 76)]
    assert trace.communicators[0].last_seq == 1099


def test_more_flows_than_slots_leave_a_gap_that_says_so(tmp_path: Path) -> None:
    with recorder(tmp_path) as r:
        op = r.comm("dp", rank=0, size=2).start("all_reduce")
        for _ in range(4100):
            op.flow(peer=1, send=True, total=1)
        r.tick()
        trace = open_trace(r.path)
    assert [(g["reason"], g["count"]) for g in rows(trace.tables["gap"])] == [("no_flow_slot", 4)]


def test_budget_is_shared_by_all_files_of_the_folder(tmp_path: Path) -> None:
    options = {"directory": tmp_path, "budget_mb": 3, "sampler": False}
    kept = [Recorder(ring_mb=1, **options), Recorder(ring_mb=1, **options), Recorder(ring_mb=1, **options)]
    with pytest.raises(TracerOffError, match="budget of 3 MB is used up"):
        Recorder(ring_mb=1, **options)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) == 3 << 20
    for r in kept:
        r.close()


def test_files_of_ended_processes_make_room(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        Recorder(directory=tmp_path, ring_mb=1, budget_mb=2, sampler=False).comm("left behind")
        os._exit(0)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()

    first = Recorder(directory=tmp_path, ring_mb=1, budget_mb=2, sampler=False)
    assert left.exists()
    second = Recorder(directory=tmp_path, ring_mb=1, budget_mb=2, sampler=False)

    assert not left.exists()
    assert {first.path, second.path} == set(tmp_path.iterdir())
    first.close()
    second.close()


def test_share_of_a_file_is_the_budget_by_the_processes_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "16")
    with Recorder(directory=tmp_path, budget_mb=32, sampler=False) as r:
        assert r.path.stat().st_size == 2 << 20


def test_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    link = tmp_path / "link"
    link.symlink_to(foreign)
    with pytest.raises(TracerOffError, match="not a directory we can open"):
        Recorder(directory=link, sampler=False)


def test_trace_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with recorder(tmp_path / "traces") as r:
        assert r.path.stat().st_mode & 0o777 == 0o600
        assert r.path.parent.stat().st_mode & 0o777 == 0o700
        assert r.path.name.startswith("rank3-")


def test_sampler_thread_samples_by_itself(tmp_path: Path) -> None:
    with Recorder(directory=tmp_path, ring_mb=1, interval_ms=1, rank=0) as r:
        r.comm("dp", rank=0, size=2).start("all_reduce").flow(peer=1, send=True, total=1).reach(posted=1)
        while open_trace(r.path).tables["state"].num_rows < 3:
            pass
        states = rows(open_trace(r.path).tables["state"])
    assert [s["ts"] for s in states] == sorted({s["ts"] for s in states})
