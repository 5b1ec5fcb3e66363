"""Takes names that identify a site out of a diagnosis: hosts, addresses, directories. Equal names stay equal."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Final

_ADDRESS: Final = re.compile(
    r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
)
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")
# An absolute path of at least two parts; the last part stays, because the line of code is what a diagnosis is about.
_PATH: Final = re.compile(r"(?<![\w/.~-])(~?/(?:[^\s/:\"'<>|,;()\[\]{}]+/)+)([^\s/:\"'<>|,;()\[\]{}]*)")
_KEPT_HOSTS: Final = frozenset({"localhost", "unknown", "host", "none"})


class Redactor:
    """Replaces names in text, the same name always by the same stand-in, whatever the case it is written in.

    Args:
        hosts: every name of a host that the evidence knows; of `a.b.c` its first label is taken as a name, too.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts: dict[str, str] = {}
        for host in sorted({host.strip() for host in hosts if host.strip()}, key=lambda name: (name.lower(), name)):
            short = host.lower().split(".")[0]
            if host.lower() in _KEPT_HOSTS or short.isdigit() or len(short) < 2 or _ADDRESS.fullmatch(host):
                continue
            stand_in = self._hosts.setdefault(short, f"host-{len(set(self._hosts.values())) + 1}")
            self._hosts[host.lower()] = stand_in
        # The longest first, so that a name does not hide in a longer one.
        names = sorted(self._hosts, key=len, reverse=True)
        listed = "|".join(re.escape(name) for name in names)
        self._host = re.compile(rf"(?<![\w-])(?:{listed})(?![A-Za-z0-9])", re.IGNORECASE) if names else None
        self._numbers: dict[str, dict[str, str]] = {}

    def _number(self, kind: str, value: str) -> str:
        known = self._numbers.setdefault(kind, {})
        return known.setdefault(value, f"{kind}-{len(known) + 1}")

    def text(self, value: str) -> str:
        """Return `value` with hosts as `host-1`, addresses as `address-1`, mail as `user-1`, directories as `dir-1`."""
        value = _MAIL.sub(lambda match: self._number("user", match[0].lower()), value)
        value = _PATH.sub(lambda match: f"/{self._number('dir', match[1])}/{match[2]}", value)
        if self._host is not None:
            value = self._host.sub(lambda match: self._hosts[match[0].lower()], value)
        return _ADDRESS.sub(self._address, value)

    def line(self, value: str | None) -> str | None:
        """Return a line as `text` does; None stays."""
        return None if value is None else self.text(value)

    def _address(self, match: re.Match[str]) -> str:
        found = match[0]
        try:
            # Times of day (04:11:09) and PCI bus ids (0000:3b:00) have the look and fail here.
            address = ipaddress.ip_address(found)
        except ValueError:
            return found
        if address.is_loopback or address.is_unspecified:
            return found
        return self._number("address", str(address))

    def tree(self, value: Any) -> Any:
        """Return a JSON-like value with every text in it replaced; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.tree(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value
