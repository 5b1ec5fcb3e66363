"""Who became slow, from summaries of windows alone; what is the same whatever relay tells it; what is kept."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

from mycroft.analysis.fleet import digest, merge
from mycroft.analysis.fleet.accusations import accusations, to_fetch
from mycroft.analysis.fleet.own_windows import GPU, HOST, MEASURED
from mycroft.analysis.fleet.slow_windows import KEPT, WINDOW_LIMITS, ServiceSeries, judge
from mycroft.tracer.agent.summary import MEASURES, VALUE_LEAST, VALUE_STEPS, What
from tests.analysis.fleet.simulated_fleet import small_fleet
from tests.analysis.fleet.simulated_windows import Windows, columns_of

RANK = 13


def windows_of(fault: str, *, window_s: float = 5.0, after_s: float = 40.0, **settings: object) -> Windows:
    fleet = small_fleet(
        fault, topology="T32", rank=RANK, ranks_per_relay=8, at_s=45.0, after_s=after_s, microbatches=2, **settings
    )
    return Windows(fleet, window_s=window_s)


@pytest.mark.parametrize(
    ("fault", "component", "ranks", "host"),
    [("gpu_power", "gpu", (RANK,), None), ("nic_bw", "nic", (RANK,), None), ("bg_traffic", "host_nic", (), 8)],
)
def test_who_became_slow_is_accused_once_it_lasts_and_nobody_before(
    fault: str, component: str, ranks: tuple[int, ...], host: int | None
) -> None:
    made = windows_of(fault)
    blamed: list[int] = []
    for number, series, accused in made.judged():
        if accused is None or not accused.culprits:
            continue
        blamed.append(number - made.numbers.start)
        first = accused.culprits[0]
        assert (first.component, first.ranks, first.host) == (component, ranks, host)
        told = accusations(accused, {8: "node1"})
        assert told[0].status == "slow" and told[0].confidence in ("low", "medium")
        assert told[0].root_cause.hosts == ("node1",)
        fetched, left_out = to_fetch(accused, series, 32, most_ranks=16)
        assert len(fetched) <= 16 and left_out == 0
        assert set(ranks or range(8, 16)) <= set(fetched)
    # It began in the tenth window.
    assert blamed and 10 <= blamed[0] <= 15
    assert blamed == list(range(blamed[0], blamed[-1] + 1))


def test_healthy_job_with_pauses_accuses_nobody() -> None:
    made = windows_of("none", after_s=120.0)
    judged = [accused for _, _, accused in made.judged()]
    assert len([one for one in judged if one is not None]) > 20
    assert not [one for one in judged if one is not None and one.culprits]


def test_measures_are_the_same_however_hosts_are_spread_over_relays() -> None:
    made = windows_of("nic_bw", after_s=2.0)
    number = made.numbers[-1]
    whole = made.told(number, made.hosts)
    assert whole.num_rows > 3 * 32
    draw = random.Random(4)
    for _ in range(5):
        hosts = draw.sample(made.hosts, len(made.hosts))
        cut = draw.randrange(1, len(hosts))
        parts = [made.told(number, some) for some in (hosts[:cut], hosts[cut:], [])]
        draw.shuffle(parts)
        # Told twice, and merged in any order, as pairs or at once.
        tree = merge(MEASURED, [parts[0], merge(MEASURED, [*parts[1:], parts[0]])])
        assert digest(tree) == digest(merge(MEASURED, [whole])) == digest(merge(MEASURED, parts))


def test_rows_that_come_twice_count_once() -> None:
    made = windows_of("none", after_s=2.0)
    number = made.numbers[-1]
    once = made.told(number, made.hosts)
    made.ops = pl.concat([made.ops, made.ops.head(2000)])
    made.flows = pl.concat([made.flows, made.flows])
    assert made.told(number, made.hosts).equals(once)


def told(ranks: range, value: int = 20_000, *, comm: int = 7) -> list[dict[str, object]]:
    return [
        {
            "what": what,
            "rank": rank,
            "comm": comm if what == GPU else 0,
            "channel": 0,
            "peer": 0,
            "count": 9,
            "value": value,
        }
        for what in (GPU, HOST)
        for rank in ranks
    ]


def test_what_is_kept_is_bounded_and_what_was_learnt_stays_while_something_is_wrong() -> None:
    series = ServiceSeries(10**10)
    for number in range(100, 100 + KEPT + 5):
        assert series.take(number, columns_of(told(range(64))))
    assert (series.numbers[0], len(series.values)) == (105, KEPT)
    # A few bytes of each: two a window, and its name.
    assert series.size_bytes < 128 * (2 * KEPT + 30)
    series.holds = True
    for number in range(200, 230):
        assert series.take(number, columns_of(told(range(64))))
    learnt = WINDOW_LIMITS.warm + WINDOW_LIMITS.learn
    assert series.numbers[:learnt] == list(range(105, 105 + learnt))
    assert len(series.numbers) == KEPT and series.numbers[-1] == 229
    # What is older than what is known is not taken: a relay that was away sends it.
    assert not series.take(229, columns_of(told(range(64))))


def test_job_that_goes_on_with_other_ranks_is_learnt_anew_and_one_that_grows_is_not() -> None:
    series = ServiceSeries(10**10)
    for number in range(10):
        series.take(number, columns_of(told(range(64))))
    series.take(10, columns_of(told(range(80))))
    assert len(series.numbers) == 11 and len(series.keys) == 160
    assert [int(np.count_nonzero(row)) for row in series.values[-2:]] == [128, 160]
    series.take(11, columns_of(told(range(1000, 1064), comm=9)))
    assert series.numbers == [11] and len(series.keys) == 128


def test_window_in_which_nothing_ended_is_no_sign_of_anything() -> None:
    series = ServiceSeries(10**10)
    for number in range(12):
        series.take(number, columns_of([] if number == 10 else told(range(64))))
    accused = judge(series, pl.DataFrame(schema={"comm": pl.UInt64, "comm_rank": pl.UInt32, "rank": pl.UInt32}))
    assert accused is not None and not accused.culprits and not accused.doubts


def test_codes_of_the_analysis_are_those_of_the_wire() -> None:
    from mycroft.analysis.fleet import own_windows

    names = ("GPU", "HOST", "COLLECTIVE", "PAIR", "EXCHANGE", "FLUSH")
    assert [getattr(own_windows, name) for name in names] == [What[name] for name in names] == list(range(len(What)))
    assert (own_windows.STEPS, own_windows.LEAST) == (VALUE_STEPS, VALUE_LEAST)
    assert own_windows.TOLD.equals(MEASURES)
