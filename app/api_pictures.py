"""Routes of what the browser draws: chunk flows and the timeline. All of one generation, hence kept for ever."""

from __future__ import annotations

import gzip
from typing import Any, Final

import msgspec
from flask import Blueprint, Response, request

from mycroft.app.api_request import RequestError, of_trace, reader_of
from mycroft.app.reads import flows, timeline

IMMUTABLE: Final = "private, max-age=31536000, immutable"
"""Private, because access is by token; only answers of a pinned generation never change."""

MOST_US: Final = 9_000_000_000_000
MOST_ROW: Final = 1_000_000

# pyright: reportUnusedFunction=false
# The routes below are used by Flask alone.


def add_routes(root: Blueprint) -> None:
    """Add the routes to the blueprint of the API."""
    _flow_routes(root)
    _timeline_routes(root)


def packed(body: bytes, mimetype: str, *, pinned: bool) -> Response:
    """Return an answer that the browser may keep, compressed at the fastest level where it can read that."""
    answer = Response(mimetype=mimetype)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, 1, mtime=0)
        answer.headers["Content-Encoding"] = "gzip"
    answer.headers["Vary"] = "Accept-Encoding"
    answer.headers["Cache-Control"] = IMMUTABLE if pinned else "private, no-store"
    answer.set_data(body)
    return answer


def packed_json(value: Any, *, pinned: bool) -> Response:
    """Return JSON that the browser may keep."""
    return packed(msgspec.json.encode(value), "application/json", pinned=pinned)


def _flow_routes(root: Blueprint) -> None:
    @of_trace(root, "/flow/<comm>/<int:seq>")
    def trace_flow(trace: str, comm: str, seq: int, generation: int | None = None) -> Response:
        found = flows.flow_of(reader_of(trace, generation), comm, seq)
        if found is None:
            raise RequestError(f"no source of {trace} shows flows of operation {seq} of {comm}", http_status=404)
        return packed_json(found, pinned=generation is not None)


def _window(name: str, *, most: int) -> tuple[int, int]:
    """Return a range of the query, `from-to`, whole numbers."""
    text = request.args.get(name, "")
    first, dash, last = text.partition("-")
    if not dash or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (first, last)):
        raise RequestError(f"{name}={text[:40]}: two whole numbers with a dash between them were expected")
    low, high = sorted((int(first), int(last)))
    return min(low, most), min(high, most)


def _timeline_routes(root: Blueprint) -> None:
    @of_trace(root, "/timeline")
    def trace_timeline(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        return packed_json(timeline.describe(reader), pinned=generation is not None)

    @of_trace(root, "/tiles/<metric>/<int:level>/<int:y>/<int:x>")
    def trace_tile(trace: str, metric: str, level: int, y: int, x: int, generation: int | None = None) -> Response:
        found = timeline.tile(reader_of(trace, generation), metric, level, y, x)
        answer = Response(status=200 if found is not None else 204, mimetype="application/octet-stream")
        answer.headers["Cache-Control"] = IMMUTABLE if generation is not None else "private, no-store"
        answer.headers["Vary"] = "Accept-Encoding"
        if found is not None:
            if "gzip" in request.headers.get("Accept-Encoding", ""):
                answer.headers["Content-Encoding"] = "gzip"
            else:
                found = gzip.decompress(found)
            answer.set_data(found)
        return answer

    @of_trace(root, "/bars")
    def trace_bars(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        first, last = _window("t", most=MOST_US)
        low, high = _window("y", most=MOST_ROW)
        body = timeline.bars(reader, first, last, low, high)
        return packed(body, "application/octet-stream", pinned=generation is not None)

    @of_trace(root, "/hits")
    def trace_hits(trace: str, generation: int | None = None) -> Response:
        reader = reader_of(trace, generation)
        first, last = _window("t", most=MOST_US)
        row, _ = _window("y", most=MOST_ROW)
        return packed_json(timeline.hits(reader, first, last, row), pinned=generation is not None)
