"""From when to when a trace reaches: what the offsets in addresses count from."""

from __future__ import annotations

from typing import Final

from mycroft.app.queries import TraceReader

_EXTENT: Final = """
SELECT epoch_ns(min(coalesce(start_ts, enq_ts))) AS first_ns,
    max(epoch_ns(coalesce(start_ts, enq_ts)) + coalesce(dur_ns, 0)) AS last_ns
FROM coll_ops
"""


def extent_of(reader: TraceReader) -> tuple[int, int] | None:
    """Return the first and the last moment of the operations of a trace, ns UTC; None where none has a time."""
    first, last = reader.frame(_EXTENT).row(0)
    return None if first is None or last is None else (first, last)
