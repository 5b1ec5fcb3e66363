"""NCCL RAS as JSON: the report of `ncclras -f json` and the event stream of its monitor mode.

The text form is a block of console text and is read by `text/ras_report.py`; both make the same events:

* `ras_comm`, one per communicator and capture: `group_name` the hash, `name` the status, `value` the size,
  `code` the number of the capture in its file (from 0), `seq` the ranks that answered.
* `ras_member`, one per rank (or per count of ranks) and operation: `seq` the operation it has launched last,
  `op_kind` which, `name` one of `count`, `missing`, `unresponsive`, `dead`, `status`; `value` how many ranks
  the line speaks of.
* `ras_peer`, one per process that is missing, dead, or named by a monitor event: `name` says which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mycroft.loaders import json_values as jv
from mycroft.loaders._core import JsonElements
from mycroft.loaders.base import EvidenceFile, LoadContext, LoadReport
from mycroft.loaders.byte_stream import LineCount
from mycroft.loaders.comm_ranks import CommRanks, hash_name
from mycroft.loaders.op_names import op_kind
from mycroft.loaders.ras_monitor import monitor_level
from mycroft.loaders.rows import RowBuffer, clip
from mycroft.loaders.wrapped_json import plain_head, plain_pieces

_WORDS: Final = (b'"communicators"', b'"event"')
_MAX_COMM: Final = 64 << 20
NCCL_RESULTS: Final = {
    0: "success",
    1: "unhandled CUDA error",
    2: "unhandled system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote process exited or network error",
    7: "in progress",
    8: "timeout",
}
_LOCAL: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:?\d\d)?")


def time_of(text: str | None) -> tuple[int | None, str | None]:
    """Return UTC ns and quality of a RAS time stamp; without a zone it is taken for UTC and marked so."""
    match = _LOCAL.search(text or "")
    if not match:
        return None, None
    try:
        stamp = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[3] or ''}")
    except ValueError:
        return None, None
    if stamp.tzinfo is None:
        return round(stamp.replace(tzinfo=UTC).timestamp()) * 1_000_000_000, "zone_assumed"
    return round(stamp.timestamp()) * 1_000_000_000, "exact"


class RasJsonLoader:
    """Reads RAS reports and monitor events written as JSON, several after each other in one file too."""

    name = "ras_json"
    title = "NCCL RAS report or monitor events (JSON)"
    recognised_by = "JSON with communicators and collective_counts, or with group LIFECYCLE or TRACE and an event"
    yields = "events ras_comm, ras_member, ras_peer; communicators with hash; hosts and processes of ranks"

    def sniff(self, file: EvidenceFile) -> bool:
        """Look for the names of the members."""
        head = plain_head(file)
        if b'"communicators"' in head and (b'"nccl_version"' in head or b'"ranks_count"' in head):
            return True
        return b'"event"' in head and (b'"LIFECYCLE"' in head or b'"TRACE"' in head) and b'"group"' in head

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read every file twice: who is who first."""
        ranks = CommRanks()
        for file in files:
            scrap = LoadReport(file.file_id, self.name)
            for item in _items(file, scrap):
                if item.kind == "communicator":
                    _see(ranks, item.value)
        reports = [self._load_one(file, context, ranks) for file in files]
        ranks.tell(context, "members of RAS communicators")
        return reports

    def _load_one(self, file: EvidenceFile, context: LoadContext, ranks: CommRanks) -> LoadReport:
        report = LoadReport(file.file_id, self.name)
        events = RowBuffer(context, "events", report)
        found = False
        for item in _items(file, report):
            if item.kind == "communicator":
                found = True
                _communicator(events, context, ranks, item, file.file_id)
            elif item.kind == "event":
                found = True
                _monitor(events, context, item, file.file_id)
            else:
                _header(events, item, file.file_id)
        if not found:
            report.problems.append("no communicator and no event found; was the output cut?")
        events.flush()
        return report


def _header(events: RowBuffer, item: _Item, file_id: int) -> None:
    version = jv.as_text(item.value.get("nccl_version"))
    if version:
        events.add(
            kind="nccl_version",
            source=RasJsonLoader.name,
            name=version,
            text=clip(f"NCCL version {version}"),
            file_id=file_id,
            line=item.line,
        )
    timeouts = jv.as_int(jv.as_dict(item.value.get("ras")).get("timeouts_count"))
    if timeouts:
        events.add(
            kind="ras_peer",
            source=RasJsonLoader.name,
            name="timeouts",
            value=float(timeouts),
            level="warning",
            text=f"{timeouts} communication timeouts while gathering communicator data",
            file_id=file_id,
            line=item.line,
        )


@dataclass(frozen=True, slots=True)
class _Item:
    """One communicator, monitor event or member of a report; `header` grows while its report is read."""

    kind: str
    value: dict[str, Any]
    header: dict[str, Any]
    capture: int
    line: int


def _items(file: EvidenceFile, report: LoadReport) -> Iterator[_Item]:
    """Yield what a file holds, as it comes.

    Communicators come one by one, so a report of a large job needs the memory of its largest communicator, and a
    report cut short gives those that were written whole.
    """
    scanner = JsonElements(["communicators"], [], _MAX_COMM)
    lines = LineCount()
    header: dict[str, Any] = {}
    capture = -1
    single: dict[str, Any] = {}
    began = line = 1
    for piece in plain_pieces(file, report, _WORDS):
        lines.feed(piece)
        for is_member, key, raw, offset in scanner.feed(piece):
            value, line = jv.decode(raw), lines.line(offset)
            if not is_member:
                if isinstance(value, dict):
                    yield _Item("communicator", jv.as_dict(value), header, max(capture, 0), line)
                else:
                    report.drop("communicator not understood")
            elif key == "nccl_version" or (key == "timestamp" and ("timestamp" in single or capture < 0)):
                if single.get("event"):
                    yield _Item("event", single, header, 0, began)
                single, began = {}, line
                if key == "nccl_version":
                    capture += 1
                    header = {key: value}
                    yield _Item("member", {key: value}, header, capture, line)
                else:
                    single = {key: value}
            elif key == "timestamp" and capture >= 0 and "timestamp" not in header:
                header[key] = value
            elif key in ("group", "event", "peer", "details", "timestamp"):
                single[key] = value
            elif key == "ras":
                yield _Item("member", {key: value}, header, max(capture, 0), line)
            else:
                header[key] = value
    if single.get("event"):
        yield _Item("event", single, header, 0, began)
    counts = scanner.finish()
    if counts["open"]:
        report.problems.append("the JSON ends in the middle; kept the communicators written whole")
    if counts["oversized"]:
        report.drop("communicator of more than 64 MiB", counts["oversized"])


def _see(ranks: CommRanks, comm: dict[str, Any]) -> None:
    hash_, size = jv.as_int(comm.get("hash")), jv.as_int(comm.get("size"))
    if hash_ is None:
        return
    for member in [*jv.as_list(comm.get("ranks")), *jv.as_list(comm.get("missing_ranks"))]:
        member = jv.as_dict(member)
        rank, host, pid = jv.as_int(member.get("rank")), jv.as_text(member.get("host")), jv.as_int(member.get("pid"))
        if rank is not None:
            ranks.see(hash_, size, rank, (host, pid) if host and pid is not None else None)


def _communicator(
    events: RowBuffer,
    context: LoadContext,
    ranks: CommRanks,
    item: _Item,
    file_id: int,
) -> None:
    comm = item.value
    hash_, size = jv.as_int(comm.get("hash")), jv.as_int(comm.get("size"))
    if hash_ is None or not 0 <= hash_ < 2**64:
        if events.report is not None:
            events.report.drop("communicator without a hash")
        return
    comm_id = ranks.comm_id(context, hash_)
    ts, quality = time_of(jv.as_text(item.header.get("timestamp")))
    members = [jv.as_dict(m) for m in jv.as_list(comm.get("ranks"))]
    missing = [jv.as_dict(m) for m in jv.as_list(comm.get("missing_ranks"))]
    counts = [jv.as_dict(m.get("collective_counts")) for m in members]
    # A kind that nobody ever launched says nothing.
    kinds = sorted({k for c in counts for k, v in c.items() if jv.as_int(v)})
    differing = [k for k in kinds if len({jv.as_int(c.get(k)) for c in counts}) > 1]
    status = (
        "INCOMPLETE" if missing or jv.as_int(comm.get("missing_ranks_count")) else "MISMATCH" if differing else "OK"
    )
    shared: dict[str, Any] = {
        "ts": ts,
        "time_quality": quality,
        "source": RasJsonLoader.name,
        "code": item.capture,
        "comm_id": comm_id,
        "group_name": hash_name(hash_),
        "file_id": file_id,
        "line": item.line,
    }
    events.add(
        **shared,
        kind="ras_comm",
        level="info" if status == "OK" else "warning",
        name=status,
        value=float(size) if size is not None else None,
        seq=len(members),
        text=clip(f"{hash_name(hash_)}: {len(members)} of {size} ranks, {status} {', '.join(differing)}".strip()),
    )
    for member, launched in zip(members, counts, strict=True):
        facts = _member_facts(context, ranks, hash_, member)
        for kind in kinds:
            events.add(
                **shared,
                **facts,
                kind="ras_member",
                level="info",
                name="count",
                op_kind=op_kind(kind),
                seq=jv.as_int(launched.get(kind)) or 0,
                value=1.0,
                text=clip(f"Rank {facts['comm_rank']} has launched {kind} up to operation {launched.get(kind)}"),
            )
        state = jv.as_dict(member.get("status"))
        bad = [
            f"{key} {NCCL_RESULTS.get(code, code)}"
            for key in ("init_state", "async_error")
            if (code := jv.as_int(state.get(key))) not in (None, 0, 7)
        ]
        bad += [key for key in ("abort_flag", "destroy_flag", "finalize_called") if state.get(key) is True]
        if bad or jv.as_int(state.get("init_state")) == 7:
            said = ", ".join(bad) or "init in progress"
            events.add(
                **shared,
                **facts,
                kind="ras_member",
                level="error" if bad else "warning",
                name="status",
                value=1.0,
                text=clip(f"Rank {facts['comm_rank']}: {said}"),
            )
    for member in missing:
        state = jv.as_dict(member.get("status"))
        word = (
            "dead"
            if state.get("considered_dead") is True
            else "unresponsive"
            if state.get("unresponsive")
            else "missing"
        )
        facts = _member_facts(context, ranks, hash_, member)
        events.add(
            **shared,
            **facts,
            kind="ras_member",
            level="error",
            name=word,
            value=1.0,
            text=clip(f"Rank {facts['comm_rank']} is {word}: process {facts['pid']} on node {member.get('host')}"),
        )


def _member_facts(context: LoadContext, ranks: CommRanks, hash_: int, member: dict[str, Any]) -> dict[str, Any]:
    comm_rank, host = jv.as_int(member.get("rank")), jv.as_text(member.get("host"))
    device = jv.as_int(member.get("nvml_dev"))
    device = device if device is not None else jv.as_int(member.get("cuda_dev"))
    return {
        "rank": ranks.global_rank(hash_, comm_rank) if comm_rank is not None else None,
        "comm_rank": comm_rank,
        "host_id": context.host(host) if host else None,
        "pid": jv.as_int(member.get("pid")),
        "device": f"GPU {device}" if device is not None else None,
    }


def _monitor(events: RowBuffer, context: LoadContext, item: _Item, file_id: int) -> None:
    value = item.value
    peer = jv.as_dict(value.get("peer"))
    host = jv.as_text(peer.get("host")) or jv.as_text(peer.get("addr"))
    ts, quality = time_of(jv.as_text(value.get("timestamp")))
    event = jv.as_text(value.get("event")) or ""
    devices = jv.as_list(peer.get("nvml_devs")) or jv.as_list(peer.get("cuda_devs"))
    events.add(
        ts=ts,
        time_quality=quality,
        kind="ras_peer",
        level=monitor_level(event),
        source=RasJsonLoader.name,
        name=clip(event),
        host_id=context.host(host) if host and peer.get("host") else None,
        pid=jv.as_int(peer.get("pid")),
        peer=host,
        device=clip("GPU " + ",".join(str(d) for d in devices)) if devices else None,
        text=clip(msgspec.json.encode(value).decode()),
        file_id=file_id,
        line=item.line,
    )
