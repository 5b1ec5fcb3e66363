"""Tables of nccl-tests and rccl-tests: bandwidth and time per size, the devices that took part.

Each line becomes two `bench_row` events, out of place and in place: `bytes`, `dur_ms`, `value` (bus bandwidth, GB/s),
`code` (wrong results), `detail` (`out-of-place` or `in-place`), `group_desc` the hosts that took part, comma separated,
`group_name` the run (file and line), `name` the collective. Ranks of a benchmark are not the ranks of the job.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.json_values import as_float
from mycroft.loaders.op_names import op_kind
from mycroft.loaders.pci import pci_address
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.reading import Reading
from mycroft.loaders.text.scope import FileScope

FORMAT: Final = "nccl_tests"

_RANK: Final = re.compile(
    r"^#\s+Rank\s+(\d{1,7})(?:\s+Group\s+(\d{1,7}))?\s+Pid\s+(\d{1,10})\s+on\s+(\S{1,255})\s+device\s+"
    r"(\d{1,4})\s+\[([0-9a-fA-Fx:.]{1,20})\]\s*(.*)$"
)
_OPS: Final = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoall",
    "all_to_all",
    "sendrecv",
    "broadcast",
    "gather",
    "scatter",
    "hypercube",
    "reduce",
)
_NUMBER: Final = r"[\d.]{1,15}|N/A"
# size, count, type, [redop, [root]], then twice time, algbw, busbw, wrong.
_ROW: Final = re.compile(
    r"^\s*(?P<size>\d{1,19})\s+(?P<count>\d{1,19})\s+(?P<type>[a-z]\w{2,12})\s+(?:(?P<redop>[a-z]{2,10})\s+)?(?:"
    r"(?P<root>-?\d{1,7})\s+)?"
    rf"(?P<t1>{_NUMBER})\s+(?P<a1>{_NUMBER})\s+(?P<b1>{_NUMBER})\s+(?P<w1>[\d.eE+-]{{1,12}}|N/A)"
    rf"(?:\s+(?P<t2>{_NUMBER})\s+(?P<a2>{_NUMBER})\s+(?P<b2>{_NUMBER})\s+(?P<w2>[\d.eE+-]{{1,12}}|N/A))?\s*$"
)
_AVERAGE: Final = re.compile(r"#\s*Avg bus bandwidth\s*:\s*(\d{1,9}(?:\.\d{1,9})?)(?![\d.])")
_BOUNDS: Final = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,12})\s*(\w*)")
_FAILURE: Final = re.compile(r"Test (?:NCCL|CUDA) failure ([\w./]{1,80}:\d{1,6}) '?([^'\r\n]{0,200})")


class _Table(Reading):
    """One run."""

    def __init__(self, scope: FileScope, line: Line) -> None:
        super().__init__(scope, line)
        self.hosts: list[str] = []
        self.op = _operation(scope.file.name)
        self.rows = 0
        self.run = f"{scope.file.name}:{line.number}"
        self.first = line
        self.ended = False

    def take(self, scope: FileScope, line: Line) -> bool:
        text = line.text
        rank = _RANK.match(text)
        if rank:
            self._rank(scope, line, rank)
            return True
        row = _ROW.match(text)
        if row:
            self._row(scope, line, row)
            return True
        average = _AVERAGE.search(text)
        if average:
            self.ended = True
            self._say(scope, line, "bench_row", name="average", value=float(average[1]), detail="average", level="info")
            return True
        bounds = _BOUNDS.search(text)
        if bounds:
            bad = int(bounds[1])
            if bad:
                self._say(scope, line, "bench_row", name="wrong", code=bad, detail="out of bounds", level="error")
            return True
        named = re.search(r"Collective test starting: (\w{1,40})|^#\s+(\w{1,40})_perf\b", text)
        if named:
            self.op = (named[1] or named[2]).removesuffix("_perf")
            return True
        # NCCL's own lines stand between those of the table.
        return (
            text.lstrip().startswith("#") or " NCCL INFO " in text or text.startswith(("NCCL version", "RCCL version"))
        )

    def _rank(self, scope: FileScope, line: Line, rank: re.Match[str]) -> None:
        host = rank[4]
        if host not in self.hosts and len(self.hosts) < 4096:
            self.hosts.append(host)
        self._say(
            scope,
            line,
            "identity",
            name="bench_rank",
            comm_rank=int(rank[1]),
            host=host,
            pid=int(rank[3]),
            device=pci_address(rank[6]),
            code=int(rank[5]),
            detail=rank[7].strip()[:100],
            level="info",
        )

    def _row(self, scope: FileScope, line: Line, row: re.Match[str]) -> None:
        self.rows += 1
        for place, time, bandwidth, wrong in (("out-of-place", "t1", "b1", "w1"), ("in-place", "t2", "b2", "w2")):
            micros, bus = as_float(row[time]), as_float(row[bandwidth])
            if row[time] is None or micros is None or bus is None:
                continue
            errors = as_float(row[wrong])
            self._say(
                scope,
                line,
                "bench_row",
                name=self.op,
                op_kind=op_kind(self.op) if self.op else None,
                bytes=int(row["size"]),
                in_numel=int(row["count"]),
                dtype=row["type"],
                dur_ms=micros / 1000,
                value=bus,
                code=int(errors) if errors is not None and errors < 2**31 else None,
                detail=place,
                level="error" if errors else "info",
            )

    def done(self, scope: FileScope) -> None:
        if self.hosts and not self.rows:
            self._say(scope, self.first, "bench_row", name="unfinished", level="error", detail="no row was printed")

    def _say(self, scope: FileScope, line: Line, kind: str, **columns: Any) -> None:
        if kind == "bench_row":
            columns["group_desc"] = ",".join(sorted(self.hosts))[:2000] or None
            columns["group_name"] = self.run
        self.say(scope, line, kind, **columns)


def _operation(name: str) -> str | None:
    """Return the collective that a file's name speaks of: the tables do not."""
    low = name.lower()
    return next((op for op in _OPS if op in low or op.replace("_", "") in low), None)


def _open(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Table(scope, line))


def _failure(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    row = scope.event(
        line, match.start(), "bench_row", name="failure", level="error", detail=f"{match[1]} {match[2]}".strip()[:200]
    )
    row["_foreign"] = True


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "nccl_tests",
        FORMAT,
        ("# nThread ", "#  nThread "),
        re.compile(r"^#\s+nThread \d+ nGpus \d+ minBytes"),
        _open,
        2_000,
    ),
    Matcher("nccl_tests_failure", FORMAT, ("Test NCCL failure", "Test CUDA failure"), _FAILURE, _failure),
)
