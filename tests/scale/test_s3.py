"""The tests of places and manifests once more, against a real S3 server; and that server killed under writers."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mycroft.analysis.fleet import LocalExecutor, Window, digest, run
from mycroft.analysis.fleet.reductions import REDUCTIONS
from mycroft.loaders.fleet import FleetSegment, FleetStore, Place, PlaceError, open_place, pieces_of
from mycroft.loaders.store import aggregate
from tests.analysis.fleet.pieces import START, made_up
from tests.loaders.fleet.test_compaction import (  # noqa: F401
    test_column_that_an_older_release_did_not_write_is_unknown,
    test_of_two_who_put_the_same_together_one_is_published_and_new_segments_are_kept,
    test_segment_that_is_damaged_is_named_and_the_others_of_the_store_are_put_together,
    test_what_is_put_together_says_the_same_and_older_versions_stay_readable_for_a_while,
)
from tests.loaders.fleet.test_manifest import *  # noqa: F403
from tests.loaders.fleet.test_places import *  # noqa: F403
from tests.scale.servers import DEADLINE_S, S3Server


@pytest.fixture
def place(s3_url: str) -> Place:
    return open_place(s3_url)


def written(place: Place, folder: Path, kind: str, number: int, table: pa.Table) -> FleetSegment:
    path = folder / f"{kind}-{number}.parquet"
    pq.write_table(table, path)
    name = f"facts/{kind}/{number}.parquet"
    place.put(name, path)
    return FleetSegment(
        table=kind,
        path=name,
        first_ns=START,
        last_ns=START * 2,
        rows=len(table),
        size_bytes=path.stat().st_size,
        made=0,
    )


def test_analyses_give_the_same_bytes_from_a_bucket_as_from_a_folder(place: Place, tmp_path: Path) -> None:
    folder = open_place(str(tmp_path / "folder"))
    for kind in {reduction.table for reduction in REDUCTIONS}:
        for number in range(3):
            table = made_up(kind, 200, seed=number)
            for where in (place, folder):
                FleetStore(where).add([written(where, tmp_path, kind, number, table)])
    window = Window(START, START * 2)
    for reduction in REDUCTIONS:
        digests = {
            digest(
                run(
                    reduction,
                    pieces_of(where.url, FleetStore(where).read().of(reduction.table), piece_bytes=1),
                    window,
                    LocalExecutor(),
                )
            )
            for where in (place, folder)
        }
        assert len(digests) == 1


class Acknowledged:
    """What writers were told is safe."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._changed = threading.Condition()

    def add(self, path: str) -> None:
        with self._changed:
            self.paths.append(path)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.paths) >= count, timeout=DEADLINE_S)


class Writer(threading.Thread):
    """Adds segments until the server is gone."""

    def __init__(self, place: Place, folder: Path, *, first: int) -> None:
        super().__init__()
        folder.mkdir()
        self._place, self._folder, self._first = place, folder, first
        self.acknowledged = Acknowledged()

    def run(self) -> None:
        for number in range(self._first, self._first + 100):
            try:
                segment = written(self._place, self._folder, "op", number, made_up("op", 20, seed=number))
                FleetStore(self._place).add([segment])
            except PlaceError:
                # What it was not told is safe may be there or not.
                return
            self.acknowledged.add(segment.path)


def test_server_that_is_killed_while_it_is_written_to_has_one_whole_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round: two writers add segments, the server is killed, and started again on what it had on disk."""
    server = S3Server(tmp_path / "server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    acknowledged: set[str] = set()
    try:
        for turn in range(3):
            server.start()
            place = open_place("s3://mycroft/killed")
            writers = [Writer(place, tmp_path / f"{turn}-{n}", first=turn * 1000 + n * 100) for n in range(2)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.acknowledged.wait_for(3 + turn)
            server.kill()
            for writer in writers:
                writer.join()
                acknowledged.update(writer.acknowledged.paths)
        server.start()
        place = open_place("s3://mycroft/killed")
        manifest = FleetStore(place).read()
        listed = [segment.path for segment in manifest.segments]
        assert len(listed) == len(set(listed))
        assert acknowledged <= set(listed)
        assert len(acknowledged) >= 12
        found = aggregate("SELECT count(*) AS rows FROM rows", {"rows": place.relation(listed)})
        assert found.to_pylist() == [{"rows": 20 * len(listed)}]
        # And it can be written to again.
        assert (
            FleetStore(place).add([written(place, tmp_path, "op", 99, made_up("op", 5, seed=1))]).version
            == manifest.version + 1
        )
    finally:
        server.kill()
