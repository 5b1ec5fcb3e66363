"""Communicators and their operations across ranks."""

from __future__ import annotations

from typing import Any, Final

from mycroft.app.queries import TraceReader

_COMMS: Final = """
WITH ops AS (
    SELECT
        comm_id,
        count(*) AS entries,
        count(DISTINCT op_seq) AS ops,
        max(op_seq) AS last_seq,
        count(*) FILTER (WHERE state IN ('scheduled', 'started') AND NOT coalesce(retired, FALSE)) AS open_ops
    FROM coll_ops
    GROUP BY comm_id
)
SELECT
    c.comm_id::BIGINT AS comm_id,
    c.key,
    c.name,
    c.desc,
    c.kind,
    c.backend,
    c.size::BIGINT AS size,
    c.seen_size::BIGINT AS seen_size,
    ops.entries::BIGINT AS entries,
    ops.ops::BIGINT AS ops,
    ops.last_seq::BIGINT AS last_seq,
    ops.open_ops::BIGINT AS open_ops
FROM communicators c
LEFT JOIN ops USING (comm_id)
ORDER BY open_ops DESC NULLS LAST, c.comm_id
"""
_COMM: Final = """
SELECT comm_id::BIGINT AS comm_id, key, name, "desc", kind, backend, size::BIGINT AS size,
    seen_size::BIGINT AS seen_size, hash::VARCHAR AS hash
FROM communicators
WHERE key = ?
"""
_MEMBERS: Final = """
SELECT
    m.rank::BIGINT AS rank,
    m.comm_rank::BIGINT AS comm_rank,
    m.source::VARCHAR AS source,
    h.name AS host,
    d.dumps::BIGINT AS dumps,
    s.last_enqueued,
    s.last_completed,
    o.last_seq::BIGINT AS last_seq,
    o.open_ops::BIGINT AS open_ops
FROM members m
LEFT JOIN ranks r ON r.rank = m.rank
LEFT JOIN hosts h USING (host_id)
LEFT JOIN (SELECT rank, count(*) AS dumps FROM rank_dumps GROUP BY rank) d ON d.rank = m.rank
LEFT JOIN (
    SELECT rank, max(last_enqueued) AS last_enqueued, max(last_completed) AS last_completed
    FROM group_status
    WHERE comm_id = $1
    GROUP BY rank
) s ON s.rank = m.rank
LEFT JOIN (
    SELECT rank, max(op_seq) AS last_seq,
        count(*) FILTER (WHERE state IN ('scheduled', 'started') AND NOT coalesce(retired, FALSE)) AS open_ops
    FROM coll_ops
    WHERE comm_id = $1
    GROUP BY rank
) o ON o.rank = m.rank
WHERE m.comm_id = $1
ORDER BY m.comm_rank NULLS LAST, m.rank
"""
_COMM_OPS: Final = """
SELECT
    op_seq::BIGINT AS seq,
    coalesce(is_p2p, FALSE) AS is_p2p,
    string_agg(DISTINCT op_kind::VARCHAR, ', ' ORDER BY op_kind::VARCHAR) AS kind,
    count(DISTINCT rank)::BIGINT AS entered,
    count(DISTINCT rank) FILTER (WHERE state = 'completed' OR coalesce(retired, FALSE))::BIGINT AS finished,
    epoch_ns(min(enq_ts)) AS first_ns,
    epoch_ns(max(enq_ts)) - epoch_ns(min(enq_ts)) AS spread_ns,
    count(DISTINCT hash(in_sizes, out_sizes, dtype))::BIGINT AS shapes,
    max(bytes)::BIGINT AS bytes
FROM coll_ops
WHERE comm_id = ?
GROUP BY ALL
ORDER BY seq DESC, is_p2p
LIMIT ?
"""
_COMM_OPS_COUNT: Final = "SELECT count(DISTINCT (op_seq, coalesce(is_p2p, FALSE))) FROM coll_ops WHERE comm_id = ?"
_OP: Final = """
SELECT
    rank::BIGINT AS rank,
    op_kind::VARCHAR AS kind,
    op_name,
    state::VARCHAR AS state,
    coalesce(retired, FALSE) AS retired,
    coalesce(is_p2p, FALSE) AS is_p2p,
    coalesce(coalesced, FALSE) AS coalesced,
    peer::BIGINT AS peer,
    epoch_ns(start_ts) AS start_ns,
    epoch_ns(enq_ts) AS enq_ns,
    epoch_ns(seen_end_ts) AS seen_end_ns,
    dur_ns,
    bytes::BIGINT AS bytes,
    in_sizes,
    out_sizes,
    dtype,
    out_dtype,
    redop,
    root::BIGINT AS root,
    algo,
    proto,
    timeout_ms::BIGINT AS timeout_ms,
    stack_id,
    file_id::BIGINT AS file_id,
    line::BIGINT AS line
FROM coll_ops
WHERE comm_id = ? AND op_seq = ?
ORDER BY rank, coalesce(record_id, line)
"""
# The n-th send of a to b in the dump of a belongs to the n-th recv of b from a in the dump of b.
_OTHER_SIDES: Final = """
SELECT
    mine.rank::BIGINT AS rank,
    mine.op_kind::VARCHAR AS kind,
    mine.peer::BIGINT AS peer,
    other.op_seq::BIGINT AS other_seq,
    other.state::VARCHAR AS other_state,
    coalesce(other.retired, FALSE) AS other_retired,
    coalesce(other.coalesced, FALSE) AS other_coalesced,
    other.in_sizes AS other_sizes,
    EXISTS (FROM rank_dumps d WHERE d.rank = mine.peer) AS peer_has_dump
FROM coll_ops mine
LEFT JOIN coll_ops other
    ON other.comm_id = mine.comm_id AND other.is_p2p AND other.rank = mine.peer AND other.peer = mine.rank
    AND other.pair_seq = mine.pair_seq AND other.op_kind <> mine.op_kind
WHERE mine.comm_id = ? AND mine.op_seq = ? AND mine.is_p2p
ORDER BY mine.rank, mine.op_kind
"""
_NEIGHBOURS: Final = """
SELECT
    max(op_seq) FILTER (WHERE op_seq < $2)::BIGINT AS before,
    min(op_seq) FILTER (WHERE op_seq > $2)::BIGINT AS after
FROM coll_ops
WHERE comm_id = $1
"""
_LATENESS: Final = """
WITH arrivals AS (
    SELECT rank, op_seq, epoch_ns(coalesce(start_ts, enq_ts)) AS at_ns
    FROM coll_ops
    WHERE comm_id = (SELECT comm_id FROM communicators WHERE key = ?) AND NOT coalesce(is_p2p, FALSE)
        AND coalesce(start_ts, enq_ts) IS NOT NULL
),
medians AS (
    SELECT op_seq, quantile_disc(at_ns, 0.5) AS median_ns
    FROM arrivals
    GROUP BY op_seq
    HAVING count(DISTINCT rank) >= 3
)
SELECT
    rank::BIGINT AS rank,
    count(*)::BIGINT AS ops,
    quantile_disc(at_ns - median_ns, 0.5) AS median_ns,
    quantile_disc(at_ns - median_ns, 0.9) AS p90_ns
FROM arrivals
JOIN medians USING (op_seq)
GROUP BY rank
ORDER BY 3 DESC, rank
"""
_FRAMES: Final = "SELECT stack_id, frames FROM stack_texts WHERE stack_id IN (SELECT unnest(?)::UBIGINT)"
_CLOCKS: Final = "SELECT count(*) FROM hosts WHERE clock_error_ns IS NOT NULL"


def communicators(reader: TraceReader) -> list[dict[str, Any]]:
    """Return all communicators with their counts of operations, those with open ones first."""
    return reader.frame(_COMMS).to_dicts()


def communicator(reader: TraceReader, key: str) -> dict[str, Any] | None:
    """Return one communicator by its key; None where the trace has none of it."""
    found = reader.frame(_COMM, [key])
    return found.to_dicts()[0] if found.height else None


def members(reader: TraceReader, comm_id: int) -> list[dict[str, Any]]:
    """Return the members of a communicator and how far each came; `dumps` None: that rank left no dump."""
    return reader.frame(_MEMBERS, [comm_id]).to_dicts()


def operations_of_comm(reader: TraceReader, comm_id: int, *, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the newest operations of a communicator, one row per sequence number, and how many there are."""
    return reader.frame(_COMM_OPS, [comm_id, limit]).to_dicts(), reader.frame(_COMM_OPS_COUNT, [comm_id]).item()


def operation(reader: TraceReader, comm_id: int, seq: int) -> list[dict[str, Any]]:
    """Return the entries of one operation, one row per rank that issued it (several where it did so twice)."""
    return reader.frame(_OP, [comm_id, seq]).to_dicts()


def other_sides(reader: TraceReader, comm_id: int, seq: int) -> list[dict[str, Any]]:
    """Return the sends and receives of a number with the other side of each, matched by their order in the pair.

    `other_seq` None: the other side left no such entry, which says something only where `peer_has_dump`.
    """
    return reader.frame(_OTHER_SIDES, [comm_id, seq]).to_dicts()


def neighbours(reader: TraceReader, comm_id: int, seq: int) -> tuple[int | None, int | None]:
    """Return the sequence numbers before and after one; None at the ends."""
    row = reader.frame(_NEIGHBOURS, [comm_id, seq]).row(0)
    return row[0], row[1]


def frames_of(reader: TraceReader, stack_ids: list[int]) -> dict[int, list[str]]:
    """Return the frames of stacks by id, innermost first."""
    if not stack_ids:
        return {}
    return dict(reader.frame(_FRAMES, [stack_ids]).iter_rows())


def lateness_by_rank(reader: TraceReader, comm: str) -> list[dict[str, Any]]:
    """Return how late each member of a communicator (by key) comes to its collectives, the latest first.

    Median and 90 % quantile, ns, of its arrival after the median of the same operation; operations of which fewer than
    three members arrived are left out. Times are of each host's own clock.
    """
    return reader.frame(_LATENESS, [comm]).to_dicts()


def clocks_are_known(reader: TraceReader) -> bool:
    """Whether any host's clock error is known; if not, times of different hosts may be apart by any amount."""
    return reader.frame(_CLOCKS).item() > 0
