"""The frame around every page: what the browser gets before any page is known."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from mycroft.app.pages import frame, links
from mycroft.app.pages.panel import Child, attributes, link

URL_ID = "url"
PAGE_ID = "page"
TITLE_ID = "page-title"

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
{%metas%}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
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
    return html.Div([dcc.Location(id=URL_ID, refresh=False), dcc.Store(id=TITLE_ID), html.Div(loading(), id=PAGE_ID)])


def loading() -> Component:
    """Return what stands in the place of a page until it has come."""
    return html.Div(
        [
            html.P("Loading…", className="loading__text", role="status"),
            html.Div(className="loading__box"),
            html.Div(className="loading__box"),
        ],
        className="loading",
    )


def message(title: str, text: str, *, newest: str | None = None) -> Component:
    """Return a page that only says something: unknown address, no access, an error.

    `newest` is the address of the same page in the newest generation, where the one asked for is gone.
    """
    offer: Child = None
    if newest is not None:
        # The path stays the same, so the page has to be loaded anew.
        offer = html.P(html.A("Open the newest", href=newest, **attributes(data_reload="")))
    return frame.page(
        "message",
        html.Section(
            [html.H1(title), html.P(text), offer, html.P(link("All traces", links.traces()))], className="message"
        ),
        crumbs=[("Traces", links.traces()), (title, None)],
    )
