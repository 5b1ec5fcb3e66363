"""What NCCL prints with NCCL_DEBUG: who is who, how far the start-up has come, what failed (2.10 to 2.30).

Every line carries `host:pid:tid [dev]`; the process is the key by which `identity` finds the rank. Several
processes share a console, so a message is found anywhere and the nearest writer before it is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mycroft.loaders.pci import pci_address
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope, Row

FORMAT: Final = "nccl_log"

# Stands in front of the message; the host is missing in some containers, and `pdsh` may have been taken for it.
WRITER: Final = re.compile(
    r"(?:(?P<host>[A-Za-z0-9][\w.-]{0,254}))?:?(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) (?:\[(?P<dev>-?\d+)\] )?"
    r"(?:(?:[\w./-]+:\d+ )?(?:\([^()\s]{0,80}\) )?)?NCCL (?P<level>INFO|WARN|CALL|TRACE|ERROR) "
)
_HEX: Final = r"0x[0-9a-fA-F]{1,16}"
_ADDRESS: Final = r"(?P<peer>[\w.:%\[\]-]{1,80}?)(?:<(?P<port>\d+)>)?"
_IP: Final = re.compile(r"(?:::ffff:)?(\d{1,3}(?:\.\d{1,3}){3})")
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


@dataclass(frozen=True, slots=True)
class Writer:
    """The process and thread that printed a message; `at` is where its prefix begins."""

    at: int
    host: str | None
    pid: int | None
    tid: int | None
    dev: int | None
    level: str | None


def writer_of(line: Line, at: int) -> Writer:
    """Return who printed what stands at `at`; None everywhere where the message has no prefix of its own."""
    begin = max(0, at - 400)
    found: re.Match[str] | None = None
    # Only the last prefix counts; `NCCL ` in front of it narrows the search.
    mark = line.text.rfind("NCCL ", begin, at)
    if mark >= 0:
        for prefix in WRITER.finditer(line.text, begin, at):
            found = prefix
    if found is None:
        return Writer(at, line.facts.host, line.facts.pid, None, None, None)
    host = found["host"]
    return Writer(
        found.start(),
        host if host and not host.isdigit() else line.facts.host,
        int(found["pid"]),
        int(found["tid"]),
        int(found["dev"]) if found["dev"] else None,
        found["level"],
    )


def say(scope: FileScope, line: Line, match: re.Match[str], kind: str, **columns: Any) -> Row:
    """Add an event of the process that printed the match."""
    writer = writer_of(line, match.start())
    level = columns.pop("level", None) or ("warning" if writer.level == "WARN" else "info")
    if writer.host is not None:
        columns["host"] = writer.host
    if writer.pid is not None:
        columns["pid"] = writer.pid
    return scope.event(line, writer.at, kind, level=level, **columns)


# -- who is who ---------------------------------------------------------------------------------------------------

Process = tuple[str, int | None]


@dataclass(slots=True)
class CommFacts:
    """One communicator of one process, from its init line."""

    name: str
    hash: int | None
    rank: int
    size: int
    line: int


def process_of(writer: Writer) -> Process:
    """Return the key of the process that printed a line."""
    return (writer.host or "", writer.pid)


def comms_of(scope: FileScope) -> dict[tuple[Process, str], CommFacts]:
    """Return the communicators of this file by process and pointer."""
    return scope.memory.setdefault("nccl_comms", {})


def threads_of(scope: FileScope) -> dict[tuple[Process, int | None], list[tuple[int, CommFacts]]]:
    """Return what each thread has begun to set up, in order of lines; thread None: the process."""
    return scope.memory.setdefault("nccl_threads", {})


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


_DEVICE: Final = re.compile(r"\[(\d+)\](\{[^}]{1,400}\}|[^\s\[;]+)")


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


_SOCKET_DEVICE: Final = re.compile(r"\[(\d+)\]([\w.@-]{1,40}):([\w.:%-]{1,80}?)<\d+>")


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


# -- what failed ---------------------------------------------------------------------------------------------------


def _ip(text: str | None) -> str | None:
    """Return the IPv4 address inside an address or GID, else the text itself."""
    if not text:
        return None
    match = _IP.search(text)
    return match[1] if match else text.strip("[]")


def _completion(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    tail = line.text[match.end() : match.end() + 600]
    hca = re.search(r"\bhca (\w+)", tail)
    vendor = re.search(r"vendor[ _]err[ =]?(\d+)", line.text[match.start() : match.end() + 200])
    side = re.search(r"\((Send|Recv)\)", tail[:80])
    say(
        scope,
        line,
        match,
        "ib_error",
        name="completion",
        level="error",
        code=int(match["code"]),
        peer=_ip(match["peer"]),
        device=hca[1] if hca else None,
        value=float(vendor[1]) if vendor else None,
        detail=f"vendor_err {vendor[1]}" if vendor else None,
        op_kind=side[1].lower() if side else None,
    )


def _async_event(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    what = match["what"].strip()
    low = what.lower()
    device = match["dev"].split(":")[0] if match["dev"] else None
    kind = "ib_error"
    if low.startswith("port error") or "catastrophic" in low or "device fatal" in low:
        kind = "link_down"
    elif low.startswith("port active"):
        kind = "link_up"
    say(
        scope,
        line,
        match,
        kind,
        name="async_event",
        level="error" if kind == "link_down" else "info" if kind == "link_up" else "warning",
        device=device,
        detail=what[:200],
    )


def _modify_qp(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    tail = line.text[match.end() : match.end() + 600]
    code = re.search(r"\[errno (\d+)\]", tail) or re.match(r"\s*(\d+)", tail)
    device = re.search(r"on dev (\w+)", tail)
    remote = re.search(r"remote GID ([\w.:]+)", tail)
    say(
        scope,
        line,
        match,
        "connect_failed",
        name="modify_qp",
        level="error",
        code=int(code[1]) if code else None,
        device=device[1] if device else None,
        peer=_ip(remote[1]) if remote else None,
        detail=tail.strip()[:200],
    )


def _open_device(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "nic_state", name="unable_to_open", level="error", device=match["dev"])


def _closed(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "connection_closed", name="remote_peer", level="error", peer=_ip(match["peer"]))


def _closed_local(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    # The rank of the node whose process closed the connection, not of the writer.
    say(
        scope,
        line,
        match,
        "connection_closed",
        name="local_rank",
        level="warning",
        peer=f"localRank {match['lr']}",
        value=float(match["lr"]),
    )


def _connect(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    code = match["code"]
    why = match["why"] or match["why2"] or ""
    say(
        scope,
        line,
        match,
        "connect_failed",
        name="connect",
        level="error",
        peer=_ip(match["peer"]),
        code=int(code) if code else None,
        detail=why.strip(" ():,")[:200] or None,
    )


def _proxy(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    rank = match["rank"] or match["from"]
    say(
        scope,
        line,
        match,
        "nccl_error",
        name="proxy",
        level="warning",
        code=int(match["code"]) if match["code"] else None,
        detail=match["what"] or match["op"],
        value=float(rank) if rank else None,
    )


def _foreign(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "connect_failed", name="foreign_client", level="warning", detail=match[0][:200])


def _shm(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "nccl_error", name="shm", level="error", detail=match[0][:200])


def _cuda(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    memory = "memory" in (match["what"] or match[0])
    say(
        scope,
        line,
        match,
        "out_of_memory" if memory else "cuda_error",
        name="nccl_cuda",
        level="error",
        code=int(match["code"]) if match["code"] else None,
        detail=(match["what"] or match[0])[:200],
    )


def _duplicate(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(
        scope,
        line,
        match,
        "nccl_error",
        name="duplicate_gpu",
        level="error",
        comm_rank=int(match["a"]),
        value=float(match["b"]),
        device=pci_address(match["bus"]),
    )


def _skew(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(
        scope,
        line,
        match,
        "nccl_error",
        name="version_mismatch",
        level="error",
        comm_rank=int(match["a"]),
        value=float(match["va"]),
        detail=f"rank {match['a']} version {match['va']}, rank {match['b']} version {match['vb']}",
    )


def _imex(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "nccl_error", name="imex", level="warning", detail=match[0][:200])


def _mismatch(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "nccl_error", name="argument", level="error", detail=match[0][:200])


def _ofi(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    mine = re.search(r"My host id: (\S+)", line.text)
    peer = re.search(r"Peer host id: (\S+)", line.text)
    say(
        scope,
        line,
        match,
        "ib_error",
        name="ofi",
        level="error",
        code=int(match["code"]) if match["code"] else None,
        peer=peer[1].rstrip(".,") if peer else None,
        detail=mine[1].rstrip(".,") if mine else None,
    )


def _efa_hosts(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(
        scope,
        line,
        match,
        "ib_error",
        name="efa",
        level="error",
        detail=match["mine"].rstrip(".,"),
        peer=match["peer"].rstrip(".,"),
    )


def _other_warning(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if not any(rule.pattern.search(line.text, match.start()) for rule in _WARNINGS):
        say(scope, line, match, "nccl_error", name="warning", level="warning", detail=match["msg"].strip()[:400])


def _returned(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    # Every caller on the way up prints one; the first is where it began. 7 is "in progress", no error.
    code = int(match["code"])
    if code != 7 and scope.once(("returned", process_of(writer_of(line, match.start("where"))), code)):
        say(scope, line, match, "nccl_error", name="return", level="warning", code=code, detail=match["where"])


def _channels(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    say(scope, line, match, "identity", name="channels", detail=match[0])


def _noise(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Known and without meaning for us: the line is understood, nothing is written of it."""


Handler = Callable[[FileScope, Line, "re.Match[str]"], None]


def _matcher(name: str, literals: tuple[str, ...], pattern: str, handler: Handler, follow: int = 0) -> Matcher:
    return Matcher(name, FORMAT, literals, re.compile(pattern), handler, follow)


_FACTS: Final[tuple[Matcher, ...]] = (
    _matcher(
        "nccl_init",
        ("Init START", "Init COMPLETE", "Abort ", "Destroy ", "Revoke ", "Finalize "),
        rf"(?:(?P<fn>nccl\w{{1,60}}) )?comm (?P<comm>{_HEX}) rank (?P<rank>\d{{1,7}}) n[rR]anks (?P<n>\d{{1,7}})"
        rf"(?: cudaDev (?P<cuda>\d{{1,4}}))?(?: nvmlDev (?P<nvml>\d{{1,4}}))?(?: busId (?P<bus>[0-9a-f]{{1,12}}))?"
        rf"(?: parent (?P<parent>{_HEX})(?: splitCount (?P<split>\d{{1,9}}))?(?: childCount \d+)?"
        r" color (?P<color>-?\d{1,10}) key (?P<key>-?\d{1,10}))?"
        rf"(?: commId (?P<cid>{_HEX}))?\s*- (?P<st>(?:Init|Abort|Destroy|Revoke|Finalize) (?:START|COMPLETE))",
        _init,
    ),
    _matcher(
        "nccl_layout",
        ("localRanks ",),
        rf"comm (?P<comm>{_HEX}) rank (?P<rank>\d{{1,7}}) nRanks (?P<n>\d{{1,7}}) nNodes (?P<nodes>\d{{1,7}}) "
        r"localRanks (?P<locals>\d{1,5}) localRank (?P<local>\d{1,5})",
        _layout,
    ),
    _matcher(
        "nccl_timings",
        ("Init timings",),
        r"Init timings(?: - \w{1,60})?: rank (?P<rank>\d{1,7}) nranks (?P<n>\d{1,7}) total (?P<total>\d{1,7}\.\d+)",
        _timings,
    ),
    _matcher(
        "nccl_connected",
        ("Connected all", "Connected NVLS", "Connected binomial"),
        r"Connected (?:all )?(?P<what>rings|trees|NVLS tree|binomial trees|ring|tree)",
        _connected,
    ),
    _matcher(
        "nccl_bootstrap",
        ("Bootstrap",),
        r"Bootstrap ?: Using (?P<iface>[\w.@-]{1,40}):" + _ADDRESS + r"(?=[\s,;]|$)",
        _bootstrap,
    ),
    _matcher("nccl_ib_devices", ("NET/IB : Using", "NET/IB: Using"), r"NET/IB ?: Using (?P<list>\[.*)", _ib_devices),
    _matcher(
        "nccl_socket_devices",
        ("NET/Socket : Using", "NET/Socket: Using"),
        r"NET/Socket ?: Using (?P<list>\[.*)",
        _socket_devices,
    ),
    _matcher(
        "nccl_network",
        ("Using network",),
        r"Using network (?P<net>[\w ./+-]{1,60}?)\s*$",
        _network,
    ),
    _matcher("nccl_no_device", ("No device found",), r"NET/IB ?: No device found", _no_device),
    _matcher(
        "nccl_env",
        ("set by environment to",),
        r"(?P<var>NCCL_\w{1,60}) set by environment to (?P<value>.*)",
        _env,
    ),
    _matcher(
        "nccl_version",
        ("NCCL version", "RCCL version"),
        r"[NR]CCL version (?P<version>\d+\.\d+\.\d+[\w.+-]{0,40})(?! compiled)",
        _version,
    ),
)

_QUIET: Final[tuple[Matcher, ...]] = (
    _matcher(
        "nccl_channels",
        ("coll channels,",),
        r"\d{1,4} coll channels, [\w ,]{1,160}",
        _channels,
    ),
    _matcher(
        "nccl_return",
        # Not the arrow and the code: those are in every channel line.
        (".cc:", ".cu:", ".cpp:"),
        r"(?<= NCCL INFO )(?P<where>[\w/.-]{1,80}:\d{1,6}) -> (?P<code>[1-8])(?: \[[^\]\r\n]{1,40}\])?\s*$",
        _returned,
    ),
    _matcher(
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

_WARNINGS: Final[tuple[Matcher, ...]] = (
    _matcher(
        "nccl_completion",
        ("Got completion from peer",),
        r"Got completion from peer " + _ADDRESS + r" with (?:error |status=)(?:IBV_WC_\w{1,40}\()?(?P<code>\d{1,5})",
        _completion,
    ),
    _matcher(
        "nccl_async_event",
        ("async event", "async error event", "async fatal event"),
        r"NET/IB ?: (?:(?P<dev>[\w-]{1,40}:\d+) )?(?:Got )?(?:non-fatal |fatal )?async (?:error |fatal )?event"
        r"(?: on (?:QP|CQ|SRQ)[^:]{0,80})? ?: (?P<what>.{1,200})",
        _async_event,
    ),
    _matcher("nccl_modify_qp", ("ibv_modify_qp",), r"Call to ibv_modify_qp failed with(?: error)?", _modify_qp),
    _matcher(
        "nccl_open_device", ("Unable to open device",), r"Unable to open device (?P<dev>[\w-]{1,40})", _open_device
    ),
    _matcher(
        "nccl_closed",
        ("Connection closed by remote peer",),
        r"Connection closed by remote peer " + _ADDRESS + r"(?=[\s,;]|$)",
        _closed,
    ),
    _matcher(
        "nccl_closed_local",
        ("Connection closed by localRank",),
        r"Connection closed by localRank (?P<lr>\d{1,5})",
        _closed_local,
    ),
    _matcher(
        "nccl_connect",
        ("onnect to ",),
        r"[Cc]onnect to "
        + _ADDRESS
        + r" (?:failed ?: (?P<why>[^\r\n]{1,200})|returned (?P<code>\d{1,5})?[ (]*(?P<why2>[^\r\n]{0,200}))",
        _connect,
    ),
    _matcher(
        "nccl_foreign",
        ("wrong type", "wrong magic"),
        r"socket\w{1,40}(?: from [^\s:]{1,80}(?::[^\s:]{1,20})*)? ?: "
        r"wrong (?:type|magic) [^\r\n]{1,120}",
        _foreign,
    ),
    _matcher(
        "nccl_proxy",
        ("Proxy Call to rank", "Failed to execute operation"),
        r"(?:Proxy Call to rank (?P<rank>\d{1,7}) failed \((?P<what>\w+)\)"
        r"|Failed to execute operation (?P<op>\w+) from rank (?P<from>\d{1,7})(?:, retcode (?P<code>\d{1,5}))?)",
        _proxy,
    ),
    _matcher(
        "nccl_shm",
        ("posix_fallocate", "shared memory segment"),
        r"(?:Call to posix_fallocate failed[^\r\n]{0,160}"
        r"|Error while (?:creating|attaching to) shared memory segment[^\r\n]{0,200})",
        _shm,
    ),
    _matcher(
        "nccl_cuda",
        ("Cuda failure", "Failed to CUDA"),
        r"(?:Cuda failure (?:(?P<code>\d{1,5}) )?'(?P<what>[^'\r\n]{1,200})"
        r"|Failed to CUDA (?:\w{1,30}) [^\r\n]{0,100})",
        _cuda,
    ),
    _matcher(
        "nccl_duplicate",
        ("Duplicate GPU detected",),
        r"Duplicate GPU detected ?: rank (?P<a>\d{1,7}) and rank (?P<b>\d{1,7}) both on (?:CUDA|ROCm|HIP) device "
        r"(?P<bus>[0-9a-f:.]{1,20})",
        _duplicate,
    ),
    _matcher(
        "nccl_skew",
        ("Mismatched NCCL version",),
        r"Mismatched NCCL version detected ?: rank (?P<a>\d{1,7}) version (?P<va>\d{1,7}) "
        r"rank (?P<b>\d{1,7}) version (?P<vb>\d{1,7})",
        _skew,
    ),
    _matcher(
        "nccl_imex", ("MNNVL (cliqueSize",), r"MNNVL \(cliqueSize \d+\) is available but not [^\r\n]{1,120}", _imex
    ),
    _matcher(
        "nccl_mismatch",
        ("Mismatched collective", "mismatched ", "invalid root"),
        r"(?:Mismatched collective detected[^\r\n]{0,160}|Send/Recv ?: mismatched[^\r\n]{0,160}"
        r"|\w{1,30} ?: invalid root \S{1,20}[^\r\n]{0,80})",
        _mismatch,
    ),
    _matcher(
        "nccl_ofi",
        ("NET/OFI Request",),
        r"NET/OFI Request \S{0,20} ?completed with error\.? ?(?:RC: (?P<code>\d{1,5}))?",
        _ofi,
    ),
    _matcher(
        "nccl_efa",
        ("My host id:",),
        r"My host id: (?P<mine>[\w.:-]{1,80}) .{0,40}?Peer host id: (?P<peer>[\w.:-]{1,80})",
        _efa_hosts,
    ),
)

_ANY_WARNING: Final = _matcher(
    "nccl_warning", ("NCCL WARN",), r"(?<=NCCL WARN )(?P<msg>[^\r\n]{1,1000})", _other_warning
)
MATCHERS: Final[tuple[Matcher, ...]] = (*_FACTS, *_QUIET, *_WARNINGS, _ANY_WARNING)
