"""Pieces of work: some segments of one table, so many that a task is neither a moment nor an hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from mycroft.loaders.fleet.manifest import FleetSegment
from mycroft.loaders.fleet.place import open_place
from mycroft.loaders.store import aggregate

# 64 MB of Parquet are 10 to 20 million rows: about a second of work.
PIECE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class FilesPiece:
    """Segments at a place. Only names: whoever works on it opens the place himself, on whichever machine."""

    url: str
    names: tuple[str, ...]
    memory_limit: str = "800MiB"

    def reduce(self, sql: str, params: Mapping[str, object], *, threads: int) -> Any:
        """Answer a query over `rows`, the rows of these files.

        Raises:
            PlaceError: the place cannot be used.
            StoreError: a file is missing or damaged, or the limit of memory was passed.
        """
        relation = open_place(self.url).relation(self.names)
        return aggregate(sql, {"rows": relation}, params, threads=threads, memory_limit=self.memory_limit)


def pieces_of(url: str, segments: Iterable[FleetSegment], *, piece_bytes: int = PIECE_BYTES) -> list[FilesPiece]:
    """Return segments of one table as pieces: of one group of hosts each, of at most about `piece_bytes`."""
    found: list[FilesPiece] = []
    ordered = sorted(segments, key=lambda s: (s.group, s.first_ns, s.path))
    for _, group in groupby(ordered, key=lambda s: s.group):
        names: list[str] = []
        size = 0
        for segment in group:
            if names and size + segment.size_bytes > piece_bytes:
                found.append(_piece(url, names))
                names, size = [], 0
            names.append(segment.path)
            size += segment.size_bytes
        found.append(_piece(url, names))
    return found


def _piece(url: str, names: Sequence[str]) -> FilesPiece:
    return FilesPiece(url, tuple(names))
