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

# Operations of groups inside one host say nothing of clocks, and are most of all.
ENDS: Final = """
WITH host_of AS (SELECT rank, CAST(coalesce(host_id, 1000000 + rank) AS BIGINT) AS host FROM ranks),
inside AS (
    SELECT comm_id FROM members JOIN host_of USING (rank) GROUP BY comm_id HAVING min(host) = max(host)
), picked AS (
    SELECT rank, comm_id, coalesce(pair_seq, op_seq) AS number, is_p2p, op_kind, peer, start_ts, dur_ns, file_id
    FROM coll_ops
    WHERE start_ts >= make_timestamp_ns($1) AND start_ts < make_timestamp_ns($2) AND state = 'completed'
        AND dur_ns IS NOT NULL AND (comm_id + coalesce(pair_seq, op_seq)) % $3 = 0
)
SELECT o.comm_id AS comm, CAST(o.number AS BIGINT) AS seq,
       CASE WHEN o.is_p2p THEN CASE WHEN o.op_kind = 'send' THEN o.rank ELSE o.peer END END AS src,
       CASE WHEN o.is_p2p THEN CASE WHEN o.op_kind = 'send' THEN o.peer ELSE o.rank END END AS dst,
       h.host AS host, max(epoch_ns(o.start_ts) + o.dur_ns) AS end_ns
FROM picked o JOIN host_of h ON h.rank = o.rank
WHERE o.comm_id NOT IN (SELECT comm_id FROM inside)
    AND o.file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
GROUP BY ALL
"""
RANK_HOSTS: Final = "SELECT rank, coalesce(host_id, 1000000 + rank) AS host FROM ranks ORDER BY rank"
SPAN: Final = """
SELECT epoch_ns(min(start_ts)) AS first, epoch_ns(max(start_ts)) AS last
FROM coll_ops
WHERE state = 'completed' AND start_ts < make_timestamp_ns(?)
    AND file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
"""
# Time back from the newest operation from which operations are taken: the second where the first knows not all hosts.
LOOK_BACK_NS: Final = (3_000_000_000, 15_000_000_000)
# Of a job of so many ranks every operation is taken, of larger ones a part, but at least one of eight: each host
# still shares several operations with others.
RANKS_OF_ALL: Final = 128
SMALLEST_PART: Final = 8
# Fewer operations than this say nothing of a pair of hosts.
LEAST_OPS: Final = 3
_FOREVER: Final = 1 << 62


def clock_offsets(store: Frames, *, at: int | None = None, hosts: Mapping[int, int] | None = None) -> dict[int, int]:
    """Return by how many ns the clock of each rank's host is ahead of the middle host's.

    `at`: only operations that began before it are looked at. Ranks whose host shares no operation with others are
    absent: nothing is known of their clock, and nothing depends on it. `hosts`: rank -> host, where known already.
    """
    if hosts is None:
        hosts = {int(r): int(h) for r, h in store.frame(RANK_HOSTS).iter_rows()}
    if len(set(hosts.values())) < 2:
        return {}
    span = store.frame(SPAN, (_FOREVER if at is None else at,)).row(0)
    if span[0] is None:
        return {}
    first, until = int(span[0]), int(span[1]) + 1
    offsets: dict[int, int] = {}
    part = min(max(1, len(hosts) // RANKS_OF_ALL), SMALLEST_PART)
    near, far = (max(first, until - back) for back in LOOK_BACK_NS)
    for since, one_of in dict.fromkeys(((near, part), (far, part), (far, 1))):
        offsets = host_offsets(store.frame(ENDS, (since, until, one_of)))
        if len(offsets) == len(set(hosts.values())):
            break
    return {rank: offsets[host] for rank, host in hosts.items() if host in offsets}


def host_offsets(by_host: pl.DataFrame) -> dict[int, int]:
    """Return the offset of each host, ns, from last ends of operations (comm, seq, src, dst, host, end_ns)."""
    if by_host.is_empty():
        return {}
    op = ["comm", "seq", "src", "dst"]
    found = by_host.with_columns(ref=pl.col("host").min().over(op)).lazy()
    reference = found.filter(pl.col("host") == pl.col("ref")).select(*op, base="end_ns")
    pairs = (
        found.filter(pl.col("host") != pl.col("ref"))
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
    offsets: dict[int, int] = {}
    for start in sorted(near):
        if start in offsets:
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
        offsets |= {host: round(value - middle) for host, value in part.items()}
    return offsets
