"""Collects what an export holds from a trace: verdict, ranks, and the lines around those that its claims rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mycroft.app import notes
from mycroft.app.export import CONTEXT_LINES, Excerpt, ExportData, ExportedNote, RankRow
from mycroft.app.export_pictures import Pictures, pictures_of
from mycroft.app.pages.ranks_grid import Progress, progress_of, roles
from mycroft.app.queries import TraceReader
from mycroft.app.reads import coverage, evidence, flows, ranks, shown, surroundings, verdicts
from mycroft.app.state import State
from mycroft.errors import MycroftError

EXCERPTS_MAX: Final = 200
LINE_CHARS_MAX: Final = 500

_HOSTS: Final = """
SELECT name FROM hosts
UNION
SELECT value FROM identity WHERE attribute IN ('host', 'pod')
UNION
SELECT split_part(value, '.', 1) FROM identity WHERE attribute = 'host'
ORDER BY 1
"""


class NoVerdictError(MycroftError):
    """A trace that was loaded and never diagnosed."""

    http_status = 404


def collect(reader: TraceReader, *, state: State | None = None, pictures: bool = False) -> ExportData:
    """Return the export of a trace.

    Args:
        reader: of the trace.
        state: where the notes on it are; None for a file without a catalogue.
        pictures: whether to take what flows and timeline are drawn from; only HTML shows them.

    Raises:
        NoVerdictError: it holds no verdict.
    """
    verdict = verdicts.verdict_of(reader)
    if verdict is None:
        raise NoVerdictError(f"{reader.trace}: the trace holds no verdict; load the evidence again")
    hosts = set(reader.frame(_HOSTS).to_series().to_list())
    for finding in verdict["findings"]:
        hosts.update(finding["root_cause"]["hosts"])
    return ExportData(
        trace=reader.trace,
        title=reader.title,
        generation=reader.generation,
        verdict=verdict,
        ranks=_ranks(reader, verdict),
        shown=_shown(reader, verdict) if pictures else {},
        coverage=coverage.coverage_of(reader),
        excerpts=_excerpts(reader, verdict),
        hosts=sorted(hosts),
        group_sizes=verdicts.group_sizes(reader, verdict),
        pictures=pictures_of(reader, verdict) if pictures else Pictures(),
        notes=[
            ExportedNote(incident=note.incident, author=note.author, created=note.created, text=note.text)
            for note in (notes.of_trace(state, reader.trace) if state is not None else ())
        ],
    )


def _ranks(reader: TraceReader, verdict: Mapping[str, Any]) -> list[RankRow]:
    """Return the ranks, those first that the first finding names."""
    findings = verdict["findings"]
    first = findings[0] if findings else None
    stalled = flows.stalled_of(reader, first)
    progress = progress_of(reader, first, stalled) or Progress()
    cause: Mapping[str, Any] = first["root_cause"] if first else {}
    alone = cause["ranks"][0] if first and len(cause["ranks"]) == 1 else None
    channel = (cause.get("flow") or {}).get("channel")
    known = roles(first)
    guilty = {rank for finding in findings for rank in finding["root_cause"]["ranks"]}
    rows = [
        RankRow(
            rank=row.rank,
            role=known[row.rank][0] if row.rank in known else "not named" if row.dumps else "no dump",
            host=row.host,
            gpu=row.gpu,
            pid=row.pid,
            progress=f"{row.last_op} of {row.last_group or row.last_comm}" if row.last_op else None,
            sent=progress.sent.get(row.rank),
            waits_ns=progress.waits.get(row.rank),
            nic=surroundings.nics_of(reader, row.rank, channel) if row.rank == alone else None,
            stands=surroundings.place_in_flow(reader, *stalled, row.rank, channel)
            if stalled and row.rank == alone
            else None,
        )
        for row in ranks.all_ranks(reader)
    ]
    return sorted(rows, key=lambda row: (row.rank not in guilty, row.rank not in known, row.rank))


def _shown(reader: TraceReader, verdict: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the pictures move to for each claim of a verdict with one finding.

    The pictures of several findings stand in one document; moving all of them to a claim of one would be wrong.
    """
    if len(verdict["findings"]) != 1:
        return {}
    claims = verdict["findings"][0]["evidence"][: shown.CLAIMS_MAX]
    return {claim["id"]: shown.shown(reader, claim.get("key"), claim.get("table")) for claim in claims}


def _excerpts(reader: TraceReader, verdict: Mapping[str, Any]) -> list[Excerpt]:
    ids = verdicts.file_ids(reader, verdict)
    wanted = {
        (claim["file"], claim["line"]): None
        for finding in verdict["findings"]
        for claim in finding["evidence"]
        if claim.get("file") in ids and claim.get("line") is not None
    }
    found: list[Excerpt] = []
    for file, line in list(wanted)[:EXCERPTS_MAX]:
        window = evidence.text_of(reader, ids[file], first=max(1, line - CONTEXT_LINES), last=line + CONTEXT_LINES)
        at = line - window.first
        if 0 <= at < len(window.lines) and window.lines[at] is not None:
            cut = tuple(None if text is None else text[:LINE_CHARS_MAX] for text in window.lines)
            found.append(Excerpt(file=file, line=line, first=window.first, lines=cut))
    return found
