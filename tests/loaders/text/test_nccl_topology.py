"""Rings, trees, channels and collective calls as NCCL prints them."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from mycroft.loaders.text.nccl_topology import transport_of
from tests.loaders.text.recorder import Recorder, read

P = "a1:10:11 [0] NCCL INFO "
BORN = f"{P}ncclCommInitRank comm 0x7f rank 1 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xab - Init START\n"


def edges(found: Recorder, **wanted: object) -> list[tuple[int, int]]:
    return [(row["src"], row["dst"]) for row in found.rows("edges", **wanted)]


@pytest.mark.parametrize(
    "title", ["Channel 00/02 :    0   1   2   3", "Channel 00/02 : 0 1 2 3", "Channel 00/02: 0 1 2 3"]
)
def test_a_ring_s_order_closes_on_itself(tmp_path: Path, title: str) -> None:
    found = read(tmp_path, f"{BORN}{P}{title}\n")
    assert edges(found, pattern="ring", channel=0) == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_a_step_of_a_ring(tmp_path: Path) -> None:
    assert edges(read(tmp_path, f"{BORN}{P}Ring 03 : 0 -> 1 -> 2\n"), pattern="ring", channel=3) == [(0, 1), (1, 2)]


def test_trees_send_both_ways(tmp_path: Path) -> None:
    found = read(tmp_path, f"{BORN}{P}Trees [0] 2/-1/-1->1->0 [1] -1/-1/-1->1->3\n")
    assert sorted(edges(found, pattern="tree", channel=0)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert sorted(edges(found, pattern="tree", channel=1)) == [(1, 3), (3, 1)]


def test_the_root_of_a_tree_has_no_parent(tmp_path: Path) -> None:
    assert sorted(edges(read(tmp_path, f"{BORN}{P}Trees [0] 2/3/-1->1->-1\n"))) == [(1, 2), (1, 3), (2, 1), (3, 1)]


def test_a_step_of_a_tree(tmp_path: Path) -> None:
    assert sorted(edges(read(tmp_path, f"{BORN}{P}Tree 0 : 0 -> 1 -> 2/-1/-1\n"))) == [(0, 1), (1, 0), (1, 2), (2, 1)]


VIAS = {
    "NET/IB/1/GDRDMA": ("net_ib", "mlx5_1"),
    "NET/IB/0(1)/GDRDMA/Shared": ("net_ib", "mlx5_0"),
    "NET/Socket/0": ("net_socket", "Socket/0"),
    "NET/AWS Libfabric/3/GDRDMA": ("net_other", "AWS Libfabric/3"),
    "P2P/IPC": ("p2p", None),
    "P2P/IPC/read": ("p2p", None),
    "P2P/CUMEM": ("p2p", None),
    "P2P/CUMEM/read": ("p2p", None),
    "P2P/MNNVL": ("p2p", None),
    "P2P/direct pointer": ("p2p", None),
    "P2P/indirect/3[2]": ("p2p", None),
    "SHM/direct/direct": ("shm", None),
    "direct shared memory": ("shm", None),
    "COLLNET/SHARP/0/GDRDMA": ("collnet", None),
    "NVLS": ("nvls", None),
}


@pytest.mark.parametrize("via", VIAS)
def test_every_transport(tmp_path: Path, via: str) -> None:
    word, nic = VIAS[via]
    devices = f"{P}NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB ib0:10.0.0.5<0>\n"
    found = read(tmp_path, f"{BORN}{devices}{P}Channel 01/0 : 1[c4000] -> 2[1b000] [send] via {via}\n")
    (row,) = found.rows("edges")
    assert (row["src"], row["dst"], row["channel"], row["transport"], row.get("nic")) == (1, 2, 1, word, nic)
    assert transport_of(via) == word


def test_the_two_sides_of_an_edge_become_one(tmp_path: Path) -> None:
    lines = [
        f"{host}:{pid}:{pid} [0] NCCL INFO {text}\n"
        for host, pid, rank, side in (("a1", 10, 0, "send"), ("b1", 20, 1, "receive"))
        for text in (
            f"ncclCommInitRank comm 0x{pid} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xab - Init START",
            f"NET/IB : Using [0]mlx5_{rank}:1/IB ; OOB ib0:10.0.0.{pid}<0>",
            f"Channel 00/0 : 0[0] -> 1[0] [{side}] via NET/IB/0/GDRDMA",
        )
    ]
    rows = read(tmp_path, "".join(lines)).rows("edges")
    assert {row.get("nic") for row in rows} == {"mlx5_0"} | ({None} if len(rows) == 2 else set())
    assert "mlx5_1" in {row.get("dst_nic") for row in rows}


def test_channels_after_the_rings_are_trees_and_further_indices_are_point_to_point(tmp_path: Path) -> None:
    text = (
        f"{BORN}{P}Channel 00/0 : 1[0] -> 2[1] via P2P/IPC\n{P}Connected all rings\n"
        f"{P}Channel 00/0 : 1[0] -> 3[1] via P2P/IPC\n{P}Channel 00/1 : 1[0] -> 0[1] via P2P/IPC\n"
    )
    rows = read(tmp_path, text).rows("edges")
    assert [(r["pattern"], r["dst"]) for r in sorted(rows, key=lambda r: -r["dst"])] == [
        ("tree", 3),
        ("ring", 2),
        ("p2p", 0),
    ]


def test_edges_belong_to_what_their_thread_is_setting_up(tmp_path: Path) -> None:
    two = "a1:10:12 [0] NCCL INFO "
    text = (
        BORN
        + f"{two}ncclCommInitRank comm 0x80 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xcd - Init START\n"
        + f"{P}Channel 00/0 : 1[0] -> 2[1] via P2P/IPC\n{two}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    )
    found = read(tmp_path, text)
    names = {number: name for (name, _), number in found.comms.items()}
    assert {(names[r["comm_id"]], r["src"]) for r in found.rows("edges")} == {("0xab", 1), ("0xcd", 0)}


@pytest.mark.parametrize(
    "line", ["Channel 00/0 : 1[0] -> 9[1] via P2P/IPC", "Channel 300/0 : 1[0] -> 2[1] via P2P/IPC"]
)
def test_ranks_outside_the_communicator_are_not_believed(tmp_path: Path, line: str) -> None:
    assert not read(tmp_path, f"{BORN}{P}{line}\n").rows("edges")


def test_edges_of_an_unknown_communicator_are_left_out(tmp_path: Path) -> None:
    assert not read(tmp_path, f"{P}Channel 00/0 : 1[0] -> 2[1] via P2P/IPC\n").rows("edges")


def call(op: str = "AllGather", count: str = "1a6", comm: str = "0x7f", datatype: int = 9, root: int = 0) -> str:
    return (
        f"{P}{op}: opCount {count} sendbuff 0x7f1 recvbuff 0x7f2 count 1048576 datatype {datatype} op 0 root {root} "
        f"comm {comm} [nranks=4] stream 0x5581\n"
    )


def test_a_collective_call(tmp_path: Path) -> None:
    row = read(tmp_path, BORN + call()).event("coll_call")
    wanted = {"seq": 0x1A6, "op_kind": "all_gather", "in_numel": 1 << 20, "dtype": "bfloat16", "group_name": "0xab", "comm_rank": 1}  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted


def test_the_root_of_a_send_is_its_peer(tmp_path: Path) -> None:
    row = read(tmp_path, BORN + call("Send", "7", datatype=7, root=3)).event("coll_call")
    assert (row["op_kind"], row["code"], row["dtype"]) == ("send", 3, "float32")


def test_a_call_on_an_unknown_pointer_keeps_it(tmp_path: Path) -> None:
    row = read(tmp_path, BORN + call(comm="0x99", datatype=77)).event("coll_call")
    assert (row["group_name"], row.get("dtype"), row.get("comm_rank")) == ("0x99", None, None)
