"""Since when an entity is slower than it was, and whether that is more than its usual scatter: a clipped CUSUM.

The baseline is each entity's own median over the learning part, so what was always different stays out. Nothing is
learnt after it: a running average would learn the fault. Both parts must hold: the sum passes its limit, and the mean
effect over the last iterations is worth a page.

A baseline is an estimate, and what it is off by stays in every later iteration, so no waiting averages it out. Of many
entities the luckiest one is off by the most: the effect must be worth a page beyond that, or in a large job somebody
always becomes slower than they were who only were lucky while it was learnt.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from mycroft.analysis.config import FlowLimits
from mycroft.analysis.own_service import Metric

# Of the iterations of the learning part that an entity must have been seen in.
LEARNT_SHARE: Final = 0.5
# Error of the median of n values, in sigma / sqrt(n).
MEDIAN_ERROR: Final = 1.25

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Watch:
    """A metric under its CUSUM: rows are iterations, columns entities."""

    metric: Metric
    deviation: Floats
    """Log ratio to the own baseline; NaN where nothing was seen or learnt."""
    sigma: float
    score: Floats
    """The sum, in multiples of sigma."""
    limit: float
    begun: np.ndarray[Any, np.dtype[np.int64]]
    """Iteration at which the present excursion of the sum began."""
    alarm: np.ndarray[Any, np.dtype[np.bool_]]

    def effect(self, first: int, last: int) -> Floats:
        """Return each entity's median deviation over the iterations `first` to `last`, both included; 0: not seen."""
        return median_over(self.deviation[first : last + 1])


def median_over(rows: Floats) -> Floats:
    """Return the median of each column without its gaps, 0 for a column of nothing but gaps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nan_to_num(np.nanmedian(rows, axis=0))


def furthest_of(count: int) -> float:
    """Return how far the largest of `count` normal values is expected to be, in sigma (Blom 1958); 0 of one or none."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def watch(metric: Metric, limits: FlowLimits, *, least_effect: float, of_host: bool = False) -> Watch:
    """Run the CUSUM of every entity. No alarm before the learning part is over, and none of what was not learnt."""
    x = metric.log_ratio
    first, last = limits.warm, limits.warm + limits.learn
    learnt = x[first:last]
    times = (~np.isnan(learnt)).sum(axis=0)
    # Of a large job's flows most are too rare to be learnt: only the others are gone through.
    known = np.flatnonzero((times > 0) & (times >= LEARNT_SHARE * limits.learn))
    deviations = x[:, known] - _medians(learnt[:, known])
    scatter = np.nanmedian(np.abs(deviations[first:last])) if len(learnt) and len(known) else np.nan
    usual = 0.0 if np.isnan(scatter) else 1.4826 * float(scatter)
    sigma = max(limits.sigma_least, usual)
    lucky = furthest_of(len(known)) * MEDIAN_ERROR * usual / np.sqrt(times[known])
    limit = limits.cusum_h_host if of_host else limits.cusum_h
    over = limits.effect_over_host if of_host else limits.effect_over
    score = np.zeros_like(x)
    begun = np.zeros(x.shape, dtype=np.int64)
    alarm = np.zeros(x.shape, dtype=np.bool_)
    steps = np.clip(deviations / sigma, -limits.clip, limits.clip) - limits.cusum_k
    sums, since = np.zeros(len(known)), np.full(len(known), last, dtype=np.int64)
    for i in range(last, len(x)):
        since[sums <= 0] = i
        # What was not seen leaves the sum as it is.
        sums = np.where(np.isnan(steps[i]), sums, np.maximum(0.0, sums + steps[i]))
        begun[i] = i
        score[i, known], begun[i, known] = sums, since
        if (sums > limit).any():
            mean = _mean_effect(deviations[max(last, i - over + 1) : i + 1], over)
            alarm[i, known] = (sums > limit) & (mean > np.log(least_effect) + lucky)
    deviation = np.full(x.shape, np.nan)
    deviation[:, known] = deviations
    return Watch(metric, deviation, sigma, score, limit, begun, alarm)


def _medians(rows: Floats) -> Floats:
    """Return the median of each column without its gaps, of which none is nothing but gaps."""
    ordered = np.sort(rows, axis=0)  # gaps last
    seen = (~np.isnan(rows)).sum(axis=0)
    columns: np.ndarray[Any, np.dtype[np.int64]] = np.arange(rows.shape[1], dtype=np.int64)
    return (ordered[(seen - 1) // 2, columns] + ordered[seen // 2, columns]) / 2


def _mean_effect(recent: Floats, over: int) -> Floats:
    """Return the mean of each column without its gaps over `over` iterations."""
    seen = ~np.isnan(recent)
    mean = np.where(seen, recent, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    # Fewer iterations than asked for count as if the missing ones had been healthy.
    return mean * (len(recent) / over)
