"""The words of the dashboard: names of statuses, categories and sources, and how numbers and times are written.

Every function is pure and takes None for unknown, which is written as a word and never as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

UNKNOWN: Final = "unknown"

STATUSES: Final = {
    "hang": "Hang",
    "slow": "Slow",
    "crash": "Crash",
    "healthy": "Healthy",
    "cannot_tell": "Cannot tell",
}
CATEGORIES: Final = {
    "absent": "Did not enter the operation",
    "dataloader": "Waits for its input data",
    "checkpoint": "Busy with a checkpoint",
    "code_divergence": "Took another path through the code",
    "size_mismatch": "Size, type or root differs",
    "order_deadlock": "Groups entered in opposite order",
    "exception": "Left after an exception",
    "out_of_memory": "Out of memory",
    "process_died": "Process died",
    "process_stopped": "Process alive but stopped",
    "gpu_fault": "GPU fault",
    "slow_gpu": "Slow GPU",
    "slow_compute": "Later than its peers",
    "pcie_degraded": "PCIe link degraded",
    "proxy_stall": "Communication thread late",
    "link_fault": "Port or link fault",
    "slow_nic": "NIC slower than its peers",
    "network_congestion": "Network congested",
    "init_timeout": "Never joined at start-up",
    "misconfigured_interface": "Wrong network interface",
    "slow_group": "Whole group slow",
    "device_hang": "Device does not get there",
    "healthy": "Nothing wrong",
    "unknown": "No known class",
}
COMPONENTS: Final = {
    "code": "the user's code",
    "process": "a process",
    "gpu": "a GPU",
    "host": "a host",
    "nic": "a network card",
    "network": "the network",
    "config": "the configuration",
    "unknown": "unknown",
}
CONFIDENCES: Final = {"high": ("High", 3), "medium": ("Medium", 2), "low": ("Low", 1)}
SOURCES: Final = {
    "flight_recorder": "Flight Recorder",
    "fr": "Flight Recorder",
    "stack": "stack",
    "stacks": "stack",
    "py_spy": "stack",
    "pyspy": "stack",
    "log": "log",
    "console": "log",
    "launcher": "launcher",
    "topology": "topology",
    "kernel_log": "kernel log",
}
ROLES: Final = {
    "world": "all ranks",
    "tp": "tensor parallel",
    "pp": "pipeline parallel",
    "dp": "data parallel",
    "ep": "expert parallel",
    "cp": "context parallel",
    "p2p": "point to point",
}


def status(value: str) -> str:
    """Return the name of a verdict's status."""
    return STATUSES.get(value, value)


def category(value: str) -> str:
    """Return what a category of the verdict means, in a few words."""
    return CATEGORIES.get(value, value.replace("_", " "))


def source(value: str | None) -> str:
    """Return the name of a kind of evidence."""
    if not value:
        return "trace"
    return SOURCES.get(value, value.replace("_", " "))


def role(kind: str | None) -> str:
    """Return the role of a communicator in words; the kind itself where it has no name."""
    if not kind:
        return "role unknown"
    return ROLES.get(kind, kind)


def number(value: int | float | None) -> str:
    """Return a number with thousands separated; floats with at most two digits after the point."""
    if value is None:
        return UNKNOWN
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return `1 rank`, `2 ranks`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(count: int | None) -> str:
    """Return a size in bytes with a binary unit."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{int(value):,} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes everything")


def duration(ns: int | float | None) -> str:
    """Return a length of time, given in ns, with the unit that suits it."""
    if ns is None:
        return UNKNOWN
    value = abs(ns)
    sign = "-" if ns < 0 else ""
    if value < 1_000:
        return f"{sign}{value:.0f} ns"
    if value < 1_000_000:
        return f"{sign}{value / 1e3:.1f} µs"
    if value < 1_000_000_000:
        return f"{sign}{value / 1e6:.1f} ms"
    if value < 120_000_000_000:
        return f"{sign}{value / 1e9:.1f} s"
    seconds = round(value / 1e9)
    if seconds < 2 * 3600:
        return f"{sign}{seconds // 60} min {seconds % 60:02d} s"
    return f"{sign}{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def ranks(values: Iterable[int], *, limit: int = 12) -> str:
    """Return ranks as runs, `0-3, 7`, at most `limit` runs and then how many ranks are left."""
    ordered = sorted(set(values))
    runs: list[tuple[int, int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    shown = runs[:limit]
    text = ", ".join(
        f"{first}" if first == last else f"{first}, {last}" if last == first + 1 else f"{first}–{last}"
        for first, last in shown
    )
    left = sum(last - first + 1 for first, last in runs[limit:])
    return f"{text} and {left:,} more" if left else text


def named_ranks(values: Sequence[int], *, limit: int = 12) -> str:
    """Return `rank 5`, `ranks 0-3, 7`; `no rank` for none."""
    if not values:
        return "no rank"
    return f"{'rank' if len(set(values)) == 1 else 'ranks'} {ranks(values, limit=limit)}"


def clock(iso: str | None) -> tuple[str, str]:
    """Split an ISO time into `HH:MM:SS.mmm` and `YYYY-MM-DD UTC`; what is not such a time is returned as it is."""
    if not iso:
        return UNKNOWN, "no time in the evidence"
    day, letter, rest = iso.partition("T")
    if not letter or len(day) != 10:
        return iso, ""
    zone = "UTC" if rest.endswith(("Z", "+00:00")) else ""
    time = rest.removesuffix("Z").removesuffix("+00:00")
    whole, point, fraction = time.partition(".")
    return (f"{whole}.{fraction[:3].ljust(3, '0')}" if point else whole), f"{day} {zone}".strip()


def time_of(ns: int | None) -> str:
    """Return a time, ns since the epoch, as `HH:MM:SS.mmm`; `date_of` gives the day."""
    if ns is None:
        return UNKNOWN
    seconds, rest = divmod(ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, tz=UTC)
    return f"{moment:%H:%M:%S}.{rest // 1_000_000:03d}"


def date_of(ns: int | None) -> str:
    """Return the day of a time, ns since the epoch, with its zone."""
    if ns is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(ns // 1_000_000_000, tz=UTC):%Y-%m-%d} UTC"


def day_and_time(seconds: float | None) -> str:
    """Return a time, seconds since the epoch, to the minute."""
    if seconds is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%d %H:%M} UTC"


def moment(seconds: float | None) -> str:
    """Return a time, seconds since the epoch, to the second: of what goes on now, minutes say too little."""
    if seconds is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def first_sentence(text: str) -> str:
    """Return what stands before the first full stop that ends a sentence; numbers and names may hold others."""
    return text.partition(". ")[0].rstrip(".")


def shorten(text: str, length: int) -> str:
    """Return the text, its middle replaced by an ellipsis if it is longer than `length` characters."""
    if len(text) <= length:
        return text
    head = (length - 1 + 1) // 2
    tail = length - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :] if tail else ''}"
