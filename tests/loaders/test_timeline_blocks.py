"""Blocks of operations: what is packed comes out again, in few bytes, and what is damaged is refused."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mycroft.loaders.base import LoadError
from mycroft.loaders.timeline_blocks import ABSENT, OPEN, UNKNOWN, Ops, joined, pack, unpack

times = st.integers(0, 10**14)
op = st.tuples(
    st.integers(0, 200_000),
    st.integers(0, 2**32 - 1),
    st.integers(UNKNOWN, 2**62),
    st.integers(0, 40),
    st.integers(1, 4),
    st.one_of(st.just(UNKNOWN), times),
    times,
    times,
    st.one_of(st.just(UNKNOWN), times),
)


def ops_of(rows: list[tuple[int, ...]]) -> Ops:
    return Ops(*np.array(rows, np.int64).reshape(len(rows), len(fields(Ops))).T)


@given(st.lists(op, max_size=40))
def test_what_is_packed_comes_out_again(rows: list[tuple[int, ...]]) -> None:
    made = ops_of(rows)
    found = unpack(pack(made))
    for field in fields(Ops):
        assert getattr(found, field.name).tolist() == getattr(made, field.name).tolist(), field.name


@given(st.lists(op, min_size=1, max_size=20))
def test_columns_that_nobody_asked_for_are_unknown_and_the_others_right(rows: list[tuple[int, ...]]) -> None:
    made = ops_of(rows)
    found = unpack(pack(made), named=False, compared=False)
    for field in fields(Ops):
        left_out = field.name in {"comm", "seq", "kind", "fastest_us"}
        wanted = [UNKNOWN] * len(rows) if left_out else getattr(made, field.name).tolist()
        assert getattr(found, field.name).tolist() == wanted, field.name


def test_late_wait_and_when_it_begins_follow_from_what_is_kept() -> None:
    made = ops_of(
        [
            (0, 1, 5, 0, 1, 1_000, 1_700, 9_000, 7_000),
            (1, 1, 5, 0, OPEN, 1_000, 900, 20_000, UNKNOWN),
            (2, 1, 5, 0, ABSENT, 1_000, 1_000, 20_000, UNKNOWN),
            (3, 2, 6, 3, 1, UNKNOWN, 400, 400, UNKNOWN),
        ]
    )
    assert made.late_us.tolist() == [700, -100, 19_000, 0]
    assert made.late_is_known.tolist() == [True, True, True, False]
    assert made.wait_us.tolist() == [300, 19_100, UNKNOWN, UNKNOWN]
    assert made.from_us.tolist() == [1_000, 900, 1_000, 400]


def test_members_of_one_operation_cost_a_few_bytes_each() -> None:
    noise = np.random.default_rng(5)
    count, width = 500, 8
    begin = np.repeat(np.arange(count) * 100_000, width)
    late = noise.integers(0, 1_000, count * width)
    made = Ops(
        y=np.tile(np.arange(width), count),
        comm=np.full(count * width, 3),
        seq=np.repeat(np.arange(count), width),
        kind=np.zeros(count * width, np.int64),
        state=np.ones(count * width, np.int64),
        median_us=begin + 500,
        start_us=begin + late,
        end_us=begin + 60_000,
        fastest_us=np.full(count * width, 59_000),
    )
    assert len(pack(made)) < 3 * len(made)
    assert len(joined([made, made])) == 2 * len(made)
    assert len(joined([])) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"not compressed at all",
        zstandard.compress(b""),
        zstandard.compress(b"\x02\x00" + bytes(40)),
        zstandard.compress(zstandard.decompress(pack(ops_of([(1,) * 9] * 3)))[:-1]),
        zstandard.compress(bytes(1 << 25)),
    ],
)
def test_what_is_no_block_is_refused_in_words(content: bytes) -> None:
    with pytest.raises(LoadError, match="load the evidence again"):
        unpack(content)
