"""The web application: `create_app` puts access, API, pages and cache together; nothing happens at import."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import dash
import flask
from dash import Dash, Input, Output, State, html
from dash.development.base_component import Component
from werkzeug.exceptions import HTTPException

import mycroft
from mycroft.app import access, api, compression, login, urls
from mycroft.app.config import AppConfig
from mycroft.app.fleet_history import FleetHistory
from mycroft.app.pages import PAGES, PageContext
from mycroft.app.pages import shell as frame
from mycroft.app.queries import Queries, UnknownTraceError, make_cache, queries_of
from mycroft.app.recognition import format_of
from mycroft.app.state import State as StateFile
from mycroft.app.uploads import Uploads
from mycroft.errors import MycroftError

LOG: Final = logging.getLogger("mycroft.app")
TITLE: Final = "Mycroft"

__all__ = ["create_app", "queries_of"]


def secret_key(data_dir: Path) -> bytes:
    """Return the key that signs cookies: random, made once per data folder, readable by its owner only."""
    path = data_dir / "secret.key"
    if not path.exists():
        made = data_dir / f"secret.key.{secrets.token_hex(8)}"
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(secrets.token_bytes(32))
        # The name appears with its content or not at all; of processes that start together one wins.
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
    return path.read_bytes()


def content_security_policy(app: Dash) -> str:
    """Return the policy of every page: nothing from any other origin, no inline script but the two that Dash writes.

    Styles may be inline because the component libraries set them on elements.
    """
    hashes = " ".join(app.csp_hashes())
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' {hashes}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def _route(app: Dash, config: AppConfig) -> None:
    """Install the one router: it parses the path, and lays out the page on the server."""
    pages = {page.name: page for page in PAGES}
    unknown = set(pages) - {name for name, _ in urls.TEMPLATES}
    if unknown:
        raise ValueError(f"pages without an address in urls.TEMPLATES: {sorted(unknown)}")

    def lay_out(address: urls.Address) -> tuple[Component, str]:
        page = pages.get(address.page or "")
        if page is None:
            return frame.message("No such page", "This address belongs to no page of this server."), TITLE
        context = PageContext(
            config=config,
            queries=queries_of(app),
            address=address,
            grant=access.grant_for(flask.request),
        )
        title = page.title(context, **address.params) if page.title else page.name
        return page.layout(context, **address.params), f"{title} – {TITLE}"

    # State, not Input, for the query: a change of the view must not rebuild the page (ui.md section 2).
    @app.callback(
        Output(frame.PAGE_ID, "children"),
        Output(frame.TITLE_ID, "data"),
        Input(frame.URL_ID, "pathname"),
        State(frame.URL_ID, "search"),
    )
    def show_page(pathname: str | None, search: str | None) -> tuple[Component, str]:  # pyright: ignore[reportUnusedFunction]
        address = urls.parse((pathname or "/") + (search or ""))
        try:
            return lay_out(address)
        except access.AccessError as error:
            return frame.message("Not yours to see", f"{error}."), TITLE
        except UnknownTraceError as error:
            newest = None
            if error.newest is not None:
                newest = urls.build(replace(address, view={**address.view, "g": error.newest}))
            return frame.message("Not here", f"{error}.", newest=newest), TITLE
        except MycroftError as error:
            return frame.message("Cannot be shown", f"{error}."), TITLE
        except Exception as error:
            # A page that fails says so in its place; left to Dash, the page before would stay under the new address.
            LOG.exception("page %s", address.page)
            text = f"This page could not be made ({type(error).__name__}). The log of the server has the details."
            return frame.message("Something broke", text), TITLE


_SET_TITLE: Final = (
    "function(title) { if (title) { document.title = title; } return window.dash_clientside.no_update; }"
)


def _answer_errors(server: flask.Flask) -> None:
    """Answer what goes wrong with JSON below /api/, and never with a traceback."""

    @server.errorhandler(MycroftError)
    def _told(error: MycroftError) -> Any:  # pyright: ignore[reportUnusedFunction]
        return flask.jsonify(error=str(error)), getattr(error, "http_status", 400)

    @server.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Any:  # pyright: ignore[reportUnusedFunction]
        if flask.request.path.startswith("/api/"):
            return flask.jsonify(error=error.description or error.name), error.code or 500
        return error

    @server.errorhandler(Exception)
    def _bug(error: Exception) -> Any:  # pyright: ignore[reportUnusedFunction]
        LOG.exception("%s %s", flask.request.method, flask.request.path)
        return flask.jsonify(error=f"internal error ({type(error).__name__}); the server's log has the details"), 500


def _time_and_protect(server: flask.Flask, policy: str) -> None:
    """Add the security headers, and Server-Timing below /api/, to every answer."""

    @server.before_request
    def _start() -> None:  # pyright: ignore[reportUnusedFunction]
        flask.g.mycroft_start = time.perf_counter()

    @server.after_request
    def _finish(response: flask.Response) -> flask.Response:  # pyright: ignore[reportUnusedFunction]
        headers = response.headers
        headers.setdefault("Content-Security-Policy", policy)
        headers.setdefault("X-Content-Type-Options", "nosniff")
        headers.setdefault("X-Frame-Options", "DENY")
        # The path of a share link is a secret; and under no-referrer a form's own Origin would be `null`.
        secret_path = flask.request.path.startswith("/s/")
        headers.setdefault("Referrer-Policy", "no-referrer" if secret_path else "same-origin")
        headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
        headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        path = flask.request.path
        if path.startswith(("/api/", "/_dash-update-component")):
            # What an answer says depends on who asks: no shared cache may keep it.
            headers.setdefault("Cache-Control", "private, no-store")
            started = flask.g.get("mycroft_start")
            if started is not None:
                headers["Server-Timing"] = f"app;dur={(time.perf_counter() - started) * 1e3:.2f}"
        return response


def create_app(config: AppConfig) -> Dash:
    """Make the whole application for one data folder.

    The factory ends with a request for `/` inside the process: Dash 4.4 prepares itself during the first request and
    answers 500 to others that come meanwhile.
    """
    state = StateFile(config.data_dir)
    server = flask.Flask("mycroft.app", static_folder=None)
    server.secret_key = secret_key(config.data_dir)
    server.json.sort_keys = False  # pyright: ignore[reportAttributeAccessIssue]
    cache = make_cache(server, config)
    server.extensions["mycroft_queries"] = Queries(config, cache, state)
    server.extensions["mycroft_fleet"] = FleetHistory(config)
    server.extensions["mycroft_uploads"] = Uploads(config, state, sniff=format_of)
    access.guard(server, config, state)
    _answer_errors(server)
    server.register_blueprint(login.blueprint())
    api.register(server)

    app = dash.Dash(
        "mycroft.app",
        server=server,  # pyright: ignore[reportArgumentType]
        assets_folder=str(Path(mycroft.__file__).parent / "assets"),
        # Modules are imported by assets/main.mjs; as scripts of their own they would run twice.
        assets_path_ignore=["^modules$"],
        pages_folder="",
        use_pages=False,
        serve_locally=True,
        suppress_callback_exceptions=True,
        title=TITLE,
        update_title="",
        index_string=frame.INDEX,
        add_log_handler=False,
        enable_mcp=False,
    )
    app.layout = html.Div(frame.shell())
    _route(app, config)
    app.clientside_callback(_SET_TITLE, Output(frame.TITLE_ID, "id"), Input(frame.TITLE_ID, "data"))
    for page in PAGES:
        if page.register_callbacks is not None:
            page.register_callbacks(app)
    _time_and_protect(server, content_security_policy(app))
    compression.install(server)

    _warm_up(server, config)
    return app


def _warm_up(server: flask.Flask, config: AppConfig) -> None:
    headers = {"Host": "localhost"}
    if config.token is not None:
        headers["Authorization"] = f"Bearer {config.token}"
    elif config.trust_header is not None:
        headers[config.trust_header] = "warm-up"
    answer = server.test_client().get("/", headers=headers)
    if answer.status_code != 200:
        raise RuntimeError(f"the first request for / was answered {answer.status}")
