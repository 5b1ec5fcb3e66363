"""Times as logs write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mycroft.loaders.text.clock import FALLBACK_YEAR, Years, first_moment, full_dates

MS = 1_000_000


def ns(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


@pytest.mark.parametrize(
    ("text", "expected", "quality"),
    [
        ("2026-03-02T04:11:09.123456789Z x", ns("2026-03-02T04:11:09.123456") + 789, "exact"),
        ("2026-03-02T04:11:09+02:00", ns("2026-03-02T02:11:09"), "exact"),
        ("2026-03-02 04:11:09.5 -0530 x", ns("2026-03-02T09:41:09.5"), "exact"),
        ("2026-03-02 04:11:09,013 INFO", ns("2026-03-02T04:11:09.013"), "zone_assumed"),
        ("[2026/03/02 04:11:09]", ns("2026-03-02T04:11:09"), "zone_assumed"),
        ("time      : 2026-02-17_09:15:06", ns("2026-02-17T09:15:06"), "zone_assumed"),
        ("03/02/2026 04:11:09 - INFO", ns("2026-03-02T04:11:09"), "zone_assumed"),
        ("Tue Mar  3 02:17:05 2026", ns("2026-03-03T02:17:05"), "zone_assumed"),
        ("Mar  3 02:17:05 host", ns("2025-03-03T02:17:05"), "year_assumed"),
        ("INFO 09-04 22:07:55 [core.py:58]", ns("2025-09-04T22:07:55"), "year_assumed"),
        ("[02/17 09:14:03 d2]", ns("2025-02-17T09:14:03"), "year_assumed"),
    ],
)
def test_every_form_of_a_time(text: str, expected: int, quality: str) -> None:
    moment = first_moment(text, Years([ns("2025-06-01T00:00:00")]))
    assert moment is not None
    assert (moment.ns, moment.quality) == (expected, quality)


@pytest.mark.parametrize("text", ["", "12:30", "2026-99-99 04:11:09", "loss 04:99:09", "a" * 1000, "9999999999:00:00"])
def test_what_is_no_time(text: str) -> None:
    assert first_moment(text, Years()) is None


def test_the_year_is_that_of_the_nearest_full_date() -> None:
    years = Years([ns("2025-12-31T23:00:00"), ns("2019-06-15T00:00:00")])
    assert years.of(12, 31) == 2025
    assert years.of(1, 1) == 2026
    assert years.of(6, 14) == 2019


def test_without_any_full_date_the_year_is_a_fixed_one() -> None:
    assert Years().of(2, 17) == FALLBACK_YEAR


def test_full_dates_are_found_in_all_forms() -> None:
    text = "a 2026-03-02 04:11:09 b 03/02/2024 04:11:09 c Tue Mar  3 02:17:05 2022 d Mar  3 02:17:05"
    assert full_dates(text) == [ns("2026-03-02T04:11:09"), ns("2024-03-02T04:11:09"), ns("2022-03-03T02:17:05")]
