"""The overview of a trace: the answer in a line, the job, what evidence there is, its groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import Dash, html
from dash.development.base_component import Component

from mycroft.app import words
from mycroft.app.figures import coverage
from mycroft.app.pages import diagnosis_view, rank_heat, share_dialog
from mycroft.app.pages.diagnosis import context_of
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, empty, facts, figure, panel, tag, unknown
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.pages.verdict_band import confidence_meter, headline_tag
from mycroft.app.reads import evidence, operations, ranks
from mycroft.app.reads.ranks import RankRow

COMM_COLUMNS: Final = (
    Col("key", "Group", 150),
    Col("desc", "Description", flex=2),
    Col("role", "Role", 150),
    Col("size", "Members", 104, numeric=True, help="Members that it should have"),
    Col("seen", "Seen", 90, numeric=True, help="Members that left any trace of it"),
    Col("ops", "Operations", 118, numeric=True, help="Distinct sequence numbers in the evidence"),
    Col("last", "Last", 90, numeric=True, help="Greatest sequence number"),
    Col("open", "Open entries", 124, numeric=True, help="Entries of ranks that issued an operation and did not finish"),
)


def incidents_panel(verdict: Mapping[str, Any] | None, links: TraceLinks) -> html.Section:
    """Return the answer of the trace: its findings, or that there is none."""
    if verdict is None:
        return panel("Answer", empty("This trace has been loaded and not been analysed."))
    if not verdict["findings"]:
        kind, text = {"healthy": ("done", "Healthy")}.get(verdict["status"], ("nolog", "Cannot tell"))
        row = html.A(
            [tag(text, kind), html.Span(verdict["summary"], className="incident__text")],
            href=links.incident(diagnosis_view.WHOLE),
            className="incident",
        )
        return panel("Answer", row)
    rows = [
        html.Li(
            html.A(
                [
                    headline_tag(finding),
                    html.Span(finding["summary"], className="incident__text"),
                    html.Span(words.status(finding["status"]), className="muted"),
                    html.Span(words.clock(finding.get("since"))[0], className="incident__since"),
                    confidence_meter(finding["confidence"]),
                ],
                href=links.incident(finding["id"]),
                className="incident",
            )
        )
        for finding in verdict["findings"]
    ]
    note = None if len(rows) == 1 else f"{len(rows)} independent faults, the most important first"
    return panel("Answer", html.Ol(rows, className="incidents"), note=note)


def strips_of(rows: Sequence[RankRow]) -> list[tuple[str, frozenset[int]]]:
    """Return which ranks left a dump, a log and a stack."""
    return [
        ("Dump", frozenset(row.rank for row in rows if row.dumps)),
        ("Log", frozenset(row.rank for row in rows if row.log_rows)),
        ("Stack", frozenset(row.rank for row in rows if row.stacks)),
    ]


def coverage_panel(page: TracePage, rows: Sequence[RankRow]) -> html.Section:
    """Return which evidence each rank left, and in words whose is missing."""
    if not rows:
        return panel("Evidence by rank", empty("No source names a rank."))
    world = max(row.rank for row in rows) + 1
    strips = strips_of(rows)
    missing = coverage.missing_text(world, strips)
    return panel(
        "Evidence by rank",
        figure(coverage.coverage_svg(world, strips, culprits=page.culprits)),
        html.P(f"Missing: {'; '.join(missing)}.", className="muted") if missing else None,
        note="grey: there · hatched: missing",
    )


def _job_panel(page: TracePage, rows: Sequence[RankRow]) -> html.Section:
    job = evidence.job(page.reader) or {}
    dumps = evidence.dump_kinds(page.reader)
    hosts = {row.host for row in rows if row.host}
    world = job.get("world_size")
    first = min((d["first_ns"] for d in dumps if d["first_ns"] is not None), default=None)
    last = max((d["last_ns"] for d in dumps if d["last_ns"] is not None), default=None)
    kinds: list[Child] = [
        html.Div(
            f"{d['dumps']:,} × {words.source(d['kind'])}, layout {d['version'] or words.UNKNOWN}, "
            f"{d['backend'] or 'backend unknown'} {d['lib_version'] or ''}".strip()
        )
        for d in dumps
    ]
    overwritten = sum(d["overwritten"] for d in dumps)
    rows_of_facts: list[tuple[str, Child]] = [
        ("Job", job.get("name")),
        ("Ranks", f"{world:,}" if world is not None else [f"{len(rows):,} seen, ", unknown("world size unknown")]),
        ("Hosts", f"{len(hosts):,}" if hosts else None),
        ("Dumps", kinds or html.Span("none", className="unknown")),
        ("Operations from", words.time_of(first) if first is not None else None),
        (
            "to",
            [words.time_of(last), f" ({words.duration(last - first)})"]
            if first is not None and last is not None
            else None,
        ),
    ]
    if overwritten:
        rows_of_facts.append(
            ("Overwritten", f"{words.plural(overwritten, 'dump')} had lost their oldest entries when written")
        )
    if job.get("note"):
        rows_of_facts.append(("Note", job["note"]))
    return panel("Job", facts(rows_of_facts))


def comm_rows(communicators: Sequence[Mapping[str, Any]], links: TraceLinks) -> list[dict[str, Any]]:
    """Return one row per communicator for the table."""
    return [
        {
            "key": comm["key"],
            "key_href": links.comm(comm["key"]),
            "desc": comm["desc"] or comm["name"],
            "role": words.role(comm["kind"]),
            "size": comm["size"],
            "seen": comm["seen_size"],
            "ops": comm["ops"],
            "last": comm["last_seq"],
            "last_plain": True,
            "last_href": links.op(comm["key"], comm["last_seq"]) if comm["last_seq"] is not None else None,
            "open": comm["open_ops"],
            "short": comm["size"] is not None and comm["seen_size"] is not None and comm["seen_size"] < comm["size"],
        }
        for comm in communicators
    ]


def layout(ctx: PageContext, trace: str) -> Component:
    """Return the overview of a trace."""
    page = open_trace(ctx, trace)
    rows = ranks.all_ranks(page.reader)
    comms = operations.communicators(page.reader)
    table = (
        grid(
            "comms-grid",
            COMM_COLUMNS,
            comm_rows(comms, page.links),
            label="Groups",
            row_class={"row--nolog": "params.data.short"},
        )
        if comms
        else empty("No source names a group.")
    )
    quality: Child = None
    if page.verdict is not None:
        quality = diagnosis_view.quality_panel(page.verdict, context_of(page, rows))
    return page.frame(
        "overview",
        html.H1(words.shorten(page.reader.title, 120), className="sr-only"),
        incidents_panel(page.verdict, page.links),
        coverage_panel(page, rows),
        rank_heat.heat_panel(page),
        html.Div([_job_panel(page, rows), quality], className="columns"),
        panel(
            "Groups",
            table,
            note=[f"{words.plural(len(comms), 'communicator')}, those with open operations first"],
            class_name="panel--flush",
        ),
        tab="overview",
    )


def _register_callbacks(app: Dash) -> None:
    share_dialog.register_callbacks(app)
    rank_heat.register_callbacks(app)


PAGE = Page(
    name="overview",
    layout=layout,
    title=lambda ctx, trace: trace,
    register_callbacks=_register_callbacks,
)
