"""Ranks that meant something else at the same place: another operation, size or dtype at one sequence number.

Sequence numbers match by construction, so a rank that differs here either passes the wrong tensor or is at another
point of its program. The odd one is found by majority; in a tie by what sister groups do at the same place; then by
what the group did before. Never by the order of files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from mycroft.analysis.facts import Facts, family
from mycroft.analysis.matching import Matched

# What must be equal on all members. Gathers and scatters have a second, lawful shape: uneven parts that add up.
_SAME_IN: Final = ("all_reduce", "broadcast", "reduce", "gather", "barrier")
_UNEVEN: Final = ("all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One operation whose members disagree. `odd` ranks differ from `even`; `decided` says how that was found.

    `decided` is `majority`, `sisters`, `history` or `tie`; in a tie `odd` holds every member.
    """

    comm: int
    seq: int
    aspect: str
    """`type`, `dtype` or `size`."""
    odd: tuple[int, ...]
    even: tuple[int, ...]
    decided: str
    enq: int | None
    done: bool
    """Every rank got through it: on the device a barrier pairs with an all_reduce of one element."""
    backed: bool = False
    """A majority that sister groups or the group's own past confirm."""
    shift: str = ""
    """`extra` or `skipped`: from here on the odd rank is ahead of, or behind, the others by one operation."""


def find_mismatches(facts: Facts, matched: Matched) -> tuple[Mismatch, ...]:
    """Return every mismatch that matters: those at which, or right after which, somebody stands still.

    Mismatches that lie behind are lawful or harmless: the group went on. Sorted by time, then group.
    """
    folded = _folded(facts, matched.calls)
    suspicious = _suspicious(folded)
    passed = _passed(matched)
    found = _partners_lost(facts, folded)
    for comm, seq in suspicious.select("comm", "seq").iter_rows():
        if seq + 1 <= passed.get(comm, -1):
            continue
        rows = folded.filter((pl.col("comm") == comm) & (pl.col("seq") == seq)).to_dicts()
        found += _judge(facts, folded, comm, seq, rows)
    return tuple(sorted(found, key=lambda m: (m.enq or 0, facts.groups[m.comm].key, m.seq, m.aspect)))


def _partners_lost(facts: Facts, folded: pl.DataFrame) -> list[Mismatch]:
    """Find mismatches whose other side left no dump: the last operation of a group against its sisters and its past.

    The process that receives more than it expects is the one that dies, so the odd one may be the only witness.
    """
    found: list[Mismatch] = []
    last = folded.group_by("comm").agg(pl.col("seq").max(), pl.col("rank").n_unique().alias("known")).sort("comm")
    for comm, seq, known in last.iter_rows():
        group = facts.groups[comm]
        if known >= len(group.members) + group.unseen or all(r in facts.dumps for r in group.members) or seq < 4:
            continue
        rows = folded.filter((pl.col("comm") == comm) & (pl.col("seq") == seq)).to_dicts()
        for aspect in ("type", "dtype", "size"):
            mine = {_signature(aspect, r) for r in rows}
            sisters = _sisters(facts, folded, comm, seq, aspect)
            usual = _history(folded, comm, seq, aspect)
            if len(mine) == 1 and len(sisters) == 1 and sum(sisters.values()) > 2 and not mine & {*sisters, *usual}:
                enq = min((r["enq"] for r in rows if r["enq"] is not None), default=None)
                odd = tuple(sorted(r["rank"] for r in rows))
                found.append(Mismatch(comm, seq, aspect, odd, (), "sisters", enq, all(r["done"] for r in rows)))
                break
    return found


def _folded(facts: Facts, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the calls with a normalised size pair; a barrier that NCCL runs as an all_reduce has one element."""
    nccl = [r for r, d in facts.dumps.items() if d.has_events]
    barrier = (pl.col("kind") == "barrier") & pl.col("rank").is_in(nccl)
    return calls.select(
        "rank",
        "comm",
        "seq",
        "kind",
        "dtype",
        "enq",
        "done",
        "stack",
        pl.when(barrier).then(1).otherwise(pl.col("in_numel")).alias("n_in"),
        pl.when(barrier).then(1).otherwise(pl.col("out_numel")).alias("n_out"),
        pl.when(barrier).then(pl.lit("all_reduce")).otherwise(pl.col("kind")).alias("device_kind"),
    )


def _suspicious(folded: pl.DataFrame) -> pl.DataFrame:
    """Return the (comm, seq) whose members differ in anything; cheap, over all operations."""
    return (
        folded.lazy()
        .group_by("comm", "seq")
        .agg(
            pl.col("kind").min().alias("k0"),
            pl.col("kind").max().alias("k1"),
            pl.col("dtype").min().alias("d0"),
            pl.col("dtype").max().alias("d1"),
            pl.col("n_in").min().alias("i0"),
            pl.col("n_in").max().alias("i1"),
            pl.col("n_out").min().alias("o0"),
            pl.col("n_out").max().alias("o1"),
            pl.len().alias("n"),
        )
        .filter(
            (pl.col("n") > 1)
            & (
                (pl.col("k0") != pl.col("k1"))
                | (pl.col("d0") != pl.col("d1"))
                | (pl.col("i0") != pl.col("i1"))
                | (pl.col("o0") != pl.col("o1"))
            )
            & ~((pl.col("k0") == "all_to_all") & (pl.col("k1") == "all_to_all") & (pl.col("d0") == pl.col("d1")))
        )
        .sort("comm", "seq")
        .collect()
    )


def _passed(matched: Matched) -> dict[int, int]:
    """Return for each group the highest operation that every rank which issued it got through."""
    whole = matched.counts.filter((pl.col("done") == pl.col("issued")) & (pl.col("issued") > 1))
    best = whole.group_by("comm").agg(pl.col("seq").max())
    return {int(comm): int(seq) for comm, seq in best.iter_rows()}


# What is compared, by aspect. Gathers and scatters are compared in both sides, the rest in what goes in.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "type": ("kind",),
    "dtype": ("kind", "dtype"),
    "size": ("kind", "n_in"),
    "sizes": ("kind", "n_in", "n_out"),
}


def _signature(aspect: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[c] for c in _COLUMNS[aspect])


def _judge(
    facts: Facts, folded: pl.DataFrame, comm: int, seq: int, rows: Sequence[Mapping[str, Any]]
) -> list[Mismatch]:
    kinds = {r["kind"] for r in rows}
    if len(kinds) > 1:
        return [_decide(facts, folded, comm, seq, "type", rows)]
    kind = next(iter(kinds))
    if len({r["dtype"] for r in rows if r["dtype"] is not None}) > 1:
        return [_decide(facts, folded, comm, seq, "dtype", rows)]
    complete = len(rows) == len(facts.groups[comm].members)
    if not _lawful(kind, rows, complete=complete):
        aspect = "size" if kind in _SAME_IN else "sizes"
        if len({_signature(aspect, r) for r in rows}) > 1:
            return [_decide(facts, folded, comm, seq, aspect, rows)]
    return []


def _lawful(kind: str, rows: Sequence[Mapping[str, Any]], *, complete: bool) -> bool:
    """Say whether differing sizes are allowed: uneven parts of a gather that add up, all_to_all, rooted operations."""
    n_in, n_out = [r["n_in"] or 0 for r in rows], [r["n_out"] or 0 for r in rows]
    if kind == "all_to_all":
        return not complete or sum(n_in) == sum(n_out)
    if kind == "scatter":
        return len(set(n_out)) == 1
    if kind in _SAME_IN:
        return len(set(n_in)) == 1
    if kind in _UNEVEN:
        whole, parts = (n_out, n_in) if kind == "all_gather" else (n_in, n_out)
        if len(set(whole)) > 1:
            return False
        # Parts may differ when they add up to the whole; with a member missing that cannot be checked.
        return len(set(parts)) == 1 or (sum(parts) == whole[0] if complete else sum(parts) <= whole[0])
    return True


def _decide(
    facts: Facts, folded: pl.DataFrame, comm: int, seq: int, aspect: str, rows: Sequence[Mapping[str, Any]]
) -> Mismatch:
    by_signature: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda r: int(r["rank"])):
        by_signature[_signature(aspect, row)].append(row["rank"])
    enq = min((r["enq"] for r in rows if r["enq"] is not None), default=None)
    done = all(r["done"] for r in rows)
    name = "size" if aspect == "sizes" else aspect
    sizes = sorted((len(r) for r in by_signature.values()), reverse=True)
    decided = "tie"
    normal, how = _by_custom(facts, folded, comm, seq, aspect, list(by_signature))
    usual = normal
    if sizes[0] > sizes[1]:
        normal = max(by_signature, key=lambda s: len(by_signature[s]))
        decided = "majority"
    elif normal is not None:
        decided = how
    if normal is None:
        everybody = tuple(sorted(r["rank"] for r in rows))
        return Mismatch(comm, seq, name, everybody, (), "tie", enq, done)
    even = tuple(by_signature[normal])
    odd = tuple(sorted(r for s, ranks in by_signature.items() if s != normal for r in ranks))
    shift = _shift(folded, comm, seq, odd, even)
    return Mismatch(comm, seq, name, odd, even, decided, enq, done, usual == normal, shift)


def _by_custom(
    facts: Facts, folded: pl.DataFrame, comm: int, seq: int, aspect: str, signatures: Sequence[tuple[Any, ...]]
) -> tuple[tuple[Any, ...] | None, str]:
    """Return the signature that is customary at this place, and whether sister groups or history say so."""
    for how, counts in (
        ("sisters", _sisters(facts, folded, comm, seq, aspect)),
        ("history", _history(folded, comm, seq, aspect)),
    ):
        ranked = sorted(((counts.get(s, 0), s) for s in signatures), key=lambda t: (-t[0], str(t[1])))
        if ranked[0][0] > 0 and ranked[0][0] > 2 * ranked[1][0]:
            return ranked[0][1], how
    return None, ""


def _seen(frame: pl.DataFrame, aspect: str) -> Counter[tuple[Any, ...]]:
    """Count the signatures of one aspect."""
    counts = frame.group_by(_COLUMNS[aspect]).len()
    return Counter({tuple(row[:-1]): int(row[-1]) for row in counts.iter_rows()})


def _sisters(facts: Facts, folded: pl.DataFrame, comm: int, seq: int, aspect: str) -> Counter[tuple[Any, ...]]:
    """Count what groups of the same family and size did at the same sequence number."""
    mine = facts.groups[comm]
    sisters = [
        c
        for c, g in facts.groups.items()
        if c != comm and family(g.desc, g.kind) == family(mine.desc, mine.kind) and len(g.members) == len(mine.members)
    ]
    return _seen(folded.filter(pl.col("comm").is_in(sisters) & (pl.col("seq") == seq)), aspect)


def _history(folded: pl.DataFrame, comm: int, seq: int, aspect: str) -> Counter[tuple[Any, ...]]:
    """Count what this group did before."""
    return _seen(folded.filter((pl.col("comm") == comm) & (pl.col("seq") < seq)), aspect)


def _shift(folded: pl.DataFrame, comm: int, seq: int, odd: tuple[int, ...], even: tuple[int, ...]) -> str:
    """Say whether the odd rank is one operation ahead of or behind the others from here on.

    `extra`: its next operation is what the others do here. `skipped`: what it does here the others do next.
    """
    if not odd or not even:
        return ""
    near = folded.filter((pl.col("comm") == comm) & pl.col("seq").is_between(seq, seq + 1))
    what: dict[tuple[int, int], tuple[Any, ...]] = {
        (r["rank"], r["seq"]): (r["kind"], r["dtype"], r["n_in"], r["n_out"], r["stack"]) for r in near.to_dicts()
    }
    mine, next_mine = what.get((odd[0], seq)), what.get((odd[0], seq + 1))
    theirs, next_theirs = what.get((even[0], seq)), what.get((even[0], seq + 1))
    if next_mine is not None and next_mine == theirs and mine != theirs:
        return "extra"
    if next_theirs is not None and next_theirs == mine and mine != theirs:
        return "skipped"
    return ""
