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

class DumpInfo:
    """What one Flight Recorder dump says besides its operations. Names are codes in `DumpReader.texts`."""

    is_dump: bool
    error: str
    damage: str
    trailing: int
    version: str
    backend: str
    lib_version: str
    has_entries: bool
    entries: int
    dropped: dict[str, int]
    completed: int
    retired_only: int
    started_signs: int
    record_gaps: bool
    first_record: int | None
    last_record: int | None
    first_ts: int | None
    last_ts: int | None
    groups: list[tuple[int | None, int | None, int | None]]
    config: list[tuple[int | None, int | None, int | None, int | None]]
    status: list[tuple[int, int | None, int | None, int | None]]

class ColumnBatch:
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class DumpReader:
    def __init__(self) -> None: ...
    def read(self, paths: Sequence[str], *, threads: int, max_bytes: int) -> tuple[list[DumpInfo], ColumnBatch]: ...
    def read_bytes(self, content: bytes) -> tuple[DumpInfo, ColumnBatch]: ...
    def texts(self, first: int = 0) -> list[str]: ...
    def stacks(self, first: int = 0) -> list[list[int]]: ...
