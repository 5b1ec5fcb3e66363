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
    used to open anything. `path` is where the bytes lie. `head` holds the first bytes: 64 KiB for `Loader.sniff`, and
    for `Loader.load` as many as fit into memory for all files together (from about 2,000 files on fewer than 64 KiB).
    """

    file_id: int
    name: str
    path: Path
    size_bytes: int
    sha256: str
    head: bytes


@dataclass(slots=True)
class LoadReport:
    """What one loader made of one file.

    A loader that finds a file to be of another kind than it seemed sets `loader` to "": the file counts as unread.
    """

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
        of_rank: int | None = None,
    ) -> int:
        """Return the surrogate id of the communicator (name, members); without `ranks`, of the group of that name.

        `of_rank` is the rank whose file or line speaks: where several groups share a name, it is in the one meant, and
        where nobody lists the members, those who spoke are taken for them. The id is provisional: put it into the
        `comm_id` column of emitted rows, and nowhere else.
        """
        ...

    def members(self, name: str, *, desc: str | None = None, of_rank: int | None = None) -> tuple[int, ...] | None:
        """Return the members of a group as far as any source has listed them by now; None: not known or not sure."""
        ...

    def host(self, name: str) -> int:
        """Return the surrogate id of a host, provisional like that of a communicator: for `host_id` columns only."""
        ...

    def stack(self, frames: Sequence[str]) -> int:
        """Return the id of a stack, `function (file:line)` innermost first; equal frames have equal ids."""
        ...

    def rank(self, rank: int, **facts: int | str | None) -> None:
        """Add what is known of a rank: columns of `ranks`, with `host` a name, or any attribute of `identity`.

        The first word wins; every claim is kept in `identity`. `reason`, `file_id` and `line` say where it comes from.
        """
        ...

    def job(self, **facts: int | str | None) -> None:
        """Add what is known of the job: columns of `jobs`. The first word wins."""
        ...

    def dates(self) -> list[int]:
        """Return some times with a full date that sources have given by now, ns UTC: for logs that write no year."""
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
