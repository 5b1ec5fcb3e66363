"""Which iteration each operation belongs to: found from the sequence of operations, else windows of 10 s.

The anchor is the class of communicators that meets most rarely and that every rank is in (data parallel groups, as a
rule). One period of its sequence of operations is one iteration, and its number is that of the operation: the same at
every rank, whatever the clocks say and however many rows are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from mycroft.analysis.config import FlowLimits

# Iterations that must be seen for a period to be one.
LEAST_ITERATIONS: Final = 6
# An operation of a few ms in a loop is no iteration that anybody would look at.
LEAST_PERIOD_NS: Final = 50_000_000
LONGEST_PERIOD: Final = 256
COVERAGE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Iterations:
    """Operations with their iteration, and when each iteration was over."""

    ops: pl.DataFrame
    """The operations given, sorted by (rank, enq), with `it` (Int64)."""
    ends: pl.DataFrame
    """(it, start_ns, end_ns), corrected clock; sorted by `it`."""
    by_sequence: bool
    """False: windows of time, no iteration was found."""
    anchors: frozenset[int]
    """Communicators whose operations part the iterations."""


def with_iterations(ops: pl.DataFrame, limits: FlowLimits) -> Iterations:
    """Return each operation's iteration.

    `ops`: rank, comm, seq, src, dst (-1 but for sends and receives), kind, bytes, p2p, enq, end, and `at`, the time of
    its end by the corrected clock. Operations before the first anchor of a rank have none and are left out.
    """
    ops = ops.sort("rank", "enq", "end")
    anchors, period = _anchors(ops)
    if not anchors:
        numbered = ops.with_columns(it=pl.col("at") // limits.window_ns)
        return Iterations(numbered, _ends(numbered), by_sequence=False, anchors=frozenset())
    # What comes before the first operation of a period belongs to it: compute, then synchronise.
    own = pl.when(pl.col("comm").is_in(list(anchors)) & ~pl.col("p2p")).then(pl.col("seq") // period)
    numbered = ops.with_columns(own=own).with_columns(
        it=pl.coalesce("own", pl.col("own").forward_fill().over("rank") + 1)
    )
    numbered = numbered.filter(pl.col("it").is_not_null())
    # A lost anchor would leave its rank one behind: the operation is where the furthest of its members says.
    numbered = numbered.with_columns(it=pl.col("it").max().over("comm", "seq", "src", "dst")).drop("own")
    return Iterations(numbered, _ends(numbered), by_sequence=True, anchors=frozenset(anchors))


def _ends(ops: pl.DataFrame) -> pl.DataFrame:
    # The median over ranks, then what came last of it: one clock that is off moves neither.
    return (
        ops.lazy()
        .group_by("it", "rank")
        .agg(first=pl.col("at").min(), last=pl.col("at").max())
        .group_by("it")
        .agg(start_ns=pl.col("first").median().cast(pl.Int64), end_ns=pl.col("last").quantile(0.9).cast(pl.Int64))
        .sort("it")
        .collect()
    )


def _anchors(ops: pl.DataFrame) -> tuple[list[int], int]:
    """Return the communicators of the anchor class and the operations in one period; none: ([], 0)."""
    calls = (
        ops.lazy()
        .filter(~pl.col("p2p"))
        .group_by("comm", "seq")
        .agg(pl.col("kind").first(), pl.col("bytes").first(), at=pl.col("at").median())
        .sort("comm", "seq")
        .group_by("comm", maintain_order=True)
        .agg("seq", pl.concat_str("kind", pl.lit(" "), pl.col("bytes").fill_null(0)).hash().alias("what"), "at")
        .collect()
    )
    members = dict(
        ops.lazy().filter(~pl.col("p2p")).group_by("comm").agg(pl.col("rank").unique()).collect().iter_rows()
    )
    everyone = ops["rank"].n_unique()
    classes: dict[tuple[int, ...], list[tuple[int, int, float]]] = {}
    for comm, seqs, what, at in calls.iter_rows():
        period = _period(seqs, what)
        if period is None:
            continue
        length = (at[-1] - at[0]) / max(seqs[-1] - seqs[0], 1) * period
        if (seqs[-1] - seqs[0] + 1) < LEAST_ITERATIONS * period or length < LEAST_PERIOD_NS:
            continue
        start = next((n for n, s in enumerate(seqs) if s % period == 0), 0)
        classes.setdefault(tuple(what[start : start + period]), []).append((comm, period, length))
    usable: list[tuple[float, list[int], int]] = []
    for found in classes.values():
        covered = {r for comm, _, _ in found for r in members[comm]}
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
