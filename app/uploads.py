"""Uploads in chunks: any size, any number of files, resumable, in constant memory.

A file's bytes lie in `uploads/<id>/<number>`; the name that the user gave it is data and never part of a path here.
A chunk is recorded after its bytes are on the disk, so what is recorded can be relied on after a crash; sending a
chunk again is harmless.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from mycroft.app import jobs
from mycroft.app.config import AppConfig
from mycroft.app.state import State, new_id, now
from mycroft.errors import MycroftError

PIECE_BYTES: Final = 1024 * 1024
HEAD_BYTES: Final = 64 * 1024
NAME_MAX: Final = 1000
SWEEP_KEEP_S: Final = 7 * 24 * 3600

_INSERT: Final = """
INSERT INTO uploads (upload_id, title, status, reserved_bytes, chunk_bytes, created, expires)
VALUES (?, ?, 'open', ?, ?, ?, ?)
"""
_INSERT_FILE: Final = "INSERT INTO upload_files (upload_id, file, path, size, mtime) VALUES (?, ?, ?, ?, ?)"
_ONE: Final = "SELECT * FROM uploads WHERE upload_id = ?"
_FILES: Final = "SELECT file, path, size, mtime, format FROM upload_files WHERE upload_id = ? ORDER BY file"
_FILE: Final = "SELECT path, size, format FROM upload_files WHERE upload_id = ? AND file = ?"
_CHUNKS: Final = "SELECT file, chunk FROM upload_chunks WHERE upload_id = ? ORDER BY file, chunk"
_COUNTS: Final = "SELECT file, count(*) FROM upload_chunks WHERE upload_id = ? GROUP BY file"
_RECORD: Final = """
INSERT OR IGNORE INTO upload_chunks (upload_id, file, chunk)
SELECT upload_id, ?, ?
FROM uploads
WHERE upload_id = ? AND status = 'open'
"""
_HAS_CHUNK: Final = "SELECT 1 FROM upload_chunks WHERE upload_id = ? AND file = ? AND chunk = ?"
_TOUCH: Final = "UPDATE uploads SET expires = ? WHERE upload_id = ? AND status = 'open'"
_SET_FORMAT: Final = "UPDATE upload_files SET format = ? WHERE upload_id = ? AND file = ?"
_END: Final = "UPDATE uploads SET status = ?, job_id = ? WHERE upload_id = ? AND status = 'open'"
_OPEN: Final = "SELECT upload_id, reserved_bytes FROM uploads WHERE status = 'open'"
_EXPIRED: Final = "SELECT upload_id FROM uploads WHERE status = 'open' AND expires < ?"
_NEEDED: Final = """
SELECT uploads.upload_id
FROM uploads
LEFT JOIN jobs USING (job_id)
WHERE uploads.status = 'open' OR jobs.status IN ('queued', 'running')
"""
_FORGET: Final = (
    "DELETE FROM upload_chunks WHERE upload_id = ?",
    "DELETE FROM upload_files WHERE upload_id = ?",
)
_FORGET_UPLOAD: Final = "DELETE FROM uploads WHERE status <> 'open' AND expires < ?"


class UploadError(MycroftError):
    """An upload, or a part of one, that is refused; `http_status` is the answer's."""

    def __init__(self, message: str, *, http_status: int = 400) -> None:
        super().__init__(message)
        self.http_status = http_status


class Readable(Protocol):
    """The body of a request."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; empty at the end."""
        ...


@dataclass(frozen=True, slots=True)
class WantedFile:
    """One file that a client wants to send. `mtime` is seconds since the epoch, None where unknown."""

    path: str
    size: int
    mtime: float | None = None


def wanted_files(body: Any, *, files_max: int) -> list[WantedFile]:
    """Read the `files` of a request's JSON.

    Raises:
        UploadError: it is not a list of files with usable names and sizes.
    """
    listed = body.get("files") if isinstance(body, Mapping) else None
    if not isinstance(listed, list) or not listed:
        raise UploadError('the body must be {"files": [{"path": …, "size": …, "mtime": …}, …]} with at least one file')
    if len(listed) > files_max:
        raise UploadError(f"{len(listed)} files are more than {files_max}; send an archive", http_status=413)
    return [_wanted(position, entry) for position, entry in enumerate(listed)]


def _wanted(position: int, entry: Any) -> WantedFile:
    if not isinstance(entry, Mapping):
        raise UploadError(f"file {position}: an object was expected")
    path, size, mtime = entry.get("path"), entry.get("size"), entry.get("mtime")
    if not isinstance(path, str) or not path or len(path) > NAME_MAX:
        raise UploadError(f"file {position}: a name of 1 to {NAME_MAX} characters was expected")
    path = path.replace("\\", "/")
    if path.startswith("/") or ".." in path.split("/") or not path.isprintable():
        raise UploadError(f"file {position}: the name {path[:80]!r} is absolute, climbs, or holds control characters")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise UploadError(f"{path}: the size must be a whole number of bytes")
    if mtime is not None and (isinstance(mtime, bool) or not isinstance(mtime, int | float)):
        raise UploadError(f"{path}: mtime must be a number of seconds")
    return WantedFile(path, size, mtime)


def title_of(paths: Sequence[str]) -> str:
    """Return what to call an upload: its one top folder, else its first file and how many more."""
    tops = {path.split("/", 1)[0] for path in paths}
    if len(tops) == 1:
        return next(iter(tops))
    return f"{paths[0].rsplit('/', 1)[-1]} and {len(paths) - 1} more"


def chunk_count(size: int, chunk_bytes: int) -> int:
    """Return how many chunks a file has; an empty file has none."""
    return -(-size // chunk_bytes)


def ranges(chunks: Sequence[int]) -> list[tuple[int, int]]:
    """Return sorted chunk numbers as (first, past the last) ranges."""
    found: list[tuple[int, int]] = []
    for chunk in chunks:
        if found and found[-1][1] == chunk:
            found[-1] = (found[-1][0], chunk + 1)
        else:
            found.append((chunk, chunk + 1))
    return found


def _read(body: Readable, size: int) -> bytes:
    """Return the next piece of a body; a connection that breaks or stalls is the sender's failure, not the disk's."""
    try:
        return body.read(size)
    except OSError as error:
        raise UploadError(f"the body stopped: {error or type(error).__name__}", http_status=408) from error


class Uploads:
    """The uploads of one data folder; any number of processes and threads may use it.

    `sniff(name, size, head)` names the format of a file from its first bytes, None where no loader knows it.
    """

    def __init__(
        self, config: AppConfig, state: State, *, sniff: Callable[[str, int, bytes], str | None] = lambda *_: None
    ) -> None:
        self._config = config
        self._state = state
        self._sniff = sniff
        self._root = config.data_dir / "uploads"

    def folder(self, upload_id: str) -> Path:
        """Return where the bytes of an upload lie. Only ids from the database come here, never a client's text."""
        return self._root / upload_id

    def create(self, files: Sequence[WantedFile]) -> dict[str, Any]:
        """Reserve room for some files and return the upload: id, chunk size, expiry.

        Raises:
            UploadError: over the quota (413), or not enough free space (507).
        """
        total = sum(file.size for file in files)
        config = self._config
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        upload_id = new_id()
        title = title_of([file.path for file in files])
        created = now()
        with self._state.transaction() as connection:
            self._check_room(connection, total)
            connection.execute(
                _INSERT,
                (upload_id, title, total, config.chunk_bytes, created, created + config.upload_expiry_s),
            )
            connection.executemany(
                _INSERT_FILE,
                [(upload_id, number, file.path, file.size, file.mtime) for number, file in enumerate(files)],
            )
        self.folder(upload_id).mkdir(mode=0o700)
        return {
            "upload": upload_id,
            "title": title,
            "chunk_bytes": config.chunk_bytes,
            "expires": created + config.upload_expiry_s,
            "total_bytes": total,
        }

    def _check_room(self, connection: sqlite3.Connection, total: int) -> None:
        pending = connection.execute(_OPEN).fetchall()
        reserved = sum(row["reserved_bytes"] for row in pending)
        quota = self._config.upload_quota_bytes
        if reserved + total > quota:
            raise UploadError(
                f"{total} bytes, with {reserved} bytes of uploads under way, are over the quota of {quota} bytes; "
                "finish or cancel other uploads, or send less",
                http_status=413,
            )
        # What pending uploads have reserved and not written yet is not free, whatever the disk says.
        written = sum(self._written_bytes(row["upload_id"]) for row in pending)
        free = shutil.disk_usage(self._root).free - max(0, reserved - written)
        needed = total + self._config.free_space_reserve_bytes
        if free < needed:
            raise UploadError(
                f"{total} bytes do not fit: {free} bytes are free in the data folder, of which "
                f"{self._config.free_space_reserve_bytes} are kept",
                http_status=507,
            )

    def _written_bytes(self, upload_id: str) -> int:
        try:
            return sum(entry.stat().st_blocks * 512 for entry in self.folder(upload_id).iterdir())
        except OSError:
            return 0

    def _find(self, connection: sqlite3.Connection, upload_id: str) -> sqlite3.Row:
        row = connection.execute(_ONE, (upload_id,)).fetchone()
        if row is None:
            raise UploadError(f"there is no upload {upload_id[:40]}", http_status=404)
        return row

    def _find_open(self, connection: sqlite3.Connection, upload_id: str) -> sqlite3.Row:
        row = self._find(connection, upload_id)
        if row["status"] == "complete":
            raise UploadError(f"upload {upload_id} is complete already", http_status=409)
        if row["status"] != "open" or row["expires"] < now():
            raise UploadError(f"upload {upload_id} has ended; start again", http_status=410)
        return row

    def status(self, upload_id: str) -> dict[str, Any]:
        """Return what has arrived: per file, ranges of chunks [first, past the last) and the format as recognised."""
        with self._state.connection() as connection:
            upload = self._find(connection, upload_id)
            files = connection.execute(_FILES, (upload_id,)).fetchall()
            chunks: dict[int, list[int]] = {}
            for row in connection.execute(_CHUNKS, (upload_id,)):
                chunks.setdefault(row["file"], []).append(row["chunk"])
        complete = upload["status"] == "complete"
        listed: list[dict[str, Any]] = []
        received_bytes = 0
        for row in files:
            count = chunk_count(row["size"], upload["chunk_bytes"])
            got = ranges(range(count)) if complete else ranges(chunks.get(row["file"], []))
            received_bytes += sum(
                min(end * upload["chunk_bytes"], row["size"]) - first * upload["chunk_bytes"] for first, end in got
            )
            listed.append(
                {
                    "file": row["file"],
                    "path": row["path"],
                    "size": row["size"],
                    "mtime": row["mtime"],
                    "chunks": count,
                    "received": got,
                    "format": row["format"],
                }
            )
        return {
            "upload": upload_id,
            "title": upload["title"],
            "status": "expired" if upload["status"] == "open" and upload["expires"] < now() else upload["status"],
            "chunk_bytes": upload["chunk_bytes"],
            "expires": upload["expires"],
            "total_bytes": upload["reserved_bytes"],
            "received_bytes": received_bytes,
            "job": upload["job_id"],
            "files": listed,
        }

    def write_chunk(
        self,
        upload_id: str,
        *,
        file: int,
        chunk: int,
        body: Readable,
        length: int | None,
        crc32: int | None = None,
    ) -> dict[str, Any]:
        """Write one chunk from the body of a request, in pieces of 1 MiB, and record it.

        Raises:
            UploadError: 404 no such upload, file or chunk; 409 complete already; 410 ended; 411 without a length;
                408 the sender stopped; 400 not the length of this chunk; 503 damaged on the way; 507 disk full.
        """
        with self._state.connection() as connection:
            upload = self._find_open(connection, upload_id)
            row = connection.execute(_FILE, (upload_id, file)).fetchone()
        if row is None:
            raise UploadError(f"upload {upload_id} has no file {file}", http_status=404)
        start = chunk * upload["chunk_bytes"]
        expected = min(upload["chunk_bytes"], row["size"] - start)
        if expected <= 0:
            raise UploadError(f"{row['path']}: there is no chunk {chunk}", http_status=404)
        if length is None:
            raise UploadError("a chunk needs a Content-Length", http_status=411)
        if length != expected:
            raise UploadError(f"{row['path']}: chunk {chunk} has {expected} bytes, not {length}")
        try:
            head = self._write(upload_id, file, start, body, expected, crc32)
        except FileNotFoundError as error:
            raise UploadError(f"upload {upload_id} has ended; start again", http_status=410) from error
        except OSError as error:
            raise UploadError(f"the chunk cannot be written: {error.strerror}", http_status=507) from error
        found = self._sniff(row["path"], row["size"], head) if chunk == 0 else row["format"]
        with self._state.transaction() as connection:
            recorded = connection.execute(_RECORD, (file, chunk, upload_id)).rowcount
            if recorded:
                connection.execute(_TOUCH, (now() + self._config.upload_expiry_s, upload_id))
                if chunk == 0 and found is not None:
                    connection.execute(_SET_FORMAT, (found, upload_id, file))
            elif connection.execute(_HAS_CHUNK, (upload_id, file, chunk)).fetchone() is None:
                raise UploadError(f"upload {upload_id} has ended; start again", http_status=410)
        return {"file": file, "chunk": chunk, "format": found}

    def _write(self, upload_id: str, file: int, start: int, body: Readable, expected: int, crc32: int | None) -> bytes:
        """Copy `expected` bytes to their place and return the first of them; nothing is recorded here."""
        # No O_CREAT without the folder: a cancelled upload must not come back to life.
        descriptor = os.open(self.folder(upload_id) / str(file), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            written, checksum, head = 0, 0, b""
            while written < expected:
                piece = _read(body, min(PIECE_BYTES, expected - written))
                if not piece:
                    raise UploadError(f"the body ended after {written} of {expected} bytes")
                if written == 0:
                    head = bytes(piece[:HEAD_BYTES])
                checksum = zlib.crc32(piece, checksum)
                at = 0
                while at < len(piece):
                    at += os.pwrite(descriptor, piece[at:] if at else piece, start + written + at)
                written += len(piece)
            if crc32 is not None and crc32 != checksum:
                raise UploadError("the chunk arrived damaged; send it again", http_status=503)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        return head

    def complete(self, upload_id: str) -> str:
        """Queue the ingest of an upload whose chunks are all there, and return the job's id; repeats are harmless.

        Raises:
            UploadError: 409 with what is missing; 404, 410.
        """
        with self._state.transaction() as connection:
            row = self._find(connection, upload_id)
            if row["status"] == "complete":
                return row["job_id"]
            upload = self._find_open(connection, upload_id)
            counts = dict(connection.execute(_COUNTS, (upload_id,)))
            files = connection.execute(_FILES, (upload_id,)).fetchall()
            missing = [
                row["path"]
                for row in files
                if counts.get(row["file"], 0) < chunk_count(row["size"], upload["chunk_bytes"])
            ]
            if missing:
                raise UploadError(
                    f"{len(missing)} of {len(files)} files are not complete, first {missing[0]}", http_status=409
                )
            folder = self.folder(upload_id)
            for row in files:
                if row["size"] == 0:
                    (folder / str(row["file"])).touch(mode=0o600)
            sources = [jobs.Source(row["path"], str(folder / str(row["file"]))) for row in files]
            job_id = jobs.insert(connection, title=upload["title"], sources=sources, upload_id=upload_id)
            connection.execute(_END, ("complete", job_id, upload_id))
            connection.execute(_FORGET[0], (upload_id,))
        return job_id

    def cancel(self, upload_id: str) -> None:
        """End an upload and free its space; one that has ended already stays as it is.

        Raises:
            UploadError: 404; 409 complete: its job may be cancelled instead.
        """
        with self._state.transaction() as connection:
            if self._find(connection, upload_id)["status"] == "complete":
                raise UploadError(f"upload {upload_id} is complete; cancel its job instead", http_status=409)
            self._close(connection, upload_id, "cancelled")
        self.discard(upload_id)

    def _close(self, connection: sqlite3.Connection, upload_id: str, status: str) -> None:
        connection.execute(_END, (status, None, upload_id))
        for statement in _FORGET:
            connection.execute(statement, (upload_id,))

    def discard(self, upload_id: str) -> None:
        """Delete the bytes of an upload: after it was cancelled or swept, or when its job needs them no more."""
        shutil.rmtree(self.folder(upload_id), ignore_errors=True)

    def sweep(self) -> list[str]:
        """End the uploads that have expired, delete the bytes that nobody needs, and return the ids of the expired."""
        with self._state.transaction() as connection:
            expired = [row["upload_id"] for row in connection.execute(_EXPIRED, (now(),)).fetchall()]
            for upload_id in expired:
                self._close(connection, upload_id, "expired")
            connection.execute(_FORGET_UPLOAD, (now() - SWEEP_KEEP_S,))
            # Listed inside the transaction: an upload that begins now is not on the disk yet.
            lying = {entry.name for entry in self._root.iterdir()} if self._root.is_dir() else set[str]()
            needed = {row[0] for row in connection.execute(_NEEDED)}
        for upload_id in lying - needed:
            self.discard(upload_id)
        return expired
