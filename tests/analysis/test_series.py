"""Since when and how often, on series that are made for it."""

from __future__ import annotations

import random

import pytest

from mycroft.analysis.series import change_point, period, shape


def noisy(levels: list[float], seed: int, *, wild: float = 0.0) -> list[float]:
    dice = random.Random(seed)
    return [level * dice.uniform(0.9, 1.1) * (50 if dice.random() < wild else 1) for level in levels]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("at", [10, 40, 90])
def test_the_place_of_a_change_is_found_among_wild_values(seed: int, at: int) -> None:
    found = change_point(noisy([10.0] * at + [20.0] * (100 - at), seed, wild=0.02))
    assert found is not None
    assert abs(found.at - at) <= 2
    assert found.before == pytest.approx(10, rel=0.1)
    assert found.after == pytest.approx(20, rel=0.1)


@pytest.mark.parametrize("seed", range(40))
def test_a_steady_series_has_no_change(seed: int) -> None:
    assert change_point(noisy([10.0] * 80, seed, wild=0.05)) is None


def test_a_change_for_the_better_is_one_too() -> None:
    found = change_point(noisy([30.0] * 30 + [10.0] * 30, 1))
    assert found is not None
    assert found.after < found.before


def test_few_values_and_equal_values_have_no_change() -> None:
    assert change_point([1.0] * 4 + [9.0] * 4) is None
    assert change_point([5.0] * 500) is None


def flags(every: int, count: int, *, jitter: int = 0, lost: float = 0.0, seed: int = 1) -> list[bool]:
    dice = random.Random(seed)
    found = [False] * (every * count + 9)
    for i in range(1, count + 1):
        if dice.random() >= lost:
            found[i * every + dice.randint(-jitter, jitter)] = True
    return found


@pytest.mark.parametrize("every", [3, 10, 50])
def test_what_comes_back_regularly_has_a_period(every: int) -> None:
    found = period(flags(every, 12))
    assert found is not None
    assert (found.every, found.hits) == (every, 12)


def test_a_period_may_jitter_and_miss_a_beat() -> None:
    found = period(flags(50, 20, jitter=2, lost=0.1, seed=3))
    assert found is not None
    assert abs(found.every - 50) <= 2


@pytest.mark.parametrize("seed", range(20))
def test_chance_has_no_period(seed: int) -> None:
    dice = random.Random(seed)
    assert period([dice.random() < 0.05 for _ in range(600)]) is None


def test_a_spell_of_neighbours_is_one_hit() -> None:
    found = period([i % 40 < 3 for i in range(400)])
    assert found is not None
    assert (found.every, found.hits) == (40, 10)


def test_words_say_how_often_or_since_when() -> None:
    assert shape([1.0] * 30 + [3.0] * 30, 2.0) == "since operation 31 of 60"
    assert shape([3.0 if i % 20 == 19 else 1.0 for i in range(200)], 2.0) == "every 20 operations, 10 times"
    assert not shape([1.0] * 50, 2.0)
