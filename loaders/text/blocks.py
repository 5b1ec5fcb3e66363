"""Keeps the text of the evidence in the trace, so that every claim can be opened at its line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl
import zstandard

from mycroft.loaders.base import LoadContext
from mycroft.loaders.schema import FILE_BLOCKS, polars_schema

TEXT_BUDGET_BYTES: Final = 256 << 20
BLOCK_BYTES: Final = 64 << 10
_EMIT_BYTES: Final = 8 << 20
_SCHEMA: Final = polars_schema(FILE_BLOCKS)


class BlockWriter:
    """Compresses blocks of lines and hands them to the trace.

    Until the budget (bytes before compression, all files together) is used up every block is kept, after that only
    the blocks that hold the line of an event.
    """

    def __init__(self, context: LoadContext, budget_bytes: int = TEXT_BUDGET_BYTES) -> None:
        self._context = context
        self._left = budget_bytes
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._rows: list[dict[str, Any]] = []
        self._held = 0
        self.skipped = 0

    def add(self, file_id: int, first_line: int, lines: int, content: bytes, *, claimed: bool) -> None:
        """Keep one block: `lines` lines joined by newlines, the first of which has the number `first_line`."""
        if self._left < len(content) and not claimed:
            self.skipped += lines
            return
        self._left -= len(content)
        # The compressor's own result keeps the memory of the worst case; a copy is as large as it says.
        packed = bytes(memoryview(self._compressor.compress(content)))
        self._rows.append(
            {
                "file_id": file_id,
                "first_line": first_line,
                "lines": lines,
                "size_bytes": len(content),
                "content": packed,
            }
        )
        self._held += len(packed)
        if self._held >= _EMIT_BYTES:
            self.flush()

    def add_text(self, file_id: int, text: bytes, event_lines: Sequence[int] = ()) -> None:
        """Keep a whole small file; `event_lines` are the lines that claims point to."""
        lines = text.replace(b"\r\n", b"\n").split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        claimed = set(event_lines)
        start, size = 0, 0
        for at, line in enumerate([*lines, b""]):
            if at == len(lines) or (at > start and size + len(line) > BLOCK_BYTES):
                if at > start:
                    content = b"\n".join(part[:BLOCK_BYTES] for part in lines[start:at])
                    holds = any(number in claimed for number in range(start + 1, at + 1))
                    self.add(file_id, start + 1, at - start, content, claimed=holds)
                start, size = at, 0
            size += len(line) + 1

    def flush(self) -> None:
        """Hand over what is held; call once at the end."""
        if self._rows:
            self._context.emit("file_blocks", pl.DataFrame(self._rows, schema=_SCHEMA))
            self._rows, self._held = [], 0
