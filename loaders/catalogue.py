"""The traces of a data folder: a small SQLite table, and one immutable file per trace and generation.

A generation is published by writing elsewhere, syncing and renaming; no file that has a name is written again, since
a process that has opened a path keeps its old content. Any number of processes may use a catalogue at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mycroft.errors import MycroftError

STATE_FILE: Final = "state.sqlite"
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")

_DDL: Final = """
CREATE TABLE IF NOT EXISTS traces (
    trace_id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS generations (
    trace_id TEXT NOT NULL REFERENCES traces (trace_id),
    generation INTEGER NOT NULL,
    published REAL NOT NULL,
    size_bytes INTEGER NOT NULL,
    summary TEXT NOT NULL,
    PRIMARY KEY (trace_id, generation)
) WITHOUT ROWID;
"""
_NEXT: Final = "SELECT coalesce(max(generation), 0) + 1 FROM generations WHERE trace_id = ?"
_ADD_TRACE: Final = """
INSERT INTO traces (trace_id, title, created)
VALUES (?, ?, ?)
ON CONFLICT (trace_id) DO UPDATE SET title = excluded.title
"""
_ADD_GENERATION: Final = """
INSERT INTO generations (trace_id, generation, published, size_bytes, summary)
VALUES (?, ?, ?, ?, ?)
"""
_LIST: Final = """
SELECT t.trace_id, t.title, t.created, g.generation, g.published, g.size_bytes, g.summary
FROM traces AS t
JOIN generations AS g USING (trace_id)
WHERE g.generation = (SELECT max(generation) FROM generations WHERE trace_id = t.trace_id)
"""
_GET: Final = _LIST + "AND t.trace_id = ?"
_GENERATIONS: Final = "SELECT generation FROM generations WHERE trace_id = ? ORDER BY generation"
_FORGET: Final = ("DELETE FROM generations WHERE trace_id = ?", "DELETE FROM traces WHERE trace_id = ?")
_FORGET_GENERATION: Final = "DELETE FROM generations WHERE trace_id = ? AND generation = ?"


class CatalogueError(MycroftError):
    """A trace that is not there, or a name that is none."""


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One trace with its newest generation. Times are seconds since the epoch; `summary` is what the publisher gave."""

    trace_id: str
    title: str
    created: float
    generation: int
    published: float
    size_bytes: int
    summary: dict[str, Any]


def new_trace_id(name: str, digest: str) -> str:
    """Return the id of a trace: readable, short, safe in URLs and file names, and the same for the same evidence.

    Args:
        name: what the user called it, such as the name of the folder.
        digest: digest of the evidence (`LoadSummary.digest`).
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40].strip("-") or "trace"
    short = hashlib.sha256(f"{name}/{digest}".encode()).hexdigest()[:6]
    return f"{words}-{short}"


class Catalogue:
    """The list of traces of `data_dir`; safe to use from any thread and process."""

    def __init__(self, data_dir: str | Path) -> None:
        self.data_dir: Final = Path(data_dir)
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.traces_dir: Final = self.data_dir / "traces"
        self.traces_dir.mkdir(exist_ok=True, mode=0o700)
        self._local = threading.local()
        with self._transaction() as connection:
            for statement in _DDL.split(";\n"):
                connection.execute(statement)

    def _connection(self) -> sqlite3.Connection:
        # One per thread and process: a connection must not be carried over a fork.
        held: tuple[int, sqlite3.Connection] | None = getattr(self._local, "held", None)
        if held is None or held[0] != os.getpid():
            connection = sqlite3.connect(self.data_dir / STATE_FILE, timeout=30.0, isolation_level=None)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            held = self._local.held = (os.getpid(), connection)
        return held[1]

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def publish(self, trace_id: str, tmp_path: str | Path, *, title: str, summary: dict[str, Any]) -> int:
        """Take a finished trace file over under the next generation of `trace_id`, and return that generation.

        The file is moved; it must lie on the same file system as the data folder and be closed. A generation is seen
        by readers only when all of it is on disk.

        Raises:
            CatalogueError: if the id is none.
        """
        _checked(trace_id)
        source = Path(tmp_path)
        described = json.dumps(summary, sort_keys=True)
        _sync(source)
        now = time.time()
        with self._transaction() as connection:
            generation = int(connection.execute(_NEXT, (trace_id,)).fetchone()[0])
            # A crash after a rename and before the commit leaves a file that nobody knows: its number is not reused.
            target = self._file(trace_id, generation)
            while target.exists():
                generation += 1
                target = self._file(trace_id, generation)
            size = source.stat().st_size
            source.rename(target)
            _sync(self.traces_dir)
            connection.execute(_ADD_TRACE, (trace_id, title, now))
            connection.execute(_ADD_GENERATION, (trace_id, generation, now, size, described))
        return generation

    def list(self) -> list[TraceEntry]:
        """Return all traces with their newest generations, the latest published first."""
        rows = self._connection().execute(_LIST + "ORDER BY g.published DESC, t.trace_id").fetchall()
        return [_entry(row) for row in rows]

    def get(self, trace_id: str) -> TraceEntry:
        """Return one trace.

        Raises:
            CatalogueError: if there is no such trace.
        """
        row = self._connection().execute(_GET, (trace_id,)).fetchone()
        if row is None:
            raise CatalogueError(f"there is no trace {trace_id[:80]!r}")
        return _entry(row)

    def generations(self, trace_id: str) -> tuple[int, ...]:
        """Return the generations of a trace, the oldest first; empty where there is no such trace."""
        return tuple(int(row[0]) for row in self._connection().execute(_GENERATIONS, (trace_id,)))

    def path(self, trace_id: str, generation: int | None = None) -> Path:
        """Return the file of a generation, by default the newest.

        Raises:
            CatalogueError: if there is no such trace or generation.
        """
        known = self.generations(trace_id)
        if not known:
            raise CatalogueError(f"there is no trace {trace_id[:80]!r}")
        wanted = known[-1] if generation is None else generation
        if wanted not in known:
            raise CatalogueError(f"trace {trace_id} has no generation {wanted}")
        return self._file(trace_id, wanted)

    def remove(self, trace_id: str) -> None:
        """Remove a trace with all its generations. Who has one open goes on reading it.

        Raises:
            CatalogueError: if there is no such trace.
        """
        with self._transaction() as connection:
            known = self.generations(trace_id)
            if not known:
                raise CatalogueError(f"there is no trace {trace_id[:80]!r}")
            for statement in _FORGET:
                connection.execute(statement, (trace_id,))
        for generation in known:
            self._file(trace_id, generation).unlink(missing_ok=True)

    def forget(self, trace_id: str, generation: int) -> None:
        """Remove one generation that is not the newest, if it is there. Who has it open goes on reading it."""
        if generation not in self.generations(trace_id)[:-1]:
            return
        with self._transaction() as connection:
            connection.execute(_FORGET_GENERATION, (trace_id, generation))
        self._file(trace_id, generation).unlink(missing_ok=True)

    def _file(self, trace_id: str, generation: int) -> Path:
        return self.traces_dir / f"{_checked(trace_id)}.{generation}.duckdb"

    def close(self) -> None:
        """Close the connection of the calling thread."""
        held: tuple[int, sqlite3.Connection] | None = getattr(self._local, "held", None)
        if held is not None and held[0] == os.getpid():
            held[1].close()
        self._local.held = None


def _checked(trace_id: str) -> str:
    """Return an id that is safe as part of a file name."""
    if not _ID.fullmatch(trace_id):
        raise CatalogueError(f"{trace_id[:80]!r} is no id of a trace: lower-case letters, digits and `-` only")
    return trace_id


def _entry(row: sqlite3.Row) -> TraceEntry:
    return TraceEntry(
        trace_id=row["trace_id"],
        title=row["title"],
        created=row["created"],
        generation=row["generation"],
        published=row["published"],
        size_bytes=row["size_bytes"],
        summary=json.loads(row["summary"]),
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
