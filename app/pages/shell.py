"""The frame around every page: what the browser gets before any page is known."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

URL_ID = "url"
PAGE_ID = "page"
TITLE_ID = "page-title"

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<title>{%title%}</title>
{%favicon%}
{%css%}
</head>
<body>
{%app_entry%}
<footer>
{%config%}
{%scripts%}
{%renderer%}
</footer>
</body>
</html>"""
"""Page that Dash fills in. A script in it must come from /assets/: the server forbids inline ones."""


def shell() -> Component:
    """Return the layout of the app; the router fills `PAGE_ID` and `TITLE_ID` whenever the path changes."""
    return html.Div([dcc.Location(id=URL_ID, refresh=False), dcc.Store(id=TITLE_ID), html.Main(id=PAGE_ID)])


def message(title: str, text: str) -> Component:
    """Return a page that only says something: unknown address, no access, an error."""
    return html.Section([html.H1(title), html.P(text), html.A("All traces", href="/")], className="message")
