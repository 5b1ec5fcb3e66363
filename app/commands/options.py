"""Options that several verbs share, and what they mean."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mycroft.app.config import GIB, AppConfig, ConfigError, default_data_dir, read_token
from mycroft.errors import MycroftError

if TYPE_CHECKING:
    from mycroft.app.live.config import LiveConfig

STDIN = "-"
PATH_HELP = "a file, a folder or an archive, of any mix of formats; - reads standard input"


class PathError(MycroftError):
    """A path of the command line that cannot be used."""


def add_paths(parser: argparse.ArgumentParser, *, nargs: str = "+") -> None:
    """Add the paths of the evidence."""
    parser.add_argument("paths", metavar="PATH", nargs=nargs, help=PATH_HELP)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the folder where traces are kept."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder of the loaded traces (default: $MYCROFT_DATA, else the user's data folder)",
    )


def add_serving(parser: argparse.ArgumentParser) -> None:
    """Add how and to whom the server answers."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port, default=8050, help="port, 0 for a free one (default: %(default)s)")
    parser.add_argument("--token-file", metavar="FILE", help="file with the access token (or set $MYCROFT_TOKEN)")
    parser.add_argument(
        "--trust-proxy-header",
        metavar="NAME",
        help="header in which the proxy in front names the user it has checked; only behind such a proxy",
    )
    parser.add_argument("--workers", type=_positive, default=2, help="web processes (default: %(default)s)")
    parser.add_argument("--threads", type=_positive, default=8, help="threads of each (default: %(default)s)")


def add_collecting(parser: argparse.ArgumentParser, *, prefix: str = "collect-") -> None:
    """Add where agents connect and what is kept; `prefix` tells its options from those of the dashboard."""
    parser.add_argument(
        f"--{prefix}host", dest="collect_host", default="127.0.0.1", help="address for agents (default: %(default)s)"
    )
    parser.add_argument(
        f"--{prefix}port", dest="collect_port", type=port, default=8060, help="port for agents (default: %(default)s)"
    )
    parser.add_argument("--agent-tokens", metavar="FILE", help="tokens of agents, one a line: TOKEN [HOST PATTERN]")
    parser.add_argument(
        "--keep-gb", metavar="N", type=count, default=20, help="GiB of segments; the oldest go first (%(default)s)"
    )
    parser.add_argument(
        "--keep",
        metavar="TABLE=DAYS",
        type=_kept,
        action="append",
        help="how long the rows of a table are kept, may be repeated (state and flow 1 day, op 7, minutes 365, …)",
    )
    parser.add_argument(
        "--segment-seconds", metavar="S", type=seconds, default=10.0, help="seconds of one segment (%(default)s)"
    )


def add_watching(parser: argparse.ArgumentParser) -> None:
    """Add who is alerted."""
    parser.add_argument("--alerts", metavar="FILE", help="TOML file of the targets of alerts")
    parser.add_argument("--url", help="address of the dashboard, for the links in alerts (http://localhost:8050)")
    parser.add_argument("--otlp", metavar="URL", help="OTLP/HTTP receiver of incidents as spans, as http://host:4318")


def live_config(arguments: argparse.Namespace) -> LiveConfig:
    """Return the settings of the live part from the options of `add_collecting`, `add_watching` and `add_data`."""
    from mycroft.app.live.config import LiveConfig

    given = {
        "host": getattr(arguments, "collect_host", None),
        "port": getattr(arguments, "collect_port", None),
        "token_file": getattr(arguments, "agent_tokens", None),
        "alerts_file": getattr(arguments, "alerts", None),
        "url": getattr(arguments, "url", None),
        "otlp": getattr(arguments, "otlp", None),
        "segment_s": getattr(arguments, "segment_seconds", None),
        "upstream": getattr(arguments, "upstream", None),
        "upstream_token_file": getattr(arguments, "upstream_token_file", None),
        "relay_name": getattr(arguments, "relay_name", None),
        "summary_s": getattr(arguments, "summary_seconds", None),
    }
    keep = getattr(arguments, "keep_gb", None)
    return LiveConfig(
        data_dir=data_dir(arguments),
        **{name: value for name, value in given.items() if value is not None},
        **({} if keep is None else {"store_bytes": keep * GIB}),
        keep_s=dict(getattr(arguments, "keep", None) or ()),
    )


def _kept(text: str) -> tuple[str, float]:
    """Return a table and the seconds for which its rows are kept."""
    from mycroft.loaders.collector.retention import DAY_S, KEEP_S

    table, separator, days = text.partition("=")
    if not separator or table not in KEEP_S:
        raise argparse.ArgumentTypeError(f"{text}: expected TABLE=DAYS with a table of {', '.join(sorted(KEEP_S))}")
    return table, seconds(days) * DAY_S


def port(text: str) -> int:
    """Read the number of a port; 0: any that is free."""
    if text.isascii() and text.isdigit() and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text}: a port is a number from 0 to 65535")


def _positive(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 256:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text}: a number from 1 to 256 was expected")


def count(text: str) -> int:
    """Read a number of at least 1."""
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 10**12:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text}: a number of at least 1 was expected")


def seconds(text: str) -> float:
    """Read a time above zero, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0 < value < 1e6:
        return value
    raise argparse.ArgumentTypeError(f"{text}: a number of seconds above 0 was expected")


def positive_ranks(text: str) -> int:
    """Read a number of ranks."""
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 2**31:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text}: a number of ranks, at least 1, was expected")


def data_dir(arguments: argparse.Namespace) -> Path:
    """Return the folder of the loaded traces; created where it is missing.

    Raises:
        ConfigError: it cannot be created or written to.
    """
    folder = Path(arguments.data).expanduser() if arguments.data else default_data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be used for traces ({error.strerror}); try --data DIR") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder}: cannot be written to; try --data DIR")
    return folder


def data_dir_if_any(arguments: argparse.Namespace) -> Path:
    """Return the folder of the loaded traces for reading; it may be missing."""
    return Path(arguments.data).expanduser() if arguments.data else default_data_dir()


def app_config(arguments: argparse.Namespace) -> AppConfig:
    """Return the server's settings from the options of `add_serving` and `add_data`."""
    config = AppConfig(
        data_dir=data_dir(arguments),
        host=arguments.host,
        port=arguments.port,
        token=read_token(arguments.token_file),
        trust_header=arguments.trust_proxy_header,
        store=_store(arguments),
        web_workers=arguments.workers,
        web_threads=arguments.threads,
    )
    config.check_binding()
    return config


def _store(arguments: argparse.Namespace) -> str | None:
    """Return the address of the store that is given, if one is.

    Raises:
        PlaceError: there is no such kind of place, or what it needs is not installed.
    """
    url = getattr(arguments, "store", None)
    if not url:
        return None
    from mycroft.loaders.fleet import open_place

    # Now, not when somebody opens the page. That it can be reached is not asked: it may come back.
    open_place(url)
    # The server's processes may run in another folder.
    return url if "://" in url else str(Path(url).expanduser().absolute())


def evidence(paths: Sequence[str]) -> tuple[list[str], str]:
    """Return what to load and what to call it: each path must exist, `-` is standard input.

    Raises:
        PathError: a path does not exist, or standard input is named twice or is a terminal.
    """
    if paths.count(STDIN) > 1:
        raise PathError("- can be given only once")
    for text in paths:
        if text == STDIN:
            if sys.stdin.isatty():
                raise PathError("-: standard input is a terminal; pipe the evidence into it")
        elif not Path(text).exists():
            raise PathError(f"{text}: no such file or folder")
    first = "stdin" if paths[0] == STDIN else Path(paths[0]).resolve().name or paths[0]
    return list(paths), first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"
