"""Snapshots of processes: who was alive, who had ended with which code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mycroft.loaders import LoadSummary, load, open_store
from tests.loaders import dumps


def loaded(content: Any, tmp_path: Path) -> tuple[LoadSummary, pl.DataFrame]:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    (folder / "state").write_text(content if isinstance(content, str) else json.dumps(content))
    out = tmp_path / "t.duckdb"
    out.unlink(missing_ok=True)
    summary = load([folder], out)
    with open_store(out) as store:
        return summary, store.frame("SELECT ts, time_quality, rank, kind, level, code FROM events ORDER BY kind, rank")


def test_the_sample_snapshot_becomes_events(tmp_path: Path) -> None:
    _, events = loaded((dumps.SAMPLES / "pg_order" / "snapshot.json").read_text(), tmp_path)
    alive = events.filter(pl.col("kind") == "alive")
    assert alive["rank"].to_list() == list(range(8))
    assert alive["ts"].dt.epoch("ms").unique().to_list() == [1_795_965_203_340]
    assert alive["time_quality"].unique().to_list() == ["exact"]


def test_exit_codes_keep_their_signals(tmp_path: Path) -> None:
    _, events = loaded((dumps.SAMPLES / "sigkill" / "snapshot.json").read_text(), tmp_path)
    codes = events.filter(pl.col("kind") == "exit")
    assert dict(codes.select("rank", "code").rows()) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: -9, 7: 1}


def test_done_is_finished_and_a_code_of_zero_is_no_error(tmp_path: Path) -> None:
    _, events = loaded({"finished_ranks": [1], "exit_codes": {"2": 0}}, tmp_path)
    assert events.select("rank", "kind", "level", "code", "ts").rows() == [
        (2, "exit", "info", 0, None),
        (1, "finished", "info", None, None),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("timestamp", 1_760_000_000),
        ("snapshot_unix", 1_760_000_000.0),
        ("time_ms", 1_760_000_000_000),
        ("ts_ns", 1_760_000_000 * 10**9),
    ],
)
def test_the_time_is_read_in_its_unit(key: str, value: float, tmp_path: Path) -> None:
    _, events = loaded({key: value, "alive": [0]}, tmp_path)
    assert events["ts"].dt.epoch("s").to_list() == [1_760_000_000]


def test_what_is_no_rank_and_no_code_is_dropped_and_counted(tmp_path: Path) -> None:
    state = {"alive": [0, -1, "x", True, 2**40], "exit_codes": {"1": "killed", "x": 1, "2": 2**40, "3": 1}}
    summary, events = loaded(state, tmp_path)
    assert events.select("rank", "kind").rows() == [(3, "exit"), (0, "alive")]
    assert summary.dropped == {"alive: rank that is none": 4, "exit code that is none": 3}


def test_a_broken_snapshot_is_said(tmp_path: Path) -> None:
    summary, events = loaded('{"alive": [0, 1', tmp_path)
    assert events.is_empty()
    assert "is no JSON that can be read" in summary.problems[0][1]
