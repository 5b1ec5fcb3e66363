"""Who is to blame: the rules that turn the graph, mismatches, sequences and signs of life into suspicions.

`RULES` is read from the top. Each rule takes the case and the sinks of the graph that no rule before it has explained,
and returns suspicions together with the sinks they explain. One rule, one reason, one test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mycroft.analysis import machine_rules
from mycroft.analysis.absence import Life
from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.config import Thresholds
from mycroft.analysis.facts import Facts
from mycroft.analysis.liveness import Liveness
from mycroft.analysis.machine import Machine
from mycroft.analysis.matching import Matched
from mycroft.analysis.mismatch import Mismatch
from mycroft.analysis.sequence import (
    Divergence,
    find_divergences,
    first_missing,
    repeats_itself,
    role_peers,
    usually_follows,
)
from mycroft.analysis.slowness import slow_suspicions
from mycroft.analysis.stacks import WORDS, Place, odd_ones
from mycroft.analysis.waitgraph import Meeting, Node, Sink, WaitGraph, neighbours


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
        return tuple(_place_claims(self, ranks))

    def is_victim(self, rank: int) -> bool:
        """Say whether the rank itself reports that others stopped, and nothing accuses it."""
        life = self.lives.get(rank)
        if life is None or (life.victim_error is None and life.size_complaint is None):
            return False
        return not any(c.kind in ("killed", "exception", "out_of_memory") for c in self.signs_of([rank]))


Rule = Callable[[Case, set[int]], "Explained"]
Explained = tuple[list[Suspicion], set[int]]
"""Suspicions, and the indices of the sinks that they explain."""


def blame(case: Case) -> list[Suspicion]:
    """Apply the rules until every sink is explained; equal faults are put together.

    Rules over slowness are asked only when nothing stands still. A dump that may be of a running job, on a recorder
    that sees no end of an operation, is read as slow where one rank is late again and again.
    """
    if case.graph.waiting and case.liveness.state == "in_flight":
        return _apply(case, SLOW_RULES)
    found = _without_echoes(case, _apply(case, RULES))
    if (
        case.graph.waiting
        and case.liveness.state == "unknown"
        and any(not d.has_events for d in case.facts.dumps.values())
    ):
        doubt = ("medium", case.liveness.why)
        slow = [replace(s, doubts=(*s.doubts, doubt)) for s in _apply(case, SLOW_RULES)]
        return slow or found
    return found or ([] if case.graph.waiting else _apply(case, SLOW_RULES))


def _without_echoes(case: Case, suspicions: list[Suspicion]) -> list[Suspicion]:
    """Leave out ranks that only report that others stopped, when somebody else is accused."""
    solid = [s for s in suspicions if not (s.ranks and all(case.is_victim(r) for r in s.ranks) and s.rule == "absent")]
    return solid or suspicions


def _apply(case: Case, rules: Sequence[tuple[str, Rule]]) -> list[Suspicion]:
    left = set(range(len(case.graph.sinks)))
    suspicions: list[Suspicion] = []
    for name, rule in rules:
        found, explained = rule(case, left)
        named = {r for s in suspicions for r in s.ranks}
        fresh = [s for s in found if (not set(s.ranks) <= named if s.ranks else not suspicions)]
        suspicions += [machine_rules.enrich(case, replace(s, rule=name)) for s in fresh]
        left -= explained
    return suspicions


# --- claims from the dumps ------------------------------------------------------------------------------------------


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


def _place_claims(case: Case, ranks: Sequence[int]) -> list[Claim]:
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


def _base(case: Case, index: int, kind: str, text: str, node: Node | None, ranks: tuple[int, ...]) -> Suspicion:
    """Make the suspicion of one sink with all claims about its ranks."""
    sink = case.graph.sinks[index]
    refs = (meeting_ref(case, node, text),) if node is not None else ()
    meeting = case.graph.meetings[node] if node is not None else None
    claim = Claim("dumps", kind, ranks, "strong", text, refs, meeting.first_enq if meeting else None)
    return Suspicion(
        rule="",
        ranks=ranks,
        claims=(claim, *_place_claims(case, ranks), *case.signs_of(ranks)),
        comm=meeting.comm if meeting else None,
        seq=meeting.seq if meeting else None,
        op=meeting.kind if meeting else "",
        missing=tuple(sorted(set(meeting.absent) | set(meeting.unknown))) if meeting else (),
        waiting=sink.blamed_by,
        sinks=(index,),
        since=meeting.first_enq if meeting else None,
    )


# --- the rules ------------------------------------------------------------------------------------------------------


def mismatched(case: Case, left: set[int]) -> Explained:
    """Same place, other operation, size or dtype: first of all, for the first process to die of it can be a victim."""
    hurt = bool(case.graph.waiting) or any(life.victim_error or life.size_complaint for life in case.lives.values())
    relevant = [m for m in case.mismatches if hurt and not (m.done and m.aspect != "type" and not _failed(case, m))]
    if not relevant:
        return [], set()
    # What comes after the first one, in whatever group, is seen through shifted sequence numbers.
    first = relevant[0]
    same = [m for m in relevant if m.odd == first.odd and m.decided != "tie"] or [first]
    group = case.facts.groups[first.comm]
    members = set(group.members)
    complained = any((life := case.lives.get(r)) is not None and life.size_complaint is not None for r in members)
    explained: set[int] = set()
    for index in left:
        sink = case.graph.sinks[index]
        at_it = any(n.kind == "op" and n.key == (first.comm, first.seq) for n in sink.meetings + sink.nodes)
        if at_it or members & set(sink.ranks) or set(first.odd) & set(sink.ranks):
            explained.add(index)
    if not explained and left and first.done and not complained:
        return [], set()
    # Whoever reports that others stopped is an echo of it.
    explained |= {i for i in left if all(case.is_victim(r) for r in case.graph.sinks[i].ranks)}
    rows = case.facts.rows_of(first.comm, first.seq)
    texts = _mismatch_texts(first, rows)
    kind = {"type": "odd_type", "size": "odd_size", "dtype": "odd_dtype"}[first.aspect]
    key = (("comm_id", first.comm), ("op_seq", first.seq))
    refs: list[Ref] = []
    for rank in (*first.odd[:3], *first.even[:1]):
        row = next((r for r in rows if r["rank"] == rank), None)
        if row is not None:
            refs.append(Ref(texts[rank], row["file_id"], row["line"], "coll_ops", (("rank", rank), *key)))
    words = f"{count_words(first.odd)} {'differ' if len(first.odd) > 1 else 'differs'} in {first.aspect} at "
    words += f"{case.facts.groups[first.comm].title} {first.seq}"
    claims = [Claim("dumps", kind, first.odd, "strong", words, tuple(refs), first.enq, detail=first.shift)]
    for other in same[1:]:
        claims.append(Claim("dumps", kind, other.odd, "weak", f"and again at {other.seq}", (), other.enq))
    doubts: list[tuple[str, str]] = []
    if first.decided == "tie":
        doubts.append(("medium", "the members disagree in equal numbers, and nothing says which of them is as usual"))
    elif first.decided in ("sisters", "history"):
        how = "sister groups at the same place" if first.decided == "sisters" else "what this group did before"
        doubts.append(("high", f"two sides of equal size: told apart by {how}"))
    lost = [r for r in group.members if r not in case.facts.dumps]
    if lost and len(first.even) - len(first.odd) <= len(lost) and first.decided == "majority" and not first.backed:
        doubts.append(("medium", f"{count_words(lost)} of that group left no dump and could turn the majority"))
    op = next((r["op_name"] for r in rows if r["rank"] in first.even), "") or ""
    return [
        Suspicion(
            rule="",
            ranks=first.odd,
            claims=(*claims, *_place_claims(case, first.odd), *case.signs_of(first.odd)),
            one_of=first.decided == "tie",
            comm=first.comm,
            seq=first.seq,
            op=op,
            waiting=tuple(r for r in case.graph.waiting if r not in first.odd),
            sinks=tuple(sorted(explained)),
            since=first.enq,
            doubts=tuple(doubts),
        )
    ], explained


def _failed(case: Case, mismatch: Mismatch) -> bool:
    """Say whether a mismatched operation that reads as done can have failed: event-less recorders do not tell."""
    return any(not d.has_events for r, d in case.facts.dumps.items() if r in mismatch.odd + mismatch.even)


def _mismatch_texts(mismatch: Mismatch, rows: Sequence[Mapping[str, object]]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for row in rows:
        rank = int(str(row["rank"]))
        shape = (
            f"{row['in_sizes']}" if row["in_sizes"] == row["out_sizes"] else f"{row['in_sizes']} -> {row['out_sizes']}"
        )
        texts[rank] = f"rank {rank} issued {row['op_name']} of {shape} {row['dtype'] or ''}".rstrip()
    return texts


def device_behind(case: Case, left: set[int]) -> Explained:
    """It issued the operation, its peers finished or started it, its device did not."""
    found: list[Suspicion] = []
    indices = [i for i in sorted(left) if case.graph.sinks[i].kind == "device"]
    for index in indices:
        sink = case.graph.sinks[index]
        node = main_meeting(case, sink)
        if node is None:
            continue
        meeting = case.graph.meetings[node]
        ranks = sink.ranks
        if meeting.done:
            kind, text = "device_behind", f"{count_words(meeting.done)} finished {op_words(case, meeting)}, "
            text += f"{count_words(ranks)} issued it and did not"
        else:
            kind = "device_not_started"
            text = f"{count_words(meeting.started)} started {op_words(case, meeting)}, "
            text += f"{count_words(ranks)} issued it and did not start it"
        found.append(_base(case, index, kind, text, node, ranks))
    return found, set(indices)


def crossed(case: Case, left: set[int]) -> Explained:
    """A circle of waits has no root: who waits alone in it, left the common path, or is not where its twins are."""
    found: list[Suspicion] = []
    indices = [i for i in sorted(left) if case.graph.sinks[i].kind == "cycle"]
    for index in indices:
        found.append(_break_cycle(case, index))
    return found, set(indices)


def _break_cycle(case: Case, index: int) -> Suspicion:
    sink = case.graph.sinks[index]
    meetings = [case.graph.meetings[n] for n in sink.nodes if n.kind == "op"]
    divergences = find_divergences(case.facts, case.matched, sink.ranks)
    strayed = _most_accused(divergences)
    alone = _lonely(case, meetings)
    odd = _at_the_edge(case, sink, odd_ones(case.places, sink.ranks, role_peers(case.facts)))
    node = main_meeting(case, sink)
    doubts: tuple[tuple[str, str], ...] = ()
    if alone and (not strayed or set(alone) == set(strayed)):
        ranks, kind = alone, "alone"
    elif strayed:
        ranks, kind = strayed, "left_path"
        if alone and set(alone) != set(strayed):
            doubts = (("medium", f"{count_words(alone)} waits alone, which speaks for another rank"),)
    elif odd:
        ranks, kind = odd, "odd_place"
        doubts = (("medium", "told from the ranks of the same role by the place in the code alone"),)
    else:
        ranks, kind = sink.ranks, "stuck_in"
        doubts = (("low", "a circle of waits in which no member stands out"),)
    chosen = [n for n in sink.nodes if n.kind in ("op", "pair") and set(ranks) & set(case.graph.meetings[n].here)]
    shown = node if node in chosen or not chosen else chosen[0]
    text = _cycle_text(case, sink, ranks, kind, chosen)
    result = _base(case, index, kind, text, shown, ranks)
    extra = [_divergence_claim(case, d) for d in divergences if d.rank in ranks][:2]
    if odd and set(odd) == set(ranks) and kind != "odd_place":
        words = f"{count_words(odd)} is not where the ranks of the same role are"
        extra.append(Claim("stacks", "odd_place", odd, "strong", words))
    if kind == "alone" and _swapped(case, meetings, ranks):
        words = "two groups that are entered one after the other, by this rank in the opposite order"
        extra.append(Claim("dumps", "crossed_groups", ranks, "strong", words))
    return replace(
        result,
        claims=(result.claims[0], *extra, *result.claims[1:]),
        one_of=kind == "stuck_in" and len(ranks) > 1,
        waiting=tuple(r for r in case.graph.waiting if r not in ranks),
        doubts=doubts,
    )


def _swapped(case: Case, meetings: Sequence[Meeting], ranks: tuple[int, ...]) -> bool:
    """Say whether the lone rank is in what its peers would do next, by their own past: two groups crosswise."""
    for mine in meetings:
        if not set(ranks) & set(mine.here) or repeats_itself(case.matched, ranks[0], mine.comm, mine.seq):
            continue
        for theirs in meetings:
            waiting = [r for r in theirs.here if r not in ranks and r in case.facts.groups[mine.comm].members]
            if theirs.comm == mine.comm or not waiting:
                continue
            if usually_follows(case.matched, waiting[0], (theirs.comm, theirs.kind), (mine.comm, mine.kind)):
                return True
    return False


def _at_the_edge(case: Case, sink: Sink, odd: tuple[int, ...]) -> tuple[int, ...]:
    """Of several odd ranks of a pipeline, return those that wait with one who is where its twins are.

    What follows the culprit on one side is odd because of it; the other side still stands as usual.
    """
    inside = set(sink.ranks) - set(odd)
    edge = tuple(r for r in odd if set(neighbours(case.facts, r)) & inside)
    return edge or odd


def _cycle_text(case: Case, sink: Sink, ranks: tuple[int, ...], kind: str, chosen: Sequence[Node]) -> str:
    if kind == "alone" and chosen:
        return f"{count_words(ranks)} waits alone in {op_words(case, case.graph.meetings[chosen[0]])}"
    if kind == "left_path":
        return f"{count_words(ranks)} left the sequence of operations that its peers follow"
    if kind == "odd_place":
        return f"{count_words(ranks)} is in a wait in which no rank of its role is"
    return f"{count_words(sink.ranks)} wait for each other in a circle"


def _divergence_claim(case: Case, d: Divergence) -> Claim:
    text = f"rank {d.rank} issued {d.found} where {count_words(d.twins)} issued {d.expected}"
    key = (("rank", d.rank), ("comm_id", d.op_comm), ("op_seq", d.seq))
    dump = case.facts.dumps.get(d.rank)
    ref = Ref(text, dump.file if dump else None, None, "coll_ops", key)
    return Claim(
        "dumps", "swapped" if d.kind == "swapped" else "left_path", (d.rank,), "strong", text, (ref,), detail=d.kind
    )


def _most_accused(divergences: Sequence[Divergence]) -> tuple[int, ...]:
    """Return the ranks that most groups of twins call strayed; a majority counts more than a rank's own history."""
    votes: Counter[int] = Counter()
    for d in divergences:
        votes[d.rank] += 2 * len(d.twins) if d.by == "majority" else 1
    if not votes:
        return ()
    best = max(votes.values())
    return tuple(sorted(r for r, n in votes.items() if n == best))


def _lonely(case: Case, meetings: Sequence[Meeting]) -> tuple[int, ...]:
    """Return who is on the lone side of the operations of a circle: present where nobody else is, absent where all are.

    Groups of two have no lone side.
    """
    votes: Counter[int] = Counter()
    for meeting in meetings:
        present = set(meeting.here) | set(meeting.held_up) | set(meeting.done)
        absent = set(meeting.absent)
        if len(present) + len(absent) < 3 or meeting.unknown:
            continue
        if absent and len(absent) < len(present):
            votes.update(absent)
        elif absent and len(present) < len(absent):
            votes.update(present)
    if not votes:
        return ()
    best = max(votes.values())
    return tuple(sorted(r for r, n in votes.items() if n == best))


def ended(case: Case, left: set[int]) -> Explained:
    """A rank that died or gave up by itself: others wait for it, or failed because of it."""
    accused = {c.ranks[0] for c in case.signs if c.kind in ("killed", "out_of_memory", "exception")}
    victims_of = {r for i in left for r in case.graph.sinks[i].ranks}
    hurt = bool(case.graph.waiting) or any(life.victim_error for life in case.lives.values()) or bool(accused)
    if not accused or not hurt:
        return [], set()
    # A rank that waits is held up by somebody else, whatever ended it later.
    accused = {r for r in accused if r not in case.graph.waiting} or accused
    matching = accused & victims_of or accused
    first = _first_to_end(case, matching)
    explained = {i for i in left if case.graph.sinks[i].kind in ("absent", "no_dump", "waits", "unseen")}
    sink = next((i for i in sorted(left) if set(first) & set(case.graph.sinks[i].ranks)), None)
    if sink is not None:
        node = main_meeting(case, case.graph.sinks[sink])
        where = (
            f" {op_words(case, case.graph.meetings[node])}" if node is not None else " an operation that others wait in"
        )
        found = _base(case, sink, "absent", f"{count_words(first)} did not enter{where}", node, tuple(first))
        return [replace(found, sinks=(sink, *sorted(explained - {sink})))], explained
    claims = (*case.signs_of(first), *_place_claims(case, first))
    since = min((c.since for c in claims if c.since is not None), default=None)
    waiting = tuple(r for r in case.facts.expected if r not in first)
    return [_in_last_common(case, Suspicion("", tuple(first), claims, waiting=waiting, since=since))], explained


def _first_to_end(case: Case, ranks: set[int]) -> list[int]:
    """Of several that ended: all that were killed; else those whose error came first, within the same second."""
    killed = {r for r in ranks if any(c.kind in ("killed", "out_of_memory") for c in case.signs_of([r]))}
    pool = sorted(killed or ranks)
    times = {r: min((c.since for c in case.signs_of([r]) if c.since is not None), default=None) for r in pool}
    known = [t for t in times.values() if t is not None]
    if len(pool) < 2 or len(known) < len(pool):
        return pool
    return [r for r in pool if (times[r] or 0) - min(known) < 100_000_000]


def _in_last_common(case: Case, suspicion: Suspicion) -> Suspicion:
    """Add the operation in which the others failed: the last one of the widest group that the ranks are in."""
    groups = [g for g in case.facts.groups.values() if set(suspicion.ranks) & set(g.members)]
    for group in sorted(groups, key=lambda g: (-len(g.members), g.key)):
        reached = [case.matched.last[group.comm, r] for r in group.members if (group.comm, r) in case.matched.last]
        if reached and max(reached) >= 0:
            rows = case.facts.rows_of(group.comm, max(reached))
            op = str(rows[0]["op_name"]) if rows else ""
            return replace(suspicion, comm=group.comm, seq=max(reached), op=op)
    return suspicion


def silent(case: Case, left: set[int]) -> Explained:
    """Nobody waits by the dumps, yet the job failed: the rank that left no dump and stopped without a word."""
    if case.graph.waiting:
        return [], set()
    quiet = {c.ranks[0] for c in case.signs if c.kind in ("silent", "stopped")}
    gone = [r for r in case.facts.without_dump() if r in quiet and not case.is_victim(r)]
    if not gone:
        return [], set()
    claims = [*case.signs_of(gone)]
    text = f"{count_words(gone)} left no dump, {len(case.facts.dumps)} other ranks did"
    claims.insert(0, Claim("dumps", "no_dump", tuple(gone), "weak", text))
    since = min((c.since for c in claims if c.since is not None), default=None)
    waiting = tuple(r for r in case.facts.expected if r not in gone)
    return [_in_last_common(case, Suspicion("", tuple(gone), tuple(claims), waiting=waiting, since=since))], set()


def finished_early(case: Case, left: set[int]) -> Explained:
    """Some finished normally while others wait for them: the smaller side did more, or less, than the rest."""
    done = {r for r, life in case.lives.items() if life.ended_well}
    explained = {i for i in left if case.graph.sinks[i].ranks and set(case.graph.sinks[i].ranks) <= done}
    if not explained:
        return [], set()
    index = min(explained)
    gone = tuple(sorted({r for i in explained for r in case.graph.sinks[i].ranks}))
    node = main_meeting(case, case.graph.sinks[index])
    waiting = tuple(r for i in explained for r in case.graph.sinks[i].blamed_by)
    if len(done) > len(set(waiting)):
        lone = tuple(sorted(set(waiting)))
        text = f"{count_words(lone)} waits in an operation that nobody else calls: the others finished"
        found = _base(case, index, "alone", text, node, lone)
        return [replace(found, waiting=(), missing=())], explained
    text = f"{count_words(gone)} finished and did not enter an operation that others wait in"
    return [_base(case, index, "absent", text, node, gone)], explained


def absent(case: Case, left: set[int]) -> Explained:
    """Others wait for it, it waits for nobody."""
    indices = [i for i in sorted(left) if case.graph.sinks[i].kind in ("absent", "no_dump")]
    if not indices:
        return [], set()
    sinks = {i: case.graph.sinks[i] for i in indices}
    blamed = {i: sinks[i].ranks[0] for i in indices}
    explained = set(indices)
    # Those who say that others stopped did not stop themselves.
    suspects = [i for i in indices if not case.is_victim(blamed[i])] or indices
    passed: list[tuple[str, tuple[int, ...], str]] = []
    doubts: list[tuple[str, str]] = []
    if dropped := [blamed[i] for i in indices if i not in suspects]:
        passed.append(("absent", tuple(sorted(dropped)), "they report themselves that others stopped"))
    one_of = False
    if len(suspects) > 1:
        suspects, one_of = _narrow(case, suspects, blamed, passed, doubts)
    found: list[Suspicion] = []
    for index in suspects:
        sink = sinks[index]
        node = main_meeting(case, sink)
        kind = sink.kind
        where = op_words(case, case.graph.meetings[node]) if node is not None else "an operation that others wait in"
        verb = "did not enter" if kind == "absent" else "left no dump, and others wait for it in"
        item = _base(case, index, kind, f"rank {sink.ranks[0]} {verb} {where}", node, sink.ranks)
        if kind == "no_dump" and _monitor_would_dump(case, blamed.values()):
            text = "the recorder's own thread writes a dump even when the program is stuck, and all others did"
            item = replace(item, claims=(*item.claims, Claim("dumps", "dumps_of_all_others", sink.ranks, "weak", text)))
        found.append(replace(item, doubts=(*item.doubts, *doubts), passed_over=tuple(passed)))
    if one_of:
        return [_as_set(found)], explained
    return found, explained


def _narrow(
    case: Case,
    suspects: list[int],
    blamed: Mapping[int, int],
    passed: list[tuple[str, tuple[int, ...], str]],
    doubts: list[tuple[str, str]],
) -> tuple[list[int], bool]:
    """Choose among several ranks that wait for nobody. Returns the sinks kept, and whether only one of them is meant.

    On recorders that keep no send/recv an idle rank may be waiting unseen. The one that shows a reason stays; else the
    one whose twins were the first to issue what it is missing; else all of them.
    """
    explained = [i for i in suspects if _has_reason(case, blamed[i])]
    if explained and len(explained) < len(suspects):
        others = tuple(sorted(blamed[i] for i in suspects if i not in explained))
        passed.append(("absent", others, "nothing says what they do, and another rank shows a reason"))
        return explained, False
    if explained or not _blind_to_pairs(case, [blamed[i] for i in suspects]):
        return suspects, False
    due = first_missing(case.facts, case.matched, [blamed[i] for i in suspects])
    known = {i: due[blamed[i]][0] for i in suspects if blamed[i] in due}
    if known:
        first = min(known.values())
        kept = [i for i in suspects if i in known and known[i] == first]
        others = tuple(sorted(blamed[i] for i in suspects if i not in kept))
        if others:
            passed.append(("absent", others, "what they miss was due later: they may wait in a send or receive"))
        doubts.append(("medium", "send and receive are not recorded here; the rank that was due first is named"))
        return kept, len(kept) > 1
    doubts.append(("low", "send and receive are not recorded here, and nothing orders the ranks that stand still"))
    return suspects, True


def _has_reason(case: Case, rank: int) -> bool:
    place = case.places.get(rank)
    if place is not None:
        return not place.waits
    return bool(case.signs_of([rank]))


def _monitor_would_dump(case: Case, ranks: Iterable[int]) -> bool:
    """Say whether only these ranks lack a dump, on a recorder that dumps from a thread of its own."""
    lost = set(case.facts.without_dump())
    others = [d for r, d in case.facts.dumps.items() if r not in lost]
    return len(others) > 2 and all(d.has_events for d in others) and lost <= set(ranks)


def _blind_to_pairs(case: Case, ranks: Sequence[int]) -> bool:
    return any((d := case.facts.dumps.get(r)) is not None and not d.has_events for r in ranks)


def _as_set(found: Sequence[Suspicion]) -> Suspicion:
    first = found[0]
    ranks = tuple(sorted({r for s in found for r in s.ranks}))
    claims = tuple(dict.fromkeys(c for s in found for c in s.claims))
    return replace(first, ranks=ranks, claims=claims, one_of=True)


def stuck_together(case: Case, left: set[int]) -> Explained:
    """Everybody is in, nothing moves, nothing differs: a device or the network, and one of the members."""
    found: list[Suspicion] = []
    indices = [i for i in sorted(left) if case.graph.sinks[i].kind == "stuck"]
    for index in indices:
        sink = case.graph.sinks[index]
        node = sink.meetings[0]
        meeting = case.graph.meetings[node]
        text = (
            f"all {len(meeting.here)} members entered {op_words(case, meeting)} with equal arguments and none finished"
        )
        item = _base(case, index, "stuck_in", text, node, sink.ranks)
        odd = odd_ones(case.places, sink.ranks, role_peers(case.facts))
        if odd and len(odd) < len(sink.ranks):
            item = replace(item, ranks=odd)
        reason = "nothing in the dumps tells the members apart"
        found.append(replace(item, one_of=len(item.ranks) > 1, doubts=(("low", reason),)))
    return found, set(indices)


def unseen(case: Case, left: set[int]) -> Explained:
    """Somebody that no source names is missing, or everybody is in a wait that the evidence does not show."""
    indices = {i for i in left if case.graph.sinks[i].kind in ("unseen", "waits")}
    return [], indices


def slow(case: Case, left: set[int]) -> Explained:
    """Nobody stands still, but a group is slow, or one rank is where lateness begins in most steps."""
    found = slow_suspicions(case.facts, case.matched, case.limits)
    return [
        replace(s, claims=(*s.claims, *_place_claims(case, s.ranks))) if s.rule == "late" else s for s in found
    ], set()


RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("mismatch", mismatched),
    ("gpu_fault", machine_rules.gpu_fault),
    ("ended", ended),
    ("transport", machine_rules.transport),
    ("start_up", machine_rules.start_up),
    ("watchdog", machine_rules.watchdog),
    ("ras", machine_rules.ras),
    ("device_behind", device_behind),
    ("cycle", crossed),
    ("finished_early", finished_early),
    ("silent", silent),
    ("absent", absent),
    ("stuck_together", stuck_together),
    ("unseen", unseen),
)
SLOW_RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("slow", slow),
    ("slow_machine", machine_rules.slow),
)
