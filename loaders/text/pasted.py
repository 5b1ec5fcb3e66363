"""Text pasted from a terminal or a viewer: lines broken at a fixed width, put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mycroft.loaders.text.wrappers import Peeler


def rejoined(lengths: Sequence[int], source: Iterator[bytes], peeler: Peeler) -> tuple[list[int], bytes] | None:
    """Return the numbers of the first line of each joined line, and the joined text; None: nothing to join."""
    return None
