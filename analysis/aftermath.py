"""What is over and what came after the end: errors that the job got past, and words of processes being taken down.

A launcher that stops a job from outside (preempted, out of time, cancelled, the node drained) ends processes, and
those say so in many ways; nobody among them is to blame. An error after which the job went on for a while, and into
other trouble, was of an earlier start or was caught.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from typing import Final

from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.facts import Event, Facts

# After so much progress of the job an error did not stop it.
_WENT_ON_NS: Final = 60 * NS_PER_S
# What comes later than this after a stop belongs to another start of the job.
_TAKEN_DOWN_NS: Final = 600 * NS_PER_S
# Trouble that would be left unexplained if only what is over were looked at.
_TROUBLE: Final = (
    "watchdog_timeout",
    "exception",
    "cuda_error",
    "out_of_memory",
    "launcher_failure",
    "signal",
    "oom_kill",
)
# Stops that a launcher may have answered a failure with.
_ANSWERS: Final = ("agent", "cancelled")
# `train.log.1` is what `train.log` was before; so is `train.log-20260304`.
_ROTATED: Final = re.compile(r"^(?P<stem>.+?)(?:[.-]\d{1,14})(?:\.(?:gz|zst|xz|bz2))?$")


class Past:
    """Where in each file the job was stopped from outside, and where it was at work."""

    def __init__(self, facts: Facts) -> None:
        self._stops = [event for event in facts.events if stops(event)]
        self._work: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for frame in (facts.steps, facts.job_steps):
            for file, line, ts in frame.select("file_id", "line", "ts").iter_rows():
                if file is not None and line is not None and ts is not None:
                    self._work[file].append((line, ts))
        for work in self._work.values():
            work.sort()
        # The last line that tells of other trouble, or that the work is done.
        self._trouble: dict[int, int] = {}
        for event in facts.events:
            if event.kind in (*_TROUBLE, "finished") and event.file is not None and event.line is not None:
                self._trouble[event.file] = max(self._trouble.get(event.file, 0), event.line)
        self._newer = _newer_files(facts, self._work)

    def ended_before(self, event: Event) -> bool:
        """Say whether the job had been stopped from outside when this was said."""
        return any(_follows(event, stop) and not self._started_again(stop, event) for stop in self._stops)

    def is_over(self, stop: Event) -> bool:
        """Say whether the file that tells of a stop goes on with a later start of the job."""
        if stop.file is None or stop.line is None or stop.ts is None:
            return False
        return any(n > stop.line and ts > stop.ts + _TAKEN_DOWN_NS for n, ts in self._work.get(stop.file, ()))

    def _started_again(self, stop: Event, event: Event) -> bool:
        """Say whether the file that tells of a stop goes on with a later start of the job, before an event in it."""
        if stop.file is None or stop.line is None or stop.ts is None or stop.file != event.file:
            return False
        later = (ts for line, ts in self._work.get(stop.file, ()) if stop.line < line < (event.line or 0))
        return any(ts > stop.ts + _TAKEN_DOWN_NS for ts in later)

    def went_on_after(self, event: Event) -> bool:
        """Say whether the job made progress for a minute after an error, and got into other trouble or finished.

        Told by the order of lines of one file, or of a log and the one that it was continued in: clocks of two files
        need not agree.
        """
        if event.file is None or event.line is None:
            return False
        work = self._work.get(event.file, [])
        at = bisect_right(work, (event.line, 1 << 63))
        before = max((ts for _line, ts in work[:at]), default=event.ts)
        before = before if event.ts is None or before is None else max(before, event.ts)
        if before is None:
            return False
        for file in (event.file, *self._newer.get(event.file, ())):
            later = work[at:] if file == event.file else self._work.get(file, [])
            if later and max(ts for _line, ts in later) > before + _WENT_ON_NS:
                return self._trouble.get(file, 0) > later[-1][0]
        return False


def stops(event: Event) -> bool:
    """Say whether an event is a stop from outside: of Slurm, or a signal that reached a launcher."""
    return event.kind == "launcher_signal" and not event.name.startswith("SIG")


def _follows(event: Event, stop: Event) -> bool:
    near = event.ts is None or stop.ts is None or event.ts - stop.ts < _TAKEN_DOWN_NS
    if event.file == stop.file and event.line is not None and stop.line is not None:
        return event.line > stop.line and near
    # Clocks of two files may differ by more than a failure and the stop that answers it: only a stop with a reason of
    # its own is no answer.
    known = event.ts is not None and stop.ts is not None and event.ts > stop.ts
    return known and near and stop.name not in _ANSWERS


def _newer_files(facts: Facts, work: dict[int, list[tuple[int, int]]]) -> dict[int, tuple[int, ...]]:
    """Return by file those of the same log whose steps come later."""
    logs: dict[str, list[int]] = defaultdict(list)
    for file, path in facts.files.items():
        rotated = _ROTATED.match(path)
        logs[path].append(file)
        if rotated is not None:
            logs[rotated["stem"]].append(file)
    found: dict[int, set[int]] = defaultdict(set)
    for files in logs.values():
        spans = {f: (min(ts for _line, ts in work[f]), max(ts for _line, ts in work[f])) for f in files if work.get(f)}
        for old, (_begin, end) in spans.items():
            found[old] |= {new for new, (begin, _end) in spans.items() if begin > end}
    return {old: tuple(sorted(new)) for old, new in found.items()}


def last_stop(facts: Facts) -> str:
    """Return in words that the job was stopped from outside, and did not start again; empty: it was not."""
    past = Past(facts)
    found = [event for event in facts.events if stops(event) and not past.is_over(event)]
    if not found:
        return ""
    best = min(found, key=lambda event: event.name in _ANSWERS)
    if best.name == "agent":
        return "a launcher was told from outside to stop"
    if best.name == "cancelled":
        return "the job was cancelled, and Slurm gives no reason"
    return f"Slurm stopped the job: {best.name}"


def stopped_from_outside(facts: Facts) -> str:
    """Return in words that the job was stopped from outside before any rank complained; empty: it was not."""
    stop = last_stop(facts)
    past = Past(facts)
    complained = (e for e in facts.events if e.kind in _TROUBLE and e.name not in ("task", "dataloader_worker"))
    if not stop or any(not past.ended_before(event) for event in complained):
        return ""
    return f"{stop}; no line shows that a rank had failed before"
