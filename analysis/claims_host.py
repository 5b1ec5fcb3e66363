"""State of hosts: GPUs that throttle, links narrower than they can be, storage that stalls.

Each is a claim about a rank, device or host that explains a lateness or a slow pair; alone it is a reason to look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final

from mycroft.analysis.claims import Claim
from mycroft.analysis.machine import Machine, Row

# A clock below this share of its sisters' is slow; idle GPUs and other models are told apart by their use.
SLOW_CLOCK: Final = 0.85
_LEAST_SISTERS: Final = 3


def throttled(machine: Machine) -> list[Claim]:
    """Return claims on GPUs that run below their sisters, with the reason that the driver gives."""
    found: list[Claim] = []
    # Two files that name no host may be of two hosts, whose GPUs have the same numbers.
    by_gpu: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in machine.of("gpu_state"):
        by_gpu[row.host or _host_of_file(machine, row), row.device].append(row)
    clocks: dict[str, dict[str, float]] = defaultdict(dict)
    for (place, device), rows in by_gpu.items():
        values = [row.value for row in rows if row.name == "sm_clock_mhz" and row.value]
        if values:
            clocks[place][device] = median(values)
    seen: set[str] = set()
    for (place, device), rows in sorted(by_gpu.items()):
        host = rows[0].host
        reasons = list(dict.fromkeys(row.detail for row in rows if row.name == "throttle" and row.level == "error"))
        sisters = [v for d, v in clocks[place].items() if d != device]
        clock = clocks[place].get(device)
        slow = clock is not None and len(sisters) >= _LEAST_SISTERS and clock < SLOW_CLOCK * median(sisters)
        if (not reasons and not slow) or (host is None and device in seen):
            continue
        seen |= {device} if host is None else set()
        words = f"GPU {device.removeprefix('GPU ')} of {place}"
        if clock is not None:
            words += f" runs at {clock:.0f} MHz"
            words += f" (its sisters at {median(sisters):.0f} MHz)" if slow else ""
        heat = next((row.value for row in rows if row.name == "temperature_c" and row.value), None)
        words += f" at {heat:.0f} C" if heat is not None else ""
        if reasons:
            words += f", {', '.join(_specific(reasons))} active"
        ranks = tuple(sorted({row.rank for row in rows if row.rank is not None}))
        shown = [row for row in rows if row.name in ("throttle", "sm_clock_mhz", "temperature_c")]
        refs = tuple(row.ref(words, "gpu_state") for row in shown[:4])
        kind = "throttled" if reasons else "slow_clock"
        hosts, devices = ((host,) if host else ()), (device,)
        found.append(Claim("gpu_state", kind, ranks, "strong", words, refs, rows[0].ts, hosts, devices, detail=words))
    return found


def _host_of_file(machine: Machine, row: Row) -> str:
    """Return in words the host of a reading that names none."""
    path = machine.files.get(row.file) if row.file is not None else None
    return f"the host of {path}" if path else "an unnamed host"


def _specific(reasons: Sequence[str]) -> list[str]:
    """Drop `HW Slowdown` where its reason is given too."""
    rest = [r for r in reasons if r.lower() not in ("hw slowdown",)]
    return rest or list(reasons)


def memory_faults(machine: Machine) -> list[Claim]:
    """Return claims on GPUs with uncorrectable errors or failed remapping of rows."""
    found: list[Claim] = []
    for row in machine.of("gpu_state"):
        if row.level != "error" or row.name not in ("ecc_uncorrectable", "remapped_rows", "nvlink_down", "dcgm"):
            continue
        text = f"GPU {row.device} of {row.host or 'an unnamed host'}: {row.name.replace('_', ' ')} {row.detail}".strip()
        ranks = (row.rank,) if row.rank is not None else ()
        hosts = (row.host,) if row.host else ()
        found.append(
            Claim(
                "gpu_state",
                "gpu_unwell",
                ranks,
                "weak",
                text,
                (row.ref(text, "gpu_state"),),
                row.ts,
                hosts,
                (row.device,),
            )
        )
    return found


def narrow_links(machine: Machine) -> list[Claim]:
    """Return claims on devices whose PCIe link trained to fewer lanes than both ends can."""
    found: list[Claim] = []
    for row in machine.of("pcie_state"):
        if row.name != "link" or row.level != "error":
            continue
        short = row.device.removeprefix("0000:")
        text = f"{row.peer or 'a device'} at {short} of {row.host or 'an unnamed host'} runs at {row.detail}"
        ranks = (row.rank,) if row.rank is not None else ()
        hosts = (row.host,) if row.host else ()
        found.append(
            Claim(
                "pcie_state",
                "narrow_link",
                ranks,
                "strong",
                text,
                (row.ref(text, "pcie_state"),),
                row.ts,
                hosts,
                (short,),
                detail=text,
            )
        )
    return found


def storage(machine: Machine) -> list[Claim]:
    """Return claims that storage stalls: they explain a checkpoint or a data loader that does not come back."""
    found: list[Claim] = []
    for row in machine.of("storage_error"):
        if row.level != "error":
            continue
        where = f" of {row.device}" if row.device else ""
        text = f"storage: {row.name.replace('_', ' ')}{where}: {row.detail}".rstrip(": ")
        hosts = (row.host,) if row.host else ()
        ranks = (row.rank,) if row.rank is not None else ()
        found.append(
            Claim("storage", "storage_stalls", ranks, "weak", text, (row.ref(text, "storage"),), row.ts, hosts)
        )
    return list(dict.fromkeys(found))[:8]
