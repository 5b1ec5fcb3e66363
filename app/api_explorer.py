"""Routes of the explorer below `/api/v1/traces/<trace>`: find anything, answers of SQL as files, exports, notes."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from mycroft.app import pages
from mycroft.app.api_request import of_trace, reader_of
from mycroft.app.pages.links import TraceLinks
from mycroft.app.reads import find, verdicts

# pyright: reportUnusedFunction=false
# The routes below are used by Flask alone.


def add_routes(root: Blueprint) -> None:
    """Add the routes to the blueprint of the API."""
    _find_routes(root)


def _find_routes(root: Blueprint) -> None:
    @of_trace(root, "/find")
    def trace_find(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        text = request.args.get("q", "")
        found = find.find(
            reader,
            text,
            TraceLinks(trace, generation),
            verdict=verdicts.verdict_of(reader),
            has_timeline=any(page.name == "timeline" for page in pages.PAGES),
        )
        return jsonify(
            query=text[: find.CHARS_MAX],
            hits=[{"kind": hit.kind, "title": hit.title, "detail": hit.detail, "href": hit.href} for hit in found.hits],
            more=list(found.more),
            of_a_kind=find.OF_A_KIND,
        )
