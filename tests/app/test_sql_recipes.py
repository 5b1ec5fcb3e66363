"""Each query to begin with runs on a trace with rows, and its rows are what it promises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mycroft.app.sql_recipes import RECIPES
from mycroft.loaders.store import Store, open_store
from tests.app import page_trace
from tests.app.page_trace import NO_DUMP, START, STUCK

Row = dict[str, Any]


def _flow(rank: int, peer: int, tick: int, done: int, idle_ms: int) -> Row:
    return {
        "ts": START + timedelta(milliseconds=100 * tick),
        "rank": rank,
        "comm_id": 2,
        "peer": peer,
        "op_seq": 41,
        "op_kind": "all_reduce",
        "channel": 0,
        "dir": "send",
        "chunks_total": 64,
        "posted": done + 8,
        "ready": done + 1,
        "moved": done,
        "done": done,
        "idle_ms": idle_ms,
    }


def _sums(rank: int, peer: int, seq: int, busy_ns: int) -> Row:
    return {
        "rank": rank,
        "comm_id": 2,
        "op_seq": seq,
        "op_kind": "all_reduce",
        "channel": 0,
        "dir": "send",
        "peer": peer,
        "slices": 10,
        "net_busy_ns": busy_ns,
        "net_max_ns": busy_ns // 5,
    }


MORE: dict[str, list[Row]] = {
    "flow_state": [_flow(4, 5, 1, 10, 0), _flow(4, 5, 9, 12, 700), _flow(6, 7, 1, 20, 0), _flow(6, 7, 9, 40, 50)],
    "flow_ops": [_sums(4, 5, 1, 90_000), _sums(4, 5, 2, 110_000), _sums(6, 7, 1, 10_000)],
    "heartbeat": [
        {
            "ts": START + timedelta(seconds=s),
            "rank": rank,
            "n_open": s,
            "last_progress_ts": START + timedelta(seconds=at),
        }
        for rank, at in ((4, 3), (STUCK, 2))
        for s in (1, 5)
    ],
    "host_evidence": [
        {
            "ts": START + timedelta(seconds=s),
            "host_id": 1,
            "device": "mlx5_0",
            "kind": "link_downed",
            "number": float(s),
        }
        for s in (1, 2, 3)
    ],
    "identity": [
        {"rank": 3, "attribute": "host", "value": "hx-a01"},
        {"rank": 3, "attribute": "host", "value": "hx-a09", "ambiguous": True},
        {"rank": 4, "attribute": "host", "value": "hx-a02"},
    ],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("recipes") / "trace.duckdb"
    page_trace.write(path, None, more=MORE)
    with open_store(path) as opened:
        yield opened


Check = Callable[[list[Row]], bool]
# What the first rows must be on that trace: rank 5 is stuck, 11 left no dump, 2 is late each time, 3 differs once.
PROMISES: dict[str, Check] = {
    "Open operations by group": lambda rows: (
        (rows[0]["key"], rows[0]["op_seq"], rows[0]["entered"]) == ("tp-c345", 41, 3)
        and all(row["op_seq"] == 41 for row in rows)
    ),
    "How far each rank is behind in its groups": lambda rows: (
        {(row["rank"], row["behind"]) for row in rows} == {(STUCK, 1)} and len(rows) == 2
    ),
    "Latest ranks of each operation": lambda rows: rows[0]["rank"] == 2 and 6 < rows[0]["late_ms"] < 8,
    "Who is late on the whole": lambda rows: rows[0]["rank"] == 2 and rows[0]["late_ms"] > 5,
    "Members that left no dump": lambda rows: {row["rank"] for row in rows} == {NO_DUMP} and len(rows) == 4,
    "Operations whose members disagree": lambda rows: (
        {row["op_seq"] for row in rows} == {17} and all(row["sizes"] == 2 for row in rows)
    ),
    "How long each shape of operation takes": lambda rows: (
        len(rows) == 5 and all(row["p50_ms"] <= row["p95_ms"] <= 30 for row in rows)
    ),
    "The longest operations": lambda rows: (
        len(rows) == 50 and rows[0]["dur_ms"] == 30.0 and rows[0]["dur_ms"] >= rows[-1]["dur_ms"]
    ),
    "Bandwidth of each shape": lambda rows: (
        all(1 < row["algbw_gb_s"] < 2 for row in rows) and all(row["bytes"] == 33_554_432 for row in rows)
    ),
    "Time inside collectives by rank": lambda rows: (
        NO_DUMP not in {row["rank"] for row in rows} and all(0 < row["share"] < 1 for row in rows)
    ),
    "Longest pauses between operations of a rank": lambda rows: 100 < rows[0]["pause_ms"] < 1100 and len(rows) == 50,
    "Flows that stand still": lambda rows: (
        [(row["rank"], row["peer"], row["done"], row["idle_ms"]) for row in rows] == [(4, 5, 12, 700), (6, 7, 40, 50)]
    ),
    "Which sender and receiver are slow": lambda rows: (
        [(row["sender"], row["receiver"], row["mean_us"]) for row in rows] == [(4, 5, 10.0), (6, 7, 1.0)]
    ),
    "Who was heard of last, and when": lambda rows: (
        [(row["rank"], row["open_ops"]) for row in rows] == [(5, 5), (4, 5)]
    ),
    "Errors in the logs, in the order of time": lambda rows: (
        [row["rank"] for row in rows] == [0, 9] and all("Watchdog" in row["text"] for row in rows)
    ),
    "What the logs say, by kind": lambda rows: (
        [(row["kind"], row["n"], row["ranks"]) for row in rows] == [("step", 124, 3), ("watchdog_timeout", 2, 2)]
    ),
    "Where the main threads stand": lambda rows: (
        rows[0]["ranks"] == 11 and sum(row["ranks"] for row in rows) == 15 and rows[-1]["which"] == [STUCK]
    ),
    "What the devices of the hosts said": lambda rows: (
        [(row["host"], row["n"], row["least"], row["most"]) for row in rows] == [("hx-a02", 3, 1.0, 3.0)]
    ),
    "Which rank is which, where sources differ": lambda rows: (
        [(row["rank"], row["values"]) for row in rows] == [(3, ["hx-a01", "hx-a09"])]
    ),
    "What was dropped, and why": lambda rows: (
        {row["path"] for row in rows} == {"core.7741", "dumps/nccl_trace_rank_11"}
    ),
}


def test_there_are_enough_and_each_has_its_check() -> None:
    names = [recipe.name for recipe in RECIPES]
    assert len(names) == len(set(names)) >= 15
    assert set(names) == set(PROMISES)
    assert all(recipe.promise.startswith("one row per ") for recipe in RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_its_rows_are_what_it_promises(store: Store, recipe: Any) -> None:
    found = store.guarded_sql(recipe.sql, row_limit=10_000, time_limit_s=60.0)
    rows = found.frame.to_dicts()
    assert rows and not found.cut
    assert PROMISES[recipe.name](rows), rows[:5]
