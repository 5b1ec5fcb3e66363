"""Since when, and how often: a change point and a period of a series, robust against outliers.

Both work on order and counts rather than on values, so that single wild measurements move neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

import numpy as np

# A level that is higher or lower by less than this share is the same level.
LEAST_CHANGE: Final = 0.2
LEAST_SIDE: Final = 5
# So many deviations must the two sides lie apart, ...
_SURE: Final = 4.0
# ... or so many pairs of a value before and one after agree: of few values no more can be asked.
_APART: Final = 0.93
LEAST_REPEATS: Final = 4
_JITTER: Final = 0.1
MOST: Final = 200_000


@dataclass(frozen=True, slots=True)
class Change:
    """From position `at` on (the first is 0) the level is `after` instead of `before`, medians."""

    at: int
    before: float
    after: float


def change_point(values: Sequence[float], *, least_side: int = LEAST_SIDE) -> Change | None:
    """Return where the level of a series changes for good; None where it does not.

    Sums of ranks from the start: the position where values before and after differ most. Of a longer series than
    `MOST` only the last values are looked at.
    """
    skipped = max(0, len(values) - MOST)
    series = np.asarray(values[skipped:], dtype=float)
    n = len(series)
    if n < 2 * least_side:
        return None
    order = series.argsort(kind="stable")
    ranks = np.empty(n)
    ranks[order] = np.arange(1, n + 1)
    # Equal values share their mean rank.
    _distinct, places, counts = np.unique(series, return_inverse=True, return_counts=True)
    ranks = (np.bincount(places, weights=ranks) / counts)[places]
    sums = 2 * ranks.cumsum() - np.arange(1, n + 1) * (n + 1)
    # Each sum in units of its own deviation, so that the ends of the series count like its middle.
    before_count = np.arange(least_side, n - least_side + 1)
    inner = np.abs(sums[least_side - 1 : n - least_side]) / (before_count * (n - before_count) * (n + 1) / 3) ** 0.5
    at = int(inner.argmax()) + least_side
    first, rest = series[:at], series[at:]
    before, after = float(np.median(first)), float(np.median(rest))
    if float(inner.max()) < _SURE and not _lie_apart(first, rest):
        return None
    if abs(after - before) < LEAST_CHANGE * max(abs(before), abs(after)):
        return None
    return Change(skipped + at, before, after)


def _lie_apart(first: np.ndarray, rest: np.ndarray) -> bool:
    """Say whether of nearly all pairs of values, one of each part, the same part has the greater."""
    order = np.sort(first)
    below = (np.searchsorted(order, rest, "left") + np.searchsorted(order, rest, "right")) / 2
    share = float(below.mean()) / len(first)
    return max(share, 1 - share) >= _APART


@dataclass(frozen=True, slots=True)
class Period:
    """Something comes every `every` positions, `hits` times, first at `first`."""

    every: int
    hits: int
    first: int


def period(flags: Sequence[bool]) -> Period | None:
    """Return how often the set positions come back; None where their distances are no multiple of one.

    A hit may be missing now and then, and may come a tenth of the distance early or late. Neighbours are one hit.
    """
    found = [i for i, flag in enumerate(flags) if flag]
    hits = [i for n, i in enumerate(found) if n == 0 or i - found[n - 1] > 1]
    if len(hits) < LEAST_REPEATS:
        return None
    gaps = [b - a for a, b in pairwise(hits)]
    every = round(median(gaps))
    if every < 2:
        return None
    room = max(1.0, _JITTER * every) if every > 4 else 0.5
    fitting = 0
    for gap in gaps:
        times = max(1, round(gap / every))
        fitting += times <= 3 and abs(gap - times * every) <= room
    return Period(every, len(hits), hits[0]) if fitting >= 0.8 * len(gaps) else None


def shape(values: Sequence[float], slow: float) -> str:
    """Return words for how values above `slow` lie: since when, or how often; empty where neither can be said."""
    flags = [value >= slow for value in values]
    every = period(flags)
    if every is not None and sum(flags) < 0.5 * len(flags):
        return f"every {every.every} operations, {every.hits} times"
    change = change_point(values)
    if change is not None and change.after > change.before:
        return f"since operation {change.at + 1} of {len(values)}"
    return ""
