"""No input breaks the loader of text: not mutated logs, not any bytes, not files made to be slow."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.loaders.sources import loaded
from tests.loaders.text.mutations import JUNK, PIECES, check, log
from tests.loaders.text.recorder import read


@pytest.mark.parametrize("seed", range(40))
def test_mutated_logs_are_read(tmp_path: Path, seed: int) -> None:
    check(tmp_path, log(random.Random(seed)))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.sampled_from([piece.encode() for piece in PIECES]),
            st.sampled_from(JUNK),
            st.binary(max_size=40),
            st.text(max_size=20).map(str.encode),
        ),
        max_size=30,
    ).map(b"".join)
)
def test_any_bytes_are_read(tmp_path: Path, data: bytes) -> None:
    check(tmp_path, data)


@pytest.mark.parametrize("cut", range(0, 1200, 37))
def test_a_log_cut_anywhere_keeps_what_came_before(tmp_path: Path, cut: int) -> None:
    text = ("\n".join(PIECES)).encode()
    whole = check(tmp_path, text).rows(kind="watchdog_timeout")
    part = check(tmp_path, text[:cut]).rows(kind="watchdog_timeout")
    assert len(part) <= len(whole)
    assert bool(part) == (cut >= len(PIECES[0]))


SLOW = {
    "brackets": "[rank1]:" * 20_000,
    "openers": "Watchdog caught collective operation timeout: WorkNCCL(" * 3_000,
    "digits": "step=" + "9" * 200_000,
    "quotes": 'File "' * 30_000,
    "json": '{"log":"' * 20_000,
    "groups": "[PG ID 0 PG GUID 0(default_pg) Rank 3] " * 5_000 + "last enqueued work: 1, last completed work: 2",
    "blanks": "Traceback (most recent call last):" + " " * 200_000,
    "dots": "a." * 100_000 + "x [stderr] step 1",
    "dashes": "rank 1 host " + "-a" * 100_000 + " pid 5",
    "commas": "- [" + "1, " * 80_000 + "2] joined but didn't finish collective #3",
    "colons": "1:" * 100_000 + " NCCL INFO comm",
    "slashes": "NET/IB : Using " + "[0]mlx5_0:1/RoCE " * 20_000,
    "ranges": "srun: error: n: tasks " + "0-9999999," * 20_000 + ": Killed",
    "fingerprints": "Rank 1 is running collective: CollectiveFingerPrint(" * 4_000,
}


@pytest.mark.parametrize("name", SLOW)
def test_lines_made_to_be_slow_do_not_hide_what_follows(tmp_path: Path, name: str) -> None:
    """A quadratic pattern takes minutes on each of these; `mutations.py` measures, this only has to end."""
    recorder = read(tmp_path, f"{SLOW[name]}\nsrun: error: node-03: task 2: Exited with exit code 1\n")
    assert recorder.rows(kind="exit")[-1]["line"] == 2


def test_a_line_of_a_hundred_megabytes_is_cut_and_the_rest_is_read(tmp_path: Path) -> None:
    recorder = read(tmp_path, b"x" * 100_000_000 + b"\nsrun: error: node-03: task 2: Exited with exit code 1\n")
    assert recorder.event("exit")["line"] == 2
    assert recorder.reports[0].dropped["line longer than 256 KiB, the rest was not read"] == 1


def test_many_writers_at_once_are_bounded(tmp_path: Path) -> None:
    text = "".join(f"[rank{i}]: Traceback (most recent call last):\n" for i in range(20_000))
    assert read(tmp_path, text).reports[0].rows < 30_000


def test_a_number_that_no_process_has_costs_that_number_alone(tmp_path: Path) -> None:
    text = "".join(f"n1:{pid}:9 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n" for pid in (2**32, 77))
    text += f"n1:78:9 [0] NCCL INFO NET/IB : Using [{2**64}]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.1<0>\n"
    text += f"n1:{2**32}:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via NET/IB/0\n"
    with loaded(tmp_path, {"nccl.log": text}) as store:
        rows = store.frame(
            "SELECT pid FROM events WHERE kind = 'identity' AND name = 'address' AND detail = 'bootstrap' ORDER BY line"
        ).rows()
        assert rows == [(None,), (77,)]
        assert store.frame("SELECT problems FROM files").item() is None
