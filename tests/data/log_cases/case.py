"""What a written case is: files by name, and the truth about them."""

from __future__ import annotations

from typing import Any

Case = tuple[dict[str, str], dict[str, Any]]


def truth(
    title: str,
    category: str,
    *,
    ranks: tuple[int, ...] = (),
    hosts: tuple[str, ...] = (),
    mention: tuple[str, ...] = (),
    spare: tuple[int, ...] = (),
    spare_hosts: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return what `truth.json` holds."""
    made: dict[str, Any] = {
        "title": title,
        "root_cause": {"ranks": list(ranks), "hosts": list(hosts)},
        "category": category,
        "hang": category != "healthy",
        "must_mention": list(mention),
    }
    if spare or spare_hosts:
        made["must_not_blame"] = {"ranks": list(spare), "hosts": list(spare_hosts)}
    return made


def stamp(seconds: int, *, start: str = "09:10:00") -> str:
    """Return a time of day some seconds after `start`."""
    hour, minute, second = (int(part) for part in start.split(":"))
    total = hour * 3600 + minute * 60 + second + seconds
    return f"{total // 3600:02d}:{total // 60 % 60:02d}:{total % 60:02d}"
