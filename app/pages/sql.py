"""The SQL console of a trace: one read-only SELECT at a time, with the schema beside it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import current_app

from mycroft.app import urls, words
from mycroft.app.config import AppConfig
from mycroft.app.figures import query_chart
from mycroft.app.figures.graph import graph
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, details, empty, panel, problem, select
from mycroft.app.pages.sql_box import CHARS_MAX, LINK_CHARS_MAX, kept, kept_query, refused, sql_answer, sql_box
from mycroft.app.pages.trace_page import open_trace
from mycroft.app.plain_rows import plain_rows
from mycroft.app.queries import TraceReader, queries_of
from mycroft.app.sql_recipes import RECIPES
from mycroft.errors import MycroftError
from mycroft.loaders import schema
from mycroft.loaders.store import GUARDED_MEMORY, MAX_RESULT_BYTES

NO_CHART: Final = "none"
CHART_KINDS: Final = ((NO_CHART, "no chart"), ("bar", "bars"), ("line", "line"), ("points", "points"))


def _schema() -> Child:
    return [
        details(
            [html.Code(table.name), html.Span(f" {table.doc}", className="muted")],
            html.Ul(
                [
                    html.Li(
                        [
                            html.Code(column.name),
                            html.Span(f" {'ENUM' if column.values else column.type}", className="schema__type"),
                            html.Div(column.doc, className="muted"),
                        ]
                    )
                    for column in table.columns
                ],
                className="bullets schema__columns",
            ),
            class_name="schema__table",
        )
        for table in schema.TABLES
    ]


def _downloads(reader: TraceReader, query: str, *, cut: bool) -> Child:
    """Return the links that give the same answer as a file."""
    written = quote(query, safe="")
    if len(written) > LINK_CHARS_MAX:
        return html.Span("too long for a link: `mycroft sql --format csv` gives it as a file", className="muted")
    base = f"/api/v1/traces/{reader.trace}/g/{reader.generation}/sql"
    whole = "the rows shown" if cut else "all rows"
    return [
        html.A(name, href=f"{base}.{kind}?q={written}", download="", title=whole, className="button button--small")
        for name, kind in (("CSV", "csv"), ("Parquet", "parquet"))
    ]


def _chart_controls(columns: list[str], rows: list[list[Any]], chosen: dict[str, str]) -> Child:
    """Return what chooses the chart of an answer; None where nothing in it can be a height."""
    first = query_chart.first_choice(columns, rows)
    if first is None or len(set(columns)) < len(columns):
        return None
    across, up = query_chart.axes(columns, rows)

    kinds = [kind for kind, _ in CHART_KINDS]
    names, heights = [columns[n] for n in across], [columns[n] for n in up]
    chart = {
        "kind": chosen["chart"] if chosen.get("chart") in kinds else NO_CHART,
        "x": chosen["x"] if chosen.get("x") in names else first[0],
        "y": chosen["y"] if chosen.get("y") in heights else first[1],
    }
    return html.Div(
        [
            html.Div(
                [
                    select("Chart", CHART_KINDS, chart["kind"], store="sql-choice", key="kind"),
                    select("across", [(n, n) for n in names], chart["x"], store="sql-choice", key="x"),
                    select("up", [(n, n) for n in heights], chart["y"], store="sql-choice", key="y"),
                ],
                className="choice-row",
            ),
            dcc.Store(id="sql-choice", data=chart),
            html.Div(id="sql-chart"),
        ],
        className="sql__chart",
    )


def rows_grid(name: str, columns: list[str], rows: list[list[Any]]) -> Component:
    """Return the rows of an answer as a table; columns may have any name, and the same one twice."""
    cells = [
        {f"c{n}": value if isinstance(value, int | float | str | None) else str(value) for n, value in enumerate(row)}
        | {f"c{n}_plain": True for n in range(len(columns))}
        for row in rows
    ]
    numeric = [all(isinstance(row[n], int | float | None) for row in rows) for n in range(len(columns))]
    cols = [Col(f"c{n}", title, numeric=numeric[n]) for n, title in enumerate(columns)]
    return grid(name, cols, cells, label="Answer", rows_shown=16)


def answer(
    reader: TraceReader,
    query: str,
    columns: list[str],
    rows: list[list[Any]],
    *,
    cut: bool,
    chosen: dict[str, str] | None = None,
) -> Child:
    """Return the rows of an answer as a table, files and a chart; that rows were cut is said.

    `chosen` are the keys `chart`, `x` and `y` of the address.
    """
    if not rows:
        return empty("No rows.", html.P(f"Columns: {', '.join(columns)}"))
    count = words.plural(len(rows), "row") + (", the first of more: the limit was reached" if cut else "")
    return [
        html.Div(
            [
                html.Span(count, className="muted"),
                html.Div(_downloads(reader, query, cut=cut), className="sql__files"),
            ],
            className="sql__head",
        ),
        rows_grid("sql-grid", columns, rows),
        _chart_controls(columns, rows, chosen or {}),
    ]


def _keys(address: urls.Address) -> dict[str, str]:
    return {key: value for key, value in address.extra if key in {"q", "chart", "x", "y"}}


def layout(ctx: PageContext, trace: str) -> Component:
    """Return the console; a query of the address stands in it, and is asked."""
    page = open_trace(ctx, trace)
    config = ctx.config
    limits = (
        f"one SELECT; at most {config.sql_rows_max:,} rows, {config.sql_timeout_s:g} s, {GUARDED_MEMORY} to work in "
        f"and an answer of {MAX_RESULT_BYTES >> 20} MiB"
    )
    recipes = [
        html.Li(
            html.Button(
                [recipe.name, html.Span(recipe.promise, className="recipe__promise")],
                type="button",
                className="recipe",
                **attributes(data_fill="sql-text", data_fill_with=recipe.sql),
            )
        )
        for recipe in RECIPES
    ]
    asked = _keys(ctx.address).get("q", "")[:CHARS_MAX]
    return page.frame(
        "sql",
        html.H1("SQL console", className="sr-only"),
        html.Div(
            [
                html.Div(
                    [
                        panel(
                            "Query",
                            *sql_box("sql", asked or RECIPES[0].sql, rows=9),
                            note=limits,
                        ),
                        panel(
                            "Answer",
                            sql_answer(
                                "sql", empty("Nothing asked yet.", html.P("Run the query above, or pick another."))
                            ),
                        ),
                        # What was asked, for the chart: the text above may have changed since.
                        dcc.Store(id="sql-asked"),
                    ],
                    className="stack",
                ),
                html.Div(
                    [
                        panel(
                            "Queries to begin with",
                            html.Ul(recipes, className="recipes"),
                            note=f"{len(RECIPES)}, to be changed",
                        ),
                        panel("Tables", html.Div(_schema(), className="schema"), note=f"{len(schema.TABLES)} tables"),
                    ],
                    className="stack",
                ),
            ],
            className="columns columns--wide-left",
        ),
        crumbs=[("SQL", None)],
        tab="sql",
    )


def _chart(reader: TraceReader, query: str, kind: str, across: str, up: str, timeout_s: float) -> Child:
    """Return the chart of a query that has been answered before; asks again, for as many rows as are drawn."""
    found = reader.sql(query, rows_max=query_chart.MARKS_MAX, timeout_s=timeout_s)
    rows = plain_rows(found.frame)
    known, heights = query_chart.axes(found.frame.columns, rows)
    names = [found.frame.columns[n] for n in known]
    if across not in names or up not in [names[n] for n in heights]:
        return problem("These columns cannot be drawn.")
    figure = query_chart.query_figure(names, rows, kind=kind, across=across, up=up)
    said = html.P(f"The first {query_chart.MARKS_MAX:,} rows are drawn.", className="muted") if found.cut else None
    return [
        html.Div(
            graph("sql-figure", figure, height=280),
            role="group",
            **attributes(aria_label=f"{up} by {across}; the rows are in the table above"),
        ),
        said,
    ]


def register_callbacks(app: Dash) -> None:
    """Run queries, and draw their answers."""

    @app.callback(
        Output("sql-answer", "children"),
        Output("sql-asked", "data"),
        Input("sql-run", "n_clicks"),
        State("sql-text", "value"),
        State("url", "pathname"),
        State("url", "search"),
    )
    def run(  # pyright: ignore[reportUnusedFunction]
        clicks: int | None, text: str | None, pathname: str, search: str | None
    ) -> tuple[Any, Any]:
        address = urls.parse(pathname + (search or ""))
        keys = _keys(address)
        if address.trace is None or not (clicks or keys.get("q")):
            return no_update, no_update
        query = (text or "").strip()
        if why := refused(query):
            return why, None
        config: AppConfig = current_app.extensions["mycroft"][0]
        try:
            reader = queries_of(app).trace(address.trace, address.generation)
            found = reader.sql(query, rows_max=config.sql_rows_max, timeout_s=config.sql_timeout_s)
        except MycroftError as error:
            return problem("The query was not answered", html.Pre(str(error), className="frames")), None
        rows = plain_rows(found.frame, for_browser=True)
        chosen = keys if not clicks else {}
        shown = answer(reader, query, found.frame.columns, rows, cut=found.cut, chosen=chosen)
        return [kept_query(query), html.Div(shown)], query

    @app.callback(
        Output("sql-chart", "children"),
        Input("sql-choice", "data"),
        State("sql-asked", "data"),
        State("url", "pathname"),
        State("url", "search"),
    )
    def draw(  # pyright: ignore[reportUnusedFunction]
        choice: Any, query: str | None, pathname: str, search: str | None
    ) -> Any:
        address = urls.parse(pathname + (search or ""))
        chosen = choice if isinstance(choice, dict) else {}
        kind, across, up = (str(chosen.get(key) or "") for key in ("kind", "x", "y"))
        if kind not in query_chart.KINDS:
            return kept(chart=None, x=None, y=None)
        if address.trace is None or not query or refused(query):
            return no_update
        config: AppConfig = current_app.extensions["mycroft"][0]
        try:
            reader = queries_of(app).trace(address.trace, address.generation)
            shown = _chart(reader, query, kind, across, up, config.sql_timeout_s)
        except MycroftError as error:
            return problem("The chart was not drawn", html.Pre(str(error), className="frames"))
        return [kept(chart=kind, x=across, y=up), html.Div(shown)]


PAGE = Page(
    name="sql",
    layout=layout,
    title=lambda ctx, trace: f"SQL of {trace}",
    register_callbacks=register_callbacks,
)
