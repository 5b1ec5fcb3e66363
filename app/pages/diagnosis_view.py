"""The diagnosis of one incident: the verdict in a band, then what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dash import html

from mycroft.app import words
from mycroft.app.figures import chain
from mycroft.app.pages.evidence_panel import evidence_panel, votes_panel
from mycroft.app.pages.groups_panel import groups_panel
from mycroft.app.pages.panel import Child, attributes, details, facts, figure, html_table, link, panel, tag, unknown
from mycroft.app.pages.verdict_band import (
    Context,
    Finding,
    Verdict,
    cannot_tell_band,
    finding_band,
    healthy_band,
)
from mycroft.app.reads.coverage import Coverage

WHOLE = "verdict"
"""Name in addresses of the answer of a trace that has no finding."""


def finding_of(verdict: Verdict, incident: str) -> Finding | None:
    """Return the finding of that id; None if the verdict has none of it."""
    return next((finding for finding in verdict["findings"] if finding["id"] == incident), None)


def first_incident(verdict: Verdict | None) -> str:
    """Return the id of the answer: the first finding, else the verdict itself."""
    return verdict["findings"][0]["id"] if verdict and verdict["findings"] else WHOLE


def remarks(verdict: Verdict) -> list[Child]:
    """Return what is missing from the evidence and therefore stands in the band itself."""
    seen, expected = verdict["evidence"]["ranks_seen"], verdict["evidence"]["ranks_expected"]
    said: list[str] = []
    if expected is not None and seen < expected:
        said.append(f"{seen:,} of {expected:,} ranks seen")
    gaps = [item["what"] for item in verdict["unknown"]]
    if gaps:
        said.append(words.shorten(gaps[0], 200))
    if not said:
        return []
    more: list[Child] = [html.A(words.plural(len(gaps) - 1, "more gap"), href="#quality")] if len(gaps) > 1 else []
    return [[tag("missing", "nolog"), html.Span(" · ".join(said)), *more]]


def chain_panel(finding: Finding, context: Context) -> Child:
    """Return who waits for whom, drawn and in words; None where the verdict gives no chain."""
    links = finding["chain"]
    if not links:
        return None
    cause = finding["root_cause"]
    picture = chain.chain_svg(
        links,
        culprits=cause["ranks"],
        sure=not cause["one_of"],
        hosts={rank: known.host for rank, known in context.ranks.items() if known.host},
        rank_href=context.links.rank,
        op_href=lambda step: context.op(step, (step["waiter"], step["blocker"])),
    )
    numbers = {claim["id"]: n for n, claim in enumerate(finding["evidence"], start=1)}
    steps: list[Child] = []
    for step in links:
        named = chain.operation(step)
        where: list[Child] = []
        address = context.op(step, (step["waiter"], step["blocker"]))
        if named and address is not None:
            where = [" in ", link(named, address)]
        elif named:
            where = [f" in {named}"]
        claims: list[Child] = []
        for claim in step["evidence"]:
            if claim in numbers:
                claims += [" ", html.A(f"[{numbers[claim]}]", href=f"#claim-{claim}")]
        steps.append(
            html.Li(
                [
                    link(f"rank {step['waiter']}", context.links.rank(step["waiter"])),
                    " waits for ",
                    link(f"rank {step['blocker']}", context.links.rank(step["blocker"])),
                    *where,
                    f" of {step['group']}" if step.get("group") else "",
                    f": {step['why']}" if step.get("why") else "",
                    *claims,
                ]
            )
        )
    rows = chain.rows_of(links)
    cut = f"; {len(rows) - chain.MAX_ROWS:,} more branches in the list" if len(rows) > chain.MAX_ROWS else ""
    legend = (
        "amber outline: waits · ▲ filled: root cause"
        if not cause["one_of"]
        else "amber outline: waits · ▲ dashed: suspect"
    )
    return panel(
        "Who waits for whom",
        figure(picture),
        details(f"In words, {words.plural(len(steps), 'step')}", html.Ol(steps, className="chain-list")),
        note=legend + cut,
    )


def findings_strip(verdict: Verdict, context: Context, current: str) -> Child:
    """Return links to all findings of a verdict; None where there is one at most."""
    if len(verdict["findings"]) < 2:
        return None
    items = [
        html.A(
            [
                html.Span(f"{n}", className="findings__number"),
                html.Strong(words.status(finding["status"])),
                html.Span(finding["summary"], className="findings__text"),
            ],
            href=context.links.incident(finding["id"]),
            className="findings__item",
            **attributes(aria_current="page" if finding["id"] == current else None),
        )
        for n, finding in enumerate(verdict["findings"], start=1)
    ]
    return html.Nav(items, className="findings", **attributes(aria_label="Independent faults"))


def alternatives_panel(finding: Finding, context: Context) -> Child:
    """Return the explanations that were considered and rejected; closed by default."""
    others = finding["alternatives"]
    if not others:
        return None
    rows = [
        html.Tr(
            [
                html.Td(words.category(other["category"])),
                html.Td(words.named_ranks(other["ranks"]) if other["ranks"] else "–", className="nowrap"),
                html.Td(other["rejected"]),
            ]
        )
        for other in others
    ]
    return details(
        html.Span(["Other explanations considered", html.Span(f"{len(others)}", className="muted")]),
        html_table(("Explanation", "Of", "Rejected because"), rows),
        class_name="fold--panel",
    )


def _coverage_rows(seen: Coverage) -> list[tuple[str, Child]]:
    """Return what dumps lack, what was of no use, and how far clocks may be apart."""
    rows: list[tuple[str, Child]] = []
    if seen.dumped:
        told = [words.plural(seen.dumped, "rank")]
        if seen.overwritten:
            told.append(f"{seen.overwritten:,} with older operations overwritten")
        if seen.only_active:
            told.append(f"{seen.only_active:,} with only what had not finished")
        if seen.whole:
            told.append(f"{seen.whole:,} from the first operation on")
        rows.append(("Dumps", "; ".join(told)))
    if seen.damaged_files:
        dropped = words.plural(seen.dropped, "record or line", "records or lines")
        rows.append(("No use", f"{dropped} of {words.plural(seen.damaged_files, 'file')}"))
    if seen.hosts:
        known = f"{seen.synchronised:,} of {words.plural(seen.hosts, 'host')}"
        if seen.synchronised and seen.clock_error_ns is not None:
            rows.append(("Clocks", f"within ± {words.duration(seen.clock_error_ns)} of UTC, {known}"))
        else:
            rows.append(("Clocks", [f"each host's own, offset known of {known}; ", unknown("error bound unknown")]))
    return rows


def quality_panel(verdict: Verdict, context: Context) -> html.Section:
    """Return what the evidence covers, what is missing from it, and which version judged it."""
    seen = verdict["evidence"]
    expected = seen["ranks_expected"]
    formats = ", ".join(f"{words.source(name)} {count:,}" for name, count in sorted(seen["formats"].items()))
    rows: list[tuple[str, Child]] = [
        (
            "Ranks",
            f"{seen['ranks_seen']:,} of {expected:,} seen"
            if expected is not None
            else [f"{seen['ranks_seen']:,} seen, ", unknown("how many there should be is unknown")],
        ),
        ("Files", link(f"{seen['files']:,} ({formats or 'none read'})", context.links.files())),
        *(_coverage_rows(context.coverage) if context.coverage else ()),
        ("Judged by", f"Mycroft {verdict['engine']}"),
        ("Digest", html.Code(words.shorten(seen["digest"], 26), title=seen["digest"])),
    ]
    children: list[Child] = [facts(rows)]
    if verdict["unknown"]:
        children.append(html.H3("Not known", className="sub"))
        children.append(
            html.Ul(
                [
                    html.Li(
                        [
                            html.Span(item["what"]),
                            html.Div(f"Would decide it: {item['would_decide']}", className="muted"),
                        ]
                    )
                    for item in verdict["unknown"]
                ],
                className="bullets",
            )
        )
    if seen["unread"]:
        children.append(html.H3(f"Not read, {words.plural(len(seen['unread']), 'file')}", className="sub"))
        shown = [
            html.Li([html.Code(words.shorten(item["file"], 90)), html.Div(item["why"], className="muted")])
            for item in seen["unread"][:20]
        ]
        if len(seen["unread"]) > 20:
            shown.append(html.Li(link(f"{len(seen['unread']) - 20:,} more", context.links.files())))
        children.append(html.Ul(shown, className="bullets"))
    return panel("Data quality", *children, id="quality")


def view(
    verdict: Verdict,
    finding: Finding | None,
    context: Context,
    *,
    ranks_grid: Child = None,
    lateness: Child = None,
    injected: Child = None,
    flow: Child = None,
    timeline: Child = None,
    shown: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Child]:
    """Return the content of the page; `finding` None: the verdict has none, and the page says so in full.

    `ranks_grid` is the table of ranks, `lateness` the picture of who comes late, `flow` that of the chunks of the
    stalled operation and `timeline` what was before and after, made by the caller from the rows of the trace.
    `injected` is the truth of a job that was broken on purpose. `shown` are the keys of the view that move the pictures
    to the rows of a claim, by its id.
    """
    if finding is None:
        band = (
            healthy_band(verdict)
            if verdict["status"] == "healthy"
            else cannot_tell_band(verdict, weakened=remarks(verdict))
        )
        return [band, injected, quality_panel(verdict, context), ranks_grid]
    return [
        findings_strip(verdict, context, finding["id"]),
        finding_band(finding, context, weakened=remarks(verdict)),
        injected,
        flow,
        timeline,
        chain_panel(finding, context),
        groups_panel(finding, context),
        lateness,
        html.Div(
            [
                html.Div(
                    [evidence_panel(finding["evidence"], context, shown), votes_panel(finding["votes"])],
                    className="stack",
                ),
                html.Div(
                    [
                        quality_panel(verdict, context),
                        alternatives_panel(finding, context),
                    ],
                    className="stack",
                ),
            ],
            className="columns columns--wide-left",
        ),
        ranks_grid,
    ]
