"""CoMMA and the example profiler: operations on the clock of each process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders.comma import CommaLoader
from mycroft.loaders.example_profiler import ExampleProfilerLoader
from tests.loaders.sources import columns, dropped, load_with, ns
from tests.loaders.text.recorder import Recorder

HASH = 0x58AECEBABB9E37AF


def coll(rank: int, n: int, *, late: int = 0, zero: int = 0, **more: Any) -> dict[str, Any]:
    """Operation `n` of a rank whose clock begins at `zero` µs; all end at the same moment."""
    called, end = 100_000 * n, 100_000 * n + 80_000
    return {
        "args": {"size": 1 << 20},
        "cat": "COLL",
        "comm_hash": hex(HASH),
        "name": "all_reduce",
        "ph": "X",
        "rank": rank,
        "n_ranks": 4,
        "seq_num": n,
        "ts": called + zero,
        "dur": 40,
        "child_start_ts": called + late + zero,
        "child_dur": end - called - late,
        "algo": "RING",
        "proto": "LL",
        "n_max_channel": 8,
        **more,
    }


def files(rows: dict[int, list[dict[str, Any]]]) -> dict[str, bytes]:
    return {f"node-1-pid{100 + r}.json": "\n".join(json.dumps(x) for x in found).encode() for r, found in rows.items()}


def load(folder: Path, contents: dict[str, bytes]) -> Recorder:
    return load_with(CommaLoader(), folder, contents)


def test_clocks_are_put_together_by_the_ends(tmp_path: Path) -> None:
    rows = {r: [coll(r, n, late=50_000 if r == 2 else 0, zero=1_000_000 * r) for n in range(20)] for r in range(4)}
    found = load(tmp_path, files(rows))
    starts = dict(zip(found.frame("coll_ops")["rank"], ns(found, "kstart_ts"), strict=True))
    seventh = {row["rank"]: row for row in found.rows("coll_ops", op_seq=7)}
    assert {r: row["dur_ns"] for r, row in seventh.items()} == {
        0: 80_000_000,
        1: 80_000_000,
        2: 30_000_000,
        3: 80_000_000,
    }
    assert {r: row["start_ts"] - seventh[0]["start_ts"] for r, row in seventh.items()}[2].total_seconds() == 0.05
    assert {r: row["start_ts"] - seventh[0]["start_ts"] for r, row in seventh.items()}[3].total_seconds() == 0
    assert set(starts) == {0, 1, 2, 3}
    assert seventh[0]["algo"] == "RING"
    assert seventh[0]["bytes"] == 1 << 20


def test_an_operation_given_up_had_not_ended(tmp_path: Path) -> None:
    rows = {r: [coll(r, 0), coll(r, 1, **({"reclaimed": True, "timeout_dur": 5} if r else {}))] for r in range(4)}
    found = load(tmp_path, files(rows))
    assert columns(found, "rank", "state", op_seq=1) == [
        (0, "completed"),
        (1, "started"),
        (2, "started"),
        (3, "started"),
    ]
    stuck = found.rows(name="not_ended")
    assert [(r["rank"], r["level"]) for r in stuck] == [(1, "warning"), (2, "warning"), (3, "warning")]
    assert "all_reduce 1 had not ended" in stuck[0]["text"]


def test_point_to_point_names_its_peer(tmp_path: Path) -> None:
    rows = {0: [coll(0, 0), coll(0, 1, cat="P2P", name="send", peer=3, seq_num=None)], 3: [coll(3, 0)]}
    (op,) = load(tmp_path, files(rows)).rows("coll_ops", op_kind="send")
    assert (op["peer"], op["is_p2p"], op["op_seq"]) == (3, True, 0)


def test_groups_and_proxies_are_no_operations(tmp_path: Path) -> None:
    rows = {0: [coll(0, 0), {"cat": "GROUP", "ts": 1, "rank": 0}, {"cat": "PROXY", "name": "ProxyOp", "rank": 0}]}
    found = load(tmp_path, files(rows))
    assert not dropped(found)
    assert len(found.rows("coll_ops")) == 1


def test_an_array_is_read_like_lines(tmp_path: Path) -> None:
    text = "[\n" + ",\n".join(json.dumps(coll(0, n)) for n in range(3)) + ",\n"
    assert len(load(tmp_path, {"node-1-pid100.json": text.encode()}).rows("coll_ops")) == 3


def test_what_comma_cannot_say_is_counted(tmp_path: Path) -> None:
    text = json.dumps(coll(0, 0)) + '\n{"cat": "COLL"\n' + json.dumps(coll(0, 1, comm_hash="x")) + "\n"
    assert dropped(load(tmp_path, {"a-1-pid100.json": text.encode()})) == {
        "record cut short or broken": 1,
        "record without communicator, rank or name": 1,
    }


@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, None, -1, 2**70, 1.5, True])
def test_members_of_a_wrong_kind_do_no_harm(tmp_path: Path, value: Any) -> None:
    for key in coll(0, 0):
        found = load(tmp_path / key, files({0: [coll(0, 0), {**coll(0, 1), key: value}], 1: [coll(1, 0)]}))
        assert {0, 1} <= {row["rank"] for row in found.rows("coll_ops", op_seq=0)}, key


def example(rank: int, *, quoted: bool = True, ended: bool = True, closed: bool = True) -> str:
    dtype, stream = ('"ncclFloat32"', '"0x7f12"') if quoted else ("ncclFloat32", "0x7f12")
    args = f'"SeqNum": %d, "CommHash": {HASH}, "Rank": {rank}, "Count": 100, "Datatype": {dtype}'
    args += ', "Algorithm": "RING", "Protocol": "LL", "nChannels": 2'
    head = f'"pid": {9 + rank}, "tid": 1'
    lines = [
        f'{{"name": "AllReduce", "cat": "COLL_API", "ph": "b", "id": 0, {head}, "ts": 0.000000, "args": {{"count": 100, "Stream": {stream}}}}}',  # noqa: E501
        f'{{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, {head}, "ts": 1000.5, "args": {{{args % 7}}}}}',
        f'{{"name": "KernelCh", "cat": "GPU", "ph": "b", "id": 0, {head}, "ts": 1010.5, "args": {{"Channel": 0}}}}',
        f'{{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 0, {head}, "ts": 2000.75}}',
        f'{{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 1, {head}, "ts": 3000.5, "args": {{{args % 8}}}}}',
    ]
    if ended:
        lines.append(f'{{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 1, {head}, "ts": 3500.5}}')
    return "[\n" + "".join(line + ",\n" for line in lines) + ("]\n" if closed else "")


@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("closed", [True, False])
def test_the_example_profiler(tmp_path: Path, quoted: bool, closed: bool) -> None:
    text = example(0, quoted=quoted, closed=closed)
    found = load_with(ExampleProfilerLoader(), tmp_path, {"ncclprof-nodeA-77.txt": text.encode()})
    one, two = found.rows("coll_ops")
    wanted = ("all_reduce", 7, 990_250, "completed", 400, "RING", 2)
    assert tuple(one[k] for k in ("op_kind", "op_seq", "dur_ns", "state", "bytes", "algo", "channels")) == wanted
    assert ns(found, "kstart_ts")[0] == 1_010_500
    assert ns(found, "enq_ts")[0] == 1_000_500
    assert two["dur_ns"] == 500_000
    assert not dropped(found)


def test_what_was_in_flight_when_the_process_died(tmp_path: Path) -> None:
    text = example(0, ended=False, closed=False)
    found = load_with(ExampleProfilerLoader(), tmp_path, {"ncclprof-nodeA-77.txt": text.encode()})
    assert columns(found, "op_seq", "state") == [(7, "completed"), (8, "started")]
    assert found.event("op_perf", name="not_ended")["seq"] == 8


def test_hosts_and_processes_come_from_name_and_event(tmp_path: Path) -> None:
    contents = {
        f"ncclprof-node{r}-{77 + r}.txt": example(r).replace('"nChannels"', '"nRanks": 2, "nChannels"').encode()
        for r in (0, 1)
    }
    found = load_with(ExampleProfilerLoader(), tmp_path, contents)
    assert {r: (facts["host"], facts["pid"]) for r, facts in found.ranks.items()} == {0: ("node0", 9), 1: ("node1", 10)}


def test_an_end_alone_is_counted(tmp_path: Path) -> None:
    text = '[{"name": "AllReduce", "cat": "COLL", "ph": "e", "id": 5, "pid": 1, "ts": 3},\n' + example(0)[2:]
    found = load_with(ExampleProfilerLoader(), tmp_path, {"p-nodeA-77.txt": text.encode()})
    assert dropped(found) == {"end without a beginning": 1}
