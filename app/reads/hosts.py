"""The hosts of a trace: what is known of each, what its logs and devices say."""

from __future__ import annotations

from typing import Any, Final

from mycroft.app.queries import TraceReader

_HOST: Final = """
SELECT host_id::BIGINT AS host_id, name, "group", clock_offset_ns, clock_error_ns
FROM hosts
WHERE name = ?
ORDER BY host_id
LIMIT 1
"""
# Steps and metrics of the user's own log are many and say nothing of the host.
_EVENTS: Final = """
SELECT epoch_ns(e.ts) AS ts_ns, e.level::VARCHAR AS level, e.kind::VARCHAR AS kind, e.text,
    e.file_id::BIGINT AS file_id, e.line::BIGINT AS line, f.path
FROM events e
LEFT JOIN files f USING (file_id)
WHERE e.host_id = ? AND e.kind NOT IN ('step', 'unparsed', 'op_perf', 'bench_row', 'coll_call')
ORDER BY e.level DESC NULLS LAST, e.ts NULLS LAST, e.file_id, e.line
LIMIT ?
"""
_EVENTS_COUNT: Final = """
SELECT count(*)
FROM events
WHERE host_id = ? AND kind NOT IN ('step', 'unparsed', 'op_perf', 'bench_row', 'coll_call')
"""
_READINGS: Final = """
SELECT epoch_ns(ts) AS ts_ns, device, kind, value, number
FROM host_evidence
WHERE host_id = ?
ORDER BY ts, device, kind
LIMIT ?
"""


def host(reader: TraceReader, name: str) -> dict[str, Any] | None:
    """Return what is known of a host, by name; None where the trace has none of it."""
    found = reader.frame(_HOST, [name])
    return found.to_dicts()[0] if found.height else None


def events_of(reader: TraceReader, host_id: int, *, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of logs about a host, the severe ones first, and how many there are."""
    return reader.frame(_EVENTS, [host_id, limit]).to_dicts(), reader.frame(_EVENTS_COUNT, [host_id]).item()


def readings_of(reader: TraceReader, host_id: int, *, limit: int) -> list[dict[str, Any]]:
    """Return the readings of a host's devices in the order of time."""
    return reader.frame(_READINGS, [host_id, limit]).to_dicts()
