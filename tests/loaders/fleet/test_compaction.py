"""Small segments put together: nothing changes but their number."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mycroft.analysis.fleet import LocalExecutor, Window, digest, run
from mycroft.analysis.fleet.reductions import REDUCTIONS
from mycroft.loaders.fleet import FleetReader, FleetSegment, FleetStore, Place, compact, compaction, open_fleet
from mycroft.loaders.fleet.compaction import parts_of
from mycroft.loaders.store import aggregate
from tests.analysis.fleet.pieces import START, made_up

NOW = 1_700_000_400.0
WINDOW = Window(START, START * 2)
KINDS = sorted({reduction.table for reduction in REDUCTIONS})


def put(place: Place, folder: Path, kind: str, number: int, table: pa.Table, *, group: str = "") -> FleetSegment:
    path = folder / f"{kind}-{group}-{number}.parquet"
    pq.write_table(table, path)
    name = f"facts/{kind}/hour=2023111422/{f'group={group}/' if group else ''}{int(NOW) - 90}-{number}.parquet"
    place.put(name, path)
    return FleetSegment(
        table=kind,
        path=name,
        first_ns=START + number,
        last_ns=START + 200_000_000_000 + number,
        rows=table.num_rows,
        size_bytes=path.stat().st_size,
        made=NOW - 90 + number,
        group=group,
        origin=f"{group}/{kind}/{number}",
    )


def filled(place: Place, folder: Path, *, kinds: list[str], count: int, groups: tuple[str, ...] = ("",)) -> FleetStore:
    store = FleetStore(place)
    for kind in kinds:
        for group in groups:
            some = (made_up(kind, 30, seed=number) for number in range(count))
            store.add([put(place, folder, kind, number, rows, group=group) for number, rows in enumerate(some)])
    return store


def digests(reader: FleetReader) -> list[str]:
    return [
        digest(run(one, reader.pieces_of(reader.manifest.of(one.table)), WINDOW, LocalExecutor()))
        for one in REDUCTIONS
        if reader.manifest.of(one.table)
    ]


def rows_of(place: Place, names: list[str]) -> list[dict[str, Any]]:
    sql = "SELECT count(*) AS rows, sum(op_seq) AS total, count(DISTINCT process) AS processes FROM rows"
    return aggregate(sql, {"rows": place.relation(names)}).to_pylist()


def test_what_is_put_together_says_the_same_and_older_versions_stay_readable_for_a_while(
    place: Place, tmp_path: Path
) -> None:
    store = filled(place, tmp_path, kinds=KINDS, count=4, groups=("c1", "c2"))
    before = FleetReader(place.url, store.read())
    wanted = digests(before)
    done = compact(store, at_least=3, now=NOW)
    assert (done.parts, done.made, done.overtaken, done.problems) == (8 * len(KINDS), 2 * len(KINDS), 0, ())
    after = open_fleet(place.url) if "://" not in place.url else FleetReader(place.url, store.read())
    assert len(after.manifest.segments) == 2 * len(KINDS)
    assert {s.group for s in after.manifest.segments} == {"c1", "c2"}
    assert digests(after) == wanted
    assert digests(before) == wanted
    # Nothing is old enough to be deleted yet; and there is nothing left to put together.
    assert store.retain(0, now=NOW + 60, grace_s=3600).deleted == 0
    assert digests(before) == wanted
    assert compact(store, at_least=3, now=NOW).parts == 0
    assert store.retain(0, now=NOW + 3600, grace_s=3600).deleted == done.parts
    assert set(place.names("facts")) == {s.path for s in after.manifest.segments}
    assert digests(after) == wanted


def test_few_and_large_segments_and_those_of_other_hours_are_left_alone(place: Place, tmp_path: Path) -> None:
    store = filled(place, tmp_path, kinds=["op"], count=3)
    [first, second, third] = store.read().segments
    assert parts_of(store.read(), at_least=4) == []
    large = msgspec.structs.replace(first, size_bytes=40 << 20)
    later = msgspec.structs.replace(second, path=second.path.replace("2023111422", "2023111423"))
    for segments in ([large, second, third], [first, later, third]):
        assert parts_of(msgspec.structs.replace(store.read(), segments=tuple(segments)), at_least=3) == []
    # What would be too much for the memory is several.
    many = tuple(msgspec.structs.replace(first, path=f"{first.path}{n}", rows=900_000) for n in range(5))
    assert [len(some) for some in parts_of(msgspec.structs.replace(store.read(), segments=many))] == []
    found = parts_of(msgspec.structs.replace(store.read(), segments=many), at_least=2)
    assert [len(some) for some in found] == [2, 2]


class Slow:
    """A place at which something else happens first, when the first segment is put."""

    def __init__(self, place: Place, meanwhile: Callable[[], object]) -> None:
        self._place, self._meanwhile = place, [meanwhile]

    def __getattr__(self, name: str) -> Any:
        if name == "put" and self._meanwhile:
            self._meanwhile.pop()()
        return getattr(self._place, name)


def test_of_two_who_put_the_same_together_one_is_published_and_new_segments_are_kept(
    place: Place, tmp_path: Path
) -> None:
    store = filled(place, tmp_path, kinds=["op"], count=4)
    wanted = rows_of(place, [s.path for s in store.read().segments])
    fresh = put(place, tmp_path, "op", 9, made_up("op", 30, seed=9))

    def meanwhile() -> None:
        assert compact(store, at_least=2, now=NOW).made == 1
        store.add([fresh])

    slow = FleetStore(Slow(place, meanwhile))  # type: ignore[arg-type]
    done = compact(slow, at_least=2, now=NOW)
    assert (done.made, done.overtaken) == (0, 1)
    listed = [s.path for s in store.read().segments]
    assert len(listed) == 2 and fresh.path in listed
    assert rows_of(place, [path for path in listed if path != fresh.path]) == wanted
    # What the slower one had written is gone, and what is deleted later are the parts.
    assert len([name for name in place.names("facts") if "-c-" in name]) == 1
    assert store.retain(0, now=NOW + 7200, grace_s=3600).deleted == 4
    assert sorted(place.names("facts")) == sorted(listed)


def test_segment_that_is_damaged_is_named_and_the_others_of_the_store_are_put_together(
    place: Place, tmp_path: Path
) -> None:
    store = filled(place, tmp_path, kinds=["flow", "op", "state"], count=2)
    by_kind = {kind: store.read().of(kind) for kind in ("flow", "op", "state")}
    place.put(by_kind["flow"][0].path, b"PAR1 and then nothing")
    more = made_up("state", 30, seed=0)
    pq.write_table(more.append_column("of_a_later_release", pa.array(range(30))), tmp_path / "more.parquet")
    place.put(by_kind["state"][1].path, tmp_path / "more.parquet")
    done = compact(store, at_least=2, now=NOW)
    assert (done.parts, done.made) == (2, 1)
    assert [by_kind["flow"][0].path in done.problems[0], by_kind["state"][1].path in done.problems[1]] == [True, True]
    assert "of_a_later_release" in done.problems[1]
    after = store.read()
    assert after.of("flow") == by_kind["flow"] and after.of("state") == by_kind["state"]
    assert [s.rows for s in after.of("op")] == [60]


def test_file_that_would_take_all_memory_is_left_alone(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(place, tmp_path, kinds=["op"], count=3)
    monkeypatch.setattr(compaction, "_MOST_PLAIN", 4096)
    assert compact(store, at_least=2, now=NOW).parts == 3
    # A page of one long text, over and over: small on disk.
    large = made_up("op", 30, seed=1).set_column(0, "process", pa.array([f"{n}" * 5000 for n in range(30)]))
    store.add([put(place, tmp_path, "op", 7, large)])
    done = compact(store, at_least=2, now=NOW)
    assert (done.parts, "unpacked" in done.problems[0]) == (0, True)
    assert len(store.read().segments) == 2


def test_column_that_an_older_release_did_not_write_is_unknown(place: Place, tmp_path: Path) -> None:
    store = filled(place, tmp_path, kinds=["op"], count=1)
    older = made_up("op", 30, seed=5).drop_columns(["algo"])
    store.add([put(place, tmp_path, "op", 5, older)])
    assert compact(store, at_least=2, now=NOW).problems == ()
    [whole] = store.read().segments
    sql = "SELECT count(*) AS rows, count(algo) AS known FROM rows"
    [found] = aggregate(sql, {"rows": place.relation([whole.path])}).to_pylist()
    assert found["rows"] == 60 and found["known"] <= 30


def test_compaction_that_is_killed_at_any_moment_leaves_one_whole_version(tmp_path: Path) -> None:
    """SIGKILL before each thing that it does to a file."""
    from mycroft.loaders.fleet import open_place

    template = tmp_path / "template"
    store = filled(open_place(str(template)), tmp_path, kinds=["op"], count=3)
    old = store.read()
    wanted = rows_of(store.place, [s.path for s in old.segments])
    subprocess.run(
        [sys.executable, "-m", "tests.loaders.fleet.killed_compaction", str(template), str(tmp_path / "killed")],
        check=True,
        timeout=300,
    )
    sizes: set[int] = set()
    for folder in sorted((tmp_path / "killed").iterdir()):
        place = open_place(str(folder))
        killed = FleetStore(place)
        manifest = killed.read()
        sizes.add(len(manifest.segments))
        assert rows_of(place, [s.path for s in manifest.segments]) == wanted, folder.name
        # Whoever comes next goes on, and in time nothing is left of the dead.
        compact(killed, at_least=2, now=NOW)
        [whole] = killed.read().segments
        assert rows_of(place, [whole.path]) == wanted, folder.name
        killed.retain(0, now=NOW + 10**9, grace_s=0)
        assert [path.name for path in (folder / "facts").rglob("*") if path.is_file()] == [Path(whole.path).name]
    assert sizes == {1, 3}
    assert len(list((tmp_path / "killed").iterdir())) > 10
