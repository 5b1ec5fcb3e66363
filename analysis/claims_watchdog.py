"""What torch's watchdogs print, rank by rank: who waits in which operation, how far the others say they have come.

A rank that times out is a waiter. The numbers of its neighbours decide: at the same sequence number another
operation is another path through the code, another size is another tensor; a rank whose last enqueued number is lower
never came; a rank of which no line speaks may have lost its log, which is weaker. When the members of one group wait
for ranks that sit in another, and these for them, the two groups were entered in opposite order.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.machine import Machine, Row, some

if TYPE_CHECKING:
    from mycroft.analysis.facts import Facts

# Parts of unequal size are lawful here.
_UNEVEN: Final = ("all_to_all", "gather", "scatter", "send", "recv")
_PHASES: Final[Mapping[str, tuple[str, str]]] = {
    "dataloader": ("in_dataloader", "its input"),
    "checkpoint": ("in_checkpoint", "a checkpoint"),
    "evaluation": ("in_evaluation", "an evaluation"),
}
_TIMEOUT: Final = re.compile(r"Timeout\(ms\)=(\d{1,12})")
MOST_ABSENT: Final = 16
_PART: Final = re.compile(r"(?:^|[_-])(?:tp|pp|ep|cp|sp)\d*(?:$|[_-])|tensor|pipeline|expert|context", re.IGNORECASE)
# Stands for the group of lines that name none.
UNNAMED: Final = -1


@dataclass(frozen=True, slots=True)
class Where:
    """How far one rank says it has come in one group."""

    enqueued: int | None
    completed: int | None
    row: Row


@dataclass
class Log:
    """Waits and positions by group; a group is its number in the trace, or `UNNAMED`."""

    waits: dict[int, dict[int, dict[int, Row]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))
    """group -> seq -> rank -> its timeout."""
    places: dict[int, dict[int, Where]] = field(default_factory=lambda: defaultdict(dict))
    """group -> rank -> position."""
    inside: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """group -> rank -> rank inside."""
    names: dict[int, str] = field(default_factory=lambda: dict[int, str]())
    local_only: bool = False
    """Some ranks are known by their rank in the group alone (torch before 2.2)."""

    def waiting(self) -> set[int]:
        """Return every rank that timed out in any group."""
        return {r for seqs in self.waits.values() for ranks in seqs.values() for r in ranks}


def read_log(machine: Machine) -> Log:
    """Gather the lines of watchdogs. A rank is global where a line says so; else it is the rank in the group."""
    log = Log()
    for row in machine.of("watchdog_timeout", "pg_status", "dump_signal"):
        rank = row.rank if row.rank is not None else row.comm_rank
        if rank is None:
            continue
        log.local_only |= row.rank is None
        group = row.comm if row.comm is not None else UNNAMED
        if row.comm_rank is not None:
            log.inside[group].setdefault(rank, row.comm_rank)
        log.names.setdefault(group, row.group_desc or row.group or "its group")
        if row.kind == "watchdog_timeout" and row.seq is not None and row.op not in ("send", "recv"):
            log.waits[group][row.seq].setdefault(rank, row)
        if row.last_enqueued is not None:
            known = log.places[group].get(rank)
            if known is None or (known.enqueued or 0) <= row.last_enqueued:
                log.places[group][rank] = Where(row.last_enqueued, row.last_completed, row)
    _place_unnamed(log)
    return log


def _place_unnamed(log: Log) -> None:
    """Give a timeout whose line names no group to the one group that waits at that number, else to the only group."""
    unnamed = log.waits.pop(UNNAMED, None)
    if unnamed is None:
        return
    named = sorted(log.waits) or sorted(group for group in log.places if group != UNNAMED)
    for seq, rows in unnamed.items():
        for rank, row in rows.items():
            fitting = [g for g in named if any(_same_call(row, other) for other in log.waits[g].get(seq, {}).values())]
            chosen = fitting or named
            group = chosen[0] if len(chosen) == 1 else UNNAMED
            log.waits[group][seq].setdefault(rank, row)
            if group != UNNAMED and rank in log.inside[UNNAMED]:
                log.inside[group].setdefault(rank, log.inside[UNNAMED][rank])


def _same_call(one: Row, two: Row) -> bool:
    return (one.op, one.in_numel, one.out_numel) == (two.op, two.in_numel, two.out_numel)


def everybody(facts: Facts, log: Log) -> tuple[int, ...]:
    """Return every rank of the job, as far as any line says: ranks are numbered from 0 without gaps."""
    named = set(facts.expected) | log.waiting()
    named |= {r for places in log.places.values() for r in places}
    return tuple(range(max(named, default=-1) + 1))


def suspicions(machine: Machine, facts: Facts) -> list[Suspicion]:
    """Return who holds up the ranks that timed out; empty where the lines do not tell."""
    log = read_log(machine)
    if not log.waits:
        return []
    ranks = everybody(facts, log)
    for group, seq in _in_order(log):
        found = _odd_one(facts, log, group, seq, ranks)
        if found is not None:
            return [found]
    crossed = _crossed(facts, log, ranks)
    if crossed is not None:
        return [crossed]
    absent = _absent(machine, facts, log, ranks)
    return [absent] if absent is not None else []


def _in_order(log: Log) -> list[tuple[int, int]]:
    """Return the operations that ranks wait in, the one that was called first first."""

    def called(item: tuple[int, int]) -> tuple[int, int, int]:
        rows = log.waits[item[0]][item[1]].values()
        times = [row.ts - round((row.dur_ms or 0) * 1e6) for row in rows if row.ts is not None]
        return (min(times, default=0), item[1], item[0])

    return sorted(((group, seq) for group, seqs in log.waits.items() for seq in seqs), key=called)


def _title(facts: Facts, log: Log, group: int) -> str:
    known = facts.groups.get(group)
    return known.title if known is not None else log.names.get(group, "its group")


def _members(facts: Facts, log: Log, group: int, ranks: Sequence[int]) -> tuple[int, ...]:
    """Return who belongs to a group: as declared; everybody where its ranks are those of the job; else those seen."""
    known = facts.groups.get(group)
    if known is not None and known.declared and known.members:
        return tuple(sorted(known.members))
    inside = log.inside.get(group, {})
    if group == UNNAMED or all(rank == place for rank, place in inside.items()):
        return tuple(ranks)
    return tuple(sorted({*inside, *log.places.get(group, {})}))


def _shape(row: Row) -> str:
    sizes = f" of {row.in_numel}" if row.in_numel is not None else ""
    sizes += f" -> {row.out_numel}" if row.out_numel not in (None, row.in_numel) else ""
    return f"{row.name or row.op}{sizes}"


def _odd_one(facts: Facts, log: Log, group: int, seq: int, ranks: Sequence[int]) -> Suspicion | None:
    """All time out at one number: the minority with another operation, else with another size."""
    rows = log.waits[group][seq]
    if len(rows) < 2:
        return None
    types = Counter(row.name or row.op for row in rows.values())
    aspect, values = "type", {rank: row.name or row.op for rank, row in rows.items()}
    if len(types) < 2:
        op = next(iter(rows.values())).op
        if op in _UNEVEN:
            return None
        aspect = "size"
        values = {rank: f"{row.in_numel}/{row.out_numel}" for rank, row in rows.items()}
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return None
    usual, most = counts[0]
    tie = counts[1][1] == most
    odd = tuple(sorted(rank for rank, value in values.items() if tie or value != usual))
    even = sorted(rank for rank, value in values.items() if value == usual)
    title = _title(facts, log, group)
    kind = "odd_type" if aspect == "type" else "odd_size"
    shown = [*(r for r in odd[:3]), *(r for r in even[:1] if r not in odd[:3])]
    refs = tuple(rows[r].ref(f"rank {r} issued {_shape(rows[r])} at {title} {seq}", "torch_log") for r in shown)
    text = f"rank {some([str(r) for r in odd])} issued {_shape(rows[odd[0]])} at {title} {seq}"
    if not tie:
        text += f", ranks {some([str(r) for r in even], 12)} issued {_shape(rows[even[0]])}"
    claim = Claim("torch_log", kind, odd, "strong", text, refs, _since(rows), detail="")
    doubts: list[tuple[str, str]] = []
    if tie:
        doubts.append(("medium", "the members disagree in equal numbers"))
    elif len(even) - len(odd) < len(ranks) - len(rows):
        doubts.append(("medium", f"{len(ranks) - len(rows)} ranks printed nothing of it and could turn the majority"))
    if log.local_only and group != UNNAMED:
        doubts.append(("medium", "the lines give ranks inside the group only"))
    return Suspicion(
        rule="",
        ranks=odd,
        claims=(claim,),
        one_of=tie,
        comm=group if group in facts.groups else None,
        seq=seq,
        op=rows[even[0]].name,
        waiting=tuple(r for r in sorted(log.waiting()) if r not in odd),
        since=_since(rows),
        doubts=tuple(doubts),
    )


def _since(rows: Mapping[int, Row]) -> int | None:
    times = [row.ts - round((row.dur_ms or 0) * 1e6) for row in rows.values() if row.ts is not None]
    return min(times, default=None)


def _crossed(facts: Facts, log: Log, ranks: Sequence[int]) -> Suspicion | None:
    """Two groups of the same members, each waiting for ranks that wait in the other: the minority left the order."""
    stuck: dict[int, set[int]] = {}
    for group, seqs in log.waits.items():
        stuck[group] = {rank for rows in seqs.values() for rank in rows}
    for one in sorted(stuck):
        for two in sorted(stuck):
            if one >= two or UNNAMED in (one, two) or stuck[one] & stuck[two]:
                continue
            if _apart(facts, log, one, two, stuck) or _apart(facts, log, two, one, stuck):
                continue
            both = set(_members(facts, log, one, ranks)) & set(_members(facts, log, two, ranks))
            if not stuck[one] <= both or not stuck[two] <= both or not stuck[one] or not stuck[two]:
                continue
            return _crossing(facts, log, one, two, stuck)
    return None


def _apart(facts: Facts, log: Log, part: int, whole: int, stuck: Mapping[int, set[int]]) -> bool:
    """Say whether those who wait in the group of all need not belong to a group that is called after a part of it.

    Then the part may wait for one of its own, and the others for the part: nothing is crossed.
    """
    known = facts.groups.get(part)
    if (known is not None and known.declared) or _PART.search(log.names.get(part, "")) is None:
        return False
    seen = {*log.inside.get(part, {}), *log.places.get(part, {})}
    return log.names.get(whole) in ("default_pg", "0") and not stuck[whole] <= seen


def _crossing(facts: Facts, log: Log, one: int, two: int, stuck: Mapping[int, set[int]]) -> Suspicion:
    few, many = (one, two) if len(stuck[one]) < len(stuck[two]) else (two, one)
    tie = len(stuck[few]) == len(stuck[many])
    odd = tuple(sorted(stuck[few] | (stuck[many] if tie else set())))
    titles = {group: _title(facts, log, group) for group in (few, many)}
    seqs = {group: min(log.waits[group]) for group in (few, many)}
    text = (
        f"rank {some([str(r) for r in sorted(stuck[few])])} waits in {titles[few]} {seqs[few]} for the others, "
        f"which wait in {titles[many]} {seqs[many]} for it: the two groups were entered in crossed order"
    )
    rows = {**log.waits[few][seqs[few]], **log.waits[many][seqs[many]]}
    refs: list[Ref] = []
    for group in (few, many):
        for rank, row in sorted(log.waits[group][seqs[group]].items())[:2]:
            refs.append(row.ref(f"rank {rank} waits in {row.name} {seqs[group]} of {titles[group]}", "torch_log"))
    claims = (
        Claim("torch_log", "alone", odd, "strong", text, tuple(refs), _since(rows)),
        Claim("torch_log", "crossed_groups", odd, "strong", "two groups of equal members, entered in opposite order"),
    )
    missing = tuple(sorted(stuck[many] if tie else stuck[few]))
    return Suspicion(
        rule="",
        ranks=odd,
        claims=claims,
        one_of=tie,
        comm=many if many in facts.groups else None,
        seq=seqs[many],
        op=next(iter(log.waits[many][seqs[many]].values())).name,
        missing=missing,
        waiting=tuple(sorted(stuck[many] - set(odd))),
        since=_since(rows),
        doubts=(("medium", "as many wait on one side as on the other"),) if tie else (),
    )


def _absent(machine: Machine, facts: Facts, log: Log, ranks: Sequence[int]) -> Suspicion | None:
    """Ranks waited for that wait nowhere: those with a lower number never came, those without one are silent."""
    waiting = log.waiting()
    order = _in_order(log)
    for group, seq in order:
        rows = log.waits[group][seq]
        members = _members(facts, log, group, ranks)
        places = log.places.get(group, {})
        behind = sorted(r for r in members if r in places and (places[r].enqueued or 0) < seq and r not in waiting)
        silent = sorted(r for r in members if r not in places and r not in waiting)
        gone = behind or silent
        if not gone or len(gone) > max(MOST_ABSENT, 0) or len(gone) > 2 * len(waiting):
            continue
        return _absence(machine, facts, log, group, seq, tuple(gone), proven=bool(behind), rows=rows, silent=silent)
    return None


def _absence(
    machine: Machine,
    facts: Facts,
    log: Log,
    group: int,
    seq: int,
    gone: tuple[int, ...],
    *,
    proven: bool,
    rows: Mapping[int, Row],
    silent: Sequence[int],
) -> Suspicion:
    title = _title(facts, log, group)
    first = next(iter(rows.values()))
    limit = _TIMEOUT.search(first.text)
    waited = f" and gave up after {limit[1]} ms" if limit else ""
    who = some([str(r) for r in sorted(rows)], 12)
    claims: list[Claim] = []
    doubts: list[tuple[str, str]] = []
    refs: list[Ref] = []
    if proven:
        for rank in gone[:4]:
            place = log.places[group][rank]
            words = f"rank {rank} never enqueued {seq}: its last enqueued is {place.enqueued}"
            words += f", last completed {place.completed}" if place.completed is not None else ""
            refs.append(place.row.ref(words, "torch_log"))
        text = f"rank {some([str(r) for r in gone])} never enqueued {first.name or first.op} {seq} of {title}, "
    else:
        text = f"rank {some([str(r) for r in gone])} prints nothing of {first.name or first.op} {seq} of {title}, "
    text += f"where ranks {who} waited{waited}"
    refs.append(first.ref(f"rank {min(rows)} waited in {_shape(first)}, number {seq}{waited}", "torch_log"))
    claims.append(Claim("torch_log", "absent", gone, "strong", text, tuple(refs), _since(rows)))
    reasons = _phase_claims(machine, gone)
    claims += reasons
    ended = _one_that_ended(machine, gone) if not proven else None
    if ended is not None:
        claims.append(ended)
    elif not proven and not reasons:
        words = f"no line of rank {some([str(r) for r in gone])} says where it is: its log may be missing"
        doubts.append(("medium", words))
    others = [r for r in silent if r not in gone]
    if others:
        doubts.append(("medium", f"rank {some([str(r) for r in others])} prints nothing and may be missing too"))
    if log.local_only and group != UNNAMED:
        doubts.append(("medium", "the lines give ranks inside the group only"))
    signalled = sorted({row.rank for row in machine.of("dump_signal") if row.name == "local" and row.rank is not None})
    passed: list[tuple[str, tuple[int, ...], str]] = []
    if signalled:
        passed.append(("absent", tuple(signalled), "it only signalled first: the first to time out is a waiter"))
    return Suspicion(
        rule="",
        ranks=gone,
        claims=tuple(claims),
        comm=group if group in facts.groups else None,
        seq=seq,
        op=first.name,
        missing=gone,
        one_of=ended is not None and len(gone) > 1,
        waiting=tuple(sorted(log.waiting() - set(gone))),
        since=_since(rows),
        doubts=tuple(doubts),
        passed_over=tuple(passed),
    )


def _one_that_ended(machine: Machine, ranks: Sequence[int]) -> Claim | None:
    """Return what the launcher of the only host of these ranks says of one of them that ended; it ends the others."""
    hosts = {machine.hosts.get(rank) for rank in ranks}
    host = hosts.pop() if len(hosts) == 1 else None
    for row in machine.of("launcher_failure"):
        if host is not None and row.rank is None and row.host == host:
            text = f"the launcher of {host} says that one of its processes ended, and not which: {row.text[:120]}"
            ref = row.ref(text, "launcher")
            return Claim("launcher", "exited", tuple(ranks), "strong", text, (ref,), row.ts, (host,))
    return None


def _phase_claims(machine: Machine, ranks: Sequence[int]) -> list[Claim]:
    """Return what ranks last said they were doing, in words of the program's own log."""
    last: dict[int, Row] = {}
    for row in machine.of("phase"):
        if row.rank in ranks and row.rank is not None and row.name in _PHASES:
            last[row.rank] = row
    found: list[Claim] = []
    for rank, row in sorted(last.items()):
        kind, words = _PHASES[row.name]
        said = " ".join(row.text.split())[:120]
        text = f"rank {rank} last spoke of {words}: {said}"
        found.append(
            Claim("training_log", kind, (rank,), "strong", text, (row.ref(text, "training_log"),), row.ts, detail=said)
        )
    return found
