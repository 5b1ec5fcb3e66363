"""What the kernel and its drivers print, in every kind of stamp."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.evidence_wrappers import WRAPPERS
from tests.loaders.text.recorder import read

XID = "NVRM: Xid (PCI:0000:97:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
STAMPS = {
    "boot": ("[12345.678901] ", None),
    "dmesg -T": ("[Tue Mar  3 02:17:05 2026] ", datetime(2026, 3, 3, 2, 17, 5)),
    "iso": ("2026-03-03T02:17:05.123456+00:00 gpu-7 kernel: ", datetime(2026, 3, 3, 2, 17, 5, 123456)),
    "iso and boot": ("2026-03-03T02:17:05.123456+00:00 gpu-7 kernel: [12345.678901] ", datetime(2026, 3, 3, 2, 17, 5, 123456)),
    "iso with zone": ("2026-03-03T03:17:05+01:00 gpu-7 kernel: ", datetime(2026, 3, 3, 2, 17, 5)),
    "facility": ("kern  :warn  : [Tue Mar  3 02:17:05 2026] ", datetime(2026, 3, 3, 2, 17, 5)),
    "priority": ("<4>[12345.678901] ", None),
    "priority and date": ("<4>[Tue Mar  3 02:17:05 2026] ", datetime(2026, 3, 3, 2, 17, 5)),
    "nothing": ("", None),
}  # fmt: skip


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_gpu_error_under_every_stamp(tmp_path: Path, stamp: str) -> None:
    prefix, moment = STAMPS[stamp]
    found = read(tmp_path, f"{prefix}{XID}\n")
    row = found.event("xid")
    assert (row["code"], row["device"], row["name"], row["level"]) == (79, "0000:97:00.0", "fatal", "error")
    assert row.get("ts") == moment
    assert "pid" not in row
    assert found.host_name(row) == ("gpu-7" if "gpu-7" in prefix else None)


@pytest.mark.parametrize("stamp", ["Mar  3 02:17:05 gpu-7 kernel: ", "Mar 03 02:17:05.123456 gpu-7 kernel: "])
def test_syslog_has_a_host_and_no_year(tmp_path: Path, stamp: str) -> None:
    found = read(tmp_path, f"{stamp}{XID}\n")
    row = found.event("xid")
    assert found.host_name(row) == "gpu-7"
    assert (row["ts"].month, row["ts"].day, row["ts"].hour) == (3, 3, 2) if "ts" in row else True


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("NVRM: Xid (PCI:0000:97:00): 13, pid=4711, name=python3, Graphics SM Warp Exception", {"code": 13, "pid": 4711, "name": "consequence", "peer": "python3", "level": "warning"}),
        ("NVRM: Xid (PCI:0000:97:00): 31, pid=4711, Ch 00000008, MMU Fault", {"code": 31, "pid": 4711, "name": "consequence"}),
        ("NVRM: Xid (0000:97:00): 79", {"code": 79, "device": "0000:97:00.0", "name": "fatal"}),
        ("NVRM: Xid (PCI:0000:97:00): 45, pid='4711', name=python3, channel 0x8 (caused by previous Xid 94)", {"code": 45, "pid": 4711, "name": "consequence"}),
        ("NVRM: Xid (PCI:0000:97:00): 48, pid=4711, An uncorrectable double bit error (DBE)", {"code": 48, "name": "fatal"}),
        ("NVRM: Xid (PCI:0000:97:00): 63, pid=1, Row Remapper: New row marked for remapping", {"code": 63, "name": "fault"}),
        ("NVRM: Xid (PCI:0000:97:00): 64, Row Remapper: failed", {"code": 64, "name": "fatal"}),
        ("NVRM: Xid (PCI:0000:97:00): 74, pid=1, NVLink: fatal error detected on link 3", {"code": 74, "name": "fatal", "detail": "NVLink error, link 3"}),
        ("NVRM: Xid (PCI:0001:17:00): 119, pid=1, Timeout waiting for RPC from GSP0!", {"code": 119, "device": "0001:17:00.0", "name": "fatal"}),
        ("NVRM: Xid (PCI:0000:97:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 08", {"code": 149, "name": "fault"}),
        ("NVRM: Xid (PCI:0000:97:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 08", {"code": 149, "name": "fatal"}),
        ("NVRM: Xid (PCI:0000:97:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", {"code": 154, "name": "remedy"}),
        ("NVRM: Xid (PCI:0000:97:00): 999, something new", {"code": 999, "name": "fault"}),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 44 egress nonposted PRIV error", {"code": 12028, "name": "switch", "level": "warning", "device": "0000:c1:00.0"}),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", {"code": 20034, "name": "switch", "level": "error"}),
        ("NVRM: GPU 0000:97:00.0: GPU has fallen off the bus.", {"code": 79, "device": "0000:97:00.0"}),
    ],
)  # fmt: skip
def test_errors_of_gpus_and_switches(tmp_path: Path, text: str, wanted: dict[str, Any]) -> None:
    row = read(tmp_path, f"[12345.678901] {text}\n").event("xid")
    assert {key: row.get(key) for key in wanted} == wanted


def test_a_gpu_lost_in_three_lines(tmp_path: Path) -> None:
    text = (
        "[1.000001] NVRM: The NVIDIA GPU 0000:b3:00.0\n[1.000002] NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "[1.000003] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    assert read(tmp_path, text).event("xid")["device"] == "0000:b3:00.0"


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("mlx5_core 0000:c3:00.0 mlx5_3: Port: 1 Link DOWN", "link_down", {"device": "mlx5_3", "code": 1, "peer": "0000:c3:00.0", "level": "error"}),
        ("mlx5_core 0000:c3:00.0 mlx5_3: Port: 1 Link INIT", "link_down", {"device": "mlx5_3", "level": "warning"}),
        ("mlx5_core 0000:c3:00.0 mlx5_3: Port: 1 Link ACTIVE", "link_up", {"device": "mlx5_3", "level": "info"}),
        ("mlx5_core 0000:9b:00.0 ens5np0: Link down", "link_down", {"device": "ens5np0", "level": "error"}),
        ("mlx5_core 0000:9b:00.0 ens5np0: Link up", "link_up", {"device": "ens5np0"}),
        ("bnxt_en 0000:9b:00.0 ens5np0: NIC Link is Down", "link_down", {"device": "ens5np0"}),
        ("igb 0000:01:00.0 eno1: igb: eno1 NIC Link is Up 1000 Mbps Full Duplex", "link_up", {}),
        ("IPv6: ADDRCONF(NETDEV_CHANGE): ens5np0: link becomes ready", "link_up", {"device": "ens5np0"}),
        ("mlx5_core 0000:9b:00.0: Port module event: module 0, Cable unplugged", "link_down", {"name": "module", "peer": "0000:9b:00.0"}),
        ("mlx5_core 0000:9b:00.0: Port module event[error]: module 0, Cable error, Power budget exceeded", "link_down", {"name": "module"}),
        ("mlx5_core 0000:9b:00.0: Port module event: module 0, Cable plugged", "link_up", {"name": "module"}),
        ("mlx5_core 0000:9b:00.0 mlx5_1: device's health compromised - reached miss count", "nic_state", {"name": "firmware", "device": "mlx5_1"}),
        ("mlx5_core 0000:9b:00.0: cmd_work_handler:887:(pid 2): failed to allocate command entry, timeout", "nic_state", {"name": "firmware", "device": "0000:9b:00.0"}),
        ("pcieport 0000:00:01.0: AER: Corrected error received: 0000:17:00.0", "pcie_error", {"device": "0000:17:00.0", "level": "warning"}),
        ("pcieport 0000:00:01.0: AER: Multiple Corrected error message received from 0000:17:00.0", "pcie_error", {"device": "0000:17:00.0", "level": "warning"}),
        ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0", "pcie_error", {"device": "0000:17:00.0", "level": "error"}),
        ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)", "pcie_error", {"device": "0000:17:00.0", "level": "warning", "detail": "Corrected"}),
        ("nvidia 0000:17:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "pcie_error", {"level": "error"}),
        ("python3 invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0", "oom_kill", {"name": "invoked", "peer": "python3", "level": "warning"}),
        ("Memory cgroup out of memory: Killed process 6605 (python3) total-vm:9kB, anon-rss:1024kB, file-rss:0kB", "oom_kill", {"name": "cgroup", "pid": 6605, "bytes": 1 << 20, "level": "error"}),
        ("Out of memory: Killed process 6605 (python3) total-vm:9kB, anon-rss:1024kB", "oom_kill", {"name": "killed", "pid": 6605}),
        ("Out of memory: Kill process 6605 (python3) score 900 or sacrifice child", "oom_kill", {"name": "killed", "pid": 6605}),
        ("oom_reaper: reaped process 6605 (python3), now anon-rss:0kB", "oom_kill", {"pid": 6605}),
        ("python3[6605]: segfault at 10 ip 00007f sp 00007f error 4 in libnccl.so.2[7f00+1000]", "signal", {"pid": 6605, "code": -11, "detail": "libnccl.so.2"}),
        ("traps: python3[6605] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f+1]", "signal", {"pid": 6605, "name": "trap"}),
        ("INFO: task python3:6605 blocked for more than 120 seconds.", "storage_error", {"name": "blocked_task", "pid": 6605, "value": 120.0}),
        ("nfs: server fs1.cluster not responding, still trying", "storage_error", {"level": "error"}),
        ("nfs: server fs1.cluster OK", "storage_error", {"name": "recovered", "level": "info"}),
        ("LustreError: 11-0: scratch-OST0001: Connection to scratch-OST0001 was lost", "storage_error", {}),
        ("blk_update_request: I/O error, dev nvme0n1, sector 1", "storage_error", {}),
        ("CPU3: Package temperature above threshold, cpu clock throttled (total events = 1)", "host_fault", {"name": "temperature"}),
        ("mce: [Hardware Error]: Machine check events logged", "host_fault", {"name": "machine_check", "level": "error"}),
        ("Kernel panic - not syncing: Fatal exception", "host_fault", {"name": "panic", "level": "fatal"}),
    ],
)  # fmt: skip
def test_links_memory_storage_and_the_host(tmp_path: Path, text: str, kind: str, wanted: dict[str, Any]) -> None:
    found = read(tmp_path, f"2026-03-03T02:17:05.123456+00:00 gpu-7 kernel: [12345.678901] {text}\n")
    row = found.event(kind)
    assert {key: row.get(key) for key in wanted} == wanted
    assert found.host_name(row) == "gpu-7"
    assert row["ts"] == datetime(2026, 3, 3, 2, 17, 5, 123456)


def test_slurm_s_word_for_memory(tmp_path: Path) -> None:
    text = "slurmstepd: error: Detected 1 oom_kill event in StepId=771204.0. Some of the step tasks have been OOM Killed.\n"
    assert read(tmp_path, text).event("oom_kill")["name"] == "cgroup_event"


def test_the_number_of_the_logger_is_not_the_process(tmp_path: Path) -> None:
    found = read(tmp_path, f"Mar 03 02:17:05 gpu-7 kernel[1]: {XID}\n")
    assert "pid" not in found.event("xid")


@pytest.mark.parametrize(
    "text",
    [
        "the driver may print NVRM: Xid lines when a GPU fails",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        "see https://docs.nvidia.com/deploy/xid-errors for Xid 79",
        "usb 1-1: new high-speed USB device",
    ],
)
def test_talk_of_faults_is_no_fault(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, f"[12345.678901] {text}\n[12345.678902] {XID}\n")
    assert len(found.rows(kind="xid")) == 1


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_wrappers_change_nothing(tmp_path: Path, wrapper: str) -> None:
    lines = f"[Tue Mar  3 02:17:05 2026] {XID}\n[Tue Mar  3 02:17:06 2026] mlx5_core 0000:c3:00.0 mlx5_3: Port: 1 Link DOWN\n"
    found = read(tmp_path, WRAPPERS[wrapper](lines))
    assert (found.event("xid")["device"], found.event("xid")["ts"]) == ("0000:97:00.0", datetime(2026, 3, 3, 2, 17, 5))
    assert found.event("link_down")["device"] == "mlx5_3"
