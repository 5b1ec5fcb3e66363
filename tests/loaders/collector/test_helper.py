"""The process that makes segments beside a collector: the same as in the collector, and it may die at any moment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mycroft.loaders.collector import Collector, CollectorSettings
from mycroft.loaders.collector.log import log_path
from mycroft.loaders.collector.maker import HelperMaker, MakerError
from mycroft.loaders.collector.manifest import read_manifest
from mycroft.tracer.agent import Batch
from mycroft.tracer.trace import TABLES
from tests.tracer.agent.batches import a_batch, numbered


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    return a_batch(tmp_path_factory.mktemp("rings") / "r")


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    opened = Collector(CollectorSettings(folder=tmp_path / "s", segment_s=3600.0, reserve_bytes=0, helper=True))
    opened.start()
    yield opened
    opened.close()


def rows_of(collector: Collector) -> int:
    segments = read_manifest(collector.manifest_folder).segments
    return sum(segment.rows for segment in segments if segment.table in TABLES)


def test_helper_makes_the_segments_and_dies_without_loss(collector: Collector, batch: Batch) -> None:
    maker = collector._keeper._maker
    assert isinstance(maker, HelperMaker)
    for seq in (1, 2):
        collector.take(numbered(batch, seq))
        collector.flush()
    assert rows_of(collector) == 2 * batch.rows
    # What is for the whole service leaves it alone: the collector still needs it.
    assert maker.pid is not None
    os.kill(maker.pid, signal.SIGTERM)
    collector.take(numbered(batch, 3))
    collector.flush()
    assert rows_of(collector) == 3 * batch.rows
    os.kill(maker.pid, signal.SIGKILL)
    os.waitid(os.P_PID, maker.pid, os.WEXITED | os.WNOWAIT)
    collector.take(numbered(batch, 4))
    collector.flush()
    assert rows_of(collector) == 4 * batch.rows


def test_helper_that_cannot_start_is_said_and_the_log_stays(
    collector: Collector, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.take(numbered(batch, 1))
    with monkeypatch.context() as patched:
        patched.setattr("mycroft.loaders.collector.maker.sys.executable", "/bin/false")
        with pytest.raises(MakerError, match="ended with 1"):
            collector.flush()
        collector._housekeep()
        assert "segments cannot be written" in collector.problem
    assert log_path(collector.log_folder, 1).exists()
    collector._housekeep()
    assert collector.problem == ""
    assert rows_of(collector) == batch.rows


def test_error_of_the_disk_comes_through_as_one(collector: Collector, batch: Batch) -> None:
    collector.take(numbered(batch, 1))
    log_path(collector.log_folder, 1).rename(collector.root / "hidden")
    (collector.log_folder / log_path(collector.log_folder, 1).name).mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        collector.flush()
    (collector.log_folder / log_path(collector.log_folder, 1).name).rmdir()
    (collector.root / "hidden").rename(log_path(collector.log_folder, 1))
    collector.flush()
    assert rows_of(collector) == batch.rows
