"""The ranks of a trace: where each runs, what it left behind, how far it came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mycroft.app.queries import TraceReader

_RANKS: Final = """
WITH known AS (
    SELECT rank FROM ranks
    UNION
    SELECT rank FROM members
    UNION
    SELECT range FROM range((SELECT coalesce(max(world_size), 0) FROM jobs))
),
ops AS (
    SELECT
        rank,
        count(*) AS ops,
        count(*) FILTER (WHERE state IN ('scheduled', 'started') AND NOT coalesce(retired, FALSE)) AS open_ops,
        arg_max({'comm': comm_id, 'seq': op_seq, 'kind': op_kind::VARCHAR, 'enq': epoch_ns(enq_ts)},
            coalesce(record_id, line, op_seq)) AS last
    FROM coll_ops
    GROUP BY rank
),
dumps AS (
    SELECT rank, count(*) AS dumps, sum(entries)::BIGINT AS entries
    FROM rank_dumps
    GROUP BY rank
),
logs AS (
    SELECT rank, count(*) AS log_rows
    FROM events
    WHERE rank IS NOT NULL
    GROUP BY rank
),
stack AS (
    SELECT rank, count(*) AS stacks
    FROM stacks
    WHERE rank IS NOT NULL
    GROUP BY rank
)
SELECT
    known.rank::BIGINT AS rank,
    h.name AS host,
    r.local_rank::BIGINT AS local_rank,
    r.gpu,
    r.pid::BIGINT AS pid,
    r.dp::BIGINT AS dp,
    r.pp::BIGINT AS pp,
    r.tp::BIGINT AS tp,
    r.ep::BIGINT AS ep,
    coalesce(dumps.dumps, 0)::BIGINT AS dumps,
    dumps.entries,
    coalesce(logs.log_rows, 0)::BIGINT AS log_rows,
    coalesce(stack.stacks, 0)::BIGINT AS stacks,
    ops.ops::BIGINT AS ops,
    ops.open_ops::BIGINT AS open_ops,
    c.key AS last_comm,
    c.desc AS last_group,
    ops.last.seq::BIGINT AS last_seq,
    ops.last.kind AS last_kind,
    ops.last.enq AS last_enq_ns
FROM known
LEFT JOIN ranks r ON r.rank = known.rank
LEFT JOIN hosts h USING (host_id)
LEFT JOIN ops ON ops.rank = known.rank
LEFT JOIN communicators c ON c.comm_id = ops.last.comm
LEFT JOIN dumps ON dumps.rank = known.rank
LEFT JOIN logs ON logs.rank = known.rank
LEFT JOIN stack ON stack.rank = known.rank
ORDER BY known.rank
"""
_GROUPS: Final = """
SELECT
    c.key,
    c.desc,
    c.name,
    c.kind,
    coalesce(c.size, c.seen_size)::BIGINT AS size,
    m.comm_rank::BIGINT AS comm_rank,
    s.last_enqueued,
    s.last_started,
    s.last_completed,
    o.ops::BIGINT AS ops,
    o.open_ops::BIGINT AS open_ops,
    o.last_seq::BIGINT AS last_seq,
    far.last_seq::BIGINT AS furthest_seq
FROM members m
JOIN communicators c USING (comm_id)
LEFT JOIN (
    SELECT comm_id, max(last_enqueued) AS last_enqueued, max(last_started) AS last_started,
        max(last_completed) AS last_completed
    FROM group_status
    WHERE rank = $1
    GROUP BY comm_id
) s USING (comm_id)
LEFT JOIN (
    SELECT comm_id, count(*) AS ops, max(op_seq) AS last_seq,
        count(*) FILTER (WHERE state IN ('scheduled', 'started') AND NOT coalesce(retired, FALSE)) AS open_ops
    FROM coll_ops
    WHERE rank = $1
    GROUP BY comm_id
) o USING (comm_id)
LEFT JOIN (
    SELECT comm_id, max(op_seq) AS last_seq
    FROM coll_ops
    WHERE comm_id IN (SELECT comm_id FROM members WHERE rank = $1)
    GROUP BY comm_id
) far USING (comm_id)
WHERE m.rank = $1
ORDER BY open_ops DESC NULLS LAST, c.key
"""
_OPS: Final = """
SELECT
    c.key AS comm,
    c.desc AS "group",
    o.op_seq::BIGINT AS seq,
    o.op_kind::VARCHAR AS kind,
    o.state::VARCHAR AS state,
    coalesce(o.retired, FALSE) AS retired,
    coalesce(o.is_p2p, FALSE) AS is_p2p,
    o.peer::BIGINT AS peer,
    epoch_ns(o.enq_ts) AS enq_ns,
    o.dur_ns,
    o.bytes::BIGINT AS bytes,
    o.in_sizes,
    o.dtype,
    coalesce(o.record_id, o.line)::BIGINT AS record
FROM coll_ops o
LEFT JOIN communicators c USING (comm_id)
WHERE o.rank = ?
ORDER BY coalesce(o.record_id, o.line, o.op_seq) DESC
LIMIT ?
"""
_LATENESS: Final = """
WITH mine AS (
    SELECT comm_id, op_seq, op_kind::VARCHAR AS kind, epoch_ns(coalesce(start_ts, enq_ts)) AS at_ns
    FROM coll_ops
    WHERE rank = $1 AND NOT coalesce(is_p2p, FALSE) AND coalesce(start_ts, enq_ts) IS NOT NULL
    ORDER BY at_ns DESC
    LIMIT $2
),
peers AS (
    SELECT comm_id, op_seq, quantile_disc(epoch_ns(coalesce(start_ts, enq_ts)), 0.5) AS median_ns
    FROM coll_ops
    WHERE (comm_id, op_seq) IN (SELECT (comm_id, op_seq) FROM mine) AND NOT coalesce(is_p2p, FALSE)
        AND coalesce(start_ts, enq_ts) IS NOT NULL
    GROUP BY ALL
    HAVING count(DISTINCT rank) >= 3
)
SELECT c.key AS comm, mine.op_seq::BIGINT AS seq, mine.kind, mine.at_ns, mine.at_ns - peers.median_ns AS late_ns
FROM mine
JOIN peers USING (comm_id, op_seq)
LEFT JOIN communicators c USING (comm_id)
ORDER BY mine.at_ns
"""
_COUNT: Final = "SELECT count(*) FROM coll_ops WHERE rank = ?"
_DUMPS: Final = """
SELECT d.kind, d.version, d.backend, d.lib_version, d.entries::BIGINT AS entries,
    d.first_record::BIGINT AS first_record, d.has_events, d.has_timing, d.only_active, d.file_id::BIGINT AS file_id,
    f.path
FROM rank_dumps d
LEFT JOIN files f USING (file_id)
WHERE d.rank = ?
ORDER BY d.file_id
"""
_LOG_TAIL: Final = """
SELECT epoch_ns(e.ts) AS ts_ns, e.level::VARCHAR AS level, e.kind::VARCHAR AS kind, e.text,
    e.file_id::BIGINT AS file_id, e.line::BIGINT AS line, f.path
FROM events e
LEFT JOIN files f USING (file_id)
WHERE e.rank = ?
QUALIFY row_number() OVER (PARTITION BY e.file_id, e.line ORDER BY e.level DESC NULLS LAST, e.kind) = 1
ORDER BY e.ts DESC NULLS LAST, e.file_id DESC, e.line DESC
LIMIT ?
"""
_IDENTITY: Final = """
SELECT i.attribute, i.value, i.reason, coalesce(i.ambiguous, FALSE) AS ambiguous, i.file_id::BIGINT AS file_id,
    i.line::BIGINT AS line, f.path
FROM identity i
LEFT JOIN files f USING (file_id)
WHERE i.rank = ?
ORDER BY i.attribute, i.value
LIMIT 200
"""


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank: None is unknown, a count of 0 means that nothing of that kind came from it."""

    rank: int
    host: str | None
    local_rank: int | None
    gpu: str | None
    pid: int | None
    dp: int | None
    pp: int | None
    tp: int | None
    ep: int | None
    dumps: int
    entries: int | None
    log_rows: int
    stacks: int
    ops: int | None
    open_ops: int | None
    last_comm: str | None
    last_group: str | None
    last_seq: int | None
    last_kind: str | None
    last_enq_ns: int | None

    @property
    def place(self) -> str | None:
        """Return its coordinates in the parallel layout, `DP 0 · PP 1 · TP 3`; None where no source gives them."""
        known = [
            f"{name} {value}"
            for name, value in (("DP", self.dp), ("PP", self.pp), ("TP", self.tp), ("EP", self.ep))
            if value is not None
        ]
        return " · ".join(known) or None

    @property
    def last_op(self) -> str | None:
        """Return the newest operation that it issued, in words."""
        if self.last_kind is None:
            return None
        return self.last_kind + (f" {self.last_seq}" if self.last_seq is not None else "")


def all_ranks(reader: TraceReader) -> list[RankRow]:
    """Return every rank that any source names or that the job should have, in order."""
    return [RankRow(**row) for row in reader.frame(_RANKS).iter_rows(named=True)]


def groups_of(reader: TraceReader, rank: int) -> list[dict[str, Any]]:
    """Return the communicators of a rank with how far it came in each, those with open operations first."""
    return reader.frame(_GROUPS, [rank]).to_dicts()


def operations_of(reader: TraceReader, rank: int, *, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the newest `limit` operations of a rank, newest first, and how many it has in all."""
    return reader.frame(_OPS, [rank, limit]).to_dicts(), reader.frame(_COUNT, [rank]).item()


def dumps_of(reader: TraceReader, rank: int) -> list[dict[str, Any]]:
    """Return the dumps of a rank; none is a fact of its own."""
    return reader.frame(_DUMPS, [rank]).to_dicts()


def log_tail(reader: TraceReader, rank: int, *, limit: int) -> list[dict[str, Any]]:
    """Return the last lines that logs hold of a rank, oldest first; a line that says two things is there once."""
    return reader.frame(_LOG_TAIL, [rank, limit]).to_dicts()[::-1]


def lateness_of(reader: TraceReader, rank: int, *, limit: int) -> list[dict[str, Any]]:
    """Return how long after the median of its group a rank came to its newest collectives, in the order of time.

    Groups of which fewer than three members arrived have no median worth comparing with, and are left out. Times are
    of each host's own clock, so a constant offset may be the clock's.
    """
    return reader.frame(_LATENESS, [rank, limit]).to_dicts()


def identity_of(reader: TraceReader, rank: int) -> list[dict[str, Any]]:
    """Return why we believe that this rank is what it is said to be, contradictions included."""
    return reader.frame(_IDENTITY, [rank]).to_dicts()
