"""What the watch knows, for everybody else: jobs, incidents and revisions, requests for evidence, alerts, numbers.

In the state file of the data folder; the watch writes jobs and incidents, the collector the evidence that arrives, the
pages read. Times are seconds since the epoch.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mycroft.app.state import State, new_id, now
from mycroft.errors import MycroftError

_DDL: Final = """
CREATE TABLE IF NOT EXISTS live_jobs (
    job TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    created REAL NOT NULL,
    seen REAL NOT NULL,
    trace TEXT,
    facts TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS live_processes (
    process TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    seen REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS live_incidents (
    incident TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    opened REAL NOT NULL,
    closed REAL,
    seen REAL NOT NULL,
    status TEXT NOT NULL,
    category TEXT NOT NULL,
    ranks TEXT NOT NULL,
    hosts TEXT NOT NULL,
    confidence TEXT NOT NULL,
    summary TEXT NOT NULL,
    revisions INTEGER NOT NULL,
    trace TEXT,
    generation INTEGER,
    page TEXT,
    finding TEXT NOT NULL,
    merged_into TEXT
);
CREATE INDEX IF NOT EXISTS live_incidents_by_job ON live_incidents (job, opened);
CREATE TABLE IF NOT EXISTS live_revisions (
    incident TEXT NOT NULL,
    revision INTEGER NOT NULL,
    at REAL NOT NULL,
    why TEXT NOT NULL,
    finding TEXT NOT NULL,
    trace TEXT,
    generation INTEGER,
    page TEXT,
    PRIMARY KEY (incident, revision)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS live_requests (
    request TEXT PRIMARY KEY,
    incident TEXT NOT NULL,
    host TEXT NOT NULL,
    processes TEXT NOT NULL,
    created REAL NOT NULL,
    handed REAL,
    ended REAL,
    problems TEXT,
    until_ns INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS live_evidence (
    incident TEXT NOT NULL,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    size INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (incident, host, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS live_notes (
    incident TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (incident, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS live_alerts (
    alert TEXT PRIMARY KEY,
    incident TEXT NOT NULL,
    target TEXT NOT NULL,
    event TEXT NOT NULL,
    at REAL NOT NULL,
    sent REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT ''
);

CREATE TABLE IF NOT EXISTS live_numbers (
    name TEXT PRIMARY KEY,
    at REAL NOT NULL,
    value TEXT NOT NULL
) WITHOUT ROWID;
"""
# Of requests that agents were told of and that have not ended: an answer may be lost on its way, or an agent be started
# anew. One that is at it leaves out what it has heard already.
ASK_AGAIN_S: Final = 20.0
ASK_FOR_S: Final = 300.0
_WAITS: Final = "ended IS NULL AND created > ? AND (handed IS NULL OR handed < ?)"
_OF_INCIDENTS: Final = (
    "live_incidents",
    "live_revisions",
    "live_requests",
    "live_evidence",
    "live_alerts",
    "live_notes",
)
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class LiveError(MycroftError):
    """A live job, incident or request that is not there, or a name that is none."""

    http_status = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """One job that is or was watched. `facts`: world size, hosts, silent hosts, and so on, as the watch last saw it."""

    job: str
    title: str
    created: float
    seen: float
    trace: str | None
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One incident; `closed` None: it is open. `finding` is that of its newest revision, in the verdict's JSON.

    `page` is the name of the finding in the published trace, None before it is published.
    """

    incident: str
    job: str
    opened: float
    closed: float | None
    seen: float
    status: str
    category: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    confidence: str
    summary: str
    revisions: int
    trace: str | None
    generation: int | None
    page: str | None
    finding: Mapping[str, Any]
    merged_into: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What was thought of an incident from a moment on, and why that changed; `page` as of an incident."""

    incident: str
    revision: int
    at: float
    why: str
    finding: Mapping[str, Any]
    trace: str | None
    generation: int | None
    page: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRequest:
    """What one agent is to bring for one incident. `problems`: what could not be had; None: not ended.

    Of a relay: rows of ranks up to `until_ns` (UTC, 0: all).
    """

    request: str
    incident: str
    host: str
    processes: tuple[str, ...]
    created: float
    handed: float | None
    ended: float | None
    problems: tuple[str, ...]
    until_ns: int = 0

    def asked(self) -> dict[str, Any]:
        """Return what the agent is told of it."""
        until = {"until_ns": self.until_ns} if self.until_ns else {}
        return {"id": self.request, "incident": self.incident, "processes": list(self.processes), **until}


class LiveState:
    """The tables of the live part of a state file; any process and thread."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.data_dir = state.data_dir
        with state.connection() as connection:
            connection.executescript(_DDL)
            # Folders of before revisions had pages of their own; another process may add it at the same moment.
            if "page" not in {row["name"] for row in connection.execute("PRAGMA table_info(live_revisions)")}:
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute("ALTER TABLE live_revisions ADD COLUMN page TEXT")
            # ... and of before relays were asked for rows up to a moment.
            if "until_ns" not in {row["name"] for row in connection.execute("PRAGMA table_info(live_requests)")}:
                with contextlib.suppress(sqlite3.OperationalError):
                    connection.execute("ALTER TABLE live_requests ADD COLUMN until_ns INTEGER NOT NULL DEFAULT 0")

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        with self._state.connection() as connection:
            return connection.execute(query, values).fetchall()

    def _row(self, query: str, name: str, missing: str) -> sqlite3.Row:
        found = self._rows(query, name)
        if not found:
            raise LiveError(missing)
        return found[0]

    # ---- jobs ----------------------------------------------------------------------

    def job_of(self, processes: Sequence[str]) -> str | None:
        """Return the job that any of the processes was seen in, the earliest made; None: all are new."""
        marks = ", ".join("?" * min(len(processes), 500))
        query = (
            "SELECT j.job FROM live_processes AS p JOIN live_jobs AS j USING (job) "  # noqa: S608 - question marks
            f"WHERE p.process IN ({marks}) ORDER BY j.created LIMIT 1"
        )
        with self._state.connection() as connection:
            row = connection.execute(query, list(processes)[:500]).fetchone()
        return None if row is None else str(row["job"])

    def see_job(self, job: str, *, title: str, processes: Sequence[str], facts: Mapping[str, Any]) -> None:
        """Note what a job is and which processes it has."""
        at = now()
        with self._state.transaction() as connection:
            connection.execute(
                "INSERT INTO live_jobs (job, title, created, seen, facts) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (job) DO UPDATE SET title = excluded.title, seen = excluded.seen, facts = excluded.facts",
                (job, title, at, at, json.dumps(facts)),
            )
            connection.executemany(
                "INSERT INTO live_processes (process, job, seen) VALUES (?, ?, ?) "
                "ON CONFLICT (process) DO UPDATE SET job = excluded.job, seen = excluded.seen",
                [(process, job, at) for process in processes],
            )

    def set_trace(self, job: str, trace: str) -> None:
        """Name the trace that a job is published as."""
        with self._state.connection() as connection:
            connection.execute("UPDATE live_jobs SET trace = ? WHERE job = ?", (trace, job))

    def jobs(self, *, since: float = 0.0) -> list[LiveJob]:
        """Return the jobs that were seen since then, the latest first."""
        return [
            _job(r)
            for r in self._rows("SELECT * FROM live_jobs WHERE seen >= ? ORDER BY seen DESC, job LIMIT 500", since)
        ]

    def job(self, job: str) -> LiveJob:
        """Return one job.

        Raises:
            LiveError: if there is none of that name.
        """
        return _job(self._row("SELECT * FROM live_jobs WHERE job = ?", job, f"no job {job[:80]!r} was watched here"))

    # ---- incidents -----------------------------------------------------------------

    def open_incident(self, job: str, finding: Mapping[str, Any], *, why: str) -> Incident:
        """Open an incident with its first revision."""
        incident, at = new_id()[:12], now()
        values = {"incident": incident, "job": job, "opened": at, "seen": at, "revisions": 1, **_columns(finding)}
        marks = ", ".join(f":{name}" for name in values)
        with self._state.transaction() as connection:
            connection.execute(
                f"INSERT INTO live_incidents ({', '.join(values)}) VALUES ({marks})",  # noqa: S608 - names of columns
                values,
            )
            self._add_revision(connection, incident, at=at, why=why)
        return self.incident(incident)

    def revise(self, incident: str, finding: Mapping[str, Any], *, why: str) -> Incident:
        """Add a revision: the verdict of an open incident has changed."""
        at = now()
        values = _columns(finding)
        changes = ", ".join(f"{name} = :{name}" for name in values)
        with self._state.transaction() as connection:
            connection.execute(
                f"UPDATE live_incidents SET seen = :seen, revisions = revisions + 1, {changes} "  # noqa: S608 - the same
                "WHERE incident = :incident",
                {**values, "seen": at, "incident": incident},
            )
            self._add_revision(connection, incident, at=at, why=why)
        return self.incident(incident)

    @staticmethod
    def _add_revision(connection: sqlite3.Connection, incident: str, *, at: float, why: str) -> None:
        """Keep what the incident now says as its newest revision."""
        connection.execute(
            "INSERT INTO live_revisions (incident, revision, at, why, finding) "
            "SELECT incident, revisions, ?, ?, finding FROM live_incidents WHERE incident = ?",
            (at, why, incident),
        )

    def touch(self, incident: str) -> None:
        """Note that an incident is still seen."""
        with self._state.connection() as connection:
            connection.execute("UPDATE live_incidents SET seen = ? WHERE incident = ?", (now(), incident))

    def close_incident(self, incident: str, *, merged_into: str | None = None) -> Incident:
        """Close an incident: it is over, or is the same as another."""
        with self._state.connection() as connection:
            connection.execute(
                "UPDATE live_incidents SET closed = ?, merged_into = ? WHERE incident = ? AND closed IS NULL",
                (now(), merged_into, incident),
            )
        return self.incident(incident)

    def published(self, incident: str, *, revision: int, trace: str, generation: int, page: str) -> None:
        """Note where the evidence of a revision lies; of the newest that has any, it is the incident's too."""
        with self._state.transaction() as connection:
            connection.execute(
                "UPDATE live_revisions SET trace = ?, generation = ?, page = ? WHERE incident = ? AND revision = ?",
                (trace, generation, page, incident, revision),
            )
            connection.execute(
                "UPDATE live_incidents SET (trace, generation, page) = (SELECT trace, generation, page "
                "FROM live_revisions WHERE incident = $1 AND generation IS NOT NULL ORDER BY revision DESC LIMIT 1) "
                "WHERE incident = $1",
                (incident,),
            )

    def incident(self, incident: str) -> Incident:
        """Return one incident.

        Raises:
            LiveError: if there is none of that name.
        """
        query = "SELECT * FROM live_incidents WHERE incident = ?"
        return _incident(self._row(query, incident, f"there is no incident {incident[:80]!r}"))

    def incidents(self, *, job: str | None = None, only_open: bool = False, limit: int = 200) -> list[Incident]:
        """Return incidents, the newest first."""
        clauses, values = ["1"], list[Any]()
        if job is not None:
            clauses.append("job = ?")
            values.append(job)
        if only_open:
            clauses.append("closed IS NULL")
        where = " AND ".join(clauses)
        query = f"SELECT * FROM live_incidents WHERE {where} ORDER BY opened DESC LIMIT ?"  # noqa: S608 - fixed words
        return [_incident(row) for row in self._rows(query, *values, limit)]

    def revisions(self, incident: str) -> list[Revision]:
        """Return the revisions of an incident, the first first."""
        rows = self._rows("SELECT * FROM live_revisions WHERE incident = ? ORDER BY revision", incident)
        return [Revision(**{**dict(row), "finding": json.loads(row["finding"])}) for row in rows]

    def note(self, incident: str, name: str, value: Any) -> None:
        """Keep what a watch has to know of an incident beyond what is said of it, for the one that is started next."""
        with self._state.transaction() as connection:
            connection.execute(
                "INSERT INTO live_notes (incident, name, value) VALUES (?, ?, ?) "
                "ON CONFLICT (incident, name) DO UPDATE SET value = excluded.value",
                (incident, name, json.dumps(value)),
            )

    def noted(self, incident: str, name: str) -> Any:
        """Return what was kept of an incident; None: nothing."""
        rows = self._rows("SELECT value FROM live_notes WHERE incident = ? AND name = ?", incident, name)
        return json.loads(rows[0]["value"]) if rows else None

    def pinned(self) -> set[tuple[str, int]]:
        """Return the generations that revisions of incidents rest on, as (trace, generation)."""
        rows = self._rows("SELECT DISTINCT trace, generation FROM live_revisions WHERE generation IS NOT NULL")
        return {(str(row["trace"]), int(row["generation"])) for row in rows}

    # ---- evidence ------------------------------------------------------------------

    def ask(self, incident: str, host: str, processes: Sequence[str], *, until_ns: int = 0) -> str:
        """Ask the agent of a host for evidence of processes; once an incident, host and moment `until_ns`."""
        request = new_id()
        with self._state.transaction() as connection:
            known = connection.execute(
                "SELECT request FROM live_requests WHERE incident = ? AND host = ? AND until_ns = ?",
                (incident, host, until_ns),
            ).fetchone()
            if known is not None:
                return str(known["request"])
            connection.execute(
                "INSERT INTO live_requests (request, incident, host, processes, created, until_ns) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (request, incident, host, json.dumps(list(processes)), now(), until_ns),
            )
        return request

    def hand_requests(self, host: str) -> list[EvidenceRequest]:
        """Return what the agent of a host has not been asked yet, or has not ended, and note that it is asked now."""
        at = now()
        with self._state.connection() as connection:
            rows = connection.execute(
                f"SELECT * FROM live_requests WHERE host = ? AND {_WAITS}",  # noqa: S608 - a constant
                (host, at - ASK_FOR_S, at - ASK_AGAIN_S),
            ).fetchall()
            for row in rows:
                connection.execute("UPDATE live_requests SET handed = ? WHERE request = ?", (at, row["request"]))
        return [_request(row) for row in rows]

    def waiting_hosts(self) -> set[str]:
        """Return the hosts whose agents have something to be asked."""
        at = now()
        query = f"SELECT DISTINCT host FROM live_requests WHERE {_WAITS}"  # noqa: S608 - a constant
        rows = self._rows(query, at - ASK_FOR_S, at - ASK_AGAIN_S)
        return {str(row["host"]) for row in rows}

    def request(self, request: str) -> EvidenceRequest:
        """Return one request.

        Raises:
            LiveError: if there is none of that name.
        """
        query = "SELECT * FROM live_requests WHERE request = ?"
        return _request(self._row(query, request, "this evidence was not asked for"))

    def requests(self, incident: str) -> list[EvidenceRequest]:
        """Return what was asked for an incident."""
        rows = self._rows("SELECT * FROM live_requests WHERE incident = ? ORDER BY created", incident)
        return [_request(row) for row in rows]

    def arrived(self, incident: str, *, host: str, name: str, size: int) -> None:
        """Note a file of evidence."""
        with self._state.connection() as connection:
            connection.execute(
                "INSERT INTO live_evidence (incident, name, host, size, at) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (incident, host, name) DO UPDATE SET size = excluded.size, at = excluded.at",
                (incident, name, host, size, now()),
            )

    def evidence(self, incident: str) -> list[sqlite3.Row]:
        """Return the files of evidence of an incident: `host`, `name`, `size`, `at`."""
        return self._rows("SELECT * FROM live_evidence WHERE incident = ? ORDER BY host, name", incident)

    def end_request(self, request: str, problems: Sequence[str]) -> None:
        """Note that an agent has brought what it could."""
        with self._state.connection() as connection:
            connection.execute(
                "UPDATE live_requests SET ended = ?, problems = ? WHERE request = ?",
                (now(), json.dumps(list(problems)[:100]), request),
            )

    # ---- alerts --------------------------------------------------------------------

    def plan_alert(self, incident: str, target: str, event: str) -> str | None:
        """Note that a target is to be told of an event of an incident; None: it was, or is to be, already."""
        alert = f"{incident}/{target}/{event}"
        with self._state.connection() as connection:
            done = connection.execute(
                "INSERT INTO live_alerts (alert, incident, target, event, at) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (alert) DO NOTHING",
                (alert, incident, target, event, now()),
            )
        return alert if done.rowcount else None

    def alert_tried(self, alert: str, *, error: str) -> None:
        """Note how a try to send an alert went; an empty error: it was taken."""
        with self._state.connection() as connection:
            connection.execute(
                "UPDATE live_alerts SET attempts = attempts + 1, error = ?, sent = ? WHERE alert = ?",
                (error, None if error else now(), alert),
            )

    def alerts(self, *, incident: str | None = None, unsent: bool = False) -> list[sqlite3.Row]:
        """Return alerts, the oldest first."""
        query = (
            "SELECT * FROM live_alerts WHERE (? IS NULL OR incident = ?) AND (NOT ? OR sent IS NULL) "
            "ORDER BY at LIMIT 1000"
        )
        return self._rows(query, incident, incident, unsent)

    # ---- bounds --------------------------------------------------------------------

    def sweep(self, *, keep_s: float) -> list[str]:
        """Forget what ended longer than `keep_s` ago; return the incidents that are gone, for their files to go too."""
        before = now() - keep_s
        with self._state.transaction() as connection:
            gone = [
                str(row["incident"])
                for row in connection.execute("SELECT incident FROM live_incidents WHERE closed < ?", (before,))
            ]
            for table in _OF_INCIDENTS:
                connection.executemany(
                    f"DELETE FROM {table} WHERE incident = ?",  # noqa: S608 - names of tables from the line above
                    [(name,) for name in gone],
                )
            connection.execute("DELETE FROM live_processes WHERE seen < ?", (before,))
            connection.execute(
                "DELETE FROM live_jobs WHERE seen < ? AND job NOT IN (SELECT job FROM live_incidents)", (before,)
            )
        return gone

    # ---- numbers -------------------------------------------------------------------

    def set_numbers(self, values: Mapping[str, Any]) -> None:
        """Keep named values for the metrics page and the pages."""
        with self._state.transaction() as connection:
            for name, value in values.items():
                self._number(connection, name, value)

    @staticmethod
    def _number(connection: sqlite3.Connection, name: str, value: Any) -> None:
        connection.execute(
            "INSERT INTO live_numbers (name, at, value) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET at = excluded.at, value = excluded.value",
            (name, now(), json.dumps(value)),
        )

    def numbers(self) -> dict[str, tuple[float, Any]]:
        """Return all named values with the time at which each was set."""
        rows = self._rows("SELECT * FROM live_numbers")
        return {str(row["name"]): (float(row["at"]), json.loads(row["value"])) for row in rows}


def safe_name(text: str) -> str:
    """Return a name that may be one of a file.

    Raises:
        LiveError: if it is none.
    """
    if not _SAFE_NAME.fullmatch(text) or text in (".", ".."):
        raise LiveError(f"{text[:80]!r} is no name of a file: letters, digits, `.`, `_` and `-` only")
    return text


def _columns(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the row of an incident says of its newest finding."""
    cause = finding["root_cause"]
    return {
        "status": finding["status"],
        "category": finding["category"],
        "ranks": json.dumps(cause["ranks"]),
        "hosts": json.dumps(cause["hosts"]),
        "confidence": finding["confidence"],
        "summary": finding["summary"],
        "finding": json.dumps(finding),
    }


def _job(row: sqlite3.Row) -> LiveJob:
    return LiveJob(**{**dict(row), "facts": json.loads(row["facts"])})


def _incident(row: sqlite3.Row) -> Incident:
    values = dict(row)
    for name in ("ranks", "hosts"):
        values[name] = tuple(json.loads(values[name]))
    values["finding"] = json.loads(values["finding"])
    return Incident(**values)


def _request(row: sqlite3.Row) -> EvidenceRequest:
    values = dict(row)
    values["processes"] = tuple(json.loads(values["processes"]))
    values["problems"] = tuple(json.loads(values["problems"])) if values["problems"] else ()
    return EvidenceRequest(**values)
