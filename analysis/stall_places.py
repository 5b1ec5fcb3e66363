"""Why a rank that the flows accuse does not come: its stack, its last words, how it ended.

The flows see that a rank is not there, never why. Other sources of the same incident say it, and only they make the
class of the fault more specific.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mycroft.analysis.case import Case
from mycroft.analysis.certainty import AGREES, HIGH, MEDIUM
from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.classes import classify
from mycroft.analysis.findings import next_steps
from mycroft.analysis.verdict import Alternative, Confidence, Evidence, Finding

# What may explain a finding of the flows, by its category. Of a process that is gone only its end counts.
_ENDS: Final = ("killed", "out_of_memory", "exception", "node_failed")
_PLACES: Final = ("in_dataloader", "in_checkpoint", "in_evaluation", "in_exception", "in_code")
_EXPLAINS: Final[Mapping[str, tuple[str, ...]]] = {
    "absent": (*_ENDS, *_PLACES, "finished"),
    "process_died": _ENDS,
}


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
