"""Chunk flow of one operation: who sends to whom on which channel, and how far each half came, moment by moment.

Nothing is concluded here. What stands and why is the analysis's to say: the broken edge is that of the verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mycroft.analysis.config import FLOW_DEFAULTS
from mycroft.app.queries import TraceReader
from mycroft.app.reads import operations, verdicts
from mycroft.app.reads.extent import extent_of

TICK_MS: Final = 100
"""How often the tracer writes the state of a flow in flight."""
HALVES_MAX: Final = 24_000
STEPS_MAX: Final = 120_000
TICKS_MS: Final = (100, 200, 500, 1000, 2000, 5000, 10_000)
EDGES_MAX: Final = 200_000

_OP: Final = """
SELECT
    CAST(algo AS VARCHAR) AS algo,
    CAST(proto AS VARCHAR) AS proto,
    CAST(op_kind AS VARCHAR) AS kind,
    count(*) AS entries,
    epoch_ns(min(coalesce(start_ts, enq_ts))) AS start_ns
FROM coll_ops
WHERE comm_id = ? AND op_seq = ? AND NOT coalesce(is_p2p, FALSE)
GROUP BY ALL
ORDER BY entries DESC, kind
LIMIT 1
"""
# Of a collective: all its halves. Of sends and receives: those of this number, both sides of each. A flow of a pair is
# numbered by the pair, an operation by its rank.
_HALVES: Final = """
WITH mine AS (
    SELECT DISTINCT rank, peer, CAST(op_kind AS VARCHAR) AS kind, coalesce(pair_seq, op_seq) AS number
    FROM coll_ops
    WHERE comm_id = $1 AND op_seq = $2 AND is_p2p AND peer IS NOT NULL
),
wanted AS (
    FROM mine
    UNION
    SELECT peer, rank, CASE kind WHEN 'send' THEN 'recv' ELSE 'send' END, number FROM mine
),
states AS (
    SELECT s.*
    FROM flow_state s
    WHERE s.comm_id = $1 AND s.peer IS NOT NULL AND (
        ($3 AND s.op_seq = $2 AND CAST(s.op_kind AS VARCHAR) NOT IN ('send', 'recv'))
        OR (NOT $3 AND CAST(s.op_kind AS VARCHAR) IN ('send', 'recv')
            AND (s.rank, s.peer, CAST(s.dir AS VARCHAR), s.op_seq) IN (SELECT (rank, peer, kind, number) FROM wanted))
    )
),
ended AS (
    SELECT f.*
    FROM flow_ops f
    WHERE f.comm_id = $1 AND f.peer IS NOT NULL AND (
        ($3 AND f.op_seq = $2)
        OR (NOT $3
            AND (f.rank, f.peer, CAST(f.dir AS VARCHAR), f.op_seq) IN (SELECT (rank, peer, kind, number) FROM wanted))
    )
)
"""
_SEEN: Final = """
, seen AS (
    SELECT channel, rank, peer, CAST(dir AS VARCHAR) AS dir, qp, op_seq, max(chunks_total) AS total,
        epoch_ns(min(ts)) AS first_ns, epoch_ns(max(ts)) AS last_ns, max(done) AS done
    FROM states
    GROUP BY ALL
),
over AS (
    SELECT channel, rank, peer, CAST(dir AS VARCHAR) AS dir, op_seq, max(slices) AS slices,
        epoch_ns(max(end_ts)) AS end_ns
    FROM ended
    GROUP BY ALL
)
SELECT coalesce(seen.channel, over.channel, 0)::BIGINT AS channel, coalesce(seen.rank, over.rank)::BIGINT AS rank,
    coalesce(seen.peer, over.peer)::BIGINT AS peer, coalesce(seen.dir, over.dir) AS dir, seen.qp::BIGINT AS qp,
    coalesce(seen.op_seq, over.op_seq)::BIGINT AS op_seq, coalesce(seen.total, over.slices)::BIGINT AS total,
    seen.first_ns, seen.last_ns, seen.done::BIGINT AS done, over.end_ns
FROM seen
FULL JOIN over
    ON over.channel IS NOT DISTINCT FROM seen.channel AND over.rank = seen.rank AND over.peer = seen.peer
    AND over.dir = seen.dir AND over.op_seq = seen.op_seq
ORDER BY 1, 2, 3, 4, 5
"""
_LIST: Final = "".join((_HALVES, _SEEN))
# The last state of each half in each tick, and of those only the ones that differ from the one before.
_CHANGES: Final = """
, ticks AS (
    SELECT coalesce(channel, 0) AS channel, rank, peer, CAST(dir AS VARCHAR) AS dir, qp, op_seq,
        (epoch_ns(ts) - $4) // $5 AS tick, posted, ready, moved, done, idle_ms
    FROM states
    QUALIFY row_number() OVER (
        PARTITION BY channel, rank, peer, dir, qp, op_seq, (epoch_ns(ts) - $4) // $5 ORDER BY ts DESC
    ) = 1
)
SELECT channel::BIGINT AS channel, rank::BIGINT AS rank, peer::BIGINT AS peer, dir, qp::BIGINT AS qp,
    op_seq::BIGINT AS op_seq, tick::BIGINT AS tick, posted::BIGINT AS posted, ready::BIGINT AS ready,
    moved::BIGINT AS moved, done::BIGINT AS done, idle_ms::BIGINT AS idle_ms
FROM ticks
QUALIFY (posted, ready, moved, done) IS DISTINCT FROM lag((posted, ready, moved, done)) OVER (
    PARTITION BY channel, rank, peer, dir, qp, op_seq ORDER BY tick
)
ORDER BY 1, 2, 3, 4, 5, 6, 7
"""
_STEPS: Final = "".join((_HALVES, _CHANGES))
_EDGES: Final = """
SELECT DISTINCT coalesce(channel, 0)::BIGINT AS channel, pattern, src::BIGINT AS src, dst::BIGINT AS dst
FROM edges
WHERE comm_id = ?
ORDER BY ALL
LIMIT ?
"""
# Who sent to whom in any operation of the group: the ring is the same in all of them.
_USUAL: Final = """
SELECT DISTINCT coalesce(channel, 0)::BIGINT AS channel,
    (CASE WHEN dir = 'send' THEN rank ELSE peer END)::BIGINT AS src,
    (CASE WHEN dir = 'send' THEN peer ELSE rank END)::BIGINT AS dst
FROM flow_ops
WHERE comm_id = ? AND peer IS NOT NULL
ORDER BY ALL
LIMIT ?
"""

Half = Mapping[str, Any]
Key = tuple[int, int, int, str, int | None, int]

# What goes up a tree has ended before what comes down has, at the same rank and by its own clock.
_PARENTS: Final = """
SELECT s.rank::BIGINT AS rank, s.peer::BIGINT AS peer,
    sum(sign(epoch_ns(r.end_ts) - epoch_ns(s.end_ts)))::BIGINT AS votes
FROM flow_ops s
JOIN flow_ops r
    ON r.rank = s.rank AND r.comm_id = s.comm_id AND r.op_seq = s.op_seq AND r.channel = s.channel AND r.peer = s.peer
JOIN coll_ops o
    ON o.rank = s.rank AND o.comm_id = s.comm_id AND o.op_seq = s.op_seq AND o.algo = 'TREE' AND o.state = 'completed'
WHERE s.comm_id = ? AND s.channel = ? AND s.dir = 'send' AND r.dir = 'recv'
GROUP BY ALL
ORDER BY ALL
"""

# Findings from the tracer's rows give the number of the pair, those from a Flight Recorder's the number of the rank.
_NUMBER_OF_PAIR: Final = """
SELECT o.op_seq::BIGINT AS op_seq
FROM coll_ops o
LEFT JOIN rank_dumps d USING (file_id)
WHERE o.comm_id = $1 AND o.is_p2p AND o.op_kind IN ('send', 'recv') AND list_contains($3, o.rank)
    AND CASE WHEN d.kind = 'flight_recorder' THEN o.op_seq ELSE o.pair_seq END = $2
ORDER BY o.op_kind = $4 DESC, list_contains($3, o.peer) DESC, list_position($3, o.rank), o.op_seq
LIMIT 1
"""

READING: Final = (
    "Sender: G filled by the GPU, T handed to the network, D acknowledged. Receiver: P buffers posted, R received, C "
    "consumed. G above T: no credit from the receiver, or the sender's proxy. T above D: the network, the device of "
    "either end, or the receiver. G behind its peers: the GPU, or it waits upstream. On stock NCCL G leads T by one at "
    "most: a flag, not a depth."
)


def flow_of(reader: TraceReader, comm: str, seq: int) -> dict[str, Any] | None:
    """Return the chunk flow of one operation as JSON values; None where no source shows flows of it.

    Times are ticks of `tick_ms` after `start_us`, itself µs after the start of the trace. `halves` has one row per
    rank, peer, channel, direction (and queue pair, where known); its `steps` hold for all ticks up to the next.
    """
    group = operations.communicator(reader, comm)
    if group is None:
        return None
    return reader.cached("flow", [comm, seq], lambda _: _made(reader, group, seq))


def has_flows(reader: TraceReader, comm_id: int, seq: int) -> bool:
    """Whether any source shows flows of an operation."""
    head = _head(reader, comm_id, seq)
    return reader.frame(_LIST, [comm_id, seq, head is not None]).height > 0


def number_of_pair(reader: TraceReader, comm: str, pair: int, kind: str, ranks: Sequence[int]) -> int | None:
    """Return the number that one of `ranks` gave a send or receive that a verdict calls `pair`; None: it has no row.

    Rows of that kind go first, then those between two of `ranks`, then by the order of `ranks`.
    """
    group = operations.communicator(reader, comm)
    if group is None:
        return None
    found = reader.frame(_NUMBER_OF_PAIR, [group["comm_id"], pair, list(ranks), kind])
    return found.item(0, 0) if found.height else None


def number_in_addresses(reader: TraceReader, comm: str, seq: int, kind: str, ranks: Sequence[int]) -> int | None:
    """Return the number by which pages call an operation that a verdict names; None: no row of it is known."""
    if kind not in ("send", "recv"):
        return seq
    return number_of_pair(reader, comm, seq, kind, ranks)


def stalled_of(reader: TraceReader, finding: Mapping[str, Any] | None) -> tuple[str, int] | None:
    """Return group and number, as pages call it, of the operation that a finding is about; None: it names none."""
    stalled = (finding or {}).get("collective") or {}
    comm, seq = stalled.get("comm"), stalled.get("seq")
    if finding is None or comm is None or seq is None:
        return None
    ranks = [*finding["root_cause"]["ranks"], *finding["victims"]["ranks"]]
    return comm, number_in_addresses(reader, comm, seq, str(stalled.get("op") or ""), ranks) or seq


def _head(reader: TraceReader, comm_id: int, seq: int) -> dict[str, Any] | None:
    found = reader.frame(_OP, [comm_id, seq])
    return found.to_dicts()[0] if found.height else None


def _key(row: Half) -> Key:
    return (row["channel"], row["rank"], row["peer"], row["dir"], row["qp"], row["op_seq"])


def _made(reader: TraceReader, group: Mapping[str, Any], seq: int) -> dict[str, Any] | None:
    comm_id = group["comm_id"]
    head = _head(reader, comm_id, seq)
    collective = head is not None
    listed = reader.frame(_LIST, [comm_id, seq, collective]).to_dicts()
    if not listed:
        return None
    halves, said = _bounded(listed)
    times: list[int] = [row[name] for row in halves for name in ("first_ns", "end_ns") if row[name] is not None]
    if head is not None and head["start_ns"] is not None:
        times.append(int(head["start_ns"]))
    start_ns = min(times)
    start_ns -= start_ns % (TICK_MS * 1_000_000)
    last_ns = max(row[name] for row in halves for name in ("last_ns", "end_ns") if row[name] is not None)
    steps, tick_ms = _steps(reader, [comm_id, seq, collective, start_ns])
    if tick_ms > TICK_MS:
        said.append(f"states are shown every {tick_ms} ms: those of every {TICK_MS} ms are too many for one picture")
    tick_ns = tick_ms * 1_000_000
    rows = [_half(row, steps.get(_key(row), []), start_ns, tick_ns) for row in halves]
    members = operations.members(reader, comm_id)
    entered = {entry["rank"] for entry in operations.operation(reader, comm_id, seq)}
    trace_start = (extent_of(reader) or (start_ns, start_ns))[0]
    shape, layout = _layout(reader, comm_id, head, halves, [member["rank"] for member in members])
    qps = sum(row["qp"] is not None for row in halves)
    return {
        "comm": group["key"],
        "seq": seq,
        "kind": head["kind"] if head else "send/recv",
        "algo": head["algo"] if head else None,
        "size": group["size"],
        "shape": shape,
        "start_us": max(0, (start_ns - trace_start) // 1000),
        "start_ns": str(start_ns),
        "tick_ms": tick_ms,
        "ticks": max(1, (last_ns - start_ns) // tick_ns + 1),
        "standing_ms": FLOW_DEFAULTS.standing_ns // 1_000_000,
        "silent_ms": FLOW_DEFAULTS.silent_ns // 1_000_000,
        "unit": "queue pair" if qps == len(halves) else "channel, peer and direction",
        "halves": rows,
        **layout,
        "ranks": {
            str(member["rank"]): {
                "host": member["host"],
                "log": bool(member["dumps"]),
                "entered": member["rank"] in entered,
            }
            for member in members
        },
        "causes": _causes(reader, group["key"], comm_id, seq, halves, [member["rank"] for member in members]),
        "reading": READING,
        "limits": said,
    }


def _bounded(listed: Sequence[Half]) -> tuple[Sequence[Half], list[str]]:
    """Keep the channels that lag most where there are too many halves for one answer, and say so."""
    if len(listed) <= HALVES_MAX:
        return listed, []
    left: dict[int, int] = defaultdict(int)
    size: Counter[int] = Counter()
    for row in listed:
        done = row["total"] if row["end_ns"] is not None else row["done"]
        left[row["channel"]] += (row["total"] or 0) - (done or 0)
        size[row["channel"]] += 1
    kept: set[int] = set()
    room = HALVES_MAX
    for channel in sorted(size, key=lambda c: (-left[c], c)):
        if size[channel] <= room or not kept:
            kept.add(channel)
            room -= size[channel]
    text = f"{len(kept)} of {len(size)} channels are shown, those with most left to do: {len(listed):,} halves in all"
    return [row for row in listed if row["channel"] in kept], [text]


def _steps(reader: TraceReader, params: Sequence[Any]) -> tuple[dict[Key, list[list[int | None]]], int]:
    """Return the changes of each half, at the finest tick at which they are not too many."""
    for tick_ms in TICKS_MS:
        frame = reader.frame(_STEPS, [*params, tick_ms * 1_000_000])
        if frame.height <= STEPS_MAX or tick_ms == TICKS_MS[-1]:
            found: dict[Key, list[list[int | None]]] = defaultdict(list)
            for row in frame.head(STEPS_MAX * 4).to_dicts():
                found[_key(row)].append(
                    [row["tick"], row["posted"], row["ready"], row["moved"], row["done"], row["idle_ms"]]
                )
            return found, tick_ms
    raise AssertionError("the list of ticks is not empty")


def _half(row: Half, steps: list[list[int | None]], start_ns: int, tick_ns: int) -> list[Any]:
    """Return a half: channel, rank, peer, 1 for send, queue pair, total, last tick heard of, steps."""
    until = (row["last_ns"] - start_ns) // tick_ns if row["last_ns"] is not None else 0
    total = row["total"]
    if row["end_ns"] is not None and total is not None:
        end = max((row["end_ns"] - start_ns) // tick_ns, 0)
        # The sums of a finished half say that it is done; the last state before may be up to a tick older.
        steps = [*(step for step in steps if (step[0] or 0) < end), [end, total, total, total, total, 0]]
        until = None
    return [row["channel"], row["rank"], row["peer"], int(row["dir"] == "send"), row["qp"], total, until, steps]


# ---- shape ----------------------------------------------------------------------------------


def _layout(
    reader: TraceReader, comm_id: int, head: Mapping[str, Any] | None, halves: Sequence[Half], members: Sequence[int]
) -> tuple[str, dict[str, Any]]:
    """Return the shape (ring, tree or pairs) and what a picture of it needs."""
    here = _directed(halves)
    channels = sorted(here)
    if head is None:
        return "pairs", {"channels": channels}
    algo = (head["algo"] or "").upper()
    known: dict[int, set[tuple[int, int]]] = defaultdict(set)
    wanted = "tree" if "TREE" in algo else "ring"
    for channel, pattern, src, dst in reader.frame(_EDGES, [comm_id, EDGES_MAX]).iter_rows():
        if pattern == wanted:
            known[channel].add((src, dst))
    if "TREE" in algo or (not algo and _looks_like_tree(here)):
        trees = {str(channel): _tree(reader, comm_id, channel, here[channel] | known[channel]) for channel in channels}
        return "tree", {"channels": channels, "trees": trees}
    if all(_is_ring(edges) for edges in here.values()):
        for channel, src, dst in reader.frame(_USUAL, [comm_id, EDGES_MAX]).iter_rows():
            known[channel].add((src, dst))
        orders = {
            str(channel): ring_order(here[channel] | _fitting(here[channel], known[channel]), members)
            for channel in channels
        }
        return "ring", {"channels": channels, "orders": orders}
    return "pairs", {"channels": channels}


def _directed(halves: Iterable[Half]) -> dict[int, set[tuple[int, int]]]:
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for row in halves:
        pair = (row["rank"], row["peer"]) if row["dir"] == "send" else (row["peer"], row["rank"])
        found[row["channel"]].add(pair)
    return found


def _is_ring(edges: Iterable[tuple[int, int]]) -> bool:
    """Whether each rank sends to one other and receives from one other at most."""
    pairs = list(edges)
    return len({src for src, _ in pairs}) == len(pairs) == len({dst for _, dst in pairs})


def _looks_like_tree(here: Mapping[int, set[tuple[int, int]]]) -> bool:
    """Whether, on every channel, whoever is sent to sends back, some have several such partners, and nothing closes."""
    both = all((dst, src) in edges for edges in here.values() for src, dst in edges)
    open_ended = all(len(edges) // 2 < len({rank for edge in edges for rank in edge}) for edges in here.values())
    return both and open_ended and not all(_is_ring(edges) for edges in here.values())


def _fitting(edges: set[tuple[int, int]], more: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the edges of other operations that contradict none of this one: another algorithm has other edges."""
    sources, targets = {src for src, _ in edges}, {dst for _, dst in edges}
    fitting = {(src, dst) for src, dst in more if src not in sources and dst not in targets}
    return fitting if _is_ring(fitting) else set()


def ring_order(edges: Iterable[tuple[int, int]], members: Sequence[int]) -> list[int]:
    """Return the ranks in the order of the ring, from the first member; parts that hang together stay together.

    Where the way from one part to the next is not known, parts follow in the order of their members.
    """
    after = dict(sorted(edges))
    before = {dst: src for src, dst in after.items()}
    everyone = list(dict.fromkeys([*members, *after, *before]))
    left = dict.fromkeys(everyone)
    order: list[int] = []
    while left:
        start = next(iter(left))
        # An open chain is begun at its head; a closed ring at its first member.
        seen = {start}
        while (earlier := before.get(start)) is not None and earlier in left and earlier not in seen:
            start = earlier
            seen.add(start)
        if before.get(start) in seen:
            start = next(iter(left))
        at: int | None = start
        while at is not None and at in left:
            del left[at]
            order.append(at)
            at = after.get(at)
    return order


def _tree(reader: TraceReader, comm_id: int, channel: int, edges: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """Return the parent of each rank on one channel, and what is known of the direction."""
    near: dict[int, set[int]] = defaultdict(set)
    for src, dst in edges:
        near[src].add(dst)
        near[dst].add(src)
    votes = reader.frame(_PARENTS, [comm_id, channel]).to_dicts()
    up = {row["rank"]: row["peer"] for row in votes if row["votes"] > 0 and row["peer"] in near[row["rank"]]}
    # A rank without a log is known by its neighbours: whom they find below them.
    for row in votes:
        if row["votes"] < 0:
            up.setdefault(row["peer"], row["rank"])
    tops = [rank for rank in near if rank not in up]
    known = len(tops) == 1
    root = tops[0] if known else min(near, key=lambda rank: (len(near[rank]) != 1, rank))
    parent: dict[str, int] = {}
    seen, queue = {root}, [root]
    while queue:
        at = queue.pop(0)
        for other in sorted(near[at] - seen):
            seen.add(other)
            parent[str(other)] = at
            queue.append(other)
    return {"root": root, "parents": parent, "known": known}


# ---- the verdict's edge -----------------------------------------------------------------------


def _causes(
    reader: TraceReader, comm: str, comm_id: int, seq: int, halves: Sequence[Half], members: Iterable[int]
) -> list[dict[str, Any]]:
    """Return the ranks and edges of this operation that the verdict names as root causes."""
    verdict = verdicts.verdict_of(reader)
    here = {(row["rank"], row["op_seq"]) for row in halves}
    inside = set(members)
    found: list[dict[str, Any]] = []
    for finding in verdict["findings"] if verdict else ():
        cause = finding["root_cause"]
        ranks = [rank for rank in cause["ranks"] if rank in inside]
        keys = [claim["key"] for claim in finding["evidence"] if claim.get("key")]
        named = any(key.get("comm_id") == comm_id and (key.get("rank"), key.get("op_seq")) in here for key in keys)
        collective = finding.get("collective") or {}
        if not ranks or not (named or (collective.get("comm"), collective.get("seq")) == (comm, seq)):
            continue
        found.append(
            {
                "finding": finding["id"],
                "ranks": ranks,
                "sure": not cause["one_of"],
                "edges": _edges_of(cause, keys, comm_id, halves),
            }
        )
    return found


def _edges_of(
    cause: Mapping[str, Any], keys: Sequence[Mapping[str, Any]], comm_id: int, halves: Sequence[Half]
) -> list[list[int]]:
    """Return channel, sender and receiver of the flow that is to blame; on all channels where it names none."""
    flow = cause["flow"]
    if not flow:
        return []
    peer, channel, sends = flow.get("peer"), flow.get("channel"), flow.get("dir") != "recv"
    ends = [rank for rank in cause["ranks"] if rank != peer]
    ends += [
        key["rank"]
        for key in keys
        if key.get("comm_id") == comm_id and key.get("peer") == peer and key.get("dir") == flow.get("dir")
    ]
    known = {
        (row["channel"], *((row["rank"], row["peer"]) if row["dir"] == "send" else (row["peer"], row["rank"])))
        for row in halves
    }
    for rank in ends:
        src, dst = (rank, peer) if sends else (peer, rank)
        found = sorted(edge for edge in known if edge[1:] == (src, dst) and channel in (None, edge[0]))
        if found:
            return [list(edge) for edge in found]
    return []
