"""One verdict for evidence of several jobs: each is judged by itself, and each finding says whose it is.

Where nothing contradicts that all is of one job, but nothing joins two sides of it either, both sides are judged apart
as well. When each accuses another, they are taken for two jobs: a console without hosts and logs of another job would
else name a rank of the one on a host of the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

from mycroft.analysis.case import count_words
from mycroft.analysis.facts import Frames
from mycroft.analysis.verdict import Finding, Unknown, Verdict

_PATHS: Final = "SELECT path FROM files WHERE loader IS NOT NULL ORDER BY path"
_ATTEMPT: Final = re.compile(r"(?P<run>(?:.*[/!])?)attempt_(?P<n>\d{1,6})[/!]")
_SURE: Final = {"high": 0, "medium": 1, "low": 2}


@runtime_checkable
class ManyJobs(Protocol):
    """A store that may hold evidence of more than one job."""

    def jobs(self) -> Sequence[Frames]:
        """Return a store for each job, the first being the store itself."""
        ...


@runtime_checkable
class ManyParts(Protocol):
    """A store whose evidence may have sides that nothing joins."""

    def parts(self) -> Sequence[Frames]:
        """Return a store for each side; empty where all is joined."""
        ...


def parts_in(store: Frames) -> list[Frames]:
    """Return the stores of the sides that nothing joins."""
    return list(store.parts()) if isinstance(store, ManyParts) else []


def others_in(store: Frames) -> list[Frames]:
    """Return the stores of all jobs but the first."""
    return [job for job in store.jobs() if job is not store] if isinstance(store, ManyJobs) else []


def together(first: Verdict, store: Frames, others: Sequence[tuple[Verdict, Frames]]) -> Verdict:
    """Return one verdict of the verdicts of all jobs, the surest findings first.

    Only the first of the files of a job names it: evidence has no better name for what it does not call a job. Where
    they are the starts of one elastic job, what stopped the last one comes first.
    """
    jobs = [job for _verdict, job in others]
    titles = job_titles(store, jobs)
    starts = _starts(_paths_of_jobs(store, jobs))
    verdicts = list(zip([first, *(verdict for verdict, _job in others)], titles, strict=True))
    if all(n for _run, n in starts):
        titles = [f"{title} (start {n} of the workers)" for title, (_run, n) in zip(titles, starts, strict=True)]
        verdicts = [(verdict, title) for (verdict, _), title in zip(verdicts, titles, strict=True)]
    last = {run: max(n for other, n in starts if other == run) for run, _n in starts if run}
    earlier = {title for title, (run, n) in zip(titles, starts, strict=True) if n < last.get(run, 0)}
    return _labelled(first, verdicts, f"The evidence is of {len(verdicts)} jobs. ", own=1, earlier=earlier)


def _starts(jobs: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    """Return the folder of the elastic run and the number of the start, from 1, that the files of each job are of.

    An empty name and 0 where they are of none, or of several.
    """
    found: list[tuple[str, int]] = []
    for paths in jobs:
        starts = {(m["run"] or "/", int(m["n"]) + 1) for path in paths if (m := _ATTEMPT.match(path)) is not None}
        found.append(starts.pop() if len(starts) == 1 else ("", 0))
    return found


def apart(whole: Verdict, parts: Sequence[tuple[Verdict, Frames]]) -> Verdict:
    """Return the verdict on evidence of which nothing joins the sides: two where each accuses another, else one."""
    titles = [_title(_paths(store)) for _verdict, store in parts]
    if _at_odds([verdict for verdict, _store in parts]):
        head = f"The evidence is of {len(parts)} jobs, as far as it shows: nothing joins {' and '.join(titles)}. "
        verdicts = [(verdict, title) for (verdict, _store), title in zip(parts, titles, strict=True)]
        return _labelled(whole, verdicts, head, own=0)
    findings: list[Finding] = []
    open_ends: list[Unknown] = []
    for finding in whole.findings:
        alone = next((f for verdict, _store in parts for f in verdict.findings if _same(f, finding)), None)
        hosts = finding.root_cause.hosts
        if alone is not None and hosts and not alone.root_cause.hosts:
            finding = replace(
                finding, root_cause=replace(finding.root_cause, hosts=()), summary=alone.summary, why=alone.why
            )
            ranks = count_words(finding.root_cause.ranks)
            open_ends.append(
                Unknown(
                    f"whether {ranks} ran on {', '.join(hosts)}: nothing but the number joins {' and '.join(titles)}",
                    f"a line that names rank, host and process together, from the job of {ranks}",
                )
            )
        findings.append(finding)
    open_ends += _unsaid(whole, [(verdict, title) for (verdict, _store), title in zip(parts, titles, strict=True)])
    if not open_ends:
        return whole
    more = f" ({len(findings) - 1} more findings.)" if len(findings) > 1 else ""
    return replace(
        whole,
        summary=findings[0].summary + more if findings else whole.summary,
        findings=tuple(findings),
        unknown=tuple(dict.fromkeys((*open_ends, *whole.unknown))),
    )


def _unsaid(whole: Verdict, parts: Sequence[tuple[Verdict, str]]) -> list[Unknown]:
    """Return what a side says of another culprit when judged alone: not enough to call it a job of its own.

    Of the same culprit a side alone may know less, such as nothing of its stack: that is no doubt about the whole.
    """
    ranks = {rank for f in whole.findings for rank in f.root_cause.ranks}
    hosts = {host for f in whole.findings for host in f.root_cause.hosts}

    def is_other(finding: Finding) -> bool:
        cause = finding.root_cause
        return not ranks.issuperset(cause.ranks) if cause.ranks else not hosts.issuperset(cause.hosts)

    return [
        Unknown(
            f"whether {title} is of the same job: nothing joins it with the rest, and alone it would say: {f.summary}",
            "a line that names rank, host and process together, in both",
        )
        for verdict, title in parts
        for f in verdict.findings[:1]
        if is_other(f)
    ]


def _same(one: Finding, two: Finding) -> bool:
    return bool(one.root_cause.ranks) and (one.category, one.root_cause.ranks) == (two.category, two.root_cause.ranks)


def _at_odds(verdicts: Sequence[Verdict]) -> bool:
    """Say whether two sides accuse different ones, neither as a mere guess.

    One of them surely, or hosts that the other side does not know, or one says slow or never up and the other stuck.
    """
    named = [v.findings[0] for v in verdicts if v.findings and v.findings[0].confidence != "low"]
    named = [f for f in named if f.root_cause.ranks or f.root_cause.hosts]
    for at, one in enumerate(named):
        for two in named[at + 1 :]:
            shared = {*one.root_cause.ranks} & {*two.root_cause.ranks} or {*one.root_cause.hosts} & {
                *two.root_cause.hosts
            }
            sure = [f.confidence for f in (one, two)].count("high")
            told = sure or (one.root_cause.hosts and two.root_cause.hosts) or _stage(one) != _stage(two)
            # One rank can be at fault in one way: surely at fault in two, or on two hosts, it is a rank of two jobs.
            hosts = {*one.root_cause.hosts}, {*two.root_cause.hosts}
            elsewhere = all(hosts) and hosts[0].isdisjoint(hosts[1]) and one.category != two.category
            if (told and (not shared or elsewhere)) or (sure == 2 and one.component != two.component):
                return True
    return False


def _stage(finding: Finding) -> str:
    """Return how far a job came that has this fault: a job that never came up is not slow, and a slow one not stuck."""
    if finding.category in ("init_timeout", "misconfigured_interface"):
        return "start"
    return "slow" if finding.status == "slow" else "stuck"


def _labelled(
    first: Verdict,
    verdicts: Sequence[tuple[Verdict, str]],
    head: str,
    *,
    own: int,
    earlier: Container[str] = (),
) -> Verdict:
    """Put findings together, the surest first, of these the latest; those of `earlier` titles last.

    Those of all but the first `own` verdicts are of other tables.
    """
    labelled = [
        (f if number < own else _elsewhere(f), title)
        for number, (verdict, title) in enumerate(verdicts)
        for f in verdict.findings
    ]
    labelled = _once(labelled)
    labelled.sort(key=lambda pair: pair[0].since or "", reverse=True)
    labelled.sort(key=lambda pair: (pair[1] in earlier, _SURE[pair[0].confidence]))
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
    return [_title(paths) for paths in _paths_of_jobs(store, others)]


def _paths_of_jobs(store: Frames, others: Sequence[Frames]) -> list[list[str]]:
    """Return the files of each job; the first one's table names those of the others as well."""
    theirs = [_paths(job) for job in others]
    taken = {path for paths in theirs for path in paths}
    mine = [path for path in _paths(store) if path not in taken] or _paths(store)
    return [mine, *theirs]


def _once(labelled: Sequence[tuple[Finding, str]]) -> list[tuple[Finding, str]]:
    """Leave out what one job is told of by the same lines as another that knows the ranks: such a file is in both."""

    def lines(finding: Finding) -> set[tuple[str | None, int | None]]:
        return {(e.file, e.line) for e in finding.evidence if e.file}

    return [
        (f, title)
        for f, title in labelled
        if f.root_cause.ranks
        or not any(
            o.root_cause.ranks and o.category == f.category and lines(o) & lines(f) for o, _ in labelled if o is not f
        )
    ]


def _elsewhere(finding: Finding) -> Finding:
    """Return a finding whose evidence opens files only: rows of the same key in this trace are of another job."""
    return replace(finding, evidence=tuple(replace(e, table=None, key=None) for e in finding.evidence))


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
