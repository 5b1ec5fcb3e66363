"""A process that is killed in the middle of writing leaves a trace that reads back."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest

from mycroft.tracer import TraceFile
from tests.tracer.comparison import rows
from tests.tracer.tools import Tools, build

WRITERS = 3
FACTOR = 2654435761


@pytest.fixture(scope="module")
def stress() -> Tools:
    return build(targets=("mycroft_ring_stress",))


@pytest.mark.parametrize("seed", range(6))
def test_ring_of_a_killed_process_reads_back(stress: Tools, tmp_path: Path, seed: int) -> None:
    writer = subprocess.Popen(
        [str(stress.tool("mycroft_ring_stress")), str(tmp_path), str(WRITERS), "forever"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    path = writer.stdout.readline().strip()
    file = TraceFile(path)
    # Somewhere in the first laps: before, at and after the ring goes round.
    goal = random.Random(seed).randrange(1, 3 * file.header["ring_records"])
    while file.header["head"] < goal:
        pass
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()

    trace = TraceFile(path).read()

    head, slots = file.header["head"], file.header["ring_records"]
    gaps = rows(trace.tables["gap"])
    assert all(g["since_ts"] == (g["count"] * FACTOR + 1) % 2**64 for g in gaps)
    # Every thread can have been inside of one record, and have dropped some while another stood in its slot.
    torn = trace.losses.get("torn", 0) + trace.losses.get("unwritten", 0)
    assert torn <= WRITERS + file.header["lost"]
    assert len(gaps) + torn == min(head, slots)
    assert trace.losses.get("overwritten", 0) == max(0, head - slots)
    assert not trace.closed


def test_no_reader_ever_sees_a_mixture_of_two_records(stress: Tools, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(stress.tool("mycroft_ring_stress")), str(tmp_path), "4", "100000"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
