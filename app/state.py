"""The small mutable state beside the traces: one SQLite file for jobs, uploads, shares and notes.

The catalogue of traces lives in the same file and owns its tables. Any number of processes may use it at once.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

STATE_FILE: Final = "state.sqlite"

_DDL: Final = """
CREATE TABLE IF NOT EXISTS jobs (
    job_id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    sources TEXT NOT NULL,
    upload_id TEXT,
    trace TEXT,
    generation INTEGER,
    status TEXT NOT NULL,
    rev INTEGER NOT NULL DEFAULT 1,
    stages TEXT NOT NULL DEFAULT '[]',
    problems TEXT NOT NULL DEFAULT '[]',
    error TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    cancel INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    lease_until REAL,
    created REAL NOT NULL,
    started REAL,
    finished REAL
);
CREATE INDEX IF NOT EXISTS jobs_by_status ON jobs (status, created);
CREATE TABLE IF NOT EXISTS uploads (
    upload_id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    status TEXT NOT NULL,
    reserved_bytes INTEGER NOT NULL,
    chunk_bytes INTEGER NOT NULL,
    created REAL NOT NULL,
    expires REAL NOT NULL,
    job_id TEXT
);
CREATE TABLE IF NOT EXISTS upload_files (
    upload_id TEXT NOT NULL,
    file INTEGER NOT NULL,
    path TEXT NOT NULL,
    size INTEGER NOT NULL,
    mtime REAL,
    format TEXT,
    PRIMARY KEY (upload_id, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS upload_chunks (
    upload_id TEXT NOT NULL,
    file INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    PRIMARY KEY (upload_id, file, chunk)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS shares (
    share_id TEXT PRIMARY KEY,
    token_hash TEXT NOT NULL UNIQUE,
    trace TEXT NOT NULL,
    target TEXT NOT NULL,
    note TEXT NOT NULL,
    created REAL NOT NULL,
    expires REAL NOT NULL,
    revoked REAL
);
CREATE TABLE IF NOT EXISTS notes (
    note_id TEXT PRIMARY KEY,
    trace TEXT NOT NULL,
    incident TEXT NOT NULL,
    author TEXT NOT NULL,
    text TEXT NOT NULL,
    created REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS notes_by_trace ON notes (trace, incident, created);
"""


class State:
    """Connections to the state file; safe to use from any thread and after a fork.

    Times in the tables are seconds since the epoch (`now()`), so that every process reads the same clock.
    """

    def __init__(self, data_dir: Path) -> None:
        """Open, and create where missing, the state of `data_dir`."""
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.data_dir = data_dir
        self.path = data_dir / STATE_FILE
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        with self.connection() as connection:
            connection.executescript(_DDL)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        # WAL lets readers go on while one writes; NORMAL may lose the last commits in a power cut, never the file.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection in autocommit mode; each statement is its own transaction."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or self._open()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection inside one write transaction: all of it happens, or nothing."""
        with self.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connections that nobody is using."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def now() -> float:
    """Return the time of the state's clock, seconds since the epoch."""
    return time.time()


def new_id() -> str:
    """Return a new id of a job, an upload or a share: short, unguessable enough to be no name of anything else."""
    return secrets.token_hex(8)
