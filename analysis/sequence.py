"""Where one rank's sequence of operations left the path of the ranks that do the same work.

Twins are ranks whose operations were the same, one by one, up to an anchor: the last operation of a shared group that
all of them got through. After the anchor their sequences are compared position by position; the first position with
two different operations is where the paths part, and the minority left the path. Sequences of different length are
not a difference: a rank that stands still is compared as far as it came.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from mycroft.analysis.facts import Facts, family
from mycroft.analysis.matching import Matched

# Operations before the anchor that must agree for two ranks to be twins: more than a step, so that stages of a
# pipeline, which end their steps alike, are told apart; and after it, how many are compared.
CONTEXT: Final = 512
TAIL: Final = 600


@dataclass(frozen=True, slots=True)
class Divergence:
    """One rank that left the common path. `expected` and `found` are operations in words.

    `kind`: `extra` (did something the others do not do here), `skipped` (left something out) or `other`.
    """

    rank: int
    comm: int
    expected: str
    found: str
    kind: str
    twins: tuple[int, ...]
    record: int
    seq: int
    op_comm: int
    by: str
    """`majority` of the twins, or the rank's own `history`."""


def role_peers(facts: Facts) -> dict[int, tuple[int, ...]]:
    """Return for each rank those that do the same work: its data-parallel peers, else its tensor-parallel ones."""
    peers: dict[int, set[int]] = defaultdict(set)
    for wanted in ("dp", "tp"):
        for group in facts.groups.values():
            if group.kind == wanted and len(group.members) > 1:
                for rank in group.members:
                    if wanted == "dp" or not peers[rank]:
                        peers[rank] |= set(group.members) - {rank}
    return {rank: tuple(sorted(found)) for rank, found in sorted(peers.items()) if found}


def find_divergences(facts: Facts, matched: Matched, suspects: Iterable[int]) -> tuple[Divergence, ...]:
    """Compare the twins of every group that a suspect is in. Sorted by rank and group.

    Groups whose members' dumps hold only open operations have no history and are left out.
    """
    wanted = set(suspects)
    full = [r for r, d in facts.dumps.items() if not d.only_active]
    comms = [
        g.comm
        for g in facts.groups.values()
        if g.kind != "pp" and len(set(g.members) & set(full)) > 1 and wanted & set(g.members)
    ]
    if not comms:
        return ()
    anchors = _anchors(facts, matched, comms, full)
    if anchors.is_empty():
        return ()
    steps = _Steps(facts, matched)
    found: list[Divergence] = []
    for comm in comms:
        mine = anchors.filter(pl.col("comm") == comm)
        if mine.height > 1:
            records = {int(r): int(rec) for r, rec in mine.select("rank", "record").iter_rows()}
            found += [d for d in _compare(facts, steps, comm, records) if d.rank in wanted]
    return tuple(sorted(found, key=lambda d: (d.rank, facts.groups[d.comm].key)))


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of one rank's sequence; equal tokens are the same operation for every rank."""

    token: int
    record: int
    comm: int
    seq: int
    kind: str
    enq: int | None


class _Steps:
    """The sequences of all ranks: tokens as arrays, sliced by rank without copying."""

    def __init__(self, facts: Facts, matched: Matched) -> None:
        self._frame = _tokens(facts, matched)
        bounds = self._frame.with_row_index("at").group_by("rank").agg(pl.col("at").min(), pl.len().alias("n"))
        self._bounds = {int(rank): (int(at), int(n)) for rank, at, n in bounds.iter_rows()}
        self._tokens = self._frame["token"].to_numpy()
        self._records = self._frame["record"].to_numpy()

    def _split(self, rank: int, record: int) -> tuple[int, int, int]:
        """Return where the rank's rows begin, where those after `record` begin, and where they end."""
        at, n = self._bounds.get(rank, (0, 0))
        return at, at + int(np.searchsorted(self._records[at : at + n], record, side="right")), at + n

    def before(self, rank: int, record: int, most: int) -> bytes:
        """Return the last `most` tokens up to `record`, as bytes to compare."""
        at, middle, _ = self._split(rank, record)
        return self._tokens[max(at, middle - most) : middle].tobytes()

    def past(self, rank: int, record: int) -> list[int]:
        """Return all tokens up to `record`."""
        at, middle, _ = self._split(rank, record)
        return self._tokens[at:middle].tolist()

    def known(self, rank: int, record: int) -> int:
        """Return how many operations up to `record` the dump still holds."""
        at, middle, _ = self._split(rank, record)
        return middle - at

    def after(self, rank: int, record: int) -> list[int]:
        """Return the tokens after `record`."""
        _, middle, end = self._split(rank, record)
        return self._tokens[middle : min(end, middle + TAIL)].tolist()

    def step(self, rank: int, record: int, at: int) -> Step:
        """Return the operation `at` places after `record`."""
        _, middle, _ = self._split(rank, record)
        row = self._frame.row(middle + at, named=True)
        return Step(row["token"], row["record"], row["comm"], row["seq"], row["kind"], row["enq"])


def _tokens(facts: Facts, matched: Matched) -> pl.DataFrame:
    """Return (rank, record, token, comm, seq): what each operation is, in terms that all ranks share."""
    names = {c: i for i, c in enumerate(sorted({_role(facts, c) for c in facts.groups}))}
    role = pl.DataFrame(
        {"comm": list(facts.groups), "role": [names[_role(facts, c)] for c in facts.groups]},
        schema={"comm": pl.Int32, "role": pl.Int32},
    )
    columns = ["rank", "record", "comm", "seq", "kind", "enq"]
    calls = matched.calls.select(*columns, way=pl.lit(0, dtype=pl.Int32))
    pairs = matched.pairs.select(*columns, way=(pl.col("peer") - pl.col("rank")).sign().fill_null(0).cast(pl.Int32))
    return (
        pl.concat([calls, pairs])
        .join(role, on="comm", how="left")
        .with_columns(token=pl.struct("role", "kind", "way").hash(seed=1))
        .sort("rank", "record")
    )


def _role(facts: Facts, comm: int) -> str:
    group = facts.groups[comm]
    return f"{family(group.desc, group.kind)}:{len(group.members)}"


def _anchors(facts: Facts, matched: Matched, comms: Sequence[int], full: Sequence[int]) -> pl.DataFrame:
    """Return (comm, rank, record) of the last operation of each group that all its members with a dump got through."""
    calls = matched.calls.filter(pl.col("comm").is_in(comms) & pl.col("rank").is_in(full))
    size = pl.DataFrame(
        {"comm": comms, "members": [len(set(facts.groups[c].members) & set(full)) for c in comms]},
        schema={"comm": pl.Int32, "members": pl.UInt32},
    )
    last = (
        calls.group_by("comm", "seq")
        .agg(pl.len().cast(pl.UInt32).alias("n"), pl.col("done").all().alias("through"))
        .join(size, on="comm")
        .filter(pl.col("through") & (pl.col("n") == pl.col("members")))
        .group_by("comm")
        .agg(pl.col("seq").max())
    )
    return calls.join(last, on=["comm", "seq"]).select("comm", "rank", "record").sort("comm", "rank")


def _compare(facts: Facts, steps: _Steps, comm: int, anchors: Mapping[int, int]) -> list[Divergence]:
    """Compare the members of one group that are twins: equal, one by one, for more than a step up to the anchor."""
    most = min(CONTEXT, min(steps.known(rank, record) for rank, record in anchors.items()))
    by_context: dict[bytes, list[int]] = defaultdict(list)
    for rank, record in anchors.items():
        by_context[steps.before(rank, record, most)].append(rank)
    found: list[Divergence] = []
    for ranks in by_context.values():
        if len(ranks) > 1:
            found += _part(facts, steps, comm, {r: anchors[r] for r in ranks})
    return found


def first_missing(facts: Facts, matched: Matched, ranks: Iterable[int]) -> dict[int, tuple[int, str]]:
    """Return when a twin issued the operation that each of `ranks` has not come to: (ns on the twin's clock, words).

    Of several ranks that are all behind, the one that was due first is where it began: what its followers miss they
    miss because of it. Ranks that no twin is ahead of are left out.
    """
    wanted = sorted(set(ranks))
    full = [r for r, d in facts.dumps.items() if not d.only_active]
    steps = _Steps(facts, matched)
    peers = role_peers(facts)
    due: dict[int, tuple[int, str]] = {}
    comms = [g.comm for g in facts.groups.values() if g.kind != "pp" and set(g.members) & set(wanted)]
    anchors = _anchors(facts, matched, comms, full)
    for comm in comms:
        rows = anchors.filter(pl.col("comm") == comm).select("rank", "record")
        mine = {int(r): int(record) for r, record in rows.iter_rows()}
        paths = {rank: steps.after(rank, record) for rank, record in mine.items()}
        for rank in wanted:
            if rank not in paths:
                continue
            own = paths[rank]
            for twin, theirs in paths.items():
                if twin == rank or (rank in peers and twin not in peers[rank]):
                    continue
                if len(theirs) <= len(own) or theirs[: len(own)] != own:
                    continue
                step = steps.step(twin, mine[twin], len(own))
                if step.enq is not None and (rank not in due or step.enq < due[rank][0]):
                    due[rank] = (step.enq, f"{step.kind} {step.seq}")
    return due


def usually_follows(matched: Matched, rank: int, first: tuple[int, str], then: tuple[int, str]) -> bool:
    """Say whether on this rank, earlier, `then` usually came right after `first` (both: group and kind)."""
    own = matched.calls.filter((pl.col("rank") == rank) & pl.col("done")).sort("record")
    past = list(own.select("comm", "kind").iter_rows())
    followers = [after for step, after in pairwise(past) if step == first]
    return 2 * followers.count(then) > len(followers)


def repeats_itself(matched: Matched, rank: int, comm: int, seq: int) -> bool:
    """Say whether a rank's operation comes right after another of the same kind in the same group: one too many."""
    own = matched.calls.filter(pl.col("rank") == rank).sort("record")
    steps = list(own.select("comm", "kind", "seq").iter_rows())
    return any(after[0] == comm and after[2] == seq and step[:2] == after[:2] for step, after in pairwise(steps))


def _part(facts: Facts, steps: _Steps, comm: int, anchors: Mapping[int, int]) -> list[Divergence]:
    """Find the first position at which twins differ, and who left the path there."""
    paths = {rank: steps.after(rank, record) for rank, record in sorted(anchors.items())}
    for at in range(max(len(p) for p in paths.values())):
        here = {rank: path[at] for rank, path in paths.items() if at < len(path)}
        counts = Counter(here.values())
        if len(counts) < 2:
            continue
        (usual, most), (_, second) = counts.most_common(2)
        by = "majority"
        if most == second:
            by = "history"
            ruled = _by_history(steps, anchors, paths, here, at)
            if ruled is None:
                return []
            usual = ruled
        twins = tuple(r for r, token in here.items() if token == usual)
        example = steps.step(twins[0], anchors[twins[0]], at)
        found: list[Divergence] = []
        for rank, token in here.items():
            if token == usual or _as_always(steps, anchors[rank], paths[rank], rank, at):
                continue
            step = steps.step(rank, anchors[rank], at)
            found.append(
                Divergence(
                    rank=rank,
                    comm=comm,
                    expected=_words(facts, example),
                    found=_words(facts, step),
                    kind=_kind(paths[rank][at:], paths[twins[0]][at:]),
                    twins=twins,
                    record=step.record,
                    seq=step.seq,
                    op_comm=step.comm,
                    by=by,
                )
            )
        return found
    return []


def _as_always(steps: _Steps, record: int, path: Sequence[int], rank: int, at: int) -> bool:
    """Say whether a rank does what it has always done at this place: another role, not another path."""
    return _expected(steps.past(rank, record) + list(path[:at])) == path[at]


def _by_history(
    steps: _Steps,
    anchors: Mapping[int, int],
    paths: Mapping[int, Sequence[int]],
    here: Mapping[int, int],
    at: int,
) -> int | None:
    """Break a tie by what followed the same operations in the earlier steps of these ranks.

    The longest context that occurred before decides: `pipeline recv, recv, ...` repeats within a step, and only the
    position in the step tells what comes next. Returns the token that continues as before, if exactly one does.
    """
    usual: set[int] = set()
    unusual = False
    for rank, token in here.items():
        expected = _expected(steps.past(rank, anchors[rank]) + list(paths[rank][:at]))
        if expected is None:
            return None
        usual.add(expected)
        unusual = unusual or token != expected
    normal = usual & set(here.values())
    return next(iter(normal)) if len(usual) == 1 and len(normal) == 1 and unusual else None


def _expected(past: Sequence[int]) -> int | None:
    """Return what followed the longest earlier occurrence of the end of `past`."""
    best_length, best = 0, None
    end = len(past)
    for stop in range(end - 1, 0, -1):
        length = 0
        while length < stop and length < 400 and past[stop - 1 - length] == past[end - 1 - length]:
            length += 1
        if length > best_length:
            best_length, best = length, past[stop]
        if best_length >= 400:
            break
    return best if best_length >= 3 else None


def _kind(mine: Sequence[int], theirs: Sequence[int]) -> str:
    """Say what the difference is: something extra, something left out, two swapped, or other."""
    if theirs and theirs[0] in mine[1:4] and mine[0] not in theirs[1:4]:
        return "extra"
    if mine and mine[0] in theirs[1:4] and theirs[0] in mine[1:4]:
        return "swapped"
    if mine and mine[0] in theirs[1:4]:
        return "skipped"
    return "other"


def _words(facts: Facts, step: Step) -> str:
    return f"{step.kind} {step.seq} of {facts.groups[step.comm].title}"
