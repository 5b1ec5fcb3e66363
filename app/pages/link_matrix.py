"""The page of links: sender by receiver, with the row, column or cell that is odd in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dash import html
from dash.development.base_component import Component

from mycroft.analysis.link_matrix import Link, Matrix
from mycroft.app import words
from mycroft.app.figures.link_matrix import MAX_NAMES, link_matrix_svg
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, empty, facts, figure, panel, tag
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.reads import links as reads

ROWS_MAX: Final = 5_000
COLUMNS: Final = (
    Col("src", "Sends", 130),
    Col("dst", "Receives", 130),
    Col("factor", "Against all links", 140, numeric=True, help="1: as long as usual at its sizes"),
    Col("ms", "Median, ms", 110, numeric=True, help="of its commonest size; the shorter side of the two"),
    Col("size", "Bytes", 120, numeric=True),
    Col("gbs", "GB/s", 90, numeric=True),
    Col("count", "Transfers", 100, numeric=True),
    Col("since", "Slow", flex=2),
)


def says(link: Link) -> str:
    """Return what a cell is, in words."""
    rate = f", {link.gbs:.2f} GB/s" if link.gbs is not None else ""
    size = f" for {words.size(link.size_bytes)}" if link.size_bytes is not None else ""
    slow = f", slow {link.since}" if link.since else ""
    times = words.plural(link.count, "transfer")
    ends = f"{link.src} to {link.dst}"
    return f"{ends}: {link.factor:.2f} times as long as usual; {link.ms:.3g} ms{size}{rate}, {times}{slow}"


def href_of(page: TracePage, matrix: Matrix) -> Callable[[str], str | None]:
    """Return what gives the page of an end."""
    if matrix.ends == "hosts":
        return lambda name: page.links.host(name)
    return lambda name: page.links.rank(int(name.removeprefix("rank ")))


def matrix_panels(page: TracePage, matrix: Matrix) -> list[Child]:
    """Return the picture and the table of one matrix."""
    href = href_of(page, matrix)
    odd: list[Child] = [html.Li([tag(_kind(o.kind), "info"), " ", o.text]) for o in matrix.odd[:20]]
    said: Child = html.Ul(odd, className="bullets") if odd else html.P("No row, column or cell stands out.")
    cut = len(matrix.names) - MAX_NAMES
    note = "time against the other links at the same size, median · outlined: odd"
    note += f" · {cut:,} ends are not drawn" if cut > 0 else ""
    slowest = sorted(matrix.links, key=lambda link: (-link.factor, link.src, link.dst))[:ROWS_MAX]
    rows = [
        {
            "src": link.src,
            "src_href": href(link.src),
            "dst": link.dst,
            "dst_href": href(link.dst),
            "factor": round(link.factor, 2),
            "ms": float(f"{link.ms:.4g}"),
            "size": link.size_bytes,
            "gbs": None if link.gbs is None else float(f"{link.gbs:.4g}"),
            "count": link.count,
            "since": link.since or None,
        }
        for link in slowest
    ]
    return [
        panel(
            f"Sender by receiver, {matrix.ends}",
            said,
            figure(link_matrix_svg(matrix, href=href, describe=says)),
            note=note,
        ),
        panel(
            f"Links, the slowest first ({matrix.ends})",
            grid(f"links-{matrix.ends}", COLUMNS, rows, label=f"Links between {matrix.ends}", rows_shown=12),
            class_name="panel--flush",
        ),
    ]


def _kind(kind: str) -> str:
    return {"row": "sender", "column": "receiver", "both": "sender and receiver", "cell": "path"}[kind]


def layout(ctx: PageContext, trace: str) -> Component:
    """Return the page of links of a trace."""
    page = open_trace(ctx, trace)
    found = reads.matrices(page.reader)
    if not found:
        missing = panel(
            "Links",
            empty(
                "No source of this trace measured transfers between two ranks or hosts.",
                html.P(
                    "Inspector and CoMMA records of sends and receives, Kineto traces with them, flows of the tracer, "
                    "and nccl-tests on pairs of hosts do."
                ),
            ),
        )
        return page.frame(
            "links", html.H1("Links", className="sr-only"), missing, crumbs=[("Links", None)], tab="links"
        )
    strip: list[tuple[str, Child]] = [
        (matrix.ends.capitalize(), f"{len(matrix.names):,} with {len(matrix.links):,} links") for matrix in found
    ]
    return page.frame(
        "links",
        html.H1("Links", className="sr-only"),
        panel("Measured links", facts(strip, class_name="facts--strip")),
        *(part for matrix in found for part in matrix_panels(page, matrix)),
        crumbs=[("Links", None)],
        tab="links",
    )


PAGE = Page(name="links", layout=layout, title=lambda ctx, trace: f"Links of {trace}")
