"""Incidents of a job: opened by findings, revised as the verdict changes, merged, and closed when it is over.

Hysteresis: who is slow must have been so for 4 s, at most of the iterations that ended meanwhile and at the newest;
what was held up now and then, at two looks 4 s apart and at most of those between. Stalls and crashes have waited for
their age limits already. An incident closes once it has not been found for a while of looks that judged the whole job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from mycroft.app.live.judge import Seen
from mycroft.app.live.state import Incident, LiveState

LOG: Final = logging.getLogger("mycroft.watch")
CLOSE_S: Final = 20.0
SLOW_LOOKS: Final = 2
SLOW_S: Final = 4.0
AGREE_S: Final = 10.0
# Looks or iterations in a row that may miss something slow that is not open yet, and how long looks go on for it after
# that: detectors tell of it once only.
MISSES: Final = 1
RECALL_S: Final = 60.0
_WORDS: Final = ("low", "medium", "high")
_REVISED_AT_MOST: Final = 50

# `merged`: it is over as an incident of its own, and goes on as another.
Event = Literal["opened", "revised", "closed", "merged"]
Told = Callable[[Event, Incident], None]


@dataclass
class _Seen:
    """What is remembered of an open incident between looks; monotonic seconds."""

    last: float
    status: str = ""
    revisions: int = 0
    brought: bool = False
    """Evidence that agents brought has shaped it."""
    agreed: float = 0.0
    """When a look last said what the newest revision says."""
    doubt: tuple[object, ...] = ()
    """What the last looks said instead, of something slow, and since when."""
    doubted: float = 0.0


@dataclass
class _Candidate:
    """Something slow that is not open yet.

    Of a job's iterations, each of which counts once, or of looks: times are then seconds of the job's clock, or of
    ours. `looks` counts where it was found, `missed` where it was not.
    """

    finding: Mapping[str, Any]
    first: float
    of_iterations: bool = False
    looks: int = 0
    missed: int = 0
    missed_in_a_row: int = 0

    def lasts(self, now: float) -> bool:
        """Whether it was there for a while, and not only now and then."""
        if self.looks <= 2 * self.missed or now - self.first < SLOW_S:
            return False
        # An iteration that is longer than all of this has waited for several of its like in the rules.
        return self.missed_in_a_row == 0 if self.of_iterations else self.looks >= SLOW_LOOKS

    def miss(self) -> bool:
        """Count that it was not found, and return whether that is once too often."""
        self.missed += 1
        self.missed_in_a_row += 1
        return self.missed_in_a_row > MISSES


@dataclass
class Incidents:
    """The open incidents of one job."""

    job: str
    state: LiveState
    told: Told
    clock: Callable[[], float] = time.monotonic
    _open: dict[str, _Seen] = field(default_factory=lambda: dict[str, _Seen]())
    _candidates: dict[str, _Candidate] = field(default_factory=lambda: dict[str, _Candidate]())

    _recalled_until: float = 0.0

    def __post_init__(self) -> None:
        """Take over what an earlier watch left open."""
        for incident in self.state.incidents(job=self.job, only_open=True):
            self._open[incident.incident] = _Seen(self.clock(), incident.status)

    @property
    def doubts(self) -> bool:
        """Whether something slow is waited for to last: it opens at the look that still finds it, `SLOW_S` later."""
        return any(candidate.finding["status"] == "slow" for candidate in self._candidates.values())

    @property
    def stands(self) -> bool:
        """Whether an incident of a job that makes no progress is open."""
        return any(seen.status in ("hang", "crash") for seen in self._open.values())

    @property
    def judging(self) -> bool:
        """Whether looks should judge the whole job now and then: an incident is open, or may open only so."""
        return bool(self._open) or self.unsure or self.clock() < self._recalled_until

    @property
    def unsure(self) -> bool:
        """Whether only a look that judges the whole job can tell whether something slow lasts."""
        return any(c.finding["status"] == "slow" and not c.of_iterations for c in self._candidates.values())

    @property
    def any_open(self) -> bool:
        """Whether an incident of the job is open, or may open at the next look that judges."""
        return bool(self._open or self._candidates) or self.clock() < self._recalled_until

    def take(self, findings: Sequence[Mapping[str, Any]], *, judged: bool, why: str, stands: bool = False) -> None:
        """Take what a look found.

        Args:
            findings: in the verdict's JSON.
            judged: what is not among the findings is not there.
            why: what made the look find it.
            stands: the job makes no progress now. What was slow before is then neither seen again nor missed: the same
                iterations say the same, however often they are looked at.
        """
        now = self.clock()
        keys: set[str] = set()
        revised: set[str] = set()
        # The surest first: of several findings that are of one incident, that one counts.
        for finding in sorted(findings, key=lambda f: -_WORDS.index(f["confidence"])):
            known = self._of(finding)
            if known is not None:
                self._open[known.incident].last = now
                if known.incident not in revised:
                    revised.add(known.incident)
                    self._revise(known, finding, why)
                continue
            if stands and finding["status"] == "slow":
                continue
            key = self._candidate(finding)
            if key in self._candidates and self._candidates[key].of_iterations:
                continue
            keys.add(key)
            candidate = self._candidates.setdefault(key, _Candidate(finding, now))
            _see(candidate, finding)
            if self._explained(finding):
                continue
            if finding["status"] != "slow" or candidate.lasts(now):
                del self._candidates[key]
                self._open_one(finding, why)
        if judged:
            for key, candidate in list(self._candidates.items()):
                if not candidate.of_iterations and key not in keys and not stands and candidate.miss():
                    del self._candidates[key]
                    self._recalled_until = now + RECALL_S
            for name, seen in list(self._open.items()):
                if now - seen.last > CLOSE_S:
                    self._close(name)

    def take_iterations(self, iterations: Sequence[Seen], *, at_ns: int, stands: bool) -> None:
        """Take who was slow at iterations that have ended since the last look, in their order.

        Args:
            iterations: each is told once, however often somebody looks.
            at_ns: the moment of the look, ns UTC of the job's clock.
            stands: the job makes no progress now: nothing says whether who was slow still is.
        """
        for iteration in iterations:
            self._take_iteration(iteration)
        for key, candidate in list(self._candidates.items()):
            if candidate.of_iterations and not stands and candidate.lasts(at_ns / 1e9):
                del self._candidates[key]
                self._open_one(candidate.finding, "slow, iteration after iteration")

    def _take_iteration(self, iteration: Seen) -> None:
        keys: set[str] = set()
        revised: set[str] = set()
        for finding in sorted(iteration.findings, key=lambda f: -_WORDS.index(f["confidence"])):
            known = self._of(finding)
            if known is not None:
                self._open[known.incident].last = self.clock()
                if known.incident not in revised:
                    revised.add(known.incident)
                    self._revise(known, finding, "slow, iteration after iteration")
                continue
            key = self._candidate(finding)
            keys.add(key)
            candidate = self._candidates.get(key)
            if candidate is None or not candidate.of_iterations:
                candidate = self._candidates[key] = _Candidate(finding, iteration.at_ns / 1e9, of_iterations=True)
            _see(candidate, finding)
        for key, candidate in list(self._candidates.items()):
            if candidate.of_iterations and key not in keys and candidate.miss():
                del self._candidates[key]

    def _candidate(self, finding: Mapping[str, Any]) -> str:
        """Return the candidate that a finding is of: one that shares a rank was not named quite the same."""
        key = _key(finding)
        if key in self._candidates:
            return key
        ranks = set(finding["root_cause"]["ranks"])
        for name, other in self._candidates.items():
            alike = (other.finding["status"], other.finding["category"]) == (finding["status"], finding["category"])
            if alike and ranks & set(other.finding["root_cause"]["ranks"]):
                return name
        return key

    def _explained(self, finding: Mapping[str, Any]) -> bool:
        """Whether an open incident that is surer explains it: a job that stands has one reason until that is over.

        Ranks that wait for long look like ranks that hang, and rules say so with low confidence.
        """
        if finding["status"] == "slow":
            return False
        sure = _WORDS.index(finding["confidence"])
        return any(
            incident.status in ("hang", "crash") and _WORDS.index(incident.confidence) > sure
            for incident in self.state.incidents(job=self.job, only_open=True)
        )

    def end(self, *, only: str | None = None) -> None:
        """Close everything, for the job is over; or what has one status only."""
        for name, seen in list(self._open.items()):
            if only is None or seen.status == only:
                self._close(name)

    def _open_one(self, finding: Mapping[str, Any], why: str) -> None:
        incident = self.state.open_incident(self.job, finding, why=why or "first found")
        self._open[incident.incident] = _Seen(self.clock(), incident.status, agreed=self.clock())
        LOG.warning("incident %s of %s: %s", incident.incident, self.job, incident.summary)
        self.told("opened", incident)

    def _of(self, finding: Mapping[str, Any]) -> Incident | None:
        """Return the open incident that a finding is of; where it joins several, they become one."""
        matching = [
            incident
            for incident in self.state.incidents(job=self.job, only_open=True)
            if incident.incident in self._open and same(incident.finding, finding)
        ]
        if not matching:
            return None
        first = min(matching, key=lambda incident: (incident.opened, incident.incident))
        for other in matching:
            if other.incident != first.incident:
                self._close(other.incident, merged_into=first.incident)
        return first

    def revise(self, incident: Incident, finding: Mapping[str, Any], why: str) -> Incident:
        """Change an open incident because of evidence that was brought for it."""
        changed = self._revise(incident, finding, why, brought=True)
        self._open[incident.incident].brought = True
        return changed

    def _revise(self, incident: Incident, finding: Mapping[str, Any], why: str, *, brought: bool = False) -> Incident:
        now = self.clock()
        seen = self._open.setdefault(incident.incident, _Seen(now, incident.status, agreed=now))
        if essence(incident.finding) == essence(finding):
            seen.agreed, seen.doubt = now, ()
            return incident
        if weaker(finding, incident.finding, brought=seen.brought):
            return incident
        gain = _WORDS.index(finding["confidence"]) - _WORDS.index(incident.finding["confidence"])
        if gain < 0 and incident.category != "unknown":
            return incident
        # What is no surer must outlive what was said: else two rules that differ would take turns. Not so what agents
        # brought: the looks that agree with the old verdict do not have it.
        if gain <= 0 and not brought and now - seen.agreed < AGREE_S and incident.category != "unknown":
            return incident
        # Which end of a slow flow it is may look sure for a moment, and other the next: it must last like the first.
        if finding["status"] == "slow" and not brought and incident.category != "unknown":
            if seen.doubt != essence(finding):
                seen.doubt, seen.doubted = essence(finding), now
            if now - seen.doubted < SLOW_S:
                return incident
        if seen.revisions >= _REVISED_AT_MOST:
            return incident
        seen.revisions += 1
        seen.agreed, seen.doubt = now, ()
        changed = self.state.revise(incident.incident, finding, why=why or "the verdict changed")
        seen.status = changed.status
        LOG.warning("incident %s is now: %s", changed.incident, changed.summary)
        self.told("revised", changed)
        return changed

    def _close(self, name: str, *, merged_into: str | None = None) -> None:
        self._open.pop(name, None)
        closed = self.state.close_incident(name, merged_into=merged_into)
        LOG.warning("incident %s is over%s", name, f": it is {merged_into}" if merged_into else "")
        self.told("closed" if merged_into is None else "merged", closed)


def _see(candidate: _Candidate, finding: Mapping[str, Any]) -> None:
    candidate.finding = finding
    candidate.looks += 1
    candidate.missed_in_a_row = 0


def essence(finding: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what a change of makes a new revision: what, who and how sure; not counts or times."""
    cause = finding["root_cause"]
    return (
        finding["status"],
        finding["category"],
        tuple(cause["ranks"]),
        tuple(cause["hosts"]),
        bool(cause.get("one_of")),
        finding["confidence"],
    )


# A general class does not replace one that evidence of its own has made more specific.
_GENERAL: Final = {
    "unknown": frozenset[str](),
    "absent": frozenset({"dataloader", "checkpoint", "exception", "code_divergence", "out_of_memory"}),
    "process_died": frozenset({"exception", "out_of_memory"}),
    "device_hang": frozenset({"gpu_fault"}),
    "slow_compute": frozenset({"slow_gpu", "dataloader"}),
}


def weaker(new: Mapping[str, Any], old: Mapping[str, Any], *, brought: bool) -> bool:
    """Whether `new` says less than `old` of the same.

    `brought`: the old one rests on evidence that agents brought, which the looks of every second do not have.
    """
    if tuple(new["root_cause"]["ranks"]) != tuple(old["root_cause"]["ranks"]):
        return False
    if new["category"] == "unknown":
        return old["category"] != "unknown"
    if old["category"] in _GENERAL.get(new["category"], frozenset()):
        return True
    same_class = new["category"] == old["category"]
    return same_class and brought and _WORDS.index(new["confidence"]) <= _WORDS.index(old["confidence"])


def same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two findings are of one incident: they share a rank, or a host where neither names ranks."""
    mine, other = old["root_cause"], new["root_cause"]
    if mine["ranks"] and other["ranks"]:
        return bool(set(mine["ranks"]) & set(other["ranks"]))
    if mine["hosts"] and other["hosts"]:
        return bool(set(mine["hosts"]) & set(other["hosts"]))
    # One of them names nobody: what it says is refined, or taken back, by the other.
    return old["status"] == new["status"] or "unknown" in (old["category"], new["category"])


def _key(finding: Mapping[str, Any]) -> str:
    cause = finding["root_cause"]
    return f"{finding['category']}/{sorted(cause['ranks'])}/{sorted(cause['hosts'])}"


def blind_finding(title: str, hosts: Sequence[str], silent_s: float) -> dict[str, Any]:
    """Return what is said of a job of which no agent speaks: not a fault of the job, and no answer about it."""
    named = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    return {
        "id": "blind",
        "status": "cannot_tell",
        "category": "unknown",
        "component": "unknown",
        "confidence": "low",
        "root_cause": {"ranks": [], "hosts": [], "devices": [], "flow": None, "one_of": False},
        "summary": f"The watch is blind for {title}: no agent of {named} has spoken for {silent_s:.0f} s.",
        "why": "hosts, agents or the network between them and the collector are down; nothing is known of the job",
        "confidence_why": [],
        "evidence": [],
        "chain": [],
        "next_steps": [f"systemctl status mycroft-agent   # on {hosts[0]}"] if hosts else [],
    }
