"""What `nfsiostat` says of the mounts of a host.

A mount with slow or repeated requests is a `storage_error`, a healthy one is `other`; `device` is the mount, `name`
`nfs_read` or `nfs_write`, `value` the average time from queueing to the end, ms. Pods are read with the launchers.
"""

from __future__ import annotations

import re
from typing import Final

from mycroft.loaders.json_values import as_float
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.reading import Reading
from mycroft.loaders.text.scope import FileScope

MOUNTS: Final = "nfsiostat"

_SLOW_MS: Final = 1_000.0
_RETRANSMITTED: Final = 5.0


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
        "nfsiostat",
        MOUNTS,
        (" mounted on ",),
        re.compile(r"^\S{1,200} mounted on (?P<mount>/\S{0,200}):\s*$"),
        _mount,
        24,
    ),
)
