"""Rules over what ranks did: another operation, size or dtype at one place, or another path than their peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mycroft.analysis.case import (
    Case,
    Explained,
    count_words,
    main_meeting,
    op_words,
    place_claims,
    sink_suspicion,
)
from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.mismatch import Mismatch
from mycroft.analysis.sequence import (
    Divergence,
    find_divergences,
    repeats_itself,
    role_peers,
    usually_follows,
)
from mycroft.analysis.stacks import odd_ones
from mycroft.analysis.waitgraph import Meeting, Sink, neighbours
from mycroft.analysis.walk import Node


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
    if not explained and left and first.done and not complained and first.even:
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
            claims=(*claims, *place_claims(case, first.odd), *case.signs_of(first.odd)),
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
        if row["in_sizes"] is None and row["out_sizes"] is None:
            shape = f"{row['bytes']} bytes" if row["bytes"] is not None else "unknown size"
        texts[rank] = f"rank {rank} issued {row['op_name']} of {shape} {row['dtype'] or ''}".rstrip()
    return texts


def alone(case: Case, left: set[int]) -> Explained:
    """It waits in an operation that nobody else entered, and the others wait for it in one that it did not enter.

    Then it is ahead of them or on another path: what it waits for is its own doing, so its wait accuses nobody.
    """
    meetings = {n: m for n, m in case.graph.meetings.items() if n.kind == "op" and not m.unknown}
    awaited = {r for m in meetings.values() for r in m.absent if m.here and set(m.here) - {r}}
    found: dict[tuple[int, ...], Node] = {}
    for node, meeting in sorted(meetings.items()):
        present = {*meeting.here, *meeting.held_up, *meeting.done}
        few = len(present) < len(meeting.absent) and len(present) <= max(1, len(meeting.absent) // 3)
        elsewhere = {r for m in meetings.values() if m is not meeting and set(m.here) - present for r in m.absent}
        if few and present <= awaited and present <= elsewhere:
            found.setdefault(tuple(sorted(present)), node)
    # A single one: of several lone ranks in several places nobody can be told.
    if len(found) != 1:
        return [], set()
    ranks, node = next(iter(found.items()))
    explained = {i for i in left if case.graph.sinks[i].kind == "cycle" or _innocent(case, case.graph.sinks[i], ranks)}
    if not explained:
        return [], set()
    meeting = case.graph.meetings[node]
    text = f"{count_words(ranks)} {'waits' if len(ranks) == 1 else 'wait'} alone in {op_words(case, meeting)}"
    item = sink_suspicion(case, min(explained), "alone", text, node, ranks)
    extra: list[Claim] = []
    divergences = [d for d in find_divergences(case.facts, case.matched, ranks) if d.rank in ranks]
    extra += [_divergence_claim(case, d) for d in divergences[:2]]
    if _swapped(case, list(meetings.values()), ranks):
        words = "two groups that are entered one after the other, by this rank in the opposite order"
        extra.append(Claim("dumps", "crossed_groups", ranks, "strong", words))
    return [
        replace(
            item,
            claims=(item.claims[0], *extra, *item.claims[1:]),
            sinks=tuple(sorted(explained)),
            missing=meeting.absent,
            waiting=tuple(r for r in case.graph.waiting if r not in ranks),
        )
    ], explained


def _innocent(case: Case, sink: Sink, ranks: tuple[int, ...]) -> bool:
    """Say whether a rank that stands still shows no reason of its own."""
    if sink.kind == "waits" or set(sink.ranks) & set(ranks):
        return True
    return sink.kind == "absent" and all(
        not case.signs_of([r]) and ((p := case.places.get(r)) is None or p.waits) for r in sink.ranks
    )


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
    result = sink_suspicion(case, index, kind, text, shown, ranks)
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
