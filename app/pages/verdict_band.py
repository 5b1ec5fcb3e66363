"""The first band of a diagnosis: who, what, why, since when, how sure, and what to do next.

Everything is in the verdict already; here it only gets its place. The same band stands for a finding, for a trace
in which nothing is wrong, and for evidence that does not suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dash import html

from mycroft.app import words
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, attributes, copyable, link, ranks_inline, tag, unknown
from mycroft.app.reads.coverage import Coverage

Verdict = Mapping[str, Any]
Finding = Mapping[str, Any]

LONG_SUMMARY: Final = 90
LONGEST_SUMMARY: Final = 220
"""Characters from which the headline is set smaller, and smaller still, so that the band stays above the fold."""
LONG_WHY: Final = 420
"""Characters from which the reason scrolls in its place."""
STEPS_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What is known of a rank beside the verdict; None is unknown."""

    host: str | None = None
    gpu: str | None = None
    nic: str | None = None
    place: str | None = None
    ring: str | None = None


NumberOf = Callable[[str, int, str, Sequence[int]], int | None]
"""Number that an operation has in addresses: of its group's key, the verdict's number, its kind, and ranks in it."""


def _same_number(_comm: str, seq: int, _op: str, _ranks: Sequence[int]) -> int | None:
    return seq


@dataclass(frozen=True, slots=True)
class Context:
    """What a page needs to know of the trace to write a verdict: addresses, files and ranks by name.

    `iteration` is the last that a log tells before the finding began, `coverage` what the evidence lacks, `waited_ns`
    for how long those who wait had done so by the end of the evidence.
    """

    links: TraceLinks
    files: Mapping[str, int] = field(default_factory=dict[str, int])
    ranks: Mapping[int, RankFacts] = field(default_factory=dict[int, RankFacts])
    group_sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    number_of: NumberOf = _same_number
    iteration: int | None = None
    coverage: Coverage | None = None
    waited_ns: int | None = None

    def op(self, named: Mapping[str, Any], ranks: Sequence[int]) -> str | None:
        """Return the address of an operation that the verdict names; None where it does not say which.

        A verdict numbers sends and receives by pair, and addresses by rank: `ranks` are those that took part.
        """
        comm, seq = named.get("comm"), named.get("seq")
        if not comm or seq is None:
            return None
        return self.links.op(comm, self.number_of(comm, seq, str(named.get("op") or ""), ranks) or seq)

    def host_of(self, rank: int) -> str | None:
        """Return the host of a rank, None where it is not known."""
        known = self.ranks.get(rank)
        return known.host if known else None


def headline_tag(finding: Finding) -> html.Span:
    """Return the tag over the headline: a sure root cause is filled, one of several is only outlined."""
    cause = finding["root_cause"]
    if cause["one_of"]:
        return tag(f"One of {words.plural(len(cause['ranks']) or len(cause['hosts']), 'suspect')}", "suspect")
    if not (cause["ranks"] or cause["hosts"] or cause["devices"]):
        return tag("Cause not named", "neutral")
    return tag("Root cause", "cause")


def _title_class(summary: str) -> str:
    size = "--longest" if len(summary) > LONGEST_SUMMARY else "--long" if len(summary) > LONG_SUMMARY else ""
    return "verdict__title" + (f" verdict__title{size}" if size else "")


def _fact(name: str, value: Child, *lines: Child, wide: bool = False) -> html.Div:
    more = [html.Div(line, className="fact__more") for line in lines if line is not None]
    return html.Div(
        [html.Dt(name), html.Dd([html.Div(value, className="fact__value"), *more])],
        className="fact fact--wide" if wide else "fact",
    )


def _who(finding: Finding, context: Context) -> list[Child]:
    cause = finding["root_cause"]
    items: list[Child] = []
    if cause["ranks"]:
        items.append(html.Span(ranks_inline(cause["ranks"], context.links.rank)))
    hosts = list(dict.fromkeys(cause["hosts"])) or list(
        dict.fromkeys(host for rank in cause["ranks"] if (host := context.host_of(rank)))
    )
    for host in hosts[:3]:
        items.append(link(words.shorten(host, 40), context.links.host(host)))
    if len(hosts) > 3:
        items.append(html.Span(f"{len(hosts) - 3} more hosts"))
    if cause["ranks"] and not hosts:
        items.append(unknown("host unknown"))
    devices = list(cause["devices"])
    if len(cause["ranks"]) == 1 and (known := context.ranks.get(cause["ranks"][0])):
        devices += [name for name in (known.gpu, known.nic) if name and name not in devices]
    items += [html.Span(words.shorten(device, 40)) for device in devices[:4]]
    flow = cause.get("flow")
    if flow:
        named = [
            f"channel {flow['channel']}" if flow.get("channel") is not None else "",
            f"{flow['dir']} to rank {flow['peer']}"
            if flow.get("dir") == "send" and flow.get("peer") is not None
            else "",
            f"{flow['dir']} from rank {flow['peer']}"
            if flow.get("dir") == "recv" and flow.get("peer") is not None
            else "",
            f"queue pair {flow['qp']}" if flow.get("qp") is not None else "",
        ]
        items.append(html.Span(" · ".join(part for part in named if part)))
    return items


def _place(finding: Finding, context: Context) -> Child:
    ranks = finding["root_cause"]["ranks"]
    known = context.ranks.get(ranks[0]) if len(ranks) == 1 else None
    told = " · ".join(part for part in (known.place, known.ring) if part) if known else ""
    return html.Div(told, className="muted") if told else None


def _what(finding: Finding, context: Context) -> html.Div:
    op = finding.get("collective")
    if not op or not (op.get("op") or op.get("group")):
        return _fact("What", f"{words.status(finding['status'])}", words.category(finding["category"]))
    named = " ".join(
        part
        for part in (words.shorten(str(op.get("op") or ""), 40), str(op["seq"]) if op.get("seq") is not None else "")
        if part
    )
    value: Child = named or "an operation"
    address = context.op(op, [*finding["root_cause"]["ranks"], *finding["victims"]["ranks"]])
    if address is not None:
        value = link(named, address)
    group: list[Child] = []
    if op.get("group"):
        shown = words.shorten(op["group"], 44)
        group.append(link(shown, context.links.comm(op["comm"])) if op.get("comm") else shown)
    size = context.group_sizes.get(op.get("comm") or "")
    if size:
        group.append(f" · {words.plural(size, 'rank')}")
    waiting = finding["victims"]["count"]
    effect = {"hang": "waiting", "crash": "waiting", "slow": "slowed"}.get(finding["status"], "affected")
    if effect == "waiting" and context.waited_ns is not None:
        effect += f", {words.duration(context.waited_ns)} when the evidence ends"
    return _fact(
        f"What · {words.status(finding['status']).lower()}",
        value,
        html.Span(group),
        f"{words.plural(waiting, 'other rank')} {effect}" if waiting else None,
    )


def confidence_meter(level: str) -> html.Span:
    """Return the word of a confidence with three bars of which one to three are filled."""
    word, filled = words.CONFIDENCES.get(level, (level, 0))
    bars = [html.I(className="meter__bar meter__bar--on" if n < filled else "meter__bar") for n in range(3)]
    return html.Span(
        [html.Span(bars, className="meter__bars", **attributes(aria_hidden="true")), html.Span(word)], className="meter"
    )


def next_steps(steps: list[str]) -> Child:
    """Return the actions as an ordered list; a comment after ` # ` is set beneath its command."""
    if not steps:
        return html.P("The analysis proposes nothing for this case.", className="muted")
    items: list[Child] = []
    for step in steps:
        command, _, comment = (part.strip() for part in step.partition("  # "))
        if command.startswith("<") and command.endswith(">") and "<" not in command[1:]:
            # An action that is no command stands in angle brackets.
            text = command[1:-1]
            items.append(
                html.Li([text[:1].upper() + text[1:], html.Div(comment, className="muted") if comment else None])
            )
            continue
        items.append(html.Li(copyable(command, comment=comment)))
    shown = html.Ol(items[:STEPS_SHOWN], className="steps")
    if len(items) <= STEPS_SHOWN:
        return shown
    more = html.Ol(items[STEPS_SHOWN:], className="steps", start=str(STEPS_SHOWN + 1))
    return [shown, html.Details([html.Summary(f"{len(items) - STEPS_SHOWN} more"), more], className="fold")]


def finding_band(finding: Finding, context: Context, *, weakened: list[Child]) -> html.Section:
    """Return the band of one finding; `weakened` are the remarks on the evidence that lower its confidence."""
    summary = str(finding["summary"]).rstrip(".")
    time, day = words.clock(finding.get("since"))
    reasons = html.Ul([html.Li(reason) for reason in finding["confidence_why"]], className="reasons")
    who = html.Div(
        [
            html.Div(
                [headline_tag(finding), html.Span(words.category(finding["category"]), className="verdict__category")],
                className="verdict__tags",
            ),
            html.H1(summary, className=_title_class(summary)),
            html.Div(_who(finding, context), className="verdict__who"),
            _place(finding, context),
        ],
        className="verdict__head",
    )
    is_long = len(finding["why"]) > LONG_WHY
    why = html.Span(
        finding["why"] or unknown("not said"),
        className="fact__why fact__why--long" if is_long else "fact__why",
        # What scrolls must be reachable by keyboard.
        **attributes(tabIndex="0" if is_long else None),
    )
    facts = html.Dl(
        [
            _what(finding, context),
            _fact(
                "Since",
                time if finding.get("since") else unknown(),
                day,
                None if context.iteration is None else f"after iteration {context.iteration:,}",
            ),
            _fact("Why", why, wide=True),
            _fact("Confidence", confidence_meter(finding["confidence"]), reasons, wide=True),
        ],
        className="verdict__facts",
    )
    todo = html.Div([html.H2("Do next"), html.Div(next_steps(list(finding["next_steps"])))], className="verdict__next")
    kind = "suspect" if finding["root_cause"]["one_of"] else "cause"
    return html.Section(
        [html.Div([who, facts, todo], className="verdict__grid"), *_remarks(weakened)],
        className=f"verdict verdict--{kind}",
        **attributes(aria_label="Verdict"),
    )


def _remarks(weakened: list[Child]) -> list[Child]:
    if not weakened:
        return []
    return [
        html.Div([html.Div(remark, className="verdict__remark") for remark in weakened], className="verdict__remarks")
    ]


def healthy_band(verdict: Verdict) -> html.Section:
    """Return the band of a trace in which nothing is wrong."""
    return html.Section(
        html.Div(
            [
                html.Div(
                    [
                        html.Div(tag("Healthy", "done"), className="verdict__tags"),
                        html.H1(str(verdict["summary"]).rstrip("."), className="verdict__title"),
                    ],
                    className="verdict__head",
                ),
                html.Dl(_coverage_facts(verdict), className="verdict__facts"),
                html.Div(
                    [
                        html.H2("What this means"),
                        html.P(
                            "The ranks in this evidence agree on what was issued and what was finished. A fault that "
                            "leaves no mark in the files listed here would not show."
                        ),
                    ],
                    className="verdict__next",
                ),
            ],
            className="verdict__grid",
        ),
        className="verdict verdict--healthy",
        **attributes(aria_label="Verdict"),
    )


def cannot_tell_band(verdict: Verdict, *, weakened: list[Child]) -> html.Section:
    """Return the band of evidence that does not suffice: what would decide it takes the place of the actions."""
    decide = [
        html.Li([html.Strong(item["would_decide"]), html.Div(item["what"], className="muted")])
        for item in verdict["unknown"]
    ]
    return html.Section(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.Div(tag("Cannot tell", "nolog"), className="verdict__tags"),
                            html.H1(
                                str(verdict["summary"]).rstrip("."),
                                className="verdict__title verdict__title--long",
                            ),
                        ],
                        className="verdict__head",
                    ),
                    html.Dl(_coverage_facts(verdict), className="verdict__facts"),
                    html.Div(
                        [
                            html.H2("What would decide it"),
                            html.Ol(decide, className="decide") if decide else html.P("The analysis names nothing."),
                        ],
                        className="verdict__next",
                    ),
                ],
                className="verdict__grid",
            ),
            *_remarks(weakened),
        ],
        className="verdict verdict--unknown",
        **attributes(aria_label="Verdict"),
    )


def _coverage_facts(verdict: Verdict) -> list[Child]:
    seen = verdict["evidence"]
    expected = seen["ranks_expected"]
    formats = ", ".join(f"{words.source(name)} {count:,}" for name, count in sorted(seen["formats"].items()))
    missing = None if expected is None else expected - seen["ranks_seen"]
    return [
        _fact(
            "Ranks seen",
            words.number(seen["ranks_seen"]),
            f"of {expected:,} expected" if expected is not None else "how many there should be is unknown",
            f"{missing:,} left nothing" if missing else None,
        ),
        _fact("Files", words.number(seen["files"]), formats or None),
        _fact("Not read", words.number(len(seen["unread"])), "see Data quality" if seen["unread"] else None),
        _fact("Confidence", unknown("none claimed") if verdict["status"] == "cannot_tell" else "by absence of faults"),
    ]
