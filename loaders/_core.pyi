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
