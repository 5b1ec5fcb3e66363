"""The place of a timeline in a page: the browser draws it from tiles and bars."""

from __future__ import annotations

from dash import html

from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, attributes, link, panel
from mycroft.app.queries import TraceReader
from mycroft.app.reads import timeline

BEFORE_SHARE = 0.25
SHOWN_US = 40_000_000


def place(
    reader: TraceReader,
    *,
    height: int,
    window: tuple[int, int] | None = None,
    embedded: bool = False,
    rank: int | None = None,
    follow: bool = False,
) -> Child:
    """Return the element that the browser fills; `window` is in µs after the start of the trace.

    With `follow` it goes on to each newer generation, until the reader moves it.
    """
    return html.Div(
        html.P("Reading the timeline…", className="muted"),
        style={"minHeight": height + 150},
        **attributes(
            data_timeline=f"/api/v1/traces/{reader.trace}/g/{reader.generation}",
            data_height=str(height),
            data_window=None if window is None else f"{window[0]}-{window[1]}",
            data_embedded="" if embedded else None,
            data_rank=None if rank is None else str(rank),
            data_follow=f"/api/v1/traces/{reader.trace}" if follow else None,
        ),
    )


def timeline_panel(
    reader: TraceReader,
    links: TraceLinks,
    *,
    around_ns: int | None = None,
    height: int = 240,
    title: str = "Timeline",
    rank: int | None = None,
) -> Child:
    """Return a timeline inside of another page, None where the trace has none.

    It shows what was around a moment (ns since the epoch), and marks a rank.
    """
    if not timeline.has_timeline(reader):
        return None
    plan = timeline.plan_of(reader)
    window: tuple[int, int] | None = None
    span_us = -(-plan.span_ns // 1000)
    if around_ns is not None:
        at = (around_ns - plan.first_ns) // 1000
        length = min(span_us, SHOWN_US)
        if 0 <= at <= span_us:
            first = max(0, min(int(at - length * BEFORE_SHARE), span_us - length))
            window = (first, first + length)
    return panel(
        title,
        place(reader, height=height, window=window, embedded=True, rank=rank),
        note=["rows are ranks · ", link("the whole timeline", links.timeline())],
        id="timeline",
    )
