"""Who waits for whom by the calls that dumps show: the edges of the walk between ranks and operations.

Mycroft (SOSP'25) looks for the least advanced operation inside one communicator. Here the walk crosses groups: a rank
waits in an operation, the operation waits for the ranks that are not in it, and those may wait in another group. What
waits for nobody is a root; a strongly connected set without a way out is a deadlock.

Nodes: `rank` (r), `op` (comm, seq), `pair` (comm, src, dst), `device` (r), `wait` (r), `unseen` (comm).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mycroft.analysis.facts import Facts, Group
from mycroft.analysis.matching import SYNCHRONISING, Matched, Open
from mycroft.analysis.stacks import Place
from mycroft.analysis.walk import Edge, Node, Walk, rank_node

NOT_ENTERED: Final = "not entered"
HELD_UP: Final = "entered, held up before it"
NO_DUMP: Final = "left no whole dump"
NOT_FINISHED: Final = "the others finished it"
NOT_STARTED: Final = "its device has not started it"
UNRECORDED: Final = "in a send or receive that is not recorded"


@dataclass(frozen=True, slots=True)
class Meeting:
    """One operation that somebody waits in: where every member stands. Ranks sorted."""

    comm: int
    seq: int
    kind: str
    here: tuple[int, ...]
    absent: tuple[int, ...]
    held_up: tuple[int, ...]
    unknown: tuple[int, ...]
    done: tuple[int, ...]
    started: tuple[int, ...]
    first_enq: int | None
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class Sink:
    """One end of the walk.

    `kind`: `absent` (waits for nobody), `device`, `stuck` (everybody is in, nothing moves), `cycle`, `no_dump`,
    `waits` (in an operation the evidence does not show), `unseen` (a member that no source names).
    """

    kind: str
    ranks: tuple[int, ...]
    nodes: tuple[Node, ...]
    blamed_by: tuple[int, ...]
    """Waiting ranks from which the walk comes here."""
    meetings: tuple[Node, ...]
    """Operations at which its ranks are missing, or which are stuck themselves."""


@dataclass(frozen=True)
class WaitGraph:
    """The graph and its ends. `waiting` ranks are inside an operation that does not end."""

    walk: Walk
    meetings: Mapping[Node, Meeting]
    waiting: tuple[int, ...]
    sinks: tuple[Sink, ...]

    def blaming(self, sinks: Iterable[int]) -> tuple[int, ...]:
        """Return the waiting ranks from which the walk comes to any of these sinks."""
        return tuple(sorted({r for i in sinks for r in self.sinks[i].blamed_by}))

    def held_up_by(self, sinks: Iterable[int]) -> tuple[int, ...]:
        """Return all ranks from which the walk comes to any of these sinks, those that a stack alone shows too."""
        found = {r for i in sinks for r in self.walk.to(self.sinks[i].nodes).ranks()}
        return tuple(sorted(found - {r for i in sinks for r in self.sinks[i].ranks}))

    def path_to(self, sink: Sink) -> tuple[Edge, ...]:
        """Return the edges from the farthest waiting rank to the sink: the cascade, symptom first."""
        return self.walk.to(sink.nodes).longest()


def build(facts: Facts, matched: Matched, places: Mapping[int, Place]) -> WaitGraph:
    """Build the graph from the open operations and walk it to its ends."""
    return _Builder(facts, matched, places).build()


@dataclass
class _Builder:
    facts: Facts
    matched: Matched
    places: Mapping[int, Place]
    edges: dict[Node, list[Edge]] = field(default_factory=lambda: defaultdict(list))
    meetings: dict[Node, Meeting] = field(default_factory=dict[Node, Meeting])

    def build(self) -> WaitGraph:
        relevant = {rank: _relevant(opens) for rank, opens in self.matched.opens.items()}
        by_comm: dict[int, dict[int, Open]] = defaultdict(dict)
        by_pair: dict[tuple[int, int, int, str], Open] = {}
        for rank, opens in self.matched.opens.items():
            for item in opens:
                if not item.p2p:
                    by_comm[item.comm][rank] = item
                elif item.peer is not None:
                    by_pair[rank, item.comm, item.peer, item.kind] = item
        for rank, opens in relevant.items():
            for item in opens:
                node = _node_of(item)
                if node is None:
                    self.edges[rank_node(rank)].append(
                        Edge(rank_node(rank), Node("wait", (rank,)), "its peer is unknown")
                    )
                    continue
                self.edges[rank_node(rank)].append(Edge(rank_node(rank), node, "waits in it"))
        for node in sorted({e.dst for out in self.edges.values() for e in out}):
            if node.kind == "op":
                self._collective(node, by_comm[node.key[0]])
            elif node.kind == "pair":
                self._pair(node, by_pair)
        self._unrecorded()
        walk = Walk({node: tuple(dict.fromkeys(out)) for node, out in sorted(self.edges.items())})
        waiting = tuple(sorted(rank for rank, opens in relevant.items() if opens))
        return WaitGraph(walk, self.meetings, waiting, self._sinks(walk, waiting))

    def _collective(self, node: Node, opens: Mapping[int, Open]) -> None:
        comm, seq = node.key
        group = self.facts.groups[comm]
        here: list[int] = []
        absent: list[int] = []
        held: list[int] = []
        held_by_pair: list[int] = []
        unknown: list[int] = []
        done: list[int] = []
        started: list[int] = []
        for rank in group.members:
            item = opens.get(rank)
            issued = self.matched.issued(comm, rank, seq)
            if item is not None and item.seq <= seq and issued:
                older = self._older(rank, item)
                if item.seq == seq and item.started:
                    started.append(rank)
                    here.append(rank)
                elif item.seq < seq or (older is not None and not older.p2p):
                    held.append(rank)
                elif older is not None:
                    held_by_pair.append(rank)
                else:
                    here.append(rank)
            elif issued:
                done.append(rank)
            elif issued is None:
                unknown.append(rank)
            else:
                absent.append(rank)
        kind = next((o.kind for o in opens.values() if o.seq == seq), "other")
        enq = [o.enq for o in opens.values() if o.seq == seq and o.enq is not None]
        # A send on a stream of its own may hold nobody up: it counts only where nobody is plainly missing.
        (here if absent or held else held).extend(held_by_pair)
        self.meetings[node] = Meeting(
            comm,
            seq,
            kind,
            tuple(sorted(here)),
            tuple(absent),
            tuple(sorted(held)),
            tuple(unknown),
            tuple(done),
            tuple(started),
            min(enq, default=None),
            group.unseen,
        )
        self._blockers(node, self.meetings[node])

    def _blockers(self, node: Node, meeting: Meeting) -> None:
        out = self.edges[node]
        out += [Edge(node, rank_node(r), NOT_ENTERED) for r in meeting.absent]
        out += [Edge(node, rank_node(r), HELD_UP) for r in meeting.held_up]
        if out:
            return
        # Somebody got through: then everybody had come, whether or not a dump says so.
        through = bool(meeting.done) and meeting.kind in SYNCHRONISING
        if meeting.unknown and not through:
            out += [Edge(node, rank_node(r), NO_DUMP) for r in meeting.unknown]
        elif not through and (meeting.unseen or self._may_have_more(meeting)):
            out.append(Edge(node, Node("unseen", (meeting.comm,)), "a member that no source names"))
        elif meeting.done and len(meeting.here) <= len(meeting.done) and self._sees_devices(meeting.here):
            out += [Edge(node, Node("device", (r,)), NOT_FINISHED) for r in meeting.here]
        elif meeting.started and self._timed(meeting.here):
            late = [r for r in meeting.here if r not in meeting.started]
            out += [Edge(node, Node("device", (r,)), NOT_STARTED) for r in late]

    def _may_have_more(self, meeting: Meeting) -> bool:
        """Say whether a group that no source lists may have members that left no trace.

        Nobody waits in a group of one; and without devices nothing holds up an operation that everybody entered.
        """
        group = self.facts.groups[meeting.comm]
        blind = not self._sees_devices(meeting.here)
        return not group.declared and (len(group.members) == 1 or blind) and len(meeting.here) == len(group.members)

    def _sees_devices(self, ranks: Iterable[int]) -> bool:
        return all(rank not in self.facts.dumps or self.facts.dumps[rank].has_events for rank in ranks)

    def _timed(self, ranks: Iterable[int]) -> bool:
        dumps = self.facts.dumps
        return all(rank in dumps and dumps[rank].has_timing for rank in ranks)

    def _older(self, rank: int, item: Open) -> Open | None:
        """Return an open operation of the rank that its device has to get through before `item`."""
        older = [o for o in self.matched.opens.get(rank, ()) if o.record < item.record and o is not item]
        return next((o for o in older if not o.p2p), older[0] if older else None)

    def _pair(self, node: Node, opens: Mapping[tuple[int, int, int, str], Open]) -> None:
        comm, src, dst = node.key
        send, recv = opens.get((src, comm, dst, "send")), opens.get((dst, comm, src, "recv"))
        for mine, other, theirs in ((src, dst, recv), (dst, src, send)):
            if (send if mine == src else recv) is None:
                continue
            if theirs is None:
                dump = self.facts.dumps.get(other)
                why = NOT_ENTERED if dump is not None and not dump.cut else NO_DUMP
                self.edges[node].append(Edge(node, rank_node(other), why))
            elif self._older(other, theirs) is not None and not theirs.started:
                self.edges[node].append(Edge(node, rank_node(other), HELD_UP))
        item = send or recv
        if item is not None:
            here = tuple(r for r, found in ((src, send), (dst, recv)) if found is not None)
            enq = [o.enq for o in (send, recv) if o is not None and o.enq is not None]
            missing = tuple(r for r, found in ((src, send), (dst, recv)) if found is None)
            known = tuple(r for r in missing if (d := self.facts.dumps.get(r)) is not None and not d.cut)
            lost = tuple(r for r in missing if r not in known)
            self.meetings[node] = Meeting(
                comm, item.seq, item.kind, here, known, (), lost, (), (), min(enq, default=None)
            )

    def _unrecorded(self) -> None:
        """Add the waits that only a stack shows: gloo records no send/recv, and a lost dump records nothing."""
        for rank, place in self.places.items():
            if not place.waits or self.edges.get(rank_node(rank)):
                continue
            me = rank_node(rank)
            peers = neighbours(self.facts, rank) if place.kind == "p2p" else ()
            if peers:
                self.edges[me] += [Edge(me, rank_node(peer), UNRECORDED) for peer in peers]
            else:
                self.edges[me].append(Edge(me, Node("wait", (rank,)), "in a wait that its dump does not show"))

    def _sinks(self, walk: Walk, waiting: Sequence[int]) -> tuple[Sink, ...]:
        sinks: list[Sink] = []
        for component in walk.ends():
            reached = walk.to(component).depth
            blamed = tuple(r for r in waiting if rank_node(r) in reached)
            if blamed:
                sinks.append(self._sink(component, blamed, walk))
        return tuple(sorted(sinks, key=lambda s: (-len(s.blamed_by), s.kind, s.ranks)))

    def _sink(self, component: tuple[Node, ...], blamed: tuple[int, ...], walk: Walk) -> Sink:
        ranks = tuple(sorted(n.key[0] for n in component if n.kind in ("rank", "device", "wait")))
        ops = tuple(n for n in component if n.kind in ("op", "pair"))
        first = component[0]
        if len(component) > 1:
            return Sink("cycle", ranks, component, blamed, ops)
        feeding = tuple(sorted({e.src for e in walk.back.get(first, ()) if e.src.kind in ("op", "pair")}))
        if first.kind == "rank":
            dump = self.facts.dumps.get(ranks[0])
            dumped = not dump.cut if dump is not None else any(key[1] == ranks[0] for key in self.matched.last)
            return Sink("absent" if dumped else "no_dump", ranks, (first,), blamed, feeding)
        if first.kind == "device":
            return Sink("device", ranks, (first,), blamed, feeding)
        if first.kind in ("op", "pair"):
            return Sink("stuck", self.meetings[first].here, (first,), blamed, (first,))
        if first.kind == "wait":
            return Sink("waits", ranks, (first,), blamed, ())
        return Sink("unseen", self.facts.groups[first.key[0]].possible, (first,), blamed, feeding)


def _relevant(opens: Sequence[Open]) -> tuple[Open, ...]:
    """Return what holds a rank up: its oldest open operation, and what may run beside it.

    A send or receive may have a stream of its own, so behind one the first open collective counts as well.
    """
    found: list[Open] = []
    for item in opens:
        found.append(item)
        if not item.p2p:
            break
    return tuple(found)


def _node_of(item: Open) -> Node | None:
    if not item.p2p:
        return Node("op", (item.comm, item.seq))
    if item.peer is None:
        return None
    src, dst = (item.rank, item.peer) if item.kind == "send" else (item.peer, item.rank)
    return Node("pair", (item.comm, src, dst))


def neighbours(facts: Facts, rank: int) -> tuple[int, ...]:
    """Return the ranks that a pipeline stage sends to or receives from: from pipeline groups, else from coordinates."""
    found: set[int] = set()
    for group in facts.groups.values():
        if group.kind == "pp" and rank in group.members and group.declared:
            found |= set(_beside(group, rank))
    if found:
        return tuple(sorted(found))
    me = facts.ranks.get(rank)
    if me is None or me.pp is None:
        return ()
    line = sorted(
        (i.pp, i.rank)
        for i in facts.ranks.values()
        if i.pp is not None and (i.dp, i.tp) == (me.dp, me.tp) and None not in (i.dp, i.tp)
    )
    stages = [r for _, r in line]
    if rank not in stages or len({pp for pp, _ in line}) != len(line):
        return ()
    at = stages.index(rank)
    return tuple(sorted(stages[max(0, at - 1) : at] + stages[at + 1 : at + 2]))


def pipeline_of(facts: Facts, rank: int) -> tuple[int, ...]:
    """Return all stages of the pipeline that a rank is in, itself among them; empty: not known to be in one."""
    found = {r for g in facts.groups.values() if g.kind == "pp" and g.declared and rank in g.members for r in g.members}
    me = facts.ranks.get(rank)
    if not found and me is not None and None not in (me.dp, me.tp, me.pp):
        found = {i.rank for i in facts.ranks.values() if (i.dp, i.tp) == (me.dp, me.tp) and i.pp is not None}
    return tuple(sorted(found)) if len(found) > 1 else ()


def without_pipeline(facts: Facts) -> bool:
    """Say whether the layout is known and has no pipeline: then nothing is sent from stage to stage."""
    stages = {i.pp for i in facts.ranks.values()}
    groups = facts.groups.values()
    known = any(g.declared and g.kind not in ("world", "other") for g in groups)
    piped = any(g.kind == "pp" and len(g.members) > 1 for g in groups) or len(stages - {None}) > 1
    return not piped and (known or (bool(stages) and None not in stages))


def _beside(group: Group, rank: int) -> list[int]:
    line = sorted(group.members, key=lambda r: (group.order.get(r, 0), r))
    at = line.index(rank)
    return line[max(0, at - 1) : at] + line[at + 1 : at + 2]
