"""Notes: kept with the incident, by whom and when, bounded, plain, gone with the trace."""

from __future__ import annotations

import pytest

from mycroft.app import notes
from mycroft.app.state import State


def add(state: State, text: str = "restarted", **changed: str) -> notes.Note:
    return notes.add(state, **{"trace": "t", "incident": "f1", "author": "Ada", "text": text, **changed})


def test_notes_are_in_the_order_in_which_they_were_written(state: State) -> None:
    made = [add(state, f"note {n}") for n in range(3)]
    add(state, incident="f2")
    add(state, trace="other")
    assert notes.of_trace(state, "t", "f1") == made
    assert len(notes.of_trace(state, "t")) == 4
    assert notes.counts(state, "t") == {"f1": 3, "f2": 1}


@pytest.mark.parametrize("text", ["", "  \n ", "\x00\x1b", "x" * (notes.TEXT_MAX + 1)])
def test_an_empty_or_endless_note_is_refused(state: State, text: str) -> None:
    with pytest.raises(notes.NoteError):
        add(state, text)
    assert notes.of_trace(state, "t") == []


def test_what_speaks_to_a_terminal_or_browser_is_taken_out_and_lines_stay(state: State) -> None:
    note = add(state, "a\r\n\tb \x1b[31m\u202e<b>", author="Ada\n\x07 Lovelace" + "x" * 200)
    assert note.text == "a\n\tb [31m<b>"
    assert note.author.startswith("Ada Lovelace") and len(note.author) == notes.AUTHOR_MAX


def test_an_incident_has_a_bounded_number_of_notes(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "NOTES_MAX", 2)
    add(state), add(state)
    with pytest.raises(notes.NoteError, match="delete some first"):
        add(state)
    add(state, incident="f2")


def test_a_note_is_deleted_from_its_own_trace_only(state: State) -> None:
    note = add(state)
    with pytest.raises(notes.NoteError):
        notes.remove(state, trace="other", note_id=note.note_id)
    notes.remove(state, trace="t", note_id=note.note_id)
    assert notes.of_trace(state, "t") == []
    add(state), add(state, trace="other")
    notes.forget(state, "t")
    assert notes.of_trace(state, "t") == [] and len(notes.of_trace(state, "other")) == 1
