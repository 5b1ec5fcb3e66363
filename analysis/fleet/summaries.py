"""Summaries: of each rank and communicator, how far it has come and what it stands in; forty bytes that reach anywhere.

Raw rows of a million ranks are 3.5 GB a second and stay near the hosts. Summaries of all ranks tell that a job stands
and which operations it stands in; raw rows are then fetched of the few ranks in those, and judged as always.

An operation stands *inside* when all who take part have come. Where somebody has not come, it waits for what he stands
in, and so on: what is reached at the end, of everything that waits, is suspect. Numbers are those of the tracer: of
collectives per communicator, of sends and receives per pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import pyarrow

from mycroft.analysis.fleet.seam import Measure, Pick, Reduction, Table, merge

pa: Any = pyarrow

# Codes of the tracer: kinds of operations (the order of `OP_KINDS`), states of operations.
SEND, RECV = 3, 4
_OPEN: Final = 0
NS_PER_S: Final = 1_000_000_000
# What is open for less is at work.
STANDS_NS: Final = 5 * NS_PER_S
# Of all ranks, at most this share is asked for raw rows, and never more than so many.
MOST_SHARE: Final = 0.01
MOST_RANKS: Final = 10_000
FEW: Final = 64

OP_STATES: Final = Reduction(
    name="op_states",
    table="op",
    time="enq_ts",
    keys=("process", "comm", "op_id", ("enq", "epoch_ns(enq_ts)")),
    # An operation is written when it is met open, and again when it ends: what is known last counts.
    measures=(Measure("ended", "max", f"CAST(op_state <> {_OPEN} AS UTINYINT)"),),
    picks=(Pick(by=("position",), take=("op_seq", "op_kind", "p2p", "peer"), prefix=""),),
    types={
        "process": pa.string(),
        "comm": pa.uint16(),
        "op_id": pa.uint32(),
        "enq": pa.int64(),
        "ended": pa.uint8(),
        "position": pa.uint64(),
        "op_seq": pa.uint64(),
        "op_kind": pa.uint8(),
        "p2p": pa.uint8(),
        "peer": pa.uint32(),
    },
)
"""Each operation, and whether it has ended."""

_VALUES: Final = {
    "comm_rank": pa.uint32(),
    "comm_size": pa.uint32(),
    "last_seq": pa.int64(),
    "open_seq": pa.int64(),
    "open_kind": pa.uint8(),
    "open_peer": pa.uint32(),
    "open_enq": pa.int64(),
}
SUMMARY: Final = Reduction(
    name="summary",
    table="summary",
    time="ts",
    keys=("rank", "comm"),
    measures=(),
    picks=(Pick(by=("ts",), take=tuple(_VALUES), prefix=""),),
    types={"rank": pa.uint32(), "comm": pa.uint64(), "ts": pa.timestamp("ns"), **_VALUES},
)
"""The newest summary of each rank and communicator: what a relay makes, and what several become together."""

DIMENSIONS: Final = pa.schema(
    [
        ("process", pa.string()),
        ("rank", pa.uint32()),
        ("comm", pa.uint16()),
        ("hash", pa.uint64()),
        ("comm_rank", pa.uint32()),
        ("comm_size", pa.uint32()),
    ]
)
"""Who a process is in each of its communicators; from the statuses that agents send."""


def summarise(operations: Table, dimensions: Table, *, at_ns: int) -> Table:
    """Return the summaries of ranks at a moment.

    Args:
        operations: what the reduction `OP_STATES` returned.
        dimensions: rows of `DIMENSIONS`. Communicators in which nothing has begun have a summary too: nobody came.
        at_ns: UTC.
    """
    ops = _frame(operations)
    who = _frame(dimensions)
    # What blocks is what was begun first and goes on; of a pair, sends and receives are counted apart.
    told = ops.group_by("process", "comm").agg(
        pl.col("op_seq").filter(pl.col("p2p") == 0).max().cast(pl.Int64).alias("last_seq"),
        *(
            pl.col(name)
            .filter(pl.col("ended") == 0)
            .sort_by(pl.col("enq").filter(pl.col("ended") == 0), pl.col("position").filter(pl.col("ended") == 0))
            .first()
            .alias(f"open_{name.removeprefix('op_')}")
            for name in ("op_seq", "op_kind", "peer", "enq")
        ),
    )
    found = who.join(told, on=["process", "comm"], how="left").select(
        "rank",
        pl.col("hash").alias("comm"),
        pl.lit(at_ns, pl.Int64).cast(pl.Datetime("ns")).alias("ts"),
        "comm_rank",
        "comm_size",
        "last_seq",
        pl.col("open_seq").cast(pl.Int64),
        "open_kind",
        "open_peer",
        "open_enq",
    )
    made: Table = found.to_arrow()
    return merge(SUMMARY, [made.cast(SUMMARY.schema)])


@dataclass(frozen=True, slots=True)
class Standing:
    """One operation that everything else waits for, as summaries show it.

    `absent`: of those who take part, who has not come and stands in nothing else: he is suspect himself. `ranks`: all
    who take part, as far as summaries of them are known.
    """

    comm: int
    seq: int
    kind: int
    since_ns: int
    ranks: tuple[int, ...]
    absent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Suspects:
    """What to look at: `standing`, what has stood longest first, and `ranks`, of whom to fetch raw rows."""

    ranks_told: int
    ranks_waiting: int
    standing: tuple[Standing, ...]
    ranks: tuple[int, ...]
    left_out: int
    """Ranks that are suspect too, beyond what is fetched."""


def find_suspects(summaries: Table, *, at_ns: int, most_ranks: int | None = None) -> Suspects:
    """Return what a job stands in; nothing where nothing has been open for long.

    Args:
        summaries: of all ranks, as `merge` of `SUMMARY` returned them.
        at_ns: UTC; what began less than `STANDS_NS` before is at work.
        most_ranks: to be fetched at most; None: a hundredth of all, and a few in small jobs.
    """
    rows = _frame(summaries)
    told = rows["rank"].n_unique()
    rows = rows.with_columns(
        pl.col("open_seq").is_not_null().alias("open"),
        pl.col("open_kind").is_in([SEND, RECV]).fill_null(value=False).alias("pair"),
    )
    peers = rows.select("comm", pl.col("comm_rank").alias("open_peer"), pl.col("rank").alias("peer_rank"))
    rows = rows.join(peers.unique(["comm", "open_peer"]), on=["comm", "open_peer"], how="left")
    places = pl.concat([_collectives(rows), _pairs(rows)]).unique(["node", "rank", "came"])
    graph = _Graph(rows, places)
    standing = graph.ends(before=at_ns - STANDS_NS)
    limit = most_ranks if most_ranks is not None else max(FEW, min(MOST_RANKS, int(told * MOST_SHARE)))
    wanted = [set(one.ranks) for one in standing]
    chosen, left_out = chosen_of([*wanted, *_neighbours(rows, set[int]().union(*wanted))], limit, must=len(wanted))
    waiting = rows.filter(pl.col("open") & (pl.col("open_enq") <= at_ns - STANDS_NS))["rank"].n_unique()
    return Suspects(told, waiting, tuple(standing), tuple(sorted(chosen)), left_out)


def _neighbours(rows: pl.DataFrame, ranks: set[int]) -> list[set[int]]:
    """Return who shares a communicator with suspects, by communicator, the smallest first.

    Which end of a link is to blame is told by how each end fares with others.
    """
    near = rows.filter(pl.col("rank").is_in(list(ranks)))["comm"].unique()
    groups = rows.filter(pl.col("comm").is_in(near.to_list())).group_by("comm").agg(pl.col("rank").unique().sort())
    return sorted((set(members) for _, members in groups.iter_rows()), key=lambda m: (len(m), min(m)))


def chosen_of(groups: Sequence[set[int]], limit: int, *, must: int) -> tuple[set[int], int]:
    """Return the ranks of groups, whole ones only, up to a limit; and how many of the first `must` are not in them.

    The first group is begun even where it alone is beyond the limit.
    """
    chosen: set[int] = set()
    left_out: set[int] = set()
    for number, group in enumerate(groups):
        if len(chosen | group) <= limit:
            chosen |= group
        elif number < must:
            if not chosen:
                chosen.update(sorted(group)[:limit])
            left_out |= group
    return chosen, len(left_out - chosen)


def _collectives(rows: pl.DataFrame) -> pl.DataFrame:
    """Who takes part in which open collective, and whether he has come."""
    inside = rows.filter(pl.col("open") & ~pl.col("pair"))
    # The earliest that is open: who is in a later one has come to it.
    nodes = inside.group_by("comm").agg(pl.col("open_seq").min().alias("seq"), pl.col("open_enq").min().alias("since"))
    nodes = nodes.join(
        inside.select("comm", pl.col("open_seq").alias("seq"), pl.col("open_kind").alias("kind")).unique(
            ["comm", "seq"]
        ),
        on=["comm", "seq"],
        how="left",
    ).sort("comm")
    nodes = nodes.with_row_index("node")
    members = rows.join(nodes, on="comm", how="inner")
    return members.select(
        pl.concat_str([pl.lit("c"), pl.col("node").cast(pl.String)]).alias("node"),
        "comm",
        "seq",
        pl.col("kind").cast(pl.Int64),
        "since",
        "rank",
        (pl.col("last_seq").fill_null(-1) >= pl.col("seq")).alias("came"),
    )


def _pairs(rows: pl.DataFrame) -> pl.DataFrame:
    """The same of sends and receives: two take part."""
    inside = rows.filter(pl.col("open") & pl.col("pair") & pl.col("peer_rank").is_not_null())
    lower = pl.min_horizontal("rank", "peer_rank").cast(pl.String)
    upper = pl.max_horizontal("rank", "peer_rank").cast(pl.String)
    # Which of the two sends: there is one such stream each way.
    sender = pl.when(pl.col("open_kind") == SEND).then(pl.col("rank")).otherwise(pl.col("peer_rank")).cast(pl.String)
    named = inside.with_columns(
        pl.concat_str([pl.lit("p"), pl.col("comm").cast(pl.String), lower, upper, sender], separator=" ").alias("node")
    )
    nodes = named.group_by("node").agg(
        pl.col("comm").first(),
        pl.col("open_seq").min().alias("seq"),
        pl.col("open_kind").min().cast(pl.Int64).alias("kind"),
        pl.col("open_enq").min().alias("since"),
        pl.col("rank").alias("inside"),
        pl.concat_list("rank", "peer_rank").list.explode().unique().alias("both"),
    )
    return (
        nodes.explode("both")
        .with_columns(pl.col("both").is_in(pl.col("inside")).alias("came"))
        .select("node", "comm", "seq", "kind", "since", pl.col("both").alias("rank"), "came")
    )


class _Graph:
    """Open operations, and for which others each of them waits."""

    def __init__(self, rows: pl.DataFrame, places: pl.DataFrame) -> None:
        self._places = places
        # Whoever came to an operation that has ended for him does not stand in it.
        still = rows.filter("open").select("rank", "comm").unique()
        inside = (
            places.filter("came")
            .join(still, on=["rank", "comm"], how="semi")
            .select("rank", pl.col("node").alias("stands_in"))
        )
        missing = places.filter(~pl.col("came")).select("node", "rank")
        led = missing.join(inside, on="rank", how="left").filter(
            pl.col("stands_in").is_null() | (pl.col("stands_in") != pl.col("node"))
        )
        self._waits = set(led.filter(pl.col("stands_in").is_not_null())["node"].to_list())
        absent: dict[str, list[int]] = {}
        for node, rank in led.filter(pl.col("stands_in").is_null()).select("node", "rank").iter_rows():
            absent.setdefault(node, []).append(rank)
        self._absent = absent

    def ends(self, *, before: int) -> list[Standing]:
        """Return the operations that wait for no other and began before a time; all, where all wait in a circle."""
        ends = self._places.filter(~pl.col("node").is_in(list(self._waits)) | pl.col("node").is_in(list(self._absent)))
        old = ends.filter(pl.col("since") <= before)
        if old.is_empty():
            old = self._places.filter(pl.col("since") <= before)
        grouped = old.group_by("node").agg(
            pl.col("comm").first(),
            pl.col("seq").first(),
            pl.col("kind").first(),
            pl.col("since").first(),
            pl.col("rank").unique().sort(),
        )
        found = [
            Standing(comm, seq, kind, since, tuple(ranks), tuple(sorted(self._absent.get(node, ()))))
            for node, comm, seq, kind, since, ranks in grouped.iter_rows()
        ]
        return sorted(found, key=lambda s: (s.since_ns, s.comm, s.seq, s.ranks[:1]))


def _frame(table: Table) -> pl.DataFrame:
    return pl.DataFrame(table)


def rows_of(ranks: Sequence[int]) -> str:
    """Return ranks in words, for what is fetched of whom."""
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
