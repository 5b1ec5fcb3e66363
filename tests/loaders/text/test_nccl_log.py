"""What NCCL prints from 2.10 to 2.30: identity, phases, environment, faults."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.evidence_wrappers import WRAPPERS
from tests.loaders.text.recorder import read

P = "gpu-a1:4711:4790 [3] "
INIT_LINES = {
    "2.10": ("comm 0x7f10 rank 3 nranks 16 cudaDev 3 busId c4000 - Init COMPLETE", None, None, "complete"),
    "2.16": ("comm 0x7f10 rank 3 nranks 16 cudaDev 3 busId c4000 commId 0xab12 - Init COMPLETE", "0xab12", None, "complete"),
    "2.18 start": ("comm 0x7f10 rank 3 nranks 16 cudaDev 1 nvmlDev 3 busId c4000 commId 0xab12 - Init START", "0xab12", None, "start"),
    "2.21": ("ncclCommInitRank comm 0x7f10 rank 3 nranks 16 cudaDev 1 nvmlDev 3 busId c4000 commId 0xab12 - Init COMPLETE", "0xab12", "ncclCommInitRank", "complete"),
    "2.23": ("ncclCommInitRankConfig comm 0x7f10 rank 3 nranks 16 cudaDev 1 nvmlDev 3 busId c4000 commId 0xab12 - Init START", "0xab12", "ncclCommInitRankConfig", "start"),
    "2.29": ("[Rank 3] ncclCommInitRankConfig comm 0x7f10 rank 3 nranks 16 cudaDev 1 nvmlDev 3 busId c4000 commId 0xab12 - Init START", "0xab12", "ncclCommInitRankConfig", "start"),
}  # fmt: skip


@pytest.mark.parametrize("release", INIT_LINES)
def test_a_communicator_s_birth_in_every_release(tmp_path: Path, release: str) -> None:
    text, name, function, phase = INIT_LINES[release]
    found = read(tmp_path, f"{P}NCCL INFO {text}\n")
    row = found.event("comm_init")
    assert (row["name"], row["comm_rank"], row["value"], row["device"], row["pid"]) == (
        phase,
        3,
        16,
        "0000:c4:00.0",
        4711,
    )
    assert row.get("group_name") == name
    assert row.get("detail") == function
    assert found.host_name(row) == "gpu-a1"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ncclCommSplit comm 0x8f rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1b000 parent 0x7f10 color 7 key 3 commId 0xcd - Init COMPLETE", "0xcd"),
        ("ncclCommSplit comm 0x8f rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1b000 parent 0x7f10 splitCount 4 color 7 key 3 - Init COMPLETE", "0xab/split4/color7"),
    ],
)  # fmt: skip
def test_a_split_is_named_by_its_id_or_by_parent_count_and_colour(tmp_path: Path, text: str, name: str) -> None:
    born = "ncclCommInitRank comm 0x7f10 rank 3 nranks 16 cudaDev 1 nvmlDev 3 busId c4000 commId 0xab - Init COMPLETE"
    found = read(tmp_path, f"{P}NCCL INFO {born}\n{P}NCCL INFO {text}\n")
    assert found.rows(kind="comm_init")[1]["group_name"] == name


def test_a_pointer_means_a_communicator_only_within_its_process(tmp_path: Path) -> None:
    lines = [
        f"h{i}:{i}:1 [0] NCCL INFO ncclCommInitRank comm 0x7f rank {i} nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x{i}{i} - Init START"
        for i in (0, 1)
    ] + [
        f"h{i}:{i}:1 [0] NCCL INFO comm 0x7f rank {i} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"
        for i in (0, 1)
    ]
    found = read(tmp_path, "\n".join(lines) + "\n")
    rows = found.rows(kind="identity", name="local_rank")
    assert [row["group_name"] for row in rows] == ["0x0", "0x11"]
    assert [row["local_rank"] for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("word", "kind", "name"),
    [
        ("Abort COMPLETE", "nccl_abort", "abort"),
        ("Abort START", "nccl_abort", "abort_start"),
        ("Destroy COMPLETE", "nccl_abort", "destroy"),
        ("Revoke START", "nccl_abort", "revoke_start"),
    ],
)
def test_a_communicator_s_end(tmp_path: Path, word: str, kind: str, name: str) -> None:
    found = read(tmp_path, f"{P}NCCL INFO comm 0x7f10 rank 3 nranks 16 cudaDev 3 busId c4000 - {word}\n")
    assert found.event(kind)["name"] == name


def test_a_rank_outside_its_own_size_is_not_believed(tmp_path: Path) -> None:
    found = read(tmp_path, f"{P}NCCL INFO comm 0x1 rank 16 nranks 16 cudaDev 3 busId c4000 - Init COMPLETE\n")
    assert not found.rows(kind="comm_init")


PREFIXES = {
    "plain": ("gpu-a1:4711:4790 [3] transport/net_ib.cc:1090 NCCL WARN ", None),
    "2.26 stamp": ("[2026-08-14 23:08:01] gpu-a1:4711:4790 [3] transport/net_ib.cc:1090 NCCL WARN ", datetime(2026, 8, 14, 23, 8, 1)),
    "2.29 function": ("[2026-08-14 23:08:01] gpu-a1:4711:4790 [3] transport/net_ib.cc:1090 (ncclIbTest) NCCL WARN ", datetime(2026, 8, 14, 23, 8, 1)),
    "own stamp": ("[2026-08-14 23:08:01.250] gpu-a1:4711:4790 [3] transport/net_ib.cc:1090 NCCL WARN ", datetime(2026, 8, 14, 23, 8, 1, 250000)),
    "no host": (":4711:4790 [-1] transport/net_ib.cc:1090 NCCL WARN ", None),
    "old": ("gpu-a1:4711:4790 [3] NCCL WARN ", None),
}  # fmt: skip
COMPLETIONS = {
    "2.19": ("NET/IB : Got completion from peer 10.9.0.7<49152> with error 12, opcode 0, len 0, vendor err 129 (Send)", "send"),
    "2.20": ("NET/IB : Got completion from peer 10.9.0.7<49152> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGids::ffff:10.9.0.7 hca mlx5_4", "recv"),
    "2.29": ("NET/IB: Got completion from peer 10.9.0.7<49152> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1) vendor_err=129  localGid ::ffff:10.9.0.2 remoteGids::ffff:10.9.0.7 hca mlx5_4", None),
}  # fmt: skip


@pytest.mark.parametrize("release", COMPLETIONS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_failed_transfer_in_every_release_and_prefix(tmp_path: Path, release: str, prefix: str) -> None:
    before, moment = PREFIXES[prefix]
    text, side = COMPLETIONS[release]
    found = read(tmp_path, f"\n{before}{text}\n")
    row = found.event("ib_error")
    assert (row["code"], row["peer"], row["pid"], row["value"]) == (12, "10.9.0.7", 4711, 129)
    assert row.get("op_kind") == side
    assert row.get("device") == ("mlx5_4" if "hca" in text else None)
    assert row.get("ts") == moment
    assert found.host_name(row) == (None if prefix == "no host" else "gpu-a1")
    assert not found.rows(kind="nccl_error")


@pytest.mark.parametrize(
    ("text", "kind", "device"),
    [
        ("NET/IB : Got async event : port error", "link_down", None),
        ("NET/IB : mlx5_3:1 Got async error event: port error", "link_down", "mlx5_3"),
        ("NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)", "link_down", "mlx5_3"),
        ("NET/IB : mlx5_3:1 Got non-fatal async event: port active(9)", "link_up", "mlx5_3"),
        ("NET/IB : mlx5_3:1 Got non-fatal async event: GID table change(18)", "ib_error", "mlx5_3"),
        ("NET/IB : mlx5_3:1 async fatal event: local catastrophic error", "link_down", "mlx5_3"),
        ("NET/IB : mlx5_3:1 async fatal event on QP 0x55: local work queue catastrophic error", "link_down", "mlx5_3"),
    ],
)
def test_a_port_that_is_lost_or_back(tmp_path: Path, text: str, kind: str, device: str | None) -> None:
    row = read(tmp_path, f"\n{P}transport/net_ib.cc:150 NCCL WARN {text}\n").event(kind)
    assert (row["name"], row.get("device")) == ("async_event", device)


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("Call to ibv_modify_qp failed with error Connection timed out [errno 110]", "connect_failed", {"name": "modify_qp", "code": 110}),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_4:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.1.0.2, remote GID ::ffff:10.1.0.9", "connect_failed", {"name": "modify_qp", "code": 110, "device": "mlx5_4", "peer": "10.1.0.9"}),
        ("NET/IB : Unable to open device erdma_1", "nic_state", {"name": "unable_to_open", "device": "erdma_1"}),
        ("Net : Connection closed by remote peer node7<43211>", "connection_closed", {"peer": "node7"}),
        ("socketProgress: Connection closed by remote peer node7.cluster<43211>", "connection_closed", {"peer": "node7.cluster"}),
        ("socketProgress: Connection closed by remote peer 10.0.0.7<43211>", "connection_closed", {"peer": "10.0.0.7"}),
        ("socketStartConnect: Connect to 172.17.0.1<40001> failed : Connection refused", "connect_failed", {"name": "connect", "peer": "172.17.0.1", "detail": "Connection refused"}),
        ("Net : Connect to 172.17.0.1<40001> failed : No route to host", "connect_failed", {"name": "connect", "peer": "172.17.0.1", "detail": "No route to host"}),
        ("socketPollConnect: connect to 172.17.0.1<40001> returned Connection timed out, exceeded error retry count after 35 attempts", "connect_failed", {"name": "connect", "peer": "172.17.0.1"}),
        ("socketFinalizeAccept: wrong type 4 != 3", "connect_failed", {"name": "foreign_client"}),
        ("socketFinalizeAccept from 10.0.0.66<55555>: wrong magic 0 != aa55", "connect_failed", {"name": "foreign_client"}),
        ("Call to posix_fallocate failed : No space left on device", "nccl_error", {"name": "shm"}),
        ("Error while creating shared memory segment /dev/shm/nccl-abc (size 9637888)", "nccl_error", {"name": "shm"}),
        ("Cuda failure 2 'out of memory'", "out_of_memory", {"name": "nccl_cuda", "code": 2}),
        ("Cuda failure 'unspecified launch failure'", "cuda_error", {"name": "nccl_cuda"}),
        ("Failed to CUDA calloc async 4194304 bytes", "cuda_error", {"name": "nccl_cuda"}),
        ("Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000", "nccl_error", {"name": "duplicate_gpu", "comm_rank": 0, "value": 1.0, "device": "0000:1b:00.0"}),
        ("Mismatched NCCL version detected : rank 3 version 22105 rank 0 version 21805", "nccl_error", {"name": "version_mismatch", "comm_rank": 3, "value": 22105.0}),
        ("MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX configuration", "nccl_error", {"name": "imex"}),
        ("Mismatched collective detected, please check your collective calls at and around rank 3.", "nccl_error", {"name": "argument"}),
        ("AllReduce : invalid root 9 (root should be in the 0..4 range)", "nccl_error", {"name": "argument"}),
        ("NET/OFI Request 0x7f completed with error. RC: 21. Error: unknown error", "ib_error", {"name": "ofi", "code": 21}),
        ("Proxy Call to rank 14 failed (Connect)", "nccl_error", {"name": "proxy", "value": 14.0, "detail": "Connect"}),
        ("[Proxy Service 14] Failed to execute operation Connect from rank 14, retcode 2", "nccl_error", {"name": "proxy", "value": 14.0, "code": 2}),
        ("something that nobody has seen before", "nccl_error", {"name": "warning", "detail": "something that nobody has seen before"}),
    ],
)  # fmt: skip
def test_a_warning_that_locates_a_fault(tmp_path: Path, text: str, kind: str, wanted: dict[str, object]) -> None:
    found = read(tmp_path, f"\n{P}misc/socket.cc:480 NCCL WARN {text}\n")
    row = found.event(kind)
    assert {key: row.get(key) for key in wanted} == wanted
    assert (row["pid"], found.host_name(row)) == (4711, "gpu-a1")
    assert len([r for r in found.rows() if r["kind"] != "log_end"]) == 1


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("[Service thread] Connection closed by localRank 3", "connection_closed", {"name": "local_rank", "value": 3.0}),
        ("Bootstrap : Using eth0:10.0.0.5<0>", "identity", {"name": "address", "device": "eth0", "peer": "10.0.0.5", "detail": "bootstrap"}),
        ("Bootstrap: Using eth0:10.0.0.5<0>", "identity", {"name": "address", "device": "eth0", "peer": "10.0.0.5"}),
        ("Using network Socket", "identity", {"name": "network", "detail": "Socket"}),
        ("Using network AWS Libfabric", "identity", {"name": "network", "detail": "AWS Libfabric"}),
        ("NET/IB : No device found.", "nic_state", {"name": "no_device"}),
        ("NCCL_IB_HCA set by environment to =mlx5_0,mlx5_1.", "nccl_env", {"name": "NCCL_IB_HCA", "detail": "=mlx5_0,mlx5_1"}),
        ("Init timings - ncclCommInitRank: rank 3 nranks 16 total 1.43 (kernels 0.2, bootstrap 0.4)", "comm_init", {"name": "timings", "comm_rank": 3, "dur_ms": 1430.0}),
        ("Init timings: rank 3 nranks 16 total 1.43 (kernels 0.2)", "comm_init", {"name": "timings", "dur_ms": 1430.0}),
        ("16 coll channels, 0 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer", "identity", {"name": "channels"}),
    ],
)  # fmt: skip
def test_what_a_process_says_of_itself(tmp_path: Path, text: str, kind: str, wanted: dict[str, object]) -> None:
    found = read(tmp_path, f"{P}NCCL INFO {text}\n")
    row = found.event(kind)
    assert {key: row.get(key) for key in wanted} == wanted
    assert (row["pid"], found.host_name(row)) == (4711, "gpu-a1")


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        ("[0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:10.0.0.5<0>", ["mlx5_0", "mlx5_1"]),
        ("[0]mlx5_0:1/IB [1]mlx5_3:1/IB ; OOB ib0:10.0.0.5<0>", ["mlx5_0", "mlx5_3"]),
        ("[0]{mlx5_0:1/RoCE,mlx5_1:1/RoCE} [1]mlx5_2:1/RoCE [RO]; OOB bond0:10.0.0.5<0>", ["mlx5_0", "mlx5_2"]),
    ],
)
def test_network_devices_stand_in_the_order_of_their_numbers(tmp_path: Path, listed: str, names: list[str]) -> None:
    found = read(tmp_path, f"{P}NCCL INFO NET/IB : Using {listed}\n")
    rows = found.rows(kind="identity", name="nic")
    assert [(row["value"], row["device"]) for row in rows] == list(enumerate(names))
    assert found.event("identity", name="address")["peer"] == "10.0.0.5"


def test_socket_interfaces_give_addresses(tmp_path: Path) -> None:
    found = read(tmp_path, f"{P}NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0> [1]docker0:172.17.0.1<0>\n")
    assert [(r["device"], r["peer"]) for r in found.rows(kind="identity")] == [
        ("eth0", "10.0.0.5"),
        ("docker0", "172.17.0.1"),
    ]


@pytest.mark.parametrize("what", ["rings", "rings, use ring PXN 0 GDR 1", "trees", "NVLS tree"])
def test_the_last_phase_shows_who_lags(tmp_path: Path, what: str) -> None:
    born = "ncclCommInitRank comm 0x7f10 rank 3 nranks 16 cudaDev 1 nvmlDev 3 busId c4000 commId 0xab - Init START"
    connected = "Connected NVLS tree" if "NVLS" in what else f"Connected all {what}"
    found = read(tmp_path, f"{P}NCCL INFO {born}\n{P}NCCL INFO {connected}\n")
    row = found.rows(kind="comm_init")[1]
    assert row["name"] == "connected_" + what.split(",")[0].lower().replace(" ", "_")
    assert (row["comm_rank"], row["group_name"]) == (3, "0xab")


def test_the_version_has_no_prefix(tmp_path: Path) -> None:
    assert read(tmp_path, "NCCL version 2.21.5+cuda12.4\n").event("nccl_version")["name"] == "2.21.5+cuda12.4"


@pytest.mark.parametrize("thread", ["", " [Async thread]", " [Proxy Service]"])
def test_a_call_s_way_back_up_names_its_error_once(tmp_path: Path, thread: str) -> None:
    lines = "".join(
        f"{P}NCCL INFO {where} -> 6{thread}\n" for where in ("misc/socket.cc:480", "transport/net_ib.cc:95")
    )
    row = read(tmp_path, lines).event("nccl_error")
    assert (row["name"], row["code"], row["detail"]) == ("return", 6, "misc/socket.cc:480")


def test_two_messages_on_one_line_have_their_own_writers(tmp_path: Path) -> None:
    one = "h1:11:12 [0] NCCL INFO Using network Socket"
    two = "h2:21:22 [1] NCCL INFO NET/IB : No device found."
    found = read(tmp_path, f"{one}{two}\n")
    assert found.event("nic_state")["pid"] == 21


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_wrappers_change_nothing(tmp_path: Path, wrapper: str) -> None:
    lines = f"{P}NCCL INFO {INIT_LINES['2.21'][0]}\n{P}NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_3:1/IB ; OOB ib0:10.0.0.5<0>\n" + f"{PREFIXES['plain'][0]}{COMPLETIONS['2.20'][0]}\n"  # fmt: skip
    found = read(tmp_path, WRAPPERS[wrapper](lines))
    assert found.event("comm_init")["device"] == "0000:c4:00.0"
    assert len(found.rows(kind="identity")) == 3
    row = found.event("ib_error")
    assert (row["code"], row["pid"], row["device"], found.host_name(row)) == (12, 4711, "mlx5_4", "gpu-a1")
