"""Operations of profilers whose clocks start with the process: put on one clock, numbered, handed over.

The members of a collective leave it at nearly the same moment (Mycroft's own observation of kernel ends; also the
way multi-rank profiler traces are merged by hand), so the ends of shared operations give the offset between two
clocks: the median over all shared operations. Times stay relative: they are ns since the reference rank's zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from mycroft.loaders.base import LoadContext, LoadReport
from mycroft.loaders.comm_ranks import CommRanks
from mycroft.loaders.op_names import op_kind
from mycroft.loaders.rows import RowBuffer, clip

# Clocks of the epoch and clocks of the process do not meet: 2001 in ns.
EPOCH_CLOCK: Final = 1_000_000_000_000_000_000
_SHARED: Final = 4096


@dataclass(slots=True)
class ProfiledOp:
    """One operation as one rank's profiler saw it; times in ns of that process's clock."""

    file_id: int
    line: int
    clock: int
    hash: int
    comm_rank: int
    seq: int | None
    name: str
    start_ns: int | None
    end_ns: int | None
    enq_ns: int | None = None
    bytes: int | None = None
    count: int | None = None
    dtype: str | None = None
    algo: str | None = None
    proto: str | None = None
    channels: int | None = None
    peer: int | None = None
    stuck: bool = False


def clock_offsets(ops: Iterable[ProfiledOp]) -> dict[int, int]:
    """Return for each clock what must be added to bring it to the lowest-numbered clock it shares operations with.

    Clocks that share nothing with others keep their own zero (offset 0).
    """
    ends: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    clocks: set[int] = set()
    for op in ops:
        clocks.add(op.clock)
        if op.end_ns is not None and op.seq is not None and op.peer is None:
            ends[op.hash, op.seq][op.clock] = op.end_ns
    pairs: dict[tuple[int, int], list[int]] = defaultdict(list)
    for by_clock in ends.values():
        reference = min(by_clock)
        for clock, end in by_clock.items():
            if clock != reference and len(pairs[reference, clock]) < _SHARED:
                pairs[reference, clock].append(by_clock[reference] - end)
    offsets: dict[int, int] = {}
    edges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (reference, clock), values in pairs.items():
        shift = round(median(values))
        edges[reference].append((clock, shift))
        edges[clock].append((reference, -shift))
    for root in sorted(clocks):
        if root in offsets:
            continue
        offsets[root] = 0
        queue = [root]
        while queue:
            here = queue.pop()
            for other, shift in edges[here]:
                if other not in offsets:
                    offsets[other] = offsets[here] + shift
                    queue.append(other)
    return offsets


def emit(
    ops: Sequence[ProfiledOp], ranks: CommRanks, context: LoadContext, reports: dict[int, LoadReport], source: str
) -> None:
    """Hand over operations: `coll_ops` where the rank is certain, `op_perf` events always.

    An operation that had not ended when the profiler gave up is `started` and gets an event of level warning.
    """
    shifted = [op for op in ops if (op.end_ns or op.start_ns or 0) < EPOCH_CLOCK]
    offsets = clock_offsets(shifted)
    numbers: dict[tuple[int, int, int, str], int] = {}
    buffers = {i: (RowBuffer(context, "events", r), RowBuffer(context, "coll_ops", r)) for i, r in reports.items()}
    for op in sorted(ops, key=lambda o: (o.file_id, o.start_ns or 0, o.line)):
        events, colls = buffers[op.file_id]
        shift = offsets.get(op.clock, 0) if (op.end_ns or op.start_ns or 0) < EPOCH_CLOCK else 0
        rank = ranks.global_rank(op.hash, op.comm_rank)
        comm = ranks.comm_id(context, op.hash)
        kind = op_kind(op.name)
        peer = ranks.global_rank(op.hash, op.peer) if op.peer is not None else None
        seq = op.seq
        if seq is None:
            slot = (op.hash, op.comm_rank, -1 if op.peer is None else op.peer, kind)
            seq = numbers.get(slot, 0)
            numbers[slot] = seq + 1
        start = op.start_ns + shift if op.start_ns is not None else None
        dur = op.end_ns - op.start_ns if op.end_ns is not None and op.start_ns is not None else None
        dur = dur if dur is None or dur >= 0 else None
        exact = start is not None and start >= EPOCH_CLOCK
        events.add(
            ts=start if exact else None,
            time_quality="exact" if exact else "order_only",
            rank=rank,
            comm_id=comm,
            comm_rank=op.comm_rank,
            level="warning" if op.stuck else "info",
            kind="op_perf",
            source=source,
            seq=seq,
            op_kind=kind,
            bytes=op.bytes,
            dtype=op.dtype,
            dur_ms=dur / 1e6 if dur is not None else None,
            name="not_ended" if op.stuck else None,
            peer=str(op.peer) if op.peer is not None else None,
            peer_rank=peer,
            text=clip(f"{op.name} {seq} had not ended when the profiler stopped") if op.stuck else None,
            file_id=op.file_id,
            line=op.line,
        )
        if rank is None:
            continue
        colls.add(
            rank=rank,
            comm_id=comm,
            op_seq=seq,
            op_kind=kind,
            op_name=clip(op.name),
            start_ts=start,
            enq_ts=op.enq_ns + shift if op.enq_ns is not None else None,
            kstart_ts=start if op.enq_ns is not None and op.enq_ns != op.start_ns else None,
            dur_ns=None if op.stuck else dur,
            end_is_derived=True,
            state="started" if op.stuck else "completed" if dur is not None else "scheduled",
            is_p2p=op.peer is not None,
            peer=peer,
            bytes=op.bytes,
            in_numel=op.count,
            dtype=op.dtype,
            algo=op.algo,
            proto=op.proto,
            channels=op.channels,
            file_id=op.file_id,
            line=op.line,
        )
    for events, colls in buffers.values():
        events.flush()
        colls.flush()
    ranks.tell(context, f"records of {source}")
