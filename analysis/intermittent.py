"""One slice that one stage held for half a second: stalls that were over before anybody looked.

Read from what the tracer sums up per flow of finished operations. The order matters: a proxy that sleeps also delays
what its flows acknowledge and receive, so the local evidence of a receive buffer that nobody posted comes first, a
send that was not handed over although the receiver was there comes second, and the network last.

Before all of these: a process that was not run measures its own absence in every stage, and so does whoever waits for
it. Its sampler, a thread of it that wakes by the clock, then wakes late and says so in the next heartbeat.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_MS, NS_PER_S, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.host_clocks import RANK_HOSTS, clock_offsets

# The limits are the same for all stages, and nearly no row of a healthy job passes them.
HELD: Final = """
WITH held AS (
    SELECT rank, comm_id, op_seq, op_kind, op_kind IN ('send', 'recv') AS p2p, channel, dir, peer, end_ts,
           coalesce(net_max_ns, 0) AS net, coalesce(peer_wait_max_ns, 0) AS wait, coalesce(post_delay_max_ns, 0) AS post
    FROM flow_ops
    WHERE peer IS NOT NULL AND end_ts >= make_timestamp_ns($2) AND end_ts < make_timestamp_ns($3)
        AND (net_max_ns > $1 OR post_delay_max_ns > $1 OR (dir = 'send' AND peer_wait_max_ns > $1))
), both_sides AS (
    SELECT h.*, o.rank IS NOT NULL AS seen, coalesce(o.gpu_hold_ns, 0) AS hold,
           coalesce(o.post_delay_max_ns, 0) AS other_post
    FROM held h
    LEFT JOIN flow_ops o
        ON o.comm_id = h.comm_id AND o.op_seq = h.op_seq AND o.rank = h.peer AND o.peer = h.rank
            AND o.channel = h.channel AND o.dir <> h.dir AND (o.op_kind IN ('send', 'recv')) = h.p2p
), calls AS (
    SELECT rank, comm_id, coalesce(pair_seq, op_seq) AS number, coalesce(is_p2p, FALSE) AS p2p, op_kind, peer,
           epoch_ns(enq_ts) AS enq
    FROM coll_ops
    WHERE comm_id IN (SELECT comm_id FROM held)
        AND file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
)
SELECT b.rank, b.comm_id AS comm, CAST(b.op_seq AS BIGINT) AS seq, CAST(b.op_kind AS VARCHAR) AS kind, b.p2p, b.channel,
       CAST(b.dir AS VARCHAR) AS dir, b.peer, epoch_ns(b.end_ts) AS end_ns, CAST(b.net AS BIGINT) AS net,
       CAST(b.wait AS BIGINT) AS wait, CAST(b.post AS BIGINT) AS post, b.seen, CAST(b.hold AS BIGINT) AS hold,
       CAST(b.other_post AS BIGINT) AS other_post, mine.enq AS enq, theirs.enq AS peer_enq
FROM both_sides b
LEFT JOIN calls mine
    ON mine.rank = b.rank AND mine.comm_id = b.comm_id AND mine.number = b.op_seq AND mine.p2p = b.p2p
        AND mine.op_kind = b.op_kind AND (NOT b.p2p OR mine.peer = b.peer)
LEFT JOIN calls theirs
    ON theirs.rank = b.peer AND theirs.comm_id = b.comm_id AND theirs.number = b.op_seq AND theirs.p2p = b.p2p
        AND (NOT b.p2p OR (theirs.peer = b.rank AND theirs.op_kind <> b.op_kind))
ORDER BY ALL
LIMIT 200000
"""
# Heartbeats whose sampler came so late that its process cannot have been run.
LATE: Final = """
SELECT rank, epoch_ns(ts) AS ts, CAST(late_ms AS BIGINT) * 1000000 AS late
FROM heartbeat
WHERE late_ms >= $1 AND ts >= make_timestamp_ns($2) AND ts < make_timestamp_ns($3)
ORDER BY rank, ts
LIMIT 200000
"""
WORLD: Final = "SELECT count(*) FROM ranks"
# Flows of these ranks that ended while others were held.
MOVED: Final = """
SELECT DISTINCT rank, peer, channel, CAST(dir AS VARCHAR) AS dir, comm_id AS comm
FROM flow_ops
WHERE end_ts > make_timestamp_ns($1) AND end_ts < make_timestamp_ns($2) AND list_contains($3, rank)
    AND net_busy_ns IS NOT NULL
"""
# Flows that were held together end within this time of each other.
TOGETHER_NS: Final = NS_PER_S
# Events older than this are another story.
MEMORY_NS: Final = 3600 * NS_PER_S
# Part of the time that a flow was held in which another of its device must have ended, clear of both edges.
CLEAR_NS: Final = 200_000_000
# A sampler that wakes by the clock is later than this only where nobody ran its process.
LATE_LEAST_NS: Final = 100_000_000
# A slice takes turns of both processes. Where one of them was away for the first part of the time that it was held, the
# times of its stages say nothing of the network; where for the second, that is what held it.
EXCUSED_SHARE: Final = 0.25
AWAY_SHARE: Final = 0.5
# A heartbeat tells of the time since the one before.
BEAT_NS: Final = NS_PER_S


@dataclass(frozen=True, slots=True)
class HeldFlow:
    """One flow that was held, told from its sender."""

    comm: int
    seq: int
    kind: str
    channel: int
    src: int
    dst: int
    held_ns: int
    end_ns: int
    rank: int
    """Whose row shows it."""


@dataclass(frozen=True, slots=True)
class Event:
    """Flows that one stage held at one time. `ranks`: several where the evidence fits each of them."""

    component: str
    """process, proxy or nic."""
    ranks: tuple[int, ...]
    began_ns: int
    end_ns: int
    flows: tuple[HeldFlow, ...]
    touches: Mapping[int, int]
    """Held flows by rank that they touch."""
    late_ns: int = 0
    """By how much the sampler of a process that was not run came late."""

    @property
    def held_s(self) -> float:
        """Longest time that a slice was held, s."""
        return max(f.held_ns for f in self.flows) / NS_PER_S


@dataclass(frozen=True, slots=True)
class Repeated:
    """Events of one component: what all of them fit."""

    component: str
    ranks: tuple[int, ...]
    events: tuple[Event, ...]

    @property
    def handed_over_late(self) -> bool:
        """Whether only senders show it: a buffer that nobody posted is the receiver's own evidence of its proxy."""
        return self.component == "proxy" and all(f.rank == f.src for e in self.events for f in e.flows)


def events(
    store: Frames,
    limits: FlowLimits = FLOW_DEFAULTS,
    *,
    since_ns: int = 0,
    until_ns: int | None = None,
    offsets: Mapping[int, int] | None = None,
) -> tuple[Event, ...]:
    """Return every time that a stage held a slice for too long, in order of time (corrected clock)."""
    until = until_ns if until_ns is not None else (1 << 62)
    if offsets is None:
        offsets = clock_offsets(store, at=until_ns)
    slack = max((abs(v) for v in offsets.values()), default=0)
    rows = store.frame(HELD, (limits.slice_ns, max(0, since_ns - slack), until + slack)).to_dicts()
    for row in rows:
        row["end_ns"] -= offsets.get(row["rank"], 0)
        row["late"] = _lateness(row, offsets)
    rows = [r for r in rows if since_ns <= r["end_ns"] <= until]
    rows.sort(key=lambda r: (r["end_ns"], r["rank"], r["channel"], r["peer"], r["dir"]))
    away = _Away(store, rows, offsets) if rows else None
    found: list[Event] = []
    group: list[dict[str, Any]] = []
    for row in [*rows, None]:
        if group and (row is None or row["end_ns"] - group[0]["end_ns"] > TOGETHER_NS):
            found += _events_while(group, limits, away) if away is not None else []
            group = []
        if row is not None:
            group.append(row)
    return tuple(_narrowed(store, e, offsets) for e in found)


class _Away:
    """When processes were not run, by their samplers."""

    def __init__(self, store: Frames, rows: Sequence[Mapping[str, Any]], offsets: Mapping[int, int]) -> None:
        first = min(r["end_ns"] - _held_ns(r) for r in rows)
        slack = max((abs(v) for v in offsets.values()), default=0) + 2 * BEAT_NS
        last = max(r["end_ns"] for r in rows)
        late = store.frame(LATE, (LATE_LEAST_NS // NS_PER_MS, max(0, first - slack), last + slack))
        self.spans: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for rank, ts, late_ns in late.iter_rows():
            at = int(ts) - offsets.get(int(rank), 0)
            self.spans[int(rank)].append((at - BEAT_NS - int(late_ns), at, int(late_ns)))
        self.world = int(store.frame(WORLD).item()) if self.spans else 0
        self.hosts = {int(r): int(h) for r, h in store.frame(RANK_HOSTS).iter_rows()} if self.spans else {}

    def late_ns(self, rank: int, began_ns: int, end_ns: int) -> int:
        """Return by how much the sampler of a rank came late in that time, at most."""
        return max((late for a, b, late in self.spans.get(rank, ()) if a < end_ns and b > began_ns), default=0)

    def everywhere(self, began_ns: int, end_ns: int) -> bool:
        """Whether more than half of the job was not run then."""
        return _more_than_half(sum(self.late_ns(rank, began_ns, end_ns) > 0 for rank in self.spans), self.world)


def _held_ns(row: Mapping[str, Any]) -> int:
    """Return for how long a row's flow was held, in whatever stage."""
    return int(max(row["net"], row["wait"], row["post"]))


def _events_while(rows: Sequence[dict[str, Any]], limits: FlowLimits, away: _Away) -> list[Event]:
    """Take out what processes that were not run explain; what is left is for the rules over stages."""
    if not away.spans:
        return _events_of(rows, limits)
    if away.everywhere(min(r["end_ns"] - _held_ns(r) for r in rows), rows[-1]["end_ns"]):
        return []
    excused: set[int] = set()
    late: dict[int, int] = {}
    held: dict[int, list[HeldFlow]] = defaultdict(list)
    for row in rows:
        length, end = _held_ns(row), row["end_ns"]
        for rank in (row["rank"], row["peer"]):
            late_ns = away.late_ns(rank, end - length, end)
            if late_ns >= EXCUSED_SHARE * length:
                excused.add(rank)
            if late_ns >= AWAY_SHARE * length:
                late[rank] = max(late_ns, late.get(rank, 0))
                held[rank].append(_flow(row, length))
    found: list[Event] = []
    # On one host they lack the same processor.
    for host in sorted({away.hosts.get(r, -1 - r) for r in late}):
        ranks = tuple(r for r in sorted(late) if away.hosts.get(r, -1 - r) == host)
        event = _event("process", ranks, [f for r in ranks for f in held[r]])
        found.append(replace(event, late_ns=max(late[r] for r in ranks)))
    rest = [r for r in rows if not {r["rank"], r["peer"]} & excused]
    return found + (_events_of(rest, limits) if rest else [])


def _lateness(row: Mapping[str, Any], offsets: Mapping[int, int]) -> int:
    """How long after this side the other one called the operation, ns; 0 where that is not known."""
    if row["enq"] is None or row["peer_enq"] is None:
        return 0
    mine = row["enq"] - offsets.get(row["rank"], 0)
    return max(0, row["peer_enq"] - offsets.get(row["peer"], 0) - mine)


def _flow(row: Mapping[str, Any], held: int) -> HeldFlow:
    src, dst = (row["rank"], row["peer"]) if row["dir"] == "send" else (row["peer"], row["rank"])
    return HeldFlow(row["comm"], row["seq"], row["kind"], row["channel"], src, dst, held, row["end_ns"], row["rank"])


def _events_of(rows: Sequence[dict[str, Any]], limits: FlowLimits) -> list[Event]:
    """One rule after the other; what an earlier one explains is not asked again."""
    posts = [_flow(r, r["post"]) for r in rows if r["dir"] == "recv" and r["post"] > limits.slice_ns]
    found = [_event("proxy", (rank,), [f for f in posts if f.dst == rank]) for rank in sorted({f.dst for f in posts})]
    blamed = {r for e in found for r in e.ranks}
    everyone = {r for row in rows for r in (row["rank"], row["peer"])}
    # Who held something itself, in whatever stage; waiting for others is not holding.
    holding = {r["rank"] for r in rows if r["post"] > limits.slice_ns or r["net"] > limits.slice_ns}
    if len(blamed) > 1 and _all_together(holding, everyone):
        return []
    sends = [r for r in rows if r["dir"] == "send" and not {r["rank"], r["peer"]} & blamed]
    unsent: list[HeldFlow] = []
    for r in sends:
        own = r["wait"] - r["late"]
        # A receiver that held what it had, or did not post, gave no credit; one that left no row may have.
        free = r["seen"] and r["hold"] < limits.slice_ns // 2 and r["other_post"] < limits.slice_ns // 2
        if own > limits.slice_ns >= r["net"] and free and r["enq"] is not None and r["peer_enq"] is not None:
            unsent.append(_flow(r, own))
    # A thread that sleeps lets what it should acknowledge wait as long, not longer. What the network held for longer
    # came first: the credit for this slice was lost on the same way.
    held_net: dict[int, int] = defaultdict(int)
    for r in sends:
        if r["net"] > limits.slice_ns:
            for end in (r["rank"], r["peer"]):
                held_net[end] = max(held_net[end], r["net"] - r["late"])
    unsent = [f for f in unsent if f.held_ns > held_net[f.src] - limits.slice_ns // 2]
    # A ring passes its lateness on: who waited longest is where it began.
    if unsent:
        longest = max(f.held_ns for f in unsent)
        unsent = [f for f in unsent if f.held_ns > longest - limits.slice_ns // 2]
        ranks = tuple(sorted({f.src for f in unsent}))
        found.append(_event("proxy", ranks, unsent))
        blamed |= set(ranks)
    nets: list[HeldFlow] = []
    for r in sends:
        own = r["net"] - r["late"]
        if own > limits.slice_ns and r["hold"] < own // 2 and not {r["rank"], r["peer"]} & blamed:
            nets.append(_flow(r, own))
    return found + [e for e in _network(nets) if len(e.ranks) < 3 or not _all_together(set(e.ranks), everyone)]


def _all_together(held: set[int], everyone: set[int]) -> bool:
    """Whether so many are held that it is the job, or its machine, that paused, and nobody stands out."""
    return _more_than_half(len(held), len(everyone))


def _more_than_half(some: int, everyone: int) -> bool:
    return 2 * some > everyone


def _network(nets: Sequence[HeldFlow]) -> list[Event]:
    """Held flows that share a rank are one event; the rank that most of them touch is the device."""
    groups: list[list[HeldFlow]] = []
    for flow in nets:
        near = [g for g in groups if any({flow.src, flow.dst} & {o.src, o.dst} for o in g)]
        groups = [g for g in groups if g not in near] + [[flow, *(f for g in near for f in g)]]
    found: list[Event] = []
    for group in groups:
        touches = _touches(group)
        most = max(touches.values())
        found.append(_event("nic", tuple(sorted(r for r, n in touches.items() if n == most)), group))
    return found


def _touches(flows: Sequence[HeldFlow]) -> Counter[int]:
    pairs = {(f.src, f.dst, f.channel) for f in flows}
    return Counter(r for src, dst, _ in pairs for r in (src, dst))


def _event(component: str, ranks: tuple[int, ...], flows: Sequence[HeldFlow]) -> Event:
    ordered = tuple(sorted(flows, key=lambda f: (-f.held_ns, f.src, f.dst, f.channel)))
    end = max(f.end_ns for f in flows)
    return Event(component, ranks, min(f.end_ns - f.held_ns for f in flows), end, ordered, dict(_touches(flows)))


def _narrowed(store: Frames, event: Event, offsets: Mapping[int, int]) -> Event:
    """Take out a device that carried something else while the flows were held."""
    if event.component != "nic" or len(event.ranks) < 2:
        return event
    slack = max((abs(v) for v in offsets.values()), default=0)
    first, last = event.began_ns + CLEAR_NS + slack, event.end_ns - CLEAR_NS - slack
    if last <= first:
        return event
    held = {(f.src, f.dst, f.channel) for f in event.flows}
    moved: set[int] = set()
    for row in store.frame(MOVED, (first, last, list(event.ranks))).to_dicts():
        src, dst = (row["rank"], row["peer"]) if row["dir"] == "send" else (row["peer"], row["rank"])
        if (src, dst, row["channel"]) not in held:
            moved.add(int(row["rank"]))
    left = tuple(r for r in event.ranks if r not in moved)
    return replace(event, ranks=left) if left else event


def repeated(found: Sequence[Event], *, at_ns: int) -> tuple[Repeated, ...]:
    """Put the events of the last hour together: those of one component whose candidates meet are one cause."""
    result: list[Repeated] = []
    for event in found:
        if not at_ns - MEMORY_NS <= event.end_ns <= at_ns:
            continue
        for n, old in enumerate(result):
            both = tuple(r for r in old.ranks if r in event.ranks)
            if old.component == event.component and both:
                result[n] = Repeated(old.component, both, (*old.events, event))
                break
        else:
            result.append(Repeated(event.component, event.ranks, (event,)))
    return tuple(sorted(_joined(result), key=lambda r: (-len(r.events), r.events[0].began_ns, r.ranks)))


def _joined(found: Sequence[Repeated]) -> list[Repeated]:
    """Give events that fit two stages to the one that others show for sure.

    A process that was not run again and again is why its neighbours see a device or a thread that stops. A buffer that
    nobody posted is its proxy's own evidence: such a thread does not acknowledge or hand over either, so
    whatever else touches its rank is its doing. A slice that was only handed over late may have lacked a credit that
    the network lost; where the same device was seen to stop, it is that device again.
    """
    result = list(found)
    for sure in (_not_run, _posted_late, _of_network):
        for one in [r for r in result if sure(r)]:
            for other in [r for r in result if r is not one and not sure(r)]:
                if _explains(one, other) and _all_touch(other, one.ranks):
                    result.remove(other)
                    events = tuple(sorted((*one.events, *other.events), key=lambda e: (e.end_ns, e.ranks)))
                    result[result.index(one)] = one = replace(one, events=events)
    return result


def _explains(one: Repeated, other: Repeated) -> bool:
    """Whether what is sure of one may be what the other only looks like."""
    if _not_run(one) or _not_run(other):
        # A link may be bad beside a process that was away once.
        return _not_run(one) and len(one.events) >= len(other.events)
    return _posted_late(one) or other.handed_over_late


def _not_run(one: Repeated) -> bool:
    return one.component == "process"


def _posted_late(one: Repeated) -> bool:
    return one.component == "proxy" and not one.handed_over_late


def _of_network(one: Repeated) -> bool:
    return one.component == "nic"


def _all_touch(one: Repeated, ranks: Sequence[int]) -> bool:
    return all({f.src, f.dst} & set(ranks) for e in one.events for f in e.flows)
