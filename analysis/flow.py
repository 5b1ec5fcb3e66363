"""Flow halves and open operations at one moment: what the wait-for walk over flows looks at.

A flow half is one direction of one connection during one operation, as its own rank's tracer saw it: `posted >= ready,
moved >= done` count chunks. Send: slot posted, filled by the GPU, handed to the network, acknowledged. Receive: buffer
posted, flushed, received, consumed. Only the last row of each half counts, and only of operations that have not ended.

Order decides, clocks do not: times of different hosts are compared only in seconds (ages).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

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


class Half(NamedTuple):
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


class OpenOp(NamedTuple):
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
    """The moment, by the corrected clock; where none was asked for, the newest sign of any sampler."""
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
    unnamed: frozenset[int] = frozenset()
    """Ranks whose tracer says that operations are open which no row names: rows were lost."""
    side_senders: frozenset[int] = frozenset()
    """Ranks whose pending sends do not hold them up."""
    pause_ns: int = 0
    """Longest pause of the whole job that it got over."""
    loss: float = 0.0
    lost: frozenset[int] = frozenset()
    """Silent ranks whose agents are silent too, and of whom the job went on to hear: nothing is known of them here."""
    hosts: Mapping[int, int] = field(default_factory=dict[int, int])
    """Rank -> host. Ranks of one host pass data on without the network, and leave no rows of that."""
    """Share of the heartbeats that are missing, as a measure of lost rows."""

    @cached_property
    def traced(self) -> frozenset[int]:
        """`ranks` as a set."""
        return frozenset(self.ranks)

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

    @cached_property
    def _ends(self) -> Mapping[tuple[OpKey, int, int, bool], list[FlowKey]]:
        found: dict[tuple[OpKey, int, int, bool], list[FlowKey]] = defaultdict(list)
        for key in self.flows:
            found[key.op, key.channel, key.src, True].append(key)
            found[key.op, key.channel, key.dst, False].append(key)
        return dict(found)

    @cached_property
    def at_rank(self) -> Mapping[tuple[OpKey, int], list[FlowKey]]:
        """The flows of an operation that a rank is an end of."""
        found: dict[tuple[OpKey, int], list[FlowKey]] = defaultdict(list)
        for key in self.flows:
            found[key.op, key.src].append(key)
            found[key.op, key.dst].append(key)
        return dict(found)

    @cached_property
    def started(self) -> Mapping[tuple[int, OpKey], bool | None]:
        """(rank, operation) that the rank is inside of -> whether its kernel has started; None: not seen."""
        return {(o.rank, o.key): o.started for ops in self.open.values() for o in reversed(ops)}

    @cached_property
    def _on_host(self) -> Mapping[tuple[int, int], tuple[int, ...]]:
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        for comm, ranks in self.members.items():
            for rank in ranks:
                if rank in self.hosts:
                    found[comm, self.hosts[rank]].append(rank)
        return {place: tuple(sorted(ranks)) for place, ranks in found.items()}

    def beside(self, rank: int, op: OpKey) -> tuple[int, ...]:
        """The other members of a collective on the host of a rank; none where its host is not known."""
        if op.p2p or rank not in self.hosts:
            return ()
        return tuple(r for r in self._on_host.get((op.comm, self.hosts[rank]), ()) if r != rank)

    @cached_property
    def _with_parent(self) -> frozenset[tuple[int, int, int]]:
        return frozenset((comm, channel, rank) for (comm, channel, rank, _), up in self.parents.items() if up)

    def has_parent(self, comm: int, channel: int, rank: int) -> bool:
        """Whether operations that ended show a parent of the rank in the tree: what it sent up may have ended too."""
        return (comm, channel, rank) in self._with_parent

    def sends_of(self, op: OpKey, channel: int, rank: int) -> list[FlowKey]:
        """The flows that `rank` sends on in one channel of one operation."""
        return self._ends.get((op, channel, rank, True), [])

    def recvs_of(self, op: OpKey, channel: int, rank: int) -> list[FlowKey]:
        """The flows that `rank` receives on in one channel of one operation."""
        return self._ends.get((op, channel, rank, False), [])

    def enqueued(self, rank: int, op: OpKey) -> bool:
        """Whether `rank` has enqueued the operation, as far as its trace shows."""
        if (rank, op) in self.finished or (rank, op) in self.started:
            return True
        return not op.p2p and self.reached.get((op.comm, rank), -1) >= op.seq
