"""Text pasted from a terminal or a viewer: lines broken at a fixed width, put together again.

A terminal breaks in the middle of words: many lines have exactly the same, greatest length, and the blank at the end
of a piece is real. A viewer that wraps at words takes the blank away: no line is longer than a width that many nearly
reach. Both are tried only on text in which a known message is torn. The reader keeps both readings, so a file that
only looks broken loses nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mycroft.loaders.text.wrappers import Peeler

_GoesOn = Callable[[str, str], bool]

_MAX_LINES: Final = 400_000
_MIN_WIDTH: Final = 40
_MAX_WIDTH: Final = 400
_LEAST: Final = 3
_MAX_PIECES: Final = 64
_MAX_DEPTH: Final = 4
# Part of the lines that must have a prefix for it to be a collector's.
_MOST: Final = 0.8
# How far below the width a line may end that was wrapped at a word.
_WORD: Final = 28

# Messages that are long enough to be broken, by their beginnings.
_OPENER: Final = re.compile(
    r"ProcessGroup\w*CCL|WorkNCCL\(|\[PG |Watchdog caught|torch[./]distributed|NCCL (?:INFO|WARN)|exitcode"
    r"|Received a dump"
)
# The beginnings of a message of its own; what is wrapped at words goes on until the next one.
_START: Final = re.compile(
    r"\s{0,16}(?:\[rank\d+\]:|\[?[IWEF](?:\d{3,4} \d\d:| \w+\.cpp)|\[\d{4}-\d\d-\d\d|\d{4}-\d\d-\d\d[ T]"
    r"|[\w.-]+:\d+:\d+ \[|\[[a-z]+\d+\]:"
    r"|(?:WARNING|ERROR|INFO):|srun: |Traceback|  File \"|\[\d+\]:|Root Cause|Failures:|[-=]{8,})"
)
_OPENER_BYTES: Final = re.compile(_OPENER.pattern.encode())
_TORN_BYTES: Final = re.compile(
    rb"Watchdog caught(?![^\n]*before timing out)|WorkNCCL\((?![^\n]*\))|detected by watchdog at(?![^\n]*completed)"
    rb"|failed \(exitcode(?![^\n]*of )"
)
_TORN: Final = re.compile(
    r"Watchdog caught(?!.*before timing out)|WorkNCCL\((?!.*\))|detected by watchdog at(?!.*completed)"
)


def looks_broken(lengths: Sequence[int], content: bytes) -> bool:
    """Say cheaply whether a text may be a paste: a message is torn, or many lines have the same greatest length.

    `lengths` counts the lines by their length in bytes, the last entry all longer ones.
    """
    if _TORN_BYTES.search(content):
        return True
    if not _OPENER_BYTES.search(content):
        return False
    used = [length for length, count in enumerate(lengths) if count]
    greatest = used[-1] if used else 0
    return _MIN_WIDTH <= greatest <= _MAX_WIDTH and lengths[greatest] >= max(5, sum(lengths) // 10)


@dataclass(frozen=True, slots=True)
class Piece:
    """A line as the scanner hands it out: number in the file, text, and what its containers said."""

    number: int
    text: str
    meta: str


def rejoined(pieces: Sequence[Piece], peeler: Peeler) -> list[list[Piece]]:
    """Return ways to put the lines together, the likeliest first; each line has the number of its first piece.

    None of them is known to be right: the caller reads them and keeps the one that says more.
    """
    if not 3 <= len(pieces) <= _MAX_LINES:
        return []
    # The prefixes of collectors are put on every piece; those of the program are part of the text that was broken.
    # Which is which is not known: every depth at which most lines have a prefix is tried.
    ends = [peeler.ends(piece.text) for piece in pieces]
    found: list[list[Piece]] = []
    for depth in range(_MAX_DEPTH + 1):
        if depth and sum(1 for one in ends if len(one) >= depth) < _MOST * len(pieces):
            break
        parts = [_part(piece, one, depth) for piece, one in zip(pieces, ends, strict=True)]
        for way in (_hard, _at_words):
            joined = way(parts)
            if joined is not None and joined not in found:
                found.append(joined)
    return found


@dataclass(frozen=True, slots=True)
class _Part:
    piece: Piece
    prefix: str
    rest: str


def _part(piece: Piece, ends: Sequence[int], depth: int) -> _Part:
    at = ends[depth - 1] if 0 < depth <= len(ends) else 0
    # An outer prefix that ends in a JSON record has positions of the text inside.
    at = at if at <= len(piece.text) else 0
    return _Part(piece, piece.text[:at], piece.text[at:])


def _hard(parts: list[_Part]) -> list[Piece] | None:
    lengths = Counter(len(part.rest) for part in parts)
    width = max(lengths)
    if not (_MIN_WIDTH <= width <= _MAX_WIDTH and lengths[width] >= _LEAST):
        return None
    if not any(len(part.rest) == width and _OPENER.search(part.rest) for part in parts):
        return None
    # A line may end exactly at the width: the beginning of another message is not its continuation.
    return _join(parts, lambda rest, after: len(rest) == width and not _START.match(after), "")


def _at_words(parts: list[_Part]) -> list[Piece] | None:
    if not any(_TORN.search(part.rest) for part in parts):
        return None
    width = max(len(part.rest) for part in parts)
    if not _MIN_WIDTH <= width <= _MAX_WIDTH:
        return None
    return _join(parts, lambda rest, after: len(rest) >= width - _WORD and not _START.match(after), " ")


def _join(parts: list[_Part], goes_on: _GoesOn, between: str) -> list[Piece] | None:
    out: list[Piece] = []
    at = 0
    while at < len(parts):
        last = at
        while (
            last + 1 < len(parts)
            and last - at < _MAX_PIECES
            and parts[last + 1].rest
            and goes_on(parts[last].rest, parts[last + 1].rest)
        ):
            last += 1
        first = parts[at]
        text = first.prefix + between.join(part.rest for part in parts[at : last + 1])
        out.append(Piece(first.piece.number, text, first.piece.meta))
        at = last + 1
    return out if len(out) < len(parts) else None
