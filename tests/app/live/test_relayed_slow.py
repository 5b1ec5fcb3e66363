"""Windows of several relays put together: which are judged when, and what a relay that lags or a set clock does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mycroft.analysis.fleet.slow_windows import KEPT
from mycroft.app.live.relayed import _narrowed
from mycroft.app.live.relayed_slow import SlowJob, Word
from mycroft.tracer.agent.summary import COLUMNS, MEASURES, Part, Summary, What

WINDOW_NS = 10**10
FIRST = 170_000_000


def told(relay: int, number: int, *, slow: int | None = None, window_ns: int = WINDOW_NS, newest: bool = True) -> Word:
    """What a relay of 16 ranks on two hosts tells of a window; `slow`: a rank that takes twice as long."""
    ranks = range(16 * relay, 16 * relay + 16)
    rows = [
        {
            "part": 0,
            "what": int(what),
            "rank": rank,
            "comm": 100 + rank // 8 if what is What.GPU else 0,
            "channel": 0,
            "peer": rank // 8 * 8 if what is What.HOST else 0,
            # Never quite the same, and twice as long is 4096 * ln 2 more.
            "value": 36_000 + (rank * 7 + number * 5) % 11 + (2839 if rank == slow and what is What.GPU else 0),
            "count": 80 if what is What.GPU else 1,
        }
        for what in (What.GPU, What.HOST)
        for rank in ranks
    ]
    window = number if number == 0 else FIRST + number
    part = Part(at_ns=(FIRST + number + 1) * WINDOW_NS + 1, comm=5, window=window, places=((16 * relay, f"h{relay}"),))
    measures = pa.Table.from_pylist(rows, schema=MEASURES) if window else MEASURES.empty_table()
    summary = Summary(
        at_ns=part.at_ns, rows=COLUMNS.empty_table(), parts=(part,), measures=measures, window_ns=window_ns
    )
    return Word(f"relay.r{relay}", 0, summary, newest)


def both(number: int, **settings: int) -> list[Word]:
    return [told(0, number, **settings), told(1, number, **settings)]  # type: ignore[arg-type]


def numbers(job: SlowJob) -> list[int]:
    assert job.series is not None
    return [number - FIRST for number in job.series.numbers]


def test_window_is_judged_once_all_relays_have_told_of_it() -> None:
    job = SlowJob()
    # Nobody else speaks.
    assert [(seen.at_ns, seen.findings) for seen in job.take([told(0, 1)])] == [((FIRST + 2) * WINDOW_NS, ())]
    assert numbers(job) == [1]
    job = SlowJob()
    job.take([told(0, 0), told(1, 0)])
    assert job.take([told(0, 1), told(1, 0)]) == []
    assert job.series is not None and job.series.numbers == []
    job.take(both(1))
    assert numbers(job) == [1]
    # Said again, it is not taken again.
    assert job.take(both(1)) == [] and numbers(job) == [1]
    assert job.numbers()["entities"] == 64


def test_two_windows_between_two_looks_are_both_taken() -> None:
    job = SlowJob()
    job.take(both(1))
    older = [told(0, 2, newest=False), told(1, 2, newest=False)]
    job.take([older[0], told(0, 3), older[1], told(1, 3)])
    assert numbers(job) == [1, 2, 3]


def test_relay_that_lags_is_not_waited_for_for_ever() -> None:
    job = SlowJob()
    job.take(both(1))
    for number in range(2, 6):
        job.take([told(0, number), told(1, 1)])
    assert numbers(job) == [1, 2]
    assert job.series is not None
    # Half of the entities are not in it: nothing is made of that.
    assert (job.series.values[-1] > 0).sum() == 32


def test_slow_rank_is_accused_with_its_peers_to_fetch_and_who_is_slow_from_the_beginning_is_not() -> None:
    job, always = SlowJob(), SlowJob()
    accused: list[int] = []
    for number in range(1, 16):
        for seen in job.take(both(number, **({"slow": 19} if number > 8 else {}))):
            if seen.findings:
                accused.append(number)
                assert [tuple(finding["root_cause"]["ranks"]) for finding in seen.findings] == [(19,)]
                assert seen.at_ns == (FIRST + number + 1) * WINDOW_NS
        always.take(both(number, slow=19))
    assert accused == list(range(accused[0], 16)) and 11 <= accused[0] <= 14
    assert set(range(16, 24)) <= set(job.to_fetch) and job.left_out == 0
    assert always.findings == () and always.to_fetch == ()


def test_clocks_that_are_set_back_and_other_windows_begin_anew() -> None:
    job = SlowJob()
    for number in range(100, 104):
        job.take(both(number))
    job.take(both(102))
    assert numbers(job) == [100, 101, 102, 103]
    job.take(both(100 - KEPT))
    assert numbers(job) == [100 - KEPT]
    job.take(both(200, window_ns=2 * WINDOW_NS))
    assert numbers(job) == [200]


def finding(name: str, ranks: list[int], confidence: str, *, category: str = "slow_nic") -> dict[str, Any]:
    cause = {"ranks": ranks, "hosts": [], "devices": [], "flow": None, "one_of": len(ranks) > 1}
    return {
        "id": name,
        "status": "slow",
        "category": category,
        "confidence": confidence,
        "root_cause": cause,
        "confidence_why": [],
        "evidence": [name],
    }


def test_rows_that_leave_open_who_of_two_it_is_do_not_take_back_whom_all_ranks_accuse() -> None:
    told = finding("f1", [5], "low")
    both = _narrowed(told, finding("f3", [5, 6], "medium"))
    assert (both["root_cause"]["ranks"], both["confidence"], both["id"], both["evidence"]) == (
        [5],
        "medium",
        "f3",
        ["f3"],
    )
    assert "fit 2 ranks" in both["confidence_why"][-1]
    assert _narrowed(told, finding("f3", [5, 6], "low"))["confidence"] == "low"
    # Whoever the rows name alone, or another kind of fault, is what they say.
    for rows in (
        finding("f3", [5], "high"),
        finding("f3", [6, 7], "medium"),
        finding("f3", [5, 6], "medium", category="pcie_degraded"),
    ):
        assert _narrowed(told, rows) == rows
    several = finding("f1", [5, 6], "low")
    assert _narrowed(several, finding("f3", [5, 6], "medium"))["id"] == "f3"
