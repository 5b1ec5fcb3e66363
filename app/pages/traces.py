"""The first page: the traces that are here."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from mycroft.app.pages.page import Page, PageContext


def layout(ctx: PageContext) -> Component:
    """Return the list of traces."""
    return html.Section([html.H1("Traces")], **{"data-ready": "true"})


PAGE = Page(name="traces", layout=layout, title=lambda ctx: "Traces")
