"""The processes of a job as looks take them: one per rank, as they are known at the moment, and when they are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mycroft.analysis.config import FLOW_DEFAULTS
from mycroft.analysis.stall_reasons import unheard_words

if TYPE_CHECKING:
    from mycroft.loaders.collector import Process

# Half of a job has begun nothing for so long: no rule would say yet that it stands, and a look would only be in the way
# of the one that could; and from when on each second counts.
SOON_NS: Final = 2_500_000_000
MAY_STAND_NS: Final = FLOW_DEFAULTS.crash_ns
# ... until it is idle, or has been told of.
IDLE_NS: Final = 60_000_000_000


def is_due(group: Sequence[Process], ended: int, *, rested: bool, told: bool = False) -> bool:
    """Whether a job should be looked at now.

    Says only when to look, never what there is: `last_enq_ns` is a word that every status carries.

    Args:
        group: processes of the job.
        ended: how many of them had ended at the last look.
        rested: the last look is so long ago that the next costs nobody anything.
        told: an incident of this standstill is open already, so that no second counts any more.
    """
    if sum(process.ended for process in newest_of_each_rank(group)) > ended:
        return True
    silence = silence_ns(group)
    if silence <= SOON_NS:
        return rested
    return silence > MAY_STAND_NS and (rested or (silence < IDLE_NS and not told))


def silence_ns(group: Sequence[Process]) -> int:
    """Return for how long half of the processes have begun nothing, as their agents last told; 0: none ever did."""
    silences: list[int] = []
    for process in group:
        begun = max((comm.last_enq_ns or 0 for comm in process.status.communicators), default=0)
        if begun and not process.ended:
            silences.append(process.told_ns - begun)
    silences.sort()
    return silences[len(silences) // 2] if silences else 0


def newest_of_each_rank(group: Sequence[Process]) -> list[Process]:
    """Return one process per rank, the latest begun: those before it were replaced.

    Clocks of two hosts may differ by more than a restart takes: of one that ended and one that runs, the latter.
    """
    newest: dict[object, Process] = {}
    for process in group:
        who = process.status.process
        key = who.rank if who.rank is not None else process.key
        known = newest.get(key)
        if known is None or _replaces(process, known):
            newest[key] = process
    return list(newest.values())


def without_old_news(group: Sequence[Process], silent: Sequence[str]) -> list[Process]:
    """Return processes without what their agents said of their state, where these have fallen silent since.

    That a process was there when its agent spoke last says neither that it is, nor that it is not run: its host may be
    gone, or only the agent or its network.
    """
    return [
        replace(process, status=replace(process.status, state=None), unheard=True)
        if process.host in silent and not process.ended
        else process
        for process in group
    ]


def unheard(group: Sequence[Process], silent: Sequence[str]) -> dict[int, str]:
    """Return the ranks of which nothing is known at the moment, with their hosts."""
    return {
        process.status.process.rank: process.host
        for process in group
        if process.host in silent and not process.ended and process.status.process.rank is not None
    }


def weighed(finding: Mapping[str, Any], unknown: Mapping[int, str]) -> dict[str, Any]:
    """Return a finding with no more confidence than is due where it names ranks of which nothing is heard.

    Rules take a rank that is silent while others speak for one that is gone. So is one whose agent was stopped.
    """
    named = [rank for rank in finding["root_cause"]["ranks"] if rank in unknown]
    hosts = sorted({unknown[rank] for rank in named} | set(finding["root_cause"]["hosts"]) & set(unknown.values()))
    if not hosts:
        return dict(finding)
    said = unheard_words(hosts)
    # The rules say it themselves of ranks that the flows accuse.
    if any(why.startswith(said) for why in finding["confidence_why"]):
        return dict(finding)
    return {**finding, "confidence": "low", "confidence_why": [*finding["confidence_why"], said]}


def _replaces(process: Process, known: Process) -> bool:
    if process.host != known.host and process.ended != known.ended:
        return known.ended
    return process.status.process.started_ns > known.status.process.started_ns
