"""Summaries of a relay on the wire: what goes in comes out, and what no relay would send is refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.tracer.agent import Batch, BatchError, decode, encode
from mycroft.tracer.agent.batch import BatchKey, sealed
from mycroft.tracer.agent.summary import COLUMNS, MOST_PARTS, MOST_ROWS, Part, Summary

AT = 1_700_000_000_000_000_000


def rows(count: int, *, part: int = 0) -> pa.Table:
    columns = {
        "part": [part] * count,
        "rank": range(count),
        "comm": [7] * count,
        "comm_rank": [None, *range(1, count)],
        "comm_size": [count] * count,
        "last_seq": [None] * count,
        "open_seq": [3] * count,
        "open_kind": [0] * count,
        "open_peer": [None] * count,
        "open_enq": [AT] * count,
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in COLUMNS})


def told(summary: Summary | None = None, *, host: str = "relay.r1") -> Batch:
    part = Part(at_ns=AT, comm=7, job="night", world_size=4, processes=4, ended=1, hosts=2, silent=("h1",))
    summary = summary or Summary(at_ns=AT, rows=rows(4), parts=(part,), every_s=5.0)
    return Batch(key=BatchKey(host=host, boot="b", seq=1, made_ns=AT, rows=4), agent="test", summary=summary)


def test_what_a_relay_tells_is_what_arrives() -> None:
    batch = told()
    assert decode(encode(batch)) == batch
    empty = told(Summary(at_ns=0, rows=COLUMNS.empty_table(), parts=()))
    assert decode(encode(empty)) == empty


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (told(host="gpu-07"), "only relays send them"),
        (told(Summary(at_ns=AT, rows=rows(4, part=1), parts=(Part(),))), "belong to no job"),
        (told(Summary(at_ns=AT, rows=rows(4).set_column(1, COLUMNS.field(1), pa.nulls(4, pa.uint32())))), "rank"),
        (told(Summary(at_ns=AT, rows=rows(MOST_ROWS + 1), parts=(Part(),))), "at most"),
        (told(Summary(at_ns=AT, rows=rows(1), parts=(Part(),) * (MOST_PARTS + 1))), "at most"),
        (told(Summary(at_ns=-1, rows=rows(1), parts=(Part(),))), "a time that is none"),
        (told(Summary(at_ns=AT, rows=rows(1), parts=(Part(at_ns=1 << 62),))), "a time that is none"),
        (told(Summary(at_ns=AT, rows=rows(1), parts=(Part(),), every_s=0.0)), "a time that is none"),
    ],
)
def test_what_no_relay_would_send_is_refused_with_the_reason(batch: Batch, words: str) -> None:
    with pytest.raises(BatchError, match=words):
        decode(encode(batch))


def made_up(batch: Batch, change: Callable[[bytearray], None]) -> bytes:
    """A batch whose content was changed on purpose: its checksum is right."""
    wire = encode(batch)
    size = struct.unpack_from("<I", wire, 8)[0]
    content = bytearray(zstandard.ZstdDecompressor().decompress(wire[16 + size :]))
    change(content)
    return sealed(wire[12 : 12 + size], len(content), zstandard.ZstdCompressor().compress(bytes(content)))


@given(places=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_summaries_that_were_made_up_are_refused_or_are_summaries(places: list[tuple[int, int]]) -> None:
    def change(content: bytearray) -> None:
        for at, bits in places:
            content[at % len(content)] ^= bits

    try:
        found = decode(made_up(told(), change))
    except BatchError:
        return
    if found.summary is not None:
        assert found.summary.rows.schema == COLUMNS
        assert found.summary.rows.num_rows <= 4
        assert all(number < len(found.summary.parts) for number in found.summary.rows.column("part").to_pylist())


def test_a_host_cannot_tell_of_others_beside_its_own_rows() -> None:
    with pytest.raises(BatchError, match="only relays"):
        decode(encode(replace(told(), key=BatchKey(host="gpu-07", boot="b", seq=2))))
