from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mycroft.analysis.verdict import CATEGORIES
from mycroft.app import words


def test_every_category_of_the_verdict_has_a_name() -> None:
    assert set(words.CATEGORIES) == set(CATEGORIES)


def test_unknown_is_a_word_and_never_zero() -> None:
    assert {words.number(None), words.size(None), words.duration(None), words.time_of(None)} == {"unknown"}
    assert words.number(0) == "0"
    assert words.size(0) == "0 B"


def test_ranks_are_written_as_runs() -> None:
    assert words.ranks([7, 0, 1, 2, 3]) == "0–3, 7"
    assert words.ranks([4, 5]) == "4, 5"
    assert words.named_ranks([5]) == "rank 5"
    assert words.named_ranks([]) == "no rank"


@given(st.sets(st.integers(0, 400)), st.integers(1, 8))
def test_what_is_left_out_of_ranks_is_counted(values: set[int], limit: int) -> None:
    text = words.ranks(values, limit=limit)
    shown = 0
    body, _, left = text.partition(" and ")
    for part in filter(None, body.split(", ")):
        first, _, last = part.partition("–")
        shown += int(last or first) - int(first) + 1
    assert shown + int(left.removesuffix(" more") or 0) == len(values)


def test_clock_splits_an_iso_time() -> None:
    assert words.clock("2026-03-02T04:11:09.120Z") == ("04:11:09.120", "2026-03-02 UTC")
    assert words.clock("2026-03-02T04:11:09.123456+00:00") == ("04:11:09.123", "2026-03-02 UTC")
    assert words.clock("2026-03-02T04:11:09") == ("04:11:09", "2026-03-02")
    assert words.clock(None)[0] == "unknown"
    assert words.clock("yesterday") == ("yesterday", "")


@given(st.text(max_size=80), st.integers(2, 60))
def test_shorten_keeps_to_its_length_and_both_ends(text: str, length: int) -> None:
    short = words.shorten(text, length)
    assert len(short) <= max(length, 2)
    if len(text) <= length:
        assert short == text
    else:
        assert "…" in short
        assert short[0] == text[0]


def test_durations_have_the_unit_that_suits_them() -> None:
    assert words.duration(850) == "850 ns"
    assert words.duration(1_500_000) == "1.5 ms"
    assert words.duration(62_400_000_000) == "62.4 s"
    assert words.duration(600_000_000_000) == "10 min 00 s"
    assert words.duration(3 * 3600 * 10**9) == "3 h 00 min"
