"""How sure: from stated reasons to one of three words.

A finding starts at `high` and every doubt lowers it to the level that the doubt allows; reasons for it are listed
beside. The rules are a table; `docs/accuracy.md` shows how often each word was right on generated jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mycroft.analysis.case import Case, count_words
from mycroft.analysis.claims import Suspicion
from mycroft.analysis.verdict import Confidence
from mycroft.analysis.waitgraph import without_pipeline

LEVELS: Final[tuple[Confidence, ...]] = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Doubt:
    """One reason against full confidence: `when` it applies, the level it allows `at_most`, and its words."""

    name: str
    at_most: Confidence
    when: Callable[[Case, Suspicion], str | None]


def _one_of(case: Case, s: Suspicion) -> str | None:
    return f"the evidence fits each of {len(s.ranks)} ranks" if s.one_of else None


def _dump_only(case: Case, s: Suspicion) -> str | None:
    """A missing dump is a fact about the collection first, and about the rank only if something else says so."""
    told = ("killed", "exception", "out_of_memory", "silent", "stopped", "exited")
    if not s.has("no_dump") or any(c.kind in told and c.strength != "weak" for c in s.claims):
        return None
    lost = [r for r in s.ranks if r in case.facts.lost()]
    return f"{count_words(lost)} left no whole dump, and no log or exit code says why" if lost else None


def _others_missing(case: Case, s: Suspicion) -> str | None:
    """Somebody else without a dump may be missing from the same operation."""
    lost = [r for r in s.missing if r not in s.ranks and r in case.facts.lost()]
    lost = [r for r in lost if not ((p := case.places.get(r)) is not None and p.waits)]
    return f"{count_words(lost)} of the same group left no dump and may be missing too" if lost else None


def _blind(case: Case, s: Suspicion) -> str | None:
    """An idle rank of an event-less recorder may sit in a send or receive that was not recorded."""
    if not s.has("absent") or s.has("killed", "exception", "out_of_memory", "finished"):
        return None
    blind = [r for r in s.ranks if (d := case.facts.dumps.get(r)) is not None and not d.has_events]
    unseen = [r for r in blind if r not in case.places]
    if unseen and not without_pipeline(case.facts):
        return f"this recorder keeps no send or receive: without a stack {count_words(unseen)} may be waiting in one"
    return None


def _contradicted(case: Case, s: Suspicion) -> str | None:
    if not s.has("waits_elsewhere") or s.has("odd_type", "odd_size", "odd_dtype", "alone", "left_path", "odd_place"):
        return None
    if s.has("device_behind", "device_not_started", "swapped"):
        return None
    return f"the stack of {count_words(s.ranks)} shows it in an operation itself"


def _age_unknown(case: Case, s: Suspicion) -> str | None:
    """Without a witness that the wait lasted, a dump of a running job looks the same."""
    if case.liveness.state != "unknown" or s.has("odd_type", "odd_size", "odd_dtype", "killed", "exception"):
        return None
    blind = any(not d.has_events for d in case.facts.dumps.values())
    still = len(s.waiting) + len(s.ranks)
    if not blind and still >= len(case.facts.expected) - len(case.facts.without_dump()):
        return None
    return case.liveness.why


def _dumps_alone(case: Case, s: Suspicion) -> str | None:
    """Nothing but dumps that show neither devices nor sends: even that the job stands still is a guess."""
    from_elsewhere = case.facts.stacks or case.lives
    if case.liveness.state != "unknown" or from_elsewhere or not s.has("absent"):
        return None
    if all(d.has_events for d in case.facts.dumps.values()):
        return None
    return "there are only dumps, of a recorder that shows neither devices nor sends"


def _few_wait(case: Case, s: Suspicion) -> str | None:
    waiting, blaming = _waiting(case, s)
    if not waiting or not s.sinks:
        return None
    share = len(blaming) / len(waiting)
    return f"only {share:.0%} of the waiting ranks wait for it" if share < 0.5 else None


def _waiting(case: Case, s: Suspicion) -> tuple[set[int], set[int]]:
    """Return the ranks that wait, and those of them that wait for the accused, who does not wait for itself."""
    return set(case.graph.waiting) - set(s.ranks), set(case.graph.blaming(s.sinks)) - set(s.ranks)


def _beside_the_lost(case: Case, s: Suspicion) -> str | None:
    """Others wait for a rank without a dump as well: it may have the same fault, or one of its own."""
    if s.has("killed", "exception", "out_of_memory"):
        return None
    beside = {
        r for i, sink in enumerate(case.graph.sinks) if sink.kind == "no_dump" and i not in s.sinks for r in sink.ranks
    }
    beside -= {*s.ranks, *(r for r, place in case.places.items() if place.waits)}
    beside = {r for r in beside if not case.is_victim(r)}
    return f"{count_words(sorted(beside))} left no dump, and others wait for it too" if beside else None


def _unread_lost(case: Case, s: Suspicion) -> str | None:
    """Ranks without a dump that could change who is named."""
    lost = [r for r in case.facts.lost() if r not in s.ranks]
    lost = [r for r in lost if r not in case.places and not case.is_victim(r)]
    if not lost or s.has("killed", "exception", "out_of_memory"):
        return None
    suspicious = [r for r in lost if r in s.missing]
    if suspicious:
        return None  # said by _others_missing
    if s.has("left_path", "odd_place") or (s.has("absent") and 4 * len(lost) > len(case.facts.expected)):
        return f"{count_words(lost)} left no dump: whether they stand at the same place is not known"
    return None


def _only_aborted(case: Case, s: Suspicion) -> str | None:
    """An abort without a word may have been that of a watchdog whose lines are elsewhere."""
    claim = s.first("exited")
    if claim is None or claim.detail != "SIGABRT" or s.has("exception", "killed", "gpu_fault"):
        return None
    return "what aborted it is not shown: its watchdog would have said whom it waited for, and its lines may be lost"


def _others_ended(case: Case, s: Suspicion) -> str | None:
    """Of several that ended without a word the first told need not be the first that ended."""
    if s.rule != "ended" or not s.claims or any(c.kind != "exited" or c.since is not None for c in s.claims):
        return None
    others = sorted({r for c in case.signs if c.kind == "exited" for r in c.ranks} - set(s.ranks))
    return f"{count_words(others)} ended too, and only the order of the lines tells who was first" if others else None


DOUBTS: Final[tuple[Doubt, ...]] = (
    Doubt("one of several", "medium", _one_of),
    Doubt("no dump, nothing else", "medium", _dump_only),
    Doubt("others missing too", "medium", _others_missing),
    Doubt("beside a lost dump", "medium", _beside_the_lost),
    Doubt("unrecorded sends", "medium", _blind),
    Doubt("stack contradicts", "medium", _contradicted),
    Doubt("age unknown", "medium", _age_unknown),
    Doubt("dumps alone", "low", _dumps_alone),
    Doubt("explains few", "medium", _few_wait),
    Doubt("dumps missing", "medium", _unread_lost),
    Doubt("aborted", "medium", _only_aborted),
    Doubt("others ended too", "medium", _others_ended),
)


def rate(case: Case, suspicion: Suspicion) -> tuple[Confidence, tuple[str, ...]]:
    """Return the word and the reasons, for and against."""
    level = LEVELS.index("high")
    against: list[str] = []
    for allowed, why in suspicion.doubts:
        level = min(level, LEVELS.index(allowed))  # pyright: ignore[reportArgumentType] - rules write the three words
        against.append(why)
    for doubt in DOUBTS:
        why = doubt.when(case, suspicion)
        if why is not None:
            level = min(level, LEVELS.index(doubt.at_most))
            against.append(why)
    return LEVELS[level], (*_reasons_for(case, suspicion), *(f"but {why}" for why in dict.fromkeys(against)))


def _reasons_for(case: Case, s: Suspicion) -> list[str]:
    reasons: list[str] = []
    waiting, blaming = _waiting(case, s)
    if s.sinks and waiting:
        reasons.append(f"{len(blaming)} of {len(waiting)} waiting ranks wait for it, directly or through others")
    sources = sorted({c.source for c in s.claims if c.strength != "weak" and c.kind not in ("waits_elsewhere",)})
    if len(sources) > 1:
        reasons.append(f"{len(sources)} kinds of evidence agree: {', '.join(sources)}")
    if case.liveness.state == "stuck" and waiting:
        reasons.append(case.liveness.why)
    return reasons
