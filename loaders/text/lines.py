"""A file as batches of lines, whatever its encoding, in bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mycroft.loaders import _core

CHUNK_BYTES: Final = 4 << 20
MAX_LINE_BYTES: Final = 256 << 10

# (line, offset, flags, text, matchers, meta): see `LineScanner` in line_scanner.h.
Candidate = tuple[int, int, int, str, tuple[int, ...], str]
# (matcher, rows, lines, text_ends, text, meta_ends, meta)
Bulk = tuple[int, int, bytes, bytes, bytes, bytes, bytes]
# (first_line, lines, content)
Block = tuple[int, int, bytes]

HIT: Final = 1
CUT: Final = 2
REDRAWN: Final = 4

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one chunk of a file held."""

    candidates: list[Candidate]
    bulk: list[Bulk]
    blocks: list[Block]


def encoding_of(head: bytes) -> tuple[str, int]:
    """Return the encoding of a text by its first bytes, and the size of its byte-order mark."""
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name, len(mark)
    sample = head[:4096]
    if len(sample) >= 16:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        half = len(sample) // 2
        if odd > 0.6 * half and even < 0.05 * half:
            return "utf-16-le", 0
        if even > 0.6 * half and odd < 0.05 * half:
            return "utf-16-be", 0
    return "utf-8", 0


def is_text(head: bytes) -> bool:
    """Say whether first bytes are text: decodable in the main, few control characters."""
    if not head:
        return False
    encoding, mark = encoding_of(head)
    if encoding != "utf-8":
        head = head[mark:].decode(encoding, "replace").encode()
    sample = head[:16384]
    # Runs of NUL are what a crash leaves in a log that was being written.
    visible = sample.replace(b"\0", b"")
    if not visible or len(visible) * 8 < len(sample):
        return False
    controls = sum(visible.count(bytes((c,))) for c in range(32) if c not in (7, 8, 9, 10, 12, 13, 27))
    if controls * 50 > len(visible):
        return False
    broken = visible.decode("utf-8", "replace").count("�")
    # A sample may end inside a character; Latin-1 text has single bytes that are no UTF-8.
    return broken * 10 <= len(visible) + 10


def chunks(path: Path, encoding: str, mark: int) -> Iterator[bytes]:
    """Yield the bytes of a file as UTF-8, `CHUNK_BYTES` at a time."""
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)("replace")
    with path.open("rb", buffering=0) as file:
        file.seek(mark)
        while chunk := file.read(CHUNK_BYTES):
            yield decoder.decode(chunk).encode() if decoder else chunk
    if decoder and (rest := decoder.decode(b"", final=True)):
        yield rest.encode()


class LineReader:
    """Reads one file once. `counts` and `lengths` are complete after `batches` has ended."""

    def __init__(self, plan: _core.LinePlan, *, keep_all: bool = False, keep_blocks: bool = True) -> None:
        self._scanner = _core.LineScanner(plan, keep_all=keep_all, keep_blocks=keep_blocks, max_line=MAX_LINE_BYTES)

    def batches(self, source: Iterator[bytes]) -> Iterator[Batch]:
        """Yield the lines of a source of UTF-8 bytes."""
        for chunk in source:
            yield Batch(*self._scanner.feed(chunk))
        yield Batch(*self._scanner.finish())

    @property
    def counts(self) -> dict[str, int]:
        """Sizes so far: bytes, lines, pieces, blank, candidates, cut, nul_bytes, containers, joined."""
        return self._scanner.counts()

    @property
    def lengths(self) -> list[int]:
        """Physical lines by length in bytes, up to 1023."""
        return self._scanner.lengths()
