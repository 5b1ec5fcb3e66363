"""Peaks: of each host and ten minutes the greatest minute, in the footer of a file of roll-ups, for pictures of days.

A day of 1,280 hosts is 1.8 M rows of minutes, and a picture of it has no room for them. A file's peaks are as right as
its rows, for both are written at once and neither changes: whatever copies, puts together or deletes the file does so
with them. A file without them, of an older release or with few rows, is read by its minutes, which gives the same.

Not a table beside that of minutes: of two tables, one may have been pushed, put together or dropped and the other not,
and then nobody could say which of the minutes stand in the coarser one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from mycroft.tracer.arrow import Table, pa, pc

PEAK_NS: Final = 600_000_000_000
PEAK_COLUMNS: Final = ("idle_max_ms", "late_max_ms", "open_ops_max", "errors", "lost_rows", "net_max_ns")
# So many rows stand in one peak at least; else they are as quick, as those of a segment of ten seconds. Five minutes of
# all hosts, which a collector puts together, are of two peaks each.
_LEAST: Final = 2
_MOST_PEAKS: Final = 1 << 20
_MOST_PLAIN: Final = 8 << 20
# Of one entry of the footer: whoever opens the file reads it.
_MOST_TEXT: Final = 1 << 20
_UNKNOWN: Final = -1
_MOST: Final = (1 << 63) - 1
# Keys in the footer; `1` is of how what stands there is to be read. Values of a column have its name behind this one.
_KEY: Final = "mycroft.peaks.1."
_WHO: Final = f"{_KEY}who"
_BEGIN: Final = f"{_KEY}begin"
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, slots=True)
class Peaks:
    """The greatest of one column. `hosts`: names, sorted, each once.

    NumPy, of each peak: `host`, its place among them; `begin`, when its ten minutes begin, UTC ns; `values`, -1:
    nothing was told.
    """

    hosts: tuple[str, ...]
    host: Any
    begin: Any
    values: Any


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """Integers of 8 bytes, little-endian, or text, packed by zstd; `size`: bytes before."""

    size: int
    data: bytes


class _Who(msgspec.Struct, frozen=True, array_like=True):
    """Names of hosts, JSON, and the place of each peak's among them."""

    peaks: int
    hosts: _Packed
    host: _Packed


def keys_of(column: str) -> tuple[str, ...]:
    """Return what `read_peaks` needs of a footer."""
    return _WHO, _BEGIN, f"{_KEY}{column}"


def peaks_of(rows: Table) -> dict[str, bytes]:
    """Return the peaks of rows of `host_minute` as entries of a footer, all of them text; none: of no use.

    Rows without a host or a minute have none.
    """
    if rows.num_rows < _LEAST:
        return {}
    known = pc.and_(pc.is_valid(rows.column("host")), pc.is_valid(rows.column("minute")))
    # Times before 1970 come out a little late, and nothing shows them.
    begin = pc.multiply(pc.divide(rows.column("minute").cast(pa.int64()), PEAK_NS), PEAK_NS)
    small = pa.table({"host": rows.column("host"), "begin": begin} | {c: rows.column(c) for c in PEAK_COLUMNS})
    grouped = small.filter(known).group_by(["host", "begin"], use_threads=False)
    found = grouped.aggregate([(name, "max") for name in PEAK_COLUMNS])
    if not 0 < found.num_rows * _LEAST <= rows.num_rows or found.num_rows > _MOST_PEAKS:
        return {}
    names = sorted(set(found.column("host").to_pylist()))
    places = pc.index_in(found.column("host"), pa.array(names, found.schema.field("host").type))
    found = found.set_column(0, "host", places).sort_by([("host", "ascending"), ("begin", "ascending")])
    who = _Who(found.num_rows, _packed(msgspec.json.encode(names)), _packed(_integers(found.column("host"))))
    told: dict[str, Any] = {_WHO: who, _BEGIN: _packed(_integers(found.column("begin")))}
    told |= {f"{_KEY}{name}": _packed(_integers(found.column(f"{name}_max"))) for name in PEAK_COLUMNS}
    entries = {key: base64.b64encode(msgspec.msgpack.encode(value)) for key, value in told.items()}
    return entries if max(map(len, entries.values())) <= _MOST_TEXT else {}


def read_peaks(entries: Mapping[str, bytes], column: str) -> Peaks | None:
    """Return the peaks of a column from entries of a footer; None: they are not there, or cannot be read.

    Whoever can write to a store can write any text: nothing of it is believed, and little memory is taken for it.
    """
    wanted = [entries.get(key, b"") for key in keys_of(column)]
    if not all(wanted) or max(map(len, wanted)) > _MOST_TEXT:
        return None
    try:
        hosts, host = _who(wanted[0])
        begin, values = (_array(_decoded(text, _Packed), len(host)) for text in wanted[1:])
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, pa.ArrowException, OSError, ValueError):
        return None
    return Peaks(hosts, host, begin, values)


# One file after the other has the same hosts in the same places.
@lru_cache(maxsize=16)
def _who(text: bytes) -> tuple[tuple[str, ...], Any]:
    who = _decoded(text, _Who)
    if not 0 < who.peaks <= _MOST_PEAKS:
        raise ValueError("too many, or none")
    names = msgspec.json.decode(_plain(who.hosts), type=tuple[str, ...])
    host = _array(who.host, who.peaks)
    if not 0 <= host.min() <= host.max() < len(names) <= who.peaks or any(a >= b for a, b in pairwise(names)):
        raise ValueError("names in another order, or none of a peak")
    return names, host


def _decoded(text: bytes, kind: type[_Kind]) -> _Kind:
    return msgspec.msgpack.decode(binascii.a2b_base64(text), type=kind)


def _integers(column: Table) -> bytes:
    """Return a column as integers of 8 bytes; unknown is -1, and what does not fit the most there is."""
    if column.type == pa.uint64():
        column = pc.min_element_wise(column, pa.scalar(_MOST, pa.uint64()), skip_nulls=False)
    return pc.fill_null(column.cast(pa.int64()), _UNKNOWN).to_numpy().astype("<i8").tobytes()


def _packed(data: bytes) -> _Packed:
    return _Packed(len(data), pa.compress(data, codec="zstd", asbytes=True))


def _plain(packed: _Packed) -> bytes:
    """Return what was packed.

    Raises:
        ValueError: it is too much.
        OSError: it is no zstd, or of another size than it says.
    """
    if not 0 < packed.size <= _MOST_PLAIN:
        raise ValueError("too large, or nothing")
    data: bytes = pa.decompress(packed.data, decompressed_size=packed.size, codec="zstd", asbytes=True)
    return data


def _array(packed: _Packed, count: int) -> Any:
    if packed.size != 8 * count:
        raise ValueError("not one value a peak")
    return np.frombuffer(_plain(packed), dtype="<i8")
