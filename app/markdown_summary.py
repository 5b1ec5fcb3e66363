"""A verdict as Markdown: what goes into the channel where an incident is talked about.

Short enough to be read there, complete enough to act on: who, what, why, since, how sure, what to do, what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mycroft.app import words

CLAIMS: Final = 5
STEPS: Final = 4
UNKNOWN: Final = 3
NOTES: Final = 5
LINE_CHARS: Final = 400

_SPECIAL: Final = re.compile(r"([\\`*\[\]<>|~#])")
# A name with underscores is no emphasis; an underscore at the edge of a word would be.
_EDGE: Final = re.compile(r"(?<!\w)_|_(?!\w)")
_WORD_JOINER: Final = "\u2060"


def plain(text: object) -> str:
    """Return text from the evidence on one line, nothing in it taken for markup, a link or a mention of somebody."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    line = words.shorten(line, LINE_CHARS)
    line = _EDGE.sub(r"\\_", _SPECIAL.sub(r"\\\1", line))
    # `@here` in a message would wake everybody, and a bare address would become a link to wherever it says.
    return line.replace("@", f"@{_WORD_JOINER}").replace("://", f":{_WORD_JOINER}//")


def code(text: object) -> str:
    """Return text as code; the fence is longer than any run of back-ticks in it."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def to_markdown(
    verdict: Mapping[str, Any],
    *,
    title: str | None = None,
    link: str | None = None,
    notes: Sequence[tuple[str, float, str]] = (),
) -> str:
    """Return the summary of a verdict in its JSON form.

    Args:
        verdict: as `Verdict.to_dict` gives it.
        title: what the evidence is called.
        link: an address of our own where more is seen.
        notes: what people wrote on it: who (may be empty), when in seconds since the epoch, and the text.
    """
    findings: Sequence[Mapping[str, Any]] = verdict["findings"]
    first = findings[0] if findings else None
    lines = [f"**{words.status(verdict['status'])}: {plain(verdict['summary'])}**", ""]
    if first is not None:
        lines += _finding(first)
    if len(findings) > 1:
        lines += ["", f"**{words.plural(len(findings) - 1, 'more fault')}**", ""]
        lines += [f"- {words.status(other['status'])}: {plain(other['summary'])}" for other in findings[1:]]
    lines += _missing(verdict)
    lines += _notes(notes)
    lines += ["", _footer(verdict, title)]
    if link is not None:
        lines.append(f"<{link}>")
    return "\n".join(lines) + "\n"


def _finding(finding: Mapping[str, Any]) -> list[str]:
    cause = finding["root_cause"]
    who = words.named_ranks(cause["ranks"]) if cause["ranks"] else "no rank"
    who = f"one of {who}" if cause["one_of"] else who
    where = [*cause["hosts"][:6], *cause["devices"][:6]]
    more = len(cause["hosts"]) + len(cause["devices"]) - len(where)
    place = ", ".join(code(name) for name in where) + (f" and {more} more" if more > 0 else "")
    lines = [f"- **Who:** {who}{f' on {place}' if place else ''}"]
    lines.append(f"- **What:** {words.category(finding['category'])} ({words.COMPONENTS[finding['component']]})")
    what = finding.get("collective") or {}
    if what.get("op"):
        seq = "" if what.get("seq") is None else f" {what['seq']}"
        lines.append(f"- **Operation:** {plain(what['op'])}{seq} of {plain(what.get('group') or 'a group')}")
    if finding["victims"]["count"]:
        lines.append(f"- **Waiting:** {words.plural(finding['victims']['count'], 'rank')}")
    if finding["why"]:
        lines.append(f"- **Why:** {plain(finding['why'])}")
    time, day = words.clock(finding.get("since"))
    lines.append(f"- **Since:** {plain(f'{time} {day}') if finding.get('since') else 'unknown'}")
    because = f" ({plain('; '.join(finding['confidence_why']))})" if finding["confidence_why"] else ""
    lines.append(f"- **Confidence:** {finding['confidence']}{because}")
    steps = finding["next_steps"]
    if steps:
        lines += ["", "**Do next**", ""]
        lines += [f"{n}. {code(step)}" for n, step in enumerate(steps[:STEPS], start=1)]
        lines += _more(len(steps) - STEPS)
    claims = finding["evidence"]
    if claims:
        lines += ["", "**Evidence**", ""]
        lines += [f"- {plain(claim['claim'])}{_place(claim)}" for claim in claims[:CLAIMS]]
        lines += _more(len(claims) - CLAIMS)
    return lines


def _place(claim: Mapping[str, Any]) -> str:
    if not claim.get("file"):
        return ""
    line = "" if claim.get("line") is None else f":{claim['line']}"
    return f" ({code(str(claim['file']) + line)})"


def _more(count: int) -> list[str]:
    return [f"- and {count} more"] if count > 0 else []


def _missing(verdict: Mapping[str, Any]) -> list[str]:
    unknown = verdict["unknown"]
    if not unknown:
        return []
    lines = ["", "**Not known**", ""]
    lines += [f"- {plain(item['what'])}; would decide it: {plain(item['would_decide'])}" for item in unknown[:UNKNOWN]]
    return lines + _more(len(unknown) - UNKNOWN)


def _notes(notes: Sequence[tuple[str, float, str]]) -> list[str]:
    if not notes:
        return []
    lines = ["", "**Notes**", ""]
    for author, created, text in notes[-NOTES:]:
        lines.append(f"- {plain(author) or 'somebody'}, {plain(words.day_and_time(created))}: {plain(text)}")
    return lines + ([f"- and {len(notes) - NOTES} before"] if len(notes) > NOTES else [])


def _footer(verdict: Mapping[str, Any], title: str | None) -> str:
    seen = verdict["evidence"]
    expected = seen["ranks_expected"]
    ranks = f"{seen['ranks_seen']:,} of {expected:,} ranks" if expected is not None else f"{seen['ranks_seen']:,} ranks"
    files = words.plural(seen["files"], "file")
    unread = f", {len(seen['unread']):,} of them not read" if seen["unread"] else ""
    named = f"{plain(title)}: " if title else ""
    return f"{named}{ranks} seen in {files}{unread}. Mycroft {plain(verdict['engine'])}."
