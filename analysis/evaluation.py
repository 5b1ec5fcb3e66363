"""Reports against truths: what the evaluation counts, and how. Pure arithmetic; nothing here runs an analysis.

A run is one job with at most one injected fault and the reports that some rules made of it. Of several reports the
first at or after the injection is the answer; what was reported before it is a false report.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mycroft.analysis.config import NS_PER_S
from mycroft.analysis.verdict import Finding

NONE: Final = "none"
# Columns of the confusion matrix, in the words of the sinks.
COMPONENTS: Final = (
    "nic", "pcie", "host_nic", "qp", "proxy", "recv_proxy", "gpu", "host_gpu", "nvlink", "app", "crash", "stopped",
    "deadlock", "other", NONE,
)  # fmt: skip
_OF_CATEGORY: Final[Mapping[str, str]] = {
    "link_fault": "nic",
    "network_congestion": "host_nic",
    "pcie_degraded": "pcie",
    "slow_gpu": "gpu",
    "device_hang": "gpu",
    "gpu_fault": "gpu",
    "process_died": "crash",
    "out_of_memory": "crash",
    "process_stopped": "stopped",
    "order_deadlock": "deadlock",
    "absent": "app",
    "dataloader": "app",
    "checkpoint": "app",
    "exception": "app",
    "code_divergence": "app",
    "size_mismatch": "app",
}
# Time of an answer that only the whole evidence gave, after the job: right or wrong, but without a delay.
NOT_LIVE_NS: Final = (1 << 63) - 1
# A band of confidence whose hit rate is further from it fails the evaluation.
CALIBRATION_OFF: Final = 0.15
# Fewer reports than this in a band say nothing about it.
CALIBRATION_LEAST: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What was broken. `components`: words that are right, the plain one first. No `injected_ns`: nothing was."""

    fault: str
    components: tuple[str, ...]
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    on_host: bool = False
    """A whole host was broken: naming the host is naming the culprit."""
    injected_ns: int | None = None
    also: tuple[int, ...] = ()
    """Ranks that something else was done to at the same time: naming one of them first is right as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One report: who, which part, how sure. Several `ranks` or `hosts` are candidates that fit equally."""

    at_ns: int
    component: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    confidence: str = ""
    certainty: float | None = None
    others: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Component and ranks of the further findings of the same report."""
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job and what one set of rules reported of it. `watched_s`: seconds of the job that were looked at.

    `version`: of our rules; empty for others, and for runs of before it was noted.
    """

    topology: str
    seed: int
    rules: str
    truth: Truth
    answers: tuple[Answer, ...]
    watched_s: float
    variant: str = "plain"
    cpu_s: float = 0.0
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one run is worth. Shares are 1/n for a tie of n that holds the truth."""

    detected: bool
    delay_s: float | None
    rank: float
    in_set: bool
    host: float
    component: bool
    reported: str
    early: int
    certainty: float | None
    confident_wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table of results: shares 0 to 1, delays in s, None where nothing was detected."""

    name: str
    runs: int
    detected: float
    delay_p50_s: float | None
    delay_p90_s: float | None
    rank: float
    in_set: float
    host: float
    component: float
    early: int
    confident_wrong: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseReports:
    """Reports on healthy jobs, per hour, with the exact upper 95 % bound."""

    reports: int
    hours: float
    per_hour: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Reports whose certainty lies in [low, low + 0.1), and how often they were right."""

    low: float
    reports: int
    certainty: float
    hit_rate: float

    @property
    def off(self) -> bool:
        """Whether the band fails: enough reports, and further from its hit rate than allowed."""
        return self.reports >= CALIBRATION_LEAST and abs(self.certainty - self.hit_rate) > CALIBRATION_OFF + 1e-9


def component_of(finding: Finding) -> str:
    """Return the word of the sink that a finding of the verdict stands for."""
    flow = finding.root_cause.flow
    if finding.category == "slow_nic":
        return "qp" if flow is not None and flow.channel is not None else "nic"
    if finding.category == "proxy_stall":
        # A proxy that sleeps is late with all it does; only one that stands still shows which half it leaves.
        stands = finding.status == "hang" and flow is not None and flow.dir == "recv"
        return "recv_proxy" if stands else "proxy"
    if finding.category == "slow_compute":
        if finding.component == "host":
            return "host_gpu"
        return "app" if finding.component in ("code", "process") else "gpu"
    return _OF_CATEGORY.get(finding.category, "other")


def answer_of(at_ns: int, findings: Sequence[Finding]) -> Answer:
    """Return the answer of a report: its first finding, the others beside it. A report has at least one."""
    first = findings[0]
    return Answer(
        at_ns=at_ns,
        component=component_of(first),
        ranks=tuple(sorted(first.root_cause.ranks)),
        hosts=tuple(sorted(first.root_cause.hosts)),
        confidence=first.confidence,
        certainty=first.certainty,
        others=tuple((component_of(f), tuple(sorted(f.root_cause.ranks))) for f in findings[1:]),
        words=first.summary,
    )


def score(run: Run) -> Score:
    """Compare the answer of a run with its truth. Of a healthy job every report is early."""
    truth = run.truth
    injected = truth.injected_ns
    early = sum(injected is None or a.at_ns < injected for a in run.answers)
    answer = next((a for a in run.answers if injected is not None and a.at_ns >= injected), None)
    if answer is None or injected is None:
        return Score(
            detected=False,
            delay_s=None,
            rank=0.0,
            in_set=False,
            host=0.0,
            component=False,
            reported=NONE,
            early=early,
            certainty=None,
            confident_wrong=False,
        )
    host = share(truth.hosts, answer.hosts)
    rank = host if truth.on_host else share(truth.ranks, answer.ranks)
    # Of several faults another may come first; of which part it is, is then not asked.
    other = 0.0 if rank else max((share((r,), answer.ranks) for r in truth.also), default=0.0)
    return Score(
        detected=True,
        delay_s=None if answer.at_ns == NOT_LIVE_NS else (answer.at_ns - injected) / NS_PER_S,
        rank=rank or other,
        in_set=bool(rank or other),
        host=host or other,
        component=bool(other) or answer.component in truth.components,
        reported=answer.component if answer.component in COMPONENTS else "other",
        early=early,
        certainty=answer.certainty,
        confident_wrong=answer.confidence == "high" and not (rank or other),
    )


def all_listed(run: Run) -> bool:
    """Say whether every one of several faults was named by some report after the injection, first or further down."""
    injected = run.truth.injected_ns
    told = [a for a in run.answers if injected is not None and a.at_ns >= injected]
    named = {rank for a in told for rank in a.ranks} | {rank for a in told for _, ranks in a.others for rank in ranks}
    main = any(set(run.truth.hosts) & set(a.hosts) for a in told) if run.truth.on_host else False
    return (main or set(run.truth.ranks) <= named) and set(run.truth.also) <= named


def share(wanted: Sequence[object], named: Sequence[object]) -> float:
    """Return 1/n where n candidates hold the one that is wanted, 0 where they do not; of several all must be held."""
    if not wanted or not set(wanted) <= set(named):
        return 0.0
    return len(set(wanted)) / len(set(named))


def quantile(values: Sequence[float], at: float) -> float | None:
    """Return a quantile by linear interpolation; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = at * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def row(name: str, runs: Sequence[Run]) -> Row:
    """Return the line of a table for some runs with a fault."""
    scores = [score(r) for r in runs]
    count = max(len(scores), 1)
    delays = [s.delay_s for s in scores if s.delay_s is not None]
    return Row(
        name=name,
        runs=len(scores),
        detected=sum(s.detected for s in scores) / count,
        delay_p50_s=quantile(delays, 0.5),
        delay_p90_s=quantile(delays, 0.9),
        rank=sum(s.rank for s in scores) / count,
        in_set=sum(s.in_set for s in scores) / count,
        host=sum(s.host for s in scores) / count,
        component=sum(s.component for s in scores) / count,
        early=sum(s.early for s in scores),
        confident_wrong=sum(s.confident_wrong for s in scores),
    )


def rows_by_fault(runs: Iterable[Run]) -> list[Row]:
    """Return one line per fault in the order in which they first come; healthy runs have none."""
    by: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.truth.injected_ns is not None:
            by[run.truth.fault].append(run)
    return [row(fault, some) for fault, some in by.items()]


def mean_row(name: str, rows: Sequence[Row]) -> Row:
    """Return the mean over lines, each fault of equal weight."""

    def mean(values: Iterable[float | None]) -> float:
        known = [v for v in values if v is not None]
        return statistics.fmean(known) if known else 0.0

    return Row(
        name=name,
        runs=sum(r.runs for r in rows),
        detected=mean(r.detected for r in rows),
        delay_p50_s=mean(r.delay_p50_s for r in rows),
        delay_p90_s=mean(r.delay_p90_s for r in rows),
        rank=mean(r.rank for r in rows),
        in_set=mean(r.in_set for r in rows),
        host=mean(r.host for r in rows),
        component=mean(r.component for r in rows),
        early=sum(r.early for r in rows),
        confident_wrong=sum(r.confident_wrong for r in rows),
    )


def confusion(runs: Iterable[Run]) -> dict[str, Counter[str]]:
    """Return fault -> component reported -> runs; `none` where nothing was."""
    table: dict[str, Counter[str]] = {}
    for run in runs:
        if run.truth.injected_ns is not None:
            table.setdefault(run.truth.fault, Counter())[score(run).reported] += 1
    return table


def poisson_upper(events: int, *, confidence: float = 0.95) -> float:
    """Return the exact upper bound of a Poisson mean of which `events` were seen: 3.0 of none at 95 %."""
    low, high = 0.0, 10.0 + 4 * events
    for _ in range(200):
        middle = (low + high) / 2
        term = total = math.exp(-middle)
        for n in range(1, events + 1):
            term *= middle / n
            total += term
        low, high = (middle, high) if total > 1 - confidence else (low, middle)
    return high


def false_reports(runs: Iterable[Run]) -> FalseReports:
    """Count the reports on healthy jobs."""
    healthy = [r for r in runs if r.truth.injected_ns is None]
    count = sum(len(r.answers) for r in healthy)
    hours = sum(r.watched_s for r in healthy) / 3600
    return FalseReports(
        reports=count,
        hours=hours,
        per_hour=count / hours if hours else 0.0,
        upper=poisson_upper(count) / hours if hours else math.inf,
    )


def calibration(runs: Iterable[Run]) -> list[Band]:
    """Return the reports on faults and on healthy jobs by tenths of certainty; empty tenths are left out.

    A report of a tie of n that holds the truth is right by 1/n, as its certainty counts it.
    """
    bands: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for run in runs:
        told = [(s.certainty, s.rank)] if (s := score(run)).detected else []
        if run.truth.injected_ns is None:
            told = [(a.certainty, 0.0) for a in run.answers]
        for certainty, hit in told:
            if certainty is not None:
                bands[min(int(certainty * 10 + 1e-9), 9)].append((certainty, hit))
    return [
        Band(
            low=tenth / 10,
            reports=len(found),
            certainty=statistics.fmean(c for c, _ in found),
            hit_rate=statistics.fmean(h for _, h in found),
        )
        for tenth, found in sorted(bands.items())
    ]


def failures(runs: Iterable[Run]) -> list[tuple[Run, str]]:
    """Return the runs that are not right, each with what is wrong: not detected, early, another one, another part."""
    found: list[tuple[Run, str]] = []
    for run in runs:
        got = score(run)
        reasons: list[str] = []
        if run.truth.injected_ns is None:
            if run.answers:
                reasons.append("report on a healthy job")
        else:
            if got.early:
                reasons.append("reported before the fault")
            if not got.detected:
                reasons.append("not detected")
            elif not got.in_set:
                reasons.append(
                    "another one named, with high confidence" if got.confident_wrong else "another one named"
                )
            elif not got.component:
                reasons.append(f"{got.reported} instead of {run.truth.components[0]}")
        if reasons:
            found.append((run, "; ".join(reasons)))
    return found


# ---- runs as JSON ----------------------------------------------------------------------------


def run_from_json(body: Mapping[str, Any]) -> Run:
    """Return a run from what `dataclasses.asdict` made of it.

    Raises:
        KeyError, TypeError, ValueError: if it is none.
    """
    truth = dict(body["truth"])
    answers = [dict(a) for a in body["answers"]]
    return Run(
        topology=str(body["topology"]),
        seed=int(body["seed"]),
        rules=str(body["rules"]),
        variant=str(body["variant"]),
        watched_s=float(body["watched_s"]),
        cpu_s=float(body["cpu_s"]),
        version=str(body.get("version", "")),
        truth=Truth(
            fault=str(truth["fault"]),
            components=tuple(map(str, truth["components"])),
            ranks=tuple(map(int, truth["ranks"])),
            hosts=tuple(map(str, truth["hosts"])),
            on_host=bool(truth["on_host"]),
            injected_ns=None if truth["injected_ns"] is None else int(truth["injected_ns"]),
            also=tuple(map(int, truth.get("also", ()))),
        ),
        answers=tuple(
            Answer(
                at_ns=int(a["at_ns"]),
                component=str(a["component"]),
                ranks=tuple(map(int, a["ranks"])),
                hosts=tuple(map(str, a["hosts"])),
                confidence=str(a["confidence"]),
                certainty=None if a["certainty"] is None else float(a["certainty"]),
                others=tuple((str(c), tuple(map(int, r))) for c, r in a["others"]),
                words=str(a["words"]),
            )
            for a in answers
        ),
    )
