"""The queue of ingest jobs: made by web processes, claimed by ingest processes, watched by pages.

A job is claimed under a lease that its worker renews. A worker that dies leaves a lease that runs out (or, on the
same host, a process that is gone); the job is then tried once more, and after that reported as failed.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from mycroft.app.state import State, new_id, now
from mycroft.errors import MycroftError

Status = Literal["queued", "running", "done", "failed", "cancelled"]
FINISHED: Final = frozenset({"done", "failed", "cancelled"})
ATTEMPTS_MAX: Final = 2
PROBLEMS_SHOWN: Final = 50
KEPT_S: Final = 30 * 24 * 3600
"""How long a finished job can still be looked up."""

_INSERT: Final = """
INSERT INTO jobs (job_id, title, sources, upload_id, status, created)
VALUES (?, ?, ?, ?, 'queued', ?)
"""
_ABANDONED: Final = "SELECT job_id, worker, lease_until, attempts FROM jobs WHERE status = 'running'"
_GIVE_UP: Final = """
UPDATE jobs
SET status = 'failed', error = ?, finished = ?, rev = rev + 1
WHERE job_id = ?
"""
_REQUEUE: Final = """
UPDATE jobs
SET status = 'queued', worker = NULL, lease_until = NULL, rev = rev + 1
WHERE job_id = ?
"""
_CLAIM: Final = """
UPDATE jobs
SET status = 'running', worker = ?, lease_until = ?, started = ?, attempts = attempts + 1, stages = '[]',
    problems = '[]', rev = rev + 1
WHERE job_id = (SELECT job_id FROM jobs WHERE status = 'queued' ORDER BY created, job_id LIMIT 1)
RETURNING *
"""
_RENEW: Final = (
    "UPDATE jobs SET lease_until = ? WHERE job_id = ? AND worker = ? AND status = 'running' RETURNING cancel"
)
_REPORT: Final = """
UPDATE jobs
SET stages = ?, problems = ?, rev = rev + 1
WHERE job_id = ? AND worker = ? AND status = 'running'
"""
_FINISH: Final = """
UPDATE jobs
SET status = ?, error = ?, trace = ?, generation = ?, finished = ?, lease_until = NULL, rev = rev + 1
WHERE job_id = ? AND worker = ? AND status = 'running'
"""
_RELEASE: Final = """
UPDATE jobs
SET status = 'queued', worker = NULL, lease_until = NULL, attempts = attempts - 1, rev = rev + 1
WHERE job_id = ? AND worker = ? AND status = 'running'
"""
_CANCEL: Final = """
UPDATE jobs
SET cancel = 1, status = CASE status WHEN 'queued' THEN 'cancelled' ELSE status END,
    finished = CASE status WHEN 'queued' THEN ? ELSE finished END, rev = rev + 1
WHERE job_id = ? AND status IN ('queued', 'running')
"""
_SWEEP: Final = "DELETE FROM jobs WHERE status IN ('done', 'failed', 'cancelled') AND finished < ?"
_ONE: Final = "SELECT * FROM jobs WHERE job_id = ?"
_NEWEST: Final = "SELECT * FROM jobs ORDER BY created DESC, job_id LIMIT ?"


class JobError(MycroftError):
    """A job that does not exist, or is not in a state for what was asked."""

    http_status = 404


@dataclass(frozen=True, slots=True)
class Source:
    """One file or folder to load: `name` is what the user called it, `path` where it lies."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of an ingest: `done` of `total` in `unit`, None where not known beforehand; seconds since the epoch."""

    name: str
    state: Literal["running", "done", "failed"] = "running"
    done: int = 0
    total: int | None = None
    unit: str = ""
    note: str = ""
    started: float = 0.0
    finished: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One ingest as the API shows it. `rev` rises with every change; times are seconds since the epoch."""

    job_id: str
    title: str
    status: Status
    rev: int
    created: float
    started: float | None
    finished: float | None
    stages: tuple[dict[str, Any], ...]
    problems: tuple[str, ...]
    error: str | None
    trace: str | None
    generation: int | None
    attempts: int
    cancelling: bool
    upload_id: str | None
    sources: tuple[Source, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the API; where files lie on this machine stays here."""
        body = asdict(self)
        del body["sources"]
        return body


def _job(row: sqlite3.Row) -> Job:
    return Job(
        job_id=row["job_id"],
        title=row["title"],
        status=row["status"],
        rev=row["rev"],
        created=row["created"],
        started=row["started"],
        finished=row["finished"],
        stages=tuple(json.loads(row["stages"])),
        problems=tuple(json.loads(row["problems"])),
        error=row["error"],
        trace=row["trace"],
        generation=row["generation"],
        attempts=row["attempts"],
        cancelling=bool(row["cancel"]) and row["status"] == "running",
        upload_id=row["upload_id"],
        sources=tuple(Source(**source) for source in json.loads(row["sources"])),
    )


def worker_id() -> str:
    """Return who this process is: host, process id and its start time, so that a reused id is not taken for it."""
    return f"{socket.gethostname()}:{os.getpid()}:{_start_time(os.getpid())}"


def _start_time(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def is_gone(worker: str | None) -> bool:
    """Whether a worker of this host has ended; False where that cannot be known."""
    host, _, rest = (worker or "").partition(":")
    pid, _, started = rest.partition(":")
    if host != socket.gethostname() or not pid.isdigit() or not Path("/proc/self/stat").exists():
        return False
    return _start_time(int(pid)) != started


def insert(
    connection: sqlite3.Connection, *, title: str, sources: Sequence[Source], upload_id: str | None = None
) -> str:
    """Queue a job inside the caller's transaction and return its id."""
    job_id = new_id()
    listed = json.dumps([asdict(source) for source in sources])
    connection.execute(_INSERT, (job_id, title, listed, upload_id, now()))
    return job_id


def find(state: State, job_id: str) -> Job:
    """Return a job.

    Raises:
        JobError: there is none of that id.
    """
    with state.connection() as connection:
        row = connection.execute(_ONE, (job_id,)).fetchone()
    if row is None:
        raise JobError(f"there is no job {job_id[:40]}")
    return _job(row)


def newest(state: State, limit: int = 50) -> list[Job]:
    """Return the newest jobs, the newest first."""
    with state.connection() as connection:
        return [_job(row) for row in connection.execute(_NEWEST, (limit,))]


def cancel(state: State, job_id: str) -> Job:
    """Ask for the end of a job: at once where it waits, within a second or so where it runs.

    A job that has finished stays as it is.
    """
    with state.connection() as connection:
        connection.execute(_CANCEL, (now(), job_id))
    return find(state, job_id)


def claim(state: State, *, worker: str, lease_s: float) -> Job | None:
    """Take the oldest waiting job; None: nothing waits. Jobs of dead workers are put back or given up first."""
    with state.transaction() as connection:
        time_now = now()
        for row in connection.execute(_ABANDONED).fetchall():
            if row["lease_until"] >= time_now and not is_gone(row["worker"]):
                continue
            if row["attempts"] < ATTEMPTS_MAX:
                connection.execute(_REQUEUE, (row["job_id"],))
            else:
                reason = (
                    f"the loading process ended {row['attempts']} times while it worked on this, the last time without "
                    "a word: perhaps it ran out of memory. Try a part of the files, or `mycroft diagnose` on them"
                )
                connection.execute(_GIVE_UP, (reason, time_now, row["job_id"]))
        row = connection.execute(_CLAIM, (worker, time_now + lease_s, time_now)).fetchone()
    return None if row is None else _job(row)


def renew(state: State, job_id: str, *, worker: str, lease_s: float) -> Literal["go on", "cancelled", "lost"]:
    """Renew a lease, and say whether the work is still wanted and still this worker's."""
    with state.connection() as connection:
        row = connection.execute(_RENEW, (now() + lease_s, job_id, worker)).fetchone()
    if row is None:
        return "lost"
    return "cancelled" if row["cancel"] else "go on"


def release(state: State, job_id: str, *, worker: str) -> None:
    """Put a job back that its worker will not finish because it is told to stop; the attempt does not count."""
    with state.connection() as connection:
        connection.execute(_RELEASE, (job_id, worker))


def report(state: State, job_id: str, *, worker: str, stages: Sequence[Stage], problems: Sequence[str]) -> None:
    """Publish how far a job has come."""
    with state.connection() as connection:
        shown = json.dumps([asdict(stage) for stage in stages]), json.dumps(list(problems)[:PROBLEMS_SHOWN])
        connection.execute(_REPORT, (*shown, job_id, worker))


def finish(
    state: State,
    job_id: str,
    *,
    worker: str,
    status: Status,
    error: str | None = None,
    trace: str | None = None,
    generation: int | None = None,
) -> bool:
    """End a job; False where it is no longer this worker's, whose result then counts for nothing."""
    with state.connection() as connection:
        ended = connection.execute(_FINISH, (status, error, trace, generation, now(), job_id, worker))
        return ended.rowcount > 0


def sweep(state: State) -> int:
    """Forget the jobs that finished long ago, and return how many."""
    with state.connection() as connection:
        return connection.execute(_SWEEP, (now() - KEPT_S,)).rowcount
