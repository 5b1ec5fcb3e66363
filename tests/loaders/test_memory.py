"""Traces in memory: the same rows as by way of a file, and the trace as it was at an earlier moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mycroft.loaders import schema
from mycroft.loaders.load import load
from mycroft.loaders.memory import load_traces, show_traces
from mycroft.loaders.store import MemoryStore, StoreError, open_store
from mycroft.tracer.simulator import Simulated, export_tables, simulate, simulated_traces, simulation

TABLES = ("coll_ops", "flow_ops", "flow_state", "heartbeat", "ranks", "members", "communicators")
STUCK = """
SELECT count(*) AS open
FROM coll_ops
WHERE dur_ns IS NULL
"""
OPEN_THEN = """
SELECT count(*) AS open
FROM coll_ops
WHERE epoch_ns(enq_ts) <= ? AND (dur_ns IS NULL OR epoch_ns(start_ts) + dur_ns > ?)
"""


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    return simulate(simulation("nic_down", topology="T16", seed=3, at_s=6.0, after_s=8.0))


@pytest.fixture(scope="module")
def store(simulated: Simulated) -> Iterator[MemoryStore]:
    with load_traces(simulated_traces(simulated), name="trace.parquet") as opened:
        yield opened


def counts(store: MemoryStore) -> dict[str, int]:
    return {name: int(store.frame(f"SELECT count(*) FROM {name}").item()) for name in TABLES}


def test_memory_holds_what_the_file_would(simulated: Simulated, store: MemoryStore, tmp_path: Path) -> None:
    export_tables(simulated, tmp_path / "trace.parquet", format_="parquet")
    load([tmp_path / "trace.parquet"], tmp_path / "trace.duckdb")
    with open_store(tmp_path / "trace.duckdb") as filed:
        for name in TABLES:
            rows = f"SELECT * FROM {name} ORDER BY ALL"
            assert store.frame(rows).equals(filed.frame(rows)), name


def test_trace_that_is_only_shown_has_the_same_rows_in_every_table(simulated: Simulated, store: MemoryStore) -> None:
    for _ in range(2):
        with show_traces(simulated_traces(simulated), name="trace.parquet") as shown:
            assert shown.meta == store.meta
            for table in schema.TABLES:
                rows = f"SELECT * FROM {table.name}"
                assert shown.frame(rows).equals(store.frame(rows)), table.name
            types = "SELECT column_name, column_type FROM (DESCRIBE coll_ops)"
            assert shown.frame(types).equals(store.frame(types))
        # What was shown is gone, for the next one.
        assert shown.frame("SELECT count(*) FROM coll_ops").item() == 0


def test_rows_of_later_are_not_there_at_an_earlier_moment(simulated: Simulated, store: MemoryStore) -> None:
    injected = simulated.injected_ns
    assert injected is not None
    early = store.until(injected)
    for name, column in (("flow_state", "ts"), ("flow_ops", "end_ts"), ("heartbeat", "ts"), ("coll_ops", "enq_ts")):
        newest = early.frame(f"SELECT max(epoch_ns({column})) FROM {name}").item()
        assert newest <= injected
        assert early.frame(f"SELECT count(*) FROM {name}").item() < counts(store)[name]


def test_an_operation_that_ended_later_is_open_at_an_earlier_moment(simulated: Simulated, store: MemoryStore) -> None:
    injected = simulated.injected_ns
    assert injected is not None
    expected = store.frame(OPEN_THEN, [injected, injected]).item()
    assert expected > 0
    assert store.until(injected).frame(STUCK).item() == expected
    assert store.until(injected).frame("SELECT count(*) FROM coll_ops WHERE state = 'completed'").item() > 0


def test_moments_do_not_disturb_each_other(simulated: Simulated, store: MemoryStore) -> None:
    assert simulated.injected_ns is not None
    early, late = store.until(simulated.injected_ns), store.until(simulated.injected_ns + 5_000_000_000)
    newest = "SELECT max(epoch_ns(ts)) FROM heartbeat"
    assert early.frame(newest).item() < late.frame(newest).item() <= store.frame(newest).item()
    assert early.frame(newest).item() <= simulated.injected_ns


def test_wrong_sql_is_a_store_error(store: MemoryStore) -> None:
    with pytest.raises(StoreError, match="in memory"):
        store.frame("SELECT nothing FROM nowhere")
