"""The claims of a finding, each with the way to what it rests on; and what each source says on its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dash import html

from mycroft.app import words
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, attributes, empty, html_table, link, panel
from mycroft.app.pages.verdict_band import Context


def row_link(links: TraceLinks, key: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return text and address of the page that shows the rows of a claim; None where no page does."""
    comm, seq, rank = key.get("comm"), key.get("op_seq", key.get("seq")), key.get("rank")
    if comm is not None and seq is not None:
        return f"operation {int(seq)} of {comm}", links.op(str(comm), int(seq))
    if rank is not None:
        return f"rank {rank}", links.rank(int(rank))
    if comm is not None:
        return f"group {comm}", links.comm(str(comm))
    return None


def place_of(evidence: Mapping[str, Any], context: Context, keys: Mapping[str, Any] | None = None) -> list[Child]:
    """Return where a claim can be opened: the line of a file, or the page of its rows.

    `keys` are those of the view of its rows; where they name an operation, that is the page.
    """
    places: list[Child] = []
    name, line = evidence.get("file"), evidence.get("line")
    if name:
        shown = words.shorten(name, 90) + (f":{line}" if line is not None else "")
        file = context.files.get(name)
        if file is None:
            # A file that the trace does not list cannot be opened; its name is still evidence.
            places.append(html.Span(shown, className="mono", title=name))
        else:
            places.append(
                html.A(
                    shown,
                    href=context.links.file(file, line),
                    className="mono",
                    title=name,
                    **attributes(aria_label=f"Show {shown}"),
                )
            )
    key = evidence.get("key")
    if key and keys and "op" in keys:
        key = {"comm": keys["c"], "op_seq": keys["op"]}
    if key and (found := row_link(context.links, key)) is not None:
        places.append(link(f"show {found[0]}", found[1]))
    return places


def show_button(number: int, keys: Mapping[str, Any]) -> Child:
    """Return what moves the pictures of the page to the rows of a claim; None where they cannot show them."""
    if not keys:
        return None
    return html.Button(
        "show above",
        type="button",
        className="button button--small",
        **attributes(data_show=json.dumps(keys), aria_label=f"show above, in the pictures: claim {number}"),
    )


def evidence_panel(
    claims: Sequence[Mapping[str, Any]], context: Context, shown: Mapping[str, Mapping[str, Any]] | None = None
) -> html.Section:
    """Return the numbered claims of a finding; `shown` are the keys of the view by the id of a claim."""
    items = [
        html.Li(
            html.Div(
                [
                    html.Div(claim["claim"], className="evidence__claim"),
                    html.Div(
                        [
                            html.Span(words.source(claim.get("source"))),
                            *place_of(claim, context, (shown or {}).get(claim["id"])),
                            show_button(number, (shown or {}).get(claim["id"], {})),
                        ],
                        className="evidence__from",
                    ),
                ]
            ),
            id=f"claim-{claim['id']}",
            className="evidence__item",
        )
        for number, claim in enumerate(claims, start=1)
    ]
    if not items:
        return panel("Evidence", empty("No claim is listed for this finding."))
    return panel("Evidence", html.Ol(items, className="evidence"), note=words.plural(len(items), "claim"))


def votes_panel(votes: Sequence[Mapping[str, Any]]) -> html.Section | None:
    """Return what each source says on its own; None where the verdict lists no votes."""
    if not votes:
        return None
    marks = {
        True: ("✓ agrees", "vote--agrees"),
        False: ("≠ says otherwise", "vote--differs"),
        None: ("– says nothing", "vote--silent"),
    }
    rows = [
        html.Tr(
            [
                html.Td(words.source(vote["source"]), className="nowrap"),
                html.Td(marks[vote["agrees"]][0], className=marks[vote["agrees"]][1]),
                html.Td(vote["says"]),
                html.Td(
                    words.named_ranks(vote["ranks"]) if vote["ranks"] else ", ".join(vote["hosts"]) or "–",
                    className="nowrap",
                ),
            ]
        )
        for vote in votes
    ]
    return panel("What each source says", html_table(("Source", "Stand", "Says", "Names"), rows))
