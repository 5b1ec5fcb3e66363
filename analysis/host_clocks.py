"""How far the clocks of hosts are apart, from operations that all members leave together.

Across hosts only seconds are compared, but a clock that is two seconds off would make a live host look silent and a
fresh row old. A collective ends at all its members within milliseconds, and a receive ends with its send: the median
difference of their times over many operations is the difference of the clocks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from mycroft.analysis.facts import Frames
from mycroft.analysis.grouped import Groups, Ints, looked_up

# A part of the operations, by the remainder of their numbers (a signed divisor would make it one of 128 bits). Ends of
# a send or receive that are not known are -2.
ENDS: Final = """
SELECT rank, comm_id AS comm, CAST(coalesce(pair_seq, op_seq) AS BIGINT) AS seq,
       CASE WHEN NOT coalesce(is_p2p, FALSE) THEN -1 WHEN op_kind = 'send' THEN CAST(rank AS BIGINT)
            ELSE coalesce(CAST(peer AS BIGINT), -2) END AS src,
       CASE WHEN NOT coalesce(is_p2p, FALSE) THEN -1 WHEN op_kind = 'send' THEN coalesce(CAST(peer AS BIGINT), -2)
            ELSE CAST(rank AS BIGINT) END AS dst,
       epoch_ns(start_ts) + dur_ns AS end_ns
FROM coll_ops
WHERE start_ts >= make_timestamp_ns($1) AND start_ts < make_timestamp_ns($2) AND state = 'completed'
    AND dur_ns IS NOT NULL AND (comm_id + coalesce(pair_seq, op_seq)) % CAST($3 AS UBIGINT) = 0
    AND file_id IN (SELECT file_id FROM rank_dumps WHERE kind = 'ring')
"""
LISTED: Final = "SELECT comm_id AS comm, rank FROM members ORDER BY comm_id, rank"
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


def clock_offsets(
    store: Frames,
    *,
    at: int | None = None,
    hosts: Mapping[int, int] | None = None,
    members: pl.DataFrame | None = None,
) -> dict[int, int]:
    """Return by how many ns the clock of each rank's host is ahead of the middle host's.

    `at`: only operations that began before it are looked at. Ranks whose host shares no operation with others are
    absent: nothing is known of their clock, and nothing depends on it. `hosts`: rank -> host, and `members`: what
    `LISTED` answers, where known already.
    """
    if hosts is None:
        hosts = {int(r): int(h) for r, h in store.frame(RANK_HOSTS).iter_rows()}
    everywhere = len(set(hosts.values()))
    if everywhere < 2:
        return {}
    span = store.frame(SPAN, (_FOREVER if at is None else at,)).row(0)
    if span[0] is None:
        return {}
    first, until = int(span[0]), int(span[1]) + 1
    offsets: dict[int, int] = {}
    part = min(max(1, len(hosts) // RANKS_OF_ALL), SMALLEST_PART)
    near, far = (max(first, until - back) for back in LOOK_BACK_NS)
    inside = _inside_hosts(store.frame(LISTED) if members is None else members, hosts)
    for since, one_of in dict.fromkeys(((near, part), (far, part), (far, 1))):
        offsets = _host_offsets(store.frame(ENDS, (since, until, one_of)), hosts, inside)
        if len(offsets) == everywhere:
            break
    return {rank: offsets[host] for rank, host in hosts.items() if host in offsets}


def _inside_hosts(members: pl.DataFrame, hosts: Mapping[int, int]) -> Ints:
    """Return the communicators inside of one host: most operations are theirs, and say nothing of clocks."""
    comm, rank = (members[name].cast(pl.Int64).to_numpy() for name in ("comm", "rank"))
    host = looked_up(rank, hosts, missing=-1)
    known = host >= 0
    comm, host = comm[known], host[known]
    groups = Groups(comm)
    return comm[groups.first][groups.least(host) == groups.largest(host)]


def _host_offsets(ends: pl.DataFrame, hosts: Mapping[int, int], inside: Ints) -> dict[int, int]:
    """Return the offset of each host, ns, from ends of operations (rank, comm, seq, src, dst, end_ns)."""
    rank, *op, end = (ends[name].cast(pl.Int64).to_numpy() for name in ("rank", "comm", "seq", "src", "dst", "end_ns"))
    host = looked_up(rank, hosts, missing=-1)
    across = (host >= 0) & ~np.isin(op[0], inside)
    host, end, op = host[across], end[across], [part[across] for part in op]
    last = Groups(*op, host)
    host, end, op = host[last.first], last.largest(end), [part[last.first] for part in op]
    # Against the first host of each operation.
    same = Groups(*op)
    first = same.first[same.of_row]
    reference, apart = host[first], end - end[first]
    other = host != reference
    reference, host, apart = reference[other], host[other], apart[other]
    pairs = Groups(reference, host)
    middle, enough = pairs.medians(apart), pairs.sizes >= LEAST_OPS
    near: dict[int, list[tuple[int, float]]] = defaultdict(list)
    chosen = pairs.first[enough]
    for ref, there, diff in zip(
        reference[chosen].tolist(), host[chosen].tolist(), middle[enough].tolist(), strict=True
    ):
        near[ref].append((there, diff))
        near[there].append((ref, -diff))
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
        middle_of = sorted(part.values())[len(part) // 2]
        offsets |= {one: round(value - middle_of) for one, value in part.items()}
    return offsets
