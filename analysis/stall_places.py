"""Why a rank that the flows accuse does not come: its stack, its last words, how it ended.

The flows see that a rank is not there, never why. Other sources of the same incident say it, and only they make the
class of the fault more specific.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from mycroft.analysis.absence import Life
from mycroft.analysis.case import Case
from mycroft.analysis.certainty import AGREES, CONTRADICTS, HIGH, MEDIUM
from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.classes import classify
from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.findings import next_steps
from mycroft.analysis.verdict import Alternative, Confidence, Evidence, Finding

# What may explain a finding of the flows, by its category. Of a process that is gone only its end counts.
_ENDS: Final = ("killed", "out_of_memory", "exception", "node_failed")
_PLACES: Final = ("in_dataloader", "in_checkpoint", "in_evaluation", "in_exception", "in_code")
# What it then is, by what is said of a rank.
_OTHERWISE: Final[Mapping[str, str]] = {
    "stopped": "process_stopped",
    "waits_elsewhere": "unknown",
    "out_of_memory": "out_of_memory",
    "exception": "exception",
}
_EXPLAINS: Final[Mapping[str, tuple[str, ...]]] = {
    "absent": (*_ENDS, *_PLACES, "finished"),
    "process_died": _ENDS,
}


def with_sources(case: Case, finding: Finding) -> Finding:
    """Return the finding as it is once the other sources of the incident were asked: why, and whether they agree."""
    told = with_reason(case, finding)
    return told if told is not finding else with_doubts(case, finding)


def with_doubts(case: Case, finding: Finding) -> Finding:
    """Return the finding with the doubt that another source casts on it: half as sure (section 10 of the design)."""
    against = _against(case, finding)
    if not against or finding.certainty is None:
        return finding
    certainty = round(finding.certainty * CONTRADICTS, 3)
    why = [w.replace("; no other source (corroboration)", "") for w in finding.confidence_why[:-1]]
    others = [Alternative(_OTHERWISE.get(c.kind, "process_died"), c.ranks, f"not excluded: {c.text}") for c in against]
    return replace(
        finding,
        certainty=certainty,
        confidence=_word(certainty, finding.confidence),
        confidence_why=(
            f"{against[0].text}, which speaks against it (corroboration {CONTRADICTS:.2f})",
            *why,
            f"in numbers {certainty:.2f} of 1",
        ),
        alternatives=(*finding.alternatives, *others),
        evidence=(*finding.evidence, *_rows(case, against, first=len(finding.evidence) + 1)),
    )


def _against(case: Case, finding: Finding) -> list[Claim]:
    """Return what other sources say that does not go with the finding.

    Of others that ended only what came before the stall: launchers end the rest afterwards.
    """
    accused = set(finding.root_cause.ranks)
    found: list[Claim] = []
    if finding.category == "absent":
        found += [c for c in case.place_claims(sorted(accused)) if c.kind == "waits_elsewhere"]
    if finding.category == "process_died":
        found += [_alive(rank, life) for rank in sorted(accused) if (life := case.lives.get(rank)) and life.alive]
    since = None if finding.since is None else datetime.fromisoformat(finding.since).timestamp() * NS_PER_S
    for claim in case.signs:
        early = since is not None and claim.since is not None and claim.since <= since
        if (
            claim.kind in _ENDS
            and early
            and not accused & set(claim.ranks)
            and set(claim.ranks) <= set(finding.victims)
        ):
            found.append(claim)
    return found


def _alive(rank: int, life: Life) -> Claim:
    assert life.alive is not None
    text = f"rank {rank} was alive when its process was looked at"
    ref = Ref(text, life.alive.file, life.alive.line)
    return Claim("snapshot", "stopped", (rank,), "weak", text, (ref,), life.alive.ts)


def with_reason(case: Case, finding: Finding) -> Finding:
    """Return the finding with what stacks, logs and launchers say of its rank; unchanged where they say nothing."""
    ranks = finding.root_cause.ranks
    kinds = _EXPLAINS.get(finding.category, ())
    if len(ranks) != 1 or finding.root_cause.one_of or any(e.source != "tracer" for e in finding.evidence):
        return finding
    said = [c for c in (*case.life_signs(ranks), *case.place_claims(ranks)) if c.kind in kinds and c.ranks == ranks]
    if not said:
        return _stopped(case, finding)
    # It is not there in any case; the class says more only where a claim of its own does.
    suspicion = Suspicion("", ranks, (Claim("tracer", "absent", ranks, "strong", finding.summary), *said))
    rule = classify(suspicion)
    told = said[0].text
    certainty = None if finding.certainty is None else min(1.0, round(finding.certainty * AGREES, 3))
    return replace(
        finding,
        category=rule.category,
        component=rule.component,
        status=rule.status,
        confidence=_word(certainty, finding.confidence),
        certainty=certainty,
        confidence_why=_agreed(finding, sorted({c.source for c in said})),
        summary=f"{finding.summary.removesuffix('.')}; {told}.",
        why=" ".join((finding.why, *(f"{c.text[:1].upper()}{c.text[1:]}." for c in said))),
        evidence=(*finding.evidence, *_rows(case, said, first=len(finding.evidence) + 1)),
        next_steps=next_steps(case.facts, suspicion, rule),
    )


def _stopped(case: Case, finding: Finding) -> Finding:
    """A silent rank of which a stack could be taken, as of those that wait for it, is not gone: it is stopped."""
    rank = finding.root_cause.ranks[0]
    place = case.places.get(rank)
    open_question = any(a.category == "process_stopped" and "not excluded" in a.rejected for a in finding.alternatives)
    # Only who reads a stack from outside, from a process that exists, says whether its thread runs.
    if not open_question or place is None or not place.state.startswith(("idle", "active")):
        return finding
    seen = [r for r in finding.victims if r in case.places]
    if 2 * len(seen) < len(finding.victims):
        return finding
    # When it was taken nobody says: the stacks of the others do where they are in the wait.
    sure = 2 * sum(case.places[r].waits for r in seen) > len(seen)
    text = f"a stack of rank {rank} was taken, so its process existed"
    rows = [
        *finding.evidence,
        Evidence(f"e{len(finding.evidence) + 1}", text, file=case.facts.path(place.file), line=place.line),
    ]
    rejected = f"{text}; not excluded where that was before it fell silent"
    others = tuple(a for a in finding.alternatives if a.category != "process_stopped")
    return replace(
        finding,
        category="process_stopped",
        component="process",
        status="hang",
        confidence=finding.confidence if sure or finding.confidence != "high" else "medium",
        summary=f"{finding.summary.removesuffix('.')}; {text}: it does not run.",
        why=f"{finding.why} A stack of it was taken all the same.",
        evidence=tuple(rows),
        alternatives=(*others, Alternative("process_died", (rank,), rejected)),
        next_steps=(f"kill -CONT <pid of rank {rank}>   # if ps shows state T", *finding.next_steps),
    )


def _agreed(finding: Finding, sources: list[str]) -> tuple[str, ...]:
    """Put the sources that agree first; the number is another one now."""
    others = [why.replace("; no other source (corroboration)", "") for why in finding.confidence_why[:-1]]
    return (f"{' and '.join(sources)} agree", *others)


def _word(certainty: float | None, before: Confidence) -> Confidence:
    if certainty is None:
        return before
    return "high" if certainty >= HIGH else "medium" if certainty >= MEDIUM else "low"


def _rows(case: Case, claims: list[Claim], *, first: int) -> list[Evidence]:
    refs = [ref for claim in claims for ref in claim.refs]
    return [
        Evidence(
            id=f"e{number}",
            claim=ref.claim,
            file=case.facts.path(ref.file),
            line=ref.line,
            table=ref.table,
            key=dict(ref.key) or None,
            source=ref.source,
        )
        for number, ref in enumerate(refs, first)
    ]
