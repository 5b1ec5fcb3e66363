"""Summaries on the wire: what a relay tells of all its ranks in place of their rows; a part of a batch.

One row per rank and communicator: how far it has come, and what it stands in. The batch is sealed, numbered, spooled
and acknowledged like any other; its key names the relay, which has a name that hosts do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one job that a relay has. `silent`: hosts of it that have stopped to speak, left out.

    `at_ns` (UTC): up to when all hosts that speak have told what happened. `comm`: the least hash of its communicators,
    also of those of which there are no rows.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a relay knows of its ranks. `at_ns` (UTC): the latest of its jobs. `every_s`: when the next is expected."""

    at_ns: int
    rows: Table
    parts: Sequence[Part] = ()
    every_s: float = 10.0


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What the header of a batch says of its summaries; the rows are the last message of the content."""

    at_ns: int
    length: int
    schema: str
    parts: tuple[Part, ...] = ()
    every_s: float = 10.0


def problem_of(rows: Any, head: Head) -> str:
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
    return ""
