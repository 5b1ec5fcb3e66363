"""Peaks of ten minutes say what the minutes say, whoever wrote them."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mycroft.analysis.fleet import Window
from mycroft.analysis.fleet.hosts import HEAT_COLUMNS, grid_of, grid_of_peaks
from mycroft.loaders.collector import peaks
from mycroft.loaders.collector.peaks import PEAK_COLUMNS, PEAK_NS, keys_of, peaks_of, read_peaks
from mycroft.loaders.collector.rollups import SCHEMAS
from mycroft.loaders.collector.segments import write_segment

MINUTE = 60_000_000_000
START = 1_790_000_000 // 60 * MINUTE
EVER = Window(0, 1 << 62)


def minutes(hosts: int, count: int, *, seed: int = 1) -> pa.Table:
    """Rows of `host_minute` in any order, two jobs a host, some of them without a host, a minute or a value."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for host in range(hosts):
        for minute in range(count):
            for job in ("a", "b"):
                row: dict[str, Any] = {"host": f"gpu-{host:03}", "job": job, "minute": START + minute * MINUTE}
                row |= {name: draw.choice([None, 0, draw.randrange(1 << 20)]) for name in PEAK_COLUMNS}
                rows.append(row)
    rows[3]["host"] = rows[5]["minute"] = None
    rows[7]["net_max_ns"] = rows[8]["lost_rows"] = (1 << 64) - 1
    draw.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=SCHEMAS["host_minute"])


def entries_of(rows: pa.Table) -> dict[str, bytes]:
    entries = peaks_of(rows)
    assert entries
    return entries


@pytest.mark.parametrize("column", HEAT_COLUMNS)
def test_peaks_of_rows_make_the_picture_that_their_minutes_make(column: str) -> None:
    rows = minutes(7, 95)
    found = read_peaks(entries_of(rows), column)
    assert found is not None
    assert len(found.begin) < rows.num_rows / 8
    for tens in (1, 2, 6):
        coarse = grid_of_peaks(found.hosts, found.host, found.begin, found.values, tens * PEAK_NS, EVER)
        fine = grid_of(rows, column, tens * PEAK_NS, EVER)
        assert (coarse.hosts, coarse.first) == (fine.hosts, fine.first)
        assert coarse.values.tolist() == fine.values.tolist()


def test_every_column_of_a_picture_has_peaks() -> None:
    assert set(HEAT_COLUMNS) == set(PEAK_COLUMNS)


def test_rows_that_are_as_few_as_their_peaks_would_be_have_none() -> None:
    assert peaks_of(minutes(40, 1)) != {}
    few = minutes(40, 1).filter(pc.equal(minutes(40, 1).column("job"), "a"))
    assert peaks_of(few) == {}
    assert peaks_of(SCHEMAS["host_minute"].empty_table()) == {}
    nobody = minutes(4, 30).set_column(1, "host", pa.nulls(240, pa.string()))
    assert peaks_of(nobody) == {}


def test_file_has_peaks_and_is_to_other_readers_as_it_was(tmp_path: Path) -> None:
    rows = minutes(5, 40)
    segment = write_segment(tmp_path, "host_minute", rows)
    path = tmp_path / segment.path
    there = pq.read_metadata(path).metadata
    assert {key: there[key.encode()] for key in keys_of("errors")} == {
        key: value for key, value in peaks_of(rows).items() if key in keys_of("errors")
    }
    assert pq.read_table(path, partitioning=None).cast(rows.schema) == rows
    assert pl.read_parquet(path)["errors"].to_list() == rows.column("errors").to_pylist()
    few = write_segment(tmp_path, "host_minute", rows.slice(0, 1))
    assert not any(key.startswith(b"mycroft") for key in pq.read_metadata(tmp_path / few.path).metadata)


def packed(values: list[int]) -> tuple[int, bytes]:
    data = b"".join(value.to_bytes(8, "little", signed=True) for value in values)
    return len(data), pa.compress(data, codec="zstd", asbytes=True)


def entries(names: Any, host: list[int], begin: list[int], values: list[int], *, count: int | None = None) -> Any:
    text = msgspec.json.encode(names)
    who = (
        len(host) if count is None else count,
        (len(text), pa.compress(text, codec="zstd", asbytes=True)),
        packed(host),
    )
    told = zip(keys_of("errors"), (who, packed(begin), packed(values)), strict=True)
    return {key: base64.b64encode(msgspec.msgpack.encode(value)) for key, value in told}


@pytest.mark.parametrize(
    "hostile",
    [
        entries(["b", "a"], [0, 1], [0, 0], [1, 1]),
        entries(["a", "a"], [0, 1], [0, 0], [1, 1]),
        entries(["a"], [0, 1], [0, 0], [1, 1]),
        entries(["a"], [0, -1], [0, 0], [1, 1]),
        entries([], [0], [0], [1]),
        entries([1, 2], [0, 1], [0, 0], [1, 1]),
        entries("ab", [0, 1], [0, 0], [1, 1]),
        entries(["a", "b"], [0, 1], [0], [1, 1]),
        entries(["a", "b"], [0, 1], [0, 0], [1, 1, 1]),
        entries(["a", "b"], [0, 1], [0, 0], [1, 1], count=1 << 60),
        entries(["a", "b"], [0, 1], [0, 0], [1, 1], count=0),
        entries(["a", "b"], [0, 1], [0, 0], [1, 1], count=-2),
    ],
)
def test_peaks_that_cannot_be_are_no_peaks(hostile: dict[str, bytes]) -> None:
    assert read_peaks(entries(["a", "b"], [0, 1], [0, 0], [1, 1]), "errors") is not None
    assert read_peaks(hostile, "errors") is None


def test_entry_that_is_damaged_or_missing_is_no_peaks_and_never_an_error() -> None:
    whole = {key: value for key, value in entries_of(minutes(3, 20)).items() if key in keys_of("errors")}
    draw = random.Random(4)
    for key, text in whole.items():
        assert read_peaks(whole | {key: b""}, "errors") is None
        assert read_peaks({k: v for k, v in whole.items() if k != key}, "errors") is None
        assert read_peaks(whole | {key: text[: len(text) // 2]}, "errors") is None
        for _ in range(100):
            at = draw.randrange(len(text))
            found = read_peaks(whole | {key: text[:at] + bytes([draw.randrange(256)]) + text[at + 1 :]}, "errors")
            # A number that was changed is a number.
            assert found is None or len(found.host) == len(found.begin) == len(found.values)


def test_bytes_that_unpack_to_more_than_they_say_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_MOST_PLAIN", 64)
    assert read_peaks(entries(["a"], [0] * 9, [0] * 9, [1] * 9), "errors") is None
    assert read_peaks(entries(["a"], [0] * 8, [0] * 8, [1] * 8), "errors") is not None


def test_column_that_has_no_peaks_is_read_by_its_minutes() -> None:
    assert read_peaks(entries_of(minutes(3, 20)), "ops") is None
