"""A trace file is written once, read by many, and answers a user's SQL without giving anything else away."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from mycroft.loaders import schema
from mycroft.loaders.store import QueryRefusedError, Store, StoreError, StoreWriter, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "trace.duckdb"
    writer = StoreWriter(made)
    writer.append(
        "trace_meta", pl.DataFrame({"key": ["schema_version", "digest"], "value": [str(schema.SCHEMA_VERSION), "d"]})
    )
    writer.append(
        "events",
        pl.DataFrame(
            {
                "ts": pl.Series([1_760_000_000_123_456_789, None], dtype=pl.Datetime("ns")),
                "kind": ["exit", "alive"],
                "rank": pl.Series([3, 4], dtype=pl.UInt32),
                "text": ["a", None],
            }
        ),
    )
    writer.append(
        "stack_texts",
        pl.DataFrame({"stack_id": [2**64 - 1], "frames": [["f (a.py:1)"]]}, schema_overrides={"stack_id": pl.UInt64}),
    )
    writer.append(
        "file_blocks",
        pl.DataFrame({"file_id": [0], "first_line": [1], "lines": [1], "size_bytes": [2], "content": [b"\0\xff"]}),
    )
    writer.finish()
    return made


def test_values_come_back_as_they_went_in(path: Path) -> None:
    with open_store(path) as store:
        assert store.meta == {"schema_version": str(schema.SCHEMA_VERSION), "digest": "d"}
        events = store.frame("SELECT * FROM events ORDER BY rank")
        assert events["ts"].dtype == pl.Datetime("ns")
        assert events["ts"].cast(pl.Int64).to_list() == [1_760_000_000_123_456_789, None]
        assert events["kind"].to_list() == ["exit", "alive"]
        assert events["kind"].dtype == pl.String
        assert events["text"].to_list() == ["a", None]
        assert store.frame("SELECT * FROM stack_texts").rows() == [(2**64 - 1, ["f (a.py:1)"])]
        assert store.frame("SELECT content FROM file_blocks").item() == b"\0\xff"


def test_every_table_of_the_schema_is_there_with_its_types(path: Path) -> None:
    with open_store(path) as store:
        for table in schema.TABLES:
            frame = store.frame(f"SELECT * FROM {table.name} LIMIT 0")
            wanted = {
                name: pl.String() if isinstance(dtype, pl.Enum) else dtype
                for name, dtype in schema.polars_schema(table).items()
            }
            assert dict(frame.schema) == wanted, table.name


def test_parameters_are_bound(path: Path) -> None:
    with open_store(path) as store:
        assert store.frame("SELECT text FROM events WHERE kind = ? AND rank = ?", ["exit", 3]).rows() == [("a",)]
        assert store.frame("SELECT count(*) FROM events WHERE text = $x", {"x": "' OR 1=1 --"}).item() == 0


def test_a_trace_cannot_be_changed_by_reading(path: Path) -> None:
    with open_store(path) as store, pytest.raises(StoreError, match="read-only"):
        store.frame("DELETE FROM events")


def test_a_finished_file_is_not_written_again(path: Path) -> None:
    with pytest.raises(StoreError, match="exists already"):
        StoreWriter(path)


def test_an_abandoned_file_goes_away(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "half.duckdb")
    writer.append("jobs", pl.DataFrame({"job_id": [0]}))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []


def test_rows_in_pieces_end_up_in_the_order_of_the_table(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "t.duckdb")
    writer.append("trace_meta", pl.DataFrame({"key": ["schema_version"], "value": [str(schema.SCHEMA_VERSION)]}))
    pieces = (
        pl.DataFrame({"rank": [rank, 1], "file_id": [rank, rank], "kind": ["ring", f"of piece {rank}"]})
        for rank in (5, 2, 3)
    )
    writer.append_pieces("rank_dumps", pieces)
    writer.finish()
    with open_store(tmp_path / "t.duckdb") as store:
        # Equal ranks stay in the order in which they came.
        rows = store.frame("SELECT rank, file_id FROM rank_dumps").rows()
        assert rows == [(1, 5), (1, 2), (1, 3), (2, 2), (3, 3), (5, 5)]
        assert store.frame("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'unsorted'").item() == 0


@pytest.mark.parametrize("content", [None, b"", b"not a database", b"\0" * 20_000])
def test_a_file_that_is_no_trace_is_a_plain_message(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.duckdb").write_bytes(content)
    with pytest.raises(StoreError) as caught:
        open_store(tmp_path / "x.duckdb")
    assert "x.duckdb" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_of_another_schema_asks_to_load_again(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "t.duckdb")
    writer.append("trace_meta", pl.DataFrame({"key": ["schema_version"], "value": ["99"]}))
    writer.finish()
    with pytest.raises(
        StoreError, match=f"schema version 99, this build reads {schema.SCHEMA_VERSION}; load the evidence again"
    ):
        open_store(tmp_path / "t.duckdb")


def test_stores_of_one_file_share_and_close_alone(path: Path) -> None:
    first, second = open_store(path), open_store(path)
    first.close()
    first.close()
    assert second.frame("SELECT count(*) FROM events").item() == 2
    second.close()
    with pytest.raises(StoreError, match="closed"):
        second.frame("SELECT 1")
    with open_store(path) as third:
        assert third.frame("SELECT count(*) FROM events").item() == 2


def test_many_threads_read_at_once(path: Path) -> None:
    with open_store(path) as store:
        barrier = threading.Barrier(8)

        def read(number: int) -> int:
            barrier.wait()
            return sum(
                store.frame("SELECT ?::INTEGER + count(*) FROM events", [i]).item() for i in range(number, number + 20)
            )

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(read, range(8))) == [sum(range(n, n + 20)) + 40 for n in range(8)]


# ---- SQL of a user -------------------------------------------------------------------------------


def test_a_users_select_is_answered(path: Path) -> None:
    with open_store(path) as store:
        result = store.guarded_sql(
            "WITH e AS (FROM events) SELECT kind, count(*) AS n FROM e GROUP BY kind ORDER BY kind"
        )
        assert sorted(result.frame.rows()) == [("alive", 1), ("exit", 1)]
        assert not result.cut
        assert store.guarded_sql("DESCRIBE events").frame.height == len(schema.EVENTS.columns)
        assert store.guarded_sql("SELECT 1 WHERE false").frame.height == 0


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE events",
        "INSERT INTO jobs VALUES (1)",
        "SELECT 1; DROP TABLE events",
        "SELECT 1; SELECT 2",
        "ATTACH 'other.duckdb'",
        "COPY events TO 'stolen.csv'",
        "COPY (SELECT 1) TO 'stolen.csv'",
        "EXPORT DATABASE 'stolen'",
        "SET memory_limit = '100GB'",
        "RESET lock_configuration",
        "PRAGMA database_list",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CALL pragma_version()",
        "CREATE TEMP TABLE t AS SELECT 1",
        "EXPLAIN ANALYZE SELECT 1",
        "",
        ";",
    ],
)
def test_anything_but_one_select_is_refused(sql: str, path: Path) -> None:
    with open_store(path) as store, pytest.raises(QueryRefusedError, match="only a single SELECT"):
        store.guarded_sql(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{secret}')",
        "SELECT * FROM read_blob('{secret}')",
        "SELECT * FROM read_csv('{secret}')",
        "SELECT * FROM '{secret}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{secret}')",
        "SELECT * FROM duckdb_secrets(redact = false)",
        "SELECT * FROM secret_frame",
        "SELECT getenv('HOME')",
    ],
)
def test_sql_sees_no_file_no_variable_and_no_environment(sql: str, path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,hunter2\n")
    secret_frame = pl.DataFrame({"x": ["hunter2"]})
    with open_store(path) as store:
        try:
            result = store.guarded_sql(sql.format(secret=secret, folder=tmp_path))
        except StoreError as error:
            assert "hunter2" not in str(error)
        else:
            assert "hunter2" not in str(result.frame.rows())
            assert result.frame.is_empty()
    assert secret_frame.height == 1


def test_rows_over_the_limit_are_cut_and_said_so(path: Path) -> None:
    with open_store(path) as store:
        result = store.guarded_sql("SELECT * FROM range(100000)", row_limit=1000)
        assert result.frame.height == 1000
        assert result.cut
        exact = store.guarded_sql("SELECT * FROM range(1000)", row_limit=1000)
        assert exact.frame.height == 1000
        assert not exact.cut


def test_bytes_over_the_limit_are_cut(path: Path) -> None:
    with open_store(path) as store:
        result = store.guarded_sql("SELECT repeat('x', 100000) AS t FROM range(9000)", row_limit=9000)
        assert result.cut
        assert result.frame.estimated_size() <= 65 << 20


def test_a_query_that_takes_too_long_is_stopped(path: Path) -> None:
    with open_store(path) as store:
        with pytest.raises(QueryRefusedError, match=r"stopped after 0\.2 s"):
            store.guarded_sql(
                "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", time_limit_s=0.2
            )
        assert store.frame("SELECT count(*) FROM events").item() == 2


def test_a_query_that_takes_too_much_memory_is_stopped(path: Path) -> None:
    with open_store(path) as store:
        with pytest.raises(QueryRefusedError, match="memory"):
            store.guarded_sql(
                "SELECT count(*) FROM (SELECT DISTINCT range, repeat('x', 100) || range FROM range(5000000))",
                memory_limit="32MiB",
            )
        assert store.frame("SELECT count(*) FROM events").item() == 2


def test_wrong_sql_is_a_plain_message(path: Path) -> None:
    with open_store(path) as store:
        for sql in ("SELECT nothing FROM events", "SELEC 1"):
            with pytest.raises(StoreError) as caught:
                store.guarded_sql(sql)
            assert "\n" not in str(caught.value)


def test_long_work_draws_no_bar_on_standard_output(path: Path, tmp_path: Path) -> None:
    # DuckDB does so after two seconds, unless each connection and each cursor says no.
    setting = "SELECT current_setting('enable_progress_bar')"
    with open_store(path) as store:
        assert store.frame(setting).item() is False
        assert store.guarded_sql(setting).frame.item() is False
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.frame, setting).result().item() is False
    writer = StoreWriter(tmp_path / "new.duckdb")
    assert writer.setting("enable_progress_bar") is False
    writer.abandon()


def test_the_store_itself_reads_no_file(path: Path) -> None:
    with Store(path) as store, pytest.raises(StoreError, match="disabled"):
        store.frame("SELECT * FROM read_text('/etc/hostname')")
