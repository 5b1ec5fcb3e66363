"""Driver and plugin under AddressSanitizer, UBSan and ThreadSanitizer; the decoder under a seeded fuzzer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.tracer.comparison import compare, load
from tests.tracer.test_replay import INEXACT, SCENARIOS
from tests.tracer.tools import Tools, build

pytestmark = pytest.mark.slow

TARGETS = ("mycroft_plugin", "mycroft_replay", "mycroft_fuzz_decoder", "mycroft_ring_stress")
# Where threads meet: several communicators, teardown beside callbacks, unloading, the sampler beside all of them.
THREADED = ("ring_all_reduce", "several_comms", "stall_kernel", "finalize_race", "parallel", "reload", "abort_open")


@pytest.fixture(scope="session")
def address() -> Tools:
    return build(sanitize="address;undefined", targets=TARGETS)


@pytest.fixture(scope="session")
def thread() -> Tools:
    return build(sanitize="thread", targets=TARGETS)


def exact(tools: Tools, scenario: str, abi: int, folder: Path) -> None:
    done = tools.replay(scenario, abi, folder)
    assert (done.returncode, done.stderr) == (0, "")
    for truth, trace in load(folder):
        assert compare(truth, trace, exact_times=scenario not in INEXACT) == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_memory_error_and_no_undefined_behaviour(address: Tools, tmp_path: Path, scenario: str) -> None:
    for abi in (1, 3, 4, 7):
        exact(address, scenario, abi, tmp_path / str(abi))


@pytest.mark.parametrize("scenario", THREADED)
def test_no_data_race(thread: Tools, tmp_path: Path, scenario: str) -> None:
    for abi in (2, 7):
        exact(thread, scenario, abi, tmp_path / str(abi))


def test_no_data_race_between_writers_of_the_ring(thread: Tools, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(thread.tool("mycroft_ring_stress")), str(tmp_path), "3", "5000"],
        capture_output=True,
        text=True,
        env=thread.environment,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seed", range(1, 5))
def test_decoder_survives_damaged_traces(address: Tools, tmp_path: Path, seed: int) -> None:
    done = subprocess.run(
        [str(address.tool("mycroft_fuzz_decoder")), str(seed), "400", str(tmp_path)],
        capture_output=True,
        text=True,
        env=address.environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
