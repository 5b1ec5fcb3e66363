"""NCCL RAS as text: the report of `ncclras`, once or repeated, and the lines of its monitor mode.

The events are those of `mycroft.loaders.ras`. A list of members follows the count line it belongs to. RAS lists
*small* groups, which may be the ranks that are ahead: both counts are written, and the analysis takes the lower.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.op_names import op_kind
from mycroft.loaders.ras_monitor import monitor_level
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.reading import Reading
from mycroft.loaders.text.scope import FileScope

FORMAT: Final = "ras_report"

_ROW: Final = re.compile(
    r"^\s*(\d{1,7})\s+(\d{1,7})\s+(\d{1,7})\s+(\d{1,7}(?:-\d{1,7})?)\s+(\d{1,7})\s+(\d{1,7})\s+"
    r"([A-Z][A-Z,]{1,80})\s+([A-Z][A-Z,]{1,80})\s*$"
)
_HEAD: Final = re.compile(r"^#(\d{1,7})-(\d{1,7}) \(([0-9a-f]{1,16})\) ([A-Z]+)")
_MANY: Final = re.compile(
    r"^\s+(\d{1,7}) ranks? ha(?:ve|s) (?:launched up to operation (\d{1,19})|(not) launched any operations)"
)
_ONE: Final = re.compile(
    r"^\s+Rank (\d{1,7}) has (?:launched up to operation (\d{1,19})|(not) launched any operations) -- (.*)"
)
_WHAT: Final = re.compile(
    r"Communicator ranks have different (\w+)(?: operation)? counts|Communicator ranks have different (status)"
)
_MEMBER: Final = re.compile(r"^\s+Rank (\d{1,7}) -- (.*)")
_STATUS_MANY: Final = re.compile(r"^\s+(\d{1,7}) ranks have status (\w+)")
_STATUS_ONE: Final = re.compile(r"^\s+Rank (\d{1,7}) has status (\w+) -- (.*)")
_REPORTED_MANY: Final = re.compile(r"^\s+(\d{1,7}) ranks reported (.+)")
_REPORTED_ONE: Final = re.compile(r"^\s+Rank (\d{1,7}) reported (.+?) -- (.*)")
_ERRORS: Final = re.compile(r"^\s+(Initialization|Asynchronous) errors? on (\d{1,7}) ranks?")
_PROCESS: Final = re.compile(r"^\s+Process (\d{1,10}) on node (\S{1,255}) managing GPUs? ([\d, ()NVML]{1,200})")
_WHERE: Final = re.compile(r"GPUs? ([\d, ()NVML]{1,60}?) managed by process (\d{1,10}) on node (\S{1,255})")
_LACKS: Final = re.compile(r"Missing communicator data from (\d{1,7}) (job process|rank)")
_TIMEOUTS: Final = re.compile(r"[Ee]ncountered (\d{1,7}) communication timeouts?")
_SECTION: Final = re.compile(r"^(Errors|Warnings|INCOMPLETE|DEAD|TIMEOUT)\s*$")
_NOISE: Final = re.compile(
    r"^(?:Job summary|=+\s*$|\s*Nodes  Processes|\(total\)|Communicators\.\.\.|Group +Comms|\s+# +in group"
    r"|\s+\d+ +\d+|CUDA runtime|"
    r"HIP runtime|Gathering data|[NR]CCL version|The outlier|\s+Node \S+ running|\s+The missing rank"
    r"|\s+\[could not find|"
    r"\s+Rank \d+ -- \[process|\s*NCCL_|No communicator|This communicator|\s+\w.*)"
)


class _Report(Reading):
    """One report."""

    def __init__(self, scope: FileScope, line: Line) -> None:
        super().__init__(scope, line)
        self.capture = int(scope.memory.get("ras_capture", -1)) + 1
        scope.memory["ras_capture"] = self.capture
        self.section = ""
        self.group: str | None = None
        self.comm_id: int | None = None
        self.what: str | None = None
        # What the members listed next have in common: (name, operation, status text).
        self.listing: dict[str, Any] = {}

    def take(self, scope: FileScope, line: Line) -> bool:
        text = line.text
        scope.memory["ras_last"] = line.number
        head = _HEAD.match(text)
        if head:
            self._head(scope, line, head)
            return True
        section = _SECTION.match(text.strip())
        if section:
            self.section, self.listing = section[1], {}
            if section[1] in ("Errors", "Warnings"):
                self.group = self.comm_id = self.what = None
            return True
        row = _ROW.match(text)
        if row:
            self._row(scope, line, row)
            return True
        return self._detail(scope, line, text) or bool(_NOISE.match(text))

    def _row(self, scope: FileScope, line: Line, row: re.Match[str]) -> None:
        # A line of the table stands for `comms in group` communicators of one size.
        self._event(
            scope,
            line,
            "ras_comm",
            name=row[8],
            detail=row[7],
            value=float(row[5]),
            seq=int(row[6]) // max(int(row[2]), 1),
            level="info" if row[8] == "OK" else "warning",
            group_name=f"#{row[1]}",
        )

    def _head(self, scope: FileScope, line: Line, head: re.Match[str]) -> None:
        hash_ = int(head[3], 16)
        self.group = f"0x{hash_:x}"
        self.comm_id = scope.context.comm(self.group, hash_=hash_, backend="nccl", source="log")
        self.what, self.listing = None, {}
        self._event(
            scope,
            line,
            "ras_comm",
            name=head[4],
            level="error" if head[4] == "ERROR" else "warning",
            detail=f"group {head[1]}",
        )

    def _detail(self, scope: FileScope, line: Line, text: str) -> bool:
        what = _WHAT.search(text)
        if what:
            self.what, self.listing = what[1] or what[2], {}
            return True
        many, one = _MANY.match(text), _ONE.match(text)
        if many:
            launched = 0 if many[3] else int(many[2])
            self.listing = {"name": "count", "seq": launched, "op_kind": self._op()}
            self._event(scope, line, "ras_member", level="info", **self.listing, value=float(many[1]), detail=self.what)
            return True
        if one:
            launched = 0 if one[3] else int(one[2])
            self.listing = {}
            self._member(scope, line, int(one[1]), one[4], name="count", seq=launched, op_kind=self._op())
            return True
        for pattern, name in ((_STATUS_MANY, "status"), (_REPORTED_MANY, "error")):
            found = pattern.match(text)
            if found:
                self.listing = {"name": name, "detail": found[2].strip()[:200]}
                self._event(scope, line, "ras_member", level="info", **self.listing, value=float(found[1]))
                return True
        for pattern, name in ((_STATUS_ONE, "status"), (_REPORTED_ONE, "error")):
            found = pattern.match(text)
            if found:
                self._member(scope, line, int(found[1]), found[3], name=name, detail=found[2].strip()[:200])
                return True
        member = _MEMBER.match(text)
        if member:
            facts = self.listing or {"name": "missing"}
            self._member(scope, line, int(member[1]), member[2], **facts)
            return True
        process = _PROCESS.match(text)
        if process:
            name = "dead" if self.section == "DEAD" else "missing"
            self._event(
                scope,
                line,
                "ras_peer",
                name=name,
                host=process[2],
                pid=int(process[1]),
                device=f"GPU {process[3].strip()}",
                level="error",
            )
            return True
        return self._rest(scope, line, text)

    def _rest(self, scope: FileScope, line: Line, text: str) -> bool:
        lacks = _LACKS.search(text)
        if lacks:
            self.listing = {"name": "missing"}
            return True
        timeouts = _TIMEOUTS.search(text)
        if timeouts:
            self._event(scope, line, "ras_peer", name="timeouts", value=float(timeouts[1]), level="warning")
            return True
        errors = _ERRORS.match(text)
        if errors:
            self.listing = {"name": "error", "detail": f"{errors[1]} error"}
            return True
        return False

    def _op(self) -> str | None:
        # 2.24 counts all collectives together and calls them "collective".
        return op_kind(self.what) if self.what and self.what.lower() != "collective" else None

    def _member(self, scope: FileScope, line: Line, comm_rank: int, where: str, **columns: Any) -> None:
        place = _WHERE.search(where)
        facts: dict[str, Any] = {"comm_rank": comm_rank, "value": 1.0, **columns}
        if place:
            facts |= {"host": place[3], "pid": int(place[2]), "device": f"GPU {place[1].strip()}"}
        bad = columns.get("name") in ("missing", "error")
        self._event(scope, line, "ras_member", level="error" if bad else "info", **facts)

    def _event(self, scope: FileScope, line: Line, kind: str, **columns: Any) -> None:
        columns.setdefault("group_name", self.group)
        columns.setdefault("comm_id", self.comm_id)
        self.say(scope, line, kind, code=self.capture, **columns)


def _open(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Report(scope, line))


def _late(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """Open a report whose beginning was not pasted; an open one has had the line already."""
    if scope.memory.get("ras_last") != line.number:
        report = _Report(scope, line)
        scope.open(line, report)
        report.take(scope, line)


def _monitor(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    place = re.search(
        r"Process (\d{1,10}) on node (\S{1,255}?)(?: managing GPUs? ([\d,]{1,60}))?(?=[\s,;]|$)", match["rest"]
    )
    columns: dict[str, Any] = {}
    if place:
        columns = {"pid": int(place[1]), "host": place[2]}
        if place[3]:
            columns["device"] = f"GPU {place[3]}"
    row = scope.event(
        line,
        match.start(),
        "ras_peer",
        name=match["event"],
        level=monitor_level(match["event"]),
        peer=place[2] if place else None,
        detail=match["rest"].strip()[:200],
        **columns,
    )
    row["_foreign"] = True


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "ras_report",
        FORMAT,
        ("compiled with CUDA", "compiled with ROCm", "compiled with HIP"),
        re.compile(r"[NR]CCL version \d\S{1,40} compiled with"),
        _open,
        4000,
    ),
    Matcher(
        "ras_part",
        FORMAT,
        (") MISMATCH", ") INCOMPLETE", ") ERROR"),
        _HEAD,
        _late,
        400,
    ),
    Matcher(
        "ras_monitor",
        FORMAT,
        ("PEER_", "KEEPALIVE_TIMEOUT", "INIT_TIMEOUT", "SEND_STUCK", "TIMEOUT_DEAD"),
        re.compile(
            r"(?<![\w\"])(?P<event>PEER_(?:NEW|CONNECTING|CONNECTED|DISCONNECTED|RETRY|SEND_STUCK|KEEPALIVE_TIMEOUT"
            r"|INIT_TIMEOUT|"
            r"UNRESPONSIVE|RECOVERED|TIMEOUT_DEAD|DEAD)|SEND_STUCK|KEEPALIVE_TIMEOUT|INIT_TIMEOUT"
            r"|TIMEOUT_DEAD): (?P<rest>[^\r\n]{1,300})"
        ),
        _monitor,
    ),
)
