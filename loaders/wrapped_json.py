"""JSON inside what containers, collectors and terminals put around it: prefixes, records, colours, other encodings.

Loaders of JSON read a file's own bytes. Where a file's beginning shows an outer layer, they get its lines without it,
undone by the same parts as for text; line numbers stay those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from mycroft.loaders import _core
from mycroft.loaders.base import EvidenceFile, LoadReport
from mycroft.loaders.byte_stream import pieces
from mycroft.loaders.text.clock import Years
from mycroft.loaders.text.lines import REDRAWN, LineReader, chunks, encoding_of
from mycroft.loaders.text.wrappers import BAR, Peeler, profile_of

_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_PIECE: Final = 1 << 20
_SAMPLE: Final = 400


def plain_head(file: EvidenceFile) -> bytes:
    """Return the first bytes of a file as UTF-8, without colours, quotes unescaped: for looking for words."""
    encoding, mark = encoding_of(file.head)
    head = file.head[mark:]
    if encoding != "utf-8":
        head = head.decode(encoding, "replace").encode()
    return _COLOUR.sub(b"", head).replace(b'\\"', b'"')


def is_wrapped(file: EvidenceFile, words: tuple[bytes, ...]) -> bool:
    """Say whether something stands around the JSON: the first line with one of `words` shows it."""
    if encoding_of(file.head) != ("utf-8", 0):
        return True
    at = min((i for word in words if (i := file.head.find(word)) >= 0), default=-1)
    if at < 0:
        # The quotes are escaped: the JSON is a value of another JSON.
        return True
    begin = file.head.rfind(b"\n", 0, at) + 1
    end = file.head.find(b"\n", at)
    line = file.head[begin : end if end >= 0 else None]
    before = line[: line.find(b'"')]
    return b"\x1b" in line or bool(before.strip(b" \t\r{[,"))


def plain_pieces(file: EvidenceFile, report: LoadReport, words: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield the content of a file without outer layers; lines keep their numbers."""
    if file.head[:2] == b"\x1f\x8b" or not is_wrapped(file, words):
        yield from pieces(file.path, report)
        return
    lines = _lines(file, report)
    first = list(islice(lines, _SAMPLE))
    years = Years([])
    peeler = Peeler(profile_of([text for _number, text, _meta in first], years), years)
    held = bytearray()
    at = 1
    for number, text, meta in chain(first, lines):
        held += b"\n" * (number - at) + peeler.peel(text, meta)[1].encode()
        at = number
        if len(held) >= _PIECE:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def _lines(file: EvidenceFile, report: LoadReport) -> Iterator[tuple[int, str, str]]:
    encoding, mark = encoding_of(file.head)
    reader = LineReader(_core.LinePlan([]), keep_all=True, keep_blocks=False)
    try:
        for batch in reader.batches(chunks(file.path, encoding, mark)):
            for number, _offset, flags, text, _wanted, meta in batch.candidates:
                # A progress bar that stood in front and was drawn over.
                if not (flags & REDRAWN and BAR.search(text)):
                    yield number, text, meta
    except OSError as error:
        report.problems.append(f"cannot be read: {error.strerror or error}; check its permissions")
    if cut := reader.counts.get("cut", 0):
        report.drop("line too long for a record in a wrapper", cut)
