"""The page of the timeline: all ranks over all of the trace."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from mycroft.app import words
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import empty, link, panel
from mycroft.app.pages.timeline_panel import place
from mycroft.app.pages.trace_page import open_trace
from mycroft.app.reads import timeline

HEIGHT = 430


def layout(ctx: PageContext, trace: str) -> Component:
    """Return the page; what is shown of the timeline stands in the address."""
    page = open_trace(ctx, trace)
    crumbs = [("Timeline", None)]
    if not timeline.has_timeline(page.reader):
        missing = panel(
            "No timeline",
            empty(
                "This trace holds no timeline.",
                html.P("None of its operations has a time, as with logs alone, or it was loaded by an older version."),
                html.P(link("The overview shows what is known.", page.links.overview())),
            ),
            level=1,
        )
        return page.frame("timeline", missing, crumbs=crumbs, tab="timeline")
    plan = timeline.plan_of(page.reader)
    return page.frame(
        "timeline",
        panel(
            "Timeline",
            place(page.reader, height=HEIGHT),
            note=f"{words.plural(plan.ranks, 'rank')} · {words.duration(plan.span_ns)} · rows are ranks, x is time",
            level=1,
        ),
        crumbs=crumbs,
        tab="timeline",
    )


PAGE = Page(name="timeline", layout=layout, title=lambda ctx, trace: f"Timeline of {trace}")
