"""Rules over who is not there: died, silent, finished, stuck on the CPU, or with a device that does not get there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from mycroft.analysis.claims import Claim, Suspicion
from mycroft.analysis.liveness import step_period_ns
from mycroft.analysis.machine import some
from mycroft.analysis.sequence import first_missing, role_peers
from mycroft.analysis.stacks import odd_ones
from mycroft.analysis.waitgraph import pipeline_of, without_pipeline
from mycroft.analysis.walk import Node


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
        found.append(sink_suspicion(case, index, kind, text, node, ranks))
    return found, set(indices)


def ended(case: Case, left: set[int]) -> Explained:
    """A rank that died or gave up by itself: others wait for it, or failed because of it."""
    accused = {c.ranks[0] for c in case.signs if c.kind in ("killed", "out_of_memory", "exception")}
    accused = accused or {c.ranks[0] for c in case.signs if c.kind == "exited"}
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
        found = sink_suspicion(case, sink, "absent", f"{count_words(first)} did not enter{where}", node, tuple(first))
        return [replace(found, sinks=(sink, *sorted(explained - {sink})))], explained
    claims = (*case.signs_of(first), *place_claims(case, first))
    since = min((c.since for c in claims if c.since is not None), default=None)
    waiting = tuple(r for r in case.facts.expected if r not in first)
    return [_in_last_common(case, Suspicion("", tuple(first), claims, waiting=waiting, since=since))], explained


def _first_to_end(case: Case, ranks: set[int]) -> list[int]:
    """Of several that ended: all that were killed; else those whose error came first, within the same second."""
    killed = {r for r in ranks if any(c.kind in ("killed", "out_of_memory") for c in case.signs_of([r]))}
    pool = sorted(killed or ranks)
    times = {r: min((c.since for c in case.signs_of([r]) if c.since is not None), default=None) for r in pool}
    known = [t for t in times.values() if t is not None]
    if len(pool) > 1 and not known and all(c.kind == "exited" for r in pool for c in case.signs_of([r])):
        return _first_told(case, pool)
    if len(pool) < 2 or len(known) < len(pool):
        return pool
    return [r for r in pool if (times[r] or 0) - min(known) < 100_000_000]


def _first_told(case: Case, ranks: list[int]) -> list[int]:
    """Of processes that ended, of which a launcher says no more, those that it told first, in one file."""
    told = {r: (ref.file, ref.line) for r in ranks for c in case.signs_of([r])[:1] for ref in c.refs[:1]}
    lines = [line for _file, line in told.values() if line is not None]
    if len({file for file, _line in told.values()}) != 1 or len(lines) < len(ranks):
        return ranks
    return [r for r in ranks if told[r][1] == min(lines)]


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
    """It left no dump and stopped without a word, and those who stand still only report that others stopped."""
    quiet = {c.ranks[0] for c in case.signs if c.kind in ("silent", "stopped")}
    gone = tuple(r for r in case.facts.without_dump() if r in quiet and not case.is_victim(r))
    sinks = [case.graph.sinks[i] for i in left]
    echoes = {i for i in left if all(case.is_victim(r) for r in case.graph.sinks[i].ranks)}
    if not gone or any(set(gone) & set(s.ranks) for s in sinks) or len(echoes) < len(left):
        return [], set()
    claims = [*case.signs_of(gone)]
    text = f"{count_words(gone)} left no dump, {len(case.facts.dumps)} other ranks did"
    claims.insert(0, Claim("dumps", "no_dump", gone, "weak", text))
    since = min((c.since for c in claims if c.since is not None), default=None)
    waiting = tuple(r for r in case.facts.expected if r not in gone)
    item = Suspicion("", gone, tuple(claims), waiting=waiting, since=since, sinks=tuple(sorted(echoes)))
    return [_in_last_common(case, item)], echoes


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
        found = sink_suspicion(case, index, "alone", text, node, lone)
        return [replace(found, waiting=(), missing=())], explained
    text = f"{count_words(gone)} finished and did not enter an operation that others wait in"
    return [sink_suspicion(case, index, "absent", text, node, gone)], explained


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
    if all(case.is_victim(blamed[i]) for i in suspects):
        doubts.append(("medium", "it reports itself that others stopped, as every rank does that stands still"))
    if dropped := [blamed[i] for i in indices if i not in suspects]:
        passed.append(("absent", tuple(sorted(dropped)), "they report themselves that others stopped"))
    one_of = False
    suspects = _without_the_merely_lost(case, suspects)
    if not suspects:
        return [], explained
    hidden = _hidden(case, [blamed[i] for i in suspects])
    if hidden:
        return _behind_the_lost(case, {i: blamed[i] for i in suspects}, hidden), explained
    if _too_many(case, [blamed[i] for i in suspects]):
        return [], explained
    if len(suspects) > 1:
        suspects, one_of = _narrow(case, suspects, blamed, passed, doubts)
    uncollected = _uncollected(case, [blamed[i] for i in suspects])
    if uncollected and 2 * len(suspects) > len(case.facts.expected):
        # The few that are here wait for any of the others: that is no lead.
        return [], explained
    if uncollected:
        doubts.append(uncollected)
        one_of = True
    found: list[Suspicion] = []
    for index in suspects:
        sink = sinks[index]
        node = main_meeting(case, sink)
        kind = sink.kind
        where = op_words(case, case.graph.meetings[node]) if node is not None else "an operation that others wait in"
        lacks = "left a dump that is cut short" if sink.ranks[0] in case.facts.dumps else "left no dump"
        verb = "did not enter" if kind == "absent" else f"{lacks}, and others wait for it in"
        stages = _behind_it(case, sink.ranks[0], node)
        item = sink_suspicion(case, index, kind, f"rank {sink.ranks[0]} {verb} {where}", node, stages)
        if len(stages) > 1:
            why = "send and receive are not recorded here: any stage of the same pipeline may be where it began"
            item = replace(item, one_of=True, doubts=(("medium", why),))
        if kind == "no_dump" and not uncollected and _monitor_would_dump(case, blamed.values()):
            text = "the recorder's own thread writes a dump even when the program is stuck, and all others did"
            item = replace(item, claims=(*item.claims, Claim("dumps", "dumps_of_all_others", sink.ranks, "weak", text)))
        found.append(replace(item, doubts=(*item.doubts, *doubts), passed_over=tuple(passed)))
    if one_of:
        return [_as_set(found)], explained
    return found, explained


def _without_the_merely_lost(case: Case, suspects: list[int]) -> list[int]:
    """Leave out ranks that only lack a dump, where everybody who waits for them waits for a rank with a reason too.

    A dump is lost more often than two faults come at once. `confidence` says that they may be guilty as well.
    """
    sinks = case.graph.sinks
    solid = [
        i
        for i, sink in enumerate(sinks)
        if sink.kind == "device"
        or (sink.kind == "absent" and (has_reason(case, sink.ranks[0]) or not blind_to_pairs(case, sink.ranks)))
    ]
    held = set(case.graph.blaming(solid))
    return [
        i
        for i in suspects
        if sinks[i].kind != "no_dump" or has_reason(case, sinks[i].ranks[0]) or not set(sinks[i].blamed_by) <= held
    ]


def _hidden(case: Case, ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks without a dump that all of `ranks` may wait for unseen, or of which they report that they left.

    A rank that stands still on a recorder that keeps no send or receive may be in one, with a rank that nobody's dump
    names. Not where something shows why it stands still, nor where nothing is sent from stage to stage.
    """
    victims = all(case.is_victim(r) for r in ranks)
    blind = all(blind_to_pairs(case, [r]) and not has_reason(case, r) for r in ranks)
    if not victims and (not blind or without_pipeline(case.facts)):
        return ()
    lost = [r for r in case.facts.lost() if r not in ranks and not case.is_victim(r)]
    lost = [r for r in lost if (place := case.places.get(r)) is None or not place.waits]
    pipelines = [pipeline_of(case.facts, r) for r in ranks]
    if not victims and all(pipelines):
        lost = [r for r in lost if any(r in p for p in pipelines)]
    return tuple(lost)


def _behind_the_lost(case: Case, suspects: Mapping[int, int], hidden: tuple[int, ...]) -> list[Suspicion]:
    """Name the ranks without a dump that show a reason; else them and those that may wait for them, as candidates."""
    echoes = tuple(sorted(set(suspects.values())))
    gone = tuple(r for r in hidden if has_reason(case, r))
    victims = all(case.is_victim(r) for r in echoes)
    ranks = gone or (hidden if victims else tuple(sorted({*hidden, *echoes})))
    if not gone and len(ranks) > max(3, len(case.facts.expected) // 4):
        return []
    index = min(suspects)
    node = main_meeting(case, case.graph.sinks[index])
    where = op_words(case, case.graph.meetings[node]) if node is not None else "an operation that others wait in"
    shown = gone or hidden
    text = f"{count_words(shown)} left no whole dump; {count_words(echoes)} did not enter {where} and "
    text += "report that others stopped" if victims else "may wait in a send or receive, which this recorder drops"
    item = sink_suspicion(case, index, "no_dump", text, node, ranks)
    passed = ("absent", echoes, "it stands still without a reason of its own, and one that is gone explains it")
    doubt = ("medium", "send and receive are not recorded here: who waits for the ranks without a dump is not shown")
    return [
        replace(
            item,
            one_of=len(ranks) > 1 and not gone,
            sinks=tuple(sorted(suspects)),
            waiting=tuple(sorted({*case.graph.waiting, *echoes} - set(ranks))),
            passed_over=() if set(echoes) & set(ranks) else (passed,),
            doubts=() if gone and victims else (doubt,),
        )
    ]


def _behind_it(case: Case, rank: int, node: Node | None) -> tuple[int, ...]:
    """Return the ranks that a rank may wait for unseen, itself first in line: the idle stages of its pipeline.

    Not where ranks of its own stage have entered the operation that it misses: their input came, so it is on its own.
    """
    if node is None or has_reason(case, rank) or not blind_to_pairs(case, [rank]):
        return (rank,)
    if case.facts.groups[node.key[0]].kind in ("tp", "cp"):
        return (rank,)
    idle = [r for r in pipeline_of(case.facts, rank) if r not in case.graph.waiting and not case.is_victim(r)]
    behind = first_missing(case.facts, case.matched, [rank, *idle])
    # A stage that has come as far as its twins is not where it began.
    return tuple(sorted({rank, *(r for r in idle if r in behind or rank not in behind)}))


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
    explained = [i for i in suspects if has_reason(case, blamed[i])]
    if explained and len(explained) < len(suspects):
        others = tuple(sorted(blamed[i] for i in suspects if i not in explained))
        passed.append(("absent", others, "nothing says what they do, and another rank shows a reason"))
        return explained, False
    if explained or not blind_to_pairs(case, [blamed[i] for i in suspects]):
        return suspects, False
    due = first_missing(case.facts, case.matched, [blamed[i] for i in suspects])
    known = {i: due[blamed[i]][0] for i in suspects if blamed[i] in due}
    if known:
        # Stages of a pipeline work on different parts at one time: what is due a moment later need not be an echo.
        margin = case.limits.due_apart_steps * (step_period_ns(case.facts, case.matched) or 0)
        first = min(known.values())
        # Nothing shows how far a rank without a dump came.
        undated = [i for i in suspects if i not in known and blamed[i] in case.facts.lost()]
        kept = sorted([*undated, *(i for i in known if known[i] <= first + margin)])
        others = tuple(sorted(blamed[i] for i in suspects if i not in kept))
        if others:
            passed.append(("absent", others, "what they miss was due later: they may wait in a send or receive"))
        what = "those that were due first are" if len(kept) > 1 else "the rank that was due first is"
        doubts.append(("medium", f"send and receive are not recorded here; {what} named"))
        return kept, len(kept) > 1
    doubts.append(("low", "send and receive are not recorded here, and nothing orders the ranks that stand still"))
    return suspects, True


def _uncollected(case: Case, ranks: Sequence[int]) -> tuple[str, str] | None:
    """Return the doubt that the missing dumps of several ranks were not collected; None: something else tells of them.

    All of one host, or more of them than processes die at once, say the least.
    """
    if len(ranks) < 2 or any(r in case.facts.dumps or has_reason(case, r) for r in ranks):
        return None
    hosts = {info.host for r in ranks if (info := case.facts.ranks.get(r)) is not None and info.host is not None}
    theirs = {r for host in hosts for r in case.machine.ranks_on(host)}
    if hosts and theirs == set(ranks):
        return ("low", f"no rank of {some(sorted(hosts))} left a dump: those of a host are often just not collected")
    if len(ranks) > max(2, len(case.facts.expected) // 8):
        return ("low", f"{count_words(ranks)} left no dump: so many are more likely not collected than gone at once")
    return ("medium", f"{count_words(ranks)} left no dump, which may not have been collected")


def _too_many(case: Case, ranks: Sequence[int]) -> bool:
    """Say whether so many ranks stand still without a visible reason that naming them all would say nothing."""
    unexplained = [r for r in ranks if not has_reason(case, r)]
    return len(unexplained) > max(3, len(case.facts.expected) // 4) and blind_to_pairs(case, ranks)


def has_reason(case: Case, rank: int) -> bool:
    """Say whether anything shows why the rank stands still: a stack outside of waits, or a sign of life."""
    place = case.places.get(rank)
    if place is not None:
        return not place.waits
    return bool(case.signs_of([rank]))


def _monitor_would_dump(case: Case, ranks: Iterable[int]) -> bool:
    """Say whether only these ranks lack a dump, on a recorder that dumps from a thread of its own."""
    lost = set(case.facts.lost())
    others = [d for r, d in case.facts.dumps.items() if r not in lost]
    return len(others) > 2 and all(d.has_events for d in others) and lost <= set(ranks)


def blind_to_pairs(case: Case, ranks: Sequence[int]) -> bool:
    """Say whether the recorder of any of these ranks keeps no send or receive."""
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
        item = sink_suspicion(case, index, "stuck_in", text, node, sink.ranks)
        odd = odd_ones(case.places, sink.ranks, role_peers(case.facts))
        if odd and len(odd) < len(sink.ranks):
            item = replace(item, ranks=odd)
        reason = "nothing in the dumps tells the members apart"
        found.append(replace(item, one_of=len(item.ranks) > 1, doubts=(("low", reason),)))
    return found, set(indices)


def by_stacks(case: Case, left: set[int]) -> Explained:
    """There are stacks and nothing else: the few that are elsewhere, while the others wait for somebody."""
    facts, where = case.facts, case.places
    told = case.machine.of("watchdog_timeout", "pg_status", "dump_signal", "ras_comm", "desync_report")
    if facts.dumps or told or not facts.steps.is_empty() or any(life.victim_error for life in case.lives.values()):
        return [], set()
    waiting = tuple(sorted(r for r, place in where.items() if place.waits))
    late = tuple(sorted(set(where) - set(waiting)))
    if not waiting or not late or (len(late) > 1 and 2 * len(late) >= len(waiting)):
        return [], set()
    text = f"{count_words(waiting)} {'wait' if len(waiting) > 1 else 'waits'} for others, {count_words(late)} "
    text += "do not" if len(late) > 1 else "does not"
    claim = Claim("stacks", "absent", late, "strong", text, tuple(r for c in place_claims(case, late) for r in c.refs))
    doubt = ("low", "told from the stacks of one moment: ranks at work look the same")
    return [Suspicion("", late, (claim, *place_claims(case, late)), waiting=waiting, doubts=(doubt,))], set()


def unseen(case: Case, left: set[int]) -> Explained:
    """Somebody that no source names is missing: one of the ranks without a dump that are in no sister group."""
    found: list[Suspicion] = []
    indices = {i for i in left if case.graph.sinks[i].kind in ("unseen", "waits")}
    for index in sorted(indices):
        sink = case.graph.sinks[index]
        node = main_meeting(case, sink)
        if sink.kind != "unseen" or not sink.ranks or node is None:
            continue
        text = f"a member of {case.facts.groups[node.key[0]].title} is missing from "
        text += f"{op_words(case, case.graph.meetings[node])}; {count_words(sink.ranks)} left no dump"
        item = sink_suspicion(case, index, "no_dump", text, node, sink.ranks)
        found.append(replace(item, one_of=len(sink.ranks) > 1))
    return found, indices
