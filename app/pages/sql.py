"""The SQL console of a trace: one read-only SELECT at a time, with the schema beside it."""

from __future__ import annotations

from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import current_app

from mycroft.app import urls, words
from mycroft.app.config import AppConfig
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, details, empty, panel, problem
from mycroft.app.pages.trace_page import open_trace
from mycroft.app.plain_rows import plain_rows
from mycroft.app.queries import queries_of
from mycroft.errors import MycroftError
from mycroft.loaders import schema

CHARS_MAX: Final = 8000

RECIPES: Final = (
    (
        "Open operations by group",
        """SELECT c.key, c."desc", o.op_seq, o.op_kind, count(*) AS entered
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE o.state <> 'completed' AND NOT coalesce(o.retired, FALSE)
GROUP BY ALL
ORDER BY entered DESC""",
    ),
    (
        "Latest ranks of each operation",
        """SELECT c.key, o.op_seq, o.rank,
    (epoch_ns(o.enq_ts) - min(epoch_ns(o.enq_ts)) OVER (PARTITION BY o.comm_id, o.op_seq)) / 1e6 AS late_ms
FROM coll_ops o
JOIN communicators c USING (comm_id)
WHERE NOT coalesce(o.is_p2p, FALSE)
ORDER BY late_ms DESC
LIMIT 100""",
    ),
    (
        "Members that left no dump",
        """SELECT c.key, c."desc", m.rank
FROM members m
JOIN communicators c USING (comm_id)
WHERE m.rank NOT IN (SELECT rank FROM rank_dumps)
ORDER BY m.rank, c.key""",
    ),
    (
        "Errors in the logs, in the order of time",
        """SELECT e.ts, e.rank, e.level, e.kind, f.path, e.line, e.text
FROM events e
JOIN files f USING (file_id)
WHERE e.level IN ('error', 'fatal')
ORDER BY e.ts
LIMIT 200""",
    ),
    (
        "Where the main threads stand",
        """SELECT t.frames[1] AS innermost, count(*) AS ranks, list(s.rank ORDER BY s.rank) AS which
FROM stacks s
JOIN stack_texts t USING (stack_id)
WHERE s.is_main
GROUP BY 1
ORDER BY ranks DESC""",
    ),
    (
        "What was dropped, and why",
        """SELECT path, loader, rows, dropped, problems
FROM files
WHERE problems IS NOT NULL OR dropped > 0 OR loader IS NULL
ORDER BY path""",
    ),
)


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


def answer(columns: list[str], rows: list[list[Any]], *, cut: bool) -> Child:
    """Return the rows of an answer as a table with an export; that rows were cut is said."""
    if not rows:
        return empty("No rows.", html.P(f"Columns: {', '.join(columns)}"))
    cells = [
        {f"c{n}": value if isinstance(value, int | float | str | None) else str(value) for n, value in enumerate(row)}
        | {f"c{n}_plain": True for n in range(len(columns))}
        for row in rows
    ]
    numeric = [all(isinstance(row[n], int | float | None) for row in rows) for n in range(len(columns))]
    cols = [Col(f"c{n}", name, numeric=numeric[n]) for n, name in enumerate(columns)]
    count = words.plural(len(rows), "row") + (", the first of more: the limit was reached" if cut else "")
    return [
        html.Div(
            [
                html.Span(count, className="muted"),
                html.Button("Download CSV", id="sql-csv", type="button", className="button button--small"),
            ],
            className="sql__head",
        ),
        grid("sql-grid", cols, cells, label="Answer", rows_shown=16, csv_name="mycroft-query.csv"),
    ]


def layout(ctx: PageContext, trace: str) -> Component:
    """Return the console."""
    page = open_trace(ctx, trace)
    config = ctx.config
    limits = f"one SELECT; at most {config.sql_rows_max:,} rows and {config.sql_timeout_s:g} s"
    recipes = [
        html.Li(
            html.Button(
                name,
                type="button",
                className="recipe",
                **attributes(data_fill="sql-text", data_fill_with=text),
            )
        )
        for name, text in RECIPES
    ]
    return page.frame(
        "sql",
        html.H1("SQL console", className="sr-only"),
        html.Div(
            [
                html.Div(
                    [
                        panel(
                            "Query",
                            html.Label("SQL", htmlFor="sql-text", className="sr-only"),
                            html.Div(
                                dcc.Textarea(
                                    id="sql-text",
                                    value=RECIPES[0][1],
                                    className="input sql__text",
                                    maxLength=CHARS_MAX,
                                    spellCheck=False,
                                    rows=9,
                                ),
                                **attributes(data_submit="sql-run"),
                            ),
                            html.Div(
                                [
                                    html.Button("Run", id="sql-run", type="button", className="button button--main"),
                                    html.Span("Ctrl + Enter", className="muted"),
                                ],
                                className="sql__buttons",
                            ),
                            note=limits,
                        ),
                        panel(
                            "Answer",
                            dcc.Loading(
                                html.Div(
                                    empty("Nothing asked yet.", html.P("Run the query above, or pick another.")),
                                    id="sql-answer",
                                    **attributes(aria_live="polite"),
                                ),
                                type="dot",
                                delay_show=300,
                            ),
                        ),
                    ],
                    className="stack",
                ),
                html.Div(
                    [
                        panel("Queries to begin with", html.Ul(recipes, className="recipes")),
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


def register_callbacks(app: Dash) -> None:
    """Run queries, and hand out answers as CSV."""

    @app.callback(
        Output("sql-answer", "children"),
        Input("sql-run", "n_clicks"),
        State("sql-text", "value"),
        State("url", "pathname"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def run(  # pyright: ignore[reportUnusedFunction]
        clicks: int | None, text: str | None, pathname: str, search: str | None
    ) -> Any:
        address = urls.parse(pathname + (search or ""))
        if not clicks or address.trace is None:
            return no_update
        query = (text or "").strip()
        if not query or len(query) > CHARS_MAX:
            return problem(f"A SELECT of 1 to {CHARS_MAX:,} characters is needed.")
        config: AppConfig = current_app.extensions["mycroft"][0]
        try:
            reader = queries_of(app).trace(address.trace, address.generation)
            found = reader.sql(query, rows_max=config.sql_rows_max, timeout_s=config.sql_timeout_s)
        except MycroftError as error:
            return problem("The query was not answered", html.Pre(str(error), className="frames"))
        return answer(found.frame.columns, plain_rows(found.frame, for_browser=True), cut=found.cut)

    app.clientside_callback(
        "function(n) { return n ? true : window.dash_clientside.no_update; }",
        Output("sql-grid", "exportDataAsCsv"),
        Input("sql-csv", "n_clicks"),
        prevent_initial_call=True,
    )


PAGE = Page(
    name="sql",
    layout=layout,
    title=lambda ctx, trace: f"SQL of {trace}",
    register_callbacks=register_callbacks,
)
