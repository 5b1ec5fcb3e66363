"""The files of the evidence: what each is, what was taken from it, and what could not be read and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from mycroft.app import words
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, empty, facts, panel, tag
from mycroft.app.pages.trace_page import open_trace
from mycroft.app.reads import evidence

FILES_MAX: Final = 20_000

COLUMNS: Final = (
    Col("path", "File", flex=3, mono=True),
    Col("format", "Format", 170),
    Col("rank", "Rank", 84, numeric=True, help="Rank that the file is of, where it is of one"),
    Col("size", "Size", 108, numeric=True, help="Bytes after unpacking"),
    Col("rows", "Rows taken", 116, numeric=True),
    Col("dropped", "Dropped", 100, numeric=True, help="Records or lines that could not be used"),
    Col("problems", "Problems", flex=3),
)


def table_rows(files: Sequence[Mapping[str, Any]], links: TraceLinks) -> list[dict[str, Any]]:
    """Return one row per file; files with problems first, then as they were handed over."""
    made = [
        {
            "path": file["path"],
            "path_href": links.file(file["file_id"]),
            "format": words.source(file["loader"]) if file["loader"] else "not read",
            "format_kind": None if file["loader"] else "nolog",
            "rank": file["rank"],
            "rank_plain": True,
            "rank_href": links.rank(file["rank"]) if file["rank"] is not None else None,
            "size": file["size_bytes"],
            "rows": file["rows"],
            "dropped": file["dropped"] or None,
            "problems": file["problems"].replace("\n", "; ") if file["problems"] else None,
        }
        for file in files
    ]
    made.sort(key=lambda row: row["problems"] is None)
    return made


def layout(ctx: PageContext, trace: str) -> Component:
    """Return the list of evidence files."""
    page = open_trace(ctx, trace)
    files, total = evidence.files(page.reader, limit=FILES_MAX)
    if not files:
        missing = panel("Evidence", empty("This trace lists no files."))
        return page.frame("files", missing, crumbs=[("Evidence", None)], tab="files")
    unread = sum(file["loader"] is None for file in files)
    broken = sum(file["problems"] is not None and file["loader"] is not None for file in files)
    summary: list[tuple[str, Child]] = [
        ("Files", f"{total:,}"),
        ("Read", f"{total - unread:,}"),
        ("Not read", [tag(f"{unread:,}", "nolog"), " see Problems"] if unread else "none"),
        ("Read with problems", f"{broken:,}" if broken else "none"),
        ("Size", words.size(sum(file["size_bytes"] or 0 for file in files))),
    ]
    note = "files with problems first" + (f"; the first {FILES_MAX:,} shown" if total > len(files) else "")
    return page.frame(
        "files",
        html.H1("Evidence", className="sr-only"),
        panel("Evidence", facts(summary, class_name="facts--strip")),
        panel(
            "Files",
            grid(
                "files-grid",
                COLUMNS,
                table_rows(files, page.links),
                label="Files of the evidence",
                rows_shown=18,
                row_class={"row--nolog": "params.data.format_kind == 'nolog'"},
            ),
            note=note,
            class_name="panel--flush",
        ),
        crumbs=[("Evidence", None)],
        tab="files",
    )


PAGE = Page(name="files", layout=layout, title=lambda ctx, trace: f"Evidence of {trace}")
