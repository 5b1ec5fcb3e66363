"""JSON as programs write it when they die or were never tested: decoding with repair, and values of doubtful type."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, cast

import msgspec

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
_CLOSERS: Final = {b"{": b"}", b"[": b"]"}
_WORDS: Final = (b"true", b"false", b"null")


def decode(data: bytes) -> Any:
    """Return the value of a JSON text, repaired where it is broken in one of the known ways; None if that fails.

    Repaired are: a missing comma (NCCL 2.28.9), a comma too many, an unquoted word, `nan`, a wrong closing bracket,
    and a text cut short, whose open brackets are closed.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        return msgspec.json.decode(repaired(data))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def object_of(data: bytes) -> dict[str, Any]:
    """Return the object that a JSON text is, as written; ValueError says what stands there instead."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON that can be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("holds no JSON object")
    return cast("dict[str, Any]", content)


def repaired(data: bytes) -> bytes:
    """Return `data` with the commas, quotes and closing brackets that JSON asks for; linear in its length."""
    out: list[bytes] = []
    stack: list[bytes] = []
    last = ""  # value, open, comma, colon
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token in (b"{", b"["):
            if last == "value":
                out.append(b",")
            out.append(token)
            stack.append(token)
            last = "open"
        elif token in (b"}", b"]"):
            if not any(_CLOSERS[opened] == token for opened in stack[-64:]):
                continue
            _tidy(out, last)
            while True:
                closer = _CLOSERS[stack.pop()]
                out.append(closer)
                if closer == token:
                    break
            last = "value"
        elif token == b",":
            if last == "colon":
                out.append(b"null")
                last = "value"
            if last == "value":
                out.append(b",")
                last = "comma"
        elif token == b":":
            if last == "value":
                out.append(b":")
                last = "colon"
        else:
            if last == "value":
                out.append(b",")
            out.append(_atom(token))
            last = "value"
    _tidy(out, last)
    out.extend(_CLOSERS[opened] for opened in reversed(stack))
    return b"".join(out)


def _tidy(out: list[bytes], last: str) -> None:
    if last == "comma":
        out.pop()
    elif last == "colon":
        out.append(b"null")


def _atom(token: bytes) -> bytes:
    if token.startswith(b'"') or token in _WORDS or _NUMBER.match(token):
        return token
    if token.lower().lstrip(b"+-") in (b"nan", b"inf", b"infinity"):
        return b"null"
    return json.dumps(token.decode("utf-8", "replace")).encode()


def as_int(value: Any) -> int | None:
    """Return a whole number from a number or from text in decimal or with 0x; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and abs(value) < 2**63 else None
    if isinstance(value, str) and len(value) < 40:
        try:
            return int(value, 16) if value.lower().startswith("0x") else int(value)
        except ValueError:
            return None
    return None


def as_float(value: Any) -> float | None:
    """Return a finite number, also from text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | str):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if math.isfinite(number) else None
    return None


def as_text(value: Any) -> str | None:
    """Return text that says something; None for anything else."""
    return value if isinstance(value, str) and value else None


def as_dict(value: Any) -> dict[str, Any]:
    """Return a JSON object, an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a JSON array, an empty one in place of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def micros_to_ns(raw: bytes) -> int | None:
    """Return a JSON number of microseconds, as text, in whole ns; None if it is no plain number.

    Times of day in µs with decimals do not fit a float: its steps are a quarter of a microsecond.
    """
    text = raw.strip().strip(b'"')
    if not text or len(text) > 40:
        return None
    whole, _, fraction = text.partition(b".")
    try:
        if b"e" in text or b"E" in text:
            return round(float(text) * 1000)
        ns = abs(int(whole)) * 1000 + int((fraction[:3] + b"000")[:3])
    except (ValueError, OverflowError):
        return None
    return -ns if whole.startswith(b"-") else ns
