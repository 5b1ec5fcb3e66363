"""dmesg and journal: what the kernel and its drivers say of GPUs, links, memory and storage.

Stamps: seconds since boot (`[12345.678901]`, order only), `dmesg -T`, syslog, ISO. What a line says is taken
whatever stands in front of it. A container sees no Xid, so a log without one proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from mycroft.loaders.pci import pci_address
from mycroft.loaders.text.clock import first_moment
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope

FORMAT: Final = "kernel_log"

# Xid: (weight, reading). `consequence` follows another fault or comes from the program itself; `fatal` takes the GPU
# away; `fault` is the device's own; `remedy` names what to do about one reported before.
XIDS: Final[dict[int, tuple[str, str]]] = {
    13: ("consequence", "graphics engine exception: usually the program's own access"),
    31: ("consequence", "memory page fault: usually the program's own access"),
    32: ("fault", "corrupted push buffer"),
    38: ("fault", "driver firmware error"),
    43: ("consequence", "channel stopped: the program's own fault or a consequence"),
    45: ("consequence", "channels cleaned up after another fault"),
    48: ("fatal", "uncorrectable double-bit ECC error"),
    61: ("fatal", "internal micro-controller breakpoint"),
    62: ("fatal", "internal micro-controller halt"),
    63: ("fault", "row remapping recorded"),
    64: ("fatal", "row remapping failed"),
    69: ("fault", "graphics engine class error"),
    74: ("fatal", "NVLink error"),
    79: ("fatal", "GPU has fallen off the bus"),
    92: ("fault", "many corrected ECC errors"),
    94: ("fatal", "contained uncorrectable memory error"),
    95: ("fatal", "uncontained uncorrectable memory error"),
    109: ("fatal", "context switch timeout"),
    119: ("fatal", "GSP does not answer"),
    120: ("fatal", "GSP error"),
    121: ("fault", "C2C link error"),
    137: ("fault", "NVLink privilege error"),
    140: ("fatal", "unrecovered ECC error"),
    143: ("fatal", "GPU failed to start"),
    144: ("fatal", "NVLink SAW error"),
    145: ("fatal", "NVLink RLW error"),
    146: ("fatal", "NVLink TLW error"),
    147: ("fatal", "NVLink TREX error"),
    148: ("fatal", "NVLink NVLPW error"),
    149: ("fatal", "NVLink NETIR error"),
    150: ("fatal", "NVLink MSE error"),
    154: ("remedy", "recovery action changed"),
    155: ("fatal", "NVLink link down"),
    156: ("fatal", "resource retirement event"),
    160: ("fault", "channel retirement event"),
    161: ("fault", "channel retirement failed"),
}
_LEVEL_OF: Final = {"fatal": "error", "fault": "error", "remedy": "warning", "consequence": "warning"}
_BOOT: Final = re.compile(r"\[\s*(\d{1,9}\.\d{6})\]")
_DMESG_T: Final = re.compile(r"\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]")


def _say(scope: FileScope, line: Line, match: re.Match[str], kind: str, **columns: Any) -> None:
    """Add an event; the stamp of the line is the last one before the match, seconds since boot are no time."""
    head = line.text[max(0, match.start() - 200) : match.start()]
    moment = None
    stamp = None
    for stamp_match in _DMESG_T.finditer(head):
        stamp = stamp_match
    if stamp is not None:
        moment = first_moment(stamp[1], scope.years)
    elif line.facts.moment is None and _BOOT.search(head):
        columns.setdefault("time_quality", "order_only")
    row = scope.event(line, match.start(), kind, **columns, **({"moment": moment} if moment else {}))
    # The kernel's own process id is none, and `pid` of syslog is the logger's.
    if "pid" not in columns:
        row["pid"] = None
    row["_foreign"] = True


def _xid(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    code = int(match["xid"])
    weight, reading = XIDS.get(code, ("fault", "see NVIDIA's list of Xid errors"))
    text = match["txt"] or ""
    if "caused by previous Xid" in text:
        weight = "consequence"
    if code in range(144, 151) and "Nonfatal" in text:
        weight = "fault"
    pid = match["pid"]
    link = re.search(r"\b[Ll]ink (\d{1,3})\b", text)
    _say(
        scope,
        line,
        match,
        "xid",
        code=code,
        device=pci_address(match["bdf"]),
        pid=int(pid) if pid and pid.isdigit() else None,
        level=_LEVEL_OF[weight],
        name=weight,
        detail=f"{reading}{f', link {link[1]}' if link else ''}",
        peer=match["name"] if match["name"] and "<" not in match["name"] else None,
    )


def _sxid(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(
        scope,
        line,
        match,
        "xid",
        code=int(match["sxid"]),
        device=pci_address(match["bdf"]) or match["switch"],
        level="error" if "Non-fatal" not in line.text else "warning",
        name="switch",
        detail=f"NVSwitch {match['switch']}: {match['txt'][:160]}",
    )


def _fallen(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    device = pci_address(match["bdf"]) if match["bdf"] else scope.memory.get("kernel_gpu")
    # The same fact as the Xid 79 beside it, and the only one where the driver could not print that.
    _say(
        scope,
        line,
        match,
        "xid",
        code=79,
        device=device,
        level="error",
        name="fatal",
        detail="GPU has fallen off the bus",
    )


def _gpu_named(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.memory["kernel_gpu"] = pci_address(match["bdf"])


def _link(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    state = match["state"].upper()
    down = state in ("DOWN", "INIT", "INITIALIZE", "ARMED", "POLLING", "DISABLED")
    up = state in ("ACTIVE", "UP")
    kind = "link_up" if up else "link_down"
    _say(
        scope,
        line,
        match,
        kind,
        device=match["dev"],
        name="port" if match["port"] else "link",
        peer=pci_address(match["bdf"]) if match["bdf"] else None,
        detail=state,
        level="info" if up else "error" if state == "DOWN" or not down else "warning",
        code=int(match["port"]) if match["port"] else None,
    )


def _netdev(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    up = "up" in match["state"].lower() or "ready" in match["state"].lower()
    _say(
        scope,
        line,
        match,
        "link_up" if up else "link_down",
        device=match["dev"],
        name="link",
        detail=match["state"],
        level="info" if up else "error",
    )


def _module(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    what = match["what"].strip()
    gone = "unplugged" in what.lower() or "error" in what.lower()
    _say(
        scope,
        line,
        match,
        "link_down" if gone else "link_up",
        device=match["dev"] or pci_address(match["bdf"]),
        peer=pci_address(match["bdf"]),
        name="module",
        detail=what[:160],
        level="error" if gone else "info",
    )


def _nic_firmware(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(
        scope,
        line,
        match,
        "nic_state",
        device=match["dev"] or pci_address(match["bdf"]),
        peer=pci_address(match["bdf"]),
        name="firmware",
        detail=match["what"][:160],
        level="error",
    )


def _aer(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    severity = match["sev"]
    corrected = severity.lower().startswith("correct") or severity.lower().startswith("corrected")
    _say(
        scope,
        line,
        match,
        "pcie_error",
        device=pci_address(match["bdf"]),
        name="aer",
        detail=severity,
        level="warning" if corrected else "error",
    )


def _pcie_bus(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    severity = match["sev"]
    _say(
        scope,
        line,
        match,
        "pcie_error",
        device=pci_address(match["bdf"]) if match["bdf"] else None,
        name="bus_error",
        detail=severity,
        level="warning" if severity.lower().startswith("correct") else "error",
    )


def _oom_invoked(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(scope, line, match, "oom_kill", name="invoked", peer=match["who"], level="warning")


def _oom_killed(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    rss = re.search(r"anon-rss:(\d{1,15})kB", line.text)
    _say(
        scope,
        line,
        match,
        "oom_kill",
        name="cgroup" if match["cgroup"] else "killed",
        pid=int(match["pid"]),
        peer=match["who"],
        level="error",
        bytes=int(rss[1]) * 1024 if rss else None,
        detail="killed by the kernel for memory",
    )


def _oom_event(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(scope, line, match, "oom_kill", name="cgroup_event", level="error", detail=match[0][:160])


def _segfault(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    library = re.search(r" in ([\w./+-]{1,160})\[", line.text[match.end() :])
    _say(
        scope,
        line,
        match,
        "signal",
        code=-11,
        pid=int(match["pid"]),
        peer=match["who"],
        name="segfault",
        detail=library[1] if library else None,
        level="error",
    )


def _trap(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(
        scope,
        line,
        match,
        "signal",
        pid=int(match["pid"]),
        peer=match["who"],
        name="trap",
        detail=match["what"][:120],
        level="error",
    )


def _blocked(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(
        scope,
        line,
        match,
        "storage_error",
        pid=int(match["pid"]),
        peer=match["who"],
        name="blocked_task",
        value=float(match["s"]),
        level="error",
    )


def _storage(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    good = " OK" in match[0]
    _say(
        scope,
        line,
        match,
        "storage_error",
        name="recovered" if good else "storage",
        detail=match[0][:200],
        level="info" if good else "error",
    )


def _heat(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(scope, line, match, "host_fault", name="temperature", detail=match[0][:160], level="warning")


def _machine_check(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(scope, line, match, "host_fault", name="machine_check", detail=match[0][:160], level="error")


def _panic(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    _say(scope, line, match, "host_fault", name="panic", detail=match[0][:160], level="fatal")


Handler = Callable[[FileScope, Line, "re.Match[str]"], None]


def _matcher(name: str, literals: tuple[str, ...], pattern: str, handler: Handler) -> Matcher:
    return Matcher(name, FORMAT, literals, re.compile(pattern), handler)


_BDF: Final = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"

MATCHERS: Final[tuple[Matcher, ...]] = (
    _matcher(
        "xid",
        ("NVRM: Xid", "NVRM:  Xid"),
        r"NVRM: +Xid \((?P<bdf>(?:PCI:)?[0-9a-fA-F:.]{4,20})\): (?P<xid>\d{1,4})"
        r"(?:, pid='?(?P<pid>\d{1,10}|<unknown>"
        r"|unknown)'?)?(?:, name=(?P<name>[^,\r\n]{1,80}))?(?:, (?P<txt>[^\r\n]{0,400}))?",
        _xid,
    ),
    _matcher(
        "sxid",
        ("SXid (",),
        r"(?P<switch>nvidia-nvswitch\d{1,3}): SXid \((?P<bdf>(?:PCI:)?[0-9a-fA-F:.]{4,20})\): (?P<sxid>\d{1,6}),? ?"
        r"(?P<txt>[^\r\n]{0,300})",
        _sxid,
    ),
    _matcher(
        "gpu_named",
        ("The NVIDIA GPU",),
        rf"NVRM: The NVIDIA GPU (?P<bdf>{_BDF})",
        _gpu_named,
    ),
    _matcher(
        "fallen",
        ("fallen off the bus",),
        rf"NVRM: (?:GPU (?P<bdf>{_BDF}): )?(?:GPU has )?fallen off the bus",
        _fallen,
    ),
    _matcher(
        "mlx_port",
        ("Link DOWN", "Link INIT", "Link ACTIVE", "Link ARMED", "Link UP"),
        rf"(?:mlx\w{{1,10}}|bnxt_\w{{1,10}}|irdma|hfi1\w*|efa) (?P<bdf>{_BDF})(?: (?P<dev>[\w.-]{{1,40}}))?: "
        r"(?:Port: (?P<port>\d{1,3}) )?Link (?P<state>DOWN|INIT\w*|ACTIVE|ARMED|UP)",
        _link,
    ),
    _matcher(
        "netdev_link",
        (
            "Link down",
            "Link up",
            "link down",
            "link up",
            "Link is Down",
            "Link is Up",
            "Link is down",
            "Link is up",
            "link becomes ready",
        ),
        rf"(?:{_BDF} )?(?P<dev>[a-zA-Z][\w.@-]{{1,40}}): (?:\w{{1,20}}: (?P=dev) )?(?:NIC )?"
        rf"(?P<state>[Ll]ink (?:is )?(?:[Dd]own|[Uu]p)"
        rf"|link becomes ready)\b",
        _netdev,
    ),
    _matcher(
        "port_module",
        ("Port module event",),
        rf"mlx\w{{1,10}} (?P<bdf>{_BDF})(?: (?P<dev>[\w.-]{{1,40}}))?: Port module event(?:\[\w+\])?: "
        rf"(?P<what>[^\r\n]{{1,200}})",
        _module,
    ),
    _matcher(
        "nic_firmware",
        (
            "health compromised",
            "device's health",
            "cmd_work_handler",
            "cmd_exec",
            "Fatal error",
            "internal error",
            "poll_health",
        ),
        rf"mlx\w{{1,10}} (?P<bdf>{_BDF})(?: (?P<dev>[\w.-]{{1,40}}))?: (?P<what>[^\r\n]{{0,120}}?"
        rf"(?:health[^\r\n]{{0,40}}compromised"
        r"|cmd_work_handler[^\r\n]{0,120}|poll_health[^\r\n]{0,120}|Fatal error[^\r\n]{0,80}"
        r"|internal error[^\r\n]{0,80}))",
        _nic_firmware,
    ),
    _matcher(
        "aer",
        ("AER: ",),
        rf"AER: (?:Multiple )?(?P<sev>[Uu]ncorrect(?:ed|able)[\w ()-]{{0,20}}?|[Cc]orrect(?:ed"
        rf"|able)) error (?:message )?received(?: from|:) (?P<bdf>{_BDF})",
        _aer,
    ),
    _matcher(
        "pcie_bus",
        ("PCIe Bus Error",),
        rf"(?:(?P<bdf>{_BDF}): )?(?:AER: )?PCIe Bus Error: severity=(?P<sev>[\w ()-]{{1,40}})",
        _pcie_bus,
    ),
    _matcher("oom_invoked", ("invoked oom-killer",), r"(?P<who>[\w./:+-]{1,60}) invoked oom-killer", _oom_invoked),
    _matcher(
        "oom_killed",
        ("Killed process", "Kill process"),
        r"(?P<cgroup>Memory cgroup )?[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d{1,10}),? ?\("
        r"(?P<who>[^)\r\n]{1,60})\)",
        _oom_killed,
    ),
    _matcher(
        "oom_reaper",
        ("oom_reaper: reaped",),
        r"(?P<cgroup>\b)oom_reaper: reaped process (?P<pid>\d{1,10}) \((?P<who>[^)\r\n]{1,60})\)",
        _oom_killed,
    ),
    _matcher(
        "oom_event",
        ("oom_kill event", "oom-kill event", "oom_kill_event"),
        r"[Dd]etected \d{1,9} oom[_-]kill event\(?s?\)?[^\r\n]{0,120}",
        _oom_event,
    ),
    _matcher("segfault", ("segfault at",), r"(?P<who>[\w./:+-]{1,60})\[(?P<pid>\d{1,10})\]: segfault at", _segfault),
    _matcher(
        "trap",
        ("traps: ",),
        r"traps: (?P<who>[\w./:+-]{1,60})\[(?P<pid>\d{1,10})\] (?P<what>(?:trap |general protection)[^\r\n]{1,160})",
        _trap,
    ),
    _matcher(
        "blocked",
        ("blocked for more than",),
        r"task (?P<who>[^\r\n]{1,60}?):(?P<pid>\d{1,10}) blocked for more than (?P<s>\d{1,9}) seconds",
        _blocked,
    ),
    _matcher(
        "storage",
        (
            "nfs: server",
            "Lustre",
            "I/O error",
            "EXT4-fs error",
            "XFS (",
            "nvme nvme",
            "ceph: ",
            "libceph: ",
            "GPFS",
            "beegfs",
        ),
        r"(?:nfs: server \S{1,200} (?:not responding[\w ,]{0,40}|OK)|Lustre(?:Error)?: [^\r\n]{0,200}?(?:evicted"
        r"|timed out|lost|"
        r"was lost|not responding)[^\r\n]{0,80}|(?:blk_update_request: |Buffer )?I/O error[^\r\n]{0,120}"
        r"|EXT4-fs error[^\r\n]{0,120}"
        r"|XFS \([^)\r\n]{1,40}\): [^\r\n]{0,60}(?:error|shutdown|corrupt)[^\r\n]{0,80}"
        r"|nvme nvme\d+: [^\r\n]{0,60}(?:timeout|reset|"
        r"aborting|failed)[^\r\n]{0,60}|(?:lib)?ceph: [^\r\n]{0,80}(?:lost|hung|stale|down)[^\r\n]{0,60})",
        _storage,
    ),
    _matcher(
        "heat",
        ("emperature above threshold",),
        r"(?:CPU\d{1,4}: )?(?:Core|Package)? ?[Tt]emperature above threshold[^\r\n]{0,80}",
        _heat,
    ),
    _matcher(
        "machine_check",
        ("mce: [Hardware Error]", "Machine check events logged", "Hardware Error]: Machine", "EDAC MC"),
        r"(?:mce: \[Hardware Error\][^\r\n]{0,160}|Machine check events logged"
        r"|\[Hardware Error\]: Machine check[^\r\n]{0,80}"
        r"|EDAC MC\d+: \d+ UE[^\r\n]{0,120})",
        _machine_check,
    ),
    _matcher("panic", ("Kernel panic",), r"Kernel panic - not syncing[^\r\n]{0,160}", _panic),
)
