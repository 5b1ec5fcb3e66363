"""The page of an ingest: its stages as they go by, what could not be read, and the way to the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import current_app, request

from mycroft.app import access, jobs, urls, words
from mycroft.app.jobs import Job
from mycroft.app.pages import diagnosis_view, frame, links
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.overview import incidents_panel
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, facts, link, panel, problem, tag
from mycroft.app.queries import Queries, queries_of
from mycroft.app.reads import verdicts
from mycroft.app.state import now
from mycroft.errors import MycroftError

POLL_MS: Final = 1000
PROBLEMS_SHOWN: Final = 20

_STATES: Final = {
    "queued": ("waiting for its turn", "neutral"),
    "running": ("running", "info"),
    "done": ("done", "done"),
    "failed": ("failed", "nolog"),
    "cancelled": ("cancelled", "neutral"),
}


def _state() -> Any:
    return current_app.extensions["mycroft"][1]


def _stage(stage: Mapping[str, Any], at: float) -> html.Li:
    done, total, unit = stage["done"], stage["total"], stage["unit"]
    count = f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}" if done else ""
    ended = stage["finished"] if stage["finished"] is not None else at
    marks = {"running": "●", "done": "✓", "failed": "✕"}
    bar: Child = None
    if stage["state"] == "running":
        # Without a total the bar has no value, which browsers show as "going on".
        value = {} if not total else {"value": str(min(done, total)), "max": str(total)}
        bar = html.Progress(className="stage__bar", **value, **attributes(aria_label=f"{stage['name']}"))
    return html.Li(
        [
            html.Span(marks.get(stage["state"], ""), className="stage__mark", **attributes(aria_hidden="true")),
            html.Span(stage["name"].replace("_", " "), className="stage__name"),
            html.Span(stage["state"], className="sr-only"),
            html.Span([count.strip(), f" · {stage['note']}" if stage["note"] else ""], className="stage__count"),
            html.Span(words.duration((ended - stage["started"]) * 1e9), className="stage__time"),
            bar,
        ],
        className=f"stage stage--{stage['state']}",
    )


def body(job: Job, queries: Queries) -> list[Child]:
    """Return the part of the page that changes while the job runs."""
    at = now()
    text, kind = _STATES[job.status]
    started = job.started if job.started is not None else job.created
    spent = (job.finished if job.finished is not None else at) - started
    rows: list[tuple[str, Child]] = [
        ("State", tag("cancelling" if job.cancelling and job.status == "running" else text, kind)),
        ("Begun", words.day_and_time(job.started) if job.started is not None else "not yet"),
        ("Time", words.duration(max(spent, 0.0) * 1e9)),
    ]
    if job.attempts > 1:
        rows.append(("Attempt", f"{job.attempts}: the one before ended without a word"))
    children: list[Child] = [panel("Reading the evidence", facts(rows, class_name="facts--strip"))]
    if job.error:
        children.append(problem("The evidence could not be loaded", html.P(job.error)))
    if job.status == "done" and job.trace is not None:
        children.append(_answer(job, queries))
    stages = [_stage(stage, at) for stage in job.stages]
    if stages:
        children.append(panel("Stages", html.Ol(stages, className="stages")))
    elif job.status == "queued":
        children.append(panel("Stages", html.P("Other evidence is being read first.", className="muted")))
    if job.problems:
        shown = [html.Li(line) for line in job.problems[:PROBLEMS_SHOWN]]
        left = len(job.problems) - len(shown)
        children.append(
            panel(
                "Problems with files",
                html.Ul(shown, className="bullets mono"),
                html.P(f"{left:,} more, see the trace's evidence", className="muted") if left else None,
                note=words.plural(len(job.problems), "problem"),
            )
        )
    return children


def _answer(job: Job, queries: Queries) -> Child:
    trace = TraceLinks(str(job.trace))
    try:
        verdict = verdicts.verdict_of(queries.trace(trace.trace, job.generation))
    except MycroftError as error:
        return problem("The trace cannot be opened", html.P(f"{error}."))
    return html.Div(
        [
            incidents_panel(verdict, trace),
            html.P(
                [
                    link(
                        "Open the diagnosis",
                        trace.incident(diagnosis_view.first_incident(verdict)),
                        class_name="button button--main",
                    ),
                    " ",
                    link("Overview", trace.overview(), class_name="button"),
                ],
                className="job__next",
            ),
        ],
        className="stack",
    )


def _cancel_button(job: Job) -> Child:
    if job.status in jobs.FINISHED or job.cancelling:
        return None
    return html.Button("Cancel", id="job-cancel", type="button", className="button")


def layout(ctx: PageContext, job: str) -> Component:
    """Return the page of a job; it is asked again every second until the job has ended.

    Raises:
        JobError: there is no such job.
    """
    access.check(request, None)
    found = jobs.find(_state(), job)
    return frame.page(
        "job",
        html.Div(
            [
                html.H1(words.shorten(found.title, 120)),
                html.P("You may leave this page; the work goes on."),
                html.Div(
                    _cancel_button(found), id="job-actions", className="neighbours", **attributes(data_current="")
                ),
            ],
            className="page-title",
        ),
        html.Div(body(found, ctx.queries), id="job-body", className="stack", **attributes(data_current="")),
        html.Div(_said(found), id="job-said", className="sr-only", role="status"),
        dcc.Store(id="job-rev", data=found.rev),
        dcc.Interval(id="job-tick", interval=POLL_MS, disabled=found.status in jobs.FINISHED),
        crumbs=[("Traces", links.traces()), (words.shorten(found.title, 60), None)],
    )


def _said(job: Job) -> str:
    """Return what a reader is told aloud: the stage, not its counts, so that it is not told every second."""
    if job.status == "running" and job.stages:
        return f"{job.stages[-1]['name']}"
    return _STATES[job.status][0]


def register_callbacks(app: Dash) -> None:
    """Ask for the state every second; cancel."""

    @app.callback(
        Output("job-body", "children"),
        Output("job-actions", "children"),
        Output("job-said", "children"),
        Output("job-rev", "data"),
        Output("job-tick", "disabled"),
        Input("job-tick", "n_intervals"),
        State("job-rev", "data"),
        State("url", "pathname"),
        prevent_initial_call=True,
    )
    def tick(_: int | None, rev: int | None, pathname: str) -> Any:  # pyright: ignore[reportUnusedFunction]
        access.check(request, None)
        address = urls.parse(pathname)
        if address.page != "job":
            return no_update, no_update, no_update, no_update, True
        found = jobs.find(_state(), str(address.params["job"]))
        if found.rev == rev:
            return no_update
        ended = found.status in jobs.FINISHED
        return body(found, queries_of(app)), _cancel_button(found), _said(found), found.rev, ended

    @app.callback(
        Output("job-actions", "children", allow_duplicate=True),
        Input("job-cancel", "n_clicks"),
        State("url", "pathname"),
        prevent_initial_call=True,
    )
    def cancel(clicks: int | None, pathname: str) -> Any:  # pyright: ignore[reportUnusedFunction]
        address = urls.parse(pathname)
        if not clicks or address.page != "job":
            return no_update
        access.check(request, None, write=True)
        return _cancel_button(jobs.cancel(_state(), str(address.params["job"])))


PAGE = Page(
    name="job",
    layout=layout,
    title=lambda ctx, job: "Reading evidence",
    register_callbacks=register_callbacks,
)
