"""What torch's ProcessGroupNCCL prints when something is stuck: timeouts, status lines, dump signals, the monitor.

Formats of torch 1.12 to 2.14 (log-format notes of the project, sections 1.1 to 1.5). The number in `[Rank 6]` is the
rank inside the group, `[rank97]:` before the message is the global one.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.text.matcher import Line, LineHandler, Matcher
from mycroft.loaders.text.scope import FileScope, Row

FORMAT: Final = "torch_log"

# [PG 0 Rank 3] (2.3), [PG 0 (default_pg) Rank 3] (2.4), [PG ID 2 PG GUID 9(mesh_fsdp) Rank 3] (2.5 and later)
PG: Final = re.compile(
    r"\[PG (?:ID )?(?P<pgid>\d+)(?: PG GUID (?P<guid>[^\s(\]]*))?(?: ?\((?P<desc>[^)]*)\))? Rank (?P<prank>\d+)\]"
)
_GROUP_RANK: Final = re.compile(r"\[Rank (\d+)\]")
_WORK: Final = (
    r"Work[A-Z]+CCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
    r"(?:, NumelIn=(?P<nin>\d+), NumelOut=(?P<nout>\d+))?(?:, Timeout\(ms\)=(?P<to>\d+))?"
)

OP_KINDS: Final = {
    "BROADCAST": "broadcast",
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce",
    "_ALLREDUCE_SPARSE": "all_reduce",
    "REDUCE": "reduce",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "all_gather",
    "ALLGATHER_COALESCED": "all_gather",
    "GATHER": "gather",
    "SCATTER": "scatter",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "reduce_scatter",
    "REDUCE_SCATTER_COALESCED": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
    "SEND": "send",
    "RECV": "recv",
    "RECVANYSOURCE": "recv",
    "BARRIER": "barrier",
    "COALESCED": "coalesced",
}


def op_kind(name: str) -> str:
    """Return our word for torch's `OpType`."""
    return OP_KINDS.get(name, "other")


def number(text: str | None, limit: int = 2**63 - 1) -> int | None:
    """Return digits as a number that fits its column; None for none and for what cannot be one."""
    if not text or len(text) > 20:
        return None
    value = int(text)
    return value if abs(value) <= limit else None


def rank_number(text: str | None) -> int | None:
    """Return digits as a rank, None where they cannot be one."""
    return number(text, 2**32 - 1)


def group_columns(scope: FileScope, line: Line, at: int) -> Row:
    """Return the group that the nearest `[PG …]` before `at` names, with the rank inside it.

    `group_name` is torch's name of the group, equal on all members: the GUID, or `0` for the default group. Up to
    2.4 other groups have only a number that differs between processes; the description stands for the name there.
    """
    found = list(PG.finditer(line.text, 0, at))
    if not found:
        for inner in _GROUP_RANK.finditer(line.text, 0, at):
            return {"comm_rank": rank_number(inner[1])}
        return {}
    match = found[-1]
    description = match["desc"] or None
    name = match["guid"] or (
        "0" if description == "default_pg" or (description is None and match["pgid"] == "0") else None
    )
    columns: Row = {
        "comm_rank": rank_number(match["prank"]),
        "group_name": name or (match["pgid"] if description is None else None),
        "group_desc": description,
    }
    rank = line.rank_at(at)
    known = name or description or match["pgid"]
    inside = rank_number(match["prank"])
    if rank is None and inside is not None:
        # Up to 2.1 the line has no global rank; other evidence may list the members of the group.
        members = scope.context.members(known, desc=description) or scope.listed_members(description, None)
        if members is not None and inside < len(members):
            rank = members[inside]
            columns["rank"] = rank
        elif name == "0":
            rank = inside
            columns["rank"] = rank
    listed = scope.listed_members(description, rank)
    columns["comm_id"] = scope.context.comm(known, ranks=listed, desc=description, source="log", of_rank=rank)
    return columns


def _timeout(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    rank = line.rank_at(match.start())
    same: tuple[Any, ...] = ("timeout", match["prank"], match["seq"], match["op"], match["nin"], match["ran"])
    if rank is None:
        if not scope.once(same):
            return
    elif not scope.once((rank, *same)):
        return
    scope.once(same)
    group = group_columns(scope, line, match.start())
    if match["prank"]:
        group["comm_rank"] = rank_number(match["prank"])
    row = scope.event(
        line,
        match.start(),
        "watchdog_timeout",
        level="error",
        seq=number(match["seq"]),
        op_kind=op_kind(match["op"]),
        name=match["op"],
        in_numel=number(match["nin"]),
        out_numel=number(match["nout"]),
        dur_ms=float(match["ran"]) if match["ran"] else None,
        value=float(match["to"]) if match["to"] else None,
        text=match[0][:2000],
        **group,
    )
    scope.memory.setdefault("timeouts", []).append(row)


def _status(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    at = match.start()
    group = group_columns(scope, line, at)
    rank = line.rank_at(at) if line.rank_at(at) is not None else group.get("rank")
    key = ("status", rank, group.get("comm_rank"), group.get("comm_id"), match["seq"], match["enq"], match["comp"])
    if not scope.once(key):
        return
    row = scope.event(
        line,
        at,
        "pg_status",
        level="error",
        seq=number(match["seq"]),
        last_enqueued=number(match["enq"]),
        last_completed=number(match["comp"]),
        text=line.text[_head(line, at) :][:2000],
        **group,
    )
    scope.memory.setdefault("statuses", []).append(row)
    _group_status(scope, line, at, row)


def _group_status(scope: FileScope, line: Line, at: int, row: Row) -> None:
    if row.get("comm_id") is None:
        return
    scope.status(
        line,
        at,
        row["comm_id"],
        rank=row["rank"],
        last_enqueued=_or_none(row["last_enqueued"]),
        last_completed=_or_none(row["last_completed"]),
    )


def _or_none(sequence: int | None) -> int | None:
    return None if sequence is None or sequence < 0 else sequence


def _head(line: Line, at: int) -> int:
    """Return where the message around `at` begins: at the last torch prefix before it."""
    starts = [line.text.rfind(mark, 0, at) for mark in ("[rank", "[E", "[I", "[W", "[PG ", "[F")]
    return max(0, min((start for start in starts if start >= 0), default=0)) if at < 400 else max(0, at - 200)


def _dump_signal(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    at = match.start()
    group = group_columns(scope, line, at)
    rank = line.rank_at(at) if line.rank_at(at) is not None else group.get("rank")
    if not scope.once(("dump", rank, group.get("comm_rank"), group.get("comm_id"), match["enq"], match["comp"])):
        return
    row = scope.event(
        line,
        at,
        "dump_signal",
        level="error",
        name="local" if "local rank" in match["src"] else "remote",
        peer_rank=rank_number(match["r"]),
        last_enqueued=number(match["enq"]),
        last_completed=number(match["comp"]),
        **group,
    )
    # The numbers are those of the default group, which prints the line.
    if match["enq"] and row.get("group_name") == "0":
        _group_status(scope, line, at, row)


def noise(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Understood, and nothing to keep of it."""


def told(kind: str, name: str, level: str = "error") -> LineHandler:
    """Return a handler that makes one row of `kind` called `name`.

    Groups of the pattern fill columns: `value` and `ms` are numbers, `peer` and `what` (then the name) are texts,
    `prank` is the rank inside the group.
    """

    def handler(scope: FileScope, line: Line, match: re.Match[str]) -> None:
        at = match.start()
        groups = match.groupdict()
        columns: Row = {"name": groups.get("what") or name, "level": level, **group_columns(scope, line, at)}
        if groups.get("value"):
            columns["value"] = float(groups["value"])
        if groups.get("ms"):
            columns["dur_ms"] = float(groups["ms"])
        if groups.get("peer"):
            columns["peer"] = groups["peer"]
        if groups.get("prank"):
            columns["comm_rank"] = rank_number(groups["prank"])
        if scope.once((kind, columns["name"], line.rank_at(at), columns.get("comm_rank"), match[0])):
            scope.event(line, at, kind, **columns)

    return handler


class _AsyncError:
    """`ncclRemoteError: …`, `Last error:` and the line after it, which belong to the error before them."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._left = 6
        self._last = False

    def feed(self, scope: FileScope, line: Line) -> bool:
        text = line.text.strip()
        self._left -= 1
        if self._left < 0 or not text:
            return False
        if text.startswith("nccl") and "Error:" in text:
            pass
        elif text.startswith("Last error:"):
            self._last = True
            text = text.removeprefix("Last error:").strip()
            if not text:
                return True
        elif not self._last:
            return False
        self._row["text"] = (self._row["text"] + "\n" + text)[:2000]
        peer = PEER.search(text)
        if peer is not None:
            self._row["peer"] = peer["peer"]
        return True

    def close(self, scope: FileScope) -> None:
        """Nothing is left to write: the row was made by the first line."""


# Connection closed by remote peer node-03<38012>, Connect to 172.17.0.1<43017> failed
PEER: Final = re.compile(r"(?:remote peer|[Cc]onnect to) (?P<peer>[^\s<]+<\d+>|[^\s<]+)")


def _async_error(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    at = match.start()
    columns = group_columns(scope, line, at)
    rank = line.rank_at(at)
    groups = match.groupdict()
    if groups.get("op") is None and "async exception:" in line.text[:at]:
        return  # the more telling matcher has taken it
    if not scope.once(("async", rank, columns.get("comm_rank"), groups.get("seq"), groups.get("what"))):
        return
    row = scope.event(
        line,
        at,
        "nccl_error",
        level="error",
        name=(groups.get("what") or "").strip(" .,") or None,
        seq=number(groups.get("seq")),
        op_kind=op_kind(groups["op"]) if groups.get("op") else None,
        in_numel=number(groups.get("nin")),
        out_numel=number(groups.get("nout")),
        **columns,
    )
    if scope.continues(line):
        # Inside a traceback, which gathers the rest of the message itself.
        scope.memory[("nccl_error", line.facts.key())] = row
    else:
        scope.open(line, _AsyncError(row), loose=True)


class _CallStack:
    """`#0 all_reduce from <file>:<line>` up to a blank line: where the waiting rank issued the collective."""

    def __init__(self, line: Line, at: int) -> None:
        self._line, self._at = line, at
        self._frames: list[str] = []

    def feed(self, scope: FileScope, line: Line) -> bool:
        match = _CALL.match(line.text)
        if match is None:
            return False
        if len(self._frames) < 256:
            self._frames.append(f"{match['fn']} ({match['file']}:{match['n']})")
        return True

    def close(self, scope: FileScope) -> None:
        if not self._frames:
            return
        stack = scope.context.stack(self._frames)
        rank = self._line.rank_at(self._at)
        for row in reversed(scope.memory.get("timeouts", ())):
            if row["rank"] == rank and "stack_id" not in row:
                row["stack_id"] = stack
                return
        scope.event(self._line, self._at, "other", name="failed_collective", level="error", stack_id=stack)


_CALL: Final = re.compile(r"\s*#(?P<i>\d+) (?P<fn>\S+) from (?P<file>.+?):(?P<n>\d+)\s*$")


def _hccl(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """torch_npu: operation, number and local device; no rank and no sizes."""
    pid = re.search(r"\[(?:WARNING|ERROR|INFO)\] \[(\d+)\]", line.text)
    scope.event(
        line,
        match.start(),
        "watchdog_timeout",
        level="error",
        name=match["op"],
        op_kind=op_kind(match["op"]),
        seq=number(match["seq"]),
        device=match["device"],
        local_rank=rank_number(match["device"]),
        pid=rank_number(pid[1]) if pid else line.facts.pid,
    )


def _call_stack(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _CallStack(line, match.start()), loose=True)


def finish(scope: FileScope) -> None:
    """Give timeouts the group that the status line of the same rank and number names.

    The timeout line itself never names the group. Where two groups fit, none is taken.
    """
    statuses: dict[tuple[Any, ...], list[Row]] = {}
    for row in scope.memory.get("statuses", ()):
        key = (row["rank"], row.get("comm_rank"), row["seq"])
        statuses.setdefault(key, []).append(row)
    for row in scope.memory.get("timeouts", ()):
        if row.get("comm_id") is not None:
            continue
        found = statuses.get((row["rank"], row.get("comm_rank"), row["seq"]), [])
        if len({other.get("comm_id") for other in found}) == 1:
            for name in ("comm_id", "group_name", "group_desc"):
                row[name] = found[0].get(name)
    scope.memory.pop("statuses", None)
    scope.memory.pop("timeouts", None)


_DUMP_SIGNAL: Final = re.compile(
    r"Received a (?:dump signal due to a collective timeout|timeout signal|global timeout) from +"
    r"(?P<src>this local rank|another rank|rank (?P<r>\d+)) and (?:we )?will "
    r"(?:.{0,80}?Last enqueued \w+ work: (?P<enq>-?\d+), last completed \w+ work: (?P<comp>-?\d+))?"
)

MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "watchdog_timeout",
        FORMAT,
        ("Watchdog caught collective operation timeout", "timed out in blocking wait"),
        re.compile(
            r"(?:\[Rank (?P<prank>\d+)\] Watchdog caught collective operation timeout: |Work )"
            + _WORK
            + r"\) (?:ran for (?P<ran>\d+) milliseconds before timing out|timed out in blocking wait)"
        ),
        _timeout,
    ),
    Matcher(
        "pg_status",
        FORMAT,
        ("last enqueued NCCL work", "last enqueued work", "last enqueued "),
        re.compile(
            r"(?:at \w+ work|detected by watchdog at work(?: sequence id)?): (?P<seq>-?\d+)[, ].{0,60}?"
            r"last enqueued (?:\w+ )?work: (?P<enq>-?\d+), last completed (?:\w+ )?work: (?P<comp>-?\d+)"
        ),
        _status,
    ),
    Matcher(
        "dump_signal",
        FORMAT,
        ("Received a dump", "Received a timeout", "Received a global"),
        _DUMP_SIGNAL,
        _dump_signal,
    ),
    Matcher(
        "dump_neighbours",
        FORMAT,
        (
            "Observed flight recorder dump signal",
            "First PG on this rank to signal dumping",
            "preparing to dump debug info",
            "flight recorder dumps to finish",
            "Broadcasting flight recorder dump signal",
            "Broadcasting flight-recorder dump signal",
            "Stack trace of the failed collective not found",
            "Some NCCL operations have failed or timed out",
            "Exception thrown when waiting for future",
            "destroy_process_group() was not called",
        ),
        re.compile(
            r"Observed flight recorder dump signal|First PG on this rank to signal|preparing to dump debug info"
            r"|flight recorder dumps to finish|Broadcasting flight.recorder dump signal"
            r"|Stack trace of the failed collective not found|Some NCCL operations have failed or timed out"
            r"|Exception thrown when waiting for future|destroy_process_group\(\) was not called"
        ),
        noise,
    ),
    Matcher(
        "abort",
        FORMAT,
        (
            "we are taking the entire process down",
            "Terminating the process after attempting to dump",
            "watchdog detected a collective timeout",
        ),
        re.compile(
            r"we are taking the entire process down|Terminating the process after attempting to dump debug info"
            r"|watchdog detected a collective timeout (?:from the local|on some other)?"
        ),
        told("other", "abort"),
    ),
    Matcher(
        "watchdog_thread",
        FORMAT,
        ("watchdog thread terminated with exception",),
        re.compile(r"(?:NCCL|[Pp]rocess group) watchdog thread terminated with exception: *"),
        noise,
    ),
    Matcher(
        "call_stack",
        FORMAT,
        ("Stack trace of the failed collective",),
        re.compile(r"Stack trace of the failed collective(?! not found)"),
        _call_stack,
        follow=128,
    ),
    Matcher(
        "cpp_frame",
        FORMAT,
        ("frame #", "Exception raised from "),
        re.compile(r"^\s*frame #\d+: |Exception raised from \S+ at .{0,300}\(most recent call first\)"),
        noise,
    ),
    Matcher(
        "heartbeat",
        FORMAT,
        ("watchdog got stuck for",),
        re.compile(r"watchdog got stuck for (?P<value>\d+)\s?s\w* without making progress"),
        told("heartbeat_stuck", "watchdog"),
    ),
    Matcher(
        "heartbeat_monitor",
        FORMAT,
        ("Heartbeat monitor timed out",),
        re.compile(r"Heartbeat monitor timed out!(?:.{0,120}?workMetaList_\.size\(\)=(?P<value>\d+))?"),
        told("heartbeat_stuck", "monitor"),
    ),
    Matcher(
        "gil",
        FORMAT,
        ("Could not acquire GIL within",),
        re.compile(r"Could not acquire GIL within (?P<ms>\d+) ms"),
        told("heartbeat_stuck", "gil", "warning"),
    ),
    Matcher(
        "async_error",
        FORMAT,
        ("raised the following async exception",),
        re.compile(
            _WORK + r"\) raised the following async exception: (?:NCCL error: )?(?P<what>.{0,160}?)(?:, NCCL version|$)"
        ),
        _async_error,
        follow=8,
    ),
    Matcher(
        "async_check",
        FORMAT,
        ("found async exception when checking for NCCL errors", "Exception hit in NCCL work"),
        re.compile(
            r"(?:found async exception when checking for NCCL errors|Exception hit in NCCL work: (?P<seq>\d+)):?\s*"
            r"(?:NCCL error: )?(?P<what>.{0,160}?)(?:, NCCL version|$)"
        ),
        _async_error,
        follow=8,
    ),
    Matcher(
        "nccl_error",
        FORMAT,
        ("NCCL error in:", "NCCL Error ", "NCCL error: "),
        re.compile(
            r"NCCL (?:error in: [^,]{0,300}, |Error \d+: |error: )(?P<what>[a-z][a-z /]{3,90}?)"
            r"(?= \(run with|, NCCL version|[.,(]|$)"
        ),
        _async_error,
        follow=8,
    ),
    Matcher(
        "unique_id",
        FORMAT,
        ("is setting up NCCL communicator and retrieving ncclUniqueId",),
        re.compile(
            r"\[(?P<prank>\d+)\] is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<peer>\d+)\]"
        ),
        told("store_error", "unique_id"),
    ),
    Matcher(
        "unbatched_p2p",
        FORMAT,
        ("An unbatched P2P op",),
        re.compile(r"An unbatched P2P op \(send/recv\) was called on this ProcessGroup with size (?P<value>\d+)"),
        told("other", "unbatched_p2p", "warning"),
    ),
    Matcher(
        "hccl_timeout",
        FORMAT,
        ("dispatch timeout. device",),
        re.compile(r"Process group work (?P<op>\w+), seq_num (?P<seq>\d+) dispatch timeout\. device (?P<device>\d+)"),
        _hccl,
    ),
)
