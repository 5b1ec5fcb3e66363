"""What a host's devices say: network ports and their counters, GPU clocks, PCIe links, the kernel's log. Only reads.

Optional all of it: what a host does not have is left out, what may not be read is said once. A driver that hangs must
not keep the agent from following rings, so `Watcher` reads in a thread of its own; what it has not fetched yet waits
in a bounded list. Everything is bounded: devices, counters, lines, bytes of a file, and the time of `nvidia-smi`.

Readings go two ways: those that change into every batch (`HostFact`), and for an incident as files in the forms in
which people copy them (`files`), which are read like any other evidence.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mycroft.tracer.agent.batch import HostFact

LOG: Final = logging.getLogger("mycroft.agent")
SMI_S: Final = 5.0
EACH_S: Final = 10.0
AGAIN_S: Final = 60.0
MOST_DEVICES: Final = 64
MOST_COUNTERS: Final = 64
MOST_LINES: Final = 500
MOST_WAITING: Final = 2000
_MOST_BYTES: Final = 4096
_KMSG_RECORD: Final = 8192
_KMSG_READS: Final = 5000
_RECENT_NS: Final = 600 * 10**9
# The one command that is run. Names that a driver does not know make it fail as a whole, so those that all know.
SMI_QUERY: Final = (
    "pci.bus_id,clocks.sm,clocks.max.sm,temperature.gpu,power.draw,utilization.gpu,pcie.link.width.current,"
    "pcie.link.width.max,clocks_throttle_reasons.hw_slowdown,clocks_throttle_reasons.hw_thermal_slowdown,"
    "clocks_throttle_reasons.sw_thermal_slowdown,clocks_throttle_reasons.hw_power_brake_slowdown"
)
# Column of the answer -> kind of reading; the reasons to throttle are told as words.
_SMI_NUMBERS: Final = {
    "clocks.sm": "sm_clock_mhz",
    "temperature.gpu": "temperature_c",
    "power.draw": "power_w",
    "utilization.gpu": "utilisation_pct",
}
# Bits of these numbers change all the time: they are told every `AGAIN_S` and not whenever they change.
_STEADY: Final = frozenset(("sm_clock_mhz", "temperature_c", "power_w", "utilisation_pct", "port_data"))
_DATA: Final = re.compile(r"^(?:port_)?(?:xmit|rcv|tx|rx)_(?:data|bytes|packets)$")
_USEFUL: Final = re.compile(
    r"pause|discard|drop|crc|symbol|err|retr|timeout|out_of_|cnp|ecn|nak|link_down|recover|wait|overrun|integrity"
)
_PCI_CLASSES: Final = {
    "0x0302": "3D controller",
    "0x0300": "VGA compatible controller",
    "0x0207": "Infiniband controller",
    "0x0200": "Ethernet controller",
    "0x1200": "Processing accelerators",
}
_XID: Final = re.compile(r"NVRM:\s+Xid \((?:PCI:)?([0-9a-fA-F:.]{4,20})\): (\d{1,4})")
_KILLED: Final = re.compile(r"[Oo]ut of memory: Killed process (\d{1,10})")
_KERNEL: Final = re.compile(
    r"NVRM|oom-kill|oom_reaper|invoked oom-killer|[Oo]ut of memory|mlx5_core|mlx4|bnxt_|irdma|Link (?:is )?[Dd]own|AER:"
    r"|Hardware Error|mce:|EDAC|blocked for more than|soft lockup|hard LOCKUP|I/O error|nfs: server|Lustre|segfault"
)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line of the kernel's log that may matter; `ts_ns` is UTC."""

    ts_ns: int
    text: str


@dataclass
class _Port:
    """One port: its device as `mlx5_0/1` or `eth0`, its state in words, whether it works, and its counters."""

    device: str
    state: str
    up: bool
    folder: str
    physical: str = ""
    netdev: str = ""
    counters: dict[str, int] = field(default_factory=lambda: dict[str, int]())


def _text(path: Path) -> str:
    """Return a small file; empty where it is not there or says nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _names(folder: Path, most: int) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())[:most]
    except OSError:
        return []


def _counters(*folders: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for folder in folders:
        for name in _names(folder, 512):
            if len(found) < MOST_COUNTERS and (_USEFUL.search(name) or _DATA.match(name)):
                value = _text(folder / name)
                if value.isascii() and value.isdigit() and len(value) <= 20:
                    found[name] = int(value)
    return found


def _ports(root: Path) -> Iterator[_Port]:
    """InfiniBand and RoCE ports, then network devices that are hardware."""
    for device in _names(root / "class/infiniband", MOST_DEVICES):
        for number in _names(root / "class/infiniband" / device / "ports", 8):
            folder = root / "class/infiniband" / device / "ports" / number
            state = _text(folder / "state").partition(": ")[2]
            netdev = _text(folder / "gid_attrs/ndevs/0")
            yield _Port(
                f"{device}/{number}",
                state,
                state == "ACTIVE",
                f"/sys/class/infiniband/{device}/ports/{number}",
                physical=_text(folder / "phys_state").partition(": ")[2],
                netdev=netdev,
                counters=_counters(folder / "counters", folder / "hw_counters"),
            )
    for device in _names(root / "class/net", MOST_DEVICES):
        folder = root / "class/net" / device
        if not (folder / "device").exists():
            continue  # a bridge, a loop, a container's end of a pair
        state = _text(folder / "operstate")
        counters = _counters(folder / "statistics")
        changes = _text(folder / "carrier_down_count")
        if changes.isascii() and changes.isdigit():
            counters["link_down"] = int(changes)
        yield _Port(device, state, state == "up", f"/sys/class/net/{device}", counters=counters)


@dataclass(frozen=True, slots=True)
class _Link:
    """The PCIe link of a GPU or network device."""

    address: str
    title: str
    width: int
    most_width: int
    speed: str
    most_speed: str


def _links(root: Path) -> Iterator[_Link]:
    given = 0
    for address in _names(root / "bus/pci/devices", 4096):
        folder = root / "bus/pci/devices" / address
        title = _PCI_CLASSES.get(_text(folder / "class")[:6])
        width, most = _text(folder / "current_link_width"), _text(folder / "max_link_width")
        if title is None or not (width.isdigit() and most.isdigit()) or given >= MOST_DEVICES:
            continue
        given += 1
        speeds = [_text(folder / name).partition(" ")[0] for name in ("current_link_speed", "max_link_speed")]
        vendor, device = _text(folder / "vendor"), _text(folder / "device")
        yield _Link(address, f"{title}: {vendor} {device}", int(width), int(most), speeds[0], speeds[1])


class Kernel:
    """The kernel's log from where it was read last."""

    def __init__(self, path: Path, *, clock: Callable[[], int], uptime: Callable[[], int]) -> None:
        self._path = path
        self._clock = clock
        self._uptime = uptime
        self._descriptor: int | None = None
        self._rest = b""
        self.problem = ""
        self.lines: deque[KernelLine] = deque(maxlen=MOST_LINES)

    def new(self) -> list[KernelLine]:
        """Return what came since the last call, of that what may matter."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                self.problem = error.strerror or str(error)
                return []
        began = self._clock() - self._uptime()
        found: list[KernelLine] = []
        for _ in range(_KMSG_READS):
            try:
                data = os.read(self._descriptor, _KMSG_RECORD)
            except BrokenPipeError:
                continue  # what we would have read next was overwritten; the kernel goes on behind it
            except BlockingIOError:
                break
            except OSError as error:
                self.problem = error.strerror or str(error)
                break
            if not data:
                break
            *whole, self._rest = (self._rest + data).split(b"\n")
            self._rest = self._rest[-_KMSG_RECORD:]
            for line in whole:
                head, separator, text = line.partition(b";")
                parts = head.split(b",")
                if separator and len(parts) >= 3 and parts[2].isdigit():
                    said = text.decode("utf-8", "replace")[:1000]
                    if _KERNEL.search(said):
                        found.append(KernelLine(began + int(parts[2]) * 1000, said))
        self.lines.extend(found)
        return found[-MOST_LINES:]

    def close(self) -> None:
        """Close it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Devices:
    """The devices of one host. One thread."""

    def __init__(
        self,
        *,
        root: Path = Path("/sys"),
        kmsg: Path = Path("/dev/kmsg"),
        smi: str | None = None,
        clock: Callable[[], int] = time.time_ns,
        uptime: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Nothing is read yet.

        Args:
            root: where sysfs is.
            kmsg: the kernel's log.
            smi: path of nvidia-smi; None: the one on the path; empty: none.
            clock: UTC ns.
            uptime: ns by the clock that stamps the kernel's log.
        """
        self._root = root
        self._smi = shutil.which("nvidia-smi") if smi is None else smi
        self._clock = clock
        self._kernel = Kernel(kmsg, clock=clock, uptime=uptime)
        self._told: dict[tuple[str, str, str], tuple[float | None, str]] = {}
        self._told_ns: dict[tuple[str, str, str], int] = {}
        self._ports: list[_Port] = []
        self._links: list[_Link] = []
        self._widths: dict[str, int] = {}
        """The widest that each link was."""
        self._gpus = ""
        self._past: deque[tuple[int, list[_Port]]] = deque(maxlen=int(_RECENT_NS / (EACH_S * 1e9)) + 1)

    def kernel(self) -> list[HostFact]:
        """Return what the kernel has said since the last call; of older than ten minutes only the file tells."""
        now = self._clock()
        facts = [_kernel_fact(line) for line in self._kernel.new() if line.ts_ns >= now - _RECENT_NS]
        if self._kernel.problem:
            facts += self._changed(now, "not_readable", "kernel log", text=self._kernel.problem)
        return facts

    def read(self) -> list[HostFact]:
        """Read all devices, and return what changed since the last call or was not told for a minute."""
        now = self._clock()
        facts: list[HostFact] = []
        self._ports = list(_ports(self._root))
        self._past.append((now, self._ports))
        for port in self._ports:
            before = self._told.get(("port_state", port.device, ""))
            facts += self._changed(now, "port_state", port.device, text=port.state)
            if before is not None and before[0] == 1.0 and not port.up:
                facts.append(HostFact(ts_ns=now, kind="port_down", device=port.device, number=0.0, text=port.state))
            self._told["port_state", port.device, ""] = (float(port.up), port.state)
            for name, value in port.counters.items():
                kind = "port_data" if _DATA.match(name) else "port_counter"
                facts += self._changed(now, kind, port.device, name=name, number=float(value))
        self._links = list(_links(self._root))
        for link in self._links:
            self._widths[link.address] = max(self._widths.get(link.address, 0), link.width)
            text = f"x{link.width} of x{link.most_width}"
            facts += self._changed(now, "pcie_width", link.address, number=float(link.width), text=text)
        facts += self._read_gpus(now)
        return facts

    def _changed(
        self, now: int, kind: str, device: str, *, name: str = "", number: float | None = None, text: str = ""
    ) -> list[HostFact]:
        key = (kind, device, name)
        known = self._told.get(key)
        same = known is not None and (kind in _STEADY or (known[1] == text and (number is None or known[0] == number)))
        if same and now - self._told_ns[key] < AGAIN_S * 1e9:
            return []
        self._told[key], self._told_ns[key] = (number, text), now
        return [HostFact(ts_ns=now, kind=kind, device=device, number=number, text=text or name)]

    def _read_gpus(self, now: int) -> list[HostFact]:
        if not self._smi:
            return []
        try:
            done = subprocess.run(
                [self._smi, f"--query-gpu={SMI_QUERY}", "--format=csv"],
                capture_output=True,
                timeout=SMI_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            # A driver that does not answer is itself news, and is asked again: it may come back.
            return self._changed(now, "not_readable", "nvidia-smi", text=f"{type(error).__name__}")
        if done.returncode != 0:
            said = " ".join((done.stdout + done.stderr).decode("utf-8", "replace").split())[-200:]
            return self._changed(now, "not_readable", "nvidia-smi", text=f"ended with {done.returncode}: {said}")
        self._gpus = done.stdout.decode("utf-8", "replace")[: 64 << 10]
        lines = [[cell.strip() for cell in line.split(",")] for line in self._gpus.splitlines()[: MOST_DEVICES + 1]]
        if not lines:
            return []
        heads = [head.partition(" ")[0] for head in lines[0]]
        facts: list[HostFact] = []
        for cells in lines[1:]:
            row = dict(zip(heads, cells, strict=False))
            device = row.get("pci.bus_id", "").lower()
            for head, kind in _SMI_NUMBERS.items():
                with contextlib.suppress(ValueError):
                    number = float(row.get(head, "").partition(" ")[0])
                    facts += self._changed(now, kind, device, number=number)
            why = [
                head.rpartition(".")[2]
                for head, cell in row.items()
                if head.startswith("clocks_throttle_reasons.") and cell == "Active"
            ]
            facts += self._changed(now, "throttle", device, number=float(len(why)), text=", ".join(why))
        return facts

    # ---- for an incident --------------------------------------------------------------

    def files(self, host: str) -> dict[str, bytes]:
        """Return what was read as files: the kernel's lines, counters now and up to ten minutes ago, links, GPUs.

        Only what can have to do with a fault of now: lines of the last ten minutes, ports that worked meanwhile, links
        that are narrower than they were, or than others of their kind. What is as it always was here is no news.
        """
        found: dict[str, str] = {}
        recent = [line for line in list(self._kernel.lines) if line.ts_ns >= self._clock() - _RECENT_NS]
        if recent:
            found["host.kernel.log"] = "".join(
                f"{datetime.fromtimestamp(line.ts_ns / 1e9, UTC).isoformat(timespec='microseconds')} {host} kernel: "
                f"{line.text}\n"
                for line in recent
            )
        worked = {port.device for _, ports in self._past for port in ports if port.up}
        rdma = [port for port in self._ports if port.physical and port.device in worked]
        if rdma:
            found["host.ports.txt"] = "".join(
                f"link {port.device} state {port.state or 'UNKNOWN'} physical_state {port.physical}"
                f"{f' netdev {port.netdev}' if port.netdev else ''}\n"
                for port in rdma
            )
        past = list(self._past)
        for label, moment in (("t0", past[0]), ("t1", past[-1])) if len(past) > 1 else ():
            if any(port.counters for port in moment[1]):
                found[f"host.nic_{label}.txt"] = "".join(
                    f"{port.folder}/counters/\n"
                    + "".join(f"{name}: {value}\n" for name, value in port.counters.items())
                    for port in moment[1]
                    if port.counters
                )
        links = [link for link in self._links if link.width < self._usual_width(link)]
        if links:
            found["host.pcie.txt"] = "".join(
                f"{link.address} {link.title}\n"
                f"\tLnkCap: Port #0, Speed {link.most_speed}GT/s, Width x{link.most_width}\n"
                f"\tLnkSta: Speed {link.speed}GT/s, Width x{link.width}"
                f"{' (downgraded)' if link.width < link.most_width else ''}\n"
                for link in links
            )
        if self._gpus:
            found["host.gpus.csv"] = self._gpus
        return {name: text.encode() for name, text in found.items()}

    def _usual_width(self, link: _Link) -> int:
        others = [other.width for other in self._links if other.title == link.title]
        return max([self._widths.get(link.address, 0), *others])

    def close(self) -> None:
        """Close the kernel's log."""
        self._kernel.close()


def _kernel_fact(line: KernelLine) -> HostFact:
    if xid := _XID.search(line.text):
        return HostFact(ts_ns=line.ts_ns, kind="xid", device=xid[1].lower(), number=float(xid[2]), text=line.text)
    if killed := _KILLED.search(line.text):
        return HostFact(ts_ns=line.ts_ns, kind="oom_kill", number=float(killed[1]), text=line.text)
    return HostFact(ts_ns=line.ts_ns, kind="kernel", text=line.text)


class Watcher:
    """Reads the devices in a thread, and keeps what was read until a batch takes it."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._waiting: deque[HostFact] = deque()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reading = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="devices", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._stopping.is_set():
            self.look(all_devices=turn % int(EACH_S) == 0)
            turn += 1
            self._stopping.wait(1.0)

    def look(self, *, all_devices: bool) -> None:
        """Read the kernel's log, and with `all_devices` everything else."""
        try:
            with self._reading:
                facts = self._devices.kernel() + (self._devices.read() if all_devices else [])
        except Exception:
            LOG.exception("the host's devices cannot be read")
            return
        self._add(facts)

    def _add(self, facts: list[HostFact]) -> None:
        with self._lock:
            self._waiting.extend(facts)
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self.dropped += 1

    def take(self, most: int) -> tuple[HostFact, ...]:
        """Return the oldest readings that wait; they are gone from here."""
        with self._lock:
            return tuple(self._waiting.popleft() for _ in range(min(most, len(self._waiting))))

    def give_back(self, facts: tuple[HostFact, ...]) -> None:
        """Keep readings that could not be told."""
        with self._lock:
            self._waiting.extendleft(reversed(facts))

    def files(self, host: str) -> dict[str, bytes]:
        """Return what was read as files; empty while a driver does not answer."""
        if not self._reading.acquire(timeout=SMI_S + 1.0):
            return {}
        try:
            return self._devices.files(host)
        finally:
            self._reading.release()

    def stop(self) -> None:
        """End the thread; one that a driver holds is left to itself."""
        self._stopping.set()
        self._thread.join(0.5)
