"""What else torch prints when something breaks: Gloo, the key-value store, memory, devices, data loader workers.

Log-format notes, section 2. The address in a Gloo or store error is the *other* end: where to look.
"""

from __future__ import annotations

import re
from typing import Final

from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope
from mycroft.loaders.text.torch_log import FORMAT, rank_number, told

_GIB: Final = {"B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "BYTES": 1}
SIGNALS: Final = {
    "Hangup": -1,
    "Interrupt": -2,
    "Illegal instruction": -4,
    "Aborted": -6,
    "Bus error": -7,
    "Floating point exception": -8,
    "Killed": -9,
    "Segmentation fault": -11,
    "Terminated": -15,
}


def _closed(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    rank = line.rank_at(match.start())
    peer = f"{match['host']}:{match['port']}"
    # The same text stands in the program's own message and in the traceback after it.
    if scope.once(("closed", rank, peer, match["how"])):
        name = "gloo_reset" if "reset" in match["how"] else "gloo"
        scope.event(line, match.start(), "connection_closed", level="error", name=name, peer=peer)


def _gloo_timeout(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    rank = line.rank_at(match.start())
    if scope.once(("gloo_timeout", rank, match["dir"], match["ms"])):
        scope.event(
            line,
            match.start(),
            "watchdog_timeout",
            level="error",
            name=f"gloo_{match['dir']}",
            op_kind=None,
            value=float(match["ms"]),
        )


def _clients(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.once(("clients", line.rank_at(match.start()), match["n"], match["all"])):
        scope.event(
            line,
            match.start(),
            "join_timeout",
            level="error",
            name=f"{match['n']}/{match['all']} clients joined",
            value=float(match["n"]),
            dur_ms=float(match["s"]) * 1000,
        )


def _cuda_oom(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if not scope.once(("oom", line.rank_at(match.start()), match["gpu"], match["n"])):
        return
    tried = int(float(match["n"]) * _GIB.get(match["unit"].upper(), 1)) if match["n"] else None
    scope.event(
        line,
        match.start(),
        "out_of_memory",
        level="error",
        name="cuda",
        device=match["gpu"],
        bytes=tried if tried is not None and tried < 2**63 else None,
    )


def _cuda_error(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.once(("cuda", line.rank_at(match.start()), match["what"])):
        scope.event(line, match.start(), "cuda_error", level="error", name=match["what"])


def _worker(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    pids = re.findall(r"\d+", match["pids"])[:64]
    signal = match["signal"].strip(" .") if match["signal"] else None
    for pid in pids:
        if scope.once(("worker", line.rank_at(match.start()), pid)):
            scope.event(
                line,
                match.start(),
                "signal" if signal else "exit",
                level="error",
                name="dataloader_worker",
                pid=rank_number(pid),
                code=SIGNALS.get(signal.removesuffix(" (core dumped)")) if signal else None,
            )


def _store_connect(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.once(("connect", line.rank_at(match.start()), match["peer"], match["errno"])):
        scope.event(
            line,
            match.start(),
            "connect_failed",
            level="error",
            name="store",
            peer=match["peer"],
            code=int(match["errno"]) if match["errno"] and len(match["errno"]) < 5 else None,
        )


def _unresolved(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    if scope.once(("unresolved", line.rank_at(match.start()), match["peer"])):
        scope.event(
            line,
            match.start(),
            "connect_failed",
            level="warning",
            name="resolve",
            peer=match["peer"],
            detail=match["why"],
        )


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "gloo_closed",
        FORMAT,
        ("Connection closed by peer", "Connection reset by peer", "Read error [", "Write error ["),
        re.compile(
            r"(?P<how>Connection closed by peer|Connection reset by peer) \[(?P<host>[^\]]{1,255})\]:(?P<port>\d{1,5})"
        ),
        _closed,
    ),
    Matcher(
        "gloo_reset",
        FORMAT,
        ("Read error [", "Write error [", "writev ["),
        re.compile(
            r"(?:Read error|Write error|readv?|writev?) \[(?P<host>[^\]]{1,255})\]:(?P<port>\d{1,5}): "
            r"(?P<how>Connection reset by peer|Broken pipe|Connection timed out|[A-Z][\w ]{3,60})"
        ),
        _closed,
    ),
    Matcher(
        "gloo_timeout",
        FORMAT,
        ("Timed out waiting",),
        re.compile(r"Timed out waiting (?P<ms>\d+)ms for (?P<dir>recv|send) operation to complete"),
        _gloo_timeout,
    ),
    Matcher(
        "gloo_other",
        FORMAT,
        ("Application timeout caused pair closure", "connectFullMesh failed", "Gloo connect"),
        re.compile(r"(?P<what>Application timeout caused pair closure|Gloo connectFullMesh failed)"),
        told("connect_failed", "gloo"),
    ),
    Matcher(
        "gloo_enforce",
        FORMAT,
        ("Received data size doesn't match expected size",),
        re.compile(r"(?<!\d)(?P<value>\d{1,15}) vs \d{1,15}\. Received data size doesn't match expected size"),
        told("fingerprint_mismatch", "gloo_size"),
    ),
    Matcher(
        "store_clients",
        FORMAT,
        ("clients joined",),
        re.compile(r"Timed out after (?P<s>\d+) seconds waiting for clients\. (?P<n>\d+)/(?P<all>\d+) clients joined"),
        _clients,
    ),
    Matcher(
        "store_lost",
        FORMAT,
        ("failed on SocketImpl(",),
        re.compile(
            r"(?P<what>recvValue|sendBytes|recvVector|sendValue|recvBytes|\w{4,20}) failed on SocketImpl\("
            r"fd=-?\d+(?:, addr=[^,]{0,255})?(?:, remote=(?P<peer>[^)]{0,255}))?\)"
        ),
        told("store_error", "store"),
    ),
    Matcher(
        "store_dump_flag",
        FORMAT,
        ("flag on TCPStore",),
        re.compile(r"Failed to (?:check|set) the .{0,40}flag on TCPStore"),
        told("store_error", "store_gone"),
    ),
    Matcher(
        "store_wait",
        FORMAT,
        ("waitForInput: ", "Wait timeout"),
        re.compile(
            r"waitForInput: .{0,40}SocketImpl\([^)]{0,300}?(?:remote=(?P<peer>[^)]{0,255}))?\)"
            r" timed out after (?P<ms>\d+)ms"
            r"|(?<![\w.])Wait timeout(?= |$|\.|,)"
        ),
        told("store_error", "store_timeout"),
    ),
    Matcher(
        "store_connect",
        FORMAT,
        ("client socket has failed to connect", "client socket has timed out", "socket has failed to"),
        re.compile(
            r"client socket has (?:failed to connect to|timed out after \d+ ?ms while trying to connect to) "
            r"(?P<peer>.{1,255}?)(?= \(errno|\.(?:\s|$)|$)(?: \(errno: (?P<errno>\d+))?"
        ),
        _store_connect,
    ),
    Matcher(
        "store_name",
        FORMAT,
        ("cannot be retrieved (gai error",),
        re.compile(
            r"network addresses of (?P<peer>\([^()]{1,255}\)|\[[^\]]{1,255}\]:\d{1,5}) cannot be retrieved "
            r"\(gai error: (?P<why>[^()]{1,120})"
        ),
        _unresolved,
    ),
    Matcher(
        "cuda_oom",
        FORMAT,
        ("CUDA out of memory", "HIP out of memory", "NPU out of memory"),
        re.compile(
            r"(?:CUDA|HIP|NPU) out of memory\.(?: Tried to allocate (?P<n>\d+(?:\.\d+)?) (?P<unit>\w+))?"
            r"(?:\.? ?\(?GPU (?P<gpu>\d+))?"
        ),
        _cuda_oom,
    ),
    Matcher(
        "cuda_error",
        FORMAT,
        ("CUDA error: ", "HIP error: ", "CUDA error "),
        re.compile(
            r"(?:CUDA|HIP) error:? (?P<what>unspecified launch failure|an illegal memory access was encountered"
            r"|device-side assert triggered|uncorrectable ECC error encountered|uncorrectable NVLink error[\w ]{0,60}"
            r"|unknown error|misaligned address|an illegal instruction was encountered|the launch timed out[\w ]{0,40}"
            r"|[a-z][\w -]{4,90})"
        ),
        _cuda_error,
    ),
    Matcher(
        "gpu_memory_fault",
        FORMAT,
        ("Memory access fault by GPU",),
        re.compile(r"Memory access fault by GPU node-\d{1,4}[^\r\n]{0,160}"),
        told("cuda_error", "memory access fault"),
    ),
    Matcher(
        "dataloader_worker",
        FORMAT,
        ("DataLoader worker (pid",),
        re.compile(
            r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]+)\) "
            r"(?:is killed by signal: (?P<signal>[A-Z][a-z ()]{2,40})|exited unexpectedly)"
        ),
        _worker,
    ),
)
