"""Ports and counters of network devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evidence_wrappers import WRAPPERS
from tests.loaders.text.recorder import Recorder, read

IBSTAT = """\
CA 'mlx5_3'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.39.1002
	Port 1:
		State: Down
		Physical state: Polling
		Rate: 40
		Base lid: 65535
		Link layer: InfiniBand
CA 'mlx5_4'
	CA type: MT4129
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
		Link layer: InfiniBand
"""
DEVINFO = """\
hca_id:	mlx5_3
	transport:			InfiniBand (0)
	fw_ver:				28.39.1002
	phys_port_cnt:			1
		port:	1
			state:			PORT_DOWN (1)
			max_mtu:		4096 (5)
			active_speed:		25.0 Gbps (32)
			phys_state:		DISABLED (3)
			link_layer:		Ethernet
"""


def states(found: Recorder, device: str) -> dict[str, Any]:
    return {r["name"]: r.get("detail") for r in found.rows(kind="nic_state", device=device)}


def test_ibstat(tmp_path: Path) -> None:
    found = read(tmp_path, IBSTAT)
    wanted = {"state": "Down", "physical_state": "Polling", "rate": "40", "link_layer": "InfiniBand"}
    assert states(found, "mlx5_3") == wanted
    assert [r["level"] for r in found.rows(name="state")] == ["error", "info"]
    assert [r["value"] for r in found.rows(name="rate")] == [40, 400]


def test_ibv_devinfo(tmp_path: Path) -> None:
    found = read(tmp_path, DEVINFO)
    assert states(found, "mlx5_3")["state"] == "PORT_DOWN"
    assert states(found, "mlx5_3")["physical_state"] == "DISABLED"
    assert {r["level"] for r in found.rows() if r.get("name") in ("state", "physical_state")} == {"error"}


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("link mlx5_4/1 state DOWN physical_state DISABLED netdev ens5np0", False),
        ("link mlx5_4/1 state ACTIVE physical_state LINK_UP netdev ens5np0", True),
        (
            "link mlx5_4/1 subnet_prefix fe80:0000:0000:0000 lid 1 sm_lid 1 lmc 0 state INIT physical_state LINK_UP",
            False,
        ),
    ],
)
def test_rdma_link(tmp_path: Path, line: str, good: bool) -> None:
    rows = read(tmp_path, f"{line}\n").rows(kind="nic_state")
    assert [r["name"] for r in rows] == ["state", "physical_state"]
    assert {r["level"] for r in rows} == ({"info"} if good else {"error"})
    assert rows[0].get("peer") == ("ens5np0" if "netdev" in line else None)


def counters(found: Recorder) -> list[tuple[str, float, str | None, int]]:
    return [(r["name"], r["value"], r.get("device"), r["code"]) for r in found.rows(kind="nic_counter")]


def test_ethtool_twice(tmp_path: Path) -> None:
    once = "$ ethtool -S ens2f0np0\nNIC statistics:\n     rx_packets: 12\n     tx_prio3_pause: {}\n     rx_vport: 5\n"
    found = read(tmp_path, once.format(100) + once.format(90_100))
    assert counters(found) == [("tx_prio3_pause", 100, "ens2f0np0", 0), ("tx_prio3_pause", 90_100, "ens2f0np0", 1)]


def test_ethtool_without_its_command(tmp_path: Path) -> None:
    found = read(tmp_path, "NIC statistics:\n     rx_crc_errors_phy: 3\n     rx_discards_phy: 4\n")
    assert [c[:2] for c in counters(found)] == [("rx_crc_errors_phy", 3), ("rx_discards_phy", 4)]


@pytest.mark.parametrize("sep", [" ", ": ", "\t"])
def test_hardware_counters(tmp_path: Path, sep: str) -> None:
    head = "# /sys/class/infiniband/mlx5_1/ports/1/hw_counters/\n"
    found = read(tmp_path, f"{head}out_of_sequence{sep}77\nnp_cnp_sent{sep}5\nlifespan{sep}10\n")
    assert counters(found) == [("out_of_sequence", 77, "mlx5_1", 0), ("np_cnp_sent", 5, "mlx5_1", 0)]


def test_perfquery(tmp_path: Path) -> None:
    text = (
        "# Port counters: Lid 12 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
        "SymbolErrorCounter:..............901\nLinkDownedCounter:...............2\nPortXmitWait:....................55\n"
    )
    assert counters(read(tmp_path, text)) == [
        ("SymbolErrorCounter", 901, "lid 12 port 1", 0),
        ("LinkDownedCounter", 2, "lid 12 port 1", 0),
        ("PortXmitWait", 55, "lid 12 port 1", 0),
    ]


def test_counters_without_any_head(tmp_path: Path) -> None:
    found = read(tmp_path, "rx_prio3_pause: 5\ntx_prio3_pause: 6\nrx_prio3_bytes: 7\n")
    assert [c[:2] for c in counters(found)] == [("rx_prio3_pause", 5), ("tx_prio3_pause", 6)]


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_wrappers_change_nothing(tmp_path: Path, wrapper: str) -> None:
    found = read(tmp_path, WRAPPERS[wrapper](IBSTAT + "$ ethtool -S ens2\nNIC statistics:\n     tx_prio3_pause: 9\n"))
    assert states(found, "mlx5_3")["physical_state"] == "Polling"
    assert counters(found)[0][:3] == ("tx_prio3_pause", 9, "ens2")
