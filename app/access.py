"""Who may see and change what: one function, `check`, asked for every API route, page and callback.

Three kinds of visitor exist. *Full*: the token (as a bearer header or the login cookie), a user that a trusted proxy
vouches for, or anybody on loopback when no access control is set. *Share*: a share token in its cookie; may read one
trace. Everybody else is nobody. `guard` installs the check for every request, so that a new route is closed until
it says otherwise.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, urlsplit

from flask import Flask, Request, Response, current_app, has_request_context, jsonify, redirect, request

from mycroft.app import shares
from mycroft.app.config import AppConfig
from mycroft.app.state import State
from mycroft.errors import MycroftError

SESSION_COOKIE: Final = "mycroft_session"
SHARE_COOKIE: Final = "mycroft_share"
WRITE_HEADER: Final = "X-Mycroft"
"""Header that every write through the API carries; a form of another site cannot send it."""
SHARES_IN_COOKIE: Final = 8

ANY: Final = "*"
"""In place of a trace: whoever may see anything at all. `*` is no name of a trace."""

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_ENVIRON_KEY: Final = "mycroft.grant"


class AccessError(MycroftError):
    """The visitor may not do this; `http_status` is 401 where logging in would help, else 403."""

    def __init__(self, message: str, *, http_status: int = 403) -> None:
        super().__init__(message)
        self.http_status = http_status


@dataclass(frozen=True, slots=True)
class Grant:
    """What a visitor may do. `traces` are those that shares open; `user` is who a trusted proxy says it is."""

    kind: Literal["full", "share", "none"]
    traces: frozenset[str] = frozenset()
    user: str | None = None

    @property
    def can_write(self) -> bool:
        """Whether uploads, shares and deletions are allowed."""
        return self.kind == "full"

    def can_read(self, trace: str | None) -> bool:
        """Whether `trace` may be read; None asks for what is of no single trace (the list, jobs, uploads)."""
        if self.kind == "full":
            return True
        if self.kind == "none" or trace is None:
            return False
        return trace == ANY or trace in self.traces


NOBODY: Final = Grant("none")


def session_value(token: str) -> str:
    """Return the login cookie of a token: derived, so that the cookie does not carry the token itself."""
    return hmac.new(token.encode(), b"mycroft session 1", hashlib.sha256).hexdigest()


def is_token(config: AppConfig, candidate: str) -> bool:
    """Compare with the configured token in constant time; False where none is configured."""
    return config.token is not None and hmac.compare_digest(candidate.encode(), config.token.encode())


def _has_full_credentials(config: AppConfig, asked: Request) -> bool:
    scheme, _, bearer = asked.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and is_token(config, bearer.strip()):
        return True
    cookie = asked.cookies.get(SESSION_COOKIE)
    if config.token is None or cookie is None:
        return False
    return hmac.compare_digest(cookie.encode(), session_value(config.token).encode())


def grant_of(config: AppConfig, state: State, asked: Request) -> Grant:
    """Return what the sender of a request may do.

    A share's cookie counts only where there are no full credentials. On an open loopback server it still narrows
    the visitor to that share, so that an opened link looks the same to its maker as to anybody else.
    """
    if _has_full_credentials(config, asked):
        return Grant("full")
    if config.trust_header is not None:
        user = asked.headers.get(config.trust_header, "").strip()
        if user:
            return Grant("full", user=user)
    opened = shares.traces_of(state, asked.cookies.get(SHARE_COOKIE, "").split("."))
    if opened:
        return Grant("share", traces=frozenset(opened))
    return NOBODY if config.has_access_control else Grant("full")


def grant_for(asked: Request) -> Grant:
    """Return what the sender of `asked` may do; worked out once a request."""
    grant = asked.environ.get(_ENVIRON_KEY)
    if grant is None:
        config, state = current_app.extensions["mycroft"]
        grant = asked.environ[_ENVIRON_KEY] = grant_of(config, state, asked)
    return grant


def check(asked: Request, trace: str | None, *, write: bool = False) -> Grant:
    """Return the visitor's grant if it covers reading (or writing) `trace`; None: what is of no single trace.

    Raises:
        AccessError: it does not.
    """
    grant = grant_for(asked)
    if grant.kind == "none":
        raise AccessError("log in first, or open a share link", http_status=401)
    if write and not grant.can_write:
        raise AccessError("a shared link is read-only")
    if not grant.can_read(trace):
        raise AccessError("this link does not cover what was asked for")
    return grant


def check_here(trace: str | None, *, write: bool = False) -> None:
    """Do as `check`, for code that runs with or without a request (the command line has full access)."""
    if has_request_context():
        check(request, trace, write=write)


def grant_here() -> Grant:
    """Return the grant of the request being served; without a request, full access."""
    return grant_for(request) if has_request_context() else Grant("full")


def check_origin(asked: Request, *, header: bool) -> None:
    """Refuse a write that another site made the browser send.

    Raises:
        AccessError: the Origin or Sec-Fetch-Site header names another site, or (with `header`) `X-Mycroft` is missing.
    """
    origin = asked.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != asked.host:
        raise AccessError(f"this write comes from another origin ({origin[:100]})")
    if asked.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        raise AccessError("this write comes from another site")
    if header and WRITE_HEADER not in asked.headers:
        raise AccessError(f"writes need the header {WRITE_HEADER}: 1")


def check_host(config: AppConfig, asked: Request) -> None:
    """On an open loopback server, refuse requests for another host name.

    A page of a stranger can point its own name at 127.0.0.1 and then read the answers; its name gives it away.

    Raises:
        AccessError: the Host header is no name of loopback.
    """
    if config.has_access_control:
        return
    host = urlsplit(f"//{asked.host}").hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass
    raise AccessError(f"this server answers to localhost only, not to {host[:100]}; see MYCROFT_TOKEN")


# Endpoints that anybody may call: the way in, and files that are the same for everybody.
PUBLIC_PREFIXES: Final = ("/assets/", "/_dash-component-suites/", "/_favicon.ico", "/s/", "/login", "/healthz")


def _is_public(path: str) -> bool:
    return any(path == prefix or (prefix.endswith("/") and path.startswith(prefix)) for prefix in PUBLIC_PREFIXES)


def refusal(error: AccessError) -> Response:
    """Return the answer to a visitor who may not: JSON for programs, the login page for people."""
    wants_page = request.method == "GET" and not request.path.startswith(("/api/", "/_dash-"))
    if error.http_status == 401 and wants_page:
        config, _ = current_app.extensions["mycroft"]
        if config.token is not None:
            target = request.full_path.rstrip("?")
            return redirect(f"/login?next={quote(target, safe='')}", code=303)  # type: ignore[return-value]
    answer = jsonify(error=str(error))
    answer.status_code = error.http_status
    return answer


def guard(server: Flask, config: AppConfig, state: State) -> None:
    """Ask `check` before every request of `server`; routes below `/api/` name their trace as `<trace>`."""
    server.extensions["mycroft"] = (config, state)

    @server.before_request
    def _ask() -> Response | None:  # pyright: ignore[reportUnusedFunction]
        try:
            check_host(config, request)
            is_write = request.method not in READS
            is_api = request.path.startswith("/api/")
            if is_write:
                check_origin(request, header=is_api)
            if _is_public(request.path):
                return None
            if is_api:
                check(request, (request.view_args or {}).get("trace"), write=is_write)
            else:
                check(request, ANY)
        except AccessError as error:
            return refusal(error)
        return None

    @server.errorhandler(AccessError)
    def _refuse(error: AccessError) -> Response:  # pyright: ignore[reportUnusedFunction]
        return refusal(error)
