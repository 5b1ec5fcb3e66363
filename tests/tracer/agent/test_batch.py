"""The bytes of a batch: what goes in comes out, and what is damaged is refused with the reason."""

from __future__ import annotations

import struct
from dataclasses import replace

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mycroft.tracer.agent import Batch, BatchError, decode, encode, key_of
from mycroft.tracer.agent import batch as batch_module
from tests.tracer.agent.batches import a_batch


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return a_batch(tmp_path_factory.mktemp("rings") / "r")


def test_what_was_sent_is_what_arrives(batch: Batch) -> None:
    wire = encode(batch)
    again = decode(wire)
    assert again == batch
    assert key_of(wire) == batch.key
    assert again.rows == batch.rows > 40
    assert {c.name for c in again.rings[0].communicators} == {"dp"}


@given(cut=st.integers(0, 400), flip=st.integers(0, 10_000))
@settings(max_examples=120, deadline=None)
def test_damaged_bytes_are_refused_or_harmless(batch: Batch, cut: int, flip: int) -> None:
    wire = bytearray(encode(batch))
    wire[flip % len(wire)] ^= 1 << (flip % 8)
    for data in (bytes(wire), bytes(wire)[: max(0, len(wire) - 1 - cut)]):
        try:
            found = decode(data)
        except BatchError:
            continue
        assert found.rows == batch.rows


def test_content_larger_than_it_says_is_not_unpacked() -> None:
    key = b'{"host":"h","boot":"b","seq":1}'
    bomb = zstandard.ZstdCompressor().compress(bytes(200 << 20))
    wire = b"MYB1" + struct.pack("<I", len(key)) + key + struct.pack("<I", 1000) + bomb
    with pytest.raises(BatchError, match="not of the announced size"):
        key_of(wire)


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
        key_of(b"MYB1" + struct.pack("<I", len(key)) + key + struct.pack("<I", 1) + packed)


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
