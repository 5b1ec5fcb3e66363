"""Jobs that relays tell of: watched by their summaries, judged by rows that are fetched of the suspects only.

What summaries can tell is that a job stands, and which of its operations everything else waits for. Then an incident
opens that names nobody, the relays of the suspects are asked for their rows, and what these show becomes its verdict.
A checkpoint looks the same while it is young: nobody is told of the incident before somebody is named or the job has
stood for as long as a pause may last, and then rows are asked for once more if the first ones named nobody.
They also tell who became slow, window by window: that incident names whom they accuse, with medium confidence at most,
and people hear of it once rows of the accused and of their peers were judged, or did not come in time.
A relay that is silent is left out and said: nothing is known of its ranks, so nobody is named with confidence.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl

from mycroft.analysis.config import FLOW_DEFAULTS
from mycroft.analysis.fleet import merge
from mycroft.analysis.fleet.summaries import STANDS_NS, SUMMARY, Suspects, find_suspects, rows_of
from mycroft.app.live.incidents import Event, Incidents, blind_finding
from mycroft.app.live.relay import MOST_PULLED, name_of
from mycroft.app.live.relayed_slow import SlowJob, Word
from mycroft.app.live.state import Incident, LiveState
from mycroft.app.live.watch import BLIND_S
from mycroft.loaders.collector import RelaySeen
from mycroft.tracer.agent.summary import Part
from mycroft.tracer.arrow import pa, pc

LOG: Final = logging.getLogger("mycroft.watch")
# A relay is silent once this many of its summaries are missing, and never sooner than that.
_MISSING: Final = 2.5
_LEAST_SILENT_S: Final = 20.0
# What has left for good is not said for longer.
_SAID_S: Final = 86_400.0
# The job under which incidents of relays themselves are kept.
RELAYS: Final = "relays"
# A job may stand for so long without anything being wrong.
_PAUSE_NS: Final = FLOW_DEFAULTS.app_ns
# What a rank in a pause looks like: a verdict of rows alone does not ask how old they are.
_PATIENT: Final = frozenset({"absent", "dataloader", "checkpoint", "code_divergence"})
_MOST_KEYS: Final = 64
# What is said of a job before rows of it are there.
_STANDS: Final = "stands"
# Kept of an incident: of which ranks nothing was known when it opened, and whether people have not been told of it.
_UNKNOWN: Final = "unknown"
_UNSAID: Final = "unsaid"
_MOST_SAID: Final = 8


@dataclass(frozen=True, slots=True)
class _Told:
    """One job at one relay, as its newest summary has it. `oldest_ns`: since when its oldest operation is open."""

    relay: RelaySeen
    number: int
    rows: Any
    comms: frozenset[int]
    oldest_ns: int | None

    @property
    def part(self) -> Part:
        return self.relay.summary.parts[self.number]

    @property
    def over(self) -> bool:
        return self.part.ended >= self.part.processes

    @property
    def silent_s(self) -> float:
        """For how long no host of it has spoken; only where there are no rows."""
        return (self.relay.made_ns - self.part.at_ns) / 1e9


@dataclass
class Relayed:
    """All jobs that relays tell of. One thread but for `weighed`.

    `open_job` is given a name and a title and returns the incidents of that job; `publish` publishes what was brought
    for an incident; `tell` tells people of a change of one.
    """

    state: LiveState
    open_job: Callable[[str, str], Incidents]
    publish: Callable[[str, Incident, str], None]
    tell: Callable[[Event, Incident, str], None]
    evidence_s: float
    clock: Callable[[], float] = time.time
    _told: dict[str, tuple[tuple[int, int], list[_Told]]] = field(
        default_factory=lambda: dict[str, tuple[tuple[int, int], list[_Told]]]()
    )
    _judged: dict[str, tuple[Any, ...]] = field(default_factory=lambda: dict[str, tuple[Any, ...]]())
    _suspects: dict[str, tuple[Suspects, list[_Told], int, tuple[str, ...]]] = field(
        default_factory=lambda: dict[str, tuple[Suspects, list[_Told], int, tuple[str, ...]]]()
    )
    _next: dict[str, float] = field(default_factory=lambda: dict[str, float]())
    _brought: dict[str, tuple[int, int]] = field(default_factory=lambda: dict[str, tuple[int, int]]())
    _lasting: set[str] = field(default_factory=lambda: set[str]())
    _silent: dict[str, RelaySeen] = field(default_factory=lambda: dict[str, RelaySeen]())
    _grouped: dict[tuple[str, int], tuple[frozenset[int], str]] = field(
        default_factory=lambda: dict[tuple[str, int], tuple[frozenset[int], str]]()
    )
    _first: dict[str, float] = field(default_factory=lambda: dict[str, float]())
    _names: set[str] = field(default_factory=lambda: set[str]())
    _slow: dict[str, SlowJob] = field(default_factory=lambda: dict[str, SlowJob]())
    numbers: dict[str, int] = field(default_factory=lambda: dict[str, int]())

    def tick(self, relays: Iterable[RelaySeen]) -> None:
        """Look at what relays have told since the last look."""
        known = list(relays)
        self._refresh(known)
        now = self.clock()
        silent = {relay.name for relay in known if now - relay.arrived_s > patience_s(relay)}
        self._mind_silence([relay for relay in known if relay.name in silent], known, now)
        ranks = 0
        by_name = self._by_name()
        # Of a job that no relay tells of any more, what was usual is of no use.
        self._slow = {name: job for name, job in self._slow.items() if name in by_name}
        for name, told in by_name.items():
            try:
                self._look(name, told, silent)
            except Exception:
                # One job that breaks the rules must not blind the watch to the others.
                LOG.exception("job %s of relays cannot be judged", name)
            ranks += sum(one.part.processes for one in told)
        held = [job.numbers() for job in self._slow.values()]
        self.numbers = {
            "relays": len(known),
            "silent": len(silent),
            "ranks": ranks,
            "entities": sum(numbers["entities"] for numbers in held),
            "series_bytes": sum(numbers["bytes"] for numbers in held),
        }

    def _by_name(self) -> dict[str, list[_Told]]:
        """Return the jobs by name. What has no rows any more shares no communicator, but is known by its name."""
        told = {(one.relay.name, one.number): one for _, parts in self._told.values() for one in parts}
        none: tuple[frozenset[int], str] = (frozenset(), "")
        if any(self._grouped.get(place, none)[0] != one.comms for place, one in told.items()):
            # Some communicator is new or gone. Mostly none is, and to go through them all takes a while.
            self._grouped = {
                (one.relay.name, one.number): (one.comms, name)
                for group in _jobs(told.values())
                for name in (self._name_of(group),)
                for one in group
            }
        found: dict[str, list[_Told]] = {}
        for place, one in told.items():
            found.setdefault(self._grouped[place][1], []).append(one)
        return found

    def _refresh(self, relays: Sequence[RelaySeen]) -> None:
        gone = self._told.keys() - {relay.name for relay in relays}
        for name in gone:
            del self._told[name]
        for relay in relays:
            stamp = (relay.made_ns, relay.seq)
            if self._told.get(relay.name, (None,))[0] != stamp:
                self._told[relay.name] = (stamp, _parts(relay))

    def _mind_silence(self, silent: Sequence[RelaySeen], known: Sequence[RelaySeen], now: float) -> None:
        for relay in known:
            self._silent.pop(relay.name, None)
        # One that is silent for so long that the window has forgotten it is no less silent.
        self._silent.update((relay.name, relay) for relay in silent)
        silent = [relay for relay in self._silent.values() if now - relay.arrived_s < _SAID_S]
        if not silent and RELAYS not in self._names:
            return
        self._names.add(RELAYS)
        names = sorted(relay.name for relay in silent)
        facts = {"relays": len(known), "hosts": sorted(relay.name for relay in known)[:200], "silent": names[:50]}
        self.state.see_job(RELAYS, title="Relays", processes=[], facts=facts)
        findings = [silent_finding(relay, now - relay.arrived_s) for relay in silent]
        self.open_job(RELAYS, "Relays").take(findings, judged=True, why="a relay does not speak")

    # ---- a job ---------------------------------------------------------------------

    def _look(self, name: str, told: Sequence[_Told], silent: set[str]) -> None:
        self._names.add(name)
        speaking = [one for one in told if one.relay.name not in silent and one.rows.num_rows]
        title = _title(told)
        incidents = self.open_job(name, title)
        if all(one.over for one in told):
            incidents.end()
            self._slow.pop(name, None)
            return
        self._gather(name)
        self._release(name, title)
        stamp = tuple(sorted((one.relay.name, one.relay.made_ns, one.number) for one in speaking))
        due = time.monotonic() >= self._next.get(name, 0.0)
        if not speaking:
            self._mind_blindness(name, incidents, [one for one in told if one.relay.name not in silent])
            return
        if stamp == self._judged.get(name) or not due:
            return
        began = time.process_time()
        self._judged[name] = stamp
        left_out = sorted({one.relay.name for one in told} & silent)
        missing = _missing(told)
        if missing and self.clock() - self._first.setdefault(name, self.clock()) < patience_s(told[0].relay):
            return  # this watch has just begun, or the job: other relays of it will speak in a moment
        self._note(name, title, told, left_out)
        at_ns = min(one.part.at_ns for one in speaking if not one.over)
        suspects = self._stands(speaking, at_ns)
        unknown = (*left_out, *sorted({host for one in told for host in one.part.silent}))
        if missing:
            unknown = (*unknown, f"{missing} processes of which no relay tells")
        slow = self._slow.setdefault(name, SlowJob())
        seen = slow.take(_words(speaking), wrong=incidents.any_open)
        findings = [_unsure(finding, unknown) for finding in slow.findings]
        if suspects is None:
            if slow.to_fetch:
                self._suspects[name] = (_accused(slow), speaking, at_ns, unknown)
            seen = [replace(one, findings=tuple(_unsure(f, unknown) for f in one.findings)) for one in seen]
            incidents.take_iterations(seen, at_ns=max((one.at_ns for one in seen), default=0), stands=False)
            incidents.take(findings, judged=True, why="summaries show who became slow")
            self._suspects.pop(name, None)
            self._next[name] = time.monotonic() + 2 * (time.process_time() - began)
            return
        oldest_ns = min((one.oldest_ns for one in speaking if one.oldest_ns is not None), default=at_ns)
        opened = self.state.incidents(job=name, only_open=True)
        if any(one.status == "slow" for one in opened):
            if at_ns - oldest_ns < _PAUSE_NS:
                # A slow job makes pauses, as others do.
                incidents.take([dict(one.finding) for one in opened], judged=True, why="the job stands for a moment")
                return
            incidents.end(only="slow")
            opened = self.state.incidents(job=name, only_open=True)
        if opened:
            # It stands still: what was said goes on to be so.
            incidents.take([dict(one.finding) for one in opened], judged=True, why="the job still stands")
            for one in opened:
                # The watch that opened it may have ended before it asked.
                if one.finding["id"] == _STANDS and not self.state.requests(one.incident):
                    self._suspects[name] = (suspects, speaking, at_ns, unknown)
                    self.changed("opened", name, one, title)
            if at_ns - oldest_ns >= _PAUSE_NS:
                self._lasting.update(one.incident for one in opened)
                for one in opened:
                    self._lasts(one, title, suspects, speaking, at_ns)
        else:
            self._suspects[name] = (suspects, speaking, at_ns, unknown)
            finding = standing_finding(title, suspects, unknown)
            incidents.take([finding], judged=True, why="summaries show that the job stands")
        # Judging many must not take the whole machine.
        self._next[name] = time.monotonic() + 2 * (time.process_time() - began)

    def _mind_blindness(self, name: str, incidents: Incidents, told: Sequence[_Told]) -> None:
        """Say when the relays of a job speak, but no host of it does."""
        silent_s = min((one.silent_s for one in told), default=0.0)
        if silent_s > BLIND_S and not incidents.any_open:
            self._note(name, _title(told), told, ())
            finding = blind_finding(_title(told), [host for one in told for host in one.part.silent], silent_s)
            incidents.take([finding], judged=False, why="no agent speaks")

    def _stands(self, speaking: Sequence[_Told], at_ns: int) -> Suspects | None:
        before = at_ns - STANDS_NS
        if not any(one.oldest_ns is not None and one.oldest_ns <= before for one in speaking):
            return None
        rows = merge(SUMMARY, [_dated(one) for one in speaking])
        found = find_suspects(rows, at_ns=at_ns)
        return found if found.standing else None

    def _name_of(self, told: Sequence[_Told]) -> str:
        from mycroft.loaders.catalogue import new_trace_id

        keys = _keys(told)
        return self.state.job_of(keys) or new_trace_id(_title(told), f"relayed {keys[0]}")

    def _note(self, name: str, title: str, told: Sequence[_Told], left_out: Sequence[str]) -> None:
        hosts = sorted({one.relay.name for one in told})
        silent = [*left_out, *(host for one in told for host in one.part.silent)]
        facts = {
            "world_size": max((one.part.world_size or 0 for one in told), default=0) or None,
            "processes": sum(one.part.processes for one in told),
            "ended": sum(one.part.ended for one in told),
            "hosts": hosts[:200],
            "hosts_count": sum(one.part.hosts for one in told),
            "relays": len(hosts),
            "silent": silent[:50],
            "rows": sum(one.rows.num_rows for one in told),
            "progress_ns": max((one.part.at_ns for one in told), default=0) or None,
        }
        self.state.see_job(name, title=title, processes=_keys(told), facts=facts)

    # ---- rows of the suspects ------------------------------------------------------

    def is_of(self, job: str) -> bool:
        """Whether relays tell of a job, and no agent."""
        return job in self._names

    def changed(self, event: Event, job: str, incident: Incident, title: str) -> None:
        """Hear of a change of an incident, and tell of it once there is something to tell."""
        if event == "opened" and self._asks(job, incident):
            self.state.note(incident.incident, _UNSAID, value=True)
            return
        if self.state.noted(incident.incident, _UNSAID):
            if event == "revised" and incident.status == "slow":
                return  # rows of the accused may still change it
            self.state.note(incident.incident, _UNSAID, value=False)
            if event in ("closed", "merged"):
                return
            event = "opened"
        self.tell(event, incident, title)

    def _release(self, job: str, title: str) -> None:
        """Tell of who is slow, once rows were judged or do not come."""
        for one in self.state.incidents(job=job, only_open=True):
            judged = one.trace is not None or self.clock() - one.opened > self.evidence_s
            if one.status == "slow" and judged and self.state.noted(one.incident, _UNSAID):
                self.state.note(one.incident, _UNSAID, value=False)
                self.tell("opened", one, title)

    def _asks(self, job: str, incident: Incident) -> bool:
        """Ask for the rows of the suspects of a new incident; return whether it is one that has such."""
        suspects, speaking, at_ns, unknown = self._suspects.pop(job, (None, [], 0, ()))
        if suspects is None:
            return False
        if unknown:
            self.state.note(incident.incident, _UNKNOWN, unknown)
        self._ask(incident, suspects, speaking, at_ns)
        return True

    def _lasts(self, incident: Incident, title: str, suspects: Suspects, speaking: Sequence[_Told], at_ns: int) -> None:
        """Tell of an incident that is no pause any more; ask once more where rows of before named nobody."""
        if self.state.noted(incident.incident, _UNSAID):
            self.changed("revised", incident.job, incident, title)
        # It has a trace once the first rows were judged.
        still_unknown = incident.category == "unknown" and incident.trace is not None
        if still_unknown and len({request.until_ns for request in self.state.requests(incident.incident)}) == 1:
            self._ask(incident, suspects, speaking, at_ns)

    def _ask(self, incident: Incident, suspects: Suspects, speaking: Sequence[_Told], at_ns: int) -> None:
        asked = 0
        for relay, names in who_has(suspects.ranks, speaking).items():
            self.state.ask(incident.incident, relay, names[:MOST_PULLED], until_ns=at_ns)
            asked += len(names[:MOST_PULLED])
        LOG.info("rows of %d ranks are asked for: %s", asked, rows_of(suspects.ranks))

    def _gather(self, job: str) -> None:
        """Judge by the rows once they are there."""
        now = self.clock()
        for incident in self.state.incidents(job=job, only_open=True):
            requests = self.state.requests(incident.incident)
            over = [r for r in requests if r.ended is not None or now - r.created > self.evidence_s]
            brought = (len(self.state.evidence(incident.incident)), len(requests))
            if (
                requests
                and len(over) == len(requests)
                and brought[0]
                and self._brought.get(incident.incident) != brought
            ):
                self._brought[incident.incident] = brought
                missing = len(requests) - sum(r.ended is not None for r in requests)
                said = f"; {missing} relays did not bring them in time" if missing else ""
                self.publish(job, incident, f"rows of the suspects arrived from {len(requests)} relays{said}")

    def weighed(self, job: str, incident: str, finding: dict[str, Any]) -> dict[str, Any] | None:
        """Return a finding with no more confidence than is due where something of the job is not known.

        None: it names a rank that does not come, and the job has not stood for longer than a pause may last.
        """
        if self.is_of(job) and finding["category"] in _PATIENT and incident not in self._lasting:
            return None
        if self.is_of(job):
            finding = _narrowed(self.state.incident(incident).finding, finding)
        return _unsure(finding, self.state.noted(incident, _UNKNOWN) or ())


def patience_s(relay: RelaySeen) -> float:
    """Return after how many seconds without a word a relay is silent."""
    return max(_LEAST_SILENT_S, _MISSING * relay.summary.every_s)


def _parts(relay: RelaySeen) -> list[_Told]:
    """Return what a relay says of each job."""
    rows = relay.summary.rows.combine_chunks()
    numbers = rows.column("part").to_numpy()
    found: list[_Told] = []
    for number, part in enumerate(relay.summary.parts):
        mine = rows if (numbers == number).all() else rows.filter(pa.array(numbers == number))
        comms = frozenset({part.comm, *np.unique(mine.column("comm").to_numpy()).tolist()})
        oldest = pc.min(mine.column("open_enq")).as_py()
        found.append(_Told(relay, number, mine, comms, oldest))
    return found


def _words(told: Sequence[_Told]) -> list[Word]:
    """Return what relays tell of own service, with what they told since they were last looked at."""
    found: list[Word] = []
    for one in told:
        found += [
            Word(one.relay.name, number, summary, newest=False)
            for summary in one.relay.measured
            for number, part in enumerate(summary.parts)
            if summary is not one.relay.summary and part.window and part.comm == one.part.comm
        ]
        found.append(Word(one.relay.name, one.number, one.relay.summary))
    return found


def _accused(slow: SlowJob) -> Suspects:
    told = slow.numbers()["entities"]
    return Suspects(told, 0, (), slow.to_fetch, slow.left_out)


def _narrowed(told: Mapping[str, Any], finding: dict[str, Any]) -> dict[str, Any]:
    """Return what rows say, or what summaries of all ranks told where that is one of those whom the rows leave open."""
    one, several = told["root_cause"]["ranks"], finding["root_cause"]["ranks"]
    alike = (told["status"], told["category"]) == ("slow", finding["category"])
    if not (alike and len(one) == 1 and finding["root_cause"]["one_of"] and one[0] in several):
        return finding
    agree = f"rows of a few agree and fit {len(several)} ranks, of which summaries of all ranks accuse this one"
    why = [*finding["confidence_why"], agree]
    sure = "low" if finding["confidence"] == "low" else "medium"
    # Its page is that of the rows.
    kept = {name: finding[name] for name in ("id", "evidence", "cost") if name in finding}
    return {**told, **kept, "confidence": sure, "confidence_why": why}


def _unsure(finding: dict[str, Any], unknown: Sequence[str]) -> dict[str, Any]:
    """Return a finding with no more confidence than is due where something of the job is not known."""
    if not unknown:
        return finding
    said = f"nothing is known of the ranks of {_some(unknown)}"
    return {**finding, "confidence": "low", "confidence_why": [*finding["confidence_why"], said]}


def _jobs(told: Iterable[_Told]) -> list[list[_Told]]:
    """Return what belongs together: jobs at several relays are one if they share a communicator."""
    known = list(told)
    parent = list(range(len(known)))

    def top(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    by_comm: dict[int, int] = {}
    for index, one in enumerate(known):
        for comm in one.comms:
            other = by_comm.setdefault(comm, index)
            if other != index:
                parent[top(index)] = top(other)
    found: dict[int, list[_Told]] = {}
    for index, one in enumerate(known):
        found.setdefault(top(index), []).append(one)
    return list(found.values())


def _missing(told: Sequence[_Told]) -> int:
    """Return how many processes of a job no relay tells of; 0 where its size is not known."""
    world = max((one.part.world_size or 0 for one in told), default=0)
    return max(0, world - sum(one.part.processes for one in told))


def _title(told: Sequence[_Told]) -> str:
    job = next((one.part.job for one in told if one.part.job), "")
    return (job or f"job of {min(one.relay.name for one in told)}")[:80]


def _keys(told: Sequence[_Told]) -> list[str]:
    """Return names of some communicators of a job, by which it is known again; those of the least numbers."""
    return [f"comm-{comm:016x}" for comm in sorted({min(one.comms) for one in told})[:_MOST_KEYS]]


def _dated(told: _Told) -> Any:
    """Return the rows of a relay as `SUMMARY` has them."""
    same = pa.repeat(pa.scalar(told.part.at_ns, pa.timestamp("ns")), told.rows.num_rows)
    columns = [same if name == "ts" else told.rows.column(name) for name in SUMMARY.schema.names]
    return pa.table(columns, names=SUMMARY.schema.names).cast(SUMMARY.schema)


def who_has(ranks: Sequence[int], told: Sequence[_Told]) -> Mapping[str, list[str]]:
    """Return which relay is to be asked for which processes: those of the ranks, each once."""
    wanted = pa.array(ranks, pa.uint32())
    found: dict[str, list[str]] = {}
    seen: set[int] = set()
    for one in told:
        mine = one.rows.filter(pc.is_in(one.rows.column("rank"), wanted)).select(["rank", "comm"])
        rows = pl.DataFrame(mine).unique("rank", keep="first", maintain_order=True)
        for rank, comm in rows.iter_rows():
            if rank not in seen:
                seen.add(rank)
                found.setdefault(one.relay.name, []).append(name_of(rank, comm))
    return found


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SAID} more" if len(names) > _MOST_SAID else ""
    return ", ".join(names[:_MOST_SAID]) + more


def _finding(what: str, *, status: str, hosts: Sequence[str], summary: str, why: str, steps: Sequence[str]) -> Any:
    return {
        "id": what,
        "status": status,
        "category": "unknown",
        "component": "unknown",
        "confidence": "low",
        "root_cause": {"ranks": [], "hosts": list(hosts), "devices": [], "flow": None, "one_of": False},
        "summary": summary,
        "why": why,
        "confidence_why": [],
        "evidence": [],
        "chain": [],
        "next_steps": list(steps),
    }


def standing_finding(title: str, suspects: Suspects, unknown: Sequence[str]) -> dict[str, Any]:
    """Return what is said of a job that stands before rows of it are there: nobody is named."""
    first = suspects.standing[0]
    told = f"{title} stands: {suspects.ranks_waiting} of {suspects.ranks_told} ranks wait in operations that do not end"
    why = (
        f"everything waits for {len(suspects.standing)} operations, the first of which is number {first.seq} of "
        f"communicator {first.comm:#x} with {len(first.ranks)} ranks; rows of {len(suspects.ranks)} ranks are fetched"
    )
    if first.absent:
        why += f"; {rows_of(first.absent)} did not come to it"
    if suspects.left_out:
        why += f"; of {suspects.left_out} more that are suspect none are"
    if unknown:
        why += f"; nothing is known of the ranks of {_some(unknown)}"
    steps = [f"wait for the rows, or look at {rows_of(suspects.ranks)}"]
    return _finding(_STANDS, status="cannot_tell", hosts=(), summary=f"{told}.", why=why, steps=steps)


def silent_finding(relay: RelaySeen, silent_s: float) -> dict[str, Any]:
    """Return what is said of a relay that does not speak: the watch is blind for its ranks."""
    ranks = sum(part.processes for part in relay.summary.parts)
    jobs = _some([part.job for part in relay.summary.parts if part.job]) or "jobs without a name"
    return _finding(
        "blind",
        status="cannot_tell",
        hosts=[relay.name],
        summary=f"The watch is blind for {ranks} ranks: {relay.name} has not spoken for {silent_s:.0f} s.",
        why=f"the relay, or the network between it and the collector, is down; its ranks belong to {jobs}",
        steps=[f"systemctl status mycroft-collect   # on the machine of {relay.name}"],
    )
