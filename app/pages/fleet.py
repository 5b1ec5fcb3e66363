"""The page of a fleet: what happened on all hosts over hours and days, what comes back, what it cost, who stands out.

What it says is the report of `analysis.fleet.report` and the roll-ups of hosts; nothing is concluded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import current_app, request

from mycroft.analysis.fleet import Window
from mycroft.analysis.fleet.hosts import HEAT_COLUMNS, bands, between, worst
from mycroft.analysis.fleet.report import FleetReport, Happened
from mycroft.app import access, urls, words
from mycroft.app.config import AppConfig
from mycroft.app.figures import host_heat
from mycroft.app.fleet import NS_PER_S, Heat, span_s
from mycroft.app.fleet_history import FleetHistory, Incidents, window_of
from mycroft.app.pages import frame, links
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import (
    Child,
    attributes,
    copyable,
    details,
    empty,
    facts,
    figure,
    html_table,
    link,
    panel,
    problem,
    select,
)
from mycroft.app.pages.sql import rows_grid
from mycroft.app.pages.sql_box import CHARS_MAX, kept, kept_query, refused, sql_answer, sql_box
from mycroft.app.plain_rows import plain_rows
from mycroft.errors import MycroftError

SPANS: Final = (
    ("1h", "last hour"),
    ("6h", "last 6 hours"),
    ("24h", "last 24 hours"),
    ("7d", "last 7 days"),
    ("30d", "last 30 days"),
)
FIRST_SPAN: Final = "24h"
INCIDENTS_SHOWN: Final = 100
INCIDENTS_OPEN: Final = 10
"""Shown at once; the others are in a fold."""
NAMED_SHOWN: Final = 20
ROWS_MOST: Final = 40
WORST_SHOWN: Final = 10
_FIRST_QUERY: Final = """SELECT host, max(idle_max_ms) AS longest_standstill_ms, sum(errors) AS errors
FROM host_minute
GROUP BY host
ORDER BY 2 DESC
LIMIT 20"""


def _count(value: int) -> str:
    return f"{value:,}"


def _ms(value: int) -> str:
    return words.duration(value * 1_000_000) if value else "0"


def _ns(value: int) -> str:
    return words.duration(value) if value else "0"


METRICS: Final[Mapping[str, tuple[str, Callable[[int], str]]]] = {
    "idle_max_ms": ("longest standstill of a flow", _ms),
    "net_max_ns": ("longest transfer", _ns),
    "open_ops_max": ("operations open at once", _count),
    "errors": ("errors of devices in a minute", _count),
    "lost_rows": ("rows lost in a minute", _count),
    "late_max_ms": ("lateness of the sampler", _ms),
}
"""Columns of the roll-up, what they are called, and how a value is written."""
if set(METRICS) != set(HEAT_COLUMNS):
    raise ValueError("a column of the heat map of hosts has no name")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the address asks for. `until_s`: seconds since the epoch, None: now. `rows`: places of hosts."""

    span: str = FIRST_SPAN
    until_s: int | None = None
    metric: str = HEAT_COLUMNS[0]
    rows: tuple[int, int] | None = None
    query: str = ""

    @property
    def window(self) -> Window:
        """The window; one that ends now moves on with each minute."""
        return window_of(span_s(self.span) or 0.0, self.until_s)

    def href(self, **changes: Any) -> str:
        """Return the address of this view with some of it changed."""
        view = View(
            **{name: changes.get(name, getattr(self, name)) for name in ("span", "until_s", "metric", "rows", "query")}
        )
        shown: dict[str, urls.ViewValue] = {}
        if view.metric != HEAT_COLUMNS[0]:
            shown["m"] = view.metric
        if view.rows is not None:
            shown["y"] = view.rows
        extra = [("last", view.span)] if view.span != FIRST_SPAN else []
        if view.until_s is not None:
            extra.append(("until", str(view.until_s)))
        if view.query:
            extra.append(("q", view.query))
        return urls.build(urls.Address("fleet", {}, shown, tuple(extra)))


def view_of(address: urls.Address) -> View:
    """Return the view of an address; what cannot be read is as if it were not there."""
    extra = dict(address.extra)
    span = extra.get("last", "")
    until = extra.get("until", "")
    metric = str(address.view.get("m") or "")
    rows = address.view.get("y")
    return View(
        span=span if span_s(span) is not None else FIRST_SPAN,
        # A date beyond the year 9999 has no name.
        until_s=int(until) if until.isascii() and until.isdigit() and 0 < int(until[:12]) < 253_000_000_000 else None,
        metric=metric if metric in METRICS else HEAT_COLUMNS[0],
        rows=rows if isinstance(rows, tuple) else None,
        query=extra.get("q", "")[:CHARS_MAX],
    )


def _history() -> FleetHistory:
    return current_app.extensions["mycroft_fleet"]


# ---- the report ---------------------------------------------------------------------------


def _incident_row(one: Happened, incidents: Incidents) -> html.Tr:
    text = words.shorten(words.first_sentence(one.summary), 160)
    is_here = (one.job, one.incident) in incidents.here
    href = urls.path_of("live_incident", job=one.job, incident=one.incident)
    lasted = "goes on" if one.closed is None else words.duration(max(0.0, one.closed - one.opened) * 1e9)
    return html.Tr(
        [
            html.Td(words.moment(one.opened), className="nowrap"),
            html.Td(words.shorten(one.title, 40)),
            html.Td(link(text, href) if is_here else text),
            html.Td(words.category(one.category)),
            html.Td(one.confidence),
            html.Td(lasted, className="nowrap"),
        ]
    )


def _incidents_panel(report: FleetReport, incidents: Incidents) -> html.Section:
    title = "Incidents"
    if not report.incidents:
        if incidents.is_watched:
            return panel(title, empty("No incident touches this window."))
        return panel(
            title,
            empty(
                "No watch has looked: incidents are not known, which is not none.",
                html.P("Beside the collector run a watch, and let its host push what it finds:"),
                copyable("mycroft serve --live"),
                copyable("mycroft fleet push URL --name NAME"),
            ),
        )
    shown = report.incidents[::-1][:INCIDENTS_SHOWN]
    said = f"{words.plural(len(report.incidents), 'incident')} of {words.plural(report.jobs, 'job')}, the latest first"
    left = len(report.incidents) - len(shown)
    elsewhere = sum((one.job, one.incident) not in incidents.here for one in shown)
    remarks = [
        f"{left:,} more: `mycroft fleet report --json` tells all" if left else "",
        f"{elsewhere:,} without a link: they are kept by the collector that pushed them" if elsewhere else "",
    ]
    names = ("Opened", "Job", "Incident", "Class", "Confidence", "Lasted")
    rows = [_incident_row(one, incidents) for one in shown]
    earlier = rows[INCIDENTS_OPEN:]
    return panel(
        title,
        html_table(names, rows[:INCIDENTS_OPEN]),
        details(f"{words.plural(len(earlier), 'earlier incident')}", html_table(names, earlier)) if earlier else None,
        *[html.P(text, className="muted") for text in remarks if text],
        note=said,
    )


def _cost_panel(report: FleetReport) -> html.Section:
    rows: list[tuple[str, Child]] = [
        ("Incidents", f"{len(report.incidents):,} of {words.plural(report.jobs, 'job')}"),
        ("Stood or crashed", f"{report.gpu_hours_standing:,.1f} GPU-hours"),
        ("Lost to slowness", f"{report.gpu_hours_slow:,.1f} GPU-hours"),
    ]
    if report.not_costed:
        rows.append(("In neither sum", f"{words.plural(report.not_costed, 'incident')}, size or loss not known"))
    if report.by_category:
        classes = ", ".join(f"{words.category(name)} {count:,}" for name, count in report.by_category.items())
        rows.append(("By class", classes))
    return panel("Cost", facts(rows), note="of whole jobs: while one rank hangs, all wait")


def _offenders_panel(report: FleetReport) -> html.Section:
    note = "named alone and surely in two incidents or more"
    if not report.offenders:
        return panel("Repeat offenders", empty("None."), note=note)
    rows = [
        html.Tr(
            [
                html.Td(one.kind),
                html.Td(words.shorten(one.name, 80), className="mono"),
                html.Td(f"{one.incidents:,}"),
                html.Td(f"{one.jobs:,}"),
                html.Td(f"{one.gpu_hours:,.1f}"),
                html.Td(", ".join(map(words.category, one.categories))),
            ]
        )
        for one in report.offenders[:NAMED_SHOWN]
    ]
    table = html_table(("", "Name", "Incidents", "Jobs", "GPU-hours", "Classes"), rows)
    return panel("Repeat offenders", table, note=note)


def _stand_out_panel(report: FleetReport) -> html.Section:
    note = "look at these, nothing is proven"
    if not report.stand_out:
        nothing = empty("None.", html.P("A host is named when it differs from its peers in two jobs or more."))
        return panel("Hosts that stand out in several jobs", nothing, note=note)
    rows = [
        html.Tr(
            [
                html.Td(words.shorten(one.host, 60), className="mono"),
                html.Td(one.what),
                html.Td(f"{len(one.jobs):,} of {one.of_jobs:,}"),
                html.Td(f"{one.ratio:.2f} ×"),
            ]
        )
        for one in report.stand_out[:NAMED_SHOWN]
    ]
    table = html_table(("Host", "How", "Jobs", "To the median, at least"), rows)
    return panel("Hosts that stand out in several jobs", table, note=note)


# ---- the heat map -------------------------------------------------------------------------


def heat_panel(heat: Heat, view: View) -> html.Section:
    """Return the panel of hosts over time."""
    title = "Hosts over time"
    name, shown = METRICS[view.metric]
    grid = heat.grid if view.rows is None else between(heat.grid, *view.rows)
    if not grid.hosts:
        nothing = "No host has told anything in this window."
        if heat.grid.hosts:
            nothing = f"There are {words.plural(len(heat.grid.hosts), 'host')}; none of them is in this part."
        return panel(title, empty(nothing, html.P(_anew("All hosts, last 24 hours", View().href()))))
    first_bin, last_bin = view.window.since_ns // heat.bin_ns, (view.window.until_ns - 1) // heat.bin_ns
    greatest = int(grid.values.max())
    steps = host_heat.thresholds(greatest)
    places, values = bands(grid, ROWS_MOST)
    offset = max(view.rows[0], 0) if view.rows is not None else 0
    rows = [_heat_row(grid.hosts, values[n], place, offset, view) for n, place in enumerate(places)]
    # Bins that no file has are of the window all the same.
    found = host_heat.levels(_in_window(values, grid.first, first_bin, last_bin), steps)
    picture = host_heat.host_heat_svg(
        rows,
        found,
        ticks=_ticks(first_bin, last_bin, heat.bin_ns),
        label=f"{name} of {words.plural(len(grid.hosts), 'host')} over time; the greatest are in the table below",
    )
    worst_rows = [
        html.Tr(
            [
                html.Td(words.shorten(one.host, 80), className="mono"),
                html.Td(shown(one.value)),
                html.Td(words.day_and_time(one.bin * heat.bin_ns / NS_PER_S), className="nowrap"),
            ]
        )
        for one in worst(grid, WORST_SHOWN)
    ]
    is_part = view.rows is not None
    many = words.plural(len(grid.hosts), "host")
    if is_part:
        many = f"{many} of {len(heat.grid.hosts):,}"
    wide = words.duration(heat.bin_ns)
    banded = f", a row of up to {places[0][1] - places[0][0] + 1}: choose one to open it" if len(places) < len(grid.hosts) else ""  # fmt: skip  # noqa: E501
    return panel(
        title,
        html.P(_anew("All hosts", view.href(rows=None))) if is_part else None,
        figure(picture),
        _legend(host_heat.legend(steps, greatest, shown)),
        html.H3("Hosts with the greatest values", className="fleet-top"),
        html_table(("Host", "Greatest", "First in the bin from"), worst_rows)
        if worst_rows
        else html.P("All that was told is zero.", className="muted"),
        note=f"{name} · {many}{banded} · the greatest of each {wide}",
        id="fleet-heat",
    )


def _in_window(values: Any, first: int, first_bin: int, last_bin: int) -> Any:
    found = np.full((values.shape[0], last_bin - first_bin + 1), host_heat.NOTHING, dtype=np.int64)
    low, high = max(first, first_bin), min(first + values.shape[1] - 1, last_bin)
    if low <= high:
        found[:, low - first_bin : high - first_bin + 1] = values[:, low - first : high - first + 1]
    return found


def _heat_row(hosts: Sequence[str], values: Any, place: tuple[int, int], offset: int, view: View) -> host_heat.HeatRow:
    first, last = place
    greatest = int(values.max())
    says = "nothing was told" if greatest < 0 else f"at most {METRICS[view.metric][1](greatest)}"
    if first == last:
        return host_heat.HeatRow(hosts[first], says)
    href = view.href(rows=(offset + first, offset + last))
    return host_heat.HeatRow(f"{hosts[first]} to {hosts[last]}", says, href)


def _ticks(first_bin: int, last_bin: int, bin_ns: int) -> list[tuple[int, str]]:
    columns = last_bin - first_bin + 1
    many_days = columns * bin_ns > 2 * 86_400 * NS_PER_S
    found: list[tuple[int, str]] = []
    for n in range(6):
        column = n * columns // 6
        at = (first_bin + column) * bin_ns
        text = words.day_and_time(at / NS_PER_S)
        found.append((column, text[5:16] if many_days or n == 0 else text[11:16]))
    return found


def _legend(items: Sequence[tuple[int, str]]) -> Child:
    rows = [html.Li([html.Span(className=f"heat-swatch heat-swatch--{level}"), text]) for level, text in items]
    rows.append(html.Li([html.Span(className="heat-swatch heat-swatch--none"), "nothing told"]))
    return html.Ul(rows, className="heat-legend", **attributes(aria_label="Legend"))


def _anew(text: str, href: str) -> html.A:
    # The path stays the same, so the page has to be loaded anew.
    return html.A(text, href=href, **attributes(data_reload=""))


# ---- the page -----------------------------------------------------------------------------


def _no_store(history: FleetHistory) -> Child:
    if history.url is not None:
        return panel(
            "Hosts over time",
            empty(
                f"There is no store at {words.shorten(history.url, 200)} yet.",
                html.P("On the host of each collector, from a timer:"),
                copyable(f"mycroft fleet push {history.url} --name NAME"),
            ),
        )
    return panel(
        "Hosts over time",
        empty(
            "No collector has kept anything here yet.",
            html.P("Run one with this dashboard and send to it from each host, or read what others have pushed:"),
            copyable("mycroft serve --live"),
            copyable("mycroft agent URL", comment="on each host"),
            copyable("mycroft serve --store s3://BUCKET/PREFIX"),
        ),
    )


def body(history: FleetHistory, view: View) -> list[Child]:
    """Return the part of the page that the window and the metric change.

    Raises:
        MycroftError: the store cannot be read.
    """
    window = view.window
    heat = history.heat(view.metric, window)
    incidents = history.incidents(window)
    if heat is None and not incidents.found:
        return [_no_store(history)]
    report = history.report(window)
    problems = [html.Li(words.shorten(text, 300)) for text in incidents.problems[:NAMED_SHOWN]]
    parts: list[Child] = [
        problem("Incidents that cannot be read", html.Ul(problems, className="bullets mono")) if problems else None,
        html.Div([_cost_panel(report), _offenders_panel(report)], className="columns"),
        _incidents_panel(report, incidents),
        _stand_out_panel(report),
        heat_panel(heat, view) if heat is not None else _no_store(history),
    ]
    return [part for part in parts if part is not None]


def _window_text(view: View) -> list[Child]:
    window = view.window
    since, until = window.since_ns // NS_PER_S, window.until_ns // NS_PER_S
    half = max(60, (until - since) // 2)
    at = f"{words.day_and_time(since)} to {words.day_and_time(until)}"
    moves = [_move("Earlier", view.href(until_s=until - half))]
    if view.until_s is not None:
        moves += [_move("Later", view.href(until_s=until + half)), _move("Until now", view.href(until_s=None))]
    else:
        moves.append(_move("Keep this window", view.href(until_s=until)))
    return [html.Span(at, className="muted"), " ", *moves]


def _move(text: str, href: str) -> html.A:
    return html.A(text, href=href, className="button button--small", **attributes(data_reload=""))


def layout(ctx: PageContext) -> Component:
    """Return the page; what takes reading follows when it has been read."""
    access.check(request, None)
    view = view_of(ctx.address)
    spans = list(SPANS)
    if view.span not in dict(SPANS):
        spans.append((view.span, f"last {view.span}"))
    where = _history().url
    return frame.page(
        "fleet",
        html.Div(
            [
                html.H1("Fleet"),
                html.P(
                    f"history of {words.shorten(where, 120)}" if where else "history of the collector of this server"
                ),
            ],
            className="page-title",
        ),
        html.Div(
            [
                select("Window", spans, view.span, store="fleet-choice", key="last"),
                select(
                    "Show",
                    [(key, name) for key, (name, _) in METRICS.items()],
                    view.metric,
                    store="fleet-choice",
                    key="m",
                ),
                html.Span(_window_text(view), id="fleet-window", className="choice-row"),
            ],
            className="choice-row",
            role="group",
            **attributes(aria_label="What is shown"),
        ),
        dcc.Store(id="fleet-choice", data={"last": view.span, "m": view.metric}),
        dcc.Loading(
            html.Div(html.P("Reading the history…", role="status"), id="fleet-body", className="stack"),
            type="dot",
            delay_show=300,
        ),
        _sql_panel(ctx.config, view),
        crumbs=[("Traces", links.traces()), ("Fleet", None)],
        top=[link("Live", links.live(), class_name="button button--quiet")],
    )


def _sql_panel(config: AppConfig, view: View) -> html.Section:
    tables = "host_minute, op_minute, incidents, state, flow, op, heartbeat, gap, foreign, rings, gaps, facts"
    return panel(
        "SQL over the window",
        details(
            "Ask the rows, the roll-ups and the incidents",
            *sql_box("fleet-sql", view.query or _FIRST_QUERY, rows=6),
            html.P(f"Tables: {tables}. Files are chosen by the window, not rows.", className="muted"),
            sql_answer("fleet-sql"),
            opened=bool(view.query),
        ),
        note=f"one SELECT; at most {config.sql_rows_max:,} rows and {config.sql_timeout_s:g} s",
    )


def answer(history: FleetHistory, view: View, query: str, config: AppConfig) -> Child:
    """Return the answer to a reader's SELECT over the window of a view, or why there is none."""
    if why := refused(query):
        return why
    try:
        found = history.sql(query, view.window, rows_max=config.sql_rows_max, timeout_s=config.sql_timeout_s)
    except MycroftError as error:
        return problem("The query was not answered", html.Pre(str(error), className="frames"))
    asked = kept_query(query)
    if found is None:
        return [asked, empty("There is no store to ask yet.")]
    rows = plain_rows(found.frame, for_browser=True)
    columns = found.frame.columns
    if not rows:
        return [asked, empty("No rows.", html.P(f"Columns: {', '.join(columns)}"))]
    count = words.plural(len(rows), "row") + (", the first of more: the limit was reached" if found.cut else "")
    return [asked, html.P(count, className="muted"), rows_grid("fleet-sql-grid", columns, rows)]


def register_callbacks(app: Dash) -> None:
    """Read the history; answer queries."""

    @app.callback(
        Output("fleet-body", "children"),
        Output("fleet-window", "children"),
        Input("fleet-choice", "data"),
        State("url", "pathname"),
        State("url", "search"),
    )
    def show(choice: Any, pathname: str, search: str | None) -> Any:  # pyright: ignore[reportUnusedFunction]
        access.check(request, None)
        address = urls.parse(pathname + (search or ""))
        if address.page != "fleet":
            return no_update
        chosen = choice if isinstance(choice, dict) else {}
        view = view_of(
            urls.Address(
                "fleet",
                {},
                {**address.view, "m": str(chosen.get("m") or "")},
                (*address.extra, ("last", str(chosen.get("last") or ""))),
            )
        )
        # What the page begins with is not written, so that equal views have equal addresses.
        chosen_keys = kept(
            last=view.span if view.span != FIRST_SPAN else None,
            m=view.metric if view.metric != HEAT_COLUMNS[0] else None,
        )
        try:
            children = body(_history(), view)
        except MycroftError as error:
            children = [problem("The history cannot be read", html.P(f"{error}."))]
        return [chosen_keys, *children], _window_text(view)

    @app.callback(
        Output("fleet-sql-answer", "children"),
        Input("fleet-sql-run", "n_clicks"),
        State("fleet-sql-text", "value"),
        State("fleet-choice", "data"),
        State("url", "pathname"),
        State("url", "search"),
    )
    def ask(  # pyright: ignore[reportUnusedFunction]
        clicks: int | None, text: str | None, choice: Any, pathname: str, search: str | None
    ) -> Any:
        access.check(request, None)
        address = urls.parse(pathname + (search or ""))
        view = view_of(address)
        if address.page != "fleet" or not (clicks or view.query):
            return no_update
        span = str(choice.get("last")) if isinstance(choice, dict) else ""
        if span_s(span) is not None:
            view = View(span=span, until_s=view.until_s)
        config: AppConfig = current_app.extensions["mycroft"][0]
        return answer(_history(), view, (text or "").strip(), config)


PAGE: Final = Page(name="fleet", layout=layout, title=lambda ctx: "Fleet", register_callbacks=register_callbacks)
