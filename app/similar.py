"""Incidents seen before: those of other traces, or of this one, that are of the shape of a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mycroft.analysis.fingerprint import Fingerprint, Likeness, fingerprint_of, from_dict, likeness
from mycroft.loaders.catalogue import TraceEntry

SUMMARY_KEY: Final = "fingerprints"
"""Key of the fingerprints in the summary that the catalogue keeps of a generation."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """An incident that is like the one asked for."""

    trace: str
    title: str
    published: float
    incident: Fingerprint
    alike: Likeness


@dataclass(frozen=True, slots=True)
class Compared:
    """The incidents that are alike, the most telling first, and how many were compared, of how many traces."""

    found: tuple[Earlier, ...]
    incidents: int
    traces: int


def kept_of(verdict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fingerprints of a verdict's findings, as the catalogue keeps them."""
    return [fingerprint_of(finding).to_dict() for finding in verdict["findings"]]


def similar(finding: Mapping[str, Any], entries: Sequence[TraceEntry], *, trace: str) -> Compared:
    """Return the incidents of `entries` that are like a finding of `trace`; the finding itself is left out.

    Traces that were published before fingerprints were kept are not compared, and not counted.
    """
    mine = fingerprint_of(finding)
    found: list[Earlier] = []
    incidents = traces = 0
    for entry in entries:
        kept = entry.summary.get(SUMMARY_KEY)
        if not isinstance(kept, list):
            continue
        others = [other for item in kept if isinstance(item, dict) and (other := from_dict(item)) is not None]
        others = [other for other in others if (entry.trace_id, other.incident) != (trace, mine.incident)]
        traces += bool(others)
        incidents += len(others)
        for other in others:
            alike = likeness(mine, other)
            if alike is not None:
                found.append(Earlier(entry.trace_id, entry.title, entry.published, other, alike))
    found.sort(key=lambda item: (item.alike.order, item.published), reverse=True)
    return Compared(tuple(found), incidents, traces)
