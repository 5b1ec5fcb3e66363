"""Queries to begin with: each a question that somebody asks at night, with what its answer promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Recipe:
    """One query: `name` is the question, `promise` says what a row of the answer is."""

    name: str
    promise: str
    sql: str


RECIPES: Final = (
    Recipe(
        "Open operations by group",
        "one row per operation that somebody issued and did not finish, the most waited for first",
        """SELECT c.key, c."desc", o.op_seq, o.op_kind, count(*) AS entered
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE o.state <> 'completed' AND NOT coalesce(o.retired, FALSE)
GROUP BY ALL
ORDER BY entered DESC, c.key""",
    ),
    Recipe(
        "How far each rank is behind in its groups",
        "one row per rank and group in which it is behind the furthest member",
        """SELECT c.key, c."desc", m.rank, max(o.op_seq) AS last_seq,
    max(max(o.op_seq)) OVER (PARTITION BY m.comm_id) - max(o.op_seq) AS behind
FROM members m
JOIN communicators c USING (comm_id)
JOIN coll_ops o ON o.comm_id = m.comm_id AND o.rank = m.rank AND NOT coalesce(o.is_p2p, FALSE)
GROUP BY c.key, c."desc", m.comm_id, m.rank
QUALIFY behind > 0
ORDER BY behind DESC, m.rank""",
    ),
    Recipe(
        "Latest ranks of each operation",
        "one row per rank and collective, the latest after the first arrival first",
        """SELECT c.key, o.op_seq, o.rank,
    (epoch_ns(o.enq_ts) - min(epoch_ns(o.enq_ts)) OVER (PARTITION BY o.comm_id, o.op_seq)) / 1e6 AS late_ms
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE NOT coalesce(o.is_p2p, FALSE)
ORDER BY late_ms DESC
LIMIT 100""",
    ),
    Recipe(
        "Who is late on the whole",
        "one row per rank and group: its median arrival after the median of the group, ms",
        """WITH arrivals AS (
    SELECT comm_id, op_seq, rank, epoch_ns(coalesce(start_ts, enq_ts)) AS at_ns
    FROM coll_ops
    WHERE NOT coalesce(is_p2p, FALSE) AND coalesce(start_ts, enq_ts) IS NOT NULL
),
medians AS (
    SELECT comm_id, op_seq, quantile_disc(at_ns, 0.5) AS middle
    FROM arrivals
    GROUP BY ALL
    HAVING count(DISTINCT rank) >= 3
)
SELECT c.key, a.rank, count(*) AS ops, quantile_disc(a.at_ns - m.middle, 0.5) / 1e6 AS late_ms
FROM arrivals a
JOIN medians m USING (comm_id, op_seq)
JOIN communicators c USING (comm_id)
GROUP BY ALL
ORDER BY late_ms DESC
LIMIT 100""",
    ),
    Recipe(
        "Members that left no dump",
        "one row per member of a group whose rank left no dump",
        """SELECT c.key, c."desc", m.rank
FROM members m
JOIN communicators c USING (comm_id)
WHERE m.rank NOT IN (SELECT rank FROM rank_dumps)
ORDER BY m.rank, c.key""",
    ),
    Recipe(
        "Operations whose members disagree",
        "one row per collective with more than one kind, size or type among its members",
        """SELECT c.key, o.op_seq, count(DISTINCT o.op_kind) AS kinds, count(DISTINCT o.out_sizes) AS sizes,
    count(DISTINCT o.dtype) AS types
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE NOT coalesce(o.is_p2p, FALSE)
GROUP BY ALL
HAVING kinds > 1 OR sizes > 1 OR types > 1
ORDER BY o.op_seq, c.key""",
    ),
    Recipe(
        "How long each shape of operation takes",
        "one row per kind, group role, size and type, with count, median and 95 % quantile, ms",
        """SELECT c.kind AS role, o.op_kind, o.bytes, o.dtype, count(*) AS n,
    quantile_cont(o.dur_ns, 0.5) / 1e6 AS p50_ms, quantile_cont(o.dur_ns, 0.95) / 1e6 AS p95_ms
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE o.dur_ns IS NOT NULL
GROUP BY ALL
ORDER BY n DESC""",
    ),
    Recipe(
        "The longest operations",
        "one row per entry that took longest, ms",
        """SELECT c.key, o.op_seq, o.op_kind, o.rank, o.dur_ns / 1e6 AS dur_ms, o.start_ts
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE o.dur_ns IS NOT NULL
ORDER BY o.dur_ns DESC
LIMIT 50""",
    ),
    Recipe(
        "Bandwidth of each shape",
        "one row per kind, group and size: the median of bytes over the time of the last to arrive, GB/s",
        """WITH done AS (
    SELECT comm_id, op_seq, op_kind, max(bytes) AS bytes, min(dur_ns) AS dur_ns
    FROM coll_ops
    WHERE dur_ns > 0 AND bytes > 0 AND NOT coalesce(is_p2p, FALSE)
    GROUP BY ALL
)
SELECT c.key, d.op_kind, d.bytes, count(*) AS n, quantile_cont(d.bytes / d.dur_ns, 0.5) AS algbw_gb_s
FROM done d
JOIN communicators c USING (comm_id)
GROUP BY ALL
ORDER BY algbw_gb_s""",
    ),
    Recipe(
        "Time inside collectives by rank",
        "one row per rank: seconds inside collectives and the share of its own recorded time",
        """SELECT rank, count(*) AS ops, sum(dur_ns) / 1e9 AS inside_s,
    sum(dur_ns) / (max(epoch_ns(start_ts) + dur_ns) - min(epoch_ns(start_ts))) AS share
FROM coll_ops
WHERE dur_ns IS NOT NULL AND NOT coalesce(is_p2p, FALSE)
GROUP BY rank
ORDER BY inside_s""",
    ),
    Recipe(
        "Longest pauses between operations of a rank",
        "one row per pause of a rank between two operations that it issued, the longest first",
        """SELECT rank, op_seq, op_kind, enq_ts,
    (epoch_ns(enq_ts) - lag(epoch_ns(enq_ts)) OVER (PARTITION BY rank ORDER BY enq_ts)) / 1e6 AS pause_ms
FROM coll_ops
WHERE enq_ts IS NOT NULL
ORDER BY pause_ms DESC NULLS LAST
LIMIT 50""",
    ),
    Recipe(
        "Flows that stand still",
        "one row per flow half: its last counters, the longest standstill first",
        """SELECT c.key, s.op_seq, s.rank, s.peer, s.channel, s.dir, s.posted, s.ready, s.moved, s.done, s.chunks_total,
    s.idle_ms
FROM flow_state s
JOIN communicators c USING (comm_id)
QUALIFY row_number() OVER (
    PARTITION BY s.comm_id, s.rank, s.peer, s.channel, s.qp, s.dir ORDER BY s.ts DESC) = 1
ORDER BY s.idle_ms DESC
LIMIT 200""",
    ),
    Recipe(
        "Which sender and receiver are slow",
        "one row per sender and receiver: mean time that the network held a chunk, and the longest, µs",
        """SELECT rank AS sender, peer AS receiver, sum(slices) AS chunks,
    sum(net_busy_ns) / nullif(sum(slices), 0) / 1e3 AS mean_us, max(net_max_ns) / 1e3 AS max_us
FROM flow_ops
WHERE dir = 'send'
GROUP BY ALL
ORDER BY mean_us DESC NULLS LAST""",
    ),
    Recipe(
        "Who was heard of last, and when",
        "one row per rank: its last sign of life and its open operations, the longest silent first",
        """SELECT rank, max(ts) AS heard, arg_max(n_open, ts) AS open_ops, max(last_progress_ts) AS progress
FROM heartbeat
GROUP BY rank
ORDER BY progress, rank""",
    ),
    Recipe(
        "Errors in the logs, in the order of time",
        "one row per line of a log that is an error or worse",
        """SELECT e.ts, e.rank, e.level, e.kind, f.path, e.line, e.text
FROM events e
JOIN files f USING (file_id)
WHERE e.level IN ('error', 'fatal')
ORDER BY e.ts
LIMIT 200""",
    ),
    Recipe(
        "What the logs say, by kind",
        "one row per kind of event: how often, of how many ranks, first and last time",
        """SELECT kind, level, count(*) AS n, count(DISTINCT rank) AS ranks, min(ts) AS first, max(ts) AS last
FROM events
GROUP BY ALL
ORDER BY n DESC, kind""",
    ),
    Recipe(
        "Where the main threads stand",
        "one row per innermost frame, with the ranks that stand there",
        """SELECT t.frames[1] AS innermost, count(*) AS ranks, list(s.rank ORDER BY s.rank) AS which
FROM stacks s
JOIN stack_texts t USING (stack_id)
WHERE s.is_main
GROUP BY 1
ORDER BY ranks DESC""",
    ),
    Recipe(
        "What the devices of the hosts said",
        "one row per host, device and kind of reading: how often, least and greatest number",
        """SELECT h.name AS host, e.device, e.kind, count(*) AS n, min(e.number) AS least, max(e.number) AS most
FROM host_evidence e
JOIN hosts h USING (host_id)
GROUP BY ALL
ORDER BY host, e.device, e.kind""",
    ),
    Recipe(
        "Which rank is which, where sources differ",
        "one row per attribute of a rank for which more than one value was claimed",
        """SELECT rank, attribute, count(DISTINCT value) AS claimed, list(DISTINCT value ORDER BY value) AS "values"
FROM identity
GROUP BY ALL
HAVING claimed > 1
ORDER BY rank, attribute""",
    ),
    Recipe(
        "What was dropped, and why",
        "one row per file that was not read, or not all of it",
        """SELECT path, loader, rows, dropped, problems
FROM files
WHERE problems IS NOT NULL OR dropped > 0 OR loader IS NULL
ORDER BY path""",
    ),
)
