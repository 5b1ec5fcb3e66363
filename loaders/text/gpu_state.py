"""The state of GPUs as tools print it: nvidia-smi -q, its csv and dmon, dcgmi, nvlink status.

One `gpu_state` event per GPU and fact: `device` the PCI address where the output gives it, else `GPU <index>`; `name`
the fact (`sm_clock_mhz`, `temperature_c`, `throttle`, …), `value` its number, `detail` its words. What is out of
order has level warning or error. Full use at a quarter of the usual power is waiting in a collective, not work: power
and use are therefore kept beside the clocks.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any, Final

from mycroft.loaders.pci import pci_address
from mycroft.loaders.text.clock import first_moment
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.reading import Reading, number_of
from mycroft.loaders.text.scope import FileScope

FORMAT: Final = "gpu_state"

_KEY: Final = re.compile(r"^(\s*)([A-Za-z][\w /().-]{0,60}?)\s*: (.*)$")
_SECTION: Final = re.compile(r"^(\s*)([A-Z][\w /().-]{1,60}?)\s*:?\s*$")
_GPU: Final = re.compile(r"^\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
# Reasons that a GPU runs slower than asked; `SW Power Cap` is normal under full load.
_THROTTLES: Final = {
    "HW Slowdown": "error",
    "HW Thermal Slowdown": "error",
    "HW Power Brake Slowdown": "error",
    "HW Power Brake": "error",
    "SW Thermal Slowdown": "error",
    "SW Power Cap": "info",
}
# (section, key) or key -> name of the fact; the section is the last line without a value above it.
_FACTS: Final[dict[str, str]] = {
    "GPU Current Temp": "temperature_c",
    "GPU Slowdown Temp": "slowdown_temperature_c",
    "Memory Current Temp": "memory_temperature_c",
    "Average Power Draw": "power_w",
    "Instantaneous Power Draw": "power_w",
    "Power Draw": "power_w",
    "Clocks/SM": "sm_clock_mhz",
    "Clocks/Memory": "memory_clock_mhz",
    "Max Clocks/SM": "max_sm_clock_mhz",
    "Utilization/Gpu": "utilisation_pct",
    "Utilization/GPU": "utilisation_pct",
    "Utilization/Memory": "memory_utilisation_pct",
    "PCIe Generation/Current": "pcie_generation",
    "PCIe Generation/Max": "max_pcie_generation",
    "Link Width/Current": "pcie_width",
    "Link Width/Max": "max_pcie_width",
    "Replays Since Reset": "pcie_replays",
    "Volatile/SRAM Uncorrectable": "ecc_uncorrectable",
    "Volatile/DRAM Uncorrectable": "ecc_uncorrectable",
    "Volatile/Double Bit/Total": "ecc_uncorrectable",
}
_CSV_FACTS: Final[dict[str, str]] = {
    "temperature.gpu": "temperature_c",
    "temperature.memory": "memory_temperature_c",
    "power.draw": "power_w",
    "clocks.sm": "sm_clock_mhz",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.max.sm": "max_sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "utilization.gpu": "utilisation_pct",
    "utilization.memory": "memory_utilisation_pct",
    "pcie.link.gen.current": "pcie_generation",
    "pcie.link.gen.max": "max_pcie_generation",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "max_pcie_width",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrectable",
    "memory.used": "memory_used_mib",
}
_DMON_FACTS: Final[dict[str, str]] = {
    "pwr": "power_w",
    "gtemp": "temperature_c",
    "temp": "temperature_c",
    "mtemp": "memory_temperature_c",
    "sm": "utilisation_pct",
    "pclk": "sm_clock_mhz",
    "mclk": "memory_clock_mhz",
    "pviol": "power_violation_pct",
    "tviol": "thermal_violation",
    "rxpci": "pcie_rx_mb_s",
    "txpci": "pcie_tx_mb_s",
    # dcgmi dmon
    "TMPTR": "temperature_c",
    "POWER": "power_w",
    "SMCLK": "sm_clock_mhz",
    "MMCLK": "memory_clock_mhz",
    "GPUTL": "utilisation_pct",
    "XIDER": "last_xid",
    "PVIOL": "power_violation_us",
    "TVIOL": "thermal_violation_us",
    "GRACT": "graphics_active",
    "SMACT": "sm_active",
    "TENSO": "tensor_active",
    "DRAMA": "dram_active",
}
_CRITICAL: Final = {"ecc_uncorrectable"}


class _Query(Reading):
    """`nvidia-smi -q`."""

    def __init__(self, scope: FileScope, line: Line) -> None:
        super().__init__(scope, line)
        self.gpu: str | None = None
        self.index: int | None = None
        self.path: list[tuple[int, str]] = []

    def begin(self, scope: FileScope, bdf: str) -> None:
        self.gpu, self.path, self.index = pci_address(bdf), [], None

    def take(self, scope: FileScope, line: Line) -> bool:
        text = line.text
        scope.memory["gpu_query"] = line.number
        gpu = _GPU.match(text)
        if gpu:
            self.begin(scope, gpu[1])
            return True
        pair = _KEY.match(text)
        if pair is None:
            section = _SECTION.match(text)
            if section is None:
                return text.startswith("=")
            self._open(len(section[1]), section[2])
            return True
        depth, key, value = len(pair[1]), pair[2].strip(), pair[3].strip()
        while self.path and self.path[-1][0] >= depth and depth > 0:
            self.path.pop()
        if key == "Timestamp":
            moment = first_moment(value, scope.years)
            self.moment = moment or self.moment
        elif self.gpu is not None:
            self._fact(scope, line, key, value)
        # "HW Slowdown : Not Active" has children of its own.
        self._open(depth, key)
        return True

    def _open(self, depth: int, key: str) -> None:
        while self.path and self.path[-1][0] >= depth:
            self.path.pop()
        self.path.append((depth, key))

    def _under(self, *words: str) -> bool:
        return any(word in key for _depth, key in self.path for word in words)

    def _fact(self, scope: FileScope, line: Line, key: str, value: str) -> None:
        parent = self.path[-1][1] if self.path else ""
        if key == "GPU UUID":
            self._say(scope, line, "uuid", detail=value, kind="identity")
        elif key == "Minor Number":
            index = number_of(value)
            self.index = int(index) if index is not None else None
            self._say(scope, line, "index", value=index, kind="identity")
        elif key == "Product Name":
            self._say(scope, line, "product", detail=value, kind="identity")
        elif key in _THROTTLES and value.startswith("Active"):
            self._say(scope, line, "throttle", detail=key, level=_THROTTLES[key])
        elif self._under("Remapped Rows"):
            self._remapped(scope, line, key, value)
        else:
            name = _FACTS.get(key) or _FACTS.get(f"{parent}/{key}")
            number = number_of(value)
            if parent == "Aggregate" or self._under("Aggregate"):
                return
            if name == "ecc_uncorrectable" and number is not None:
                if number:
                    self._say(scope, line, name, value=number, detail=f"{parent} {key}", level="error")
            elif name is not None and number is not None:
                self._say(scope, line, name, value=number, detail=value[:60])

    def _remapped(self, scope: FileScope, line: Line, key: str, value: str) -> None:
        number = number_of(value)
        bad = value.lower().startswith("yes") or (key == "Uncorrectable Error" and bool(number))
        if bad:
            level = "error" if "Failure" in key else "warning"
            self._say(scope, line, "remapped_rows", value=number, detail=f"{key}: {value}", level=level)

    def _say(self, scope: FileScope, line: Line, name: str, *, kind: str = "gpu_state", **columns: Any) -> None:
        columns.setdefault("level", "info")
        self.say(scope, line, kind, name=name, device=self.gpu, code=self.index, **columns)


def _query(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Query(scope, line))


def _gpu_block(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Open at the first GPU where the banner was not pasted."""
    if scope.memory.get("gpu_query") != line.number:
        reading = _Query(scope, line)
        reading.begin(scope, match[1])
        scope.open(line, reading)


class _Table(Reading):
    """Rows under a header: csv of `--query-gpu`, `nvidia-smi dmon`, `dcgmi dmon`."""

    def __init__(self, scope: FileScope, line: Line, names: Sequence[str], *, comma: bool) -> None:
        super().__init__(scope, line)
        self.names = names
        self.comma = comma

    def take(self, scope: FileScope, line: Line) -> bool:
        text = line.text.strip()
        if text.startswith("#"):
            return True
        cells = _cells(text) if self.comma else text.split()
        if not self.comma and cells[:1] == ["GPU"]:
            cells = cells[1:]
        if len(cells) != len(self.names):
            return False
        row = dict(zip(self.names, cells, strict=True))
        self._row(scope, line, row)
        return True

    def _row(self, scope: FileScope, line: Line, row: dict[str, str]) -> None:
        index = next((row[k] for k in ("index", "gpu", "Entity", "ID") if k in row), None)
        device = next((a for k in ("pci.bus_id", "gpu_bus_id", "bus_id") if (a := pci_address(row.get(k)))), None)
        device = device or (f"GPU {index}" if index is not None else row.get("uuid") or row.get("gpu_uuid"))
        moment = first_moment(row["timestamp"], scope.years) if "timestamp" in row else None
        shared: dict[str, Any] = {"device": device, "level": "info"}
        if moment is not None:
            shared["moment"] = moment
        code = number_of(index) if index is not None else None
        shared["code"] = int(code) if code is not None else None
        uuid = row.get("uuid") or row.get("gpu_uuid")
        if shared["code"] is not None and ":" in str(device) and scope.once(("gpu_index", device, shared["code"])):
            self.say(scope, line, "identity", name="index", value=code, **shared)
        if uuid:
            self.say(scope, line, "identity", name="uuid", detail=uuid, **shared)
        for key, value in row.items():
            name = _CSV_FACTS.get(key) if self.comma else _DMON_FACTS.get(key)
            number = number_of(value)
            if name is not None and number is not None:
                columns = {**shared, "level": "error"} if name in _CRITICAL and number else shared
                self.say(scope, line, "gpu_state", name=name, value=number, **columns)
            elif ("throttle_reasons" in key or "event_reasons" in key) and value.strip() == "Active":
                word = key.rpartition(".")[2].replace("_", " ")
                level = "error" if "slowdown" in word or "brake" in word else "info"
                self.say(scope, line, "gpu_state", name="throttle", detail=word, **{**shared, "level": level})


def _cells(text: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text]))]
    except (csv.Error, StopIteration):
        return []


def _csv_header(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    names = [re.sub(r"\s*\[[^\]]*\]$", "", cell) for cell in _cells(line.text)]
    if sum(name in _CSV_FACTS or "reasons" in name for name in names):
        scope.open(line, _Table(scope, line, names, comma=True))


def _dmon_header(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    names = match["names"].split()
    if sum(name in _DMON_FACTS for name in names) >= 2:
        first = "gpu" if match["first"].lower().startswith("gpu") or match["first"] == "Entity" else match["first"]
        scope.open(line, _Table(scope, line, [first, *names], comma=False))


class _Links(Reading):
    """`nvidia-smi nvlink -s` and `-e`."""

    def __init__(self, scope: FileScope, line: Line) -> None:
        super().__init__(scope, line)
        self.gpu = ""
        self.down = 0
        self.links = 0
        self.speeds: list[float] = []
        self.first = line

    def take(self, scope: FileScope, line: Line) -> bool:
        scope.memory["nvlink"] = line.number
        gpu = re.match(r"^\s*GPU (\d{1,3}): ([^\r\n(]{1,80}?) \(UUID: (GPU-[\w-]{1,60})\)", line.text)
        if gpu:
            self._finish_gpu(scope)
            self.gpu, self.first = f"GPU {gpu[1]}", line
            self.say(scope, line, "identity", name="uuid", device=self.gpu, detail=gpu[3], code=int(gpu[1]))
            return True
        link = re.match(r"^\s*Link (\d{1,3}): (.*)$", line.text)
        if link is None:
            return False
        self.links += 1
        text = link[2].strip()
        errors = re.match(r"([\w ]{1,40}(?:Errors|Error Count)): (\d{1,19})", text)
        if errors:
            self.links -= 1
            if int(errors[2]):
                self.say(
                    scope,
                    line,
                    "gpu_state",
                    name="nvlink_errors",
                    device=self.gpu,
                    value=float(errors[2]),
                    detail=f"link {link[1]} {errors[1]}",
                    level="warning",
                )
        elif "inactive" in text.lower():
            self.down += 1
            self.say(
                scope,
                line,
                "gpu_state",
                name="nvlink_down",
                device=self.gpu,
                value=float(link[1]),
                detail=f"link {link[1]} {text}",
                level="error",
            )
        else:
            number = number_of(text)
            if number is not None:
                self.speeds.append(number)
        return True

    def _finish_gpu(self, scope: FileScope) -> None:
        if self.gpu and self.speeds:
            self.say(
                scope,
                self.first,
                "gpu_state",
                name="nvlink_speed_gb_s",
                device=self.gpu,
                value=min(self.speeds),
                detail=f"{len(self.speeds)} links up, {self.down} down",
                level="info",
            )
        self.down, self.links, self.speeds = 0, 0, []

    def done(self, scope: FileScope) -> None:
        self._finish_gpu(scope)


def _links(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.memory.get("nvlink") != line.number:
        reading = _Links(scope, line)
        scope.open(line, reading)
        reading.take(scope, line)


def _dcgm(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """A row of `dcgmi health -c` or `dcgmi diag` that does not say that all is well."""
    row = scope.event(
        line,
        match.start(),
        "gpu_state",
        name="dcgm",
        device=f"GPU {match['gpu']}" if match["gpu"] else None,
        level="error" if match["word"].lower() in ("fail", "failure") else "warning",
        detail=line.text.strip(" |")[:300],
    )
    row["_foreign"] = True


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher("nvidia_smi_q", FORMAT, ("NVSMI LOG",), re.compile(r"=NVSMI LOG="), _query, 20_000),
    Matcher(
        "nvidia_smi_gpu",
        FORMAT,
        ("GPU 0000",),
        _GPU,
        _gpu_block,
        2_000,
    ),
    Matcher(
        "nvidia_smi_csv",
        FORMAT,
        (
            "utilization.gpu",
            "temperature.gpu",
            "clocks.sm",
            "clocks.current.sm",
            "pcie.link.width",
            "power.draw",
            "pci.bus_id",
        ),
        re.compile(r"^\s*[a-z_][\w.]*(?: \[[^\]]{1,20}\])?(?:, ?[a-z_][\w.]*(?: \[[^\]]{1,20}\])?){1,80}\s*$"),
        _csv_header,
        20_000,
    ),
    Matcher(
        "nvidia_smi_dmon",
        FORMAT,
        ("# gpu ", "#Entity", "# Entity"),
        re.compile(r"^\s*# ?(?P<first>gpu|Entity|GPU)\s+(?P<names>[\w ]{3,400})\s*$"),
        _dmon_header,
        20_000,
    ),
    Matcher(
        "nvlink",
        FORMAT,
        ("(UUID: GPU-",),
        re.compile(r"^\s*GPU \d{1,3}: [^\r\n(]{1,80}? \(UUID: GPU-[\w-]{1,60}\)"),
        _links,
        64,
    ),
    Matcher(
        "dcgm",
        FORMAT,
        ("Failure - ", "Warning - ", "Fail - ", "| Fail", "| Failure", "| Warning"),
        re.compile(
            r"\|[^\r\n|]{0,80}\|?[^\r\n]{0,40}?(?:GPU ?(?:ID)?:? ?(?P<gpu>\d{1,3}))?[^\r\n]{0,40}?"
            r"(?P<word>Fail(?:ure)?|Warning)(?: - |\s*\||: GPU)"
        ),
        _dcgm,
    ),
)
