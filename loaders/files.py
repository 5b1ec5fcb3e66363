"""The text of the evidence, as kept in the trace."""

from __future__ import annotations

from typing import Final

import zstandard

from mycroft.loaders.store import Store

# A block holds 64 KiB of text and the rest of one line; a frame that claims more is not ours.
_MAX_BLOCK_BYTES: Final = 1 << 20

BLOCKS: Final = """
SELECT first_line, content
FROM file_blocks
WHERE file_id = ? AND first_line < ? AND first_line + lines > ?
ORDER BY first_line
"""
LAST_LINE: Final = """
SELECT max(first_line + lines - 1) AS last_line
FROM file_blocks
WHERE file_id = ?
"""


def read_lines(store: Store, file_id: int, first_line: int, count: int) -> list[str]:
    """Return `count` lines of a file from `first_line` on (from 1), without their ends.

    Fewer at the end of the file. Lines whose text was not kept come as empty strings, so that the n-th item is always
    line `first_line + n`; a file of which nothing was kept gives an empty list.
    """
    if count <= 0 or first_line < 1:
        return []
    lines: dict[int, str] = {}
    last = first_line + count
    for start, content in store.frame(BLOCKS, (file_id, last, first_line)).iter_rows():
        text = zstandard.ZstdDecompressor().decompress(content, max_output_size=_MAX_BLOCK_BYTES)
        for number, line in enumerate(text.split(b"\n"), start=int(start)):
            if first_line <= number < last:
                lines[number] = line.decode("utf-8", "replace")
    if not lines:
        return []
    return [lines.get(number, "") for number in range(first_line, max(lines) + 1)]


def last_line(store: Store, file_id: int) -> int | None:
    """Return the number of the last line whose text was kept; None: nothing was."""
    frame = store.frame(LAST_LINE, (file_id,))
    value = frame["last_line"][0]
    return int(value) if value is not None else None
