"""The first page: the way to bring evidence in, what is being read, and the traces that are here."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from flask import current_app, request

from mycroft.app import access, jobs, words
from mycroft.app.pages import frame, links
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, details, empty, html_table, link, panel, problem, tag
from mycroft.app.queries import Queries, queries_of
from mycroft.errors import MycroftError
from mycroft.loaders.catalogue import TraceEntry

TRACES_MAX: Final = 500
JOBS_MAX: Final = 12
POLL_MS: Final = 3000

_ANSWERS: Final = {
    "hang": ("Hang", "fault"),
    "crash": ("Crash", "fault"),
    "slow": ("Slow", "fault"),
    "healthy": ("Healthy", "done"),
    "cannot_tell": ("Cannot tell", "nolog"),
}


def upload_panel() -> html.Section:
    """Return the place for new evidence; `assets/modules/upload_view.mjs` does the rest."""
    from mycroft.loaders import LOADERS

    formats = [
        html.Tr([html.Td(loader.title), html.Td(loader.recognised_by, className="muted"), html.Td(loader.yields)])
        for loader in LOADERS
    ]
    return panel(
        "Diagnose a job",
        html.Div(
            [
                html.P("Drop dumps, logs and stacks here", className="drop__title"),
                html.P(
                    "Files, whole folders or archives, in any mix and under any name. Nothing has to be said about "
                    "them: each file is recognised by its content.",
                    className="muted",
                ),
                html.Div(
                    [
                        html.Button(
                            "Choose a folder",
                            type="button",
                            className="button button--main",
                            **attributes(data_pick="folder"),
                        ),
                        html.Button(
                            "Choose files or archives",
                            type="button",
                            className="button",
                            **attributes(data_pick="files"),
                        ),
                    ],
                    className="drop__buttons",
                ),
            ],
            className="drop",
            **attributes(data_upload_drop=""),
        ),
        html.Div(**attributes(data_upload_body="")),
        details(
            f"What can be read, {len(LOADERS)} formats",
            html_table(("Format", "Recognised by", "Gives"), formats),
            class_name="formats",
        ),
        class_name="upload",
    )


def _row(entry: TraceEntry, *, can_write: bool) -> html.Li:
    trace = TraceLinks(entry.trace_id)
    summary = entry.summary
    text, kind = _ANSWERS.get(str(summary.get("status")), ("Not analysed", "neutral"))
    seen, expected = summary.get("ranks_seen"), summary.get("ranks_expected")
    ranks = words.UNKNOWN if seen is None else f"{seen:,}" if expected in (None, seen) else f"{seen:,} of {expected:,}"
    found = int(summary.get("findings") or 0)
    more = f" and {words.plural(found - 1, 'other fault')}" if found > 1 else ""
    remove = html.Button(
        "Remove",
        id={"type": "trace-remove", "trace": entry.trace_id},
        type="button",
        className="button button--small",
        **attributes(aria_label=f"Remove the trace {entry.title}"),
    )
    return html.Li(
        [
            html.Div(tag(text, kind), className="trace__answer"),
            html.Div(
                [
                    html.Div(
                        [
                            link(words.shorten(entry.title, 90), trace.overview(), class_name="trace__title"),
                            html.Span(entry.trace_id, className="muted mono"),
                        ],
                        className="trace__head",
                    ),
                    link(
                        str(summary.get("summary") or "No diagnosis").rstrip(".") + more,
                        trace.incident(str(summary.get("incident") or "verdict")),
                        class_name="trace__summary",
                    ),
                ]
            ),
            html.Div([html.Div(f"{ranks} ranks"), html.Div(words.plural(int(summary.get("files") or 0), "file"))]),
            html.Div([html.Div(words.day_and_time(entry.published)), html.Div(words.size(entry.size_bytes))]),
            remove if can_write else None,
        ],
        className="trace",
    )


def trace_list(queries: Queries, *, can_write: bool) -> Child:
    """Return the traces that the visitor may read, the newest first."""
    entries = queries.traces()
    if not entries:
        return empty(
            "No trace yet.",
            html.P("Drop evidence above, or start the server with it: mycroft serve FOLDER.")
            if can_write
            else html.P("The link that brought you here covers no trace any more."),
        )
    shown: list[Child] = [_row(entry, can_write=can_write) for entry in entries[:TRACES_MAX]]
    left = len(entries) - len(shown)
    rows: list[Child] = [html.Ol(shown, className="traces")]
    if left > 0:
        rows.append(html.P(f"{left:,} older traces are not listed; open them by their address.", className="muted"))
    return rows


def job_list() -> Child:
    """Return the ingests under way, and those that have failed lately; None where there are none."""
    found = jobs.newest(current_app.extensions["mycroft"][1], JOBS_MAX)
    rows: list[Child] = []
    for job in found:
        if job.status in {"done", "cancelled"}:
            continue
        stage = job.stages[-1]["name"] if job.stages and job.status == "running" else ""
        rows.append(
            html.Tr(
                [
                    html.Td(link(words.shorten(job.title, 80), links.job(job.job_id))),
                    html.Td(tag(job.status, "nolog" if job.status == "failed" else "info")),
                    html.Td(words.shorten(job.error or "", 160) if job.status == "failed" else stage),
                    html.Td(words.day_and_time(job.created), className="nowrap"),
                ]
            )
        )
    if not rows:
        return None
    return panel("Being read", html_table(("Evidence", "State", "Stage", "Since"), rows))


def state_of(queries: Queries) -> str:
    """Return a text that changes when the lists of this page do, so that an unchanged page is not sent again."""
    found = jobs.newest(current_app.extensions["mycroft"][1], JOBS_MAX)
    parts = [f"{job.job_id}:{job.rev}" for job in found]
    parts += [f"{entry.trace_id}:{entry.generation}" for entry in queries.traces()]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


def layout(ctx: PageContext) -> Component:
    """Return the list of traces, with the way to add one for those who may."""
    can_write = ctx.grant.can_write
    entries = trace_list(ctx.queries, can_write=can_write)
    return frame.page(
        "traces",
        html.H1("Traces", className="sr-only"),
        html.Div(upload_panel(), **attributes(data_upload="")) if can_write else None,
        html.Div(job_list() if can_write else None, id="traces-jobs", **attributes(data_current="")),
        panel("Traces", html.Div(entries, id="traces-list", **attributes(data_current=""))),
        dcc.Interval(id="traces-tick", interval=POLL_MS, disabled=not can_write),
        dcc.ConfirmDialog(
            id="trace-confirm",
            message="Remove this trace? Its file, its diagnosis and all links to it are gone for good.",
        ),
        dcc.Store(id="trace-chosen"),
        dcc.Store(id="traces-seen", data=state_of(ctx.queries) if can_write else None),
        crumbs=[("Traces", None)],
        top=[
            link("Fleet", links.fleet(), class_name="button button--quiet"),
            link("Live", links.live(), class_name="button button--quiet"),
        ]
        if can_write
        else [tag("shared, read-only", "info")],
    )


def register_callbacks(app: Dash) -> None:
    """Keep the list of jobs and traces current; remove traces."""

    @app.callback(
        Output("traces-jobs", "children"),
        Output("traces-list", "children"),
        Output("traces-seen", "data"),
        Input("traces-tick", "n_intervals"),
        State("traces-seen", "data"),
        prevent_initial_call=True,
    )
    def tick(_: int | None, seen: str | None) -> Any:  # pyright: ignore[reportUnusedFunction]
        access.check(request, None)
        queries = queries_of(app)
        now_seen = state_of(queries)
        if now_seen == seen:
            return no_update
        return job_list(), trace_list(queries, can_write=True), now_seen

    @app.callback(
        Output("trace-confirm", "displayed"),
        Output("trace-chosen", "data"),
        Input({"type": "trace-remove", "trace": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    def ask(clicks: list[int | None]) -> Any:  # pyright: ignore[reportUnusedFunction]
        if not any(clicks) or not isinstance(ctx.triggered_id, dict):
            return no_update
        return True, ctx.triggered_id["trace"]

    @app.callback(
        Output("traces-list", "children", allow_duplicate=True),
        Input("trace-confirm", "submit_n_clicks"),
        State("trace-chosen", "data"),
        prevent_initial_call=True,
    )
    def remove(clicks: int | None, trace: str | None) -> Any:  # pyright: ignore[reportUnusedFunction]
        if not clicks or not trace:
            return no_update
        queries = queries_of(app)
        try:
            queries.remove(trace)
        except MycroftError as error:
            return [problem(f"{error}."), *_as_list(trace_list(queries, can_write=True))]
        return trace_list(queries, can_write=True)


def _as_list(child: Child) -> list[Child]:
    return child if isinstance(child, list) else [child]


PAGE = Page(name="traces", layout=layout, title=lambda ctx: "Traces", register_callbacks=register_callbacks)
