"""Trace files and exports in the store: whose is what, also across processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from mycroft.loaders.load import LoadSummary, load
from mycroft.loaders.store import open_store
from mycroft.tracer import Recorder, export_trace, open_trace


def tables(folder: Path, out: Path, *names: str) -> tuple[LoadSummary, dict[str, pl.DataFrame]]:
    summary = load([folder], out)
    with open_store(out) as store:
        return summary, {name: store.frame(f"SELECT * FROM {name}") for name in names}


def write(folder: Path, rank: int | None, *, world: int | None = 4, comm_rank: int | None = None) -> None:
    """One process: an all-gather among all, then a send to its neighbour that stays open with one flow."""
    with Recorder(directory=folder, ring_mb=1, rank=rank, world_size=world, host=f"host-{rank}", sampler=False) as r:
        inside = rank if comm_rank is None else comm_rank
        all_ = r.comm("default_pg", rank=inside, size=4, hash_=0xA11, backend="nccl")
        pair = r.comm("pair", rank=(inside or 0) % 2, size=2, hash_=0x9A10 + (inside or 0) // 2, backend="nccl")
        with r.op(all_, "all_gather", size_bytes=100, dtype="int8") as op:
            flow = op.flow(peer=((inside or 0) + 1) % 4, send=True, total=2, channel=1)
            flow.reach(posted=2, ready=2, moved=2, done=2, size=50)
            flow.stop()
        with r.op(pair, "send", peer=1 - (inside or 0) % 2, size_bytes=8):
            pass
        op = pair.start("send", peer=1 - (inside or 0) % 2, size_bytes=8)
        op.flow(peer=1 - (inside or 0) % 2, send=True, total=5).reach(posted=3, ready=2, moved=1, done=1)
        r.tick()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "rings"
    for rank in range(4):
        write(folder, rank)
    return folder


def test_communicators_and_members_come_from_all_traces_together(job: Path, tmp_path: Path) -> None:
    _, found = tables(job, tmp_path / "t.duckdb", "communicators", "members", "ranks", "hosts", "jobs")
    comms = {r["desc"]: r for r in found["communicators"].to_dicts() if r["desc"] == "default_pg"}
    assert comms["default_pg"]["hash"] == 0xA11
    assert comms["default_pg"]["size"] == 4
    members = found["members"].sort("comm_id", "comm_rank")
    groups = [g["rank"].to_list() for _, g in members.group_by("comm_id", maintain_order=True)]
    assert sorted(groups) == [[0, 1], [0, 1, 2, 3], [2, 3]]
    assert found["ranks"]["rank"].to_list() == [0, 1, 2, 3]
    assert set(found["hosts"]["name"]) == {"host-0", "host-1", "host-2", "host-3"}
    assert found["jobs"]["world_size"].to_list() == [4]


def test_peers_become_global_ranks(job: Path, tmp_path: Path) -> None:
    _, found = tables(job, tmp_path / "t.duckdb", "flow_state", "flow_ops", "coll_ops")
    state = found["flow_state"]
    assert state.select("rank", "peer", "op_kind", "op_seq", "dir").unique().sort("rank").rows() == [
        (0, 1, "send", 1, "send"),
        (1, 0, "send", 1, "send"),
        (2, 3, "send", 1, "send"),
        (3, 2, "send", 1, "send"),
    ]
    assert state.select("chunks_total", "posted", "ready", "moved", "done", "qp").unique().rows() == [
        (5, 3, 2, 1, 1, None)
    ]
    ops = found["flow_ops"].filter(pl.col("slices") == 2).sort("rank")
    assert ops.select("rank", "peer", "channel", "bytes").rows() == [
        (0, 1, 1, 50),
        (1, 2, 1, 50),
        (2, 3, 1, 50),
        (3, 0, 1, 50),
    ]
    sends = found["coll_ops"].filter(pl.col("is_p2p")).sort("rank", "op_seq")
    assert sends.select("rank", "peer", "op_seq", "pair_seq").rows()[:2] == [(0, 1, 0, 0), (0, 1, 1, 1)]


def test_bytes_are_those_of_the_larger_side(job: Path, tmp_path: Path) -> None:
    _, found = tables(job, tmp_path / "t.duckdb", "coll_ops")
    gathers = found["coll_ops"].filter(pl.col("op_kind") == "all_gather")
    assert gathers["bytes"].unique().to_list() == [400]
    assert gathers["state"].unique().to_list() == ["completed"]
    assert gathers["end_is_derived"].unique().to_list() == [True]


def test_heartbeats_and_live_words_are_there(job: Path, tmp_path: Path) -> None:
    _, found = tables(job, tmp_path / "t.duckdb", "heartbeat", "group_status", "rank_dumps")
    assert set(found["heartbeat"]["rank"]) == {0, 1, 2, 3}
    assert found["heartbeat"]["n_open"].max() == 1
    last = found["group_status"].filter(pl.col("last_enqueued") == 0)
    assert set(last["rank"]) == {0, 1, 2, 3}
    assert found["rank_dumps"]["kind"].unique().to_list() == ["ring"]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
def test_export_loads_as_the_rings_do(job: Path, tmp_path: Path, suffix: str) -> None:
    exports = tmp_path / "exports"
    exports.mkdir()
    export_trace([open_trace(p) for p in sorted(job.glob("*.ring"))], exports / f"all.{suffix}", format_=suffix)
    names = ("flow_state", "flow_ops", "communicators", "members", "ranks", "group_status")
    _, rings = tables(job, tmp_path / "rings.duckdb", *names)
    summary, found = tables(exports, tmp_path / "exports.duckdb", *names)
    assert summary.formats == {"mycroft_trace": 1}
    for name in names:
        assert found[name].drop("file_id", strict=False).equals(rings[name].drop("file_id", strict=False)), name


def test_silence_of_an_agent_is_exported_and_loaded(job: Path, tmp_path: Path) -> None:
    traces = [open_trace(p) for p in sorted(job.glob("*.ring"))]
    traces[2] = replace(traces[2], unheard=True)
    exports = tmp_path / "exports"
    exports.mkdir()
    export_trace(traces, exports / "all.parquet", format_="parquet")
    _, found = tables(exports, tmp_path / "t.duckdb", "events")
    said = found["events"].filter(pl.col("name") == "unheard")
    assert said["rank"].to_list() == [2]
    assert said["text"].to_list() == ["nothing comes from the agent on host-2 any more"]


def test_rank_is_found_by_the_largest_communicator_where_no_launcher_told_it(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    for inside in range(4):
        write(folder, None, world=None, comm_rank=inside)
    # A test process has one pid; what tells processes apart is host and pid.
    for number, path in enumerate(sorted(folder.glob("*.ring"))):
        data = bytearray(path.read_bytes())
        host = 4096 + 120
        data[host : host + 10] = f"machine{number}\0\0".encode()[:10]
        path.write_bytes(data)
    _, found = tables(folder, tmp_path / "t.duckdb", "ranks", "flow_state")
    assert found["ranks"]["rank"].to_list() == [0, 1, 2, 3]
    assert found["flow_state"]["rank"].n_unique() == 4


def test_process_that_nobody_can_place_is_told_and_the_others_kept(job: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    with Recorder(directory=stranger, ring_mb=1, sampler=False) as r:
        with r.op(r.comm("alone", hash_=1, rank=0), "barrier"):
            pass
        r.path.rename(job / "stranger.ring")
    summary, found = tables(job, tmp_path / "t.duckdb", "coll_ops")
    assert [p for _, p in summary.problems if "which rank process" in p]
    assert summary.dropped["record of an unknown rank"] > 0
    assert set(found["coll_ops"]["rank"]) == {0, 1, 2, 3}


def test_damaged_ring_is_a_report_and_takes_nothing_down(job: Path, tmp_path: Path) -> None:
    victim = next(job.glob("rank2-*"))
    data = bytearray(victim.read_bytes())
    data[8:12] = (99).to_bytes(4, "little")
    victim.write_bytes(data)
    summary, found = tables(job, tmp_path / "t.duckdb", "flow_state")
    assert [p for _, p in summary.problems if "layout version 99, this build reads 1" in p]
    assert set(found["flow_state"]["rank"]) == {0, 1, 3}


def test_lost_records_are_counted_by_reason(job: Path, tmp_path: Path) -> None:
    victim = next(job.glob("rank1-*"))
    with victim.open("r+b") as file:
        file.truncate(266240 + 2 * 64)
    summary, _ = tables(job, tmp_path / "t.duckdb")
    assert summary.dropped["record missing"] > 0
