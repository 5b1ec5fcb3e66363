"""Rows that a relay keeps for its windows."""

from __future__ import annotations

import time
from typing import Any

import polars as pl

from mycroft.analysis.fleet.own_windows import COMPLETED, OPS
from mycroft.app.live.relay_measures import Measures

WINDOW_NS = 10_000_000_000


def operations(process: str, first_ns: int, count: int) -> Any:
    """Finished operations of one process, one a second, as a window gives them."""
    at = [first_ns + i * 1_000_000_000 for i in range(count)]
    rows = pl.DataFrame(
        {
            "process": [process] * count,
            "position": range(count),
            "comm": [0] * count,
            "op_kind": [0] * count,
            "p2p": [0] * count,
            "bytes": [1 << 20] * count,
            "enq_ts": at,
            "kstart_ts": at,
            "dur_ns": [1_000_000] * count,
            "op_state": [COMPLETED] * count,
        }
    )
    return rows.to_arrow()


def kept(measures: Measures, since_ns: int, until_ns: int) -> set[str]:
    return set(measures._between("op", OPS, since_ns, until_ns)["process"])


def test_a_clock_that_is_ahead_makes_no_rows_of_others_old() -> None:
    now = time.time_ns() // WINDOW_NS * WINDOW_NS
    measures = Measures(WINDOW_NS)
    for second in range(5):
        measures.take("op", operations("right", now - WINDOW_NS + second * 1_000_000_000, 1))
        measures.take("op", operations("ahead", now + 600_000_000_000 + second * 1_000_000_000, 1))
    assert kept(measures, now - WINDOW_NS, now) == {"right"}


def test_rows_of_windows_long_past_are_forgotten() -> None:
    now = time.time_ns() // WINDOW_NS * WINDOW_NS
    measures = Measures(WINDOW_NS)
    measures.take("op", operations("before", now - 9 * WINDOW_NS, 3))
    measures.take("op", operations("now", now - WINDOW_NS, 3))
    assert kept(measures, 0, now + WINDOW_NS) == {"now"}
