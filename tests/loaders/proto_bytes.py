"""Protocol buffer bytes by hand, for tests."""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Encode a number; a negative one as 64-bit two's complement."""
    number &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append(number & 127 | (128 if number > 127 else 0))
        number >>= 7
        if not number:
            return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode one field: numbers as varint, text and messages with their length."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)
