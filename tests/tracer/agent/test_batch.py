"""The bytes of a batch: what goes in comes out, and what is damaged is refused with the reason."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.tracer.agent import Batch, BatchError, decode, encode, key_of
from mycroft.tracer.agent import batch as batch_module
from mycroft.tracer.agent.batch import Gap, HostFact, sealed
from tests.tracer.agent.batches import a_batch


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return a_batch(tmp_path_factory.mktemp("rings") / "r")


def test_what_was_sent_is_what_arrives(batch: Batch) -> None:
    batch = replace(batch, facts=(HostFact(ts_ns=1, kind="xid", device="0000:3b:00.0", number=79.0, text="NVRM: …"),))
    wire = encode(batch)
    again = decode(wire)
    assert again == batch
    assert key_of(wire) == batch.key
    assert again.rows == batch.rows > 40
    assert {c.name for c in again.rings[0].communicators} == {"dp"}


def test_every_flipped_bit_and_every_cut_is_refused(batch: Batch) -> None:
    wire = encode(batch)
    for at in range(8 * len(wire)):
        damaged = bytearray(wire)
        damaged[at // 8] ^= 1 << (at % 8)
        with pytest.raises(BatchError):
            decode(bytes(damaged))
    for size in range(len(wire)):
        with pytest.raises(BatchError):
            key_of(wire[:size])


def made_up(batch: Batch, change: Callable[[bytearray], None]) -> bytes:
    """A batch whose content was changed on purpose: its checksum is right."""
    wire = encode(batch)
    size = struct.unpack_from("<I", wire, 8)[0]
    content = bytearray(zstandard.ZstdDecompressor().decompress(wire[16 + size :]))
    change(content)
    return sealed(wire[12 : 12 + size], len(content), zstandard.ZstdCompressor().compress(bytes(content)))


@given(places=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_content_that_was_made_up_is_refused_or_has_rows_of_its_processes(
    batch: Batch, places: list[tuple[int, int]]
) -> None:
    def change(content: bytearray) -> None:
        for at, bits in places:
            content[at % len(content)] ^= bits

    try:
        found = decode(made_up(batch, change))
    except BatchError:
        return
    for table in found.tables.values():
        assert table.num_rows == 0 or pc.max(table.column("ring")).as_py() < len(found.rings)
    assert found.rows <= batch.rows


def test_columns_that_are_packed_one_by_one_are_refused_before_they_are_unpacked(batch: Batch) -> None:
    kind, table = next(iter(batch.tables.items()))
    rows = table.combine_chunks().to_batches()[0]
    plain = rows.serialize().to_pybytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(rows)
    packed = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[1].serialize().to_pybytes()
    alone = replace(batch, tables={kind: table})

    def change(content: bytearray) -> None:
        size = struct.unpack_from("<I", content)[0]
        header = bytes(content[4 : 4 + size]).replace(f"{len(plain)}".encode(), f"{len(packed)}".encode())
        content[:] = struct.pack("<I", len(header)) + header + packed

    with pytest.raises(BatchError, match="packed in a way"):
        decode(made_up(alone, change))


def test_content_larger_than_it_says_is_not_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(200 << 20))
    with pytest.raises(BatchError, match="not of the announced size"):
        key_of(sealed(b'{"host":"h","boot":"b","seq":1}', 1000, bomb))
    with pytest.raises(BatchError, match="at most"):
        key_of(sealed(b'{"host":"h","boot":"b","seq":1}', 200 << 20, bomb))
    with pytest.raises(BatchError, match="no zstd frame"):
        key_of(sealed(b'{"host":"h","boot":"b","seq":1}', 1000, b"x"))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (b'{"host":"","boot":"b","seq":1}', "names no host"),
        (b'{"host":"h","boot":"../x","seq":1}', "no name has"),
        (b'{"host":"h\\u0007","boot":"b","seq":1}', "no name has"),
        (b'{"host":"h","boot":"b","seq":-1}', "no number"),
        (b'{"host":"h"', "without a readable key"),
    ],
)
def test_key_that_names_nobody_is_refused(key: bytes, why: str) -> None:
    packed = zstandard.ZstdCompressor().compress(b"x")
    with pytest.raises(BatchError, match=why):
        key_of(sealed(key, 1, packed))


HUGE = 1 << 70


def ring_of(batch: Batch, **changes: Any) -> Batch:
    return replace(batch, rings=(replace(batch.rings[0], **changes),))


def comm_of(batch: Batch, **changes: Any) -> Batch:
    return ring_of(batch, communicators=(replace(batch.rings[0].communicators[0], **changes),))


@pytest.mark.parametrize(
    "change",
    [
        lambda b: replace(b, key=replace(b.key, made_ns=HUGE)),
        lambda b: replace(b, key=replace(b.key, made_ns=-1)),
        lambda b: ring_of(b, next=-1),
        lambda b: ring_of(b, next=HUGE),
        lambda b: ring_of(b, last_tick_ns=HUGE),
        lambda b: ring_of(b, key="k" * 10_000),
        lambda b: ring_of(b, key=""),
        lambda b: ring_of(b, losses={str(n): n for n in range(1000)}),
        lambda b: ring_of(b, process=replace(b.rings[0].process, rank=HUGE)),
        lambda b: ring_of(b, communicators=b.rings[0].communicators * 2000),
        lambda b: comm_of(b, hash=HUGE),
        lambda b: comm_of(b, hash=-1),
        lambda b: comm_of(b, size=1 << 33),
        lambda b: comm_of(b, comm=1 << 20),
        lambda b: comm_of(b, last_enq_ns=HUGE),
        lambda b: replace(b, gaps=(Gap(why="", rows=HUGE),)),
        lambda b: replace(b, gaps=(Gap(why="", since_ns=HUGE),)),
        lambda b: replace(b, gaps=(Gap(why=""),) * 5000),
        lambda b: replace(b, gaps=(Gap(why="x" * 64),) * 150_000),
        lambda b: replace(b, facts=(HostFact(ts_ns=HUGE, kind="xid"),)),
    ],
)
def test_numbers_that_no_agent_tells_are_refused_before_they_stop_the_store(
    batch: Batch, change: Callable[[Batch], Batch]
) -> None:
    # Else the file of the log that holds it would never become segments, nor any after it.
    with pytest.raises(BatchError):
        decode(encode(change(batch)))


def test_rows_of_no_process_are_refused(batch: Batch) -> None:
    with pytest.raises(BatchError, match="belong to no process"):
        decode(encode(replace(batch, rings=())))


def test_rows_with_other_columns_are_refused_by_name(batch: Batch) -> None:
    table = batch.tables["op"].drop_columns(["position"])
    with pytest.raises(BatchError, match="op rows of host0 have other columns"):
        decode(encode(replace(batch, tables={"op": table})))
    unknown = replace(batch, tables={"secrets": pa.table({"a": [1]})})
    with pytest.raises(BatchError, match="secrets"):
        decode(encode(unknown))


def test_no_more_processes_than_a_host_has(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MOST_RINGS", 0)
    with pytest.raises(BatchError, match="1 processes"):
        decode(encode(batch))
