"""Groups of rows: what a plain loop over them says."""

from __future__ import annotations

import statistics
from collections import defaultdict

import numpy as np
import pytest

from mycroft.analysis.grouped import Groups, looked_up, packed

DRAW = np.random.default_rng(11)
ROWS = 500
RANK, CHANNEL = DRAW.integers(0, 40, ROWS), DRAW.integers(0, 5, ROWS)
VALUES = DRAW.integers(-(10**12), 10**12, ROWS)


def plainly() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for rank, value in zip(RANK.tolist(), VALUES.tolist(), strict=True):
        found[rank].append(value)
    return dict(sorted(found.items()))


def test_groups_say_what_a_loop_says() -> None:
    groups, plain = Groups(RANK, within=CHANNEL), plainly()

    assert RANK[groups.first].tolist() == list(plain)
    assert groups.sizes.tolist() == [len(v) for v in plain.values()]
    assert groups.sums(VALUES).tolist() == [sum(v) for v in plain.values()]
    assert groups.largest(VALUES).tolist() == [max(v) for v in plain.values()]
    assert groups.least(VALUES).tolist() == [min(v) for v in plain.values()]
    assert groups.medians(VALUES).tolist() == [statistics.median(v) for v in plain.values()]
    assert groups.lower_medians(VALUES).tolist() == [statistics.median_low(v) for v in plain.values()]
    assert groups.distinct().tolist() == [len(set(CHANNEL[r == RANK].tolist())) for r in plain]
    assert RANK[groups.first][groups.of_row].tolist() == RANK.tolist()
    assert [b - a for a, b in groups.spans()] == groups.sizes.tolist()


def test_order_of_rows_changes_nothing() -> None:
    shuffled = DRAW.permutation(ROWS)
    groups, others = Groups(RANK, CHANNEL), Groups(RANK[shuffled], CHANNEL[shuffled])

    assert groups.medians(VALUES).tolist() == others.medians(VALUES[shuffled]).tolist()


@pytest.mark.parametrize("wide", [1, 1 << 40, (1 << 62) - 1], ids=["narrow", "wide", "all of it"])
def test_packed_numbers_are_equal_and_in_order_as_their_columns_are(wide: int) -> None:
    columns = [DRAW.integers(-wide, wide, 60) for _ in range(3)]
    for column in columns:
        column[30:] = column[:30]
    rows = list(zip(*(c.tolist() for c in columns), strict=True))
    numbers = packed(*columns).tolist()

    assert [n for n, _ in sorted(zip(numbers, rows, strict=True))] == sorted(numbers)
    assert [row for _, row in sorted(zip(numbers, rows, strict=True))] == sorted(rows)
    assert len(set(numbers)) == len(set(rows))


def test_what_a_table_says_needs_no_room_for_numbers_that_it_lacks() -> None:
    values = np.array([3, 1, (1 << 62), -5, 3])

    assert looked_up(values, {3: 30, 7: 70, 1: 10}, missing=-1).tolist() == [30, 10, -1, -1, 30]
    assert looked_up(values, {}, missing=0).tolist() == [0] * 5


def test_no_rows_are_no_groups() -> None:
    nothing = Groups(np.zeros(0, dtype=np.int64))

    assert len(nothing) == 0
    assert nothing.sums(np.zeros(0, dtype=np.int64)).tolist() == []
    assert nothing.medians(np.zeros(0)).tolist() == []
    assert list(nothing.spans()) == []
