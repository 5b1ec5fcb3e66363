"""What is over and what came after the end: errors that the job got past, and words of processes being taken down.

A launcher that stops a job from outside (preempted, out of time, cancelled, the node drained) ends processes, and
those say so in many ways; nobody among them is to blame. An error after which the job went on for a while, and into
other trouble, was of an earlier start or was caught.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.facts import Event, Facts

# After so much progress of the job an error did not stop it.
_WENT_ON_NS: Final = 60 * NS_PER_S
# ... or after so many steps, where lines have no times.
_WENT_ON_STEPS: Final = 20
# So many lines of steps are never kept back by a process: 8 KiB are.
_KEPT_BACK: Final = 300
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


_JOB_OF_FILE: Final = re.compile(r"(?:slurm|job)[-_.]?(\d{1,12})", re.IGNORECASE)
_JOB_OF_STOP: Final = re.compile(r"\b(?:STEP|JOB) (\d{1,12})")

_Step = tuple[int, int | None, float | None]
"""Line, time in ns and number of a step."""


class Past:
    """Where in each file the job was stopped from outside, and where it was at work."""

    def __init__(self, facts: Facts) -> None:
        self._stops = [event for event in facts.events if stops(event)]
        self._work: dict[int, list[_Step]] = defaultdict(list)
        for frame in (facts.steps, facts.job_steps):
            for file, line, ts, value in frame.select("file_id", "line", "ts", "value").iter_rows():
                if file is not None and line is not None:
                    self._work[file].append((line, ts, value))
        for work in self._work.values():
            work.sort(key=lambda step: step[0])
        self._restarts = facts.restarts
        self._paths = facts.files
        # The last line that tells of other trouble, or that the work is done; and the first that tells the latter.
        self._trouble: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        for event in facts.events:
            if event.kind in (*_TROUBLE, "finished") and event.file is not None and event.line is not None:
                self._trouble[event.file] = max(self._trouble.get(event.file, 0), event.line)
                if event.kind == "finished" and event.rank is None:
                    self._finished.setdefault(event.file, event.line)
        self._newer = _newer_files(facts, self._work)

    def ended_before(self, event: Event) -> bool:
        """Say whether the job had been stopped from outside when this was said."""
        path = self._paths.get(event.file or -1, "")
        return any(
            _follows(event, stop) and not self._started_again(stop, event) and not _of_other_job(path, stop)
            for stop in self._stops
        )

    def is_over(self, stop: Event) -> bool:
        """Say whether the file that tells of a stop goes on with a later start of the job."""
        if stop.file is None or stop.line is None or stop.ts is None:
            return False
        return any(n > stop.line for n in self._after(stop.file, stop.ts + _TAKEN_DOWN_NS))

    def _started_again(self, stop: Event, event: Event) -> bool:
        """Say whether the file that tells of a stop goes on with a later start of the job, before an event in it."""
        if stop.file is None or stop.line is None or stop.ts is None or stop.file != event.file:
            return False
        return any(stop.line < n < (event.line or 0) for n in self._after(stop.file, stop.ts + _TAKEN_DOWN_NS))

    def _after(self, file: int, moment: int) -> list[int]:
        """Return the lines of a file that tell of a step later than `moment`, ns."""
        return [line for line, ts, _value in self._work.get(file, ()) if ts is not None and ts > moment]

    def came_at_the_end(self, event: Event) -> bool:
        """Say whether something happened after the job had said that its work is done, and no step came since."""
        done = self._finished.get(event.file) if event.file is not None else None
        if done is None or event.line is None or event.line < done or event.file is None:
            return False
        work = self._work.get(event.file, [])
        return not work or work[-1][0] < done

    def went_on_after(self, event: Event) -> bool:
        """Say whether the job made progress for a minute after an error, and got into other trouble or finished.

        Told by the order of lines of one file, or of a log and the one that it was continued in: clocks of two files
        need not agree.
        """
        if event.file is None or event.line is None:
            return False
        work = self._work.get(event.file, [])
        at = bisect_right(work, event.line, key=lambda step: step[0])
        if self._trouble.get(event.file, 0) > event.line and self._went_on_in(event, work[:at], work[at:]):
            return self._trouble[event.file] > work[-1][0]
        before = _latest(work[:at])
        for file in self._newer.get(event.file, ()) if before is not None else ():
            later = self._work[file]
            if (_latest(later) or 0) > (before or 0) + _WENT_ON_NS:
                return self._trouble.get(file, 0) > later[-1][0]
        return False

    def _went_on_in(self, event: Event, before: Sequence[_Step], after: Sequence[_Step]) -> bool:
        """Say whether the lines of one file behind an error tell of work that came after it.

        A process may keep back what it prints, until it ends: lines behind that of an error without a time prove
        nothing unless an agent says in between that it starts anew, or they are more than are ever kept back.
        """
        if not after:
            return False
        line = event.line or 0
        if any(file == event.file and line < n < after[-1][0] for file, n in self._restarts):
            return True
        known = [ts for ts in (_latest(before), event.ts) if ts is not None]
        later = _latest(after)
        advanced = later is not None and bool(known) and later > max(known) + _WENT_ON_NS
        if event.ts is not None and event.timed:
            return advanced
        values = [max((v for _n, _ts, v in steps if v is not None), default=0.0) for steps in (before, after)]
        return len(after) >= _KEPT_BACK and (advanced or values[1] >= values[0] + _WENT_ON_STEPS)


def _latest(steps: Sequence[_Step]) -> int | None:
    return max((ts for _line, ts, _value in steps if ts is not None), default=None)


def stops(event: Event) -> bool:
    """Say whether an event is a stop from outside: of Slurm, or a signal that reached a launcher."""
    return event.kind == "launcher_signal" and not event.name.startswith("SIG")


def _of_other_job(path: str, stop: Event) -> bool:
    """Say whether a file is named after another job of Slurm than the one that was stopped."""
    name, told = _JOB_OF_FILE.search(path), _JOB_OF_STOP.search(stop.text)
    return name is not None and told is not None and name[1] != told[1]


def _follows(event: Event, stop: Event) -> bool:
    near = event.ts is None or stop.ts is None or event.ts - stop.ts < _TAKEN_DOWN_NS
    if event.file == stop.file and event.line is not None and stop.line is not None:
        return event.line > stop.line and near
    # Clocks of two files may differ by more than a failure and the stop that answers it: only a stop with a reason of
    # its own is no answer.
    known = event.ts is not None and stop.ts is not None and event.ts > stop.ts
    return known and near and stop.name not in _ANSWERS


def _newer_files(facts: Facts, work: Mapping[int, Sequence[_Step]]) -> dict[int, tuple[int, ...]]:
    """Return by file those of the same log whose steps come later."""
    logs: dict[str, list[int]] = defaultdict(list)
    for file, path in facts.files.items():
        rotated = _ROTATED.match(path)
        logs[path].append(file)
        if rotated is not None:
            logs[rotated["stem"]].append(file)
    found: dict[int, set[int]] = defaultdict(set)
    for files in logs.values():
        times = {f: [ts for _line, ts, _value in work.get(f, ()) if ts is not None] for f in files}
        spans = {f: (min(found_in), max(found_in)) for f, found_in in times.items() if found_in}
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
