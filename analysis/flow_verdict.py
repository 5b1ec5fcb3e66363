"""Everything that the tracer's rows say of a job at one moment: what stands, what is slow, what was held up."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mycroft.analysis.attribution import Slowness, culprits
from mycroft.analysis.config import FLOW_DEFAULTS, NS_PER_S, FlowLimits
from mycroft.analysis.facts import Frames
from mycroft.analysis.flow import Snapshot
from mycroft.analysis.flow_findings import stalls_of
from mycroft.analysis.flow_rows import read_snapshot
from mycroft.analysis.intermittent_findings import intermittent_findings
from mycroft.analysis.slow_findings import find_slowness, findings_at, standing_of
from mycroft.analysis.verdict import Finding, Standing, Unknown


@dataclass(frozen=True, slots=True)
class FlowEvidence:
    """What the rows of the tracer come to. `snapshot` None: no tracer left anything, the rest is empty."""

    snapshot: Snapshot | None
    stalls: tuple[Finding, ...] = ()
    slow: tuple[Finding, ...] = ()
    """Slow and intermittent."""
    standing: tuple[Standing, ...] = ()
    silence_ns: int = 0
    """Time without progress of the middle rank."""
    unknown: tuple[Unknown, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether the job was at work when the evidence ended: whoever waits then is in normal flight."""
        return self.snapshot is not None and self.silence_ns <= FLOW_DEFAULTS.silence_median_ns

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them, stalls first, each accused once."""
        return _each_accused_once((*self.stalls, *self.slow))


def flow_evidence(store: Frames, limits: FlowLimits = FLOW_DEFAULTS, *, at: int | None = None) -> FlowEvidence:
    """Return what the tracer's rows say at `at` (ns UTC; None: at the end of the evidence)."""
    snapshot = read_snapshot(store, limits, at=at)
    if snapshot is None:
        return FlowEvidence(None)
    found = find_slowness(store, limits, at=at)
    slow = findings_at(store, found, found.last()) if found is not None else ()
    stalls = stalls_of(store, snapshot, limits)
    silences = [snapshot.at_ns - ts for ts in snapshot.progress.values()]
    return FlowEvidence(
        snapshot=snapshot,
        stalls=stalls,
        slow=(*intermittent_findings(store, limits, at=at), *slow),
        standing=standing_of(found),
        silence_ns=round(statistics.median(silences)) if silences else 0,
        # Of a job that stands nobody asks who is slow.
        unknown=() if stalls else (*_unlearnt(found, limits), *_all_slower(found, limits)),
    )


def _unlearnt(found: Slowness | None, limits: FlowLimits) -> tuple[Unknown, ...]:
    """Say where there was too little to know what is usual."""
    needed = limits.warm + limits.learn + limits.confirm
    seen = len(found.service.ends) if found is not None else 0
    if found is None or seen > needed:
        return ()
    what = f"whether somebody is slower than usual: {seen} iterations were seen, {needed} are needed to learn from"
    return (Unknown(what, "a trace of more iterations, from before it became slow"),)


def _all_slower(found: Slowness | None, limits: FlowLimits) -> tuple[Unknown, ...]:
    """Say that iterations take longer than they did while nobody differs from the others."""
    if found is None or culprits(found, found.last()):
        return ()
    lengths = np.diff(found.service.ends) / NS_PER_S
    learnt = lengths[limits.warm : limits.warm + limits.learn]
    recent = lengths[limits.warm + limits.learn :][-limits.effect_over_host :]
    if len(recent) < limits.effect_over_host:
        return ()
    before, now = float(np.median(learnt)), float(np.median(recent))
    # More than the scatter of single iterations, so that a few long ones do not count.
    if now < limits.eff_host * before or np.percentile(recent, 25) < np.percentile(learnt, 75):
        return ()
    longer = f"{now:.2f} s, {now / before:.2f} times as long as before"
    what = f"why all are slower: iterations take {longer}, and nobody stands out"
    return (Unknown(what, "what changed for the whole job: data, code, settings; a baseline of the same job"),)


def young(evidence: FlowEvidence) -> str:
    """Say what stands but not for long enough to be a finding; empty: nothing."""
    if evidence.snapshot is None or evidence.moves or evidence.stalls or not evidence.snapshot.open:
        return ""
    return (
        f"half of the ranks have made no progress for {evidence.silence_ns / NS_PER_S:.1f} s, which is not yet longer "
        "than a pause may be, or the rows do not show for whom they wait"
    )


def _each_accused_once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    kept: list[Finding] = []
    for one in findings:
        accused = set(one.root_cause.ranks)
        if any(accused & set(k.root_cause.ranks) for k in kept):
            continue
        kept.append(one)
    return tuple(replace(f, id=f"f{n}") for n, f in enumerate(kept, 1))
