"""What the routes below `/api/v1/` share: reading a request, and the two addresses of every read of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flask import Blueprint, current_app, request

from mycroft.app.config import AppConfig
from mycroft.app.queries import Queries, TraceReader
from mycroft.app.state import State
from mycroft.app.uploads import Uploads
from mycroft.errors import MycroftError

JSON_BYTES_MAX: Final = 64 * 1024 * 1024

# Every read of a trace has two addresses: pinned to a generation, and of the newest.
OF_TRACE: Final = ("/traces/<trace>/g/<int:generation>", "/traces/<trace>")


class RequestError(MycroftError):
    """A request that does not say what is needed, or asks for what is not there; `http_status` is the answer's."""

    def __init__(self, message: str, *, http_status: int = 400) -> None:
        super().__init__(message)
        self.http_status = http_status


def config_here() -> AppConfig:
    """Return the settings of the server that answers."""
    return current_app.extensions["mycroft"][0]


def state_here() -> State:
    """Return the state of the server that answers."""
    return current_app.extensions["mycroft"][1]


def queries_here() -> Queries:
    """Return the reads of the server that answers."""
    return current_app.extensions["mycroft_queries"]


def uploads_here() -> Uploads:
    """Return the uploads of the server that answers."""
    return current_app.extensions["mycroft_uploads"]


def reader_of(trace: str, generation: int | None) -> TraceReader:
    """Return the reader of a trace, after asking for access; without `generation`, of the newest."""
    return queries_here().trace(trace, generation)


def whole_number(name: str, *, default: int, least: int, most: int) -> int:
    """Return a whole number of the query, clamped to its range.

    Raises:
        RequestError: it is no whole number.
    """
    text = request.args.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit():
        raise RequestError(f"{name}={text[:40]}: a whole number was expected")
    return min(max(int(text[:18]), least), most)


def json_body() -> dict[str, Any]:
    """Return the JSON object that the request carries.

    Raises:
        RequestError: it carries none, or too long a one.
    """
    if (request.content_length or 0) > JSON_BYTES_MAX:
        raise RequestError(f"the body is longer than {JSON_BYTES_MAX} bytes")
    body = request.get_json(silent=True)
    if not isinstance(body, dict):
        raise RequestError("a JSON object was expected, with Content-Type: application/json")
    return body


def of_trace(root: Blueprint, what: str) -> Callable[[Any], Any]:
    """Return a decorator that adds a view under both addresses of a read; `what` follows that of the trace."""

    def add(view: Any) -> Any:
        for prefix in OF_TRACE:
            root.add_url_rule(
                f"/v1{prefix}{what}", endpoint=f"{view.__name__}_{len(prefix)}", view_func=view, methods=["GET"]
            )
        return view

    return add
