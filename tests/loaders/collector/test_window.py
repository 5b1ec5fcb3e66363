"""What a window keeps of hosts that tell of more than they have."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from mycroft.loaders.collector import window
from mycroft.loaders.collector.window import Window
from mycroft.tracer.agent.batch import Batch
from tests.tracer.agent.batches import a_batch


def batch_of(made: Batch, host: str, process: str) -> Batch:
    """The batch as another host would send it, of one process."""
    key = replace(made.key, host=host, made_ns=time.time_ns())
    return replace(made, key=key, rings=tuple(replace(ring, key=process) for ring in made.rings))


def test_a_host_that_makes_processes_up_takes_no_place_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "MOST_OF_HOST", 3)
    made = a_batch(tmp_path / "rings")
    kept = Window(tmp_path / "store")
    kept.take(batch_of(made, "host0", "real"))
    for number in range(10):
        kept.take(batch_of(made, "host1", f"made-up-{number}"))
    kept.take(batch_of(made, "host2", "later"))
    assert list(kept.processes) == ["real", "made-up-0", "made-up-1", "made-up-2", "later"]
    assert kept.left_out == {"host1": 7}
    rows = {key: process.rows for key, process in kept.processes.items()}
    assert len(set(rows.values())) == 1 and rows["later"] > 0
    # Those that it has are told of further, and a place becomes free where one is forgotten.
    kept.processes["made-up-1"].arrived_s = 0.0
    kept.refresh()
    kept.take(batch_of(made, "host1", "after"))
    assert "made-up-1" not in kept.processes and kept.processes["after"].rows == rows["real"]


def test_many_hosts_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MOST_PROCESSES", 4)
    made = a_batch(tmp_path / "rings")
    kept = Window(tmp_path / "store")
    for number in range(9):
        kept.take(batch_of(made, f"host{number}", f"process-{number}"))
    assert list(kept.processes) == [f"process-{number}" for number in range(4)]
