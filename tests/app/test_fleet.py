"""`mycroft fleet` over a store that a collector really made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mycroft.analysis.fleet import LocalExecutor, Window, digest, run
from mycroft.analysis.fleet.reductions import REDUCTIONS
from mycroft.analysis.fleet.report import fleet_report
from mycroft.app import fleet
from mycroft.app.cli import main
from mycroft.app.live.state import LiveState
from mycroft.app.state import State
from mycroft.loaders.catalogue import Catalogue
from mycroft.loaders.collector import Collector, CollectorSettings
from mycroft.loaders.collector.rollups import SCHEMAS
from mycroft.loaders.collector.segments import write_segment
from mycroft.loaders.fleet import (
    FleetReader,
    FleetSegment,
    FleetStore,
    PlaceError,
    compact,
    open_fleet,
    open_place,
    ship,
)
from mycroft.loaders.schema import SCHEMA_VERSION
from mycroft.loaders.store import StoreWriter
from mycroft.tracer.agent.batch import encode
from tests.app.live.simulated import Job

NOW_NS = 1_790_000_000_000_000_000
HOUR_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a collector that was told ten seconds of a simulated job, in several segments a table."""
    folder = tmp_path_factory.mktemp("fleet")
    collector = Collector(CollectorSettings(folder=folder / "live" / "store"))
    job = Job("nic_down", rank=5, until_ns=NOW_NS, after_s=6.0)
    collector.start()
    for _, batches in job.batches(first_ns=4_000_000_000, step_ns=3_000_000_000):
        for batch in batches:
            collector.take(encode(batch))
        collector.flush()
    collector.close()
    yield folder


WINDOW = Window(NOW_NS - HOUR_NS, NOW_NS + HOUR_NS)


def test_every_reduction_over_the_store_is_the_same_in_pieces_and_as_a_whole(data: Path) -> None:
    reader = open_fleet(str(data))
    for reduction in REDUCTIONS:
        segments = reader.manifest.of(reduction.table)
        assert len(segments) > 1
        whole = run(reduction, reader.pieces_of(segments), WINDOW, LocalExecutor())
        single = [piece for segment in segments for piece in reader.pieces_of([segment])]
        assert whole.num_rows > 0
        assert digest(run(reduction, single, WINDOW, LocalExecutor())) == digest(whole)


def test_heat_map_has_every_host_and_is_the_same_when_it_is_asked_again(data: Path) -> None:
    reader = open_fleet(str(data))
    first = fleet.heat_map(reader, "idle_max_ms", WINDOW)
    assert list(first.grid.hosts) == ["sim0", "sim1", "sim2", "sim3"]
    assert first.grid.values.max() > 1000
    again = fleet.heat_map(reader, "idle_max_ms", WINDOW)
    assert (again.grid.hosts, again.grid.first) == (first.grid.hosts, first.grid.first)
    assert again.grid.values.tolist() == first.grid.values.tolist()


def minute_rows(first: int, count: int) -> pa.Table:
    """Rows of `host_minute` of some hosts, minutes from `first` on."""
    draw = np.random.default_rng(first)
    hosts = [f"gpu-{n}" for n in range(9)]
    given: dict[str, Any] = {
        "host": np.repeat(hosts, count),
        "job": np.full(9 * count, "job"),
        "minute": (first + np.tile(np.arange(count), 9)) * 60 * fleet.NS_PER_S,
    }
    schema = SCHEMAS["host_minute"]
    columns = [given.get(field.name, draw.integers(0, 10_000, 9 * count)) for field in schema]
    return pa.table([pa.array(c).cast(field.type) for c, field in zip(columns, schema, strict=True)], schema=schema)


@pytest.mark.parametrize("until", [0, 7])
def test_day_is_drawn_from_peaks_of_ten_minutes_and_is_what_its_minutes_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """Files that the window cuts are read by the minute, and so are all that an older release has written."""
    hour = NOW_NS // HOUR_NS * 60
    window = fleet.last(24 * 3600.0, now=(hour + 60 + until) * 60.0)
    store = FleetStore(open_place(str(tmp_path)))
    written = [write_segment(tmp_path, "host_minute", minute_rows(hour - 60 * n, 60)) for n in range(-1, 24)]
    path = tmp_path / "older.parquet"
    pq.write_table(minute_rows(hour - 300, 60), path)
    store.place.put("facts/older.parquet", path)
    written.append(msgspec.structs.replace(written[6], path="facts/older.parquet", size_bytes=path.stat().st_size))
    fields = FleetSegment.__struct_fields__
    store.add(FleetSegment(**{k: v for k, v in msgspec.structs.asdict(s).items() if k in fields}) for s in written)
    by_minute: list[str] = []
    rows = FleetReader.rows

    def read(self: FleetReader, segment: FleetSegment, *args: Any, **more: Any) -> Any:
        by_minute.append(segment.path)
        return rows(self, segment, *args, **more)

    monkeypatch.setattr(FleetReader, "rows", read)
    found = fleet.heat_map(open_fleet(str(tmp_path)), "net_max_ns", window)
    assert len(by_minute) == (3 if until else 1)
    assert "facts/older.parquet" in by_minute
    assert found.bin_ns == 600 * fleet.NS_PER_S
    monkeypatch.setattr(FleetReader, "peaks", lambda *_: None)
    monkeypatch.setattr(fleet, "_kept", fleet._Kept())
    by_minutes = fleet.heat_map(open_fleet(str(tmp_path)), "net_max_ns", window)
    assert len(by_minute) > 24
    assert (by_minutes.grid.hosts, by_minutes.grid.first) == (found.grid.hosts, found.grid.first)
    assert by_minutes.grid.values.tolist() == found.grid.values.tolist()


def test_what_was_pushed_says_the_same_and_is_pushed_once(data: Path, tmp_path: Path) -> None:
    store = FleetStore(open_place(str(tmp_path / "shared")))
    root = data / "live" / "store"
    with pytest.raises(PlaceError, match="no store there"):
        open_fleet(str(tmp_path / "shared"))
    waits = ship(root, store, origin="c1", now=NOW_NS / 1e9 - 10**9)
    assert (waits.segments, waits.waiting) == (0, len(open_fleet(str(data)).manifest.segments))
    shipped = ship(root, store, origin="c1", everything=True)
    assert shipped.segments == waits.waiting
    assert ship(root, store, origin="c1", everything=True).segments == 0
    here, there = open_fleet(str(data)), open_fleet(str(tmp_path / "shared"))
    # Put together, it says the same, and is not pushed again; what the collector has no more is not remembered.
    assert compact(store, at_least=2).made > 3
    assert ship(root, store, origin="c1", everything=True).segments == 0
    smaller = open_fleet(str(tmp_path / "shared"))
    assert len(smaller.manifest.segments) < len(there.manifest.segments)
    assert sum(map(len, smaller.manifest.merged.values())) > 6
    assert smaller.manifest.origins == there.manifest.origins
    for reduction in REDUCTIONS:
        digests = {
            digest(run(reduction, r.pieces(reduction.table, since_ns=0, until_ns=1 << 62), WINDOW, LocalExecutor()))
            for r in (here, there, smaller)
        }
        assert len(digests) == 1
    maps = [fleet.heat_map(r, "idle_max_ms", WINDOW).grid for r in (here, smaller)]
    assert maps[0].hosts == maps[1].hosts and maps[0].values.tolist() == maps[1].values.tolist()
    (tmp_path / "empty").mkdir()
    ship(tmp_path / "empty", store, origin="c1")
    assert sum(map(len, store.read().merged.values())) == 0


def test_segment_that_may_still_be_put_together_with_others_is_not_pushed(data: Path, tmp_path: Path) -> None:
    """It would be there twice: as it is, and in what it becomes a part of."""
    root = data / "live" / "store"
    made = [segment.made for segment in open_fleet(str(data)).manifest.segments]
    store = FleetStore(open_place(str(tmp_path / "shared")))
    hours_end = (max(made) // 3600 + 1) * 3600
    assert ship(root, store, origin="c1", now=min(made)).segments == 0
    assert ship(root, store, origin="c1", now=hours_end + 900 + 1).segments == len(made)


def test_what_is_too_old_leaves_at_once_is_deleted_after_a_grace_period_and_is_not_pushed_again(
    data: Path, tmp_path: Path
) -> None:
    root, shared = data / "live" / "store", tmp_path / "shared"
    store = FleetStore(open_place(str(shared)))
    ship(root, store, origin="c1", everything=True)
    files = {str(path) for path in (shared / "facts").rglob("*.parquet")}
    states = {segment.path for segment in store.read().of("state")}
    later = NOW_NS + HOUR_NS
    now = later / 1e9
    done = store.retain(later, tables=["state"], now=now, grace_s=60)
    assert {segment.path for segment in done.left_out} == states
    # A reader that has the version before can still read.
    assert done.deleted == 0
    assert {str(path) for path in (shared / "facts").rglob("*.parquet")} == files
    assert store.read().of("state") == []
    assert ship(root, store, origin="c1", everything=True).segments == 0
    again = store.retain(later, tables=["state"], now=now + 61, grace_s=60)
    assert (again.left_out, again.deleted) == ((), len(states))
    left = {path.relative_to(shared).as_posix() for path in (shared / "facts").rglob("*.parquet")}
    assert left == {segment.path for segment in store.read().segments}
    assert list((shared / "trash").iterdir()) == []


def test_list_of_files_to_delete_that_a_stranger_wrote_reaches_nothing_that_is_in_use(
    data: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    store = FleetStore(open_place(str(shared)))
    ship(data / "live" / "store", store, origin="c1", everything=True)
    used = store.read().segments[0].path
    outside = tmp_path / "outside"
    outside.write_text("x")
    store.place.put("trash/1-a.json", json.dumps([used, "manifest/HEAD"]).encode())
    store.retain(0, now=NOW_NS / 1e9)
    assert (shared / used).exists()
    assert (shared / "manifest" / "HEAD").exists()
    store.place.put("trash/1-b.json", json.dumps(["facts/../../outside"]).encode())
    with pytest.raises(PlaceError, match="no name of a file"):
        store.retain(0, now=NOW_NS / 1e9)
    assert outside.exists()


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["fleet", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_sql_answers_over_rows_roll_ups_and_incidents_and_reaches_nothing_else(
    data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The hour of the made-up job, whatever the year.
    monkeypatch.setattr(fleet, "last", lambda seconds: WINDOW)
    counts = "(SELECT count(*) > 0 FROM state), (SELECT count(DISTINCT host) FROM host_minute)"
    query = f"SELECT {counts}, count(*) FROM incidents"
    status, out, _ = asked(capsys, "sql", query, "--data", str(data), "--format", "csv")
    assert (status, out.splitlines()[1]) == (0, "True,4,0")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for refused in (f"SELECT * FROM read_text('{secret}')", f"COPY (SELECT 1) TO '{secret}'", "SELECT 1; SELECT 2"):
        status, out, err = asked(capsys, "sql", refused, "--data", str(data))
        assert status != 0
        assert err.startswith("mycroft: ")
        assert "secret\n" not in out
    assert secret.read_text() == "secret"


def test_report_tells_incidents_and_says_when_nobody_watched(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = asked(capsys, "report", "--data", str(data))
    assert (status, "0 incidents" in out) == (0, True)
    assert "no watch has looked" in err
    state = LiveState(State(data))
    state.set_numbers({"tick": {}})
    for job in ("a", "b"):
        state.see_job(job, title=f"job {job}", processes=[], facts={"world_size": 64})
        state.open_incident(job, finding(), why="test")
    status, out, err = asked(capsys, "report", "--data", str(data), "--json")
    report = json.loads(out)
    assert (status, err, report["jobs"]) == (0, "", 2)
    assert [(o["kind"], o["name"], o["jobs"]) for o in report["offenders"]] == [
        ("host", "gpu-7", 2),
        ("nic", "gpu-7 mlx5_3", 2),
    ]
    assert {one["gpus"] for one in report["incidents"]} == {64}
    _, out, _ = asked(capsys, "report", "--data", str(data))
    assert "host gpu-7: 2 incidents in 2 jobs" in out
    assert "\x1b" not in out


def finding() -> dict[str, Any]:
    return {
        "id": "f",
        "status": "hang",
        "category": "proxy_stall",
        "component": "nic",
        "confidence": "high",
        "summary": "rank 5 does not send\x1b[31m",
        "root_cause": {"ranks": [5], "hosts": ["gpu-7"], "devices": ["mlx5_3"], "flow": None, "one_of": False},
    }


def test_gpu_that_is_blamed_twice_is_named_by_the_traces_of_its_incidents(tmp_path: Path) -> None:
    state = LiveState(State(tmp_path))
    catalogue = Catalogue(tmp_path)
    cause = {"ranks": [5], "hosts": ["gpu-7"], "devices": [], "flow": None, "one_of": False}
    for job in ("a", "b", "c"):
        path = tmp_path / f"{job}.duckdb"
        writer = StoreWriter(path)
        writer.append("trace_meta", pl.DataFrame({"key": ["schema_version"], "value": [str(SCHEMA_VERSION)]}))
        writer.append("ranks", pl.DataFrame({"rank": [4, 5], "gpu": ["0000:10:00.0", "0000:17:00.0"]}))
        writer.finish()
        state.see_job(job, title=job, processes=[], facts={"world_size": 64})
        opened = state.open_incident(job, finding() | {"component": "gpu", "root_cause": cause}, why="test")
        generation = catalogue.publish(f"t-{job}", path, title=job, summary={})
        state.published(opened.incident, revision=1, trace=f"t-{job}", generation=generation, page="f0")
    # Of one the trace has been removed: it is of the host, and of no GPU that anybody could name.
    catalogue.remove("t-c")
    catalogue.close()
    found = fleet.incidents_of(tmp_path, fleet.last(3600))
    assert sorted((one.job, one.devices) for one in found) == [
        ("a", ("0000:17:00.0",)),
        ("b", ("0000:17:00.0",)),
        ("c", ()),
    ]
    told = fleet_report(found, [], since=0, until=4e9)
    assert [(o.kind, o.name, o.incidents) for o in told.offenders] == [
        ("host", "gpu-7", 3),
        ("gpu", "gpu-7 0000:17:00.0", 2),
    ]


def test_incidents_are_pushed_and_told_from_the_store_alone(
    data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    there, shared = tmp_path / "watched", str(tmp_path / "shared")
    (there / "live").mkdir(parents=True)
    (there / "live" / "store").symlink_to(data / "live" / "store")
    _, out, _ = asked(capsys, "push", shared, "--data", str(there), "--name", "c1", "--everything")
    assert "no watch has run" in out
    elsewhere = str(tmp_path / "elsewhere")
    _, _, err = asked(capsys, "report", "--store", shared, "--data", elsewhere)
    assert f"none pushed to {shared}" in err
    state = LiveState(State(there))
    state.set_numbers({"tick": {}})
    state.see_job("a", title="job a", processes=[], facts={"world_size": 64})
    state.open_incident("a", finding(), why="test")
    _, out, _ = asked(capsys, "push", shared, "--data", str(there), "--name", "c1")
    assert "incidents of a year: 1" in out
    status, out, err = asked(capsys, "report", "--store", shared, "--data", elsewhere, "--json")
    assert (status, err) == (0, "")
    assert [one["title"] for one in json.loads(out)["incidents"]] == ["job a"]
    # What one collector wrote and nobody can read takes nothing away from the others.
    FleetStore(open_place(shared)).put_incidents("c2", b'[{"incident": 7}]')
    _, out, err = asked(capsys, "report", "--store", shared, "--data", elsewhere, "--json")
    assert len(json.loads(out)["incidents"]) == 1
    assert "incidents/c2.json" in err
    status, out, _ = asked(capsys, "retain", shared, "--older-than", "1d", "--dry-run")
    assert (status, "would be left out" in out) == (0, True)
    assert len(open_fleet(shared).manifest.segments) == len(open_fleet(str(data)).manifest.segments)
    for verb in (["retain", "--older-than", "1d"], ["compact"]):
        status, _, err = asked(capsys, *verb, str(data))
        assert (status != 0, "keeps to its limits" in err) == (True, True)
    status, out, err = asked(capsys, "compact", shared, "--at-least", "2")
    assert (status, err, "became" in out) == (0, "", True)
    assert len(open_fleet(shared).manifest.segments) < len(open_fleet(str(data)).manifest.segments)
    assert asked(capsys, "retain", shared, "--older-than", "1d", "--table", "nothing")[0] == 2


@pytest.mark.parametrize("span", ["24", "h", "-1h", "nanh", "infd", "1y", "367d", ""])
def test_span_that_is_none_is_refused(span: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "report", f"--last={span}"]) == 2
    assert "24h" in capsys.readouterr().err
