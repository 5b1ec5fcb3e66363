"""What the live part is told: where its store lies, where agents connect, what is kept, who is alerted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mycroft.app.config import GIB, AppConfig, ConfigError
from mycroft.app.live.tokens import AgentToken, read_tokens

DEFAULT_PORT = 8060


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConfig:
    """Settings of collector and watch.

    `url`: address of the dashboard, for the links in alerts; empty: of a dashboard on this machine. `otlp`: where spans
    of incidents go; empty: nowhere. `upstream`: the collector that a relay tells of its ranks; empty: it is none.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token_file: str | None = None
    store_bytes: int = 20 * GIB
    segment_s: float = 10.0
    keep_s: dict[str, float] = field(default_factory=lambda: dict[str, float]())
    alerts_file: str | None = None
    url: str = ""
    otlp: str = ""
    window_s: float = 600.0
    evidence_hosts: int = 4
    upstream: str = ""
    upstream_token_file: str | None = None
    relay_name: str = ""
    summary_s: float = 10.0

    @property
    def store_dir(self) -> Path:
        """Where the collector keeps what agents send."""
        return self.data_dir / "live" / "store"

    def tokens(self) -> tuple[AgentToken, ...]:
        """Return the tokens of agents.

        Raises:
            ConfigError: the file cannot be used, or there is none and others than this machine can reach the port.
        """
        if self.token_file is not None:
            return read_tokens(self.token_file)
        if not AppConfig(data_dir=self.data_dir, host=self.host).is_loopback:
            raise ConfigError(
                f"refusing to collect on {self.host}: anybody who reaches the port could make up traces. Give agents "
                "a token with --agent-tokens FILE, or stay on 127.0.0.1"
            )
        return ()
