"""Types of the compiled module of the loaders (`loaders/cpp`)."""

from collections.abc import Sequence
from typing import TypedDict

class JsonElementCounts(TypedDict):
    elements: int
    wanted: int
    oversized: int
    documents: int
    bytes: int
    open: bool

class JsonElements:
    def __init__(self, arrays: Sequence[str], needles: Sequence[str], max_element: int) -> None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[bool, str, bytes, int]]: ...
    def finish(self) -> JsonElementCounts: ...

class LinePlan:
    """The literals that make a line a candidate: (literals, follow, bulk) per matcher, see `line_scanner.h`."""

    def __init__(self, matchers: Sequence[tuple[Sequence[str], int, bool]]) -> None: ...

class LineScanner:
    """Splits text into lines and hands out those that may matter.

    `feed` and `finish` return candidates (line, offset, flags, text, matchers, meta), bulk columns (matcher, rows,
    lines, text_ends, text, meta_ends, meta) and blocks of the text (first_line, lines, content).
    """

    def __init__(
        self,
        plan: LinePlan,
        *,
        keep_all: bool = False,
        keep_blocks: bool = True,
        max_line: int = 1 << 20,
        block_bytes: int = 64 << 10,
    ) -> None: ...
    def feed(
        self, data: bytes
    ) -> tuple[
        list[tuple[int, int, int, str, tuple[int, ...], str]],
        list[tuple[int, int, bytes, bytes, bytes, bytes, bytes]],
        list[tuple[int, int, bytes]],
    ]: ...
    def finish(
        self,
    ) -> tuple[
        list[tuple[int, int, int, str, tuple[int, ...], str]],
        list[tuple[int, int, bytes, bytes, bytes, bytes, bytes]],
        list[tuple[int, int, bytes]],
    ]: ...
    def counts(self) -> dict[str, int]: ...
    def lengths(self) -> list[int]: ...
