"""The files of the evidence and what was taken from them; stacks; facts of the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mycroft.app.queries import TraceReader
from mycroft.loaders.files import last_line, read_lines

_FILES: Final = """
SELECT file_id::BIGINT AS file_id, loader, path, size_bytes::BIGINT AS size_bytes, sha256, rows::BIGINT AS rows,
    dropped::BIGINT AS dropped, problems, rank::BIGINT AS rank
FROM files
ORDER BY file_id
LIMIT ?
"""
_FILES_COUNT: Final = "SELECT count(*) FROM files"
_FILE: Final = """
SELECT file_id::BIGINT AS file_id, loader, path, size_bytes::BIGINT AS size_bytes, sha256, rows::BIGINT AS rows,
    dropped::BIGINT AS dropped, problems, rank::BIGINT AS rank, coalesce(job_id, 0)::BIGINT AS job
FROM files
WHERE file_id = ?
"""
_KEPT: Final = """
SELECT first_line::BIGINT AS first_line, lines::BIGINT AS lines
FROM file_blocks
WHERE file_id = ? AND first_line <= ? AND first_line + lines > ?
"""
_ENTRIES: Final = """
SELECT
    o.line::BIGINT AS line,
    c.key AS comm,
    c.desc AS "group",
    o.op_seq::BIGINT AS seq,
    o.op_kind::VARCHAR AS kind,
    o.state::VARCHAR AS state,
    coalesce(o.retired, FALSE) AS retired,
    o.peer::BIGINT AS peer,
    epoch_ns(o.enq_ts) AS enq_ns,
    o.in_sizes,
    o.out_sizes,
    o.dtype
FROM coll_ops o
LEFT JOIN communicators c USING (comm_id)
WHERE o.file_id = ? AND o.line BETWEEN ? AND ?
ORDER BY o.line
"""
_ENTRIES_EXTENT: Final = "SELECT min(line)::BIGINT, max(line)::BIGINT, count(*)::BIGINT FROM coll_ops WHERE file_id = ?"
_STACKS: Final = """
SELECT
    s.rank::BIGINT AS rank,
    s.thread,
    s.state,
    s.tool,
    s.stack_id,
    s.file_id::BIGINT AS file_id,
    s.line::BIGINT AS line,
    f.path,
    t.frames
FROM stacks s
LEFT JOIN stack_texts t USING (stack_id)
LEFT JOIN files f USING (file_id)
WHERE s.rank = ?
ORDER BY s.is_main DESC NULLS LAST, s.ts DESC NULLS LAST, s.thread
LIMIT 200
"""
_MAIN_STACKS: Final = """
SELECT rank::BIGINT AS rank, stack_id, thread, state, tool, file_id::BIGINT AS file_id, line::BIGINT AS line
FROM stacks
WHERE rank IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY rank ORDER BY is_main DESC NULLS LAST, ts DESC NULLS LAST, thread) = 1
ORDER BY rank
"""
_JOB: Final = """
SELECT name, epoch_ns(started) AS started_ns, world_size::BIGINT AS world_size, source, note
FROM jobs
ORDER BY job_id
LIMIT 1
"""
_DUMP_KINDS: Final = """
SELECT kind, version, backend, lib_version, count(*)::BIGINT AS dumps, sum(entries)::BIGINT AS entries,
    epoch_ns(min(first_ts)) AS first_ns, epoch_ns(max(last_ts)) AS last_ns,
    count(*) FILTER (WHERE first_record > 0)::BIGINT AS overwritten, bool_or(has_timing) AS has_timing
FROM rank_dumps
GROUP BY ALL
ORDER BY dumps DESC
"""
_META: Final = "SELECT key, value FROM trace_meta ORDER BY key"


@dataclass(frozen=True, slots=True)
class TextWindow:
    """Some lines of a file: `lines` begin at number `first`; None: the trace kept no text of that line.

    `total` is the number of the last line that was kept; 0: none.
    """

    first: int
    lines: tuple[str | None, ...]
    total: int


def files(reader: TraceReader, *, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the files of the evidence, read or not, and how many there are."""
    return reader.frame(_FILES, [limit]).to_dicts(), reader.frame(_FILES_COUNT).item()


def file(reader: TraceReader, file_id: int) -> dict[str, Any] | None:
    """Return one file; None where the trace has none of that number."""
    found = reader.frame(_FILE, [file_id])
    return found.to_dicts()[0] if found.height else None


def text_of(reader: TraceReader, file_id: int, *, first: int, last: int) -> TextWindow:
    """Return the lines `first` to `last` (from 1) of a file, as far as the trace keeps its text.

    A trace keeps the lines that claims rest on, and of very long files not all others.
    """
    with reader.store() as store:
        total = last_line(store, file_id) or 0
        lines = read_lines(store, file_id, first, last - first + 1)
    kept: set[int] = set()
    for start, count in reader.frame(_KEPT, [file_id, last, first]).iter_rows():
        kept.update(range(max(start, first), min(start + count, last + 1)))
    found = (line if number in kept else None for number, line in enumerate(lines, start=first))
    return TextWindow(first, tuple(found), total)


def entries_of(reader: TraceReader, file_id: int, *, first: int, last: int) -> list[dict[str, Any]]:
    """Return the operations that were taken from a file, by their number in it."""
    return reader.frame(_ENTRIES, [file_id, first, last]).to_dicts()


def entries_extent(reader: TraceReader, file_id: int) -> tuple[int | None, int | None, int]:
    """Return the least and greatest entry number of a file, and how many operations were taken from it."""
    row = reader.frame(_ENTRIES_EXTENT, [file_id]).row(0)
    return row[0], row[1], row[2]


def stacks_of(reader: TraceReader, rank: int) -> list[dict[str, Any]]:
    """Return the stacks of a rank's threads, the main thread first."""
    return reader.frame(_STACKS, [rank]).to_dicts()


def main_stacks(reader: TraceReader) -> list[dict[str, Any]]:
    """Return the newest stack of the main thread of each rank that has one."""
    return reader.frame(_MAIN_STACKS).to_dicts()


def job(reader: TraceReader) -> dict[str, Any] | None:
    """Return what the evidence says of the job; None where no source speaks of one."""
    found = reader.frame(_JOB)
    return found.to_dicts()[0] if found.height else None


def dump_kinds(reader: TraceReader) -> list[dict[str, Any]]:
    """Return which kinds of dumps there are, with counts and the time they cover."""
    return reader.frame(_DUMP_KINDS).to_dicts()


def meta(reader: TraceReader) -> dict[str, str]:
    """Return what the trace says of itself."""
    return dict(reader.frame(_META).iter_rows())
