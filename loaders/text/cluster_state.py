"""What the cluster's own tools say: pods and nodes of Kubernetes, mounts of NFS.

`pod_state`: `name` the pod or node, `detail` its state, `peer` the node it runs on, `host` that node. A mount with
slow or repeated requests is a `storage_error`; a healthy one is `other`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.json_values import as_float
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.reading import Reading
from mycroft.loaders.text.scope import FileScope

PODS: Final = "kubernetes"
MOUNTS: Final = "nfsiostat"

_BAD: Final = re.compile(
    r"Error|OOMKilled|Evicted|CrashLoop|Failed|Unknown|NotReady|Terminating|Pending|ImagePull|NodeLost|Completed"
)
_SLOW_MS: Final = 1_000.0
_RETRANSMITTED: Final = 5.0


class _Table(Reading):
    """`kubectl get pods -o wide`, `kubectl get nodes`: rows under a header, columns by position."""

    def __init__(self, scope: FileScope, line: Line, starts: list[tuple[str, int]]) -> None:
        super().__init__(scope, line)
        self.starts = starts

    def take(self, scope: FileScope, line: Line) -> bool:
        text = line.text.rstrip()
        if not text or not re.match(r"[a-z0-9]", text):
            return False
        cells = re.split(r"\s{2,}|\t", text.strip())
        names = [name for name, _at in self.starts]
        # Columns are aligned unless somebody pasted them; a row of as many cells fits either way.
        if len(cells) == len(names):
            row = dict(zip(names, cells, strict=True))
        else:
            row = {
                name: text[at : self.starts[i + 1][1] if i + 1 < len(self.starts) else None].strip()
                for i, (name, at) in enumerate(self.starts)
            }
        name, status = row.get("NAME", ""), row.get("STATUS", "")
        if not re.fullmatch(r"[a-z0-9][\w./-]{0,250}", name) or not status:
            return False
        node = row.get("NODE", "")
        node = node if node not in ("", "<none>") else None
        is_node = "ROLES" in row
        self.say(
            scope,
            line,
            "pod_state",
            name=name.rpartition("/")[2],
            detail=status,
            host=name if is_node else node,
            peer=node,
            value=as_float(row.get("RESTARTS", "").split(" ")[0]),
            device="node" if is_node else "pod",
            level="error" if _BAD.search(status) and status != "Completed" else "info",
        )
        return True


def _table(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    starts = [(m[0], m.start()) for m in re.finditer(r"\S+(?: \S+)*", line.text)]
    scope.open(line, _Table(scope, line, starts))


class _Description(Reading):
    """`kubectl describe pod`."""

    def __init__(self, scope: FileScope, line: Line, name: str) -> None:
        super().__init__(scope, line)
        self.name = name
        self.node: str | None = None
        self.state: str | None = None
        self.reason: str | None = None
        self.first = line
        self.said = False

    def take(self, scope: FileScope, line: Line) -> bool:
        pair = re.match(r"^(\s*)([A-Z][\w ()-]{1,40}):\s*(.*)$", line.text)
        if pair is None:
            return line.text.startswith((" ", "\t", "----"))
        key, value = pair[2], pair[3].strip()
        if key == "Node":
            self.node = value.partition("/")[0] or None
            self._say(scope, line, "placed", detail=value[:120], level="info")
        elif key in ("State", "Last State"):
            self.state, self.reason = f"{key}: {value}", None
        elif key == "Reason" and self.state:
            self.reason = value
            bad = bool(_BAD.search(value)) and value != "Completed"
            self._say(scope, line, "reason", detail=f"{self.state} {value}"[:200], level="error" if bad else "info")
        elif key == "Exit Code":
            code = as_float(value)
            if code:
                self._say(scope, line, "exit_code", code=int(code), detail=self.reason or self.state, level="error")
        elif key == "Status" and _BAD.search(value):
            self._say(scope, line, "status", detail=value[:120], level="error")
        return True

    def _say(self, scope: FileScope, line: Line, word: str, **columns: Any) -> None:
        self.said = True
        self.say(
            scope,
            line,
            "pod_state",
            name=self.name,
            group_desc=word,
            host=self.node,
            peer=self.node,
            device="pod",
            **columns,
        )


def _description(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Description(scope, line, match["name"]))


class _Mount(Reading):
    """`nfsiostat`: one mount."""

    def __init__(self, scope: FileScope, line: Line, mount: str) -> None:
        super().__init__(scope, line)
        self.mount = mount
        self.kind: str | None = None

    def take(self, scope: FileScope, line: Line) -> bool:
        text = line.text.strip()
        head = re.match(r"^(read|write):\s+ops/s", text)
        if head:
            self.kind = head[1]
            return True
        if text.startswith(("ops/s", "rpc bklog", "op/s")):
            return True
        numbers = re.match(
            r"^([\d.]{1,15})\s+([\d.]{1,15})\s+([\d.]{1,15})\s+(\d{1,15}) \(([\d.]{1,8})%\)\s+([\d.]{1,15})\s+"
            r"([\d.]{1,15})"
            r"(?:\s+([\d.]{1,15}))?",
            text,
        )
        if numbers is None:
            return bool(re.match(r"^[\d.]{1,15}\s+[\d.]{1,15}$", text))
        again, exe = as_float(numbers[5]) or 0.0, as_float(numbers[7]) or 0.0
        bad = exe > _SLOW_MS or again > _RETRANSMITTED
        self.say(
            scope,
            line,
            "storage_error" if bad else "other",
            name=f"nfs_{self.kind or 'io'}",
            device=self.mount,
            value=exe,
            dur_ms=exe,
            detail=f"average execution {exe:.0f} ms, {again:g}% retransmitted",
            level="error" if bad else "info",
        )
        self.kind = None
        return True


def _mount(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    scope.open(line, _Mount(scope, line, match["mount"]))


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "kubectl_get",
        PODS,
        ("READY   STATUS", "READY  STATUS", "READY STATUS", "STATUS   ROLES", "STATUS  ROLES", "READY\tSTATUS"),
        re.compile(r"^\s*(?:NAMESPACE\s+)?NAME\s+(?:READY\s+)?STATUS\b"),
        _table,
        5_000,
    ),
    Matcher(
        "kubectl_describe",
        PODS,
        ("Name:   ",),
        re.compile(r"^Name:\s+(?P<name>[a-z0-9][a-z0-9.-]{0,250})\s*$"),
        _description,
        400,
    ),
    Matcher(
        "nfsiostat",
        MOUNTS,
        (" mounted on ",),
        re.compile(r"^\S{1,200} mounted on (?P<mount>/\S{0,200}):\s*$"),
        _mount,
        24,
    ),
)
