"""The bytes of a file in pieces of bounded size, gzip undone on the way."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from mycroft.loaders.base import LoadReport

PIECE: Final = 1 << 20
# A trace compresses 10 to 30 times; far beyond that somebody wants our memory or time.
_MAX_RATIO: Final = 1000


def pieces(path: Path, report: LoadReport) -> Iterator[bytes]:
    """Yield the content of `path`, a gzip file uncompressed; what is wrong is said in `report`, never raised.

    A file cut short gives what could be read of it.
    """
    try:
        with path.open("rb") as stream:
            first = stream.read(PIECE)
            if first[:2] != b"\x1f\x8b":
                while first:
                    yield first
                    first = stream.read(PIECE)
                return
            yield from _inflated(stream, first, report)
    except OSError as error:
        report.problems.append(f"cannot be read: {error.strerror or error}; check its permissions")


def _inflated(stream: BinaryIO, first: bytes, report: LoadReport) -> Iterator[bytes]:
    engine = zlib.decompressobj(wbits=31)
    taken = given = 0
    piece: bytes = first
    while piece:
        taken += len(piece)
        while piece:
            try:
                out = engine.decompress(piece, PIECE)
            except zlib.error as error:
                report.problems.append(f"gzip broken after {taken:,} bytes ({error}); kept what came before")
                return
            given += len(out)
            if given > taken * _MAX_RATIO + PIECE:
                report.problems.append(f"gzip grows more than {_MAX_RATIO} times; stopped after {given:,} bytes")
                return
            if out:
                yield out
            piece = engine.unconsumed_tail
            if engine.eof:
                piece = engine.unused_data
                if not piece.startswith(b"\x1f\x8b"):
                    return
                engine = zlib.decompressobj(wbits=31)
        piece = stream.read(PIECE)
    if not engine.eof:
        report.problems.append("gzip cut short; kept what could be read")


def lines(path: Path, report: LoadReport, *, max_line: int = 16 << 20) -> Iterator[tuple[int, bytes]]:
    """Yield line number (from 1) and line without its end; a line over `max_line` bytes is counted and passed over."""
    return split_lines(pieces(path, report), report, max_line=max_line)


def split_lines(
    source: Iterator[bytes], report: LoadReport, *, max_line: int = 16 << 20
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of pieces as `lines` does those of a file."""
    number, held, skipping = 0, b"", False
    for piece in source:
        parts = (held + piece).split(b"\n")
        held = parts.pop()
        for part in parts:
            number += 1
            if skipping or len(part) > max_line:
                report.drop(f"line longer than {max_line >> 20} MiB")
                skipping = False
                continue
            yield number, part.rstrip(b"\r")
        if len(held) > max_line:
            held, skipping = b"", True
    if skipping:
        report.drop(f"line longer than {max_line >> 20} MiB")
    elif held.strip():
        yield number + 1, held.rstrip(b"\r")


class LineCount:
    """Says in which line an offset lies; keeps the bytes since the last one asked for and no more."""

    def __init__(self) -> None:
        self._line = 1
        self._at = 0
        self._since = bytearray()

    def feed(self, piece: bytes) -> None:
        """Add what follows."""
        self._since += piece

    def line(self, offset: int) -> int:
        """Return the number of the line of `offset`, from 1; offsets must not go down."""
        if offset > self._at:
            self._line += self._since.count(b"\n", 0, offset - self._at)
            del self._since[: offset - self._at]
            self._at = offset
        return self._line
