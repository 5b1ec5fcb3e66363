"""What a loader is, what it is given, and how it says what it could not use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import polars as pl

from mycroft.errors import MycroftError


class LoadError(MycroftError):
    """Evidence that cannot be read: names the file, the place, what was found and what to do."""


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """One file of the evidence bundle, on disk and ready to be read.

    `name` is the logical path as handed over, with `!` between an archive and its member; it is data, never
    used to open anything. `path` is where the bytes lie. `head` holds the first bytes (up to 64 KiB).
    """

    file_id: int
    name: str
    path: Path
    size_bytes: int
    sha256: str
    head: bytes


@dataclass(slots=True)
class LoadReport:
    """What one loader made of one file."""

    file_id: int
    loader: str
    rows: int = 0
    rank: int | None = None
    dropped: Counter[str] = field(default_factory=lambda: Counter[str]())
    problems: list[str] = field(default_factory=lambda: list[str]())

    def drop(self, reason: str, count: int = 1) -> None:
        """Count records that could not be used, by reason."""
        self.dropped[reason] += count


class LoadContext(Protocol):
    """What a loader may do: name things once for the whole trace, and hand over rows."""

    def comm(
        self,
        name: str,
        *,
        ranks: Sequence[int] | None = None,
        desc: str | None = None,
        hash_: int | None = None,
        backend: str | None = None,
        source: str = "dump",
    ) -> int:
        """Return the surrogate id of the communicator (name, members); without `ranks`, of the group of that name."""
        ...

    def host(self, name: str) -> int:
        """Return the surrogate id of a host."""
        ...

    def stack(self, frames: Sequence[str]) -> int:
        """Return the id of a stack, `function (file:line)` innermost first; equal frames have equal ids."""
        ...

    def rank(self, rank: int, **facts: int | str | None) -> None:
        """Add what is known of a rank: columns of `ranks`, with `host` a name.

        The first word wins; what contradicts it is kept in `identity`.
        """
        ...

    def emit(self, table: str, frame: pl.DataFrame) -> None:
        """Hand over rows of `table`.

        Missing columns become NULL; a column that the table lacks is an error of the loader.
        """
        ...


class Loader(Protocol):
    """One format. Registered by standing in `loaders.LOADERS`; the order of that tuple is the order of detection."""

    name: str
    title: str
    recognised_by: str
    yields: str

    def sniff(self, file: EvidenceFile) -> bool:
        """Say from name, size and head whether this loader reads the file. Never raises, reads nothing else."""
        ...

    def load(self, files: Sequence[EvidenceFile], context: LoadContext) -> list[LoadReport]:
        """Read all files of this format and return one report each; a broken file is a report, never an exception."""
        ...
