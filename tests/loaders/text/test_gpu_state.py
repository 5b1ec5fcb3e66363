"""GPUs as nvidia-smi and dcgmi show them."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.evidence_wrappers import WRAPPERS
from tests.loaders.text.recorder import Recorder, read

DATA = Path(__file__).parents[2] / "data" / "logs"
QUERY = """\
==============NVSMI LOG==============

Timestamp                                 : Tue Mar  3 02:17:05 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 2
GPU 00000000:D1:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Minor Number                          : 6
    GPU UUID                              : GPU-8a6c1d2e-0001-4b4b-9c9c-000000000006
    PCI
        Bus                               : 0xD1
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 12
    Performance State                     : P0
    {reasons}
        Idle                              : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
    Utilization
        Gpu                               : 100 %
        Memory                            : 12 %
    ECC Errors
        Volatile
            SRAM Uncorrectable            : 0
            DRAM Uncorrectable            : 3
        Aggregate
            DRAM Uncorrectable            : 44
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 1
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 91 C
        GPU Slowdown Temp                 : 92 C
        Memory Current Temp               : 88 C
    {power}
        Power Draw                        : 642.10 W
    Clocks
        Graphics                          : 1095 MHz
        SM                                : 1095 MHz
        Memory                            : 2619 MHz
    Max Clocks
        SM                                : 1980 MHz
"""


def facts(found: Recorder, device: str | None = None) -> dict[str, Any]:
    rows = [r for r in found.rows(kind="gpu_state") if device is None or r["device"] == device]
    return {row["name"]: row["value"] if "value" in row else row["detail"] for row in rows if row["name"] != "throttle"}


@pytest.mark.parametrize(
    ("reasons", "power"),
    [("Clocks Event Reasons", "GPU Power Readings"), ("Clocks Throttle Reasons", "Power Readings")],
)
def test_the_long_query(tmp_path: Path, reasons: str, power: str) -> None:
    found = read(tmp_path, QUERY.format(reasons=reasons, power=power))
    assert facts(found) == {
        "max_pcie_generation": 5,
        "pcie_generation": 5,
        "max_pcie_width": 16,
        "pcie_width": 8,
        "pcie_replays": 12,
        "utilisation_pct": 100,
        "memory_utilisation_pct": 12,
        "ecc_uncorrectable": 3,
        "remapped_rows": "Pending: Yes",
        "temperature_c": 91,
        "slowdown_temperature_c": 92,
        "memory_temperature_c": 88,
        "power_w": 642.1,
        "sm_clock_mhz": 1095,
        "memory_clock_mhz": 2619,
        "max_sm_clock_mhz": 1980,
    }
    assert [(r["detail"], r["level"]) for r in found.rows(name="throttle")] == [
        ("HW Slowdown", "error"),
        ("HW Thermal Slowdown", "error"),
    ]
    row = found.rows(name="temperature_c")[0]
    assert (row["device"], row["code"], row["ts"]) == ("0000:d1:00.0", 6, datetime(2026, 3, 3, 2, 17, 5))
    assert found.event("identity", name="uuid")["detail"].endswith("000006")
    assert found.event("identity", name="product")["detail"] == "NVIDIA H100 80GB HBM3"


def test_two_gpus_are_told_apart(tmp_path: Path) -> None:
    one = QUERY.format(reasons="Clocks Event Reasons", power="GPU Power Readings")
    two = one[one.index("GPU 00000000") :].replace("D1:00.0", "B3:00.0").replace("1095", "1980")
    found = read(tmp_path, one + two)
    assert facts(found, "0000:b3:00.0")["sm_clock_mhz"] == 1980
    assert facts(found, "0000:d1:00.0")["sm_clock_mhz"] == 1095


def test_a_query_without_its_banner(tmp_path: Path) -> None:
    one = QUERY.format(reasons="Clocks Event Reasons", power="GPU Power Readings")
    assert facts(read(tmp_path, one[one.index("GPU 00000000") :]))["sm_clock_mhz"] == 1095


CSV = """\
index, uuid, pci.bus_id, temperature.gpu, power.draw [W], clocks.current.sm [MHz], utilization.gpu [%], clocks_throttle_reasons.hw_thermal_slowdown, ecc.errors.uncorrected.volatile.total
0, GPU-aa, 00000000:1B:00.0, 55, 690.10 W, 1980 MHz, 100 %, Not Active, 0
6, GPU-bb, 00000000:D1:00.0, 91, 410.00 W, 1095 MHz, 100 %, Active, 2
"""


def test_csv_of_a_query(tmp_path: Path) -> None:
    found = read(tmp_path, CSV, "gpus.csv")
    hot = {r["name"]: r.get("value") for r in found.rows(kind="gpu_state", device="0000:d1:00.0")}
    assert hot == {"temperature_c": 91, "power_w": 410, "sm_clock_mhz": 1095, "utilisation_pct": 100, "throttle": None, "ecc_uncorrectable": 2}  # fmt: skip
    assert found.rows(name="throttle")[0]["detail"] == "hw thermal slowdown"
    assert found.rows(name="ecc_uncorrectable", device="0000:d1:00.0")[0]["level"] == "error"
    assert [r["detail"] for r in found.rows(kind="identity", name="uuid")] == ["GPU-aa", "GPU-bb"]


def test_csv_with_times(tmp_path: Path) -> None:
    text = "timestamp, index, temperature.gpu, clocks.sm [MHz]\n2026/03/03 02:17:05.123, 3, 91, 1095 MHz\n"
    row = read(tmp_path, text).rows(name="temperature_c")[0]
    assert (row["device"], row["code"], row["ts"]) == ("GPU 3", 3, datetime(2026, 3, 3, 2, 17, 5, 123000))


DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0    690     55     60    100     40      0      0      0      0   2619   1980
    6    180     40     41    100      2      0      0      0      0   2619   1980
"""
DCGMI = """\
#Entity   TMPTR   POWER   SMCLK   SMACT
ID        C       W       MHz
GPU 0     55      690.1   1980    0.990
GPU 6     91      410.0   1095    0.980
"""


def test_dmon(tmp_path: Path) -> None:
    found = read(tmp_path, DMON)
    assert facts(found, "GPU 6") == {"power_w": 180, "temperature_c": 40, "memory_temperature_c": 41, "utilisation_pct": 100, "memory_clock_mhz": 2619, "sm_clock_mhz": 1980}  # fmt: skip


def test_dcgmi_dmon(tmp_path: Path) -> None:
    found = read(tmp_path, DCGMI)
    assert facts(found, "GPU 6") == {"temperature_c": 91, "power_w": 410, "sm_clock_mhz": 1095, "sm_active": 0.98}


def test_nvlink_status(tmp_path: Path) -> None:
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\t Link 2: 26.562 GB/s\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)\n\t Link 0: 13.281 GB/s\n\t Link 1: 26.562 GB/s\n"
    )
    found = read(tmp_path, text)
    down = found.rows(name="nvlink_down")
    assert [(r["device"], r["value"], r["level"]) for r in down] == [("GPU 0", 1, "error")]
    assert [(r["device"], r["value"]) for r in found.rows(name="nvlink_speed_gb_s")] == [
        ("GPU 0", 26.562),
        ("GPU 1", 13.281),
    ]


def test_nvlink_errors(tmp_path: Path) -> None:
    text = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa)\n\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 77\n"
    rows = read(tmp_path, text).rows(name="nvlink_errors")
    assert [(r["device"], r["value"], r["detail"]) for r in rows] == [("GPU 0", 77, "link 0 CRC Errors")]


@pytest.mark.parametrize(
    "line",
    [
        "| PCIe                      | Fail - GPU: 6                                  |",
        "| GPU Memory                | Failure - GPU 6 uncorrectable                  |",
    ],
)
def test_dcgm_s_diagnosis(tmp_path: Path, line: str) -> None:
    assert read(tmp_path, f"{line}\n").event("gpu_state")["level"] == "error"


def test_the_sample(tmp_path: Path) -> None:
    found = read(tmp_path, (DATA / "slow-gpu-thermal-inspector" / "nvidia-smi-q-r12-u08.txt").read_text())
    clocks = {r["device"]: r["value"] for r in found.rows(name="sm_clock_mhz")}
    assert min(clocks, key=lambda device: clocks[device]) == "0000:d1:00.0"
    assert not found.rows(kind="unparsed")


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_wrappers_change_nothing(tmp_path: Path, wrapper: str) -> None:
    text = QUERY.format(reasons="Clocks Event Reasons", power="GPU Power Readings")
    found = read(tmp_path, WRAPPERS[wrapper](text))
    assert facts(found)["temperature_c"] == 91
    assert len(found.rows(name="throttle")) == 2
    assert facts(found)["pcie_width"] == 8
