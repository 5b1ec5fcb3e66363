"""What the analysis says of a job at a moment: its window in memory, and the reports since the last look."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from mycroft.loaders.collector import Process

# While an incident is open the whole job is judged again this often, to see whether it is still so.
JUDGE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found. `findings` are in the verdict's JSON; `fired`: some detector is in alarm.

    `judged`: the whole job was judged, so that what is not in `findings` is not there any more. `cpu_s`: what it cost
    this process, in seconds of a processor.
    """

    at_ns: int
    findings: tuple[dict[str, Any], ...]
    fired: str
    judged: bool
    cpu_s: float


def look(processes: Sequence[Process], *, since_ns: int, at_ns: int, judge: bool) -> Look:
    """Return what can be said of a job at `at_ns` (ns UTC) and could not at `since_ns`.

    Args:
        processes: of one job, one per rank.
        since_ns: end of the last look; detectors are asked for the time after it.
        at_ns: up to when all hosts have told what happened.
        judge: judge the whole job, also where no detector is in alarm.
    """
    from mycroft.analysis import diagnose
    from mycroft.analysis.follow import follow
    from mycroft.loaders.collector import traces_of
    from mycroft.loaders.memory import load_traces

    began = time.process_time()
    with load_traces(traces_of(processes), name="live") as store:
        reports = follow(store, since_ns=since_ns, until_ns=at_ns)
        found = [finding for report in reports for finding in report.findings]
        fired = reports[-1].firing.what if reports else ""
        if judge:
            # Everything that is to be said; the reports are what a detector said on the way.
            found = list(diagnose(store, at=at_ns).findings)
    plain = [msgspec.to_builtins(finding) for finding in found]
    newest: dict[str, dict[str, Any]] = {}
    for finding in plain:
        newest[msgspec.json.encode([finding["category"], finding["root_cause"]]).decode()] = finding
    return Look(at_ns, tuple(newest.values()), fired, judge, time.process_time() - began)
