"""The live pages: all jobs that are watched, one of them, and one incident with how its verdict came about."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate
from flask import current_app, request

from mycroft.app import access, shares, urls, words
from mycroft.app.alerts import chain_of
from mycroft.app.live.state import Incident, LiveError, LiveJob, LiveState, Revision
from mycroft.app.pages import frame, links, share_dialog
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import (
    Child,
    attributes,
    copyable,
    empty,
    facts,
    html_table,
    link,
    note,
    panel,
    problem,
    tag,
)
from mycroft.app.pages.timeline_panel import place
from mycroft.app.queries import UnknownTraceError
from mycroft.app.reads import timeline
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


def incident_href(incident: Incident, *, revision: int | None = None) -> str:
    """Return the address of an incident; with `revision`, of what was thought of it then, which stays as it is."""
    params: dict[str, int | str] = {"job": incident.job, "incident": incident.incident}
    return urls.build(urls.Address("live_incident", params, {} if revision is None else {"rev": revision}))


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
            html.Td(_incident_tag(incident), className="narrow"),
            html.Td(link(words.shorten(words.first_sentence(incident.summary), 160), incident_href(incident))),
            html.Td(words.category(incident.category)),
            html.Td(incident.confidence),
            html.Td(words.moment(incident.opened), className="nowrap"),
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
            html.Td(state, className="narrow"),
            html.Td(link(words.shorten(job.title, 80), job_href(job.job))),
            html.Td(seen),
            html.Td(f"{told.get('hosts_count', 0):,}"),
            html.Td(words.moment(job.seen), className="nowrap"),
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
        *_current("live", fleet_body(_state())),
        crumbs=[("Traces", links.traces()), ("Live", None)],
        top=[link("Fleet", links.fleet(), class_name="button button--quiet")],
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
        ("Last seen", words.moment(job.seen)),
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
        *_current("live-job", job_body(state, job)),
        _timeline_panel(ctx, found),
        crumbs=[("Traces", links.traces()), ("Live", links.live()), (words.shorten(found.title, 60), None)],
    )


def _timeline_panel(ctx: PageContext, job: LiveJob) -> Child:
    """Return the timeline of the last minutes, which follows the job; None where nothing of it has been published."""
    if not job.trace:
        return None
    try:
        reader = ctx.queries.trace(job.trace)
    except UnknownTraceError:
        return None
    if not timeline.has_timeline(reader):
        return None
    return panel(
        "Timeline",
        place(reader, height=300, embedded=True, follow=True),
        note=[
            "the last minutes, anew whenever they are published · ",
            link("as a page", TraceLinks(job.trace).timeline()),
        ],
        id="timeline",
    )


# ---- one incident -------------------------------------------------------------------------


def _found(state: LiveState, job: str, name: str) -> Incident:
    """Return an incident of a job; what a link to one job opens must not be an incident of another.

    Raises:
        LiveError: the job has no such incident.
    """
    incident = state.incident(name)
    if incident.job != job:
        raise LiveError(f"job {job[:80]!r} has no incident {name[:80]!r}")
    return incident


def _revision(state: LiveState, incident: Incident, number: int | None) -> Revision | None:
    """Return the revision that an address pins; None: it pins none.

    Raises:
        LiveError: there is no such revision.
    """
    if number is None:
        return None
    found = next((r for r in state.revisions(incident.incident) if r.revision == number), None)
    if found is None:
        raise LiveError(f"incident {incident.incident} has no revision {number}, only 1 to {incident.revisions}")
    return found


def _who(finding: Mapping[str, Any]) -> str:
    cause = finding["root_cause"]
    named = words.named_ranks(cause["ranks"]) if cause["ranks"] else ", ".join(cause["hosts"]) or "nobody"
    return f"one of {named}" if cause.get("one_of") else named


def _pinned_note(incident: Incident, revision: Revision) -> Child:
    """Say that a page shows what was thought at one time."""
    text = f"This is revision {revision.revision} of {incident.revisions}, of {words.moment(revision.at)}"
    if revision.revision == incident.revisions:
        return note(html.Div(f"{text}, the newest."))
    return note(html.Div([f"{text}. ", _anew("Open the newest", incident_href(incident))]))


def _anew(text: str, href: str, *, current: bool = False) -> html.A:
    """Return a link to another revision: the path stays the same, so the page has to be loaded anew."""
    return html.A(text, href=href, **attributes(data_reload="", aria_current="page" if current else None))


def incident_body(
    state: LiveState, job: str, name: str, *, revision: int | None = None, is_shared: bool = False
) -> list[Child]:
    """Return the part of an incident's page that changes.

    Args:
        state: what the watch knows.
        job: job of the incident.
        name: of the incident.
        revision: number of the verdict to show; None: the newest.
        is_shared: the reader came by a link to this job: what is of other jobs, and who was alerted, is left out.

    Raises:
        LiveError: there is no such incident or revision.
    """
    incident = _found(state, job, name)
    pinned = _revision(state, incident, revision)
    finding = incident.finding if pinned is None else pinned.finding
    where = incident if pinned is None else pinned
    diagnosis: Child = "being made" if pinned is None else "no trace was kept of this revision"
    if where.trace is not None:
        trace = TraceLinks(where.trace, where.generation)
        diagnosis = link(
            "Open the diagnosis", trace.incident(where.page or "verdict"), class_name="button button--main"
        )
    rows: list[tuple[str, Child]] = [
        ("State", _incident_tag(incident)),
        ("Who", _who(finding)),
        ("Class", words.category(finding["category"])),
        ("Confidence", finding["confidence"]),
        ("Hosts", ", ".join(finding["root_cause"]["hosts"]) or None),
        ("Opened", words.moment(incident.opened)),
        ("Diagnosis", diagnosis),
    ]
    if incident.closed is not None:
        lasted = words.duration((incident.closed - incident.opened) * 1e9)
        rows.insert(-1, ("Closed", f"{words.moment(incident.closed)}, after {lasted}"))
    if incident.merged_into is not None:
        other = state.incident(incident.merged_into)
        rows.insert(1, ("Same as", link(words.shorten(other.summary, 120), incident_href(other))))
    chain = chain_of(finding, most=12)
    steps = list(finding.get("next_steps", []))
    parts: list[Child] = [
        _watch_note(state) if not is_shared else None,
        _pinned_note(incident, pinned) if pinned is not None else None,
        panel("Verdict", html.P(str(finding["summary"])), facts(rows)),
        panel("Who waits for whom", html.Ul([html.Li(line) for line in chain], className="bullets")) if chain else None,
        panel("Do next", *[copyable(step) for step in steps[:4]]) if steps else None,
        _evidence_panel(state, name),
        _revisions_panel(state, incident, shown=incident.revisions if pinned is None else pinned.revision),
        _alerts_panel(state, name) if not is_shared else None,
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


def _revisions_panel(state: LiveState, incident: Incident, *, shown: int) -> html.Section:
    rows = [
        html.Tr(
            [
                html.Td(
                    _anew(
                        str(revision.revision),
                        incident_href(incident, revision=revision.revision),
                        current=revision.revision == shown,
                    )
                ),
                html.Td(words.moment(revision.at), className="nowrap"),
                html.Td(words.shorten(str(revision.finding["summary"]), 200)),
                html.Td(str(revision.finding["confidence"])),
                html.Td(words.shorten(revision.why, 120)),
            ]
        )
        for revision in state.revisions(incident.incident)
    ]
    table = html_table(("", "At", "Verdict", "Confidence", "Because"), rows)
    return panel("How the verdict came about", table, note="each of them stays as it was; open one by its number")


def _alerts_panel(state: LiveState, name: str) -> html.Section | None:
    alerts = state.alerts(incident=name)
    if not alerts:
        return None
    rows = [
        html.Tr(
            [
                html.Td(row["target"]),
                html.Td(row["event"]),
                html.Td(words.moment(row["sent"]) if row["sent"] else f"not taken: {row['error'] or 'waits'}"),
            ]
        )
        for row in alerts
    ]
    return panel("Alerts", html_table(("Target", "Event", "Sent"), rows))


def _pin(address: urls.Address) -> int | None:
    value = address.view.get("rev")
    return value if isinstance(value, int) else None


def incident_layout(ctx: PageContext, job: str, incident: str) -> Component:
    """Return the page of one incident; also for those who came by a link to the job's trace."""
    grant = access.check(request, job)
    state = _state()
    found = _found(state, job, incident)
    pin = _pin(ctx.address)
    pinned = _revision(state, found, pin)
    summary = found.summary if pinned is None else str(pinned.finding["summary"])
    shared = grant.kind == "share"
    title = words.shorten(found.job, 40)
    crumbs: list[tuple[str, str | None]] = [("Traces", links.traces()), ("Live", links.live()), (title, job_href(job))]
    return frame.page(
        "live_incident",
        html.H1(words.shorten(words.first_sentence(summary), 200)),
        *_current(
            "live-incident", incident_body(state, job, incident, revision=pin, is_shared=shared), stays=pin is not None
        ),
        crumbs=[*([(title, None)] if shared else crumbs), ("Incident", None)],
        top=frame.actions(can_share=grant.can_write, exports=[], is_shared=shared),
        dialogs=[share_dialog.dialog(job)] if grant.can_write else [],
    )


# ---- keeping current ----------------------------------------------------------------------


def _digest(children: Sequence[Child]) -> str:
    """Return what two bodies share that look the same."""
    return hashlib.blake2b(str(children).encode(), digest_size=8).hexdigest()


def _current(prefix: str, children: list[Child], *, stays: bool = False) -> list[Component]:
    """Return the part of a page that changes, with what keeps it current; `stays`: it is of a time that is past."""
    live = attributes(data_current="", data_live=None if stays else f"{prefix}-tick")
    return [
        html.Div(children, id=f"{prefix}-body", className="stack", **live),
        dcc.Store(id=f"{prefix}-seen", data=_digest(children)),
        dcc.Interval(id=f"{prefix}-tick", interval=POLL_MS, disabled=stays),
    ]


def _poll(app: Dash, page: str, prefix: str, body: Callable[[LiveState, urls.Address, bool], list[Child]]) -> None:
    @app.callback(
        Output(f"{prefix}-body", "children"),
        Output(f"{prefix}-seen", "data"),
        Input(f"{prefix}-tick", "n_intervals"),
        State(f"{prefix}-seen", "data"),
        State("url", "pathname"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def tick(  # pyright: ignore[reportUnusedFunction]
        _: int | None, seen: str | None, pathname: str, search: str | None
    ) -> tuple[Any, Any]:
        address = urls.parse(pathname + (search or ""))
        grant = access.check(request, shares.trace_of(address) if address.page == page else None)
        if address.page != page:
            raise PreventUpdate
        try:
            children = body(_state(), address, grant.kind == "share")
        except MycroftError as error:
            children = [problem("Not here any more", html.P(f"{error}."))]
        digest = _digest(children)
        # What looks the same is left alone: it may have the focus, or text of it be selected.
        if digest == seen:
            raise PreventUpdate
        return children, digest


def _incident_of(state: LiveState, address: urls.Address, is_shared: bool) -> list[Child]:
    job, incident = str(address.params["job"]), str(address.params["incident"])
    return incident_body(state, job, incident, revision=_pin(address), is_shared=is_shared)


FLEET: Final = Page(
    name="live",
    layout=fleet_layout,
    title=lambda ctx: "Live",
    register_callbacks=lambda app: _poll(app, "live", "live", lambda state, _, __: fleet_body(state)),
)
JOB: Final = Page(
    name="live_job",
    layout=job_layout,
    title=lambda ctx, job: f"Live: {job}",
    register_callbacks=lambda app: _poll(
        app, "live_job", "live-job", lambda state, address, _: job_body(state, str(address.params["job"]))
    ),
)
INCIDENT: Final = Page(
    name="live_incident",
    layout=incident_layout,
    title=lambda ctx, job, incident: f"Incident {incident}",
    register_callbacks=lambda app: _poll(app, "live_incident", "live-incident", _incident_of),
)
