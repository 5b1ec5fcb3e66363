"""Notes that people leave on a diagnosis: who, when, what; kept beside the catalogue, never in a trace.

A note belongs to an incident of a trace over all its generations. It is plain text, and is only ever shown as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from mycroft.app.state import State, new_id, now
from mycroft.errors import MycroftError

TEXT_MAX: Final = 4000
AUTHOR_MAX: Final = 80
NOTES_MAX: Final = 500
"""Notes that one incident may have; more is a log, and belongs elsewhere."""

_INSERT: Final = "INSERT INTO notes (note_id, trace, incident, author, text, created) VALUES (?, ?, ?, ?, ?, ?)"
_LIST: Final = """
SELECT note_id, trace, incident, author, text, created
FROM notes
WHERE trace = ? AND (? IS NULL OR incident = ?)
ORDER BY created, rowid
"""
_COUNT: Final = "SELECT count(*) FROM notes WHERE trace = ? AND incident = ?"
_COUNTS: Final = "SELECT incident, count(*) FROM notes WHERE trace = ? GROUP BY incident"
_DELETE: Final = "DELETE FROM notes WHERE trace = ? AND note_id = ?"
_FORGET: Final = "DELETE FROM notes WHERE trace = ?"


class NoteError(MycroftError):
    """A note that cannot be kept or found; `http_status` is the answer's."""

    def __init__(self, message: str, *, http_status: int = 400) -> None:
        super().__init__(message)
        self.http_status = http_status


@dataclass(frozen=True, slots=True)
class Note:
    """One note. `author` is what the proxy vouches for or what was typed, empty for nobody; `created` in s."""

    note_id: str
    trace: str
    incident: str
    author: str
    text: str
    created: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as the API answers it."""
        return {
            "note": self.note_id,
            "incident": self.incident,
            "author": self.author,
            "text": self.text,
            "created": self.created,
        }


def _cleaned(text: str) -> str:
    """Return text without what a browser or a terminal would act on; lines and tabs stay."""
    return "".join(c for c in text.replace("\r\n", "\n") if c.isprintable() or c in "\n\t").strip()


def add(state: State, *, trace: str, incident: str, author: str, text: str) -> Note:
    """Keep a note.

    Raises:
        NoteError: it is empty or too long, or the incident has as many as it may have.
    """
    kept = _cleaned(text)
    if not kept or len(kept) > TEXT_MAX:
        raise NoteError(f"text: a note of 1 to {TEXT_MAX:,} characters was expected")
    name = " ".join(_cleaned(author).split())[:AUTHOR_MAX]
    note = Note(new_id(), trace, incident, name, kept, now())
    with state.transaction() as connection:
        if connection.execute(_COUNT, (trace, incident)).fetchone()[0] >= NOTES_MAX:
            raise NoteError(f"{incident} has {NOTES_MAX} notes already; delete some first", http_status=409)
        connection.execute(_INSERT, (note.note_id, trace, incident, note.author, note.text, note.created))
    return note


def of_trace(state: State, trace: str, incident: str | None = None) -> list[Note]:
    """Return the notes of a trace, or of one of its incidents, the oldest first."""
    with state.connection() as connection:
        return [Note(*row) for row in connection.execute(_LIST, (trace, incident, incident))]


def signed(found: Iterable[Note]) -> list[tuple[str, float, str]]:
    """Return notes as a summary takes them: who wrote each, when, and what."""
    return [(note.author, note.created, note.text) for note in found]


def counts(state: State, trace: str) -> dict[str, int]:
    """Return how many notes each incident of a trace has."""
    with state.connection() as connection:
        return {row[0]: row[1] for row in connection.execute(_COUNTS, (trace,))}


def remove(state: State, *, trace: str, note_id: str) -> None:
    """Delete a note for good.

    Raises:
        NoteError: the trace has no such note.
    """
    with state.connection() as connection:
        if connection.execute(_DELETE, (trace, note_id)).rowcount == 0:
            raise NoteError(f"trace {trace} has no note {note_id}", http_status=404)


def forget(state: State, trace: str) -> None:
    """Delete all notes of a trace that is deleted."""
    with state.connection() as connection:
        connection.execute(_FORGET, (trace,))
