"""How far each rank came in what stands, and how long it waits: the numbers beside its blame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mycroft.app.queries import TraceReader
from mycroft.app.reads import flows

# What is written all the time, whether anything moves or not. The newest operation of a dump says nothing of its end.
_END: Final = """
SELECT greatest((SELECT epoch_ns(max(ts)) FROM flow_state), (SELECT epoch_ns(max(ts)) FROM heartbeat))
"""
_OPEN: Final = """
SELECT rank::BIGINT AS rank, epoch_ns(min(coalesce(start_ts, enq_ts))) AS began_ns
FROM coll_ops
WHERE state IN ('scheduled', 'started') AND NOT coalesce(retired, FALSE) AND coalesce(start_ts, enq_ts) IS NOT NULL
GROUP BY rank
"""
_BEYOND: Final = """
WITH inside AS (
    SELECT rank, op_seq, dur_ns, min(dur_ns) OVER (PARTITION BY op_seq) AS quickest_ns
    FROM coll_ops
    WHERE comm_id = (SELECT comm_id FROM communicators WHERE key = ?) AND NOT coalesce(is_p2p, FALSE)
        AND dur_ns IS NOT NULL
)
SELECT rank::BIGINT AS rank, quantile_disc(dur_ns - quickest_ns, 0.5) AS wait_ns
FROM inside
GROUP BY rank
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a rank sent of one operation, in chunks, on that of its flows which is furthest behind; None: not seen."""

    channel: int
    peer: int
    ready: int | None
    moved: int | None
    done: int
    total: int


def sent_by_rank(reader: TraceReader, comm: str, seq: int, flow: Mapping[str, Any] | None = None) -> dict[int, Sent]:
    """Return the last state of what each rank sends in an operation; ranks without one are left out.

    Args:
        reader: of the trace.
        comm: key of the communicator.
        seq: number of the operation, as pages call it.
        flow: the flow that the verdict blames; its sender is told by it, not by another that is as far behind.
    """
    found = flows.flow_of(reader, comm, seq)
    named = (flow.get("channel"), flow.get("peer")) if flow and flow.get("dir") == "send" else None
    kept: dict[int, tuple[tuple[bool, float, int, int], Sent]] = {}
    for channel, rank, peer, sends, _qp, total, _until, steps in found["halves"] if found else ():
        done = steps[-1][4] if steps else None
        if not sends or not total or done is None:
            continue
        order = ((channel, peer) != named, done / total, channel, peer)
        if rank not in kept or order < kept[rank][0]:
            kept[rank] = (order, Sent(channel, peer, steps[-1][2], steps[-1][3], done, total))
    return {rank: sent for rank, (_, sent) in kept.items()}


def open_waits(reader: TraceReader) -> dict[int, int]:
    """Return since when each rank waits at the end of the trace, ns: since its oldest open operation began.

    The end is the last moment of which the tracer's states tell; a trace without them says of none how long it waited,
    and the answer is empty. Ranks with nothing open are left out.
    """
    end = reader.frame(_END).item(0, 0)
    if end is None:
        return {}
    return {rank: end - began for rank, began in reader.frame(_OPEN).iter_rows() if began < end}


def usual_waits(reader: TraceReader, comm: str) -> dict[int, int]:
    """Return the median time that each member of a group (by key) is in its collectives beyond the quickest, ns."""
    return dict(reader.frame(_BEYOND, [comm]).iter_rows())
