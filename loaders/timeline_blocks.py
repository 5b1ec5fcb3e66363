"""Operations of a timeline, packed: blocks of a band of ranks, near each other in time, a few bytes an operation.

A copy of the operations in the order of time would be larger than the trace itself. What differs little between
neighbours is kept as differences: members of one operation stand beside each other, and differ in when they came.
Times are whole µs after the start of the timeline.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import zstandard

from mycroft.loaders.base import LoadError

Int = npt.NDArray[np.int64]

BLOCK_ROWS: Final = 16_384
COMPLETED, OPEN, ABORTED, ABSENT = 1, 2, 3, 4
"""Codes of a state, the worst last."""
UNKNOWN: Final = -1

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<HHI")
"""Version, columns, rows; of each column follow its bytes a row, its first value, and the planes of its steps."""
_MOST_BYTES: Final = 1 << 24
_WIDTHS: Final = (0, 1, 2, 4, 8)


@dataclass(frozen=True, slots=True, eq=False)
class Ops:
    """Operations as columns of the same length.

    `y` is the row of the rank. `median_us` is when the median of the members had arrived, `UNKNOWN` where an operation
    has no others to compare with; `fastest_us` the time inside of the fastest member, `UNKNOWN` where no time is known.
    """

    y: Int
    comm: Int
    seq: Int
    kind: Int
    state: Int
    median_us: Int
    start_us: Int
    end_us: Int
    fastest_us: Int

    def __len__(self) -> int:
        """Return how many operations there are."""
        return len(self.y)

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Ops:
        """Return the operations of a frame with these columns; NULL is `UNKNOWN`."""

        def column(name: str) -> Int:
            return frame[name].cast(pl.Int64).fill_null(UNKNOWN).to_numpy()

        return cls(*(column(field.name) for field in fields(cls)))

    def take(self, chosen: npt.NDArray[np.bool_] | slice | Int) -> Ops:
        """Return some of the operations."""
        return Ops(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @property
    def late_us(self) -> Int:
        """Arrival after the median of the members, µs, negative before it; 0 where there is none to compare with."""
        known = self.median_us >= 0
        came = np.where(self.state == ABSENT, self.end_us, self.start_us)
        return np.where(known, came - self.median_us, 0)

    @property
    def late_is_known(self) -> npt.NDArray[np.bool_]:
        """Whether `late_us` says something."""
        return self.median_us >= 0

    @property
    def wait_us(self) -> Int:
        """Time inside beyond the fastest member, µs; open: time so far; `UNKNOWN` where it is not known."""
        inside = self.end_us - self.start_us
        waited = np.where(self.fastest_us >= 0, np.maximum(inside - self.fastest_us, 0), UNKNOWN)
        return np.where(self.state == OPEN, inside, np.where(self.state == ABSENT, UNKNOWN, waited))

    @property
    def from_us(self) -> Int:
        """When the operation begins to be seen: its start, or when the median had come where this rank came later."""
        late = np.where(self.state == ABSENT, 0, np.maximum(self.late_us, 0))
        return self.start_us - late


def joined(parts: list[Ops]) -> Ops:
    """Return the operations of all parts, one part after the other."""
    if not parts:
        return Ops(*(np.zeros(0, np.int64) for _ in fields(Ops)))
    return Ops(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Ops)))


def pack(ops: Ops) -> bytes:
    """Return the operations as a block; their order is kept, and neighbours that are alike make it small."""
    known = ops.median_us >= 0
    near = np.where(known, ops.median_us, ops.start_us)
    first, widths, planes = bytearray(), bytearray(), bytearray()
    for column in (
        ops.y,
        ops.comm,
        ops.seq,
        ops.kind,
        ops.state << 1 | known,
        near,
        ops.start_us - near,
        ops.end_us,
        ops.fastest_us,
    ):
        first += struct.pack("<q", column[0] if len(column) else 0)
        steps = np.diff(column, prepend=column[:1])
        # The sign goes into the lowest bit, so that small differences of either sign are small numbers.
        folded = ((steps << 1) ^ (steps >> 63)).astype("<i8", copy=False).view("<u8")
        bytes_of = folded.view(np.uint8).reshape(-1, 8)
        top = int(folded.max()) if len(folded) else 0
        width = next(width for width in _WIDTHS if top < 1 << (8 * width))
        widths.append(width)
        # All lowest bytes first, then the next ones: what is nearly always zero becomes one long run.
        for byte in range(width):
            planes += bytes_of[:, byte].tobytes()
    head = _HEADER.pack(_VERSION, len(widths), len(ops)) + widths + first
    return zstandard.ZstdCompressor(level=3).compress(head + planes)


def unpack(block: bytes, *, named: bool = True, compared: bool = True) -> Ops:
    """Return the operations of a block.

    What only names an operation (communicator, number, kind) and the time of its fastest member may be left out, for
    who asks for many blocks and needs neither: these columns are `UNKNOWN` then.

    Raises:
        LoadError: it is not a block that this version reads.
    """
    try:
        content = zstandard.ZstdDecompressor().decompress(block, max_output_size=_MOST_BYTES)
    except zstandard.ZstdError as error:
        raise LoadError(f"a block of the timeline is damaged: {error}; load the evidence again") from error
    version, count, rows = _HEADER.unpack_from(content) if len(content) >= _HEADER.size else (0, 0, 0)
    widths = content[_HEADER.size : _HEADER.size + count]
    at = _HEADER.size + 9 * count
    whole = version == _VERSION and count == len(fields(Ops)) and all(width in _WIDTHS for width in widths)
    if not whole or len(content) != at + rows * sum(widths):
        raise LoadError("a block of the timeline was written by another version; load the evidence again")
    first = struct.unpack_from(f"<{count}q", content, _HEADER.size + count)
    columns: list[Int] = []
    left_out = (*(() if named else (1, 2, 3)), *(() if compared else (8,)))
    for number, (width, begin) in enumerate(zip(widths, first, strict=True)):
        if number in left_out:
            columns.append(np.broadcast_to(np.int64(UNKNOWN), rows))
        else:
            columns.append(_column(content, at, rows, width, begin))
        at += rows * width
    y, comm, seq, kind, state, near, after, end, fastest = columns
    return Ops(
        y=y,
        comm=comm,
        seq=seq,
        kind=kind,
        state=state >> 1,
        median_us=np.where((state & 1).astype(np.bool_), near, UNKNOWN),
        start_us=near + after,
        end_us=end,
        fastest_us=fastest,
    )


def _column(content: bytes, at: int, rows: int, width: int, first: int) -> Int:
    if width == 0:
        return np.full(rows, first, np.int64)
    kind = f"<u{width}"
    folded = np.frombuffer(content, np.uint8, rows, at).astype(kind)
    for byte in range(1, width):
        folded |= np.frombuffer(content, np.uint8, rows, at + byte * rows).astype(kind) << (8 * byte)
    steps = (folded >> 1).view(f"<i{width}") ^ -(folded & 1).view(f"<i{width}")
    made = np.cumsum(steps, dtype=np.int64)
    made += first
    return made
