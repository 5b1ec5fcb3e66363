"""What is over and what came after the end: errors that the job got past, and words of processes being taken down.

A launcher that stops a job from outside (preempted, out of time, cancelled, the node drained) ends processes, and
those say so in many ways; nobody among them is to blame. An error after which the job went on for a while, and into
other trouble, was of an earlier start or was caught.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
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
# Stops of one kind in one file that are nearer than this are one; so many are looked at.
_SAME_STOP_NS: Final = 60 * NS_PER_S
_MOST_STOPS: Final = 50
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


class _Work:
    """The steps that one file tells of, in the order of its lines: what was reached before and after each of them.

    Every error of every rank is held against them, and a console may tell of half a million.
    """

    def __init__(self, steps: Iterable[tuple[int, int | None, float | None]]) -> None:
        ordered = sorted(steps, key=lambda step: step[0])
        self.lines = [line for line, _ts, _value in ordered]
        # Greatest time, ns, and number of a step among the first n; -1 where none is known.
        times = [-1 if ts is None else ts for _line, ts, _value in ordered]
        values = [-1.0 if value is None else value for _line, _ts, value in ordered]
        self.time_before = list(accumulate(times, max, initial=-1))
        self.value_before = list(accumulate(values, max, initial=-1.0))
        # ... and among those behind the first n.
        self.time_behind = list(accumulate(reversed(times), max, initial=-1))[::-1]
        self.value_behind = list(accumulate(reversed(values), max, initial=-1.0))[::-1]
        self.first_ns = min((ts for ts in times if ts >= 0), default=-1)
        self._times = times

    @property
    def last_ns(self) -> int:
        """The latest time of any step, -1: none has one."""
        return self.time_before[-1]

    def first_behind(self, line: int, moment: int) -> int | None:
        """Return the first line behind a line that tells of a step later than `moment`, ns; None: there is none."""
        at = bisect_right(self.lines, line)
        if self.time_behind[at] <= moment:
            return None
        return next(n for n, ts in zip(self.lines[at:], self._times[at:], strict=True) if ts > moment)


class Past:
    """Where in each file the job was stopped from outside, and where it was at work."""

    def __init__(self, facts: Facts) -> None:
        self._stops = _distinct(event for event in facts.events if stops(event))
        self._again: dict[tuple[int, int], int | None] = {}
        steps: dict[int, list[tuple[int, int | None, float | None]]] = defaultdict(list)
        for frame in (facts.steps, facts.job_steps):
            for file, line, ts, value in frame.select("file_id", "line", "ts", "value").iter_rows():
                if file is not None and line is not None:
                    steps[file].append((line, ts, value))
        self._work = {file: _Work(told) for file, told in steps.items()}
        self._restarts: dict[int, list[int]] = defaultdict(list)
        for file, line in sorted(facts.restarts):
            self._restarts[file].append(line)
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

    def last_stops(self) -> list[Event]:
        """Return the stops after which the file that tells of them does not go on with a later start of the job."""
        return [stop for stop in self._stops if self._begun_again(stop) is None]

    def _started_again(self, stop: Event, event: Event) -> bool:
        """Say whether the file that tells of a stop goes on with a later start of the job, before an event in it."""
        again = self._begun_again(stop) if stop.file == event.file else None
        return again is not None and again < (event.line or 0)

    def _begun_again(self, stop: Event) -> int | None:
        """Return the first line behind a stop that tells of a step too late to be of the same start; None: none."""
        if stop.file is None or stop.line is None or stop.ts is None:
            return None
        key = stop.file, stop.line
        if key not in self._again:
            work = self._work.get(stop.file)
            self._again[key] = work.first_behind(stop.line, stop.ts + _TAKEN_DOWN_NS) if work is not None else None
        return self._again[key]

    def came_at_the_end(self, event: Event) -> bool:
        """Say whether something happened after the job had said that its work is done, and no step came since."""
        done = self._finished.get(event.file) if event.file is not None else None
        if done is None or event.line is None or event.line < done or event.file is None:
            return False
        work = self._work.get(event.file)
        return work is None or work.lines[-1] < done

    def went_on_after(self, event: Event) -> bool:
        """Say whether the job made progress for a minute after an error, and got into other trouble or finished.

        Told by the order of lines of one file, or of a log and the one that it was continued in: clocks of two files
        need not agree.
        """
        if event.file is None or event.line is None:
            return False
        work = self._work.get(event.file)
        if work is None:
            return False
        at = bisect_right(work.lines, event.line)
        if self._trouble.get(event.file, 0) > event.line and self._went_on_in(event, work, at):
            return self._trouble[event.file] > work.lines[-1]
        before = work.time_before[at]
        for file in self._newer.get(event.file, ()) if before >= 0 else ():
            later = self._work[file]
            if later.last_ns > before + _WENT_ON_NS:
                return self._trouble.get(file, 0) > later.lines[-1]
        return False

    def _went_on_in(self, event: Event, work: _Work, at: int) -> bool:
        """Say whether the lines of one file behind an error, from step `at` on, tell of work that came after it.

        A process may keep back what it prints, until it ends: lines behind that of an error without a time prove
        nothing unless an agent says in between that it starts anew, or they are more than are ever kept back.
        """
        if at == len(work.lines) or event.file is None:
            return False
        restarts = self._restarts.get(event.file, [])
        started = bisect_right(restarts, event.line or 0)
        if started < len(restarts) and restarts[started] < work.lines[-1]:
            return True
        known = max(work.time_before[at], -1 if event.ts is None else event.ts)
        advanced = known >= 0 and work.time_behind[at] > known + _WENT_ON_NS
        if event.ts is not None and event.timed:
            return advanced
        counted = work.value_behind[at] >= max(work.value_before[at], 0.0) + _WENT_ON_STEPS
        return len(work.lines) - at >= _KEPT_BACK and (advanced or counted)


def _distinct(told: Iterable[Event]) -> list[Event]:
    """Leave out what tells of a stop again: each node of a large job says it, and every event is held against each."""
    found: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    count = 0
    for stop in told:
        job = _JOB_OF_STOP.search(stop.text)
        same = found[stop.file, stop.name, job[1] if job is not None else None]
        near = same and (stop.ts is None or same[-1].ts is None or abs(stop.ts - same[-1].ts) < _SAME_STOP_NS)
        if not near and count < _MOST_STOPS:
            same.append(stop)
            count += 1
    return [stop for same in found.values() for stop in same]


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


def _newer_files(facts: Facts, work: Mapping[int, _Work]) -> dict[int, tuple[int, ...]]:
    """Return by file those of the same log whose steps come later."""
    logs: dict[str, list[int]] = defaultdict(list)
    for file, path in facts.files.items():
        rotated = _ROTATED.match(path)
        logs[path].append(file)
        if rotated is not None:
            logs[rotated["stem"]].append(file)
    found: dict[int, set[int]] = defaultdict(set)
    for files in logs.values():
        spans = [(f, work[f].first_ns, work[f].last_ns) for f in files if f in work and work[f].first_ns >= 0]
        for old, _begin, end in spans if len(spans) > 1 else ():
            found[old] |= {new for new, begin, _end in spans if begin > end}
    return {old: tuple(sorted(new)) for old, new in found.items()}


def last_stop(facts: Facts) -> str:
    """Return in words that the job was stopped from outside, and did not start again; empty: it was not."""
    past = Past(facts)
    found = past.last_stops()
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
