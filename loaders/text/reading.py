"""What the readings of tools share: blocks of `key: value`, and the moment at which somebody typed the command.

A tool prints many lines that mean nothing alone. Its first line opens a `Reading`, which takes the further lines of
the same writer as long as they look like its own. A `date` before it gives the time of tools that print none.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mycroft.loaders.text.clock import UNIX, Moment, any_moment
from mycroft.loaders.text.matcher import Line, Matcher
from mycroft.loaders.text.scope import FileScope

_PROMPT: Final = re.compile(r"^\s*(?:\S{0,80}[$#>] ?|\+ )\S")
_DATE: Final = re.compile(r"^\s*" + UNIX.pattern + r"\s*$")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NEAR: Final = 6
_MAX_STRAY: Final = 3


class Reading:
    """The output of one run of one tool.

    A subclass says in `take` whether a line is its own. A few lines that are not (a warning in between) do not end
    it, a shell prompt does.
    """

    def __init__(self, scope: FileScope, line: Line) -> None:
        self.moment = typed_at(scope, line)
        self.number = line.number
        self._stray = 0

    def take(self, scope: FileScope, line: Line) -> bool:
        """Return whether `line` belongs to the reading, having used it."""
        raise NotImplementedError

    def done(self, scope: FileScope) -> None:
        """Write what only the whole reading tells."""

    def feed(self, scope: FileScope, line: Line) -> bool:
        """Implement `Block`."""
        if not line.text.strip():
            return True
        if self.take(scope, line):
            self._stray = 0
            return True
        self._stray += 1
        return self._stray <= _MAX_STRAY and not _PROMPT.match(line.text)

    def close(self, scope: FileScope) -> None:
        """Implement `Block`."""
        self.done(scope)

    def say(self, scope: FileScope, line: Line, kind: str, **columns: Any) -> dict[str, Any]:
        """Add an event with the time of the reading."""
        if self.moment is not None:
            columns.setdefault("moment", self.moment)
        row = scope.event(line, 0, kind, **columns)
        row["_foreign"] = True
        return row


def typed_at(scope: FileScope, line: Line) -> Moment | None:
    """Return the time of a `date` printed just before `line`, else what the line itself says."""
    seen: tuple[int, Moment] | None = scope.memory.get("date")
    if seen is not None and 0 <= line.number - seen[0] <= _NEAR:
        return seen[1]
    return scope.moment_at(line)


def _date(scope: FileScope, line: Line, match: re.Match[str]) -> None:
    found = UNIX.search(line.text)
    moment = any_moment(found, scope.years) if found else None
    if moment is not None:
        scope.memory["date"] = (line.number, moment)


def number_of(text: str | None) -> float | None:
    """Return the first number of a value such as `91 C`, `1,095 MHz` or `642.10 W`."""
    match = re.search(r"-?\d{1,15}(?:,\d{3})*(?:\.\d{1,9})?", text or "")
    return float(match[0].replace(",", "")) if match else None


MATCHERS: Final[tuple[Matcher, ...]] = (
    Matcher(
        "date",
        "reading",
        tuple(f"{day} {month}" for day in _DAYS for month in _MONTHS),
        _DATE,
        _date,
    ),
)
