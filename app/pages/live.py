"""The live pages: all jobs that are watched, one of them, and one incident with how its verdict came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import current_app, request

from mycroft.app import access, urls, words
from mycroft.app.alerts import chain_of
from mycroft.app.live.state import Incident, LiveJob, LiveState
from mycroft.app.pages import frame, links
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, copyable, empty, facts, html_table, link, panel, problem, tag
from mycroft.app.state import now
from mycroft.errors import MycroftError

POLL_MS: Final = 2000
STALE_S: Final = 10.0
JOB_GONE_S: Final = 30.0
INCIDENTS_SHOWN: Final = 100
HOSTS_SHOWN: Final = 12


def _state() -> LiveState:
    held = current_app.extensions.get("mycroft_live")
    if held is None:
        held = current_app.extensions["mycroft_live"] = LiveState(current_app.extensions["mycroft"][1])
    return held


def job_href(job: str) -> str:
    """Return the address of a watched job."""
    return urls.path_of("live_job", job=job)


def incident_href(incident: Incident) -> str:
    """Return the address of an incident."""
    return urls.path_of("live_incident", job=incident.job, incident=incident.incident)


def _watch_note(state: LiveState) -> Child:
    """Say when nobody watches: pages that stand still must not look like jobs that are well."""
    tick = state.numbers().get("tick")
    if tick is None:
        return problem(
            "No watch has run here",
            html.P("Start one beside the collector: mycroft watch, or both with mycroft serve --live."),
        )
    age = now() - tick[0]
    if age > STALE_S:
        return problem(
            "The watch stands still",
            html.P(f"It last looked {words.duration(age * 1e9)} ago; what is below is from then."),
        )
    broken = tick[1].get("problems") or {}
    if broken:
        lines = [html.Li(f"{name}: {words.shorten(text, 200)}") for name, text in sorted(broken.items())]
        return problem("Jobs that the watch cannot judge", html.Ul(lines, className="bullets mono"))
    return None


def _incident_tag(incident: Incident) -> html.Span:
    if incident.merged_into is not None:
        return tag("merged", "neutral")
    if incident.closed is not None:
        return tag("over", "neutral")
    if incident.status == "cannot_tell":
        return tag("cannot tell", "nolog")
    return tag("open", "cause" if incident.confidence == "high" else "suspect")


def _incident_rows(incidents: Sequence[Incident], *, with_job: bool) -> list[Child]:
    rows: list[Child] = []
    for incident in incidents:
        cells: list[Child] = [
            html.Td(_incident_tag(incident)),
            html.Td(link(words.shorten(incident.summary, 160), incident_href(incident))),
            html.Td(words.category(incident.category)),
            html.Td(incident.confidence),
            html.Td(words.day_and_time(incident.opened), className="nowrap"),
        ]
        if with_job:
            cells.insert(1, html.Td(link(words.shorten(incident.job, 40), job_href(incident.job))))
        rows.append(html.Tr(cells))
    return rows


def _incidents_panel(title: str, incidents: Sequence[Incident], *, with_job: bool, nothing: str) -> html.Section:
    if not incidents:
        return panel(title, empty(nothing))
    names = ["", "Incident", "Class", "Confidence", "Opened"]
    if with_job:
        names.insert(1, "Job")
    more = " or more" if len(incidents) >= INCIDENTS_SHOWN else ""
    note = f"{words.plural(len(incidents), 'incident')}{more}, the newest first"
    return panel(title, html_table(names, _incident_rows(incidents, with_job=with_job)), note=note)


# ---- all jobs -----------------------------------------------------------------------------


def _job_row(job: LiveJob, opened: Mapping[str, int], at: float) -> html.Tr:
    told = job.facts
    count = opened.get(job.job, 0)
    gone = at - job.seen > JOB_GONE_S
    if gone:
        state = tag("not seen any more", "neutral")
    elif count:
        state = tag(words.plural(count, "open incident"), "cause")
    elif told.get("silent"):
        state = tag("hosts silent", "nolog")
    elif told.get("ended") == told.get("processes"):
        state = tag("ended", "neutral")
    else:
        state = tag("no incident", "done")
    world = told.get("world_size")
    seen = f"{told.get('processes', 0):,}" + (f" of {world:,}" if world else "")
    return html.Tr(
        [
            html.Td(state),
            html.Td(link(words.shorten(job.title, 80), job_href(job.job))),
            html.Td(seen),
            html.Td(f"{told.get('hosts_count', 0):,}"),
            html.Td(words.day_and_time(job.seen), className="nowrap"),
        ]
    )


def fleet_body(state: LiveState) -> list[Child]:
    """Return the part of the list of jobs that changes."""
    at = now()
    jobs = state.jobs()
    opened: dict[str, int] = {}
    open_now = state.incidents(only_open=True, limit=INCIDENTS_SHOWN)
    for incident in open_now:
        opened[incident.job] = opened.get(incident.job, 0) + 1
    table = (
        html_table(("", "Job", "Ranks", "Hosts", "Last seen"), [_job_row(job, opened, at) for job in jobs])
        if jobs
        else empty("No job has been seen.", html.P("Agents send what they follow: mycroft agent URL, on each host."))
    )
    return [
        _watch_note(state),
        _incidents_panel("Open incidents", open_now, with_job=True, nothing="No incident is open."),
        panel("Jobs", table, note=words.plural(len(jobs), "job")),
    ]


def fleet_layout(ctx: PageContext) -> Component:
    """Return the list of watched jobs."""
    access.check(request, None)
    return frame.page(
        "live",
        html.H1("Live"),
        html.Div(fleet_body(_state()), id="live-body", className="stack"),
        dcc.Interval(id="live-tick", interval=POLL_MS),
        crumbs=[("Traces", links.traces()), ("Live", None)],
    )


# ---- one job ------------------------------------------------------------------------------


def job_body(state: LiveState, name: str) -> list[Child]:
    """Return the part of a job's page that changes.

    Raises:
        LiveError: there is no such job.
    """
    job = state.job(name)
    told = job.facts
    hosts = list(told.get("hosts", []))
    silent = list(told.get("silent", []))
    rest = int(told.get("hosts_count", 0)) - min(len(hosts), HOSTS_SHOWN)
    named = ", ".join(hosts[:HOSTS_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    trace = TraceLinks(job.trace) if job.trace else None
    rows: list[tuple[str, Child]] = [
        (
            "Ranks",
            f"{told.get('processes', 0):,} seen" + (f" of {told['world_size']:,}" if told.get("world_size") else ""),
        ),
        ("Ended", f"{told.get('ended', 0):,}"),
        ("Hosts", named or None),
        ("Silent hosts", ", ".join(silent) if silent else "none"),
        ("Last operation begun", words.time_of(told.get("progress_ns"))),
        ("Last seen", words.day_and_time(job.seen)),
        ("Rows of the last minutes", f"{told.get('rows', 0):,}"),
        ("Trace", link("Open the last minutes", trace.overview()) if trace else "not published yet"),
    ]
    incidents = state.incidents(job=name, limit=INCIDENTS_SHOWN)
    return [
        _watch_note(state),
        panel("Job", facts(rows)),
        _incidents_panel("Incidents", incidents, with_job=False, nothing="No incident so far."),
    ]


def job_layout(ctx: PageContext, job: str) -> Component:
    """Return the page of one watched job."""
    access.check(request, None)
    state = _state()
    found = state.job(job)
    return frame.page(
        "live_job",
        html.H1(words.shorten(found.title, 120)),
        html.Div(job_body(state, job), id="live-job-body", className="stack"),
        dcc.Interval(id="live-job-tick", interval=POLL_MS),
        crumbs=[("Traces", links.traces()), ("Live", links.live()), (words.shorten(found.title, 60), None)],
    )


# ---- one incident -------------------------------------------------------------------------


def _who(incident: Incident) -> str:
    named = words.named_ranks(incident.ranks) if incident.ranks else ", ".join(incident.hosts) or "nobody"
    one_of = bool(incident.finding["root_cause"].get("one_of"))
    return f"one of {named}" if one_of else named


def incident_body(state: LiveState, name: str) -> list[Child]:
    """Return the part of an incident's page that changes.

    Raises:
        LiveError: there is no such incident.
    """
    incident = state.incident(name)
    finding = incident.finding
    spent = (incident.closed or now()) - incident.opened
    diagnosis: Child = "being made"
    if incident.trace is not None:
        trace = TraceLinks(incident.trace, incident.generation)
        diagnosis = link(
            "Open the diagnosis", trace.incident(incident.page or "verdict"), class_name="button button--main"
        )
    rows: list[tuple[str, Child]] = [
        ("State", _incident_tag(incident)),
        ("Who", _who(incident)),
        ("Class", words.category(incident.category)),
        ("Confidence", incident.confidence),
        ("Hosts", ", ".join(incident.hosts) or None),
        ("Opened", words.day_and_time(incident.opened)),
        ("Lasted" if incident.closed else "Since", words.duration(spent * 1e9)),
        ("Diagnosis", diagnosis),
    ]
    chain = chain_of(finding, most=12)
    steps = list(finding.get("next_steps", []))
    parts: list[Child] = [
        _watch_note(state),
        panel("Verdict", html.P(incident.summary), facts(rows)),
        panel("Who waits for whom", html.Ul([html.Li(line) for line in chain], className="bullets")) if chain else None,
        panel("Do next", *[copyable(step) for step in steps[:4]]) if steps else None,
        _evidence_panel(state, name),
        _revisions_panel(state, name),
        _alerts_panel(state, name),
    ]
    return [part for part in parts if part is not None]


def _evidence_panel(state: LiveState, name: str) -> html.Section:
    requests = state.requests(name)
    files = state.evidence(name)
    if not requests:
        return panel("Evidence brought by agents", empty("No agent was asked: no suspect is known to one."))
    rows = [
        html.Tr([html.Td(row["host"]), html.Td(row["name"], className="mono"), html.Td(words.size(row["size"]))])
        for row in files
    ]
    said: list[Child] = []
    for asked in requests:
        if asked.ended is None:
            waits = "has it, and works on it" if asked.handed is not None else "has not fetched the request yet"
            said.append(html.Li(f"{asked.host}: {waits}"))
        said += [html.Li(f"{asked.host}: {words.shorten(text, 200)}") for text in asked.problems]
    return panel(
        "Evidence brought by agents",
        html_table(("Host", "File", "Size"), rows) if rows else empty("Nothing has arrived yet."),
        html.Ul(said, className="bullets") if said else None,
        note="in the diagnosis once all of it is there",
    )


def _revisions_panel(state: LiveState, name: str) -> html.Section:
    rows = [
        html.Tr(
            [
                html.Td(str(revision.revision)),
                html.Td(words.day_and_time(revision.at), className="nowrap"),
                html.Td(words.shorten(str(revision.finding["summary"]), 200)),
                html.Td(str(revision.finding["confidence"])),
                html.Td(words.shorten(revision.why, 120)),
            ]
        )
        for revision in state.revisions(name)
    ]
    return panel("How the verdict came about", html_table(("", "At", "Verdict", "Confidence", "Because"), rows))


def _alerts_panel(state: LiveState, name: str) -> html.Section | None:
    alerts = state.alerts(incident=name)
    if not alerts:
        return None
    rows = [
        html.Tr(
            [
                html.Td(row["target"]),
                html.Td(row["event"]),
                html.Td(words.day_and_time(row["sent"]) if row["sent"] else f"not taken: {row['error'] or 'waits'}"),
            ]
        )
        for row in alerts
    ]
    return panel("Alerts", html_table(("Target", "Event", "Sent"), rows))


def incident_layout(ctx: PageContext, job: str, incident: str) -> Component:
    """Return the page of one incident."""
    access.check(request, None)
    state = _state()
    found = state.incident(incident)
    return frame.page(
        "live_incident",
        html.H1(words.shorten(found.summary, 200)),
        html.Div(incident_body(state, incident), id="live-incident-body", className="stack"),
        dcc.Interval(id="live-incident-tick", interval=POLL_MS),
        crumbs=[
            ("Traces", links.traces()),
            ("Live", links.live()),
            (words.shorten(found.job, 40), job_href(found.job)),
            ("Incident", None),
        ],
        top=[html.Button("Copy link", type="button", className="button", **attributes(data_copy_link=""))],
    )


# ---- keeping current ----------------------------------------------------------------------


def _poll(app: Dash, page: str, prefix: str, body: Any) -> None:
    @app.callback(
        Output(f"{prefix}-body", "children"),
        Input(f"{prefix}-tick", "n_intervals"),
        State("url", "pathname"),
        prevent_initial_call=True,
    )
    def tick(_: int | None, pathname: str) -> Any:  # pyright: ignore[reportUnusedFunction]
        access.check(request, None)
        address = urls.parse(pathname)
        if address.page != page:
            return no_update
        try:
            return body(_state(), address.params)
        except MycroftError as error:
            return problem("Not here any more", html.P(f"{error}."))


FLEET: Final = Page(
    name="live",
    layout=fleet_layout,
    title=lambda ctx: "Live",
    register_callbacks=lambda app: _poll(app, "live", "live", lambda state, _: fleet_body(state)),
)
JOB: Final = Page(
    name="live_job",
    layout=job_layout,
    title=lambda ctx, job: f"Live: {job}",
    register_callbacks=lambda app: _poll(
        app, "live_job", "live-job", lambda state, params: job_body(state, str(params["job"]))
    ),
)
INCIDENT: Final = Page(
    name="live_incident",
    layout=incident_layout,
    title=lambda ctx, job, incident: f"Incident {incident}",
    register_callbacks=lambda app: _poll(
        app, "live_incident", "live-incident", lambda state, params: incident_body(state, str(params["incident"]))
    ),
)
