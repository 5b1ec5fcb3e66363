"""What every kind of place must do."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mycroft.loaders.fleet import Place, PlaceError, open_place
from mycroft.loaders.store import StoreError, aggregate


def test_what_is_put_is_got_and_listed_and_may_be_replaced_and_removed(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"of a file")
    place.put("a/b/one", b"1")
    place.put("a/two", file)
    place.put("a/two", b"2")
    assert (place.get("a/b/one"), place.get("a/two"), place.get("a/three")) == (b"1", b"2", None)
    assert place.names("a") == ["a/b/one", "a/two"]
    assert place.names("nothing") == []
    place.delete("a/two")
    place.delete("a/two")
    assert place.names("a") == ["a/b/one"]


def test_of_many_who_create_a_file_at_one_moment_one_is_told_that_it_did(place: Place) -> None:
    for turn in range(4):
        name = f"manifest/{turn}"
        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(lambda n, name=name: place.create(name, b"%d" % n), range(12)))
        assert won.count(True) == 1
        assert place.get(name) == b"%d" % won.index(True)
    assert not place.create("manifest/0", b"late")


def test_parquet_files_are_rows_of_a_query(place: Place, tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"n": range(number * 10, number * 10 + 10)}), path)
        place.put(f"facts/state/hour=2026113001/it's {number}.parquet", path)
    names = place.names("facts")
    found = aggregate("SELECT count(*) AS rows, max(n) AS most FROM rows", {"rows": place.relation(names[:2])})
    assert found.to_pylist() == [{"rows": 20, "most": 19}]


def test_columns_of_a_file_come_some_rows_at_a_time_and_those_it_lacks_do_not_come(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    count = 200_000
    pq.write_table(pa.table({"n": range(count), "host": ["a", "b"] * (count // 2), "other": range(count)}), path)
    place.put("facts/rows.parquet", path)
    for wanted in (["host", "n"], ["host", "none", "n"]):
        parts = list(place.rows("facts/rows.parquet", wanted))
        assert len(parts) > 1
        found = pa.Table.from_batches(parts)
        assert found.schema.names == ["host", "n"]
        assert found.column("n").to_pylist() == list(range(count))
        assert found.column("host").to_pylist() == ["a", "b"] * (count // 2)
    assert pa.types.is_dictionary(next(place.rows("facts/rows.parquet", ["host"])).column("host").type)


def test_notes_in_the_footer_of_a_file_are_got_by_their_keys(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    # More than the end of a file that is read at first.
    long = b"x" * 200_000
    with pq.ParquetWriter(path, pa.schema([("n", pa.int64())])) as writer:
        writer.write_table(pa.table({"n": [1]}))
        writer.add_key_value_metadata({"long": long, "other": b"o"})
    place.put("facts/rows.parquet", path)
    assert place.notes("facts/rows.parquet", ["long", "none"]) == {"long": long}


def test_file_that_is_missing_or_damaged_is_an_error_that_says_so(place: Place) -> None:
    place.put("facts/bad.parquet", b"PAR1 and then nothing that could be read")
    for name in ("facts/bad.parquet", "facts/missing.parquet"):
        with pytest.raises((StoreError, PlaceError), match=name.partition("/")[2]):
            aggregate("SELECT count(*) FROM rows", {"rows": place.relation([name])})
        with pytest.raises(PlaceError, match=name.partition("/")[2]):
            list(place.rows(name, ["host"]))
        with pytest.raises(PlaceError, match=name.partition("/")[2]):
            place.notes(name, ["key"])


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "", "a//b", ".", "a\\b", "a\nb"])
def test_name_that_leads_out_of_the_place_is_refused(place: Place, name: str) -> None:
    for use in (
        lambda: place.get(name),
        lambda: place.notes(name, ["key"]),
        lambda: place.put(name, b""),
        lambda: place.relation([name]),
        lambda: list(place.rows(name, ["n"])),
    ):
        with pytest.raises(PlaceError, match="no name of a file"):
            use()


@pytest.mark.parametrize("url", ["ftp://host/store", "s3:///prefix"])
def test_address_of_no_place_is_refused(url: str) -> None:
    with pytest.raises(PlaceError, match="s3://bucket/prefix"):
        open_place(url)


def test_bucket_without_its_client_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(PlaceError, match="pip install obstore"):
        open_place("s3://bucket/prefix")
