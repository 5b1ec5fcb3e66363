"""Several runs of a job in one file: appended consoles, and workers that the agent has started again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from mycroft.loaders.text.scope import Row

# What ends a run; a launcher that starts before any of these starts the first one.
_ENDS: Final = frozenset(
    ("watchdog_timeout", "launcher_failure", "launcher_signal", "exit", "signal", "exception", "finished", "oom_kill")
)


def name_runs(rows: Sequence[Row], starts: Sequence[int]) -> None:
    """Give rows without a job the name of their run, `run 1`, `run 2`, …, where the file holds more than one.

    `starts` are the lines on which a launcher begins. Several nodes begin together: only a start after a sign that
    the run before it had ended counts.
    """
    ends = sorted(row["line"] for row in rows if row["kind"] in _ENDS)
    begins: list[int] = []
    since = 0
    for start in sorted(starts):
        if bisect_right(ends, start) > bisect_right(ends, since):
            begins.append(start)
            since = start
    if not begins:
        return
    for row in rows:
        if row.get("job") is None:
            row["job"] = f"run {bisect_right(begins, row['line']) + 1}"
