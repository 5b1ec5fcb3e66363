"""Open traces: few at a time, never closed under a reader."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mycroft.app.open_stores import OpenStores
from mycroft.loaders.schema import SCHEMA_VERSION
from mycroft.loaders.store import StoreError, StoreWriter


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    import polars as pl

    folder = tmp_path_factory.mktemp("stores")
    made: list[Path] = []
    for number in range(4):
        path = folder / f"{number}.duckdb"
        writer = StoreWriter(path)
        writer.append(
            "trace_meta", pl.DataFrame({"key": ["schema_version", "n"], "value": [str(SCHEMA_VERSION), str(number)]})
        )
        writer.finish()
        made.append(path)
    return made


def number(stores: OpenStores, path: Path) -> str:
    with stores.lend(path) as store:
        return store.meta["n"]


def test_a_trace_stays_open_between_uses(paths: list[Path]) -> None:
    stores = OpenStores(limit=2)
    with stores.lend(paths[0]) as first:
        pass
    with stores.lend(paths[0]) as second:
        assert second is first
    stores.close()


def test_the_longest_unused_is_closed_first(paths: list[Path]) -> None:
    stores = OpenStores(limit=2)
    with stores.lend(paths[0]) as oldest:
        pass
    for path in paths[1:3]:
        number(stores, path)
    with pytest.raises(StoreError, match="closed"):
        oldest.frame("SELECT 1")
    stores.close()


def test_a_trace_in_use_is_never_closed(paths: list[Path]) -> None:
    stores = OpenStores(limit=1)
    with stores.lend(paths[0]) as used:
        assert [number(stores, path) for path in paths[1:]] == ["1", "2", "3"]
        stores.forget(paths[0])
        stores.close()
        assert used.frame("SELECT 1 AS x").item() == 1
    stores.close()


def test_a_file_that_cannot_be_opened_leaves_nothing_behind(paths: list[Path], tmp_path: Path) -> None:
    stores = OpenStores(limit=1)
    with pytest.raises(StoreError), stores.lend(tmp_path / "none.duckdb"):
        pass
    assert number(stores, paths[0]) == "0"
    stores.close()


def test_many_threads_read_many_traces(paths: list[Path]) -> None:
    stores = OpenStores(limit=2)
    wrong: list[object] = []

    def read(offset: int) -> None:
        for turn in range(40):
            at = (turn * 7 + offset) % len(paths)
            try:
                if number(stores, paths[at]) != str(at):
                    wrong.append(at)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=read, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stores.close()
    assert wrong == []
