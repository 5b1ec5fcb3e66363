"""The wire format of protocol buffers, read without generated classes: fields by number, nothing allocated ahead.

Whatever the bytes say, reading ends: every step consumes at least one byte, lengths are checked against what is
there, and nested messages are opened by the caller, so depth is the caller's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5


class WireError(ValueError):
    """The bytes are no protocol buffer message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at `at` and the place after it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError(f"number cut short at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (field number, wire type, value); the value is a number for types 0, 1 and 5, bytes for 2."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise WireError(f"field number 0 at byte {at}")
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, wire, value
        elif wire == BYTES:
            length, at = varint(data, at)
            if length > len(data) - at:
                raise WireError(f"field {number}: {length} bytes announced, {len(data) - at} there")
            yield number, wire, data[at : at + length]
            at += length
        elif wire in (FIXED64, FIXED32):
            width = 8 if wire == FIXED64 else 4
            if width > len(data) - at:
                raise WireError(f"field {number} cut short")
            yield number, wire, int.from_bytes(data[at : at + width], "little")
            at += width
        else:
            raise WireError(f"wire type {wire} at byte {at}")


def text(value: int | bytes) -> str:
    """Return a string field; what is not UTF-8 is replaced."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def number(value: int | bytes) -> int:
    """Return an unsigned number field; a field of another type is refused."""
    if isinstance(value, bytes):
        raise WireError("bytes where a number was expected")
    return value


def signed(value: int | bytes) -> int:
    """Return an int32 or int64 field, which are written in 64-bit two's complement."""
    unsigned = number(value)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def double(value: int | bytes) -> float:
    """Return a double field."""
    return float(struct.unpack("<d", number(value).to_bytes(8, "little"))[0])


def numbers(value: int | bytes) -> list[int]:
    """Return a repeated number field, packed or one at a time."""
    if isinstance(value, int):
        return [value]
    found: list[int] = []
    at = 0
    while at < len(value):
        item, at = varint(value, at)
        found.append(item)
    return found


def message(value: int | bytes) -> bytes:
    """Return the bytes of a nested message; a field of another type is refused."""
    if isinstance(value, int):
        raise WireError("a number where a message was expected")
    return value
