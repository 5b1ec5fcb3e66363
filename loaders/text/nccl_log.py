"""What NCCL prints with NCCL_DEBUG: who is who and how far the start-up has come (2.10 to 2.30).

Every line carries `host:pid:tid [dev]`; the process is the key by which `identity` finds the rank. Several
processes share a console, so a message is found anywhere and the nearest writer before it is taken.
"""

from __future__ import annotations

import re
from typing import Final

from mycroft.loaders.pci import pci_address
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.nccl_warnings import ANY_WARNING, WARNINGS, returned
from mycroft.loaders.text.nccl_writer import (
    ADDRESS,
    HEX,
    CommFacts,
    Process,
    comms_of,
    matcher,
    process_of,
    say,
    threads_of,
    writer_of,
)
from mycroft.loaders.text.scope import FileScope

_PHASES: Final = {
    "Init START": "start",
    "Init COMPLETE": "complete",
    "Abort START": "abort_start",
    "Abort COMPLETE": "abort",
    "Destroy START": "destroy_start",
    "Destroy COMPLETE": "destroy",
    "Revoke START": "revoke_start",
    "Revoke COMPLETE": "revoke",
    "Finalize START": "finalize_start",
    "Finalize COMPLETE": "finalize",
}


def _init(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    writer = writer_of(line, match.start())
    process = process_of(writer)
    rank, size = int(match["rank"]), int(match["n"])
    if size > 1 << 20 or rank >= size:
        return
    pointer = match["comm"]
    known = comms_of(scope).get((process, pointer))
    comm_hash = int(match["cid"], 16) if match["cid"] else None
    name = None
    if comm_hash is not None:
        name = f"0x{comm_hash:x}"
    elif match["parent"]:
        parent = comms_of(scope).get((process, match["parent"]))
        count = match["split"] or "0"
        origin = parent.name if parent else f"{match['parent']}@{process[0]}"
        name = f"{origin}/split{count}/color{match['color']}"
    elif known is not None:
        name, comm_hash = known.name, known.hash
    phase = _PHASES.get(match["st"], match["st"].lower().replace(" ", "_"))
    if name is not None:
        facts = CommFacts(name, comm_hash, rank, size, line.number)
        comms_of(scope)[process, pointer] = facts
        if phase in ("start", "complete"):
            for tid in (writer.tid, None):
                threads_of(scope).setdefault((process, tid), []).append((line.number, facts))
    say(
        scope,
        line,
        match,
        "comm_init" if phase in ("start", "complete") else "nccl_abort",
        name=phase,
        comm_rank=rank,
        value=float(size),
        group_name=name,
        comm_id=scope.context.comm(name, hash_=comm_hash, backend="nccl", source="log") if name else None,
        device=pci_address(match["bus"]),
        code=int(match["nvml"] or match["cuda"] or -1) if match["nvml"] or match["cuda"] else None,
        detail=match["fn"],
    )


def _layout(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    writer = writer_of(line, match.start())
    known = comms_of(scope).get((process_of(writer), match["comm"]))
    say(
        scope,
        line,
        match,
        "identity",
        name="local_rank",
        comm_rank=int(match["rank"]),
        value=float(match["n"]),
        local_rank=int(match["local"]),
        group_name=known.name if known else None,
        detail=f"{match['nodes']} nodes, {match['locals']} local ranks",
    )


def _timings(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(
        scope,
        line,
        match,
        "comm_init",
        name="timings",
        comm_rank=int(match["rank"]),
        value=float(match["n"]),
        dur_ms=float(match["total"]) * 1000,
    )


def _connected(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    writer = writer_of(line, match.start())
    begun = threads_of(scope).get((process_of(writer), writer.tid))
    facts = begun[-1][1] if begun else None
    word = match["what"].replace(" ", "_").lower()
    if "ring" in word:
        ends: list[tuple[Process, int | None, int]] = scope.memory.setdefault("nccl_rings_done", [])
        ends.append((process_of(writer), writer.tid, line.number))
    say(
        scope,
        line,
        match,
        "comm_init",
        name=f"connected_{word}",
        comm_rank=facts.rank if facts else None,
        value=float(facts.size) if facts else None,
        group_name=facts.name if facts else None,
    )


def _bootstrap(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(
        scope,
        line,
        match,
        "identity",
        name="address",
        device=match["iface"],
        peer=match["peer"],
        detail="bootstrap",
    )


_DEVICE: Final = re.compile(r"\[(\d{1,4})\](\{[^}]{1,400}\}|[^\s\[;]+)")


def devices_of(scope: FileScope) -> dict[tuple[Process, str], dict[int, str]]:
    """Return the network devices by process and network, index to name."""
    return scope.memory.setdefault("nccl_devices", {})


def _ib_devices(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    writer = writer_of(line, match.start())
    devices: dict[int, str] = {}
    for index, name in _DEVICE.findall(match["list"]):
        device = name.strip("{}").split(",")[0] if name.startswith("{") else name
        device = device.split(":")[0]
        devices[int(index)] = device
        if scope.once(("ib_device", process_of(writer), index, name)):
            say(scope, line, match, "identity", name="nic", device=device, value=float(index), detail=name)
    devices_of(scope)[process_of(writer), "IB"] = devices
    oob = re.search(r"OOB ([\w.-]{1,40}):([\w.:%-]{1,80}?)<\d+>", match["list"])
    if oob:
        say(scope, line, match, "identity", name="address", device=oob[1], peer=oob[2], detail="oob")


_SOCKET_DEVICE: Final = re.compile(r"\[(\d{1,4})\]([\w.@-]{1,40}):([\w.:%-]{1,80}?)<\d+>")


def _socket_devices(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    writer = writer_of(line, match.start())
    devices: dict[int, str] = {}
    for index, device, address in _SOCKET_DEVICE.findall(match["list"]):
        devices[int(index)] = device
        if scope.once(("socket_device", process_of(writer), index, device, address)):
            say(scope, line, match, "identity", name="address", device=device, peer=address, detail="socket")
    devices_of(scope)[process_of(writer), "Socket"] = devices


def _network(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "identity", name="network", detail=match["net"].strip())


def _no_device(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "nic_state", name="no_device", detail="NET/IB found no device")


def _env(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    writer = writer_of(line, match.start())
    value = match["value"].strip().rstrip(".")
    if scope.once(("env", process_of(writer), match["var"], value)):
        say(scope, line, match, "nccl_env", name=match["var"], detail=value[:400])


def _version(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    host, _pid = process_of(writer_of(line, match.start()))
    if scope.once(("version", match["version"], line.facts.rank, host)):
        say(scope, line, match, "nccl_version", name=match["version"])


def _channels(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "identity", name="channels", detail=match[0])


def _noise(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Known and without meaning for us: the line is understood, nothing is written of it."""


_FACTS: Final[tuple[Matcher, ...]] = (
    matcher(
        "nccl_init",
        ("Init START", "Init COMPLETE", "Abort ", "Destroy ", "Revoke ", "Finalize "),
        rf"(?:(?P<fn>nccl\w{{1,60}}) )?comm (?P<comm>{HEX}) rank (?P<rank>\d{{1,7}}) n[rR]anks (?P<n>\d{{1,7}})"
        rf"(?: cudaDev (?P<cuda>\d{{1,4}}))?(?: nvmlDev (?P<nvml>\d{{1,4}}))?(?: busId (?P<bus>[0-9a-f]{{1,12}}))?"
        rf"(?: parent (?P<parent>{HEX})(?: splitCount (?P<split>\d{{1,9}}))?(?: childCount \d+)?"
        r" color (?P<color>-?\d{1,10}) key (?P<key>-?\d{1,10}))?"
        rf"(?: commId (?P<cid>{HEX}))?\s*- (?P<st>(?:Init|Abort|Destroy|Revoke|Finalize) (?:START|COMPLETE))",
        _init,
    ),
    matcher(
        "nccl_layout",
        ("localRanks ",),
        rf"comm (?P<comm>{HEX}) rank (?P<rank>\d{{1,7}}) nRanks (?P<n>\d{{1,7}}) nNodes (?P<nodes>\d{{1,7}}) "
        r"localRanks (?P<locals>\d{1,5}) localRank (?P<local>\d{1,5})",
        _layout,
    ),
    matcher(
        "nccl_timings",
        ("Init timings",),
        r"Init timings(?: - \w{1,60})?: rank (?P<rank>\d{1,7}) nranks (?P<n>\d{1,7}) total (?P<total>\d{1,7}\.\d+)",
        _timings,
    ),
    matcher(
        "nccl_connected",
        ("Connected all", "Connected NVLS", "Connected binomial"),
        r"Connected (?:all )?(?P<what>rings|trees|NVLS tree|binomial trees|ring|tree)",
        _connected,
    ),
    matcher(
        "nccl_bootstrap",
        ("Bootstrap",),
        r"Bootstrap ?: Using (?P<iface>[\w.@-]{1,40}):" + ADDRESS + r"(?=[\s,;]|$)",
        _bootstrap,
    ),
    matcher("nccl_ib_devices", ("NET/IB : Using", "NET/IB: Using"), r"NET/IB ?: Using (?P<list>\[.*)", _ib_devices),
    matcher(
        "nccl_socket_devices",
        ("NET/Socket : Using", "NET/Socket: Using"),
        r"NET/Socket ?: Using (?P<list>\[.*)",
        _socket_devices,
    ),
    matcher(
        "nccl_network",
        ("Using network",),
        r"Using network (?P<net>[\w ./+-]{1,60}?)\s*$",
        _network,
    ),
    matcher("nccl_no_device", ("No device found",), r"NET/IB ?: No device found", _no_device),
    matcher(
        "nccl_env",
        ("set by environment to",),
        r"(?P<var>NCCL_\w{1,60}) set by environment to (?P<value>.*)",
        _env,
    ),
    matcher(
        "nccl_version",
        ("NCCL version", "RCCL version"),
        r"[NR]CCL version (?P<version>\d+\.\d+\.\d+[\w.+-]{0,40})(?! compiled)",
        _version,
    ),
)

_QUIET: Final[tuple[Matcher, ...]] = (
    matcher(
        "nccl_channels",
        ("coll channels,",),
        r"\d{1,4} coll channels, [\w ,]{1,160}",
        _channels,
    ),
    matcher(
        "nccl_return",
        # Not the arrow and the code: those are in every channel line.
        (".cc:", ".cu:", ".cpp:"),
        r"(?<= NCCL INFO )(?P<where>[\w/.-]{1,80}:\d{1,6}) -> (?P<code>[1-8])(?: \[[^\]\r\n]{1,40}\])?\s*$",
        returned,
    ),
    matcher(
        "nccl_noise",
        (
            "NET/Plugin",
            "TUNER/Plugin",
            "PROFILER/Plugin",
            "cudaDriverVersion",
            "P2P Chunksize",
            "threadThresholds",
            "non-device net plugin",
            "Setting affinity",
            "Launch mode",
            "DMA-BUF is available",
            "Check P2P Type",
            "NVLS multicast support",
            "GPU Direct RDMA",
            "CC Off, workFifo",
            "Plugin name set by env",
        ),
        r"NCCL INFO (?:\w+ )?(?:NET/Plugin|TUNER/Plugin|PROFILER/Plugin|cudaDriverVersion|P2P Chunksize"
        r"|threadThresholds"
        r"|Using non-device net plugin|Setting affinity|Launch mode|DMA-BUF is available|Check P2P Type|NVLS multicast"
        r"|GPU Direct RDMA|CC Off|Plugin name)",
        _noise,
    ),
)

MATCHERS: Final[tuple[Matcher, ...]] = (*_FACTS, *_QUIET, *WARNINGS, ANY_WARNING)
