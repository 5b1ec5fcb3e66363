"""Flow halves and open operations at the end of the evidence: what the wait-for walk over flows looks at.

A flow half is one direction of one connection during one operation, as its own rank's tracer saw it: `posted >= ready,
moved >= done` count chunks. Send: slot posted, filled by the GPU, handed to the network, acknowledged. Receive: buffer
posted, flushed, received, consumed. Only the last row of each half counts, and only of operations that have not ended.

Order decides, clocks do not: times of different hosts are compared only in seconds (ages).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import polars as pl

from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_MS, FlowLimits
from mycroft.analysis.facts import Frames

LAST_STATES: Final = """
SELECT s.rank, s.comm_id AS comm, CAST(s.op_seq AS BIGINT) AS seq, CAST(s.op_kind AS VARCHAR) AS kind, s.channel,
       CAST(s.dir AS VARCHAR) AS dir, s.peer, epoch_ns(s.ts) AS ts, s.chunks_total AS total,
       s.posted, s.ready, s.moved, s.done, s.idle_ms
FROM flow_state s
WHERE s.peer IS NOT NULL
QUALIFY row_number() OVER (
    PARTITION BY s.rank, s.comm_id, s.op_seq, s.op_kind, s.channel, s.dir, s.peer ORDER BY s.ts DESC
) = 1
ORDER BY s.rank, s.comm_id, s.op_seq, s.op_kind, s.channel, s.dir, s.peer
"""
ENDED: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, channel, CAST(dir AS VARCHAR) AS dir, peer,
       max(epoch_ns(end_ts)) AS end_ns, max(slices) AS slices
FROM flow_ops
WHERE peer IS NOT NULL
GROUP BY ALL
ORDER BY ALL
"""
OPEN_OPS: Final = """
SELECT rank, comm_id AS comm, CAST(op_seq AS BIGINT) AS seq, CAST(pair_seq AS BIGINT) AS pair,
       CAST(op_kind AS VARCHAR) AS kind, coalesce(is_p2p, FALSE) AS p2p, peer, epoch_ns(enq_ts) AS enq,
       epoch_ns(kstart_ts) AS kstart, algo, proto,
       CAST(state AS VARCHAR) AS state, coalesce(retired, FALSE) AS retired
FROM coll_ops
WHERE rank IN (SELECT rank FROM rank_dumps WHERE kind = 'ring')
ORDER BY rank, comm_id, record_id
"""
BEATS: Final = """
SELECT rank, max(epoch_ns(sampler_ts)) AS last, max(epoch_ns(last_progress_ts)) AS progress,
       arg_max(pid_alive, epoch_ns(ts)) FILTER (WHERE ts > sampler_ts) AS alive
FROM heartbeat
GROUP BY rank
ORDER BY rank
"""
REACHED: Final = """
SELECT comm_id AS comm, rank, max(last_enqueued) AS last
FROM group_status
WHERE last_enqueued IS NOT NULL
GROUP BY ALL
ORDER BY ALL
"""
LISTED: Final = """
SELECT m.comm_id AS comm, m.rank
FROM members m
ORDER BY m.comm_id, m.rank
"""
# What goes up a tree has ended before what comes down has, at the same rank and by its own clock.
TREE_ENDS: Final = """
SELECT s.rank, s.comm_id AS comm, s.channel, s.peer,
       sum(sign(epoch_ns(r.end_ts) - epoch_ns(s.end_ts))) AS votes
FROM flow_ops s
JOIN flow_ops r
    ON r.rank = s.rank AND r.comm_id = s.comm_id AND r.op_seq = s.op_seq AND r.channel = s.channel AND r.peer = s.peer
JOIN coll_ops o
    ON o.rank = s.rank AND o.comm_id = s.comm_id AND o.op_seq = s.op_seq AND o.algo = 'TREE' AND o.state = 'completed'
WHERE s.dir = 'send' AND r.dir = 'recv'
GROUP BY ALL
ORDER BY ALL
"""
RING_DUMPS: Final = """
SELECT rank, coalesce(has_timing, FALSE) AS kernels, lib_version
FROM rank_dumps
WHERE kind = 'ring'
ORDER BY rank
"""

# Chunks in flight per connection: NCCL has eight slots and moves two at a time in rings of the simple protocol.
SLOTS: Final = 8
_DOUBLED_KINDS: Final = ("all_reduce", "all_gather", "reduce_scatter")
_RAW_STEPS: Final = "NCCL profiler ABI v1"
SLICES_PER_CHUNK: Final = 2


class OpKey(NamedTuple):
    """An operation: number in its communicator; a send/recv also by its pair, whose own number `seq` then is."""

    comm: int
    seq: int
    src: int = -1
    dst: int = -1

    @property
    def p2p(self) -> bool:
        """A send or receive."""
        return self.src >= 0


class FlowKey(NamedTuple):
    """A flow: both halves together."""

    op: OpKey
    channel: int
    src: int
    dst: int


@dataclass(frozen=True, slots=True)
class Half:
    """The last word on one half of a flow. `ended`: it finished, so it stands nowhere."""

    rank: int
    total: int
    posted: int
    ready: int
    moved: int
    done: int
    idle_ns: int
    ts: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class OpenOp:
    """An operation that a rank is inside of.

    `started`: its kernel has; None where no kernel events were asked for. `aborted`: the job gave it up.
    """

    rank: int
    key: OpKey
    kind: str
    enq: int | None
    started: bool | None
    aborted: bool = False


@dataclass(frozen=True)
class Snapshot:
    """Everything at the moment the evidence ends."""

    at_ns: int
    """Time of the newest sign of any sampler."""
    ranks: tuple[int, ...]
    """Ranks with a trace of their own."""
    silent: Mapping[int, bool | None]
    """Rank that does not run any more -> whether its process still exists (stopped); None: nobody can say."""
    progress: Mapping[int, int]
    """Rank -> time of its last progress."""
    heard: Mapping[int, int]
    """Rank -> time of its last sample."""
    open: Mapping[int, tuple[OpenOp, ...]]
    members: Mapping[int, tuple[int, ...]]
    reached: Mapping[tuple[int, int], int]
    """(comm, rank) -> newest collective enqueued; absent: none, as far as known."""
    finished: frozenset[tuple[int, OpKey]]
    algo: Mapping[OpKey, tuple[str, str, str]]
    """Operation -> kind, algorithm, protocol."""
    send: Mapping[FlowKey, Half]
    recv: Mapping[FlowKey, Half]
    parents: Mapping[tuple[int, int, int, int], bool] = field(default_factory=dict[tuple[int, int, int, int], bool])
    """(comm, channel, rank, peer) -> whether the peer is the rank's parent in the tree, from operations that ended."""
    raw_steps: bool = False

    @cached_property
    def flows(self) -> tuple[FlowKey, ...]:
        """Every flow of which one half is known, in order."""
        return tuple(sorted({*self.send, *self.recv}))

    @cached_property
    def of_op(self) -> Mapping[OpKey, tuple[FlowKey, ...]]:
        """The flows of each operation."""
        found: dict[OpKey, list[FlowKey]] = defaultdict(list)
        for key in self.flows:
            found[key.op].append(key)
        return {op: tuple(keys) for op, keys in found.items()}

    def slots(self, op: OpKey) -> int:
        """Chunks in flight that a connection holds for this operation."""
        kind, algo, proto = self.algo.get(op, ("", "", ""))
        doubled = kind in _DOUBLED_KINDS and algo == "RING" and proto == "SIMPLE"
        return SLOTS // SLICES_PER_CHUNK if doubled and not self.raw_steps else SLOTS

    def sends_of(self, op: OpKey, channel: int, rank: int) -> list[FlowKey]:
        """The flows that `rank` sends on in one channel of one operation."""
        return [k for k in self.of_op.get(op, ()) if k.channel == channel and k.src == rank]

    def recvs_of(self, op: OpKey, channel: int, rank: int) -> list[FlowKey]:
        """The flows that `rank` receives on in one channel of one operation."""
        return [k for k in self.of_op.get(op, ()) if k.channel == channel and k.dst == rank]

    def enqueued(self, rank: int, op: OpKey) -> bool:
        """Whether `rank` has enqueued the operation, as far as its trace shows."""
        if (rank, op) in self.finished or any(o.key == op for o in self.open.get(rank, ())):
            return True
        return not op.p2p and self.reached.get((op.comm, rank), -1) >= op.seq


@dataclass(slots=True)
class _Building:
    send: dict[FlowKey, Half] = field(default_factory=dict[FlowKey, Half])
    recv: dict[FlowKey, Half] = field(default_factory=dict[FlowKey, Half])


def read_snapshot(store: Frames, limits: FlowLimits = FLOW_DEFAULTS) -> Snapshot | None:
    """Return the snapshot, None where no tracer left anything. Ranks without a trace are absent from it."""
    rings = store.frame(RING_DUMPS)
    if rings.is_empty():
        return None
    kernels = {int(r): bool(k) for r, k in rings.select("rank", "kernels").iter_rows()}
    beats = {int(r["rank"]): r for r in store.frame(BEATS).to_dicts()}
    heard = {r: int(b["last"]) for r, b in beats.items() if b["last"] is not None}
    at_ns = max(heard.values(), default=0)
    silent = {rank: beats[rank]["alive"] for rank, last in heard.items() if at_ns - last > limits.silent_ns}
    ops = store.frame(OPEN_OPS)
    reached = {(int(c), int(r)): int(n) for c, r, n in store.frame(REACHED).iter_rows()}
    open_ops, finished, algo = _operations(ops, kernels, reached)
    halves = _halves(store.frame(LAST_STATES), store.frame(ENDED), finished)
    members: dict[int, list[int]] = defaultdict(list)
    for comm, rank in store.frame(LISTED).iter_rows():
        members[int(comm)].append(int(rank))
    return Snapshot(
        at_ns=at_ns,
        ranks=tuple(sorted(kernels)),
        silent=silent,
        progress={r: int(b["progress"]) for r, b in beats.items() if b["progress"] is not None},
        heard=heard,
        open=open_ops,
        members={c: tuple(m) for c, m in members.items()},
        reached=reached,
        finished=finished,
        algo=algo,
        send=halves.send,
        recv=halves.recv,
        parents=_parents(store),
        raw_steps=any(str(v) == _RAW_STEPS for v in rings["lib_version"]),
    )


def _parents(store: Frames) -> dict[tuple[int, int, int, int], bool]:
    found: dict[tuple[int, int, int, int], bool] = {}
    for row in store.frame(TREE_ENDS).to_dicts():
        if row["votes"]:
            found[int(row["comm"]), int(row["channel"]), int(row["rank"]), int(row["peer"])] = row["votes"] > 0
    return found


def op_key(rank: int, row: Mapping[str, object]) -> OpKey:
    """Return the key that both sides of an operation share."""
    comm = int(str(row["comm"]))
    if row["kind"] not in ("send", "recv") or row["peer"] is None:
        return OpKey(comm, int(str(row["seq"])))
    peer = int(str(row["peer"]))
    number = row.get("pair", row["seq"])
    src, dst = (rank, peer) if row["kind"] == "send" else (peer, rank)
    return OpKey(comm, int(str(number if number is not None else row["seq"])), src, dst)


def _operations(
    ops: pl.DataFrame, kernels: Mapping[int, bool], reached: dict[tuple[int, int], int]
) -> tuple[dict[int, tuple[OpenOp, ...]], frozenset[tuple[int, OpKey]], dict[OpKey, tuple[str, str, str]]]:
    open_ops: dict[int, list[OpenOp]] = defaultdict(list)
    finished: set[tuple[int, OpKey]] = set()
    algo: dict[OpKey, tuple[str, str, str]] = {}
    for row in ops.to_dicts():
        if row["seq"] is None:
            continue
        rank = int(row["rank"])
        key = op_key(rank, row)
        algo.setdefault(key, (str(row["kind"]), str(row["algo"] or ""), str(row["proto"] or "")))
        if not key.p2p:
            reached[key.comm, rank] = max(reached.get((key.comm, rank), -1), key.seq)
        if row["state"] in ("scheduled", "started", "aborted") and not row["retired"]:
            started = row["kstart"] is not None if kernels.get(rank) else None
            open_ops[rank].append(OpenOp(rank, key, str(row["kind"]), row["enq"], started, row["state"] == "aborted"))
        else:
            finished.add((rank, key))
    return {r: tuple(_first_of_each(found)) for r, found in open_ops.items()}, frozenset(finished), algo


def _first_of_each(ops: Iterable[OpenOp]) -> list[OpenOp]:
    """Keep the oldest open collective of each communicator and every send/recv: what is behind it waits for it."""
    kept: list[OpenOp] = []
    seen: set[int] = set()
    for item in ops:
        if not item.key.p2p:
            if item.key.comm in seen:
                continue
            seen.add(item.key.comm)
        kept.append(item)
    # A send that nobody receives yet does not hold its rank up while the rank is inside of something else.
    waiting = [o for o in kept if not (o.key.p2p and o.key.src == o.rank)]
    return waiting or kept


def _halves(states: pl.DataFrame, ended: pl.DataFrame, finished: frozenset[tuple[int, OpKey]]) -> _Building:
    built = _Building()
    ends = {
        (int(r["rank"]), int(r["comm"]), int(r["seq"]), int(r["channel"]), str(r["dir"]), int(r["peer"])): r
        for r in ended.to_dicts()
    }
    for row in states.to_dicts():
        rank, peer, channel = int(row["rank"]), int(row["peer"]), int(row["channel"] or 0)
        op = op_key(rank, row)
        if (rank, op) in finished:
            continue
        send = row["dir"] == "send"
        key = FlowKey(op, channel, rank if send else peer, peer if send else rank)
        end = ends.get((rank, op.comm, int(row["seq"]), channel, str(row["dir"]), peer))
        over = end is not None and end["slices"] is not None and int(end["slices"]) >= int(row["total"])
        total = int(row["total"])
        half = Half(
            rank=rank,
            total=total,
            posted=total if over else int(row["posted"]),
            ready=total if over else int(row["ready"]),
            moved=total if over else int(row["moved"]),
            done=total if over else int(row["done"]),
            idle_ns=int(row["idle_ms"] or 0) * NS_PER_MS,
            ts=int(row["ts"]),
            ended=over,
        )
        (built.send if send else built.recv)[key] = half
    return built
