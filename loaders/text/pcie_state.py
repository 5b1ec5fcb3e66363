"""PCIe and topology of a host: `lspci -vvv` and `nvidia-smi topo -m`.

One `pcie_state` event per device and fact: `device` its address, `peer` its description, `name` one of `link`,
`acs`, `nic_of_gpu`, `nvlinks`. `link`: `value` the width it trained to, `detail` such as `x2 of x16, 16GT/s of 32GT/s`;
level error when the width is reduced. A reduced *speed* is only information: GPUs go to generation 1 when idle.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.pci import pci_address
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.reading import Reading
from mycroft.loaders.text.scope import FileScope

FORMAT: Final = "pcie_state"

_DEVICE: Final = re.compile(
    r"^\s*((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([A-Z0-9][\w /()&-]{2,60}?)(?: \[[0-9a-f]{4}\])?: "
    r"([^\r\n]{1,300})$"
)
_CAP: Final = re.compile(r"LnkCap:.*?Speed ([\d.]{1,6})GT/s[^,]{0,20}, Width x(\d{1,3})")
_STA: Final = re.compile(r"LnkSta:\s*Speed ([\d.]{1,6})GT/s(?: \((\w+)\))?, Width x(\d{1,3})(?: \((\w+)\))?")
_ACS: Final = re.compile(r"ACSCtl:\s*(.*ReqRedir\+.*)")
_MATTERS: Final = re.compile(
    r"3D|VGA|Display|Ethernet|Infiniband|Network|Processing accel|Non-Volatile|NVMe", re.IGNORECASE
)
_LSPCI_LINE: Final = re.compile(
    r"^\s*(?:[A-Z][\w/ -]{1,40}:|\[[0-9a-f]{2,3}|[A-Z][\w]{2,20}:|Capabilities|Kernel|Region|Interrupt|Latency"
    r"|Flags|Memory|\t|\s{2,})"
)


class _Devices(Reading):
    """The output of lspci."""

    def __init__(self, scope: FileScope, line: Line) -> None:
        super().__init__(scope, line)
        self.device: str | None = None
        self.title = ""
        self.capable: tuple[str, int] | None = None

    def take(self, scope: FileScope, line: Line) -> bool:
        scope.memory["lspci"] = line.number
        text = line.text
        device = _DEVICE.match(text)
        if device:
            self.device, self.title, self.capable = pci_address(device[1]), f"{device[2]}: {device[3]}".strip(), None
            return True
        if self.device is None:
            return False
        capable = _CAP.search(text)
        if capable:
            self.capable = (capable[1], int(capable[2]))
            return True
        status = _STA.search(text)
        if status:
            self._link(scope, line, status)
            return True
        if _ACS.search(text):
            self.say(
                scope,
                line,
                "pcie_state",
                name="acs",
                device=self.device,
                peer=self.title[:200],
                detail="ReqRedir+",
                level="warning" if "bridge" in self.title.lower() else "info",
            )
            return True
        return bool(_LSPCI_LINE.match(text))

    def _link(self, scope: FileScope, line: Line, status: re.Match[str]) -> None:
        speed, width = status[1], int(status[3])
        cap_speed, cap_width = self.capable or (speed, width)
        narrow = width < cap_width or (status[4] or "") == "downgraded"
        slow = speed != cap_speed or (status[2] or "") == "downgraded"
        if not narrow and not slow and not _MATTERS.search(self.title):
            scope.claim(line)
            return
        # A bridge or an empty slot with a narrow link is the usual case; a GPU or a NIC is not.
        level = "error" if narrow and _MATTERS.search(self.title) and width else "info"
        self.say(
            scope,
            line,
            "pcie_state",
            name="link",
            device=self.device,
            peer=self.title[:200],
            value=float(width),
            code=cap_width,
            detail=f"x{width} of x{cap_width}, {speed}GT/s of {cap_speed}GT/s",
            level=level,
        )


def _devices(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.memory.get("lspci") != line.number:
        reading = _Devices(scope, line)
        scope.open(line, reading)
        reading.take(scope, line)


class _Matrix(Reading):
    """`nvidia-smi topo -m`: what lies between every two devices."""

    # From near to far: what a NIC next to its GPU can look like.
    NEAR: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")

    def __init__(self, scope: FileScope, line: Line, names: list[str]) -> None:
        super().__init__(scope, line)
        self.names = names
        self.rows: list[tuple[Line, str, list[str]]] = []
        self.nics: dict[str, str] = {}

    def take(self, scope: FileScope, line: Line) -> bool:
        text = line.text.strip()
        legend = re.match(r"^(NIC\d{1,3}): ([\w.-]{1,40})$", text)
        if legend:
            self.nics[legend[1]] = legend[2]
            return True
        cells = text.split()
        if cells and cells[0] in self.names and len(cells) > len(self.names) // 2:
            self.rows.append((line, cells[0], cells[1:]))
            return True
        return bool(re.match(r"^(?:Legend|NIC Legend|X +=|SYS +=|NODE +=|PHB +=|PXB +=|PIX +=|NV# +=|\s*$)", text))

    def done(self, scope: FileScope) -> None:
        for line, name, cells in self.rows:
            if not name.startswith("GPU"):
                continue
            by_name = dict(zip(self.names, cells, strict=False))
            links = [int(c[2:]) for c in by_name.values() if re.fullmatch(r"NV\d{1,3}", c)]
            if links:
                self._say(scope, line, "nvlinks", name, value=float(min(links)), detail=f"{len(links)} peers")
            near = [
                (self.NEAR.index(c), n, c)
                for n, c in by_name.items()
                if n.startswith(("NIC", "mlx")) and c in self.NEAR
            ]
            if near:
                _rank, nic, kind = min(near)
                self._say(scope, line, "nic_of_gpu", name, peer=self.nics.get(nic, nic), detail=kind)

    def _say(self, scope: FileScope, line: Line, name: str, device: str, **columns: Any) -> None:
        self.say(scope, line, "pcie_state", name=name, device=device.replace("GPU", "GPU "), level="info", **columns)


def _matrix(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    names = [n for n in line.text.split() if re.fullmatch(r"GPU\d{1,3}|NIC\d{1,3}|mlx5_\w{1,20}", n)]
    if len(names) >= 2:
        scope.open(line, _Matrix(scope, line, names))


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "lspci",
        FORMAT,
        (
            "3D controller",
            "VGA compatible controller",
            "Infiniband controller",
            "Ethernet controller",
            "Network controller",
            "PCI bridge",
            "Processing accelerators",
            "Non-Volatile memory controller",
        ),
        _DEVICE,
        _devices,
        120,
    ),
    Matcher(
        "topo",
        FORMAT,
        ("GPU0\t", "GPU0  "),
        re.compile(r"^\s+GPU0\s+(?:GPU\d{1,3}|NIC\d{1,3}|mlx5_\w+|CPU)"),
        _matrix,
        64,
    ),
)
