"""The fault that somebody put into a job on purpose, as its `truth.json` tells; the analysis never reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from mycroft.loaders.bundle import NamedFile

FILE: Final = "truth.json"
BYTES_MAX: Final = 1 << 20
_TEXT_MAX: Final = 500
_LIST_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """What was done. `outcome` is the word of the scoring: right, wrong, abstained or missed."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    category: str = ""
    status: str = ""
    explanation: str = ""
    seed: int | None = None
    at_ns: int | None = None
    outcome: str = ""

    def truth(self) -> dict[str, Any]:
        """Return it as the scoring reads truths."""
        return {
            "root_cause": {"ranks": list(self.ranks), "hosts": list(self.hosts)},
            "category": self.category,
            "hang": self.status in ("hang", "crash"),
        }

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def truth_of(sources: Sequence[str | Path | NamedFile]) -> dict[str, Any] | None:
    """Return the truth that lies beside the evidence: in a folder, or among files that were handed over.

    None where there is none, or no JSON object of a sensible size. Archives are not looked into.
    """
    for source in sources:
        if isinstance(source, NamedFile) and source.name != FILE:
            continue
        path = source.path if isinstance(source, NamedFile) else Path(source) / FILE
        if not path.is_file() or path.stat().st_size > BYTES_MAX:
            continue
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def injected_of(truth: Mapping[str, Any], *, outcome: str = "") -> Injected:
    """Read a truth, whatever it holds: what has another type than it should is left out, long texts are cut."""
    cause = truth.get("root_cause")
    cause = cause if isinstance(cause, dict) else {}
    return Injected(
        ranks=tuple(rank for rank in _list(cause.get("ranks")) if _whole(rank)),
        hosts=tuple(host[:_TEXT_MAX] for host in _list(cause.get("hosts")) if isinstance(host, str)),
        category=_text(truth.get("category")),
        status=_text(truth.get("status")),
        explanation=_text(truth.get("explanation")),
        seed=_number(truth.get("seed")),
        at_ns=_number(truth.get("injected_ns")),
        outcome=_text(outcome),
    )


def from_json(values: Any) -> Injected | None:
    """Read what `Injected.to_json` wrote and the catalogue kept; None where there is nothing."""
    if not isinstance(values, dict):
        return None
    values = {**values, "root_cause": values, "injected_ns": values.get("at_ns")}
    return injected_of(values, outcome=_text(values.get("outcome")))


def _list(value: Any) -> list[Any]:
    return value[:_LIST_MAX] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value[:_TEXT_MAX] if isinstance(value, str) else ""


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None
