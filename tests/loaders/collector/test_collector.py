"""The collector: acknowledged means on disk, once; bounded; a full disk is said and old rows go first."""

from __future__ import annotations

import threading
import time
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mycroft.loaders.collector import (
    BusyError,
    Collector,
    CollectorError,
    CollectorSettings,
    FullError,
    Process,
    Window,
    traces_of,
)
from mycroft.loaders.collector.log import log_numbers, log_path, read_log
from mycroft.loaders.collector.manifest import ManifestError, read_manifest
from mycroft.loaders.collector.segments import TIME_OF
from mycroft.tracer.agent import Batch, BatchError
from mycroft.tracer.agent.batch import Gap, decode, sealed
from mycroft.tracer.trace import TABLES
from tests.tracer.agent.batches import a_batch, numbered
from tests.tracer.agent.test_spool import no_room_beyond


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return a_batch(tmp_path_factory.mktemp("rings") / "r")


@pytest.fixture
def settings(tmp_path: Path) -> CollectorSettings:
    # Long enough that no segment is made unless a test asks for it.
    return CollectorSettings(folder=tmp_path / "store", segment_s=3600.0, reserve_bytes=0)


@pytest.fixture
def collector(settings: CollectorSettings) -> Iterator[Collector]:
    opened = Collector(settings)
    opened.start()
    yield opened
    opened.close()


def crash(collector: Collector) -> None:
    """Give the lock back as the kernel does for a killed process; nothing else is put in order."""
    import os

    os.close(collector._lock_fd)


def rows(collector: Collector) -> list[tuple[str, str, int]]:
    """Every row of the segments that the manifest lists."""
    found = []
    for segment in read_manifest(collector.manifest_folder).segments:
        if segment.table in TABLES:
            table = pq.read_table(collector.root / segment.path, partitioning=None)
            found += [
                (segment.table, process, position)
                for process, position in zip(
                    *(table.column(n).to_pylist() for n in ("process", "position")), strict=True
                )
            ]
    return found


def segments_now(collector: Collector) -> None:
    collector.flush()


def test_acknowledged_batch_is_on_disk_before_it_is_acknowledged(collector: Collector, batch: Batch) -> None:
    wire = numbered(batch, 1)
    assert not collector.take(wire).repeated
    assert [body for body, _ in read_log(log_path(collector.log_folder, 1))] == [wire]


def test_repeated_batch_is_taken_once(collector: Collector, batch: Batch) -> None:
    for seq in (1, 2, 2, 1, 3):
        collector.take(numbered(batch, seq))
    assert collector.counters.batches == 3
    assert collector.counters.repeated == 2
    segments_now(collector)
    found = rows(collector)
    assert len(found) == len(set(found)) == 3 * batch.rows


def test_same_number_after_a_new_start_of_the_agent_is_another_batch(collector: Collector, batch: Batch) -> None:
    collector.take(numbered(batch, 1, boot="first"))
    assert not collector.take(numbered(batch, 1, boot="second")).repeated


def test_restart_knows_what_was_acknowledged_and_cuts_the_torn_tail(
    collector: Collector, settings: CollectorSettings, batch: Batch
) -> None:
    for seq in (1, 2):
        collector.take(numbered(batch, seq))
    path = log_path(collector.log_folder, 1)
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"\x00\x10\x00\x00half of a batch that nobody was told of")
    crash(collector)
    again = Collector(settings)
    again.start()
    try:
        assert path.stat().st_size == whole
        assert again.take(numbered(batch, 2)).repeated
        assert not again.take(numbered(batch, 3)).repeated
        segments_now(again)
        assert len(rows(again)) == 3 * batch.rows
    finally:
        again.close()
        import os

        collector._lock_fd = os.open("/dev/null", os.O_RDONLY)


def test_rows_that_an_agent_tells_again_are_left_out(collector: Collector, batch: Batch) -> None:
    from dataclasses import replace

    from mycroft.tracer.agent import encode

    # The agent was killed between sending and noting its positions: other number, other boot, the same rows.
    collector.take(encode(batch))
    collector.take(encode(replace(batch, key=replace(batch.key, boot="after"))))
    segments_now(collector)
    assert len(rows(collector)) == batch.rows


def test_crash_between_segments_and_manifest_repeats_nothing(
    collector: Collector, settings: CollectorSettings, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.take(numbered(batch, 1))

    def dies(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("mycroft.loaders.collector.keeper.write_manifest", dies)
        with pytest.raises(OSError, match="No space"):
            collector.flush()
    assert rows(collector) == []
    segments_now(collector)
    found = rows(collector)
    assert len(found) == len(set(found)) == batch.rows


def test_segments_that_no_manifest_lists_are_removed_at_the_start(settings: CollectorSettings, batch: Batch) -> None:
    orphan = settings.folder / "facts" / "op" / "hour=2026010100" / "seg-1-x.parquet"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"left by a crash")
    collector = Collector(settings)
    collector.close()
    assert not orphan.exists()


def test_second_collector_is_refused(collector: Collector, settings: CollectorSettings) -> None:
    with pytest.raises(CollectorError, match="another collector uses this folder"):
        Collector(settings)


def test_full_disk_is_said_and_nothing_half_written_stays(collector: Collector, batch: Batch) -> None:
    collector.take(numbered(batch, 1))
    size = log_path(collector.log_folder, 1).stat().st_size
    with no_room_beyond(size + 100), pytest.raises(FullError, match="does not take batches: File too large"):
        collector.take(numbered(batch, 2))
    assert "does not take" in collector.problem
    assert log_path(collector.log_folder, 1).stat().st_size == size
    assert not collector.take(numbered(batch, 2)).repeated
    assert collector.problem == ""
    segments_now(collector)
    assert len(rows(collector)) == 2 * batch.rows


def test_disk_of_which_nothing_is_known_is_said_and_asked_again(
    collector: Collector, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_path: object) -> None:
        raise OSError(116, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr("mycroft.loaders.collector.collector.shutil.disk_usage", fails)
        with pytest.raises(FullError, match="Stale file handle"):
            collector.take(numbered(batch, 1))
    assert not collector.take(numbered(batch, 1)).repeated


def test_window_loses_nothing_where_the_disk_took_a_batch_back(
    collector: Collector, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = Window(collector.root)
    collector.take(now_batch(batch, 1))

    def fails(_fd: int) -> None:
        window.refresh()  # between the write and its being undone
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("mycroft.loaders.collector.log.os.fdatasync", fails)
        with pytest.raises(FullError, match="Input/output error"):
            collector.take(now_batch(batch, 2))
    for seq in (3, 4):
        collector.take(now_batch(batch, seq, host="another-host"))
    collector.take(now_batch(batch, 2))
    window.refresh()
    assert window_rows(window) == 4 * batch.rows


def test_damaged_segment_does_not_cost_a_late_window_the_others(collector: Collector, batch: Batch) -> None:
    for seq in (1, 2):
        collector.take(now_batch(batch, seq))
        segments_now(collector)
    victim = next(segment for segment in collector.manifest.segments if segment.table == "op")
    (collector.root / victim.path).write_bytes(b"PAR1")
    window = Window(collector.root)
    window.refresh()
    assert window_rows(window) == 2 * batch.rows - victim.rows


def test_full_disk_makes_the_oldest_rows_go_and_then_takes_batches_again(
    tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = 160_000
    root = tmp_path / "s"

    def usage(_: object) -> tuple[int, int, int]:
        used = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        return Usage(quota, used, quota - used)

    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr("mycroft.loaders.collector.collector.shutil.disk_usage", usage)
    # Only this test keeps house: on a slow machine the collector's own thread would make room before it is full.
    monkeypatch.setattr(Collector, "_segment_loop", lambda _: None)
    collector = Collector(CollectorSettings(folder=root, segment_s=3600.0, grace_s=3600.0))
    collector.start()
    refused = 0
    try:
        for seq in range(1, 300):
            try:
                collector.take(numbered(batch, seq))
            except FullError as error:
                refused += 1
                assert "full but for its reserve" in str(error)
                collector._housekeep()
                # An agent sends it again.
                assert not collector.take(numbered(batch, seq)).repeated
            assert usage(root).free > 0
        collector.flush()
        newest = max(position for _, _, position in rows(collector))
    finally:
        collector.close()
    assert refused > 0
    assert sum(read_manifest(collector.manifest_folder).dropped.values()) > 0
    assert newest >= 299_000_000
    assert collector.problem == ""


def test_oldest_segments_go_when_there_are_too_many_bytes(tmp_path: Path, batch: Batch) -> None:
    # A segment of one table is about 4 KB: there is room for the rows of a few batches.
    settings = CollectorSettings(folder=tmp_path / "s", segment_s=3600.0, most_bytes=60_000, grace_s=0.0)
    collector = Collector(settings)
    collector.start()
    try:
        for seq in range(1, 13):
            collector.take(numbered(batch, seq))
            segments_now(collector)
            collector.keep_to_limits()
            collector.keep_to_limits()
        manifest = read_manifest(collector.manifest_folder)
        assert manifest.size_bytes <= 60_000
        assert sum(manifest.dropped.values()) > 0
        listed = {segment.path for segment in manifest.segments}
        there = {str(p.relative_to(settings.folder)) for p in (settings.folder / "facts").glob("*/*/*")}
        assert there == listed
        newest = max(position for _, _, position in rows(collector))
        assert newest >= 12_000_000
    finally:
        collector.close()


def test_small_segments_are_put_together_without_losing_rows(collector: Collector, batch: Batch) -> None:
    for seq in range(1, 34):
        collector.take(numbered(batch, seq))
        segments_now(collector)
    manifest = read_manifest(collector.manifest_folder)
    assert len([s for s in manifest.segments if s.table == "op"]) < 10
    statuses = [s for s in manifest.segments if s.table == "rings" and s.level == 1]
    assert [s.rows for s in statuses] == [1]
    found = rows(collector)
    assert len(found) == len(set(found)) == 33 * batch.rows


def test_names_that_senders_make_up_are_bounded(
    collector: Collector, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mycroft.loaders.collector.collector._MOST_REMEMBERED", 3)
    for number in range(5):
        collector.take(numbered(batch, 1, host=f"host{number}"))
        collector.take(numbered(batch, number + 1, host="speaks"))
    assert collector.take(numbered(batch, 5, host="speaks")).repeated
    assert list(collector._seqs) == ["host3/boot", "host4/boot", "speaks/boot"]
    assert len(collector.last_seen) == 3


def test_too_much_at_once_is_refused_for_a_moment(settings: CollectorSettings, batch: Batch) -> None:
    from dataclasses import replace

    wire = numbered(batch, 1)
    collector = Collector(replace(settings, pending_bytes=len(wire) + 10))
    # Nobody commits yet: the first waits for the disk.
    waiting = threading.Thread(target=collector.take, args=(wire,), daemon=True)
    waiting.start()
    while not collector._pending:
        pass
    with pytest.raises(BusyError):
        collector.take(numbered(batch, 1, host="other"))
    collector.start()
    waiting.join()
    assert not collector.take(numbered(batch, 1, host="other")).repeated
    collector.close()


def test_what_is_no_batch_is_refused(collector: Collector) -> None:
    with pytest.raises(BatchError, match="no batch"):
        collector.take(b"GET / HTTP/1.1")
    assert log_numbers(collector.log_folder) == []


def test_batch_that_cannot_be_unpacked_does_not_stop_the_others(collector: Collector, batch: Batch) -> None:
    import zstandard

    key = b'{"host":"bad","boot":"b","seq":1}'
    packed = zstandard.ZstdCompressor().compress(b"none")
    collector.take(sealed(key, 4, packed))
    collector.take(numbered(batch, 1))
    segments_now(collector)
    assert collector.counters.unreadable == 1
    assert len(rows(collector)) == batch.rows


def test_batch_that_breaks_the_rules_is_left_out_and_the_others_are_not(
    collector: Collector, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(wire: bytes) -> Batch:
        found = decode(wire)
        # As if a rule that the decoder checks were missing.
        return replace(found, gaps=(Gap(why="", rows=1 << 70),)) if found.key.seq == 2 else found

    monkeypatch.setattr("mycroft.loaders.collector.segments.decode", decoded)
    for seq in (1, 2, 3):
        collector.take(numbered(batch, seq))
    segments_now(collector)
    assert len(rows(collector)) == 2 * batch.rows
    assert collector.counters.unreadable == 1


def test_damaged_manifest_is_named(collector: Collector, settings: CollectorSettings, batch: Batch) -> None:
    collector.take(numbered(batch, 1))
    segments_now(collector)
    (collector.manifest_folder / "1.json").write_text("{")
    with pytest.raises(ManifestError, match="version before it"):
        read_manifest(collector.manifest_folder)


# ---- the window ----------------------------------------------------------------------


def window_rows(window: Window) -> int:
    return window.rows


def now_batch(batch: Batch, seq: int, host: str = "host0") -> bytes:
    import time

    return numbered(batch, seq, host=host, made_ns=time.time_ns())


def test_window_sees_a_batch_as_soon_as_it_is_acknowledged(collector: Collector, batch: Batch) -> None:
    window = Window(collector.root)
    assert window.refresh() == 0
    collector.take(now_batch(batch, 1))
    assert window.refresh() == 1
    assert window_rows(window) == batch.rows
    assert window.refresh() == 0


def test_window_goes_on_over_segments_without_rows_twice(collector: Collector, batch: Batch) -> None:
    window = Window(collector.root)
    for seq in range(1, 5):
        collector.take(now_batch(batch, seq))
        if seq % 2:
            window.refresh()
        segments_now(collector)
    window.refresh()
    assert window_rows(window) == 4 * batch.rows


def test_late_window_begins_with_the_segments(collector: Collector, batch: Batch) -> None:
    for seq in (1, 2):
        collector.take(now_batch(batch, seq))
    segments_now(collector)
    collector.take(now_batch(batch, 3))
    window = Window(collector.root)
    window.refresh()
    assert window_rows(window) == 3 * batch.rows
    assert len(window.processes) == 1


def test_window_whose_log_is_gone_reads_the_segments(collector: Collector, batch: Batch) -> None:
    window = Window(collector.root)
    collector.take(now_batch(batch, 1))
    window.refresh()
    for seq in (2, 3):
        collector.take(now_batch(batch, seq))
        segments_now(collector)
    for number in log_numbers(collector.log_folder):
        log_path(collector.log_folder, number).unlink()
    window.refresh()
    assert window_rows(window) == 3 * batch.rows


def test_window_keeps_to_its_rows(collector: Collector, batch: Batch) -> None:
    window = Window(collector.root, most_rows=2 * batch.rows)
    for seq in range(1, 8):
        collector.take(now_batch(batch, seq))
        window.refresh()
    assert window_rows(window) <= 2 * batch.rows + batch.rows


def test_window_of_a_large_fleet_becomes_shorter_for_all_of_its_processes(
    collector: Collector, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mycroft.loaders.collector.window._LEAST_SPAN_NS", 1)
    window = Window(collector.root, most_in_all=8 * batch.rows)
    for seq in range(1, 21):
        for host in ("h1", "h2"):
            # Rows as old as they are: a second a batch.
            collector.take(aged(batch, seq, host=host, at_ns=time.time_ns() - (20 - seq) * 10**9))
        window.refresh()
    kept = {process.host: process.rows for process in window.processes.values()}
    assert 0 < sum(kept.values()) <= 10 * batch.rows
    assert kept["h1"] == kept["h2"]


def aged(batch: Batch, seq: int, *, host: str, at_ns: int) -> bytes:
    """A batch whose rows are of one moment."""
    from dataclasses import replace

    tables = {}
    for kind, table in batch.tables.items():
        place = table.schema.get_field_index(TIME_OF[kind])
        times = pa.array([at_ns] * table.num_rows, pa.timestamp("ns"))
        tables[kind] = table.set_column(place, table.schema.field(place), times)
    return numbered(replace(batch, tables=tables), seq, host=host, made_ns=at_ns)


def test_processes_of_one_communicator_are_one_job(collector: Collector, batch: Batch) -> None:
    for host in ("h1", "h2"):
        collector.take(now_batch(batch, 1, host=host))
    window = Window(collector.root)
    window.refresh()
    assert [[process.host for process in job] for job in window.jobs()] == [["h1", "h2"]]


def test_window_forgets_what_is_too_old_however_many_batches_there_were(tmp_path: Path, batch: Batch) -> None:
    window = Window(tmp_path, span_s=40.0)
    now = time.time_ns()
    for seq in range(1, 201):
        at_ns = now - (200 - seq) * 500_000_000
        window.take(decode(aged(batch, seq, host="h1", at_ns=at_ns)))
        window._evict()
    (process,) = window.processes.values()
    kept_s = (now - min_time(process)) / 1e9
    # Pieces go as wholes: what was put together is as old as its newest row.
    assert 39.0 <= kept_s <= 40.0 + 16.5
    (recent,) = traces_of([process], since_ns=now - 10 * 10**9)
    times = {name: table.column(TIME_OF[name]) for name, table in recent.tables.items() if table.num_rows}
    oldest = {name: (now - pc.min(column).cast(pa.int64()).as_py()) / 1e9 for name, column in times.items()}
    assert all(10.0 <= age <= 10.0 + 16.5 for name, age in oldest.items() if name != "heartbeat")
    # How long a healthy job pauses is known from all of them.
    assert oldest["heartbeat"] == pytest.approx(kept_s, abs=0.01)


def min_time(process: Process) -> int:
    (trace,) = traces_of([process])
    return min(
        pc.min(table.column(TIME_OF[name])).cast(pa.int64()).as_py()
        for name, table in trace.tables.items()
        if table.num_rows
    )
