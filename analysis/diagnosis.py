"""`diagnose`: the store in, the verdict out.

facts -> matching -> wait-for graph, mismatches, places, signs of life -> suspicions -> findings -> verdict
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from typing import Final

import polars as pl

from mycroft.analysis.absence import life_claims, lives
from mycroft.analysis.aftermath import Past, last_stop, stopped_from_outside
from mycroft.analysis.case import Case, count_words
from mycroft.analysis.config import DEFAULTS, NS_PER_S, Thresholds
from mycroft.analysis.culprits import blame
from mycroft.analysis.facts import Event, Facts, Frames, read_facts
from mycroft.analysis.findings import compose
from mycroft.analysis.flow_verdict import FlowEvidence, flow_evidence, young
from mycroft.analysis.joint_findings import with_flows
from mycroft.analysis.liveness import Liveness, judge
from mycroft.analysis.machine import read_machine
from mycroft.analysis.machine_rules import steps_slowed, symptom_time
from mycroft.analysis.matching import match
from mycroft.analysis.mismatch import find_mismatches
from mycroft.analysis.several_jobs import apart, others_in, parts_in, together
from mycroft.analysis.stacks import places
from mycroft.analysis.stall_places import with_sources
from mycroft.analysis.undecided import decided, wanted
from mycroft.analysis.verdict import RULES_VERSION, EvidenceSummary, Finding, Status, Unknown, Verdict
from mycroft.analysis.waitgraph import build


def diagnose(store: Frames, *, limits: Thresholds = DEFAULTS, at: int | None = None) -> Verdict:
    """Return who stalls or slows the job, why, how sure that is and what to do next.

    `at`, ns UTC: what could have been said at that moment, from the tracer's rows up to it alone.

    Depends on the evidence alone: equal evidence gives equal bytes, whatever the order of files. Evidence of several
    jobs gives the findings of each.
    """
    if at is not None:
        return _at(store, limits, at)
    others = others_in(store)
    verdict = _diagnose(store, limits)
    if others:
        return together(verdict, store, [(_diagnose(job, limits), job) for job in others])
    parts = parts_in(store)
    return apart(verdict, [(_diagnose(part, limits), part) for part in parts]) if parts else verdict


def _diagnose(store: Frames, limits: Thresholds) -> Verdict:
    facts = read_facts(store)
    evidence = flow_evidence(store, limits.flow)
    case = _standing(build_case(facts, limits=limits), evidence)
    told = tuple(with_sources(case, finding) for finding in evidence.findings)
    kept, gaps = decided(case, blame(case))
    findings = with_flows(_without_flight(case, evidence, compose(case, kept)), told)
    status, summary = _headline(case, findings, evidence, gaps)
    return Verdict(
        engine=f"{_version()}/{RULES_VERSION}",
        evidence=EvidenceSummary(
            digest=facts.meta.get("digest", ""),
            files=len(facts.files),
            formats=dict(facts.formats),
            ranks_expected=len(facts.expected) if facts.world_known else None,
            ranks_seen=len(facts.dumps) or len(facts.ranks),
            unread=tuple({"file": path, "why": why} for path, why in facts.unread),
        ),
        status=status,
        summary=summary,
        findings=findings,
        unknown=(*gaps, *_unknown(case, findings, aged=bool(evidence.stalls)), *evidence.unknown),
        standing=evidence.standing,
    )


def _standing(case: Case, evidence: FlowEvidence) -> Case:
    """Where the flows show for how long whom has stood, nobody need ask whether the waits are old."""
    snapshot = evidence.snapshot
    if snapshot is None or not evidence.stalls or not set(case.facts.dumps) <= set(snapshot.ranks):
        return case
    why = f"the tracer has shown no progress of half of the ranks for {evidence.silence_ns / NS_PER_S:.1f} s"
    return replace(case, liveness=Liveness("stuck", why))


def _at(store: Frames, limits: Thresholds, at: int) -> Verdict:
    """The verdict of one moment; of other sources only the names of hosts and groups are used."""
    evidence = flow_evidence(store, limits.flow, at=at)
    ranks = len(evidence.snapshot.ranks) if evidence.snapshot is not None else 0
    findings = evidence.findings
    status: Status = findings[0].status if findings else "healthy"
    summary = findings[0].summary if findings else f"Healthy: {ranks} ranks, at work."
    if not findings and (evidence.snapshot is None or not evidence.moves):
        status, summary = "cannot_tell", f"Cannot tell: {young(evidence) or 'no tracer left rows'}."
    return Verdict(
        engine=f"{_version()}/{RULES_VERSION}",
        evidence=EvidenceSummary(ranks_seen=ranks),
        status=status,
        summary=summary,
        findings=findings,
        standing=evidence.standing,
    )


def _without_flight(case: Case, evidence: FlowEvidence, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Leave out what is told from the order and length of operations alone, where flows show more.

    A hang, where they show the job at work; slowness always: who waits takes as long as who is waited for, and only the
    flows tell the two apart.
    """
    if evidence.snapshot is None or not set(case.facts.dumps) <= set(evidence.snapshot.ranks):
        return findings
    left_out = {"slow"}
    if evidence.moves and not evidence.stalls and not case.facts.stacks:
        left_out.add("hang")
    return tuple(f for f in findings if f.status not in left_out or any(e.file and e.table is None for e in f.evidence))


def build_case(facts: Facts, *, limits: Thresholds = DEFAULTS) -> Case:
    """Derive everything that the rules look at."""
    matched = match(facts)
    where = places(facts)
    graph = build(facts, matched, where)
    found = lives(facts)
    machine = read_machine(facts.store, facts.files)
    first = min((m.first_enq for m in graph.meetings.values() if m.first_enq and graph.waiting), default=None)
    return Case(
        facts=facts,
        matched=matched,
        places=where,
        graph=graph,
        lives=found,
        signs=life_claims(facts, found, {r for r, place in where.items() if place.waits}),
        mismatches=find_mismatches(facts, matched),
        liveness=judge(facts, matched, where, found, graph.waiting, limits),
        limits=limits,
        machine=machine,
        since=symptom_time(machine, first),
    )


# A log that ends in these words is of no job that goes well.
_LAST_ERROR: Final = re.compile(r"\b[A-Z]\w{2,60}(?:Error|Exception): ")
# Events of processes that ended, in whatever way.
_ENDED_BADLY: Final = ("launcher_failure", "exit", "signal")
# ... and codes that say nothing bad: whoever ends a job asks its processes to stop.
_ENDED_WELL: Final = (None, 0, -1, -2, -15)


def _headline(
    case: Case, findings: tuple[Finding, ...], evidence: FlowEvidence, gaps: Sequence[Unknown]
) -> tuple[Status, str]:
    if findings:
        first = findings[0]
        more = f" ({len(findings) - 1} more findings.)" if len(findings) > 1 else ""
        return first.status, first.summary + more
    why_not = young(evidence) or (gaps[0].what if gaps else _why_not_healthy(case, moves=evidence.moves))
    if why_not:
        return "cannot_tell", f"Cannot tell: {why_not}."
    ranks = len(case.facts.dumps) or len(case.facts.ranks) or len(case.lives)
    going = "all at work" if evidence.moves and case.graph.waiting else "no rank waits for another"
    return (
        "healthy",
        f"Healthy: {ranks} ranks, {going}, nothing failed.",
    )


def _why_not_healthy(case: Case, *, moves: bool) -> str:
    """Return what keeps a case without findings from being called healthy; empty: nothing does."""
    facts = case.facts
    if stopped := stopped_from_outside(facts):
        return stopped
    if not facts.dumps and not case.lives and case.machine.perf.is_empty():
        if facts.stacks:
            return "there are only stacks, and they do not show in which operation ranks wait"
        return "there is no dump, log or stack of any rank"
    if slowed := steps_slowed(case.machine.steps_ms):
        return f"{slowed}, and nothing shows why"
    bad = [e for e in facts.events if e.kind in _ENDED_BADLY and e.code not in _ENDED_WELL]
    past = Past(facts) if bad else None
    bad = [e for e in bad if past is not None and not past.ended_before(e) and not past.went_on_after(e)]
    if bad:
        failed = bad[0]
        whose = f"rank {failed.rank}" if failed.rank is not None else "a process"
        return f"{whose} ended with code {failed.code}, and nothing shows which rank was the cause"
    if last := _ends_in_error(facts):
        whose = f"rank {last.rank}" if last.rank is not None else "a log"
        return f"the last line of {whose} is an error, and nothing shows which rank was the cause"
    if stop := last_stop(facts):
        return f"{stop}, after trouble of which nothing tells whose it was"
    if not _shows_progress(case):
        return "nothing shows that the ranks went on: no dump, no step, no finished operation and no end"
    if case.graph.waiting and case.liveness.state != "in_flight" and not moves:
        waiting = case.graph.waiting
        verb = "waits" if len(waiting) == 1 else "wait"
        return f"{count_words(waiting)} {verb}, and the evidence does not show for whom"
    failed = [r for r, life in case.lives.items() if life.victim_error is not None or life.size_complaint is not None]
    if failed:
        verb = "reports" if len(failed) == 1 else "report"
        return f"{count_words(failed)} {verb} a lost connection or a timeout, and nothing shows who stopped"
    return _too_little_seen(case) if facts.dumps else _without_dumps(case)


def _ends_in_error(facts: Facts) -> Event | None:
    """Return the last line of a rank that is an error, if no step of the job stands behind it."""
    worked: dict[int | None, int] = {}
    for frame in (facts.steps, facts.job_steps):
        for file, line in frame.group_by("file_id").agg(pl.col("line").max()).iter_rows():
            worked[file] = max(worked.get(file, 0), line or 0)
    ends = (e for e in facts.events if e.kind == "log_end" and _LAST_ERROR.search(e.text))
    return next((e for e in ends if (e.line or 0) > worked.get(e.file, 0)), None)


def _without_dumps(case: Case) -> str:
    """Return what speaks against health where there are only logs and stacks."""
    well = {r for r, life in case.lives.items() if life.ended_well}
    waits = sorted({r for r, place in case.places.items() if place.waits} - well)
    if waits:
        return f"the stacks of {count_words(waits)} are in operations with others, and no dump shows in which"
    dumped = sorted({r for r, life in case.lives.items() if life.dump_written is not None} - well)
    return f"{count_words(dumped)} wrote dumps, as jobs that hang do, and none is here" if dumped else ""


def _too_little_seen(case: Case) -> str:
    """Return what the dumps leave open although nobody waits: ranks that they do not show, or the pace of the job."""
    facts = case.facts
    if older := facts.older():
        return f"{_older_words(older)}, so they do not show one moment of the job"
    if cut := facts.cut_short():
        return f"the dump of {count_words(cut)} is cut short, and what it did last is not in it"
    idle = sorted(set(facts.dumps) - set(_finished(case)))
    if idle:
        return f"the dumps of {count_words(idle)} show no finished operation"
    lost = [r for r in facts.without_dump() if not ((life := case.lives.get(r)) is not None and life.ended_well)]
    if lost and any(not d.has_events for d in facts.dumps.values()):
        return (
            f"{count_words(lost)} left no dump, and this recorder does not tell a failed operation from a finished one"
        )
    if 2 * len(lost) >= len(facts.expected):
        return f"{count_words(lost)} left no dump, and that is half of the job or more"
    if len(facts.dumps) == 1 and not facts.world_known:
        return f"there is one dump, of rank {next(iter(facts.dumps))}, and nothing tells whether the job has more ranks"
    if not _shows_pace(case):
        return (
            "no rank waits for another and nothing failed, so nothing hangs; whether the job is slow is not shown: the "
            "dumps have no times of the devices (TORCH_NCCL_ENABLE_TIMING=1) and no log tells the pace of the steps"
        )
    return ""


def _finished(case: Case) -> list[int]:
    """Return the ranks that got through an operation; in a ring, where ends may be unknown, one that called another."""
    calls, pairs = (
        frame.filter(pl.col("done"))["rank"].unique().to_list() for frame in (case.matched.calls, case.matched.pairs)
    )
    went_on = {r for r, d in case.facts.dumps.items() if d.kind == "ring" and d.entries > 1}
    return sorted({*calls, *pairs, *went_on})


def _shows_pace(case: Case) -> bool:
    """Say whether anything would show a slow rank: device times, blocking calls, flows, steps or the end."""
    facts = case.facts
    if any(d.has_timing or not d.has_events or d.kind == "ring" for d in facts.dumps.values()):
        return True
    if not facts.steps.is_empty() or not case.machine.perf.is_empty():
        return True
    return all((life := case.lives.get(r)) is not None and life.ended_well for r in facts.dumps)


def _shows_progress(case: Case) -> bool:
    """Say whether anything shows the job at work; a log that ends after its start shows nothing, nor an empty dump."""
    if _finished(case) or not case.facts.steps.is_empty() or not case.machine.perf.is_empty():
        return True
    if case.facts.ranks and (case.machine.steps_ms or case.machine.of("finished")):
        return True
    return any(life.ended_well for life in case.lives.values())


def _unknown(case: Case, findings: tuple[Finding, ...], *, aged: bool) -> tuple[Unknown, ...]:
    """Return what the evidence does not show, and what would decide it. `aged`: flows say how long they have stood."""
    facts = case.facts
    found: list[Unknown] = []
    missing = wanted(case) if not findings else None
    if missing is not None:
        found.append(missing)
    found += _users_of_devices(findings)
    found += _ranks_of_hosts(findings)
    lost = facts.without_dump()
    if lost:
        what = f"{count_words(lost)} left no dump"
        found.append(Unknown(what, f"Flight Recorder dump, log or exit code of {count_words(lost)}"))
    if older := facts.older():
        found.append(Unknown(_older_words(older), f"a dump of {count_words(older)} of the time of the others"))
    cut = [r for r in facts.cut_short() if r not in older]
    if cut:
        dump = "dump" if len(cut) == 1 else "dumps"
        found.append(
            Unknown(
                f"the {dump} of {count_words(cut)} {'is' if len(cut) == 1 else 'are'} cut short",
                "the whole file, copied again",
            )
        )
    unsure = [f for f in findings if f.confidence != "high" and f.root_cause.ranks and f.component != "gpu"]
    if unsure and not facts.stacks:
        ranks = count_words(unsure[0].root_cause.ranks)
        found.append(Unknown("no stacks were collected", f"py-spy dump of {ranks}, taken while it hangs"))
    if any(f.category == "unknown" for f in findings) and not any(d.has_timing for d in facts.dumps.values()):
        found.append(
            Unknown(
                "whose device had not started", "dumps with TORCH_NCCL_ENABLE_TIMING=1, or the kernel log of the hosts"
            )
        )
    if case.graph.waiting and case.liveness.state == "unknown" and not aged:
        found.append(
            Unknown("how long the ranks had been waiting", "the logs of the ranks, or a second dump a minute later")
        )
    short = {n.key[0] for sink in case.graph.sinks if sink.kind == "unseen" for n in sink.nodes}
    unseen = [g for g in facts.groups.values() if g.unseen or g.comm in short]
    for group in sorted(unseen, key=lambda g: g.key)[:4]:
        what = f"{group.unseen} member{'s' * (group.unseen > 1)}" if group.unseen else "whether there are more members"
        found.append(Unknown(f"{what} of {group.title}", "a topology file, or the dumps of all ranks"))
    return tuple(found)


def _older_words(ranks: Sequence[int]) -> str:
    dumps = "the dump of {} is" if len(ranks) == 1 else "the dumps of {} are"
    return f"{dumps.format(count_words(ranks))} older than those of the peers, which went on since"


def _users_of_devices(findings: Sequence[Finding]) -> list[Unknown]:
    """Return which devices are to blame of which no file says what rank used them."""
    found: list[Unknown] = []
    for finding in findings:
        cause = finding.root_cause
        if finding.category == "gpu_fault" and not cause.ranks and cause.hosts:
            device = f"{cause.devices[0]} of {cause.hosts[0]}" if cause.devices else f"the GPU of {cause.hosts[0]}"
            found.append(
                Unknown(
                    f"which rank uses {device}",
                    f"the job's NCCL log (NCCL_DEBUG=INFO) or the output of its ranks on {cause.hosts[0]}",
                )
            )
    return found


def _ranks_of_hosts(findings: Sequence[Finding]) -> list[Unknown]:
    """Return on which hosts a process is to blame of which no file says what rank it was."""
    found: list[Unknown] = []
    for finding in findings:
        cause = finding.root_cause
        if finding.category in ("out_of_memory", "process_died") and not cause.ranks and len(cause.hosts) == 1:
            host = cause.hosts[0]
            found.append(Unknown(f"which rank it was on {host}", f"the output of the ranks on {host}"))
    return found


def _version() -> str:
    try:
        return metadata.version("mycroft-trace")
    except metadata.PackageNotFoundError:
        return "unknown"
