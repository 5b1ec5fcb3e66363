"""The verdict beside the truth, for a job that was broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dash import html

from mycroft.app import words
from mycroft.app.injected import Injected
from mycroft.app.pages.panel import Child, html_table, panel, tag, unknown
from mycroft.app.pages.verdict_band import Finding

_OUTCOMES: Final = {
    "right": ("the verdict names it", "done"),
    "wrong": ("the verdict names another", "cause"),
    "abstained": ("the verdict does not name anybody", "nolog"),
    "missed": ("the verdict calls the job healthy", "cause"),
}


def injected_panel(truth: Injected, verdict: Mapping[str, Any], finding: Finding | None) -> html.Section:
    """Return what the analysis found and what was done to the job, side by side.

    The truth comes from the catalogue: the trace, which is all that the analysis reads, does not hold it.
    """
    cause: Mapping[str, Any] = finding["root_cause"] if finding else {"ranks": [], "hosts": []}
    said, kind = _OUTCOMES.get(truth.outcome, ("not compared", "neutral"))
    category = finding["category"] if finding else verdict["status"]
    rows = [
        _row("Who", _who(cause["ranks"], cause["hosts"]), _who(truth.ranks, truth.hosts)),
        _row("What", words.category(category), words.category(truth.category) if truth.category else unknown()),
        _row(
            "Status",
            words.status(finding["status"] if finding else verdict["status"]),
            words.status(truth.status) if truth.status else unknown(),
        ),
        _row(
            "Since",
            words.clock(finding["since"])[0] if finding and finding["since"] else unknown(),
            words.time_of(truth.at_ns),
        ),
    ]
    return panel(
        "Verdict and truth",
        html_table(("", "Verdict", "Injected fault"), rows),
        html.P(
            [f"How it was done: {truth.explanation}." if truth.explanation else "", _seed(truth)], className="muted"
        ),
        note=["This job was broken on purpose; the analysis did not see by whom. ", tag(said, kind)],
        id="injected",
    )


def _row(name: str, verdict: Child, truth: Child) -> html.Tr:
    return html.Tr([html.Th(name, scope="row"), html.Td(verdict), html.Td(truth)])


def _who(ranks: Any, hosts: Any) -> str:
    where = f" on {', '.join(hosts)}" if hosts else ""
    if not ranks and hosts:
        return ", ".join(hosts)
    return (words.named_ranks(ranks) if ranks else "nobody") + where


def _seed(truth: Injected) -> str:
    return f" Seed {truth.seed}." if truth.seed is not None else ""
