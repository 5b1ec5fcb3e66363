"""The page of one host: its ranks, and what its logs and devices say."""

from __future__ import annotations

from typing import Final

from dash import html
from dash.development.base_component import Component

from mycroft.app import words
from mycroft.app.pages import ranks_grid
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import attributes, empty, facts, html_table, panel, unknown
from mycroft.app.pages.trace_page import open_trace
from mycroft.app.reads import hosts, ranks

EVENTS_MAX: Final = 200


def layout(ctx: PageContext, trace: str, host: str) -> Component:
    """Return the page of a host, by its name."""
    page = open_trace(ctx, trace)
    known = hosts.host(page.reader, host)
    if known is None:
        missing = panel(
            "No such host", empty(f"Nothing in this trace speaks of a host named {words.shorten(host, 80)}.")
        )
        return page.frame("host", missing, crumbs=[(words.shorten(host, 60), None)])
    rows = [row for row in ranks.all_ranks(page.reader) if row.host == host]
    finding = page.verdict["findings"][0] if page.verdict and page.verdict["findings"] else None
    events, total = hosts.events_of(page.reader, known["host_id"], limit=EVENTS_MAX)
    readings = hosts.readings_of(page.reader, known["host_id"], limit=EVENTS_MAX)
    lines = [
        html.Div(
            [
                html.A(
                    f"{event['line']}" if event["line"] is not None else "·",
                    href=page.links.file(event["file_id"], event["line"]),
                    className="log__number",
                    **attributes(aria_label=f"line {event['line']} of {event['path']}"),
                )
                if event["file_id"] is not None
                else html.Span("·", className="log__number"),
                html.Span(
                    [html.Span(f"{words.time_of(event['ts_ns'])} ", className="muted"), event["text"] or event["kind"]],
                    className=f"log__text log__text--{event['level'] or 'none'}",
                ),
            ],
            className="log__line",
        )
        for event in events
    ]
    offset = known["clock_offset_ns"]
    clock = None if offset is None else f"{words.duration(offset)} ± {words.duration(known['clock_error_ns'])}"
    table = html_table(
        ("Time", "Device", "Reading", "Value"),
        [
            html.Tr(
                [
                    html.Td(words.time_of(reading["ts_ns"]), className="nowrap"),
                    html.Td(reading["device"] or unknown()),
                    html.Td(reading["kind"]),
                    html.Td(words.number(reading["number"]) if reading["value"] is None else reading["value"]),
                ]
            )
            for reading in readings
        ],
    )
    return page.frame(
        "host",
        html.Div([html.H1(words.shorten(host, 120)), html.P(words.plural(len(rows), "rank"))], className="page-title"),
        panel(
            "Host",
            facts(
                [
                    ("Ranks", words.ranks(row.rank for row in rows) or None),
                    ("Group", known["group"]),
                    ("Clock offset", clock),
                ],
                class_name="facts--wide",
            ),
        ),
        ranks_grid.ranks_panel(rows, finding, page.links, title="Ranks on this host")
        if rows
        else panel("Ranks on this host", empty("No rank is known to run on this host.")),
        panel(
            "What its logs say",
            html.Div(lines, className="log", tabIndex="0")
            if lines
            else empty("No log line about this host, beyond ordinary steps, is in the evidence."),
            note=f"{len(events):,} of {total:,} lines, warnings and errors first" if lines else None,
        ),
        panel("Readings of its devices", table) if readings else None,
        crumbs=[(words.shorten(host, 60), None)],
    )


PAGE = Page(name="host", layout=layout, title=lambda ctx, trace, host: f"{host} of {trace}")
