"""Slow without standing still: who arrives last, step after step, and which group is slow though all arrive on time.

Raw durations show every rank the same: the slow one has the *shortest* time inside a collective, because the others
wait for it there. So this compares arrivals. Within a step the first late arrival is where the lateness began; what
comes later in the step is its echo. A rank that is that origin in most steps is the culprit.

Arrivals come from device durations where the recorder has them (the last to come has the least), else from the moment
of the call on recorders whose calls block (gloo). A recorder that has neither does not show lateness at all.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import polars as pl

from mycroft.analysis.claims import Claim, Ref, Suspicion
from mycroft.analysis.config import NS_PER_MS, Thresholds
from mycroft.analysis.facts import Facts, family
from mycroft.analysis.matching import SYNCHRONISING, Matched
from mycroft.analysis.waitgraph import pipeline_of, without_pipeline

LATE_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Lateness:
    """One rank that is where lateness begins in most steps."""

    rank: int
    steps: int
    """Steps looked at."""
    late_in: int
    """Steps in which it was late."""
    median_ns: int
    """Usual lateness at one operation."""
    share: float
    """Lateness per step as a share of the step."""
    comm: int
    seq: int
    since: int | None
    shared: tuple[int, ...] = ()
    """Ranks that share one lateness, this one among them; empty: it is late by itself."""
    handed_on: bool = False
    """It may come from another stage of a pipeline that this recorder does not show."""


def arrivals(facts: Facts, matched: Matched) -> pl.DataFrame:
    """Return (comm, seq, rank, lag, t0, n) of every operation that all members with a dump got through.

    `lag` is ns after the first member; `t0` the first call, ns. Empty where no recorder shows arrivals.
    """
    eventless = [r for r, d in facts.dumps.items() if not d.has_events]
    witnesses = {
        c: sum(1 for r in g.members if (d := facts.dumps.get(r)) is not None and not d.only_active)
        for c, g in facts.groups.items()
    }
    sizes = pl.DataFrame(
        {"comm": list(witnesses), "members": list(witnesses.values())},
        schema={"comm": pl.Int32, "members": pl.UInt32},
    )
    calls = (
        matched.calls.lazy()
        .filter(pl.col("done") & pl.col("kind").is_in(SYNCHRONISING) & pl.col("enq").is_not_null())
        .select(
            "comm",
            "seq",
            "rank",
            "enq",
            pl.when(pl.col("rank").is_in(eventless)).then(pl.col("enq")).otherwise(-pl.col("dur")).alias("at"),
        )
        .filter(pl.col("at").is_not_null())
    )
    op = ["comm", "seq"]
    return (
        calls.join(sizes.lazy(), on="comm")
        .with_columns(n=pl.len().over(op).cast(pl.UInt32))
        .filter((pl.col("n") > 1) & (pl.col("n") == pl.col("members")))
        .with_columns(lag=pl.col("at") - pl.col("at").min().over(op), t0=pl.col("enq").min().over(op))
        .select("comm", "seq", "rank", "lag", "t0", "n", "at")
        .sort("comm", "seq", "rank")
        .collect()
    )


def _without_clock_offsets(facts: Facts, lags: pl.DataFrame, limits: Thresholds) -> pl.DataFrame:
    """Take out what is the same in every operation of a host: the offset of its clock, not lateness.

    Real lateness varies: after an operation that all leave together, the next one finds them together. Ranks of one
    host share its clock, so a rank that is off alone is late. Where hosts are unknown, only an offset that no step
    would hide is taken for a clock. Durations have no clock to be off.
    """
    eventless = [r for r, d in facts.dumps.items() if not d.has_events]
    called = lags.filter(pl.col("rank").is_in(eventless))
    if called.is_empty():
        return lags
    hosts = {r: (i.host if (i := facts.ranks.get(r)) is not None else None) for r in facts.expected}
    known = all(hosts.get(r) is not None for r in called["rank"].unique().to_list())
    clock = {r: str(hosts[r]) if known else str(r) for r in facts.expected}
    off = called.with_columns(
        off=pl.col("lag") - pl.col("lag").median().over("comm", "seq"),
        clock=pl.col("rank").replace_strict(clock, return_dtype=pl.String),
    )
    least, most = pl.col("off").quantile(0.05), pl.col("off").quantile(0.95)
    spread = (
        off.group_by("clock")
        .agg(least.alias("low"), most.alias("high"), pl.col("off").median().alias("mid"))
        .with_columns(near=pl.min_horizontal(pl.col("low").abs(), pl.col("high").abs()))
        .filter(
            (pl.col("low").sign() == pl.col("high").sign())
            & (pl.col("near") > 3 * (pl.col("high") - pl.col("low")))
            & (pl.lit(known) | (pl.col("near") > limits.clock_offset_least_ns))
        )
    )
    shift = {str(name): int(mid) for name, mid in spread.select("clock", "mid").iter_rows()}
    by_rank = {r: shift.get(name, 0) for r, name in clock.items()}
    shifted = lags.with_columns(
        lag=pl.col("lag") - pl.col("rank").replace_strict(by_rank, default=0, return_dtype=pl.Int64)
    )
    return shifted.with_columns(lag=pl.col("lag") - pl.col("lag").min().over("comm", "seq")).sort("comm", "seq", "rank")


def late_ranks(facts: Facts, matched: Matched, limits: Thresholds) -> tuple[Lateness, ...]:
    """Return the ranks at which lateness begins in most steps, the worst first."""
    lags = arrivals(facts, matched)
    lags = _without_clock_offsets(facts, lags, limits).filter(pl.col("comm").is_in(_comparable(facts)))
    if lags.is_empty():
        return ()
    others = pl.when(pl.col("n") == 2).then(pl.col("lag").sum().over("comm", "seq") - pl.col("lag"))
    lags = lags.with_columns(excess=pl.col("lag") - others.otherwise(pl.col("lag").median().over("comm", "seq")))
    kinds = {c: family(g.desc, g.kind) for c, g in facts.groups.items()}
    lags = lags.with_columns(family=pl.col("comm").replace_strict(kinds, return_dtype=pl.String))
    # Scatter, not size: what is the same in every step is lateness, what differs from step to step is noise.
    off = (pl.col("excess") - pl.col("excess").median().over("comm", "rank")).abs()
    scatter = 1.4826 * off.median().over("family")
    late = lags.filter(
        (pl.col("excess") >= limits.late_least_ns) & (pl.col("excess") >= limits.late_least_sigma * scatter)
    )
    steps = _steps(facts, matched)
    if late.is_empty() or len(steps) < 4:
        return ()
    bounds = pl.Series("bound", steps, dtype=pl.Int64)
    late = late.with_columns(step=bounds.search_sorted(late["t0"], side="left").cast(pl.Int64)).filter(
        # The first step warms up; what follows the last bound is not a whole step.
        (pl.col("step") > 1) & (pl.col("step") < len(steps))
    )
    counted = len(steps) - 2
    length = statistics.median([b - a for a, b in pairwise(steps[1:])])
    if late.is_empty() or length <= 0:
        return ()
    return _origins(facts, late, counted, length, limits)


def _share(late: pl.DataFrame, rank: int, length: float) -> float:
    """Return a rank's lateness per step as a share of the step.

    Within one group the members are together again after every operation, so lateness adds up there.
    """
    in_group = late.filter(pl.col("rank") == rank).group_by("step", "comm").agg(pl.col("excess").sum())
    per_step = in_group.group_by("step").agg(pl.col("excess").max())["excess"]
    return float(statistics.median(per_step.to_list())) / length if len(per_step) else 0.0


def _least_share(facts: Facts, rank: int, limits: Thresholds) -> float:
    """Return the share of a step from which on lateness is worth a word; calls scatter more than devices."""
    dump = facts.dumps.get(rank)
    timed = dump is not None and dump.has_events
    return limits.late_least_share if timed else limits.late_least_share_of_calls


def _comparable(facts: Facts) -> list[int]:
    """Return the groups whose members do the same work, so that they should arrive together.

    Stages of a pipeline reach an operation of all ranks at different times by design: such groups are used only in
    jobs that have no others.
    """
    alike = [g.comm for g in facts.groups.values() if g.kind in ("tp", "dp", "ep", "cp") and len(g.members) > 1]
    rest = [g.comm for g in facts.groups.values() if g.kind != "pp" and len(g.members) > 1]
    return alike or rest


def _origins(facts: Facts, late: pl.DataFrame, counted: int, length: float, limits: Thresholds) -> tuple[Lateness, ...]:
    """Reduce the ranks that are late in most steps to those where it begins.

    A rank is late by itself if it keeps members of its own group waiting that are late elsewhere because of it. Ranks
    that are late only against other replicas share one lateness: a pipeline hands it on without a trace.
    """
    often = max(float(limits.late_least_steps), limits.late_least_fraction * counted)
    per_rank = late.group_by("rank").agg(pl.col("step").n_unique().alias("steps")).filter(pl.col("steps") >= often)
    usual = sorted(r for r in per_rank["rank"].to_list() if _share(late, r, length) >= _least_share(facts, r, limits))
    per_group = (
        late.filter(pl.col("rank").is_in(usual))
        .group_by("rank", "comm")
        .agg(pl.col("step").n_unique().alias("steps"))
        .filter(pl.col("steps") >= often)
        .sort("rank", "comm")
    )
    own = sorted(
        {
            rank
            for rank, comm in per_group.select("rank", "comm").iter_rows()
            if facts.groups[comm].kind in ("tp", "cp") or set(facts.groups[comm].members) & set(usual) - {rank}
        }
    )
    if len(usual) > 1 and len(own) > 1:
        first = (
            late.filter(pl.col("rank").is_in(own))
            .sort("step", "t0", "excess", "rank", descending=[False, False, True, False])
            .group_by("step", maintain_order=True)
            .first()
        )
        votes = Counter(first["rank"].to_list())
        own = sorted(r for r in own if votes[r] >= limits.late_least_fraction * first.height)
    chosen = own or usual
    shared: tuple[int, ...] = ()
    blind = any((d := facts.dumps.get(r)) is not None and not d.has_events for r in usual)
    if not own and blind:
        # The recorder keeps no send or receive: any stage of these pipelines may be the slow one.
        shared = tuple(sorted({*usual, *(r for late_one in usual for r in pipeline_of(facts, late_one))}))
    found: list[Lateness] = []
    for rank in chosen:
        mine = late.filter(pl.col("rank") == rank)
        share = _share(late, rank, length)
        first_row = mine.sort("step", "t0").row(0, named=True)
        worst = mine.group_by("comm").len().sort("len", "comm", descending=[True, False]).row(0, named=True)
        shown = mine.filter(pl.col("comm") == worst["comm"]).sort("seq").row(-1, named=True)
        found.append(
            Lateness(
                rank=rank,
                steps=counted,
                late_in=mine["step"].n_unique(),
                median_ns=int(statistics.median(mine["excess"].to_list())),
                share=share,
                comm=shown["comm"],
                seq=shown["seq"],
                since=first_row["t0"],
                shared=shared if len(shared) > 1 else (),
                handed_on=not own and blind and not without_pipeline(facts),
            )
        )
    return tuple(sorted(found, key=lambda item: (-item.share, item.rank)))


def _steps(facts: Facts, matched: Matched) -> list[int]:
    """Return when the steps end: the calls of the widest group's most regular operation, ns, rising."""
    widest = sorted(facts.groups.values(), key=lambda g: (-len(g.members), g.kind != "world", g.key))
    for group in widest:
        if len(group.members) < 2:
            break
        times = matched.counts.filter((pl.col("comm") == group.comm) & (pl.col("done") > 0))["last_enq"].drop_nulls()
        ordered = sorted(times.to_list())
        # Operations in quick succession (a loss, then a barrier) end one step, not two.
        gaps = [b - a for a, b in pairwise(ordered)]
        if len(gaps) < 3:
            continue
        least = statistics.median(gaps) / 4
        ends = [b for b, gap in zip(ordered, [*gaps, least + 1], strict=False) if gap > least]
        if len(ends) >= 4:
            return ends
    return []


def slow_groups(facts: Facts, matched: Matched, limits: Thresholds) -> list[tuple[int, float, int]]:
    """Return (comm, ratio, operations) of groups whose operations take longer than those of their sister groups.

    The least duration among the members is what the operation takes once all are there. Needs device durations.
    """
    quick = (
        matched.calls.lazy()
        .filter(pl.col("done") & pl.col("dur").is_not_null() & pl.col("kind").is_in(SYNCHRONISING))
        .group_by("comm", "seq", "kind", "in_numel")
        .agg(pl.col("dur").min(), pl.len().alias("n"))
        .filter(pl.col("n") > 1)
        .collect()
    )
    if quick.is_empty():
        return []
    kinds = {c: f"{family(g.desc, g.kind)}:{len(g.members)}" for c, g in facts.groups.items()}
    quick = quick.with_columns(family=pl.col("comm").replace_strict(kinds, return_dtype=pl.String))
    per = quick.group_by("family", "comm", "kind", "in_numel").agg(pl.col("dur").median(), pl.len().alias("ops"))
    per = per.filter(pl.col("ops") >= limits.late_least_steps)
    same = ["family", "kind", "in_numel"]
    per = per.with_columns(sisters=pl.len().over(same), usual=pl.col("dur").median().over(same)).filter(
        pl.col("sisters") > 2
    )
    slow = per.filter(
        (pl.col("dur") >= limits.slow_group_ratio * pl.col("usual"))
        & (pl.col("dur") - pl.col("usual") >= limits.slow_group_least_ns)
    )
    kept: list[tuple[int, float, int]] = []
    for comm in slow["comm"].unique().sort().to_list():
        all_kinds = per.filter(pl.col("comm") == comm)
        mine = slow.filter(pl.col("comm") == comm)
        if 2 * mine.height > all_kinds.height:
            ratio = float(statistics.median((mine["dur"] / mine["usual"]).to_list()))
            kept.append((comm, ratio, int(mine["ops"].sum())))
    return sorted(kept, key=lambda k: (-k[1], facts.groups[k[0]].key))


def slow_suspicions(facts: Facts, matched: Matched, limits: Thresholds) -> list[Suspicion]:
    """Return slow groups and late ranks as suspicions. A slow group explains the lateness of its members."""
    found: list[Suspicion] = []
    explained: set[int] = set()
    for comm, ratio, ops in slow_groups(facts, matched, limits):
        group = facts.groups[comm]
        explained |= set(group.members)
        text = f"{ops} operations of {group.title} take {ratio:.1f} times as long as those of its sister groups"
        ref = Ref(text, table="coll_ops", key=(("comm_id", comm),))
        claim = Claim("dumps", "slow_operations", group.members, "strong", text, (ref,))
        found.append(Suspicion("slow_group", group.members, (claim,), comm=comm))
    late = [item for item in late_ranks(facts, matched, limits) if item.rank not in explained]
    if late and late[0].shared:
        found.append(_shared_suspicion(facts, late, limits))
        return found
    for item in late[:LATE_SHOWN]:
        found.append(_late_suspicion(facts, item, waits_for_input(facts, matched, item.rank)))
    return found


def _late_claim(facts: Facts, item: Lateness) -> Claim:
    text = (
        f"rank {item.rank} is late in {item.late_in} of {item.steps} steps, "
        f"usually by {item.median_ns / NS_PER_MS:.1f} ms, {item.share:.0%} of a step"
    )
    key = (("rank", item.rank), ("comm_id", item.comm), ("op_seq", item.seq))
    dump = facts.dumps.get(item.rank)
    ref = Ref(text, dump.file if dump else None, None, "coll_ops", key)
    return Claim("dumps", "late", (item.rank,), "strong", text, (ref,), item.since)


def _late_suspicion(facts: Facts, item: Lateness, input_reason: str) -> Suspicion:
    claims = [_late_claim(facts, item)]
    if input_reason:
        claims.append(Claim("dumps", "late_input", (item.rank,), "strong", input_reason))
    waiting = tuple(r for r in facts.expected if r != item.rank)
    doubts = (("medium", "its lateness may come from another stage: this recorder keeps no send or receive"),)
    return Suspicion(
        "late",
        (item.rank,),
        tuple(claims),
        doubts=doubts if item.handed_on else (),
        comm=item.comm,
        waiting=waiting,
        since=item.since,
        op="operations",
    )


def _shared_suspicion(facts: Facts, late: Sequence[Lateness], limits: Thresholds) -> Suspicion:
    ranks = late[0].shared
    doubt = ("medium", "these ranks are late together, as the stages of a pipeline are: one of them holds up the rest")
    first = min(late, key=lambda item: (item.since or 0, item.rank))
    waiting = tuple(r for r in facts.expected if r not in ranks)
    return Suspicion(
        "late",
        ranks,
        tuple(_late_claim(facts, item) for item in late[: limits.most_candidates]),
        one_of=True,
        comm=first.comm,
        waiting=waiting,
        since=first.since,
        op="operations",
        doubts=(doubt,),
    )


def own_times(facts: Facts, matched: Matched, ranks: Sequence[int]) -> dict[str, dict[int, float]]:
    """Return for each kind of stretch between two operations what each rank usually takes for it, ns.

    A stretch runs from the moment the operation before had everybody to this rank's next call, so waiting for others
    is not in it. Only for recorders whose calls block; kinds are `family of the one -> family of the other`.
    """
    eventless = [r for r in ranks if (d := facts.dumps.get(r)) is not None and not d.has_events]
    full = matched.calls.filter(pl.col("done") & pl.col("kind").is_in(SYNCHRONISING) & pl.col("enq").is_not_null())
    ends = full.group_by("comm", "seq").agg(pl.col("enq").max().alias("all_in"))
    own = full.filter(pl.col("rank").is_in(eventless)).join(ends, on=["comm", "seq"]).sort("rank", "record")
    own = own.with_columns(
        before=pl.col("all_in").shift(1).over("rank"), last=pl.col("comm").shift(1).over("rank")
    ).filter(pl.col("before").is_not_null())
    kinds = {c: family(g.desc, g.kind) for c, g in facts.groups.items()}
    times: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, comm, last, enq, before in own.select("rank", "comm", "last", "enq", "before").iter_rows():
        times[f"{kinds[last]} -> {kinds[comm]}"][rank].append(max(0, enq - before))
    return {
        kind: {rank: float(statistics.median(found)) for rank, found in by_rank.items() if len(found) > 2}
        for kind, by_rank in sorted(times.items())
    }


def waits_for_input(facts: Facts, matched: Matched, rank: int) -> str:
    """Return the reason to say that a late rank waits for its input rather than computes slowly; empty: none.

    Slow work is slow in every stretch in which there is work. Late input is a constant extra before some operations,
    while the rank keeps up with its peers where no input is read, such as in the backward pass.
    """
    peers = {r for g in facts.groups.values() if rank in g.members and g.kind in ("tp", "dp") for r in g.members}
    slower: list[tuple[float, float, str]] = []
    level: list[float] = []
    for kind, by_rank in own_times(facts, matched, sorted(peers | {rank})).items():
        others = [t for r, t in by_rank.items() if r != rank]
        if rank not in by_rank or not others:
            continue
        usual = statistics.median(others)
        extra = by_rank[rank] - usual
        if extra > 0.5 * usual and extra > NS_PER_MS:
            slower.append((extra, usual, kind))
        elif extra < 0.25 * usual:
            level.append(usual)
    # Where most of the work is decides: if it is slow there, its work is slow.
    if not slower or not level or max(level) < max(usual for _, usual, _ in slower):
        return ""
    extra, _, kind = max(slower)
    return (
        f"rank {rank} takes {extra / NS_PER_MS:.0f} ms more than its peers before some operations ({kind}) and keeps "
        f"up with them in others that take {max(level) / NS_PER_MS:.0f} ms"
    )
