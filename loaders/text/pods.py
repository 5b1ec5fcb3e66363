"""Pods and what became of them: `kubectl get pods`, `kubectl describe pod`, events of the cluster."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from mycroft.loaders.text.launchers import FORMAT, said, signed
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope


def _pod(scope: FileScope, line: Line) -> dict[str, str]:
    """Return what the description being read has said of its pod so far."""
    return scope.memory.setdefault(("pod", line.facts.key()), dict[str, str]())


def _kubernetes_reason(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    reason = match["reason"]
    memory = _pod(scope, line)
    kind = "oom_kill" if reason == "OOMKilled" else "pod_state"
    if scope.once(("pod_reason", line.facts.key(), memory.get("pod"), reason, line.number)):
        said(
            scope,
            line,
            match.start(),
            kind,
            name=memory.get("pod") or line.facts.pod,
            host=memory.get("node"),
            code=-9 if kind == "oom_kill" else None,
        )


def _kubernetes_code(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    memory = _pod(scope, line)
    code = signed(match["code"])
    said(
        scope,
        line,
        match.start(),
        "exit",
        name="container",
        peer=memory.get("pod") or line.facts.pod,
        host=memory.get("node"),
        code=code,
        level="info" if code == 0 else "error",
    )


def _kubernetes_field(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    memory = _pod(scope, line)
    if match["key"] == "Name":
        memory.clear()
        memory["pod"] = match["value"]
    else:
        memory["node"] = match["value"].partition("/")[0]
        if memory.get("pod"):
            said(scope, line, match.start(), "pod_state", name=memory["pod"], host=memory["node"], level="info")


_POD_ROW: Final = re.compile(
    r"(?P<pod>[a-z0-9][a-z0-9.-]{1,252})\s+\d+/\d+\s+"
    r"(?P<status>Running|Pending|Completed|Error|OOMKilled|Evicted|CrashLoopBackOff|Terminating|Unknown"
    r"|Failed|Succeeded"
    r"|ContainerStatusUnknown|NodeLost|ImagePullBackOff|ErrImagePull|Init:\S+)\b(?P<rest>.*)"
)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class _PodTable:
    """The rows under `NAME READY STATUS … NODE`: which pod lies on which node."""

    def __init__(self, header: str) -> None:
        self._columns = header.split()
        self._behind = {name: self._from_end(name) for name in ("IP", "NODE") if name in self._columns}

    def _from_end(self, name: str) -> int:
        """Return which cell from the end a column is: before it, a restart count may have an age beside it."""
        behind = len(self._columns) - self._columns.index(name)
        # `wide` output ends in two columns of two words each, whose cells are one.
        return behind - 2 if self._columns[-1].startswith("GATES") else behind

    def _cell(self, cells: Sequence[str], name: str) -> str | None:
        behind = self._behind.get(name, 0)
        cell = cells[-behind] if 0 < behind <= len(cells) else None
        return cell if cell != "<none>" else None

    def feed(self, scope: FileScope, line: Line) -> bool:
        match = _POD_ROW.match(line.text.strip())
        if match is None:
            return False
        cells = re.sub(r"\(\S+ ago\)", "", line.text).split()
        status = match["status"]
        good = status in ("Running", "Completed", "Succeeded", "Pending")
        kind = "oom_kill" if status == "OOMKilled" else "pod_state"
        said(
            scope,
            line,
            0,
            kind,
            name=match["pod"],
            host=self._cell(cells, "NODE"),
            level="info" if good else "error",
        )
        address = self._cell(cells, "IP")
        if address is not None and _is_address(address):
            said(
                scope, line, 0, "identity", name="address", host=match["pod"], peer=address, detail="pod", level="info"
            )
        return True

    def close(self, scope: FileScope) -> None:
        """Every row was written when it was read."""


def _pod_table(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _PodTable(line.text.strip()))


def _event(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    """A row of `kubectl get events`."""
    reason, of = match["reason"], match["of"].lower()
    kind = "oom_kill" if reason in ("OOMKilling", "OOMKilled") else "pod_state"
    if scope.once(("event", reason, of, match["name"], line.number)):
        said(
            scope,
            line,
            match.start(),
            kind,
            name=match["name"] if of == "pod" else None,
            host=match["name"] if of == "node" else None,
            peer=reason,
        )


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "pod_fields",
        FORMAT,
        ("Name:  ", "Node:  "),
        re.compile(r"^(?P<key>Name|Node):\s{2,}(?P<value>[\w./-]{1,253})\s*$"),
        _kubernetes_field,
    ),
    Matcher(
        "pod_reason",
        FORMAT,
        ("Reason:  ", "NodeNotReady", "OOMKilled"),
        re.compile(
            r"Reason:\s+(?P<reason>OOMKilled|Evicted|NodeNotReady|NodeLost|Error|ContainerCannotRun|DeadlineExceeded)"
        ),
        _kubernetes_reason,
    ),
    Matcher(
        "pod_code",
        FORMAT,
        ("Exit Code:",),
        re.compile(r"^\s*Exit Code:\s+(?P<code>\d{1,3})\s*$"),
        _kubernetes_code,
    ),
    Matcher(
        "pod_table",
        FORMAT,
        ("READY   STATUS", "READY  STATUS", " STATUS  "),
        re.compile(r"NAME\s+READY\s+STATUS\b"),
        _pod_table,
        follow=64,
    ),
    Matcher(
        "cluster_event",
        FORMAT,
        (
            "NodeNotReady",
            "Evicted",
            "OOMKilling",
            "NodeHasDiskPressure",
            "FailedMount",
            "Preempted",
            "TaintManagerEviction",
        ),
        re.compile(
            r"(?<!Reason:)\s(?P<reason>NodeNotReady|Evicted|OOMKilling|NodeHasDiskPressure|FailedMount|Preempted"
            r"|TaintManagerEviction)\s+(?P<of>[Pp]od|[Nn]ode)/(?P<name>[\w.-]{1,253})"
        ),
        _event,
    ),
)
