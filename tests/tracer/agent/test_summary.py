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
from mycroft.tracer.agent.summary import (
    COLUMNS,
    MEASURES,
    MOST_MEASURES,
    MOST_PARTS,
    MOST_PLACES,
    MOST_ROWS,
    Part,
    Summary,
    What,
)

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


def measures(size: int, **changed: object) -> pa.Table:
    columns = {
        "part": [0] * size,
        "what": [number % len(What) for number in range(size)],
        "rank": range(size),
        "comm": [1 << 63] * size,
        "channel": [0] * size,
        "peer": [1] * size,
        "value": [30_000] * size,
        "count": [80] * size,
    } | changed
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in MEASURES})


def of_window(table: pa.Table | None = None, *, window_ns: int = 10**10, **changed: object) -> Summary:
    part = Part(**({"at_ns": AT, "comm": 7, "window": AT // 10**10 - 1, "places": ((0, "h0"), (8, "h1"))} | changed))  # type: ignore[arg-type]
    table = measures(9) if table is None else table
    return Summary(at_ns=AT, rows=rows(4), parts=(part,), measures=table, window_ns=window_ns)


def told(summary: Summary | None = None, *, host: str = "relay.r1") -> Batch:
    part = Part(at_ns=AT, comm=7, job="night", world_size=4, processes=4, ended=1, hosts=2, silent=("h1",))
    summary = summary or Summary(at_ns=AT, rows=rows(4), parts=(part,), every_s=5.0)
    return Batch(key=BatchKey(host=host, boot="b", seq=1, made_ns=AT, rows=4), agent="test", summary=summary)


def test_what_a_relay_tells_is_what_arrives() -> None:
    batch = told()
    assert decode(encode(batch)) == batch
    empty = told(Summary(at_ns=0, rows=COLUMNS.empty_table(), parts=()))
    assert decode(encode(empty)) == empty
    measured = told(of_window())
    assert decode(encode(measured)) == measured


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
        (told(of_window(measures(MOST_MEASURES + 1))), "at most"),
        (told(of_window(measures(2, part=[0, 1]))), "belong to no job"),
        (told(of_window(measures(2, what=[0, len(What)]))), "this build does not know"),
        (told(of_window(measures(2, value=[1, 0]))), "measures of nothing"),
        (told(of_window(measures(2, count=[0, 1]))), "measures of nothing"),
        (told(of_window(measures(2, peer=[0, None]))), "lack something"),
        (told(of_window(window_ns=0)), "no length"),
        (told(of_window(window_ns=1 << 50)), "no length"),
        (told(of_window(window=AT // 10**10 + 1)), "a window that is not over"),
        (told(of_window(places=((0, "h"),) * (MOST_PLACES + 1))), "cannot be read"),
        (told(of_window(places=((-1, "h"),))), "cannot be read"),
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
@settings(max_examples=400, deadline=None)
def test_summaries_that_were_made_up_are_refused_or_are_summaries(places: list[tuple[int, int]]) -> None:
    def change(content: bytearray) -> None:
        for at, bits in places:
            content[at % len(content)] ^= bits

    try:
        found = decode(made_up(told(of_window()), change))
    except BatchError:
        return
    if found.summary is not None:
        assert found.summary.rows.schema == COLUMNS
        assert found.summary.rows.num_rows <= 4
        assert found.summary.measures.schema == MEASURES
        assert found.summary.measures.num_rows <= 9
        for table in (found.summary.rows, found.summary.measures):
            assert all(number < len(found.summary.parts) for number in table.column("part").to_pylist())
        assert all(what < len(What) for what in found.summary.measures.column("what").to_pylist())


def test_summaries_of_another_release_are_refused_with_what_to_do() -> None:
    wire = made_up(told(of_window()), lambda content: content.__setitem__(slice(None), other_columns(bytes(content))))
    with pytest.raises(BatchError, match="other columns than this build; use one release"):
        decode(wire)


def other_columns(content: bytes) -> bytes:
    at = content.index(b'"schema":"') + len(b'"schema":"')
    return content[:at] + b"0" * 16 + content[at + 16 :]


def test_a_host_cannot_tell_of_others_beside_its_own_rows() -> None:
    with pytest.raises(BatchError, match="only relays"):
        decode(encode(replace(told(), key=BatchKey(host="gpu-07", boot="b", seq=2))))
