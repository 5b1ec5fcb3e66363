"""Summaries on the wire: what a relay tells of all its ranks in place of their rows; a part of a batch.

One row per rank and communicator: how far it has come, and what it stands in. And one per rank, or per what it sends
where, with what its own service took over the newest window of time that is complete: three to four bytes each. The
batch is sealed, numbered, spooled and acknowledged like any other; its key names the relay, which has a name that hosts
do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any, Final

import msgspec

from mycroft.tracer.arrow import Table, pa
from mycroft.tracer.trace import Number, Number32, Text, Unsigned

# Names of relays begin so: who may speak for a host may not tell of a thousand others.
RELAY_PREFIX: Final = "relay."
# Of a relay at most: ranks times their communicators.
MOST_ROWS: Final = 200_000
MOST_PARTS: Final = 1024
MOST_NAMES: Final = 200
MOST_MEASURES: Final = 1_000_000
MOST_PLACES: Final = 4096

COLUMNS: Final = pa.schema(
    [
        ("part", pa.uint16()),
        ("rank", pa.uint32()),
        ("comm", pa.uint64()),
        ("comm_rank", pa.uint32()),
        ("comm_size", pa.uint32()),
        ("last_seq", pa.int64()),
        ("open_seq", pa.int64()),
        ("open_kind", pa.uint8()),
        ("open_peer", pa.uint32()),
        ("open_enq", pa.int64()),
    ]
)
"""Columns of the rows; `part` is an index into `Summary.parts`, `comm` the hash of a communicator."""

MEASURES: Final = pa.schema(
    [
        ("part", pa.uint16()),
        ("what", pa.uint8()),
        ("rank", pa.uint32()),
        ("comm", pa.uint64()),
        ("channel", pa.uint8()),
        ("peer", pa.uint32()),
        ("value", pa.uint16()),
        ("count", pa.uint32()),
    ]
)
"""What own service took. `what` is one of `What`; `value` the logarithm of the usual nanoseconds of one unit, `count`
how many units there were in the window. Zero where a column says nothing."""


class What(IntEnum):
    """What a row of `MEASURES` is of, and what is one unit of it."""

    GPU = 0
    """From one operation to the next: an operation. `comm`: whose members do the same."""
    HOST = 1
    """Host time of the window. `peer`: the least rank of its job on the same host."""
    COLLECTIVE = 2
    """Network time of what a rank sends on a channel to `peer`, its rank in `comm`: a slice."""
    PAIR = 3
    """The same of sends."""
    EXCHANGE = 4
    """The same of all-to-all, over all channels."""
    FLUSH = 5
    """Arrival to visibility at the GPU: a slice."""


# `value` is (ln ns - 7) * 4096, at least 1: from a microsecond up to ten seconds.
VALUE_STEPS: Final = 4096
VALUE_LEAST: Final = 7.0


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one job that a relay has. `silent`: hosts of it that have stopped to speak, left out.

    `at_ns` (UTC): up to when all hosts that speak have told what happened. `comm`: the least hash of its communicators,
    also of those of which there are no rows. `window`: number of the window that rows of `MEASURES` are of, since 1970.
    `places`: name of each host, and the least rank of the job on it.
    """

    at_ns: Number = 0
    comm: Unsigned = 0
    job: Text = ""
    world_size: Number32 | None = None
    processes: Number32 = 0
    ended: Number32 = 0
    hosts: Number32 = 0
    silent: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    silent_count: Number32 = 0
    window: Number = 0
    places: Annotated[tuple[tuple[Number32, Text], ...], msgspec.Meta(max_length=MOST_PLACES)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a relay knows of its ranks. `at_ns` (UTC): the latest of its jobs. `every_s`: when the next is expected.

    `measures`: rows of `MEASURES` of windows of `window_ns`; windows that were told before have none.
    """

    at_ns: int
    rows: Table
    parts: Sequence[Part] = ()
    every_s: float = 10.0
    measures: Table = field(default_factory=MEASURES.empty_table)
    window_ns: int = 10_000_000_000


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What the header of a batch says of its summaries; rows and measures are the last messages of the content.

    `schema` names the columns of both.
    """

    at_ns: int
    length: int
    schema: str
    parts: tuple[Part, ...] = ()
    every_s: float = 10.0
    measured: int = 0
    """Bytes of the message with measures."""
    window_ns: int = 10_000_000_000


def problem_of(rows: Any, measures: Any, head: Head) -> str:
    """Return what is wrong with rows that were read, in words; empty: nothing."""
    if rows.num_rows > MOST_ROWS:
        return f"{rows.num_rows} rows; at most {MOST_ROWS} are taken"
    if len(head.parts) > MOST_PARTS:
        return f"{len(head.parts)} jobs; at most {MOST_PARTS} are taken"
    if any(part.comm >> 64 for part in head.parts):
        return "a communicator whose hash is none"
    for name in ("part", "rank", "comm"):
        if rows.column(rows.schema.get_field_index(name)).null_count:
            return f"rows without {name}"
    part = rows.column(0)
    if rows.num_rows and part.to_numpy().max() >= len(head.parts):
        return "rows that belong to no job of the batch"
    if (
        not all(0 <= at < 1 << 62 for at in (head.at_ns, *(part.at_ns for part in head.parts)))
        or not 0 < head.every_s < 1e6
    ):
        return "a time that is none"
    return _problem_of_measures(measures, head)


def _problem_of_measures(measures: Any, head: Head) -> str:
    if measures.num_rows > MOST_MEASURES:
        return f"{measures.num_rows} measures; at most {MOST_MEASURES} are taken"
    if not 1_000_000 <= head.window_ns < 1 << 50:
        return "windows that have no length"
    if any(part.window and (part.window + 1) * head.window_ns > part.at_ns for part in head.parts):
        return "a window that is not over"
    if any(column.null_count for column in measures.columns):
        return "measures that lack something"
    if not measures.num_rows:
        return ""
    part = measures.column(0).to_numpy()
    if part.max() >= len(head.parts):
        return "measures that belong to no job of the batch"
    if measures.column(1).to_numpy().max() >= len(What):
        return "measures of what this build does not know"
    if not measures.column(6).to_numpy().min() or not measures.column(7).to_numpy().min():
        return "measures of nothing"
    return ""
