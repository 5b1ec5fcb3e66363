"""The wire format of protocol buffers."""

from __future__ import annotations

import random
import struct

import pytest

from mycroft.loaders import protobuf as pb
from tests.loaders.proto_bytes import field, varint


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**64 - 1])
def test_numbers(number: int) -> None:
    assert pb.varint(varint(number), 0) == (number, len(varint(number)))
    assert list(pb.fields(field(5, number))) == [(5, pb.VARINT, number)]


@pytest.mark.parametrize("number", [-1, -(2**31), 5])
def test_signed_numbers(number: int) -> None:
    ((_, _, value),) = pb.fields(field(5, number))
    assert pb.signed(value) == number


def test_text_messages_and_fixed_widths() -> None:
    data = (
        field(1, "é")
        + field(2, field(1, 7))
        + bytes([3 << 3 | 1])
        + struct.pack("<d", 1.5)
        + bytes([4 << 3 | 5, 1, 0, 0, 0])
    )
    found = {number: value for number, _, value in pb.fields(data)}
    assert pb.text(found[1]) == "é"
    assert [value for _, _, value in pb.fields(pb.message(found[2]))] == [7]
    assert pb.double(found[3]) == 1.5
    assert found[4] == 1
    assert pb.numbers(varint(1) + varint(300)) == [1, 300]
    assert pb.numbers(4) == [4]


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xff" * 11,
        b"\x00\x01",
        b"\x0a\x05ab",
        b"\x09\x01",
        b"\x0b",
        b"\x0d\x01",
        b"\x0a" + b"\xff" * 9 + b"\x01",
    ],
)
def test_broken_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(pb.WireError):
        list(pb.fields(data))


def test_values_of_another_type_are_refused() -> None:
    with pytest.raises(pb.WireError):
        pb.number(b"x")
    with pytest.raises(pb.WireError):
        pb.message(3)


def test_reading_random_bytes_ends() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        data = rng.randbytes(rng.randrange(64))
        try:
            total = sum(1 for _ in pb.fields(data))
        except pb.WireError:
            continue
        assert total <= len(data)
