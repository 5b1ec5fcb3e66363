"""Which rank a file is of, by its name: a dump does not say so itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

# Endings that people and tools add; what is left of the last piece of the path is the stem.
_ENDINGS: Final = re.compile(
    r"\.(?:pickle|pkl|json|jsonl|gz|zst|xz|bz2|bin|dump|dmp|txt|log|out|err|trace|fr)$", re.IGNORECASE
)
_DIGITS: Final = re.compile(r"\d+")
_MARKED: Final = re.compile(r"rank[-_=.]?(\d+)", re.IGNORECASE)
_SEPARATORS: Final = re.compile(r"[/!\\]")
# More is a time, a process id or a hash, not a rank.
MAX_RANK: Final = 4_000_000


def pieces(name: str) -> list[str]:
    """Return the path pieces of a logical name; the last one without its endings."""
    parts = [part for part in _SEPARATORS.split(name) if part]
    if not parts:
        return [""]
    stem = parts[-1]
    while (shorter := _ENDINGS.sub("", stem)) != stem and shorter:
        stem = shorter
    return [*parts[:-1], stem]


def _number(text: str) -> int | None:
    return int(text) if len(text) <= 7 and int(text) <= MAX_RANK else None


def _marked(parts: Sequence[str]) -> int | None:
    found = _MARKED.findall(parts[-1])
    return _number(found[-1]) if found else None


def _last(parts: Sequence[str]) -> int | None:
    found = _DIGITS.findall(parts[-1])
    return _number(found[-1]) if found else None


def _first(parts: Sequence[str]) -> int | None:
    found = _DIGITS.findall(parts[-1])
    return _number(found[0]) if found else None


def _parent_marked(parts: Sequence[str]) -> int | None:
    for part in reversed(parts[:-1]):
        if found := _MARKED.findall(part):
            return _number(found[-1])
    return None


def _parent_last(parts: Sequence[str]) -> int | None:
    for part in reversed(parts[:-1]):
        if found := _DIGITS.findall(part):
            return _number(found[-1])
    return None


# In order of preference where they tell equally many files apart.
_RULES: Final[tuple[Callable[[Sequence[str]], int | None], ...]] = (
    _marked,
    _last,
    _parent_marked,
    _parent_last,
    _first,
)


def candidates(name: str) -> list[int]:
    """Return the ranks that a name could mean, the likelier first."""
    parts = pieces(name)
    found = [value for rule in _RULES if (value := rule(parts)) is not None]
    return list(dict.fromkeys(found))


def ranks_of(names: Sequence[str]) -> list[int | None]:
    """Return the rank of each file: the number that tells files of one pattern apart.

    Files whose names differ only in numbers are one family. In a family the rank is the number after `rank`, or the
    last number of the stem, or one of the folder, whichever takes the most values; so `rank_3_20260302` is rank 3 and
    `rank_3/trace_1` is too. None where a name has no number.
    """
    families: dict[str, list[int]] = {}
    split = [pieces(name) for name in names]
    for i, parts in enumerate(split):
        families.setdefault(_DIGITS.sub("#", "/".join(parts)), []).append(i)
    ranks: list[int | None] = [None] * len(names)
    for family in families.values():
        best: list[int | None] = []
        most = 0
        for rule in _RULES:
            values = [rule(split[i]) for i in family]
            distinct = len({value for value in values if value is not None})
            if distinct > most:
                best, most = values, distinct
        for i, value in zip(family, best, strict=False):
            ranks[i] = value
    return ranks
