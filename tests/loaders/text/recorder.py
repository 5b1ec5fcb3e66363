"""A LoadContext that keeps what it is given, for tests of text formats."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mycroft.loaders.base import EvidenceFile, LoadReport
from mycroft.loaders.context import conform
from mycroft.loaders.text import TextLoader


class Recorder:
    """Keeps rows and facts; ids are given in order of appearance."""

    def __init__(self) -> None:
        self.comms: dict[tuple[str, str | None], int] = {}
        self.hosts: dict[str, int] = {}
        self.stacks: dict[int, tuple[str, ...]] = {}
        self.ranks: dict[int, dict[str, Any]] = {}
        self.groups: dict[str, tuple[int, ...]] = {}
        self.reports: list[LoadReport] = []
        self.given_dates: list[int] = []
        self.listed: list[tuple[str, tuple[int, ...]]] = []
        self._frames: dict[str, list[pl.DataFrame]] = {}

    def comm(self, name: str, *, desc: str | None = None, ranks: Sequence[int] | None = None, **_: Any) -> int:
        if ranks:
            self.listed.append((name, tuple(ranks)))
        return self.comms.setdefault((name, desc), len(self.comms))

    def seen(self, comm_id: int, rank: int) -> None:
        """Nothing is made of it here."""

    def members(self, name: str, **_: Any) -> tuple[int, ...] | None:
        return self.groups.get(name)

    def listed_groups(self, source: str) -> list[tuple[str, str | None, tuple[int, ...]]]:
        """No other source has listed a group here."""
        return []

    def host(self, name: str) -> int:
        return self.hosts.setdefault(name, len(self.hosts))

    def stack(self, frames: Sequence[str]) -> int:
        number = int.from_bytes(hashlib.blake2b("\0".join(frames).encode(), digest_size=7).digest(), "big")
        self.stacks[number] = tuple(frames)
        return number

    def rank(self, rank: int, **facts: Any) -> None:
        self.ranks.setdefault(rank, {}).update(facts)

    def job(self, **facts: Any) -> None:
        """Nothing is made of it here."""

    def dates(self) -> list[int]:
        return list(self.given_dates)

    def emit(self, table: str, frame: pl.DataFrame) -> None:
        self._frames.setdefault(table, []).append(conform(table, frame))

    def frame(self, table: str) -> pl.DataFrame:
        """Return all rows of a table as they were handed over."""
        return pl.concat(self._frames[table], how="diagonal")

    def rows(self, table: str = "events", **wanted: Any) -> list[dict[str, Any]]:
        """Return the rows of a table in file order, NULLs left out; `wanted` are values they must have."""
        if table not in self._frames:
            return []
        frame = self.frame(table)
        order = [name for name in ("file_id", "line") if name in frame.columns]
        rows = [
            {key: value for key, value in row.items() if value is not None}
            for row in frame.sort(order, maintain_order=True).iter_rows(named=True)
        ]
        return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]

    def event(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """Return the one event of `kind`; more or none is a failure."""
        found = self.rows("events", kind=kind, **wanted)
        assert len(found) == 1, f"{len(found)} rows of {kind}: {found[:5]}"
        return found[0]

    def kinds(self) -> list[str]:
        """Return the kinds of all events in file order, without ends of logs."""
        return [row["kind"] for row in self.rows() if row["kind"] != "log_end"]

    def host_name(self, row: dict[str, Any]) -> str | None:
        """Return the name of the host of a row."""
        return next((name for name, number in self.hosts.items() if number == row.get("host_id")), None)


def evidence(folder: Path, contents: dict[str, bytes]) -> list[EvidenceFile]:
    """Write files and describe them as the bundle would."""
    files: list[EvidenceFile] = []
    for number, (name, content) in enumerate(sorted(contents.items())):
        path = folder / f"{number}.bin"
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files.append(EvidenceFile(number, name, path, len(content), digest, content[: 64 << 10]))
    return files


def read(folder: Path, text: str | bytes | dict[str, str | bytes], name: str = "console.txt") -> Recorder:
    """Load text with the text loader alone; a dictionary holds several files."""
    contents = text if isinstance(text, dict) else {name: text}
    as_bytes = {key: value.encode() if isinstance(value, str) else value for key, value in contents.items()}
    recorder = Recorder()
    loader = TextLoader()
    files = evidence(folder, as_bytes)
    assert all(loader.sniff(file) for file in files if file.size_bytes)
    recorder.reports = loader.load(files, recorder)
    return recorder
