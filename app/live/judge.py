"""What the analysis says of a job at a moment: its window in memory, and what has come since the last look."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from mycroft.analysis.verdict import Finding
    from mycroft.loaders.collector import Process

# While an incident is open the whole job is judged again this often, to see whether it is still so.
JUDGE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Who was slow when an iteration had ended, ns UTC; findings in the verdict's JSON, none: nobody."""

    at_ns: int
    findings: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found. `findings` are in the verdict's JSON; `fired`: some detector is in alarm.

    `iterations`: those that have ended since the last look. `judged`: the whole job was judged, so that what is not in
    `findings` is not there any more. `cpu_s`: what it cost this process, in seconds of a processor.
    """

    at_ns: int
    findings: tuple[dict[str, Any], ...]
    iterations: tuple[Seen, ...]
    fired: str
    judged: bool
    cpu_s: float


def look(processes: Sequence[Process], *, from_ns: int, since_ns: int, at_ns: int, seen_ns: int, judge: bool) -> Look:
    """Return what can be said of a job at `at_ns` (ns UTC) and could not at `since_ns`.

    Args:
        processes: of one job, one per rank.
        from_ns: older rows are left out.
        since_ns: end of the last look; detectors are asked for the time after it.
        at_ns: up to when all hosts have told what happened.
        seen_ns: end of the last iteration that a look has told of.
        judge: judge the whole job, also where no detector is in alarm.
    """
    from mycroft.analysis import diagnose
    from mycroft.analysis.present import present
    from mycroft.loaders.collector import traces_of
    from mycroft.loaders.memory import show_traces

    began = time.process_time()
    with show_traces(traces_of(processes, since_ns=from_ns), name="live") as store:
        now = present(store, since_ns=since_ns, until_ns=at_ns, seen_ns=seen_ns)
        # Everything that is to be said, where it is asked for; else what detectors say.
        found = diagnose(store, at=at_ns).findings if judge else now.findings
    iterations = tuple(Seen(s.at_ns, _plain(s.findings)) for s in now.sightings)
    return Look(at_ns, _plain(found), iterations, now.fired, judge, time.process_time() - began)


def _plain(findings: Sequence[Finding]) -> tuple[dict[str, Any], ...]:
    """Return findings as JSON has them, each accused once: the newest counts."""
    newest: dict[bytes, dict[str, Any]] = {}
    for finding in map(msgspec.to_builtins, findings):
        newest[msgspec.json.encode([finding["category"], finding["root_cause"]])] = finding
    return tuple(newest.values())
