"""Verdicts against known truths: what `mycroft score` prints. The rules are those of the verdict's contract.

A truth is what a `truth.json` holds. `diagnose` never sees it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mycroft.analysis.verdict import Finding, Verdict

# Words of truth files -> categories that say the same or more. The first is the plain translation.
CATEGORIES: Final[Mapping[str, tuple[str, ...]]] = {
    "rank absent from collective": ("absent",),
    "rank_missing": ("absent",),
    "dataloader": ("dataloader",),
    "slow_dataloader": ("dataloader",),
    "checkpoint": ("checkpoint",),
    "user code branch divergence": ("code_divergence",),
    "off_by_one": ("code_divergence",),
    "type_mismatch": ("code_divergence",),
    "uneven_inputs": ("code_divergence",),
    "p2p_mismatch": ("code_divergence",),
    "size mismatch": ("size_mismatch",),
    "size_mismatch": ("size_mismatch",),
    "dtype_mismatch": ("size_mismatch",),
    "order deadlock": ("order_deadlock",),
    "group_order": ("order_deadlock",),
    "exception": ("exception",),
    "oom": ("out_of_memory",),
    "process died": ("process_died", "out_of_memory"),
    "process_died": ("process_died", "out_of_memory"),
    "process_stopped": ("process_stopped",),
    "gpu fault xid": ("gpu_fault",),
    "gpu_fault": ("gpu_fault", "device_hang"),
    "slow gpu thermal": ("slow_gpu",),
    "straggler": ("slow_compute", "slow_gpu"),
    "pcie degradation": ("pcie_degraded",),
    "nccl delay": ("proxy_stall",),
    "nic or ib link error": ("link_fault",),
    "network": ("link_fault", "network_congestion", "slow_nic"),
    "nic bandwidth limit": ("slow_nic",),
    "slow network congestion": ("network_congestion",),
    "background traffic": ("network_congestion",),
    "timeouts at init": ("init_timeout",),
    "misconfigured interface": ("misconfigured_interface",),
    "slow_group": ("slow_group", "network_congestion", "slow_nic"),
    "device_hang": ("device_hang", "gpu_fault"),
    "healthy": ("healthy",),
}
# A general class is also met by any that says why.
MORE_SPECIFIC: Final[Mapping[str, tuple[str, ...]]] = {
    "absent": (
        "dataloader",
        "checkpoint",
        "exception",
        "process_stopped",
        "process_died",
        "out_of_memory",
        "code_divergence",
    ),
}


@dataclass(frozen=True, slots=True)
class CaseScore:
    """One case. `outcome` is `right`, `wrong`, `abstained` or `missed` (healthy was said of a faulty job)."""

    name: str
    truth: str
    truth_category: str
    answer: str
    category: str
    confidence: str
    outcome: str
    wrong_confident: bool
    category_right: bool
    identifiable: bool
    mentioned: int
    mentionable: int
    not_mentioned: tuple[str, ...] = ()
    for_a_reader: tuple[str, ...] = ()
    """Items of `must_mention` without a word that can be looked for."""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """All cases together. Cases whose evidence cannot name the one are counted apart."""

    cases: int
    right: int
    wrong_confident: int
    abstained: int
    category_right: int
    mentioned: int
    mentionable: int
    apart: int
    apart_right: int


def score_case(name: str, verdict: Verdict, truth: Mapping[str, Any], *, seconds: float | None = None) -> CaseScore:
    """Compare one verdict with its truth."""
    wanted = _wanted(truth)
    healthy = _is_healthy(truth)
    identifiable = truth.get("fr_identifiable") is not False
    first = verdict.findings[0] if verdict.findings else None
    if healthy:
        right = verdict.exit_code == 0
    elif not identifiable:
        right = _holds(verdict, wanted)
    else:
        right = _names(verdict, truth, wanted)
    if not right and verdict.status == "cannot_tell":
        outcome = "abstained"
    elif not right and verdict.status == "healthy":
        outcome = "missed"
    else:
        outcome = "right" if right else "wrong"
    confident = any(f.confidence == "high" for f in verdict.findings[:1])
    mentioned, missing, unchecked = _mentions(verdict, truth)
    return CaseScore(
        name=name,
        truth=_show(wanted) if not healthy else "healthy",
        truth_category=str(truth.get("category", "")),
        answer=_show([_cause(f) for f in verdict.findings]) if verdict.findings else verdict.status,
        category=first.category if first else verdict.status,
        confidence=first.confidence if first else "",
        outcome=outcome,
        wrong_confident=not right and (bool(verdict.findings) if healthy else confident),
        category_right=_category_right(str(truth.get("category", "")), first.category if first else verdict.status),
        identifiable=identifiable,
        mentioned=mentioned,
        mentionable=mentioned + len(missing),
        not_mentioned=missing,
        for_a_reader=unchecked,
        seconds=seconds,
    )


def summarise(scores: Sequence[CaseScore]) -> ScoreSummary:
    """Count the cases; those whose evidence cannot name the one only under `apart`."""
    main = [s for s in scores if s.identifiable]
    apart = [s for s in scores if not s.identifiable]
    return ScoreSummary(
        cases=len(main),
        right=sum(s.outcome == "right" for s in main),
        wrong_confident=sum(s.wrong_confident for s in scores),
        abstained=sum(s.outcome == "abstained" for s in main),
        category_right=sum(s.category_right for s in main),
        mentioned=sum(s.mentioned for s in scores),
        mentionable=sum(s.mentionable for s in scores),
        apart=len(apart),
        apart_right=sum(s.outcome == "right" for s in apart),
    )


def table(scores: Sequence[CaseScore]) -> str:
    """Return one row a case and a summary, as text."""
    width = max([len(s.name) for s in scores] + [4])
    lines = [f"{'case':<{width}}  {'outcome':<9} {'sure':<6} {'category':<18} {'named':<24} {'truth':<24} {'s':>6}"]
    for s in scores:
        mark = " !" if s.wrong_confident else ""
        took = "" if s.seconds is None else f"{s.seconds:6.2f}"
        category = s.category + ("" if s.category_right else " *")
        lines.append(
            f"{s.name:<{width}}  {s.outcome:<9} {s.confidence:<6} {category:<18.18} {s.answer:<24.24} {s.truth:<24.24} "
            f"{took:>6}{mark}"
        )
    total = summarise(scores)
    lines += [
        "",
        f"right {total.right} of {total.cases}, wrong and confident {total.wrong_confident}, "
        f"abstained {total.abstained}, category right {total.category_right}",
    ]
    if total.apart:
        lines.append(f"counted apart (the evidence cannot name the one): {total.apart_right} of {total.apart} right")
    if total.mentionable:
        lines.append(f"facts mentioned {total.mentioned} of {total.mentionable}")
    lines.append("! wrong and confident   * another category than the truth's")
    return "\n".join(lines) + "\n"


_Cause = tuple[frozenset[int], frozenset[str]]


def _wanted(truth: Mapping[str, Any]) -> list[_Cause]:
    several: list[Mapping[str, Any]] = list(truth.get("root_causes") or ())
    one: Mapping[str, Any] = truth.get("root_cause") or {}
    return [(_numbers(c.get("ranks")), _texts(c.get("hosts"))) for c in several or [one]]


def _numbers(values: Any) -> frozenset[int]:
    return frozenset(int(v) for v in values or ())


def _texts(values: Any) -> frozenset[str]:
    return frozenset(str(v) for v in values or ())


def _is_healthy(truth: Mapping[str, Any]) -> bool:
    return truth.get("category") == "healthy" or (
        all(not ranks and not hosts for ranks, hosts in _wanted(truth)) and not truth.get("hang")
    )


def _cause(finding: Finding) -> _Cause:
    return frozenset(finding.root_cause.ranks), frozenset(finding.root_cause.hosts)


def _same(named: _Cause, wanted: _Cause) -> bool:
    """Ranks decide; hosts where the truth has no ranks."""
    return named[0] == wanted[0] if wanted[0] else named[1] == wanted[1]


def _names(verdict: Verdict, truth: Mapping[str, Any], wanted: Sequence[_Cause]) -> bool:
    if not verdict.findings:
        return False
    spared: Mapping[str, Any] = truth.get("must_not_blame") or {}
    spared_ranks, spared_hosts = _numbers(spared.get("ranks")), _texts(spared.get("hosts"))
    for finding in verdict.findings:
        ranks, hosts = _cause(finding)
        if ranks & spared_ranks:
            return False
        # A host is blamed as such only where no rank is.
        if not ranks and hosts & spared_hosts:
            return False
    if len(wanted) == 1:
        return _same(_cause(verdict.findings[0]), wanted[0])
    left = list(wanted)
    for finding in verdict.findings:
        match = next((w for w in left if _same(_cause(finding), w)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _holds(verdict: Verdict, wanted: Sequence[_Cause]) -> bool:
    """Say whether a verdict is right where the evidence cannot name the one."""
    if verdict.status == "cannot_tell":
        return True
    if not verdict.findings or verdict.findings[0].confidence == "high":
        return False
    return wanted[0][0] <= _cause(verdict.findings[0])[0]


def _category_right(truth: str, answer: str) -> bool:
    accepted = CATEGORIES.get(truth.lower(), (truth.lower().replace(" ", "_"),))
    return answer in accepted or any(answer in MORE_SPECIFIC.get(a, ()) for a in accepted)


def _mentions(verdict: Verdict, truth: Mapping[str, Any]) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Count the items of `must_mention` that the verdict's text has, and return the others.

    Looked for are the words with a digit, an underscore or two capitals; an item without such a word is for a reader.
    """
    text = verdict.to_json().lower()
    found = 0
    missing: list[str] = []
    unchecked: list[str] = []
    items: list[Any] = list(truth.get("must_mention") or ())
    for item in items:
        words = [w.strip(".,;:()'\"") for w in re.split(r"[\s/]+", str(item))]
        keys = [w for w in words if re.search(r"[0-9_]", w) or len(re.findall(r"[A-Z]", w)) >= 2]
        if not keys:
            unchecked.append(str(item))
        elif all(k.lower() in text for k in keys):
            found += 1
        else:
            missing.append(str(item))
    return found, tuple(missing), tuple(unchecked)


def _show(causes: Sequence[_Cause]) -> str:
    parts: list[str] = []
    for ranks, hosts in causes:
        shown = sorted(ranks)
        text = ",".join(map(str, shown[:6])) + ("…" if len(shown) > 6 else "")
        parts.append(text or ",".join(sorted(hosts)) or "-")
    return " + ".join(parts)
