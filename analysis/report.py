"""The verdict as text for a terminal: who, what, why, how sure, what next, in that order.

The main finding fits 25 lines; everything else is in the JSON. Nothing is computed here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from mycroft.analysis.case import count_words
from mycroft.analysis.verdict import Finding, Verdict

LEAST_WIDTH: Final = 40
MOST_WIDTH: Final = 120
LABEL: Final = 10
LINES: Final = 25
_STYLES: Final = {"head": "1", "bad": "1;31", "warn": "1;33", "good": "1;32", "dim": "2"}
_STATUS_STYLE: Final = {"hang": "bad", "crash": "bad", "slow": "warn", "healthy": "good", "cannot_tell": "warn"}
_STATUS_WORDS: Final = {
    "hang": "HANG",
    "crash": "CRASH",
    "slow": "SLOW",
    "healthy": "HEALTHY",
    "cannot_tell": "CANNOT TELL",
}


def render(verdict: Verdict, *, width: int = 100, colour: bool = False) -> str:
    """Return the report. `width` in columns; `colour` writes ANSI escapes.

    Text that came with the evidence (file names, hosts, log lines) is shown with control characters replaced.
    """
    width = max(LEAST_WIDTH, min(width, MOST_WIDTH))
    paint = _Paint(colour=colour)
    lines: list[str] = []
    word = paint(_STATUS_STYLE[verdict.status], _STATUS_WORDS[verdict.status])
    if verdict.findings:
        lines += _main(verdict, verdict.findings[0], word, paint, width)
        for finding in verdict.findings[1:]:
            lines += ["", *_short(finding, paint, width)]
    else:
        lines += _wrapped(f"{word}  ", _clean(verdict.summary), width, len(_STATUS_WORDS[verdict.status]) + 2)
    lines += _unknown(verdict, paint, width)
    lines += _evidence(verdict, paint, width)
    return "\n".join(lines) + "\n"


class _Paint:
    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._colour else text


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _wrapped(first: str, text: str, width: int, indent: int) -> list[str]:
    """Wrap `text` after `first`, whose visible length is `indent`; further lines are indented as much."""
    wrapped = textwrap.wrap(text, width - indent, break_long_words=True, break_on_hyphens=False) or [""]
    return [first + wrapped[0], *(" " * indent + line for line in wrapped[1:])]


def _field(paint: _Paint, label: str, text: str, width: int, *, most: int = 4) -> list[str]:
    lines = _wrapped(paint("dim", f"{label:<{LABEL}}"), _clean(text), width, LABEL)
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: width - 1] + "…"]
    return lines


def _main(verdict: Verdict, finding: Finding, word: str, paint: _Paint, width: int) -> list[str]:
    indent = len(_STATUS_WORDS[verdict.status]) + 2
    lines = _wrapped(f"{word}  ", _clean(finding.summary), width, indent)[:4]
    lines.append("")
    lines += _field(paint, "who", _who(finding), width, most=2)
    lines += _field(paint, "what", _what(finding), width, most=2)
    lines += _field(paint, "why", finding.why or finding.summary, width, most=5)
    if finding.chain:
        lines += _field(paint, "chain", _chain(finding), width, most=2)
    sure = finding.confidence + (": " + "; ".join(finding.confidence_why) if finding.confidence_why else "")
    lines += _field(paint, "how sure", sure, width, most=4)
    label = "next"
    for step in finding.next_steps[:3]:
        lines += _field(paint, label, step, width, most=1 if len(lines) > LINES - 3 else 2)
        label = ""
    return lines[:LINES]


def _short(finding: Finding, paint: _Paint, width: int) -> list[str]:
    lines = _field(paint, f"also {finding.id}", finding.summary, width, most=3)
    lines += _field(paint, "how sure", finding.confidence + _why_words(finding.confidence_why), width, most=2)
    if finding.next_steps:
        lines += _field(paint, "next", finding.next_steps[0], width, most=1)
    return lines


def _why_words(reasons: Sequence[str]) -> str:
    return ": " + "; ".join(reasons) if reasons else ""


def _who(finding: Finding) -> str:
    cause = finding.root_cause
    parts: list[str] = []
    if cause.ranks:
        parts.append(("one of " if cause.one_of else "") + count_words(cause.ranks))
    if cause.hosts:
        parts.append("on " + ", ".join(cause.hosts[:6]) + (" …" if len(cause.hosts) > 6 else ""))
    if cause.devices:
        parts.append("device " + ", ".join(cause.devices[:6]))
    victims = f"; {len(finding.victims)} ranks suffer" if len(finding.victims) > 1 else ""
    return (" ".join(parts) or "nobody named") + victims


def _what(finding: Finding) -> str:
    text = f"{finding.category.replace('_', ' ')} ({finding.component})"
    at = finding.collective
    if at is not None:
        where = " ".join(str(part) for part in (at.op, at.seq) if part is not None)
        text += f" at {where} of {at.group}" if where else f" in {at.group}"
    if finding.since:
        text += f", since {finding.since}"
    return text


def _chain(finding: Finding) -> str:
    first = finding.chain[0]
    text = f"rank {first.waiter}"
    for link in finding.chain:
        text += f" → {link.blocker}"
        if link.group:
            text += f" ({link.group}{f' {link.seq}' if link.seq is not None else ''})"
    return text


def _unknown(verdict: Verdict, paint: _Paint, width: int) -> list[str]:
    shown = verdict.unknown[:3]
    if not shown:
        return []
    lines = [""]
    label = "unknown"
    for item in shown:
        lines += _field(paint, label, f"{item.what}; would decide: {item.would_decide}", width, most=2)
        label = ""
    return lines


def _evidence(verdict: Verdict, paint: _Paint, width: int) -> list[str]:
    summary = verdict.evidence
    of = f" of {summary.ranks_expected}" if summary.ranks_expected is not None else ""
    text = f"{summary.files} files, {summary.ranks_seen}{of} ranks"
    if summary.formats:
        text += ": " + ", ".join(f"{n} {name}" for name, n in sorted(summary.formats.items()))
    if summary.unread:
        text += f"; {len(summary.unread)} not read"
    return ["", *_field(paint, "evidence", text, width, most=2)]
