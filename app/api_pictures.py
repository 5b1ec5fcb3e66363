"""Routes of what the browser draws: chunk flows and the timeline. All of one generation, hence kept for ever."""

from __future__ import annotations

import gzip
from typing import Any, Final

import msgspec
from flask import Blueprint, Response, request

from mycroft.app.api_request import RequestError, of_trace, reader_of
from mycroft.app.reads import flows

IMMUTABLE: Final = "private, max-age=31536000, immutable"
"""Private, because access is by token; only answers of a pinned generation never change."""

# pyright: reportUnusedFunction=false
# The routes below are used by Flask alone.


def add_routes(root: Blueprint) -> None:
    """Add the routes to the blueprint of the API."""
    _flow_routes(root)


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
