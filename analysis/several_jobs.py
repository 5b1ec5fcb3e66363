"""One verdict for evidence of several jobs: each is judged by itself, and each finding says whose it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

from mycroft.analysis.facts import Frames
from mycroft.analysis.verdict import Finding, Verdict

_PATHS: Final = "SELECT path FROM files WHERE loader IS NOT NULL ORDER BY path"
_SURE: Final = {"high": 0, "medium": 1, "low": 2}


@runtime_checkable
class ManyJobs(Protocol):
    """A store that may hold evidence of more than one job."""

    def jobs(self) -> Sequence[Frames]:
        """Return a store for each job, the first being the store itself."""
        ...


def others_in(store: Frames) -> list[Frames]:
    """Return the stores of all jobs but the first."""
    return [job for job in store.jobs() if job is not store] if isinstance(store, ManyJobs) else []


def together(first: Verdict, store: Frames, others: Sequence[tuple[Verdict, Frames]]) -> Verdict:
    """Return one verdict of the verdicts of all jobs, the surest findings first.

    Only the first of the files of a job names it: evidence has no better name for what it does not call a job.
    """
    titles = job_titles(store, [job for _verdict, job in others])
    verdicts = list(zip([first, *(verdict for verdict, _job in others)], titles, strict=True))
    labelled = [(f, title) for verdict, title in verdicts for f in verdict.findings]
    labelled.sort(key=lambda pair: _SURE[pair[0].confidence])
    head = f"The evidence is of {len(verdicts)} jobs. "
    if not labelled:
        worst = next((v for v, _title in verdicts if v.status != "healthy"), first)
        return replace(first, status=worst.status, summary=head + worst.summary)
    findings = [_of_job(f, title, n) for n, (f, title) in enumerate(labelled, 1)]
    more = f" ({len(findings) - 1} more findings.)" if len(findings) > 1 else ""
    return replace(
        first,
        status=findings[0].status,
        summary=head + findings[0].summary + more,
        findings=tuple(findings),
        unknown=tuple(dict.fromkeys(u for verdict, _title in verdicts for u in verdict.unknown)),
    )


def job_titles(store: Frames, others: Sequence[Frames]) -> list[str]:
    """Return what to call each job, the first one first: the folder or archive of its files, else the first file."""
    theirs = [_paths(job) for job in others]
    taken = {path for paths in theirs for path in paths}
    mine = [path for path in _paths(store) if path not in taken] or _paths(store)
    return [_title(paths) for paths in (mine, *theirs)]


def _of_job(finding: Finding, title: str, number: int) -> Finding:
    return replace(finding, id=f"f{number}", summary=f"Job of {title}: {finding.summary}")


def _paths(store: Frames) -> list[str]:
    return [str(path) for path in store.frame(_PATHS)["path"]]


def _title(paths: Sequence[str]) -> str:
    """Return the folder or archive that holds all files, else the first file."""
    if len(paths) < 2:
        return paths[0] if paths else "no files"
    shared = os.path.commonpath([path.replace("!", "/") for path in paths])
    return shared or f"{paths[0]} and {len(paths) - 1} more files"
