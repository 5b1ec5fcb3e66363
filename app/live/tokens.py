"""Who may send batches: tokens of agents, from a file with one a line; none on loopback."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from mycroft.app.config import ConfigError

LEAST: int = 16


@dataclass(frozen=True, slots=True)
class AgentToken:
    """One token, as a hash, and the hosts that it may speak for (a pattern)."""

    digest: bytes
    hosts: str = "*"


def digest_of(token: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def read_tokens(path: str | Path) -> tuple[AgentToken, ...]:
    """Return the tokens of a file: `TOKEN [HOSTS]` a line, `#` begins a comment; `HOSTS` may hold `*` and `?`.

    Raises:
        ConfigError: if it cannot be read, holds none, or one that is too short.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the tokens of the agents cannot be read ({error})") from error
    tokens: list[AgentToken] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words[0]) < LEAST or len(words) > 2:
            raise ConfigError(f"{path}: line {number}: expected a token of at least {LEAST} characters and a pattern")
        tokens.append(AgentToken(digest_of(words[0]), words[1] if len(words) == 2 else "*"))
    if not tokens:
        raise ConfigError(f"{path}: holds no token; write one of at least {LEAST} characters into it")
    return tuple(tokens)


def allowed(tokens: tuple[AgentToken, ...], bearer: str | None, host: str) -> bool:
    """Whether who has `bearer` may speak for `host`; without tokens everybody may."""
    return not tokens or any(fnmatchcase(host, token.hosts) for token in _matching(tokens, bearer))


def is_known(tokens: tuple[AgentToken, ...], bearer: str | None) -> bool:
    """Whether who has `bearer` may speak for anybody: asked before it is known for whom he does."""
    return not tokens or bool(_matching(tokens, bearer))


def _matching(tokens: tuple[AgentToken, ...], bearer: str | None) -> list[AgentToken]:
    if bearer is None:
        return []
    digest = digest_of(bearer)
    # Every token is compared, so that time tells nothing.
    return [token for token in tokens if hmac.compare_digest(token.digest, digest)]
