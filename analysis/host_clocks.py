"""How far the clocks of hosts are apart, from operations that all members leave together.

Across hosts only seconds are compared, but a clock that is two seconds off would make a live host look silent and a
fresh row old. A collective ends at all its members within milliseconds, and a receive ends with its send: the median
difference of their times over many operations is the difference of the clocks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final

import polars as pl

from mycroft.analysis.facts import Frames

# Operations of each pair of hosts that are enough for a median of milliseconds.
ENDS: Final = """
SELECT o.rank, o.comm_id AS comm, CAST(coalesce(o.pair_seq, o.op_seq) AS BIGINT) AS seq,
       CASE WHEN o.is_p2p THEN CASE WHEN o.op_kind = 'send' THEN o.rank ELSE o.peer END END AS src,
       CASE WHEN o.is_p2p THEN CASE WHEN o.op_kind = 'send' THEN o.peer ELSE o.rank END END AS dst,
       epoch_ns(o.start_ts) + o.dur_ns AS end_ns
FROM coll_ops o
WHERE o.state = 'completed' AND o.dur_ns IS NOT NULL AND o.start_ts >= make_timestamp_ns(?)
    AND o.start_ts < make_timestamp_ns(?)
"""
RANK_HOSTS: Final = "SELECT rank, coalesce(host_id, 1000000 + rank) AS host FROM ranks ORDER BY rank"
SPAN: Final = """
SELECT min(epoch_ns(start_ts)) AS first, max(epoch_ns(start_ts)) AS last
FROM coll_ops
WHERE state = 'completed' AND rank IN (SELECT rank FROM rank_dumps WHERE kind = 'ring')
"""
# Time from which operations are taken.
LOOK_BACK_NS: Final = 12_000_000_000
# Fewer operations than this say nothing of a pair of hosts.
LEAST_OPS: Final = 3


def clock_offsets(store: Frames, *, at: int | None = None) -> dict[int, int]:
    """Return by how many ns the clock of each rank's host is ahead of the middle host's.

    `at`: only operations that began before it are looked at. Ranks whose host shares no operation with others are
    absent: nothing is known of their clock, and nothing depends on it.
    """
    span = store.frame(SPAN).row(0)
    if span[0] is None:
        return {}
    until = int(span[1]) + 1 if at is None else at
    ends = store.frame(ENDS, (max(int(span[0]), until - LOOK_BACK_NS), until))
    hosts = {int(r): int(h) for r, h in store.frame(RANK_HOSTS).iter_rows()}
    offsets = host_offsets(ends, hosts)
    return {rank: offsets[host] for rank, host in hosts.items() if host in offsets}


def host_offsets(ends: pl.DataFrame, hosts: Mapping[int, int]) -> dict[int, int]:
    """Return the offset of each host, ns, from ends of operations (rank, comm, seq, src, dst, end_ns)."""
    if ends.is_empty() or len(set(hosts.values())) < 2:
        return {}
    op = ["comm", "seq", "src", "dst"]
    table = pl.DataFrame(
        {"rank": list(hosts), "host": list(hosts.values())}, schema={"rank": pl.UInt32, "host": pl.Int64}
    )
    by_host = (
        ends.lazy()
        .join(table.lazy(), on="rank")
        .group_by(*op, "host")
        .agg(pl.col("end_ns").max())
        .with_columns(ref=pl.col("host").min().over(op))
    )
    reference = by_host.filter(pl.col("host") == pl.col("ref")).select(*op, base="end_ns")
    pairs = (
        by_host.filter(pl.col("host") != pl.col("ref"))
        .join(reference, on=op, nulls_equal=True)
        .group_by("ref", "host")
        .agg(diff=(pl.col("end_ns") - pl.col("base")).median(), n=pl.len())
        .filter(pl.col("n") >= LEAST_OPS)
        .sort("ref", "host")
        .collect()
    )
    near: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for ref, host, diff, _ in pairs.iter_rows():
        near[int(ref)].append((int(host), float(diff)))
        near[int(host)].append((int(ref), -float(diff)))
    found: dict[int, int] = {}
    for start in sorted(near):
        if start in found:
            continue
        part = {start: 0.0}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            for there, diff in near[here]:
                if there not in part:
                    part[there] = part[here] + diff
                    queue.append(there)
        middle = sorted(part.values())[len(part) // 2]
        found |= {host: round(value - middle) for host, value in part.items()}
    return found
