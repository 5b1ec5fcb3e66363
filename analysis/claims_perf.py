"""Slow, not stuck: durations of the same operation on every rank, from whatever profiler measured them.

`exec time` runs from the kernel's start on that rank to its end, which nearly coincides everywhere. So the rank that
arrives last has the *shortest* time, and all others the long one; when all are long alike, the transfer is slow.
Which of the two it is decides whether a rank or the network is looked at; since when is the change point.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.machine import Machine
from mycroft.analysis.series import Period, period

# An operation counts as spread when its longest time is this many times its shortest, ...
SPREAD: Final = 2.0
# ... and this much longer: below it nobody would look into it.
LEAST_MS: Final = 1.0
# The same rank must be last in this share of the spread operations.
SAME_SHARE: Final = 0.6
LEAST_OPS: Final = 5
# Operations as slow as this against the same operation earlier are slow.
SLOWER: Final = 1.8
_WITHIN: Final = 1.5
# So many communicators of one size are needed to know which of them is slow.
LEAST_TWINS: Final = 4


def spread(machine: Machine) -> pl.DataFrame:
    """Return one row per operation: `comm`, `seq`, `op`, `bytes`, `ranks`, `low`, `high`, `second`, `last` (rank), ms.

    Only operations seen by as many ranks as the widest of their communicator are compared.
    """
    perf = machine.perf.filter(pl.col("dur_ms") > 0)
    if perf.is_empty():
        return perf
    each = (
        perf.sort("comm", "seq", "dur_ms", "rank")
        .group_by("comm", "seq", maintain_order=True)
        .agg(
            pl.col("op").first(),
            pl.col("bytes").max(),
            pl.len().alias("ranks"),
            pl.col("dur_ms").first().alias("low"),
            pl.col("dur_ms").slice(1, 1).first().alias("second"),
            pl.col("dur_ms").last().alias("high"),
            pl.col("dur_ms").median().alias("middle"),
            pl.col("rank").first().alias("last"),
            pl.col("file").first(),
            pl.col("line").first(),
        )
    )
    widest = each.group_by("comm").agg(pl.col("ranks").max().alias("widest"))
    return (
        each.join(widest, on="comm")
        .filter((pl.col("ranks") == pl.col("widest")) & (pl.col("ranks") > 1))
        .sort("comm", "seq")
    )


def suspicions(machine: Machine) -> list[Suspicion]:
    """Return the rank that is late, or the network that is slow, per communicator; the slowest first."""
    table = spread(machine)
    if table.is_empty():
        return []
    found: list[tuple[float, Suspicion]] = []
    for (comm,), ops in table.group_by(["comm"], maintain_order=True):
        late = _late(machine, int(str(comm)), ops)
        slow = None if late else _slow(machine, int(str(comm)), ops)
        for item in (late, slow):
            if item is not None:
                found.append(item)
    if not found:
        found = _slower_twins(machine, table)
    found.sort(key=lambda pair: -pair[0])
    return [s for _lost, s in found[:4]]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _median(values: pl.Series) -> float:
    return _number(values.median())


def _change(flags: pl.Series) -> int:
    """Return the position from which on a condition holds for good: where the sum of hits less misses is least."""
    steps = flags.cast(pl.Int32) * 2 - 1
    before = steps.cum_sum().shift(1, fill_value=0)
    position = before.arg_min()
    return position if position is not None else 0


def _late(machine: Machine, comm: int, ops: pl.DataFrame) -> tuple[float, Suspicion] | None:
    wide = ops.with_columns(
        ((pl.col("high") >= SPREAD * pl.col("low")) & (pl.col("high") - pl.col("low") >= LEAST_MS)).alias("spread")
    )
    start = _change(wide["spread"])
    recent = wide.slice(start)
    hits = recent.filter(pl.col("spread"))
    again: Period | None = None
    if hits.height < LEAST_OPS or hits.height < 0.5 * recent.height:
        # Few at a time, but again and again at the same distance: a collector, a checkpoint, a log.
        again = period(wide["spread"].to_list())
        hits = wide.filter(pl.col("spread"))
        if again is None or hits.height < LEAST_OPS:
            return None
    votes = hits.group_by("last").len().sort("len", "last", descending=[True, False])
    rank, count = int(votes["last"][0]), int(votes["len"][0])
    if count < SAME_SHARE * hits.height:
        return None
    mine = hits.filter(pl.col("last") == rank)
    # All others long: else a few ranks are early for reasons of their own.
    apart = mine.filter(pl.col("second") >= SPREAD * pl.col("low"))
    if apart.height < SAME_SHARE * mine.height:
        return None
    first = hits.row(0, named=True)
    wait = _median(mine["middle"] - mine["low"])
    own, other = _median(mine["low"]), _median(mine["middle"])
    others = sorted(set(machine.perf.filter(pl.col("comm") == comm)["rank"].unique().to_list()) - {rank})
    text = (
        f"from {first['op']} {first['seq']} on rank {rank} arrives last: it spends {own:.1f} ms inside where "
        f"the others spend {other:.1f} ms waiting for it; the network is not slow, for the last to come is through "
        "at once"
    )
    if again is not None:
        text += f"; this comes back every {again.every} operations ({again.hits} times)"
    refs = (Ref(text, first["file"], first["line"], "events", (("kind", "op_perf"),), "profiler"),)
    claims = [Claim("profiler", "late", (rank,), "strong", text, refs)]
    doubts: list[tuple[str, str]] = []
    if count < hits.height:
        share = count / hits.height
        if share < 0.8:
            doubts.append(("medium", f"it is the last in {share:.0%} of the slow operations only"))
    lost = wait * hits.height
    return lost, Suspicion(
        rule="",
        ranks=(rank,),
        claims=tuple(claims),
        comm=comm,
        seq=int(first["seq"]),
        op=str(first["op"]),
        waiting=tuple(others),
        doubts=tuple(doubts),
    )


def _slow(machine: Machine, comm: int, ops: pl.DataFrame) -> tuple[float, Suspicion] | None:
    """All members long alike, and longer than the same operation was before."""
    best: tuple[float, Suspicion] | None = None
    for (op, _size), same in ops.group_by(["op", "bytes"], maintain_order=True):
        if same.height < 2 * LEAST_OPS:
            continue
        usual = _number(same["low"].quantile(0.25))
        flagged = same.with_columns((pl.col("low") >= SLOWER * usual).alias("slow"))
        start = _change(flagged["slow"])
        after, before = flagged.slice(start), flagged.slice(0, start)
        slow = after.filter(pl.col("slow"))
        if slow.height < LEAST_OPS or slow.height < 0.6 * after.height or before.height < LEAST_OPS:
            continue
        alike = slow.filter(pl.col("high") <= _WITHIN * pl.col("low"))
        if alike.height < 0.6 * slow.height:
            continue
        was, now = _median(before["middle"]), _median(slow["middle"])
        first = slow.row(0, named=True)
        text = (
            f"from {op} {first['seq']} on it takes {now:.1f} ms instead of {was:.1f} ms, on all {first['ranks']} ranks "
            f"alike: nobody arrives late, the transfer is slow"
        )
        refs = (Ref(text, first["file"], first["line"], "events", (("kind", "op_perf"),), "profiler"),)
        members = tuple(sorted(machine.perf.filter(pl.col("comm") == comm)["rank"].unique().to_list()))
        suspicion = Suspicion(
            rule="",
            ranks=(),
            claims=(Claim("profiler", "slow_transfer", members, "strong", text, refs),),
            comm=comm,
            seq=int(first["seq"]),
            op=str(op),
            waiting=members,
        )
        lost = (now - was) * slow.height
        if best is None or lost > best[0]:
            best = (lost, suspicion)
    return best


def _slower_twins(machine: Machine, table: pl.DataFrame) -> list[tuple[float, Suspicion]]:
    """A communicator that takes longer than others of its size for the same operation, all members alike."""
    each = table.group_by("comm", "op", "bytes", "ranks", maintain_order=True).agg(
        pl.col("low").median(),
        pl.col("high").median(),
        pl.len().alias("ops"),
        pl.col("seq").first(),
        pl.col("file").first(),
        pl.col("line").first(),
    )
    found: list[tuple[float, Suspicion]] = []
    for (op, _size, ranks), twins in each.group_by(["op", "bytes", "ranks"], maintain_order=True):
        slow = twins.filter(
            (pl.col("low") >= SLOWER * pl.col("low").median())
            & (pl.col("high") <= _WITHIN * pl.col("low"))
            & (pl.col("ops") >= LEAST_OPS)
        )
        if twins.height < LEAST_TWINS or slow.height != 1:
            continue
        row = slow.row(0, named=True)
        usual = _median(twins["low"])
        members = tuple(sorted(machine.perf.filter(pl.col("comm") == row["comm"])["rank"].unique().to_list()))
        text = (
            f"{op} takes {row['low']:.1f} ms on all {ranks} members of this group alike, and {usual:.1f} ms on "
            f"{twins.height - 1} other groups of its size: the transfer is slow"
        )
        refs = (Ref(text, row["file"], row["line"], "events", (("kind", "op_perf"),), "profiler"),)
        item = Suspicion(
            rule="",
            ranks=(),
            claims=(Claim("profiler", "slow_transfer", members, "strong", text, refs),),
            comm=int(row["comm"]),
            seq=int(row["seq"]),
            op=str(op),
            waiting=members,
        )
        found.append(((row["low"] - usual) * row["ops"], item))
    return found
