"""What NCCL says when something fails: completions with errors, ports, closed and refused connections, memory.

The reporter is one end and mostly a victim; `peer` is the other end. An event of an own port (`link_down`) is the
strongest text against the host that prints it.
"""

from __future__ import annotations

import re
from typing import Final

from mycroft.loaders.pci import pci_address
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.nccl_writer import ADDRESS, matcher, process_of, say, writer_of
from mycroft.loaders.text.scope import FileScope

_IP: Final = re.compile(r"(?:::ffff:)?(\d{1,3}(?:\.\d{1,3}){3})")


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
    if not any(rule.pattern.search(line.text, match.start()) for rule in WARNINGS):
        say(scope, line, match, "nccl_error", name="warning", level="warning", detail=match["msg"].strip()[:400])


def returned(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Take the code that a call inside NCCL returned: follow-ups of an error, but for the first."""
    # Every caller on the way up prints one; the first is where it began. 7 is "in progress", no error.
    code = int(match["code"])
    if code != 7 and scope.once(("returned", process_of(writer_of(line, match.start("where"))), code)):
        say(scope, line, match, "nccl_error", name="return", level="warning", code=code, detail=match["where"])


WARNINGS: Final[tuple[Matcher, ...]] = (
    matcher(
        "nccl_completion",
        ("Got completion from peer",),
        r"Got completion from peer " + ADDRESS + r" with (?:error |status=)(?:IBV_WC_\w{1,40}\()?(?P<code>\d{1,5})",
        _completion,
    ),
    matcher(
        "nccl_async_event",
        ("async event", "async error event", "async fatal event"),
        r"NET/IB ?: (?:(?P<dev>[\w-]{1,40}:\d+) )?(?:Got )?(?:non-fatal |fatal )?async (?:error |fatal )?event"
        r"(?: on (?:QP|CQ|SRQ)[^:]{0,80})? ?: (?P<what>.{1,200})",
        _async_event,
    ),
    matcher("nccl_modify_qp", ("ibv_modify_qp",), r"Call to ibv_modify_qp failed with(?: error)?", _modify_qp),
    matcher(
        "nccl_open_device", ("Unable to open device",), r"Unable to open device (?P<dev>[\w-]{1,40})", _open_device
    ),
    matcher(
        "nccl_closed",
        ("Connection closed by remote peer",),
        r"Connection closed by remote peer " + ADDRESS + r"(?=[\s,;]|$)",
        _closed,
    ),
    matcher(
        "nccl_closed_local",
        ("Connection closed by localRank",),
        r"Connection closed by localRank (?P<lr>\d{1,5})",
        _closed_local,
    ),
    matcher(
        "nccl_connect",
        ("onnect to ",),
        r"[Cc]onnect to "
        + ADDRESS
        + r" (?:failed ?: (?P<why>[^\r\n]{1,200})|returned (?P<code>\d{1,5})?[ (]*(?P<why2>[^\r\n]{0,200}))",
        _connect,
    ),
    matcher(
        "nccl_foreign",
        ("wrong type", "wrong magic"),
        r"socket\w{1,40}(?: from [^\s:]{1,80}(?::[^\s:]{1,20})*)? ?: "
        r"wrong (?:type|magic) [^\r\n]{1,120}",
        _foreign,
    ),
    matcher(
        "nccl_proxy",
        ("Proxy Call to rank", "Failed to execute operation"),
        r"(?:Proxy Call to rank (?P<rank>\d{1,7}) failed \((?P<what>\w+)\)"
        r"|Failed to execute operation (?P<op>\w+) from rank (?P<from>\d{1,7})(?:, retcode (?P<code>\d{1,5}))?)",
        _proxy,
    ),
    matcher(
        "nccl_shm",
        ("posix_fallocate", "shared memory segment"),
        r"(?:Call to posix_fallocate failed[^\r\n]{0,160}"
        r"|Error while (?:creating|attaching to) shared memory segment[^\r\n]{0,200})",
        _shm,
    ),
    matcher(
        "nccl_cuda",
        ("Cuda failure", "Failed to CUDA"),
        r"(?:Cuda failure (?:(?P<code>\d{1,5}) )?'(?P<what>[^'\r\n]{1,200})"
        r"|Failed to CUDA (?:\w{1,30}) [^\r\n]{0,100})",
        _cuda,
    ),
    matcher(
        "nccl_duplicate",
        ("Duplicate GPU detected",),
        r"Duplicate GPU detected ?: rank (?P<a>\d{1,7}) and rank (?P<b>\d{1,7}) both on (?:CUDA|ROCm|HIP) device "
        r"(?P<bus>[0-9a-f:.]{1,20})",
        _duplicate,
    ),
    matcher(
        "nccl_skew",
        ("Mismatched NCCL version",),
        r"Mismatched NCCL version detected ?: rank (?P<a>\d{1,7}) version (?P<va>\d{1,7}) "
        r"rank (?P<b>\d{1,7}) version (?P<vb>\d{1,7})",
        _skew,
    ),
    matcher(
        "nccl_imex", ("MNNVL (cliqueSize",), r"MNNVL \(cliqueSize \d+\) is available but not [^\r\n]{1,120}", _imex
    ),
    matcher(
        "nccl_mismatch",
        ("Mismatched collective", "mismatched ", "invalid root"),
        r"(?:Mismatched collective detected[^\r\n]{0,160}|Send/Recv ?: mismatched[^\r\n]{0,160}"
        r"|\w{1,30} ?: invalid root \S{1,20}[^\r\n]{0,80})",
        _mismatch,
    ),
    matcher(
        "nccl_ofi",
        ("NET/OFI Request",),
        r"NET/OFI Request \S{0,20} ?completed with error\.? ?(?:RC: (?P<code>\d{1,5}))?",
        _ofi,
    ),
    matcher(
        "nccl_efa",
        ("My host id:",),
        r"My host id: (?P<mine>[\w.:-]{1,80}) .{0,40}?Peer host id: (?P<peer>[\w.:-]{1,80})",
        _efa_hosts,
    ),
)
ANY_WARNING: Final = matcher("nccl_warning", ("NCCL WARN",), r"(?<=NCCL WARN )(?P<msg>[^\r\n]{1,1000})", _other_warning)
