"""The operations of all ranks, matched: who issued which operation of which group, and who got through it.

A collective is matched by (group, sequence number). A send/recv is matched by (group, source, destination, n): the
n-th send of a pair belongs to the n-th receive. Ring buffers forget the oldest entries, so n is counted from the
first operation that is still open on both sides when either dump is cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import polars as pl

from mycroft.analysis.facts import Facts

# Nobody gets out of these before everybody is in. A broadcast's root, or a sender, may.
SYNCHRONISING: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")


@dataclass(frozen=True, slots=True)
class Open:
    """The first operation of one group (or of one pair) that one rank has issued and not got through."""

    rank: int
    comm: int
    seq: int
    kind: str
    record: int
    enq: int | None
    started: bool
    file: int
    line: int | None
    peer: int | None = None
    failed: bool = False
    """The recorder says it ended, but it cannot have: somebody never joined."""
    depth: int = 1
    """Operations of that group (or pair) that are open on this rank."""

    @property
    def p2p(self) -> bool:
        """Say whether it is a send or a receive."""
        return self.kind in ("send", "recv")


@dataclass(frozen=True)
class Matched:
    """What `match` returns. Frames are sorted by (comm, seq, rank) or (rank, record)."""

    calls: pl.DataFrame
    """Collectives, one row per (comm, seq, rank): `done` is the effective end, `failed` as in `Open`."""
    pairs: pl.DataFrame
    """Sends and receives, one row each, with `done` taken from the closing entry of their batch."""
    opens: Mapping[int, tuple[Open, ...]]
    """rank -> its open operations, oldest first, one per group or pair."""
    last: Mapping[tuple[int, int], int]
    """(comm, rank) -> highest sequence number issued; absent: unknown."""
    first: Mapping[tuple[int, int], int]
    """(comm, rank) -> lowest sequence number still in the ring buffer."""
    passed: frozenset[tuple[int, int]] = frozenset()
    """Operations that some ranks went past although another had not issued them when its dump was written: the job
    ran on between the two dumps.
    """

    at_least: frozenset[tuple[int, int]] = frozenset()
    """(comm, rank) whose `last` is only what is left of a dump that was cut short."""

    @cached_property
    def counts(self) -> pl.DataFrame:
        """One row per collective: how many issued it, got through it, when the first and last came."""
        return (
            self.calls.lazy()
            .group_by("comm", "seq")
            .agg(
                pl.len().alias("issued"),
                pl.col("done").sum().alias("done"),
                pl.col("enq").min().alias("first_enq"),
                pl.col("enq").max().alias("last_enq"),
                pl.col("kind").first().alias("kind"),
            )
            .sort("comm", "seq")
            .collect()
        )

    def issued(self, comm: int, rank: int, seq: int) -> bool | None:
        """Say whether `rank` issued that collective; None: its evidence does not say."""
        last = self.last.get((comm, rank))
        if last is None or (last < seq and (comm, rank) in self.at_least):
            return None
        return last >= seq


def match(facts: Facts) -> Matched:
    """Match the operations of all ranks. Pure column work; only open operations become objects."""
    eventless = [rank for rank, dump in facts.dumps.items() if not dump.has_events]
    ops = facts.ops.with_columns(
        done=pl.when(pl.col("rank").is_in(eventless)).then(pl.col("retired")).otherwise(pl.col("completed"))
    )
    ops = _close_batches(ops)
    calls = _collectives(ops)
    pairs = ops.filter(pl.col("kind").is_in(["send", "recv"]))
    last, first = _reach(facts, calls)
    calls, passed = _mark_failed(facts, calls, last)
    calls = _end_with_the_others(facts, calls, eventless)
    told = {key for key, status in facts.status.items() if status.last_enqueued is not None}
    at_least = frozenset(k for k in last if k not in told and (d := facts.dumps.get(k[1])) is not None and d.cut)
    return Matched(calls, pairs, _open_operations(calls, pairs), last, first, passed, at_least)


def _close_batches(ops: pl.DataFrame) -> pl.DataFrame:
    """Give the members of a coalesced batch the state of its closing entry, and drop the closing entries.

    Members have no events of their own: they read `scheduled` for ever (pytorch issue 137969).
    """
    closing = ops.filter(pl.col("kind") == "coalesced")
    if closing.is_empty():
        return ops
    rest = ops.filter(pl.col("kind") != "coalesced")
    members = rest.filter(pl.col("coalesced"))
    ends = closing.select(
        "rank", "comm", "record", "done", "completed", "started", "retired", "seen_start", "seen_end", "dur"
    ).sort("record")
    joined = members.sort("record").join_asof(
        ends, on="record", by=["rank", "comm"], strategy="forward", suffix="_end", check_sortedness=False
    )
    state = ["done", "completed", "started", "retired", "seen_start", "seen_end", "dur"]
    closed = joined.with_columns(
        pl.when(pl.col("done_end").is_null()).then(pl.col(c)).otherwise(pl.col(f"{c}_end")).alias(c) for c in state
    ).select(rest.columns)
    return pl.concat([rest.filter(~pl.col("coalesced")), closed]).sort("rank", "record")


def _collectives(ops: pl.DataFrame) -> pl.DataFrame:
    """Return one row per (comm, seq, rank); the parts of a coalesced collective become one row."""
    calls = ops.filter(~pl.col("p2p") & ~pl.col("kind").is_in(["send", "recv"]) & pl.col("seq").is_not_null())
    calls = calls.sort("comm", "seq", "rank", "record")
    same = pl.struct("comm", "seq", "rank")
    if calls.select(same.is_duplicated().any()).item():
        calls = calls.unique(["comm", "seq", "rank"], keep="first", maintain_order=True)
    return calls.with_columns(failed=pl.lit(value=False))


def _reach(facts: Facts, calls: pl.DataFrame) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
    """Return the highest and lowest sequence number of every rank in every group."""
    spans = calls.group_by("comm", "rank").agg(pl.col("seq").min().alias("low"), pl.col("seq").max().alias("high"))
    last: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    for comm, rank, low, high in spans.iter_rows():
        last[comm, rank] = high
        first[comm, rank] = low
    mixed = set(facts.ops.filter(pl.col("p2p"))["comm"].unique().to_list())
    for (comm, rank), status in facts.status.items():
        # After a send/recv the status holds the p2p counter, so it counts only where a group has none.
        if comm not in mixed and status.last_enqueued is not None:
            last[comm, rank] = max(last.get((comm, rank), -1), status.last_enqueued)
        elif comm not in mixed:
            last.setdefault((comm, rank), -1)
    for group in facts.groups.values():
        for rank in group.members:
            dump = facts.dumps.get(rank)
            # A dump that still holds the first operation of its process holds them all.
            if dump is not None and not dump.only_active and dump.first_record == 0:
                last.setdefault((group.comm, rank), -1)
    return last, first


def _mark_failed(
    facts: Facts, calls: pl.DataFrame, last: Mapping[tuple[int, int], int]
) -> tuple[pl.DataFrame, frozenset[tuple[int, int]]]:
    """Mark the collectives that were retired although a member with a dump never issued them.

    Event-less recorders retire an operation when it ends *or throws*: without this, a job that died looks healthy.
    A rank that went on to another group after it shows that it did end: then the dumps are of different moments.
    """
    witnesses = {
        comm: [r for r in g.members if (d := facts.dumps.get(r)) is not None and not d.only_active]
        for comm, g in facts.groups.items()
    }
    counts = pl.DataFrame(
        {"comm": list(witnesses), "members": [len(w) for w in witnesses.values()]},
        schema={"comm": pl.Int32, "members": pl.Int64},
    )
    short = (
        calls.filter(pl.col("kind").is_in(SYNCHRONISING))
        .group_by("comm", "seq")
        .agg(pl.col("rank").n_unique().cast(pl.Int64).alias("issued"), pl.col("done").any().alias("done"))
        .filter(pl.col("done"))
        .join(counts, on="comm")
        .filter(pl.col("issued") < pl.col("members"))
        .sort("comm", "seq")
    )
    broken = [
        (comm, seq)
        for comm, seq in short.select("comm", "seq").iter_rows()
        if any(-1 <= last.get((comm, r), seq) < seq for r in witnesses[comm])
    ]
    beyond = {
        (rank, comm): record
        for rank, comm, record in calls.group_by("rank", "comm").agg(pl.col("record").max()).iter_rows()
    }
    own: dict[int, dict[int, int]] = defaultdict(dict)
    for (rank, comm), record in beyond.items():
        own[rank][comm] = record
    where = calls.select("comm", "seq", "rank", "record").join(
        pl.DataFrame(broken, schema={"comm": pl.Int32, "seq": pl.Int64}, orient="row"), on=["comm", "seq"]
    )
    passed = frozenset(
        (comm, seq)
        for comm, seq, rank, record in where.iter_rows()
        if any(other != comm and there > record for other, there in own[rank].items())
    )
    broken = [op for op in broken if op not in passed]
    if not broken:
        return calls, passed
    marks = pl.DataFrame(broken, schema={"comm": pl.Int32, "seq": pl.Int64}, orient="row").with_columns(hit=pl.lit(1))
    return (
        calls.join(marks, on=["comm", "seq"], how="left")
        .with_columns(failed=pl.col("hit").is_not_null() & pl.col("done"))
        .with_columns(done=pl.col("done") & pl.col("hit").is_null())
        .drop("hit")
        .sort("comm", "seq", "rank")
    ), passed


def _end_with_the_others(facts: Facts, calls: pl.DataFrame, eventless: list[int]) -> pl.DataFrame:
    """Take an operation as ended on a rank whose event-less recorder lags behind, when it ended for the others.

    Such recorders set `retired` a moment late, and there is no device that could be stuck alone. Nobody gets out of a
    synchronising operation before this rank is in.
    """
    if not eventless:
        return calls
    sizes = pl.DataFrame(
        {"comm": list(facts.groups), "members": [len(g.members) + g.unseen for g in facts.groups.values()]},
        schema={"comm": pl.Int32, "members": pl.UInt32},
    )
    return (
        calls.join(sizes, on="comm", how="left")
        .with_columns(
            done=pl.col("done")
            | (
                pl.col("rank").is_in(eventless)
                & pl.col("kind").is_in(SYNCHRONISING)
                & (pl.len().over("comm", "seq") == pl.col("members"))
                & (2 * pl.col("done").sum().over("comm", "seq") >= pl.col("members"))
            )
        )
        .drop("members")
        .sort("comm", "seq", "rank")
    )


def _open_operations(calls: pl.DataFrame, pairs: pl.DataFrame) -> dict[int, tuple[Open, ...]]:
    """Return every rank's open operations, oldest first: the first of each group, and of each pair and direction."""
    shown = ["rank", "comm", "seq", "kind", "record", "enq", "started", "file", "line", "failed", "depth"]
    open_calls = (
        calls.filter(~pl.col("done"))
        .sort("rank", "comm", "record")
        .group_by("rank", "comm", maintain_order=True)
        .agg(pl.col("seq", "kind", "record", "enq", "started", "file", "line", "failed").first(), depth=pl.len())
        .select(shown)
        .with_columns(peer=pl.lit(None, dtype=pl.Int32))
    )
    open_pairs = (
        pairs.filter(~pl.col("done"))
        .sort("rank", "comm", "record")
        .group_by("rank", "comm", "kind", "peer", maintain_order=True)
        .agg(pl.col("seq", "record", "enq", "started", "file", "line").first(), depth=pl.len())
        .with_columns(failed=pl.lit(value=False))
        .select([*shown, "peer"])
    )
    result: dict[int, list[Open]] = defaultdict(list)
    for row in pl.concat([open_calls, open_pairs]).sort("rank", "record", "comm", "kind").iter_rows(named=True):
        result[row["rank"]].append(
            Open(
                row["rank"],
                row["comm"],
                row["seq"],
                row["kind"],
                row["record"],
                row["enq"],
                bool(row["started"]),
                row["file"],
                row["line"],
                row["peer"],
                row["failed"],
                row["depth"],
            )
        )
    return {rank: tuple(found) for rank, found in sorted(result.items())}
