"""The ways in: the login form, the share links, and the way out again. Plain pages without a script."""

from __future__ import annotations

import html
import threading
import time
from collections import deque
from typing import Final

from flask import Blueprint, Response, current_app, make_response, redirect, request

from mycroft.app import access, shares

FAILURES_PER_MINUTE: Final = 30
SESSION_S: Final = 30 * 24 * 3600

_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} – Mycroft</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 12vh auto; padding: 0 1rem; }}
input, button {{ font: inherit; padding: .4rem .6rem; width: 100%; box-sizing: border-box; margin-top: .5rem; }}
[role=alert] {{ color: light-dark(#b34700, #ff8a3d); }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""
_FORM: Final = """<form method="post" action="/login">
{alert}
<input type="hidden" name="next" value="{target}">
<label>Access token
<input type="password" name="token" required autofocus autocomplete="current-password"></label>
<button>Open</button>
</form>
"""


class _Failures:
    """Counts wrong tokens of the last minute in this process: a guess at a time is all that anybody gets."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=FAILURES_PER_MINUTE)
        self._lock = threading.Lock()

    def add(self) -> None:
        with self._lock:
            self._times.append(time.monotonic())

    @property
    def too_many(self) -> bool:
        with self._lock:
            return len(self._times) == FAILURES_PER_MINUTE and time.monotonic() - self._times[0] < 60


def page(title: str, body: str, status: int = 200) -> Response:
    """Return a small page; `body` is HTML, `title` is text."""
    answer = make_response(_PAGE.format(title=html.escape(title), body=body), status)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def local_target(target: str) -> str:
    """Return a path of this server: whatever could lead a browser elsewhere becomes `/`."""
    safe = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if safe else "/"


def _set_cookie(answer: Response, name: str, value: str, *, max_age_s: int) -> None:
    answer.set_cookie(name, value, max_age=max_age_s, httponly=True, samesite="Lax", secure=request.is_secure, path="/")


def blueprint() -> Blueprint:
    """Return the routes `/login`, `/logout`, `/s/<token>` and `/healthz`."""
    ways = Blueprint("login", __name__)
    failures = _Failures()

    @ways.get("/healthz")
    def healthz() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response("ok\n", mimetype="text/plain")

    @ways.get("/login")
    def show_form() -> Response:  # pyright: ignore[reportUnusedFunction]
        config, _ = current_app.extensions["mycroft"]
        target = local_target(request.args.get("next", "/"))
        if config.token is None:
            return redirect(target, code=303)  # pyright: ignore[reportReturnType]
        return page("Mycroft", _FORM.format(alert="", target=html.escape(target, quote=True)))

    @ways.post("/login")
    def log_in() -> Response:  # pyright: ignore[reportUnusedFunction]
        config, _ = current_app.extensions["mycroft"]
        target = local_target(request.form.get("next", "/"))
        if failures.too_many:
            return page("Too many attempts", "<p role='alert'>Wait a minute, then try again.</p>", 429)
        if not access.is_token(config, request.form.get("token", "").strip()):
            failures.add()
            alert = '<p role="alert">That is not the access token of this server.</p>'
            return page("Mycroft", _FORM.format(alert=alert, target=html.escape(target, quote=True)), 401)
        answer: Response = redirect(target, code=303)  # pyright: ignore[reportAssignmentType]
        _set_cookie(answer, access.SESSION_COOKIE, access.session_value(config.token), max_age_s=SESSION_S)
        return answer

    @ways.post("/logout")
    def log_out() -> Response:  # pyright: ignore[reportUnusedFunction]
        answer: Response = redirect("/", code=303)  # pyright: ignore[reportAssignmentType]
        answer.delete_cookie(access.SESSION_COOKIE, path="/")
        answer.delete_cookie(access.SHARE_COOKIE, path="/")
        return answer

    @ways.get("/s/<token>")
    def open_share(token: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        _, state = current_app.extensions["mycroft"]
        share = shares.find(state, token)
        if share is None:
            text = "<p>This link has expired or was revoked. Ask whoever sent it for a new one.</p>"
            return page("The link is no longer valid", text, 410)
        kept = [old for old in request.cookies.get(access.SHARE_COOKIE, "").split(".") if old and old != token]
        answer: Response = redirect(local_target(share.target), code=303)  # pyright: ignore[reportAssignmentType]
        tokens = ".".join([token, *kept][: access.SHARES_IN_COOKIE])
        _set_cookie(answer, access.SHARE_COOKIE, tokens, max_age_s=max(1, int(share.expires - share.created)))
        return answer

    @ways.get("/s/leave")
    def leave_share() -> Response:  # pyright: ignore[reportUnusedFunction]
        answer: Response = redirect("/", code=303)  # pyright: ignore[reportAssignmentType]
        answer.delete_cookie(access.SHARE_COOKIE, path="/")
        return answer

    return ways
