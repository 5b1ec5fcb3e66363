"""Which iteration each operation belongs to: found from the sequence of operations, else windows of 10 s.

The anchor is the class of communicators that meets most rarely and that every rank is in (data parallel groups, as a
rule). One period of its sequence of operations is one iteration, and its number is that of the operation: the same at
every rank, whatever the clocks say and however many rows are lost.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import polars as pl

from mycroft.analysis.config import FlowLimits
from mycroft.analysis.grouped import Groups, Ints, Mask, packed

# Iterations that must be seen for a period to be one.
LEAST_ITERATIONS: Final = 6
# An operation of a few ms in a loop is no iteration that anybody would look at.
LEAST_PERIOD_NS: Final = 50_000_000
LONGEST_PERIOD: Final = 256
COVERAGE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Operations:
    """Finished operations as columns, a row per rank and operation, in any order; times in ns."""

    rank: Ints
    comm: Ints
    seq: Ints
    """-1: not numbered."""
    src: Ints
    dst: Ints
    """Ends of a send or receive, -1 of a collective, -2: not known."""
    kind: Ints
    """Position in `vocabulary.OP_KINDS`."""
    p2p: Mask
    bytes: Ints
    enq: Ints
    end: Ints
    """By the clock of the rank."""
    at: Ints
    """The same by the corrected clock."""

    def where(self, kept: Mask) -> Operations:
        """Return some of the rows."""
        return Operations(*(getattr(self, f.name)[kept] for f in fields(self)))

    def __len__(self) -> int:
        return len(self.rank)


@dataclass(frozen=True, slots=True)
class Iterations:
    """Operations with their iteration, and when each iteration was over."""

    ops: Operations
    it: Ints
    """Iteration of each row."""
    numbers: Ints
    """The iterations, rising."""
    starts: Ints
    ends: Ints
    """When each was begun and over, ns, corrected clock."""
    by_sequence: bool
    """False: windows of time, no iteration was found."""
    anchors: frozenset[int]
    """Communicators whose operations part the iterations."""
    kept: Mask
    """Of the rows given, those that have an iteration; the others came before the first anchor of their rank."""
    same: Groups
    """The rows of each operation."""

    def row_of(self, it: Ints) -> Ints:
        """Return the place of each of some iterations among all."""
        return np.searchsorted(self.numbers, it)


def in_order_of_issue(ops: Operations) -> Ints:
    """Return the rows rank by rank, as each rank issued them."""
    issued = packed(ops.rank, ops.enq)
    order = np.argsort(issued, kind="stable")
    ranked = issued[order]
    if (ranked[1:] == ranked[:-1]).any():
        return np.lexsort((ops.end, issued))
    return order


def with_iterations(ops: Operations, order: Ints, limits: FlowLimits) -> Iterations:
    """Return each operation's iteration; `order` as `in_order_of_issue` gives it.

    Operations before the first anchor of a rank have none and are left out.
    """
    anchors, period = _anchors(ops)
    if not anchors:
        same = Groups(ops.comm, ops.seq, ops.src, ops.dst)
        return _timed(ops, ops.at // limits.window_ns, frozenset(), np.ones(len(ops), dtype=bool), same)
    # What comes before the first operation of a period belongs to it: compute, then synchronise.
    own = np.isin(ops.comm, anchors) & ~ops.p2p & (ops.seq >= 0)
    number = np.zeros(len(ops), dtype=np.int64)
    number[own] = ops.seq[own] // period
    ranks, marked = ops.rank[order], own[order]
    last = np.maximum.accumulate(np.where(marked, np.arange(len(order)), -1))
    known = (last >= 0) & (ranks == ranks[last])
    it, kept = np.empty(len(ops), dtype=np.int64), np.empty(len(ops), dtype=bool)
    it[order] = number[order[last]] + ~marked
    kept[order] = known
    if not kept.all():
        ops, it = ops.where(kept), it[kept]
    # A lost anchor would leave its rank one behind: the operation is where the furthest of its members says.
    same = Groups(ops.comm, ops.seq, ops.src, ops.dst)
    return _timed(ops, same.largest(it)[same.of_row], frozenset(anchors), kept, same)


def _timed(ops: Operations, it: Ints, anchors: frozenset[int], kept: Mask, same: Groups) -> Iterations:
    per_rank = Groups(it, ops.rank)
    # The median over ranks, then what came last of it: one clock that is off moves neither.
    per = (
        pl.DataFrame({"it": it[per_rank.first], "first": per_rank.least(ops.at), "last": per_rank.largest(ops.at)})
        .group_by("it")
        .agg(start_ns=pl.col("first").median().cast(pl.Int64), end_ns=pl.col("last").quantile(0.9).cast(pl.Int64))
        .sort("it")
    )
    numbers, starts, ends = (per[name].to_numpy() for name in ("it", "start_ns", "end_ns"))
    return Iterations(ops, it, numbers, starts, ends, bool(anchors), anchors, kept, same)


def _anchors(ops: Operations) -> tuple[list[int], int]:
    """Return the communicators of the anchor class and the operations in one period; none: ([], 0)."""
    plain = ~ops.p2p & (ops.seq >= 0)
    comm, seq, at = ops.comm[plain], ops.seq[plain], ops.at[plain]
    calls = Groups(comm, seq)
    # What is called, by its kind and size.
    what = calls.largest(packed(ops.kind[plain], ops.bytes[plain]))
    numbers, middles = seq[calls.first], calls.medians(at)
    of_comm = comm[calls.first]
    everyone = len(np.unique(ops.rank))
    members = Groups(comm, ops.rank[plain])
    with_rank, rank = comm[members.first], ops.rank[plain][members.first]
    classes: dict[tuple[int, ...], list[tuple[int, int, float]]] = {}
    periods: dict[tuple[tuple[int, ...], tuple[int, ...]], int | None] = {}
    by_comm = Groups(of_comm)
    all_seqs, all_words = numbers.tolist(), what.tolist()
    for begun, ended in by_comm.spans():
        one, seqs, words = int(of_comm[begun]), all_seqs[begun:ended], all_words[begun:ended]
        # Most do the same as others do.
        same = tuple(seqs), tuple(words)
        if same not in periods:
            periods[same] = _period(seqs, words)
        period = periods[same]
        if period is None:
            continue
        length = float(middles[ended - 1] - middles[begun]) / max(seqs[-1] - seqs[0], 1) * period
        if (seqs[-1] - seqs[0] + 1) < LEAST_ITERATIONS * period or length < LEAST_PERIOD_NS:
            continue
        start = next((n for n, s in enumerate(seqs) if s % period == 0), 0)
        classes.setdefault(tuple(words[start : start + period]), []).append((one, period, length))
    usable: list[tuple[float, list[int], int]] = []
    for found in classes.values():
        covered = np.unique(rank[np.isin(with_rank, [comm for comm, _, _ in found])])
        if len(covered) >= COVERAGE * everyone:
            lengths = sorted(length for _, _, length in found)
            usable.append((lengths[len(lengths) // 2], sorted(c for c, _, _ in found), found[0][1]))
    if not usable:
        return [], 0
    _, comms, period = max(usable)
    return comms, period


def _period(seqs: list[int], what: list[int]) -> int | None:
    """Return the least period of a sequence of operations, allowing for lost rows; None: there is none."""
    if len(seqs) < LEAST_ITERATIONS:
        return None
    by_seq = dict(zip(seqs, what, strict=True))
    for period in range(1, min(LONGEST_PERIOD, len(seqs) // 2) + 1):
        # The first few tell most wrong periods.
        sample = seqs[: 4 * period + 16]
        if any(by_seq.get(s + period, w) != w for s, w in zip(sample, what, strict=False)):
            continue
        same = sum(by_seq.get(s + period, w) == w for s, w in zip(seqs, what, strict=True))
        if same >= 0.98 * len(seqs):
            return period
    return None
