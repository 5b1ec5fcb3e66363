"""One case: everything the rules look at, and the words and references that all of them use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mycroft.analysis.absence import Life
from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.config import Thresholds
from mycroft.analysis.facts import Facts
from mycroft.analysis.liveness import Liveness
from mycroft.analysis.machine import Machine
from mycroft.analysis.matching import Matched
from mycroft.analysis.mismatch import Mismatch
from mycroft.analysis.stacks import WORDS, Place
from mycroft.analysis.waitgraph import Meeting, Sink, WaitGraph
from mycroft.analysis.walk import Node


@dataclass(frozen=True)
class Case:
    """Everything the rules look at."""

    facts: Facts
    matched: Matched
    places: Mapping[int, Place]
    graph: WaitGraph
    lives: Mapping[int, Life]
    signs: tuple[Claim, ...]
    mismatches: tuple[Mismatch, ...]
    liveness: Liveness
    limits: Thresholds
    machine: Machine
    since: int | None = None
    """When the trouble began, ns UTC, as far as any source says."""

    def signs_of(self, ranks: Sequence[int]) -> tuple[Claim, ...]:
        """Return the signs of life that are about any of these ranks."""
        wanted = set(ranks)
        return tuple(c for c in self.signs if wanted & set(c.ranks))

    def life_signs(self, ranks: Sequence[int]) -> tuple[Claim, ...]:
        """Return the signs of life of ranks, for rules of other modules."""
        return self.signs_of(ranks)

    def place_claims(self, ranks: Sequence[int]) -> tuple[Claim, ...]:
        """Return where the main threads of ranks are."""
        return tuple(place_claims(self, ranks))

    def is_victim(self, rank: int) -> bool:
        """Say whether the rank itself reports that others stopped, and nothing accuses it."""
        life = self.lives.get(rank)
        if life is None or (life.victim_error is None and life.size_complaint is None):
            return False
        return not any(c.kind in ("killed", "exception", "out_of_memory") for c in self.signs_of([rank]))


Rule = Callable[[Case, set[int]], "Explained"]
Explained = tuple[list[Suspicion], set[int]]
"""Suspicions, and the indices of the sinks that they explain."""


def meeting_ref(case: Case, node: Node, text: str) -> Ref:
    """Return where an operation of the graph can be opened."""
    meeting = case.graph.meetings[node]
    key = (("comm_id", meeting.comm), ("op_seq", meeting.seq))
    shown = next((o for r in meeting.here for o in case.matched.opens.get(r, ()) if o.comm == meeting.comm), None)
    return Ref(text, shown.file if shown else None, shown.line if shown else None, "coll_ops", key)


def op_words(case: Case, meeting: Meeting) -> str:
    """Return an operation in words: `all_reduce 1843 of default_pg`."""
    return f"{meeting.kind} {meeting.seq} of {case.facts.groups[meeting.comm].title}"


def count_words(ranks: Sequence[int]) -> str:
    """Return ranks in words, shortened: `rank 5`, `ranks 1-4, 7`."""
    ordered = sorted(set(ranks))
    spans: list[str] = []
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        spans.append(str(ordered[at]) if end == at else f"{ordered[at]}{'-' if end - at > 1 else ', '}{ordered[end]}")
        at = end + 1
    shown = ", ".join(spans[:8]) + (f" and {len(spans) - 8} more spans" if len(spans) > 8 else "")
    return f"rank {shown}" if len(ordered) == 1 else f"ranks {shown}"


def main_meeting(case: Case, sink: Sink) -> Node | None:
    """Return the operation to show for a sink: the first collective that its ranks miss, else the first of any kind."""

    def weight(node: Node) -> tuple[bool, bool, int, str, int]:
        meeting = case.graph.meetings[node]
        missing = set(meeting.absent) | set(meeting.unknown)
        missed = bool(missing & set(sink.ranks)) or sink.kind not in ("absent", "no_dump")
        return (not missed, node.kind != "op", meeting.first_enq or 0, case.facts.groups[meeting.comm].key, meeting.seq)

    return min(sink.meetings, key=weight, default=None)


def place_claims(case: Case, ranks: Sequence[int]) -> list[Claim]:
    """Return where the main threads of ranks are, as claims; ranks without a stack have none."""
    claims: list[Claim] = []
    kinds = {
        "dataloader": "in_dataloader",
        "checkpoint": "in_checkpoint",
        "evaluation": "in_evaluation",
        "exception": "in_exception",
    }
    for rank in ranks:
        place = case.places.get(rank)
        if place is None:
            continue
        kind = "waits_elsewhere" if place.waits else kinds.get(place.kind, "in_code")
        words = f"the main thread of rank {rank} is {WORDS[place.kind]}: {place.frame}"
        if place.helper:
            words += f"; its helper thread is at {place.helper}"
        ref = Ref(words, place.file, place.line, "stacks", (("rank", rank),), "stacks")
        claims.append(Claim("stacks", kind, (rank,), "strong", words, (ref,), detail=place.frame))
    return claims


def sink_suspicion(
    case: Case, index: int, kind: str, text: str, node: Node | None, ranks: tuple[int, ...]
) -> Suspicion:
    """Make the suspicion of one sink with all claims about its ranks."""
    sink = case.graph.sinks[index]
    refs = (meeting_ref(case, node, text),) if node is not None else ()
    meeting = case.graph.meetings[node] if node is not None else None
    claim = Claim("dumps", kind, ranks, "strong", text, refs, meeting.first_enq if meeting else None)
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=(claim, *place_claims(case, ranks), *case.signs_of(ranks)),
        comm=meeting.comm if meeting else None,
        seq=meeting.seq if meeting else None,
        op=meeting.kind if meeting else "",
        missing=tuple(sorted(set(meeting.absent) | set(meeting.unknown))) if meeting else (),
        waiting=sink.blamed_by,
        sinks=(index,),
        since=meeting.first_enq if meeting else None,
    )
