"""What the pictures of a page move to for a claim of the verdict: the operation, rank and channel of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mycroft.app.queries import TraceReader
from mycroft.app.reads import timeline

LEAST_US: Final = 200_000
MOST_US: Final = 40_000_000
CLAIMS_MAX: Final = 50
"""Claims of a finding that are looked up; a finding has far fewer."""

_OPERATION: Final = """
SELECT c.key, epoch_ns(min(coalesce(o.start_ts, o.enq_ts))) AS first_ns,
    epoch_ns(max(coalesce(o.start_ts, o.enq_ts))) AS last_ns,
    max(epoch_ns(coalesce(o.start_ts, o.enq_ts)) + coalesce(o.dur_ns, 0)) AS end_ns,
    bool_or(o.state <> 'completed' AND NOT coalesce(o.retired, FALSE)) AS is_open
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE (c.key = ? OR c.comm_id = ?) AND o.op_seq = ?
GROUP BY c.key
"""
# A flow of a pair is numbered by the pair, an operation by its rank; of several states with the number the last counts.
_OWN_NUMBER: Final = """
SELECT o.op_seq::BIGINT AS op_seq
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE (c.key = $1 OR c.comm_id = $2) AND o.is_p2p AND o.pair_seq = $3 AND o.rank = $4 AND o.peer = $5
    AND CAST(o.op_kind AS VARCHAR) = $6
    AND coalesce((
        SELECT arg_max(CAST(s.op_kind AS VARCHAR), s.ts) IN ('send', 'recv')
        FROM flow_state s
        WHERE s.comm_id = o.comm_id AND s.op_seq = $3 AND s.rank = $4 AND s.peer = $5 AND CAST(s.dir AS VARCHAR) = $6
    ), (
        SELECT bool_or(CAST(f.op_kind AS VARCHAR) IN ('send', 'recv'))
        FROM flow_ops f
        WHERE f.comm_id = o.comm_id AND f.op_seq = $3 AND f.rank = $4 AND f.peer = $5 AND CAST(f.dir AS VARCHAR) = $6
    ), NOT EXISTS (
        FROM coll_ops k
        WHERE k.comm_id = o.comm_id AND k.op_seq = $3 AND k.rank = $4 AND NOT coalesce(k.is_p2p, FALSE)
    ))
ORDER BY o.op_seq
LIMIT 1
"""
FLOW_TABLES: Final = ("flow_state", "flow_ops")


def shown(reader: TraceReader, key: Mapping[str, Any] | None, table: str | None = None) -> dict[str, Any]:
    """Return the keys of the view that show the rows of a claim, which are of `table`; empty where no picture can.

    `t` is a window in µs after the start of the timeline, and is left out where no operation with a time is named.
    """
    if not key:
        return {}
    found: dict[str, Any] = {}
    if (rank := key.get("rank")) is not None:
        found["r"] = int(rank)
    if (channel := key.get("channel")) is not None:
        found["ch"] = int(channel)
    seq = key.get("op_seq", key.get("seq"))
    if seq is not None:
        number = _own_number(reader, key, int(seq)) if table in FLOW_TABLES else int(seq)
        found |= _operation(reader, key.get("comm"), key.get("comm_id"), number)
    return found


def _own_number(reader: TraceReader, key: Mapping[str, Any], seq: int) -> int:
    """Return the number that the rank of a flow gave its send or receive; that of a collective is the flow's."""
    comm, comm_id = key.get("comm"), key.get("comm_id")
    ends = (key.get("rank"), key.get("peer"), key.get("dir"))
    if None in ends:
        return seq
    found = reader.frame(_OWN_NUMBER, [None if comm is None else str(comm), comm_id, seq, *ends])
    return found.item(0, 0) if found.height else seq


def _operation(reader: TraceReader, comm: object, comm_id: object, seq: int) -> dict[str, Any]:
    number = comm_id if isinstance(comm_id, int) else None
    rows = reader.frame(_OPERATION, [None if comm is None else str(comm), number, seq]).to_dicts()
    if not rows or rows[0]["first_ns"] is None or not timeline.has_timeline(reader):
        return {}
    (row, *_) = rows
    plan = timeline.plan_of(reader)
    span = plan.span_ns // 1000
    first = (row["first_ns"] - plan.first_ns) // 1000
    # What is open is shown from its start on; how long it waits is seen by what is drawn, not by how much.
    end = span if row["is_open"] else (row["end_ns"] - plan.first_ns) // 1000
    length = min(max(2 * (end - first), LEAST_US), MOST_US, span)
    begin = max(0, min(first - length // 4, span - length))
    return {"t": [begin, begin + length], "c": row["key"], "op": seq}
