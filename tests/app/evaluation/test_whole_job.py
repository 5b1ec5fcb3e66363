"""A simulated job loaded in one piece has the rows that the tracer's loader makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mycroft.app.evaluation.whole_job import store_of
from mycroft.loaders.memory import load_traces
from mycroft.loaders.store import MemoryStore
from mycroft.tracer.simulator import simulate, simulated_traces, simulation

# Numbers of communicators are each store's own; so is the order of records over several ranks.
ROWS = {
    "members": """SELECT c."desc", m.rank, m.comm_rank, m.source FROM members m JOIN communicators c USING (comm_id)""",
    "communicators": """SELECT "desc", kind, size, seen_size FROM communicators""",
    "ranks": "SELECT r.rank, h.name, local_rank, gpu, pid FROM ranks r JOIN hosts h USING (host_id)",
    # The loader's times of a whole dump are rounded to microseconds.
    "rank_dumps": """
        SELECT * EXCLUDE (first_record, last_record)
            REPLACE (epoch_us(first_ts) AS first_ts, epoch_us(last_ts) AS last_ts)
        FROM rank_dumps
    """,
    "heartbeat": "SELECT * FROM heartbeat",
    "jobs": "SELECT job_id, world_size FROM jobs",
    "coll_ops": """
        SELECT c."desc", t.* EXCLUDE (comm_id, record_id)
        FROM coll_ops t JOIN communicators c USING (comm_id)
    """,
    "flow_state": """SELECT c."desc", t.* EXCLUDE (comm_id) FROM flow_state t JOIN communicators c USING (comm_id)""",
    "flow_ops": """SELECT c."desc", t.* EXCLUDE (comm_id) FROM flow_ops t JOIN communicators c USING (comm_id)""",
}


@pytest.fixture(scope="module", params=["T16", "expert groups"])
def stores(request: pytest.FixtureRequest) -> Iterator[tuple[MemoryStore, MemoryStore]]:
    settings = {"ep": 2, "dp": 4, "tp": 2, "microbatches": 2} if request.param != "T16" else {}
    job = simulation("nic_down", topology="T16", seed=3, at_s=4.0, after_s=5.0, settings=settings)
    simulated = simulate(job)
    with load_traces(simulated_traces(simulated), name="simulated") as loaded, store_of(simulated) as whole:
        yield loaded, whole


@pytest.mark.parametrize("table", ROWS)
def test_rows_are_those_of_the_loader(stores: tuple[MemoryStore, MemoryStore], table: str) -> None:
    loaded, whole = (store.frame(f"{ROWS[table]} ORDER BY ALL") for store in stores)
    assert loaded.height > 0
    assert loaded.columns == whole.columns
    for name in loaded.columns:
        assert loaded[name].equals(whole[name]), name


def test_records_of_a_rank_keep_their_order(stores: tuple[MemoryStore, MemoryStore]) -> None:
    query = """
        SELECT t.rank, c."desc", t.op_kind, t.op_seq
        FROM coll_ops t JOIN communicators c USING (comm_id)
        ORDER BY t.rank, t.record_id
    """
    loaded, whole = (store.frame(query) for store in stores)
    assert loaded.equals(whole)
