"""The page of a comparison: windows of the address, rows, and words."""

from __future__ import annotations

import math

import pytest

from mycroft.analysis.compare import Change
from mycroft.app.pages.compare import MEASURES, Side, change_row, shape_text, window_from, window_text


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("0-20s", (0, 20_000_000)),
        ("1.5-3", (1_500_000, 3_000_000)),
        (" 20 - 10.25 s ", (10_250_000, 20_000_000)),
        ("61200000-75000000", (61_200_000, 75_000_000)),
        ("", None),
        (None, None),
        ("x", None),
        ("5", None),
        ("-1-2", None),
    ],
)
def test_windows_are_seconds_for_people_and_microseconds_in_links(text: str | None, window: object) -> None:
    assert window_from(text) == window


@pytest.mark.parametrize("window", [(0, 20_000_000), (1_500_000, 3_000_001), (0, 1)])
def test_a_window_survives_the_form(window: tuple[int, int]) -> None:
    assert window_from(window_text(window)) == window


def test_a_shape_is_named_by_what_is_known_of_it() -> None:
    assert shape_text(("tp", "all_reduce", 1 << 20, "Float")) == "all_reduce of tensor parallel, 1.0 MiB Float"
    assert shape_text(("", "barrier", None, None)) == "barrier of role unknown"


class Linked:
    class links:  # noqa: N801
        @staticmethod
        def rank(rank: int) -> str:
            return f"/rank/{rank}"


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (Change("rank", 5, "late", 1e6, 10e6, 9.0), ("rank 5", "1.0 ms", "10.0 ms", "9.0 ms later")),
        (Change("rank", 5, "late", 10e6, 1e6, 9.0), ("rank 5", "10.0 ms", "1.0 ms", "9.0 ms earlier")),
        (Change("rank", 7, "only", None, 40.0, math.inf), ("rank 7", "none", "40 entries", "only in B")),
        (
            Change("shape", ("dp", "all_gather", None, None), "rate", 8.0, 4.0, 4.0),
            ("all_gather of data parallel", "8 /s", "4 /s", "× 0.50"),
        ),
    ],
)
def test_a_change_is_told_with_both_values(change: Change, shown: tuple[str, ...]) -> None:
    side: Side = Linked()  # pyright: ignore[reportAssignmentType]
    row = change_row(change, side, side)
    assert (row["what"], row["a"], row["b"], row["change"]) == shown
    assert row["measure"] in MEASURES.values()
