"""Share links: a random token that opens one trace for reading, until it expires or is revoked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mycroft.app.state import State, new_id, now
from mycroft.app.urls import Address, parse
from mycroft.errors import MycroftError

TOKEN_BYTES: Final = 16
NOTE_MAX: Final = 200

_INSERT: Final = """
INSERT INTO shares (share_id, token_hash, trace, target, note, created, expires)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_LIST: Final = """
SELECT share_id, trace, target, note, created, expires, revoked
FROM shares
WHERE trace = ?
ORDER BY created DESC
"""
_BY_HASH: Final = """
SELECT share_id, trace, target, note, created, expires, revoked
FROM shares
WHERE token_hash = ? AND revoked IS NULL AND expires > ?
"""
_REVOKE: Final = "UPDATE shares SET revoked = ? WHERE share_id = ? AND trace = ? AND revoked IS NULL"

_FORGET: Final = "DELETE FROM shares WHERE trace = ?"


class ShareError(MycroftError):
    """A share that cannot be made or found."""

    http_status = 404


@dataclass(frozen=True, slots=True)
class Share:
    """One share as it is listed; the token itself is shown once, when the share is made, and kept nowhere.

    Times are seconds since the epoch; `target` is the path, with its view, that the link leads to.
    """

    share_id: str
    trace: str
    target: str
    note: str
    created: float
    expires: float
    revoked: float | None


def _hash(token: str) -> str:
    # 128 random bits cannot be guessed from a plain hash, so no slow one is needed.
    return hashlib.sha256(token.encode()).hexdigest()


def create(state: State, *, trace: str, target: str, expiry_s: float, note: str = "") -> tuple[Share, str]:
    """Make a share of `trace` and return it with its token."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    created = now()
    share = Share(new_id(), trace, target, note[:NOTE_MAX], created, created + expiry_s, None)
    with state.connection() as connection:
        connection.execute(
            _INSERT, (share.share_id, _hash(token), trace, target, share.note, share.created, share.expires)
        )
    return share, token


def of_trace(state: State, trace: str) -> list[Share]:
    """Return all shares of a trace, newest first, the expired and revoked ones too."""
    with state.connection() as connection:
        return [Share(*row) for row in connection.execute(_LIST, (trace,))]


def trace_of(address: Address) -> str | None:
    """Return the trace whose shares open a page; a watched job is published as the trace of its name."""
    if address.page == "live_incident":
        return str(address.params["job"])
    return address.trace


def covers(target: str, *, trace: str) -> bool:
    """Say whether `target` is an address of a page of `trace` on this server: what a share may lead to."""
    parsed = parse(target)
    ours = target.startswith(("/t/", "/live/")) and target.isprintable()
    return ours and parsed.page is not None and trace_of(parsed) == trace


def find(state: State, token: str) -> Share | None:
    """Return the share that a token opens now; None: there is none, it has expired, or it was revoked."""
    with state.connection() as connection:
        row = connection.execute(_BY_HASH, (_hash(token), now())).fetchone()
    return None if row is None else Share(*row)


def traces_of(state: State, tokens: Iterable[str]) -> list[str]:
    """Return the traces that some tokens open now."""
    return [share.trace for token in tokens if token and (share := find(state, token)) is not None]


def revoke(state: State, *, trace: str, share_id: str) -> None:
    """End a share at once.

    Raises:
        ShareError: the trace has no such share, or it has ended already.
    """
    with state.connection() as connection:
        if connection.execute(_REVOKE, (now(), share_id, trace)).rowcount == 0:
            raise ShareError(f"share {share_id} of trace {trace} does not exist or has been revoked already")


def forget(state: State, trace: str) -> None:
    """Delete all shares of a trace that is deleted."""
    with state.connection() as connection:
        connection.execute(_FORGET, (trace,))
