"""The spool: first in first out, survives its agent, never grows beyond its bound, and says what it dropped."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mycroft.tracer.agent.batch import BatchKey, Gap
from mycroft.tracer.agent.spool import Spool


def key(seq: int, rows: int = 10) -> BatchKey:
    return BatchKey(host="h", boot="b", seq=seq, made_ns=1000 + seq, rows=rows)


def names(spool: Spool) -> list[bytes]:
    found = []
    while (lent := spool.take()) is not None:
        found.append(lent[1])
        spool.sent(lent[0])
    return found


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """The kernel refuses to let a file grow beyond `size`, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_oldest_goes_first_and_survives_the_agent(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=1000)
    for seq in (1, 2, 3):
        spool.put(key(seq), b"%d" % seq)
    again = Spool(tmp_path, most_bytes=1000)
    assert names(again) == [b"1", b"2", b"3"]
    assert list(tmp_path.iterdir()) == []


def test_order_survives_a_clock_that_was_set_back_and_a_new_start(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=1000)
    for boot, seq, made_ns in (("b", 1, 1000), ("b", 2, 2000), ("b", 3, 500), ("a", 1, 700)):
        spool.put(BatchKey(host="h", boot=boot, seq=seq, made_ns=made_ns), f"{boot}{seq}".encode())
    # A collector that gets 3 of an agent before 2 takes 2 for one that it has.
    assert names(Spool(tmp_path, most_bytes=1000)) == [b"b1", b"b2", b"b3", b"a1"]


def test_full_spool_drops_the_oldest_and_tells_what(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=100)
    for seq in range(1, 11):
        spool.put(key(seq, rows=seq), bytes(30))
        assert spool.size_bytes <= 100
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 100
    assert spool.gap() == Gap(why="spool full", since_ns=1001, until_ns=1007, rows=28, batches=7)
    assert spool.gap() is None
    assert len(spool) == 3


def test_news_of_a_loss_is_not_lost_with_its_batch(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=50)
    spool.put(key(1), bytes(40), lost_batches=7, lost_rows=70)
    again = Spool(tmp_path, most_bytes=50)
    again.put(key(2), bytes(40))
    gap = again.gap()
    assert gap is not None and (gap.batches, gap.rows) == (8, 80)


def test_batch_that_is_being_sent_is_not_dropped(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=100)
    spool.put(key(1), bytes(60))
    lent = spool.take()
    assert lent is not None
    spool.put(key(2), bytes(60))
    spool.put(key(3), bytes(60))
    spool.keep()
    found = spool.take()
    assert found is not None and found[0] == lent[0]


def test_what_could_not_be_told_is_told_later(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=50)
    spool.put(key(1), bytes(40))
    spool.put(key(2), bytes(40))
    gap = spool.gap()
    assert gap is not None
    spool.owe(gap)
    spool.put(key(3), bytes(40))
    assert spool.gap() == Gap(why="spool full", since_ns=1001, until_ns=1002, rows=20, batches=2)


def test_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=10_000)
    spool.put(key(1), bytes(100))
    with no_room_beyond(500), pytest.raises(OSError, match="too large"):
        spool.put(key(2), bytes(1000))
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [100]
    spool.put(key(2), bytes(1000))
    assert len(spool) == 2


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "1-2.batch").write_text("no batch")
    assert Spool(tmp_path, most_bytes=10).take() is None
    assert (tmp_path / "notes.txt").read_text() == "mine"
