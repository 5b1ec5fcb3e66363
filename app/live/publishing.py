"""From the window of a job to a generation of an ordinary trace, so that diagnosis and every page work unchanged."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mycroft.app.live.receiver import incident_folder
from mycroft.app.live.state import LiveState

if TYPE_CHECKING:
    from mycroft.tracer import Trace

LOG: Final = logging.getLogger("mycroft.watch")
KEPT: Final = 3
_MOST_FILES: Final = 1200


@dataclass(frozen=True, slots=True)
class LivePublished:
    """A generation that was published, with its verdict's JSON."""

    trace: str
    generation: int
    verdict: dict[str, Any]


def evidence_files(data_dir: Path, incident: str) -> list[tuple[str, Path]]:
    """Return the files that agents brought for an incident, as (name, path); ring exports are in the window already."""
    folder = incident_folder(data_dir, incident)
    found = [
        (f"{path.parent.name}/{path.name}", path)
        for path in sorted(folder.glob("*/*"))
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith(".trace.parquet")
    ]
    return found[:_MOST_FILES]


def publish_live(
    traces: Sequence[Trace], data_dir: Path, *, trace: str, title: str, evidence: Sequence[tuple[str, Path]] = ()
) -> LivePublished:
    """Load and diagnose a job's window with the evidence of its incidents, and publish it as the next generation.

    Without traces, of a job that relays tell of, the evidence is all that there is.

    Raises:
        MycroftError: if it cannot be loaded or kept.
    """
    from mycroft.app.ingest import Stages, prepare, work_dir
    from mycroft.app.version import ANALYSIS_VERSION
    from mycroft.loaders.bundle import NamedFile
    from mycroft.loaders.catalogue import Catalogue
    from mycroft.tracer import export_trace

    with work_dir(data_dir) as folder:
        sources = [NamedFile(name, path) for name, path in evidence]
        if traces:
            window = folder / "window.parquet"
            export_trace(traces, window, format_="parquet")
            sources.insert(0, NamedFile("window.parquet", window))
        draft = prepare(sources, folder, Stages(lambda _stages, _problems: None), ranks_expected=_world(traces))
        verdict = draft.verdict
        first = verdict.findings[0] if verdict.findings else None
        summary: dict[str, Any] = {
            "digest": draft.digest,
            "analysis": ANALYSIS_VERSION,
            "status": verdict.status,
            "summary": verdict.summary,
            "incident": first.id if first else None,
            "findings": len(verdict.findings),
            "category": first.category if first else None,
            "confidence": first.confidence if first else None,
            "ranks_seen": verdict.evidence.ranks_seen,
            "ranks_expected": verdict.evidence.ranks_expected,
            "files": verdict.evidence.files,
            "formats": verdict.evidence.formats,
            "live": True,
        }
        catalogue = Catalogue(data_dir)
        try:
            generation = catalogue.publish(trace, draft.path, title=title, summary=summary)
        finally:
            catalogue.close()
    return LivePublished(trace, generation, verdict.to_dict())


def _world(traces: Sequence[Trace]) -> int | None:
    return max((trace.process.world_size or 0 for trace in traces), default=0) or None


def forget_old(state: LiveState, trace: str, *, kept: int = KEPT) -> int:
    """Delete the generations of a live trace that no incident rests on, but for the newest; return how many."""
    from mycroft.loaders.catalogue import Catalogue

    pinned = {generation for name, generation in state.pinned() if name == trace}
    catalogue = Catalogue(state.data_dir)
    try:
        known = catalogue.generations(trace)
        old = [generation for generation in known[:-kept] if generation not in pinned]
        for generation in old:
            catalogue.forget(trace, generation)
    finally:
        catalogue.close()
    return len(old)
