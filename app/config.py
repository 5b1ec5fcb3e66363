"""What the server and the commands are told: flags first, then environment, then defaults."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mycroft.errors import MycroftError

MIB = 1024 * 1024
GIB = 1024 * MIB


class ConfigError(MycroftError):
    """A setting that cannot be used: names it, says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """Everything that `create_app`, the ingest process and the commands need to know.

    `token` is the secret that opens everything; None: whoever reaches the port has full access, which is allowed on
    loopback only. `trust_header` names the header in which a proxy in front passes the name of the user it has
    checked. `store` is the address of the fleet's store that history is read from; None: that of the collector in
    `data_dir`. Sizes are bytes, times seconds.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8050
    token: str | None = None
    trust_header: str | None = None
    store: str | None = None
    web_workers: int = 2
    web_threads: int = 8
    chunk_bytes: int = 8 * MIB
    upload_quota_bytes: int = 64 * GIB
    upload_files_max: int = 200_000
    upload_expiry_s: int = 24 * 3600
    free_space_reserve_bytes: int = 512 * MIB
    share_expiry_s: int = 14 * 24 * 3600
    job_lease_s: int = 30
    sql_rows_max: int = 10_000
    sql_timeout_s: float = 10.0

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the port."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def has_access_control(self) -> bool:
        """Whether somebody is asked who they are."""
        return self.token is not None or self.trust_header is not None

    def check_binding(self) -> None:
        """Refuse to listen where strangers can reach a server that asks nobody who they are.

        Raises:
            ConfigError: the address is not loopback, and neither a token nor a trusted header is set.
        """
        if not self.is_loopback and not self.has_access_control:
            raise ConfigError(
                f"refusing to listen on {self.host}: traces name hosts, paths and code, and anybody who reaches the "
                "port could read and delete them. Set MYCROFT_TOKEN or --token-file FILE, or --trust-proxy-header "
                "NAME behind a proxy that checks users, or stay on 127.0.0.1"
            )


def default_data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `$MYCROFT_DATA`, else `mycroft` in the user's data folder (`$XDG_DATA_HOME`, `~/.local/share`)."""
    if environ.get("MYCROFT_DATA"):
        return Path(environ["MYCROFT_DATA"]).expanduser()
    base = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "mycroft"


def read_token(token_file: str | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the access token of `--token-file`, else of `$MYCROFT_TOKEN`, else None.

    Raises:
        ConfigError: the file cannot be read, or the token is shorter than 16 characters.
    """
    if token_file is not None:
        try:
            token = Path(token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{token_file}: the token cannot be read ({error})") from error
        origin = token_file
    else:
        token = environ.get("MYCROFT_TOKEN", "").strip()
        origin = "MYCROFT_TOKEN"
        if not token:
            return None
    if len(token) < 16:
        raise ConfigError(f"{origin}: a token needs at least 16 characters, this one has {len(token)}")
    return token
