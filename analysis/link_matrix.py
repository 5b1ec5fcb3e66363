"""Sender by receiver: how long each link takes against all others, and whether a row, a column or a cell is odd.

A slow row is the sender, a slow column the receiver, one slow cell the path between two. Both ends may have measured
a transfer, and whoever arrives first waits for the other: the *shorter* of the two is the transfer. Sizes are not
compared with each other: a link's factor is the median over sizes of its time against that of a good link at that size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import polars as pl

from mycroft.analysis.facts import Frames
from mycroft.analysis.series import shape

# A link that takes this many times as long as the others is slow.
SLOW: Final = 1.5
# So many links are needed to know what is usual, and so many of a row or column must be slow.
LEAST_LINKS: Final = 6
ROW_SHARE: Final = 0.75
LEAST_IN_ROW: Final = 2
# What is usual is the time of a good link: one slow end of four already makes half of all links slow.
USUAL: Final = 0.3

# Transfers as profilers measured them on either side. `series` orders those of one link.
_TRANSFERS: Final = """
WITH measured AS (
    SELECT
        coalesce(rank, comm_rank)::BIGINT AS rank,
        peer_rank::BIGINT AS peer,
        op_kind::VARCHAR AS kind,
        bytes::BIGINT AS bytes,
        dur_ms::DOUBLE AS ms,
        seq::BIGINT AS series,
        file_id::BIGINT AS file,
        line::BIGINT AS line
    FROM events
    WHERE kind = 'op_perf' AND peer_rank IS NOT NULL AND dur_ms > 0
), traced AS (
    SELECT rank::BIGINT, peer::BIGINT, op_kind::VARCHAR, bytes::BIGINT, dur_ns / 1e6, op_seq::BIGINT,
        file_id::BIGINT, line::BIGINT
    FROM coll_ops
    WHERE is_p2p AND peer IS NOT NULL AND dur_ns > 0 AND NOT EXISTS (FROM measured)
), flows AS (
    SELECT rank::BIGINT, peer::BIGINT, dir::VARCHAR, (bytes // slices)::BIGINT, net_busy_ns / 1e6 / slices,
        op_seq::BIGINT, NULL::BIGINT, NULL::BIGINT
    FROM flow_ops
    WHERE dir = 'send' AND peer IS NOT NULL AND net_busy_ns > 0 AND slices > 0
)
SELECT * FROM (FROM measured UNION ALL FROM traced UNION ALL FROM flows)
WHERE rank IS NOT NULL AND rank <> peer AND kind IN ('send', 'recv')
ORDER BY rank, peer, series, file, line
LIMIT 2000000
"""
_PAIRS: Final = """
SELECT group_desc AS hosts, bytes::BIGINT AS bytes, value::DOUBLE AS gbs, file_id::BIGINT AS file, line::BIGINT AS line
FROM events
WHERE kind = 'bench_row' AND detail = 'out-of-place' AND value > 0 AND bytes > 0 AND group_desc LIKE '%,%'
    AND group_desc NOT LIKE '%,%,%'
ORDER BY hosts, bytes, file, line
LIMIT 100000
"""
_ANY: Final = """
SELECT
    EXISTS (FROM events WHERE kind = 'op_perf' AND peer_rank IS NOT NULL AND dur_ms > 0)
    OR EXISTS (FROM coll_ops WHERE is_p2p AND peer IS NOT NULL AND dur_ns > 0)
    OR EXISTS (FROM flow_ops WHERE dir = 'send' AND peer IS NOT NULL AND net_busy_ns > 0 AND slices > 0)
    OR (SELECT count(DISTINCT group_desc) > 2 FROM events
        WHERE kind = 'bench_row' AND group_desc LIKE '%,%' AND group_desc NOT LIKE '%,%,%')
"""


@dataclass(frozen=True, slots=True)
class Link:
    """One cell: `factor` is its time against all links (1 is usual), `ms` its median at its commonest size."""

    src: str
    dst: str
    factor: float
    ms: float
    size_bytes: int | None
    count: int
    gbs: float | None
    since: str = ""
    file: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Odd:
    """What stands out: `row` a sender, `column` a receiver, `both` one that is slow either way, `cell` one path."""

    kind: str
    src: str
    dst: str
    factor: float

    @property
    def text(self) -> str:
        """Return it in words."""
        times = f"{self.factor:.1f} times as long as usual"
        if self.kind == "cell":
            return f"the path from {self.src} to {self.dst} takes {times}; both are fast with others"
        who = self.src or self.dst
        if self.kind == "both":
            return f"{who} takes {times}, as sender and as receiver"
        return (
            f"{who} takes {times} as {'sender, whoever receives' if self.kind == 'row' else 'receiver, whoever sends'}"
        )


@dataclass(frozen=True, slots=True)
class Matrix:
    """All links of one kind of end, ranks or hosts; `names` in their order."""

    ends: str
    names: tuple[str, ...]
    links: tuple[Link, ...]
    odd: tuple[Odd, ...]


def has_links(store: Frames) -> bool:
    """Say whether any source measured transfers between two ends."""
    return bool(store.frame(_ANY).item())


def read_matrices(store: Frames) -> tuple[Matrix, ...]:
    """Return the matrix of ranks and that of hosts, as far as there are measurements."""
    found = [ranks_matrix(store.frame(_TRANSFERS)), hosts_matrix(store.frame(_PAIRS))]
    return tuple(matrix for matrix in found if matrix is not None)


def ranks_matrix(transfers: pl.DataFrame) -> Matrix | None:
    """Return the matrix of transfers: `rank`, `peer`, `kind` (send or recv), `bytes`, `ms`, in order of time."""
    if transfers.is_empty():
        return None
    sent = pl.col("kind") == "send"
    each = transfers.with_columns(
        pl.when(sent).then(pl.col("rank")).otherwise(pl.col("peer")).alias("src"),
        pl.when(sent).then(pl.col("peer")).otherwise(pl.col("rank")).alias("dst"),
        pl.col("bytes").fill_null(-1),
    )
    sides = each.group_by("src", "dst", "bytes", "kind", maintain_order=True).agg(
        pl.col("ms").median().alias("middle"),
        pl.col("ms").alias("all"),
        pl.len().alias("count"),
        pl.col("file").first(),
        pl.col("line").first(),
    )
    # The end that waited for the other measured more than the transfer.
    sizes = sides.sort("src", "dst", "bytes", "middle", "kind").unique(["src", "dst", "bytes"], keep="first")
    return _matrix("ranks", sizes.sort("src", "dst", "bytes"), lambda name: f"rank {name}")


def hosts_matrix(pairs: pl.DataFrame) -> Matrix | None:
    """Return the matrix of benchmark runs on pairs of hosts: each run is a cell and its mirror image."""
    if pairs.is_empty():
        return None
    halves: list[pl.DataFrame] = []
    for a, b in ((0, 1), (1, 0)):
        ends = pl.col("hosts").str.split(",")
        halves.append(pairs.with_columns(ends.list.get(a).alias("src"), ends.list.get(b).alias("dst")))
    each = pl.concat(halves).filter(pl.col("src") != pl.col("dst"))
    # A rate as a time: what a transfer of that size takes at it.
    each = each.with_columns((pl.col("bytes") / pl.col("gbs") / 1e6).alias("ms"))
    sizes = each.group_by("src", "dst", "bytes", maintain_order=True).agg(
        pl.col("ms").median().alias("middle"),
        pl.col("ms").alias("all"),
        pl.len().alias("count"),
        pl.col("file").first(),
        pl.col("line").first(),
    )
    greatest = sizes.filter(pl.col("bytes") >= pl.col("bytes").max() / 4)
    return _matrix("hosts", greatest.sort("src", "dst", "bytes"), lambda name: name)


def _matrix(ends: str, sizes: pl.DataFrame, name_of: Callable[[str], str]) -> Matrix | None:
    usual: dict[int, float] = dict(sizes.group_by("bytes").agg(pl.col("middle").quantile(USUAL, "nearest")).iter_rows())
    by_link: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in sizes.iter_rows(named=True):
        by_link[str(row["src"]), str(row["dst"])].append(row)
    links: list[Link] = []
    for (src, dst), rows in by_link.items():
        factor = median(float(row["middle"]) / usual[row["bytes"]] for row in rows)
        main = max(rows, key=lambda row: (int(row["count"]), int(row["bytes"])))
        size, ms = int(main["bytes"]), float(main["middle"])
        links.append(
            Link(
                src=name_of(src),
                dst=name_of(dst),
                factor=factor,
                ms=ms,
                size_bytes=size if size >= 0 else None,
                count=sum(int(row["count"]) for row in rows),
                gbs=size / ms / 1e6 if size > 0 else None,
                since=shape(main["all"], SLOW * usual[size]) if factor >= SLOW else "",
                file=main["file"],
                line=main["line"],
            )
        )
    if not links:
        return None
    plain = {src for src, _dst in by_link} | {dst for _src, dst in by_link}
    names = sorted(plain, key=lambda name: (int(name), "") if ends == "ranks" else (0, name))
    made = tuple(name_of(name) for name in names)
    return Matrix(ends, made, tuple(links), tuple(odd_ones(links, mirrored=ends == "hosts")))


def odd_ones(links: Sequence[Link], *, mirrored: bool = False) -> list[Odd]:
    """Return the senders, receivers and paths that are slow, the slowest first.

    An end is slow where most of its links are, and those whom it meets are fast with others. `mirrored`: a cell and
    its mirror image are one measurement.
    """
    if len(links) < LEAST_LINKS:
        return []
    factors = {(link.src, link.dst): link.factor for link in links}
    found: list[Odd] = []
    rows, columns = _slow_ends(factors, 0), _slow_ends(factors, 1)
    for name in sorted({*rows, *columns}):
        if name in rows and name in columns:
            found.append(Odd("both", name, "", median([rows[name], columns[name]])))
        elif name in rows:
            found.append(Odd("row", name, "", rows[name]))
        else:
            found.append(Odd("column", "", name, columns[name]))
    for (src, dst), factor in sorted(factors.items()):
        explained = {src, dst} & {*rows, *columns}
        if factor >= SLOW and not explained and not (mirrored and (dst, src) in factors and dst < src):
            found.append(Odd("cell", src, dst, factor))
    return sorted(found, key=lambda odd: -odd.factor)


def _slow_ends(factors: Mapping[tuple[str, str], float], side: int) -> dict[str, float]:
    """Return the ends most of whose links are slow, where others' links to the same ends are not."""
    by_end: dict[str, dict[str, float]] = defaultdict(dict)
    for key, factor in factors.items():
        by_end[key[side]][key[1 - side]] = factor
    slow: dict[str, float] = {}
    for name, mine in by_end.items():
        hits = sum(factor >= SLOW for factor in mine.values())
        others = [f for end, links in by_end.items() if end != name for other, f in links.items() if other in mine]
        if hits >= LEAST_IN_ROW and hits >= ROW_SHARE * len(mine) and others and median(others) < SLOW:
            slow[name] = median(mine.values())
    return slow
