"""The verdict of a trace as the analysis stored it, and the names that a page needs to write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mycroft.app.queries import TraceReader

_VERDICT: Final = """
SELECT verdict
FROM diagnoses
WHERE incident_id IS NULL AND verdict IS NOT NULL
ORDER BY revision DESC NULLS LAST, diag_id DESC
LIMIT 1
"""
_FILE_IDS: Final = "SELECT path, file_id FROM files WHERE path IN (SELECT unnest(?))"
_GROUP_SIZES: Final = "SELECT key, coalesce(size, seen_size) AS size FROM communicators WHERE key IN (SELECT unnest(?))"


def verdict_of(reader: TraceReader) -> dict[str, Any] | None:
    """Return the newest verdict of the whole trace; None where no analysis has been run."""
    found = reader.frame(_VERDICT)
    return json.loads(found.item(0, 0)) if found.height else None


def file_ids(reader: TraceReader, verdict: Mapping[str, Any]) -> dict[str, int]:
    """Return the files that the claims of a verdict name, by path; those that the trace does not list are absent."""
    names = sorted({e["file"] for finding in verdict["findings"] for e in finding["evidence"] if e.get("file")})
    if not names:
        return {}
    return dict(reader.frame(_FILE_IDS, [names]).iter_rows())


def group_sizes(reader: TraceReader, verdict: Mapping[str, Any]) -> dict[str, int]:
    """Return how many members the groups of a verdict's collectives have, by communicator key."""
    keys = sorted({c["comm"] for finding in verdict["findings"] if (c := finding.get("collective")) and c.get("comm")})
    if not keys:
        return {}
    return {key: size for key, size in reader.frame(_GROUP_SIZES, [keys]).iter_rows() if size is not None}
