"""PCIe links and the topology of a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence_wrappers import WRAPPERS
from tests.loaders.text.recorder import read

DATA = Path(__file__).parents[2] / "data" / "logs"
LSPCI = """\
2e:00.0 {title}: {name}
	Subsystem: Mellanox Technologies Device 0026
	Control: I/O- Mem+ BusMaster+ SpecCycle-
	Capabilities: [60] Express (v2) Endpoint, MSI 00
		LnkCap:	Port #0, Speed 32GT/s, Width x16, ASPM not supported
		LnkCtl:	ASPM Disabled; RCB 64 bytes
		LnkSta:	Speed {speed}, Width {width}
		LnkSta2: Current De-emphasis Level: -6dB
"""
NIC = ("Infiniband controller", "Mellanox Technologies MT2910 Family [ConnectX-7]")
GPU = ("3D controller", "NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)")
BRIDGE = ("PCI bridge", "Broadcom / LSI PEX890xx")


def lspci(kind: tuple[str, str], speed: str = "32GT/s", width: str = "x16") -> str:
    return LSPCI.format(title=kind[0], name=kind[1], speed=speed, width=width)


@pytest.mark.parametrize("width", ["x2 (downgraded)", "x2"])
@pytest.mark.parametrize("kind", [NIC, GPU])
def test_a_narrow_link(tmp_path: Path, kind: tuple[str, str], width: str) -> None:
    row = read(tmp_path, lspci(kind, "16GT/s (downgraded)", width)).event("pcie_state")
    wanted = ("link", "0000:2e:00.0", 2, 16, "error")
    assert (row["name"], row["device"], row["value"], row["code"], row["level"]) == wanted
    assert row["detail"] == "x2 of x16, 16GT/s of 32GT/s"
    assert kind[1][:20] in row["peer"]


def test_a_slow_link_is_a_fact_and_no_finding(tmp_path: Path) -> None:
    row = read(tmp_path, lspci(GPU, "2.5GT/s (downgraded)")).event("pcie_state")
    assert (row["value"], row["level"]) == (16, "info")


def test_a_sound_link_of_a_bridge_says_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, lspci(BRIDGE))
    assert not found.rows(kind="pcie_state")
    assert not found.rows(kind="unparsed")


def test_a_narrow_bridge_is_the_usual_case(tmp_path: Path) -> None:
    assert read(tmp_path, lspci(BRIDGE, width="x4 (downgraded)")).event("pcie_state")["level"] == "info"


def test_a_domain_is_kept(tmp_path: Path) -> None:
    row = read(tmp_path, "0008:" + lspci(NIC, width="x8")).event("pcie_state")
    assert row["device"] == "0008:2e:00.0"


def test_access_control_that_redirects_peers(tmp_path: Path) -> None:
    text = lspci(BRIDGE) + "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n"
    row = read(tmp_path, text).event("pcie_state")
    assert (row["name"], row["level"]) == ("acs", "warning")
    off = lspci(BRIDGE) + "\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd-\n"
    assert not read(tmp_path, off).rows(kind="pcie_state")


TOPO = """\
	GPU0	GPU1	NIC0	NIC1	CPU Affinity	NUMA Affinity	GPU NUMA ID
GPU0	 X 	NV18	PIX	SYS	0-47	0		N/A
GPU1	NV18	 X 	SYS	PXB	0-47	0		N/A
NIC0	PIX	SYS	 X 	SYS
NIC1	SYS	PXB	SYS	 X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_7
"""


def test_the_matrix_of_a_host(tmp_path: Path) -> None:
    found = read(tmp_path, TOPO)
    near = [(r["device"], r["peer"], r["detail"]) for r in found.rows(name="nic_of_gpu")]
    assert near == [("GPU 0", "mlx5_0", "PIX"), ("GPU 1", "mlx5_7", "PXB")]
    assert [r["value"] for r in found.rows(name="nvlinks")] == [18, 18]


def test_the_sample(tmp_path: Path) -> None:
    found = read(tmp_path, (DATA / "nccl-tests-one-slow-node" / "a3-lspci-vvv.txt").read_text())
    bad = [r["device"] for r in found.rows(kind="pcie_state", level="error")]
    assert bad == ["0000:2e:00.0"]


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_wrappers_change_nothing(tmp_path: Path, wrapper: str) -> None:
    found = read(tmp_path, WRAPPERS[wrapper](lspci(NIC, width="x2 (downgraded)") + "\n" + TOPO))
    assert found.rows(name="link")[0]["value"] == 2
    assert len(found.rows(name="nic_of_gpu")) == 2
