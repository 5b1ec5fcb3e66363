"""What keeps a suspicion from being a finding: a file that is not here would decide it.

`GAPS` is a table like that of doubts. A doubt lowers how sure a finding is; a gap takes it back, for what it names may
be only what the evidence happens to show. The verdict then says what was seen, and which file would tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mycroft.analysis import claims_counters
from mycroft.analysis.case import Case, count_words
from mycroft.analysis.claims import Suspicion
from mycroft.analysis.machine import some
from mycroft.analysis.machine_rules import only_silent, steps_slowed
from mycroft.analysis.verdict import Unknown

# So many ranks without a line may stand for themselves; of more, lines have more likely been lost than ranks.
FEW_SILENT: Final = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """One reason to name nobody yet. `when` returns what is open and what would decide it, None: nothing is."""

    name: str
    when: Callable[[Case, Suspicion], Unknown | None]


def _members_unseen(case: Case, s: Suspicion) -> Unknown | None:
    """All members that were seen wait alike: a member that was not seen may be the one they wait for."""
    claim = s.first("slow_transfer")
    if claim is None or s.comm is None or s.hosts or s.ranks:
        return None
    group = case.facts.groups.get(s.comm)
    if group is None:
        return None
    unseen = sorted(set(group.members) - set(claim.ranks))
    lost = len(unseen) or group.unseen
    if not lost:
        return None
    who = count_words(unseen) if unseen else f"{lost} more member{'s' * (lost > 1)}"
    text = f"from {s.op} {s.seq} of {group.title} on {count_words(claim.ranks)} take longer alike, and nothing is here "
    text += f"of {who}: it may be late, or the transfer slow"
    return Unknown(text, f"the profiler's file of {who}")


def _counters_of_some(case: Case, s: Suspicion) -> Unknown | None:
    """The transfer is slow, and the counters that say where were read on some hosts only."""
    claim = s.first("slow_transfer")
    if claim is None or s.hosts or s.ranks:
        return None
    read = {change.host for change in claims_counters.changes(case.machine)}
    hosts = {h for r in claim.ranks if (h := case.machine.hosts.get(r)) is not None}
    lost = sorted(hosts - read)
    if not read or not lost:
        return None
    text = f"from {s.op} {s.seq} on the transfer is slow on {count_words(claim.ranks)} alike; where is not shown: the "
    text += f"counters of {some(lost)} were not read twice"
    return Unknown(text, f"two readings of the counters (ethtool -S, hw_counters) of {some(lost)}")


def _logs_of_silent(case: Case, s: Suspicion) -> Unknown | None:
    """They print nothing, and the logs of the others are files of their own: theirs are missing from the evidence."""
    # One alone is named with little certainty: all others of its group have come.
    if not only_silent(s) or len(s.ranks) < 2 or _said_elsewhere(case, s):
        return None
    waiting = set(s.waiting)
    of_file: dict[int, set[int]] = {}
    for event in case.facts.events:
        if event.rank is not None and event.file is not None:
            of_file.setdefault(event.file, set()).add(event.rank)
    spoken = {r for ranks in of_file.values() for r in ranks}
    if set(s.ranks) & spoken or any(waiting <= ranks for ranks in of_file.values()):
        return None
    if len([ranks for ranks in of_file.values() if ranks & waiting]) < 2:
        return None
    names = sorted(case.facts.path(f) or "" for f, ranks in of_file.items() if ranks & waiting)
    text = f"{count_words(s.ranks)} may hold up the others, or only their logs are missing: no file speaks of them"
    return Unknown(text, f"the log of {count_words(s.ranks)}, as {names[0]} is of another")


def _too_many_silent(case: Case, s: Suspicion) -> Unknown | None:
    """Of many ranks at once that print nothing the collector has more likely lost the lines."""
    if not only_silent(s) or _said_elsewhere(case, s):
        return None
    few = max(FEW_SILENT, len(case.facts.expected) // 4)
    hosts = {case.machine.hosts.get(r) for r in s.ranks}
    if len(s.ranks) <= few or (len(hosts) == 1 and None not in hosts):
        return None
    text = f"{count_words(s.ranks)} print nothing of the operation that the others wait in: too many to be all guilty"
    return Unknown(text, f"the whole output of {count_words(s.ranks)}; collectors drop repeated lines")


def _said_elsewhere(case: Case, s: Suspicion) -> bool:
    """Say whether anything else is known of why they do not come."""
    return any(c.kind not in ("absent", "storage_stalls") and c.strength != "weak" for c in s.claims)


GAPS: Final[tuple[Gap, ...]] = (
    Gap("members unseen", _members_unseen),
    Gap("counters of some hosts", _counters_of_some),
    Gap("logs of silent ranks", _logs_of_silent),
    Gap("too many silent", _too_many_silent),
)


def decided(case: Case, suspicions: Sequence[Suspicion]) -> tuple[list[Suspicion], list[Unknown]]:
    """Return the suspicions that may become findings, and what is open about the others."""
    kept: list[Suspicion] = []
    gaps: list[Unknown] = []
    for item in suspicions:
        found = [gap for rule in GAPS if (gap := rule.when(case, item)) is not None]
        gaps += found[:1]
        if not found:
            kept.append(item)
    return kept, list(dict.fromkeys(gaps))


def wanted(case: Case) -> Unknown | None:
    """Return what is missing of a case in which nobody is named and no rank waits in a dump: the most useful file."""
    facts = case.facts
    if facts.dumps or not case.machine.perf.is_empty():
        return None
    if not case.lives and not facts.stacks:
        return Unknown(
            "nothing shows what the ranks of the job did",
            "the console or launcher log of the job, its NCCL logs, or the Flight Recorder dumps of its ranks",
        )
    if not case.lives:
        return Unknown(
            "the stacks do not show in which operation ranks wait, nor for how long",
            "the console log of the job with the lines of its watchdogs, or a second set of stacks a minute later",
        )
    if slowed := steps_slowed(case.machine.steps_ms):
        return Unknown(slowed, "a profiler's trace of the ranks, and clocks and counters of every host of the job")
    complain = [r for r, life in case.lives.items() if life.victim_error is not None]
    quiet = [r for r in facts.expected if r not in case.lives]
    if complain and quiet:
        text = f"{count_words(complain)} report that others stopped, and no file speaks of {count_words(quiet)}"
        return Unknown(text, f"the log, exit code or pod status of {count_words(quiet)}")
    if complain or not facts.steps.is_empty():
        return None
    return Unknown(
        f"how {count_words(sorted(case.lives))} went on",
        "the rest of the job's log, the launcher's summary, or the kernel log of the hosts",
    )
