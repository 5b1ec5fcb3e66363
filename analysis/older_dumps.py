"""Dumps that are older than those of the peers: what their ranks did last is not in them.

Somebody may dump the ranks of a running job one after the other, and a dump of an earlier run may lie beside those of
this one. A rank looks behind then, or stuck, and is neither. Two things prove it: the dump ends half a day away from
those of most others; or a peer got out of an operation that nobody leaves before all are in, went on, and this dump
does not have that operation yet.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Final, Protocol

import polars as pl

# Clocks of hosts may be wrong, by a time zone at most.
APART_NS: Final = 12 * 3_600_000_000_000
_SYNCHRONISING: Final = ("all_reduce", "all_gather", "reduce_scatter", "barrier")
"""Nobody gets out of these before everybody is in; of an all-to-all that may be so, where nothing is sent."""


class _Dump(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def last_ns(self) -> int | None: ...
    @property
    def has_events(self) -> bool: ...
    @property
    def only_active(self) -> bool: ...


class _Group(Protocol):
    @property
    def members(self) -> tuple[int, ...]: ...
    @property
    def declared(self) -> bool: ...


def older_dumps(ops: pl.DataFrame, groups: Mapping[int, _Group], dumps: Mapping[int, _Dump]) -> frozenset[int]:
    """Return the ranks whose dump shows an earlier moment than the dumps of their peers.

    Args:
        ops: All operations: rank, comm, seq, kind, enq, seen_end (ns, null if not known), completed, p2p.
        groups: The process groups by their number; those whose members are not listed, or that send, are left out.
        dumps: The dump of each rank. The tracer's rings, and recorders without events, are left out.
    """
    known = {r: d for r, d in dumps.items() if d.kind == "flight_recorder" and d.has_events and not d.only_active}
    if len(known) < 2:
        return frozenset()
    found = _other_run(known)
    # Sends may count in the numbers of collectives, on the ranks that send (torch up to 2.5).
    mixed = ops.filter(pl.col("p2p") | (pl.col("kind") == "coalesced"))["comm"].unique()
    calls = ops.filter(
        ~pl.col("comm").is_in(mixed.implode())
        & pl.col("seq").is_not_null()
        & pl.col("rank").is_in(sorted(known.keys() - found))
    )
    reached = {
        (comm, rank): seq for comm, rank, seq in calls.group_by("comm", "rank").agg(pl.col("seq").max()).iter_rows()
    }
    ended: dict[int, int] = {}
    for comm, seq in _left(calls).group_by("comm").agg(pl.col("seq").max()).iter_rows():
        ended[comm] = seq
    behind = {
        rank
        for comm, seq in ended.items()
        if groups[comm].declared
        for rank in groups[comm].members
        if reached.get((comm, rank), seq) < seq
    }
    return frozenset(found | behind)


def _other_run(dumps: Mapping[int, _Dump]) -> set[int]:
    """Return the ranks whose dump ends half a day or more away from those of most others."""
    ends = {rank: dump.last_ns for rank, dump in dumps.items() if dump.last_ns is not None}
    if len(ends) < 3:
        return set()
    middle = statistics.median(ends.values())
    apart = {rank for rank, end in ends.items() if abs(end - middle) > APART_NS}
    return apart if 2 * len(apart) < len(ends) else set()


def _left(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the operations that a rank surely got out of: after their end it issued another, which ended as well.

    An aborted communicator ends what is stuck in it, but nothing that is issued after that.
    """
    ended = pl.col("completed") & pl.col("seen_end").is_not_null()
    last = calls.filter(ended & pl.col("enq").is_not_null()).group_by("rank").agg(pl.col("enq").max().alias("last_enq"))
    return (
        calls.filter(ended & pl.col("kind").is_in(_SYNCHRONISING))
        .join(last, on="rank")
        .filter(pl.col("seen_end") < pl.col("last_enq"))
    )
