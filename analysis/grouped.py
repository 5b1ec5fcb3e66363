"""Sums and medians over groups of many rows, as columns of numbers: one sort for all that is asked of a grouping.

Millions of rows fall into hundreds of thousands of small groups every few seconds. Rows come nearly in order, which a
stable sort uses, and groups of one size are the rows of a matrix, whose medians are found side by side; a hash table
for every question costs several times as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = TypeVar("Numbers", Ints, Floats)
# Packed numbers stay below this.
_ROOM: Final = 1 << 62
# A table is looked up by position where so few of the numbers that it spans are missing.
DENSE_SPAN: Final = 4


def packed(*columns: Ints) -> Ints:
    """Return one number per row, equal where all columns are, and in the order of the first, then of the next."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64)
    result, size = _from_zero(columns[0])
    for column in columns[1:]:
        part, span = _from_zero(column)
        if size * span > _ROOM:
            result, size = _dense(result)
        if size * span > _ROOM:
            part, span = _dense(part)
        # The first is never a column of the caller's.
        result *= span
        result += part
        size *= span
    return result


def _from_zero(column: Ints) -> tuple[Ints, int]:
    least = int(column.min())
    span = int(column.max()) - least + 1
    # A span may be wider than a number: then only the order counts.
    return ((column - least).astype(np.int64, copy=False), span) if span <= _ROOM else _dense(column)


def _dense(column: Ints) -> tuple[Ints, int]:
    values, place = np.unique(column, return_inverse=True)
    return place.astype(np.int64), len(values)


def stepwise(*columns: Ints) -> Mask:
    """Say of each row whether it differs from the one before in any column; the first does."""
    changed = np.ones(len(columns[0]), dtype=bool)
    if len(changed) > 1:
        changed[1:] = False
        for column in columns:
            changed[1:] |= column[1:] != column[:-1]
    return changed


def looked_up(values: Ints, table: Mapping[int, int], *, missing: int) -> Ints:
    """Return what a table says of each value, `missing` where it has none; values may be of any size."""
    if not table:
        return np.full(len(values), missing, dtype=np.int64)
    ordered = sorted(table)
    keys = np.array(ordered, dtype=np.int64)
    answers = np.array([table[key] for key in ordered], dtype=np.int64)
    least, span = ordered[0], ordered[-1] - ordered[0] + 1
    if span <= DENSE_SPAN * len(keys):
        # Ranks and hosts are numbered without gaps, as a rule: then nothing need be searched for.
        every = np.full(span, missing, dtype=np.int64)
        every[keys - least] = answers
        inside = (values >= least) & (values <= ordered[-1])
        return np.where(inside, every[np.where(inside, values - least, 0)], missing)
    place = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.where(keys[place] == values, answers[place], missing)


class Groups:
    """Rows that are equal in some columns; groups are in the order of those. `within` sorts and counts inside of them.

    Nothing is copied but an order: columns of values are given to each question, and are as long as the keys.
    """

    def __init__(self, *keys: Ints, within: Ints | None = None) -> None:
        outer = packed(*keys)
        inner = outer if within is None else packed(outer, within)
        self.order = np.argsort(inner, kind="stable")
        rows = len(self.order)
        ranked = outer[self.order]
        self.starts = np.flatnonzero(stepwise(ranked)) if rows else np.zeros(0, dtype=np.int64)
        self.sizes = np.diff(np.append(self.starts, rows))
        self.first = self.order[self.starts]
        self.last = self.order[self.starts + self.sizes - 1]
        self._inner = inner

    def __len__(self) -> int:
        return len(self.starts)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Where each group begins and ends among the rows in order."""
        begun = self.starts.tolist()
        return zip(begun, [*begun[1:], len(self.order)] if begun else [], strict=True)

    @cached_property
    def of_row(self) -> Ints:
        """The group of each row."""
        found = np.empty(len(self.order), dtype=np.int64)
        found[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return found

    def distinct(self) -> Ints:
        """Return how many different values of `within` each group has."""
        return self._reduced(np.add, stepwise(self._inner[self.order]).astype(np.int64))

    def sums(self, values: Numbers) -> Numbers:
        """Return the sum of each group."""
        return self._reduced(np.add, values[self.order])

    def largest(self, values: Ints) -> Ints:
        """Return the largest value of each group."""
        return self._reduced(np.maximum, values[self.order])

    def least(self, values: Ints) -> Ints:
        """Return the least value of each group."""
        return self._reduced(np.minimum, values[self.order])

    def medians(self, values: Ints | Floats) -> Floats:
        """Return the median of each group, the mean of the two middle ones where there are two."""
        found = np.empty(len(self), dtype=np.float64)
        for size, some, rows in self._by_size(values):
            low, high = (size - 1) // 2, size // 2
            middle = np.partition(rows, (low, high), axis=1) if size > 2 else rows
            found[some] = (middle[:, low] + middle[:, high]) / 2
        return found

    def lower_medians(self, values: Ints) -> Ints:
        """Return the median of each group, the lower of the two middle ones where there are two."""
        found = np.empty(len(self), dtype=np.int64)
        for size, some, rows in self._by_size(values):
            middle = (size - 1) // 2
            found[some] = np.partition(rows, middle, axis=1)[:, middle] if size > 1 else rows[:, 0]
        return found

    def _reduced(self, what: np.ufunc, ranked: Numbers) -> Numbers:
        found: Any = what.reduceat(ranked, self.starts) if len(self) else np.zeros(0, dtype=ranked.dtype)
        return found

    def _by_size(self, values: Ints | Floats) -> Iterator[tuple[int, Ints, np.ndarray[Any, Any]]]:
        """Groups of equal size side by side: their size, which they are, and their values, one group a row."""
        ranked = values[self.order]
        by_size = np.argsort(self.sizes, kind="stable")
        for some in np.split(by_size, np.flatnonzero(np.diff(self.sizes[by_size])) + 1):
            if len(some):
                size = int(self.sizes[some[0]])
                yield size, some, ranked[self.starts[some][:, None] + np.arange(size)]
