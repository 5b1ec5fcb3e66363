"""Versions of a store that many write to."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from mycroft.loaders.fleet import FleetManifest, FleetSegment, FleetStore, FleetStoreError, Place, PlaceError
from mycroft.loaders.fleet.manifest import KEPT


def segment(number: int, *, table: str = "state", first: int = 0) -> FleetSegment:
    return FleetSegment(
        table=table,
        path=f"facts/{table}/{number}.parquet",
        first_ns=first,
        last_ns=first + 9,
        rows=1,
        size_bytes=1,
        made=0.0,
    )


def paths(manifest: FleetManifest) -> list[str]:
    return sorted(s.path for s in manifest.segments)


def test_writers_at_one_moment_lose_nothing_of_each_other(place: Place) -> None:
    """Each read-and-write must follow the one before; a store that took the last writer's word would lose some."""
    together = threading.Barrier(4)

    def write(writer: int) -> None:
        store = FleetStore(place)
        together.wait()
        for number in range(4):
            store.add([segment(writer * 100 + number)])

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    manifest = FleetStore(place).read()
    assert paths(manifest) == sorted(segment(w * 100 + n).path for w in range(4) for n in range(4))
    assert manifest.version == 16


def test_hint_that_is_behind_or_missing_or_nonsense_does_not_hide_the_newest_version(place: Place) -> None:
    store = FleetStore(place)
    for number in range(5):
        store.add([segment(number)])
    for hint in (b"2\n", b"5", b"99999", b"x", b"", b"-1"):
        place.put("manifest/HEAD", hint)
        assert store.read().version == 5
    place.delete("manifest/HEAD")
    assert store.read().version == 5
    assert FleetStore(place).add([segment(5)]).version == 6


class Sleeps:
    """A place whose next `create` does something else first, as a writer that is held up would see it."""

    def __init__(self, place: Place, meanwhile: Any) -> None:
        self._place = place
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def create(self, name: str, data: bytes) -> bool:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._place.create(name, data)


def test_writer_that_slept_until_its_number_was_used_and_removed_does_not_write_beside_the_others(place: Place) -> None:
    """Its number is free again then, and what it wrote there nobody would ever read."""
    others = FleetStore(place)
    others.add([segment(0)])

    def meanwhile() -> None:
        for number in range(1, KEPT + 3):
            others.add([segment(number)])
        assert place.get("manifest/000000000002.json") is None

    late = FleetStore(Sleeps(place, meanwhile))
    late.add([segment(1000)])
    assert segment(1000).path in paths(others.read())
    assert len(others.read().segments) == KEPT + 4


class Dies:
    """A place that stops working before the named file is written, or right after it (`after`)."""

    def __init__(self, place: Place, at: str, *, after: bool) -> None:
        self._place = place
        self._at = at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        whole = getattr(self._place, name)
        if name not in ("put", "create"):
            return whole

        def write(file: str, data: bytes) -> Any:
            if self._at in file:
                if self._after:
                    whole(file, data)
                raise PlaceError("the server is gone")
            return whole(file, data)

        return write


@pytest.mark.parametrize("at", ["manifest/0", "manifest/HEAD"])
@pytest.mark.parametrize("after", [False, True])
def test_writer_that_is_cut_off_leaves_the_old_version_or_the_new_one(place: Place, at: str, after: bool) -> None:
    store = FleetStore(place)
    store.add([segment(0)])
    with pytest.raises(PlaceError, match="gone"):
        FleetStore(Dies(place, at, after=after)).add([segment(1)])
    found = paths(store.read())
    assert found in ([segment(0).path], [segment(0).path, segment(1).path])
    assert paths(store.add([segment(1), segment(2)])) == [segment(n).path for n in range(3)]


def test_segments_are_chosen_by_table_and_time_and_forgotten_when_they_are_old(place: Place) -> None:
    store = FleetStore(place)
    store.add([segment(n, table=table, first=n * 10) for n in range(4) for table in ("state", "op")])
    assert [s.path for s in store.read().of("op", since_ns=15, until_ns=25)] == [
        segment(n, table="op").path for n in (1, 2)
    ]
    gone = store.forget_before(20, tables=["state"])
    assert [s.path for s in gone] == [segment(n).path for n in (0, 1)]
    assert len(store.read().of("state")) == 2
    assert len(store.read().of("op")) == 4
    assert store.forget_before(20, tables=["state"]) == ()


def test_files_that_no_version_names_are_found_once_they_are_old(place: Place) -> None:
    store = FleetStore(place)
    listed = msgspec.structs.replace(segment(0), path="facts/state/1000-listed.parquet")
    for name in ("1000-listed", "1000-orphan", "5000-young"):
        place.put(f"facts/state/{name}.parquet", b"x")
    store.add([listed])
    assert store.orphans(older_than_s=3600, now=6000) == ["facts/state/1000-orphan.parquet"]


def test_version_that_is_damaged_is_named(place: Place) -> None:
    FleetStore(place).add([segment(0)])
    place.put("manifest/000000000002.json", b'{"version": "no')
    with pytest.raises(FleetStoreError, match=r"manifest/000000000002\.json: is no manifest"):
        FleetStore(place).read()
