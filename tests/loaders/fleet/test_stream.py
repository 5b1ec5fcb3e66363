"""What a consumer of a topic keeps in the manifest; brokers are in tests/scale."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

from mycroft.loaders.collector.keeper import MOST_NUMBERS, NUMBERS_KEPT_S, recent_numbers
from mycroft.loaders.fleet.manifest import FleetManifest, FleetStore
from mycroft.loaders.fleet.place import FolderPlace
from mycroft.loaders.fleet.stream import StreamCollector, StreamCounts, _Taken
from tests.tracer.agent.batches import a_batch, numbered


def test_numbers_of_agents_that_are_gone_leave_the_manifest(tmp_path: Path) -> None:
    store = FleetStore(FolderPlace(tmp_path / "store"))
    long_ago, recently = time.time() - NUMBERS_KEPT_S - 1, time.time() - 60.0
    known = {"gone/boot": (7, long_ago), "there/boot": (8, recently)}
    store.change(lambda _: FleetManifest(seqs=known, positions=dict(known)))
    consumer = StreamCollector.__new__(StreamCollector)
    consumer._store, consumer._topic, consumer.counts = store, "topic", StreamCounts()
    consumer._taken, consumer._at = {}, {}
    consumer._kafka = consumer._consumer = SimpleNamespace()
    wire = numbered(a_batch(tmp_path / "rings"), 1)
    assert consumer._bring({0: _Taken(0, 1, [wire])}).messages == 1
    manifest = store.read()
    assert set(manifest.seqs) == {"there/boot", "host0/boot"}
    assert "there/boot" in manifest.positions and "gone/boot" not in manifest.positions


def test_numbers_are_bounded_and_those_of_who_still_speaks_stay() -> None:
    now = 1e9
    flood = {f"host/{boot}": (1, now - 100.0) for boot in range(MOST_NUMBERS)}
    kept = recent_numbers(flood | {"speaks/boot": (9, now - 1.0)}, now=now)
    assert len(kept) == MOST_NUMBERS and kept["speaks/boot"] == (9, now - 1.0)
