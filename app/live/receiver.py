"""The collector's HTTP side behind its door: evidence from agents, health, and the numbers for Prometheus.

A server of its own on a port of its own: it knows no pages and opens no traces. Batches are the door's.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any, Final

import flask
import msgspec
from werkzeug.exceptions import HTTPException

from mycroft.app.live import metrics
from mycroft.app.live.state import LiveError, LiveState, safe_name
from mycroft.app.live.tokens import AgentToken, allowed
from mycroft.loaders.collector import Collector

LOG: Final = logging.getLogger("mycroft.collector")
MOST_FILE_BYTES: Final = 64 << 20
MOST_INCIDENT_BYTES: Final = 512 << 20
# A job of a million ranks has five hundred relays, each of which may bring some.
_MOST_FILES: Final = 1200


def incident_folder(data_dir: Path, incident: str) -> Path:
    """Return where the evidence of an incident lies: one folder per host in it."""
    return data_dir / "live" / "incidents" / safe_name(incident)


def bearer_of(header: str) -> str | None:
    """Return the token of an Authorization header; None: there is none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token else None


def create_receiver(collector: Collector, state: LiveState, *, tokens: tuple[AgentToken, ...] = ()) -> flask.Flask:
    """Make the application; `collector` has been started."""
    server = flask.Flask("mycroft.collector", static_folder=None)
    server.config["MAX_CONTENT_LENGTH"] = MOST_FILE_BYTES

    def admit(host: str) -> None:
        token = bearer_of(flask.request.headers.get("Authorization", ""))
        if not allowed(tokens, token, host):
            flask.abort(401 if token is None else 403, "this token may not speak for this host; see always-on.md")

    @server.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Any:  # pyright: ignore[reportUnusedFunction]
        return _say(error.description or error.name, error.code or 500)

    @server.errorhandler(LiveError)
    def _live(error: LiveError) -> Any:  # pyright: ignore[reportUnusedFunction]
        return _say(str(error), error.http_status)

    @server.errorhandler(Exception)
    def _bug(error: Exception) -> Any:  # pyright: ignore[reportUnusedFunction]
        LOG.exception("%s %s", flask.request.method, flask.request.path)
        return _say(f"internal error ({type(error).__name__}); the collector's log has the details", 500)

    @server.post("/api/v1/evidence")
    def _evidence() -> Any:  # pyright: ignore[reportUnusedFunction]
        request = state.request(flask.request.headers.get("X-Mycroft-Request", ""))
        admit(request.host)
        if request.ended is not None:
            return _say("this request has ended", 409)
        name = safe_name(flask.request.headers.get("X-Mycroft-Name", ""))
        known = state.evidence(request.incident)
        if len(known) >= _MOST_FILES or sum(row["size"] for row in known) > MOST_INCIDENT_BYTES:
            return _say("this incident has as much evidence as is kept", 413)
        folder = incident_folder(state.data_dir, request.incident) / safe_name(request.host)
        data = flask.request.get_data(cache=False)
        try:
            _write_through(folder, name, data)
        except OSError as error:
            return _say(f"the collector's disk does not take it ({error.strerror or error})", 507)
        state.arrived(request.incident, host=request.host, name=name, size=len(data))
        return "", 204

    @server.post("/api/v1/evidence/end")
    def _end() -> Any:  # pyright: ignore[reportUnusedFunction]
        request = state.request(flask.request.headers.get("X-Mycroft-Request", ""))
        admit(request.host)
        try:
            problems = msgspec.json.decode(flask.request.get_data(cache=False)[: 64 << 10], type=list[str])
        except (msgspec.DecodeError, UnicodeDecodeError):
            problems = ["the agent's list of problems could not be read"]
        state.end_request(request.request, [problem[:500] for problem in problems])
        return "", 204

    @server.get("/healthz")
    def _health() -> Any:  # pyright: ignore[reportUnusedFunction]
        return _say(collector.problem or "ok", 503 if collector.problem else 200)

    @server.get("/metrics")
    def _metrics() -> Any:  # pyright: ignore[reportUnusedFunction]
        # It names no host, rank or job: it may be read without a token wherever the port can be reached.
        text = metrics.render(metrics.of_collector(collector) + metrics.of_watch(state))
        return flask.Response(text, mimetype="text/plain; version=0.0.4")

    return server


def _write_through(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = folder / f".{name}.{os.getpid()}.{threading.get_ident()}.part"
    try:
        with part.open("wb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        part.replace(folder / name)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _say(text: str, status: int) -> flask.Response:
    return flask.Response(text + "\n", status, mimetype="text/plain")
