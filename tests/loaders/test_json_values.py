"""JSON with the faults that programs are known to write."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mycroft.loaders.json_values import as_float, as_int, decode, micros_to_ns, repaired


def test_a_missing_comma_is_put_in():
    assert decode(b'{"nvml_dev": 0\n "status": {"unresponsive": true}}') == {
        "nvml_dev": 0,
        "status": {"unresponsive": True},
    }


def test_a_comma_too_many_is_taken_out():
    assert decode(b'{"a": [1, 2,], "b": 3,}') == {"a": [1, 2], "b": 3}


def test_unquoted_words_become_text():
    assert decode(b'{"datatype": ncclFloat32, "Stream": 0x7f12d00}') == {
        "datatype": "ncclFloat32",
        "Stream": "0x7f12d00",
    }


def test_a_text_cut_short_keeps_what_was_written():
    assert decode(b'{"a": 1, "b": [{"c": 2}, {"d": ') == {"a": 1, "b": [{"c": 2}, {"d": None}]}


def test_nan_is_null():
    assert decode(b'{"a": nan, "b": -inf}') == {"a": None, "b": None}


def test_what_cannot_be_repaired_is_none():
    assert decode(b"\xff\xfe\x00") is None
    assert decode(b"[" * 200_000) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_repair_leaves_valid_json_as_it_is(value: object):
    assert json.loads(repaired(json.dumps([value]).encode())) == [value]


@given(st.binary(max_size=200))
def test_decoding_never_raises(data: bytes):
    decode(data)


def test_microseconds_keep_their_decimals():
    assert micros_to_ns(b"1682725898236567.123") == 1_682_725_898_236_567_123
    assert micros_to_ns(b"-1.5") == -1500
    assert micros_to_ns(b"1e3") == 1_000_000
    assert micros_to_ns(b"") is None
    assert micros_to_ns(b'"x"') is None


def test_numbers_are_taken_from_text_and_nothing_else_is_a_number():
    assert [as_int(v) for v in (3, 3.0, "3", "0x1f", True, None, [], "x", float("nan"))] == [
        3,
        3,
        3,
        31,
        None,
        None,
        None,
        None,
        None,
    ]
    assert as_float("1.5") == 1.5
    assert as_float(float("inf")) is None
