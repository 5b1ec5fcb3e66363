"""Lines that come by the million, as a frame."""

# pyarrow has no type stubs; this module is the seam where its arrays become polars.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any, cast

import polars as pl
import pyarrow as pa

from mycroft.loaders.text.lines import Bulk


def bulk_frame(bulk: Bulk) -> pl.DataFrame:
    """Return the lines of one matcher as columns `line` (UInt32), `text` and `meta`, sharing the bytes."""
    _, rows, lines, text_ends, text, meta_ends, meta = bulk
    return pl.DataFrame(
        {
            "line": _series(pa.Array.from_buffers(pa.uint32(), rows, [None, pa.py_buffer(lines)])),
            "text": _strings(rows, text_ends, text),
            "meta": _strings(rows, meta_ends, meta),
        }
    )


def _series(array: Any) -> pl.Series:
    return cast("pl.Series", pl.from_arrow(array))


def _strings(rows: int, ends: bytes, text: bytes) -> pl.Series:
    # The scanner has replaced what is not UTF-8, which is what makes this safe.
    return _series(pa.LargeStringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(text)))
