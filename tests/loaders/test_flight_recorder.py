"""Flight Recorder dumps of every layout become the same rows that Python's own unpickler would give."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from mycroft.loaders import LoadSummary, Store, load, open_store, schema
from mycroft.loaders._core import DumpReader
from mycroft.loaders.flight_recorder import parse_ranks
from tests.loaders import dumps

ITEM_BYTES = {"Float": 4, "BFloat16": 2, "Long": 8, "Double": 8, "Int": 4, "Byte": 1}


def loaded(source: Path, tmp_path: Path) -> tuple[LoadSummary, Store]:
    out = tmp_path / "trace.duckdb"
    out.unlink(missing_ok=True)
    summary = load([source], out)
    return summary, open_store(out)


def ops_of(store: Store, rank: int) -> list[dict[str, Any]]:
    sql = "SELECT o.*, c.name AS group_name FROM coll_ops AS o JOIN communicators AS c USING (comm_id) WHERE rank = ?"
    return store.frame(sql + " ORDER BY line", [rank]).to_dicts()


def ns(value: Any) -> int | None:
    """Return a time of a row as ns since 1970."""
    return None if value is None else pl.Series([value], dtype=pl.Datetime("ns")).cast(pl.Int64).item()


def rank_times(store: Store, rank: int, column: str) -> list[int | None]:
    sql = f"SELECT {column} FROM coll_ops WHERE rank = ? ORDER BY line"
    return store.frame(sql, [rank])[column].cast(pl.Int64).to_list()


def numel(sizes: list[list[int]]) -> int:
    return sum(math.prod(size) for size in sizes)


def assert_same(store: Store, rank: int, reference: dict[str, Any]) -> None:
    rows = ops_of(store, rank)
    entries = reference["entries"]
    assert len(rows) == len(entries)
    created = [e.get("time_created_ns", e.get("time_created_us", 0) * 1000) for e in entries]
    assert rank_times(store, rank, "enq_ts") == created
    for column, field in (("seen_start_ts", "started"), ("seen_end_ts", "completed")):
        wanted = [e.get(f"time_discovered_{field}_ns") or None for e in entries]
        assert rank_times(store, rank, column) == wanted
    for i, (row, entry) in enumerate(zip(rows, entries, strict=True)):
        name = entry["profiling_name"].split(":", 1)[1]
        assert row["line"] == i
        assert row["op_name"] == name
        p2p = name.startswith(("send", "recv"))
        if name != "coalesced":
            p2p_seq, seq = (
                entry.get("p2p_seq_id", entry.get("seq_id")),
                entry.get("collective_seq_id", entry.get("seq_id")),
            )
            assert row["op_seq"] == (p2p_seq if p2p else seq)
            assert row["is_p2p"] == p2p
        assert row["record_id"] == entry.get("record_id")
        assert row["op_id"] == entry.get("op_id")
        assert row["state"] == entry["state"]
        assert row["retired"] == entry["retired"]
        assert row["timeout_ms"] == entry.get("timeout_ms")
        assert row["in_sizes"].replace(" ", "") == str(entry["input_sizes"]).replace(" ", "")
        assert row["out_sizes"].replace(" ", "") == str(entry["output_sizes"]).replace(" ", "")
        assert row["in_numel"] == numel(entry["input_sizes"])
        assert row["out_numel"] == numel(entry["output_sizes"])
        assert row["dtype"] == (",".join(entry.get("input_dtypes", [])) or None)
        assert row["out_dtype"] == (",".join(entry.get("output_dtypes", [])) or None)
        duration = entry.get("duration_ms")
        assert row["dur_ns"] == (None if duration is None else round(duration * 1e6))
        if "process_group" in entry:
            assert row["group_name"] == entry["process_group"][0]
        if entry.get("input_dtypes"):
            item = ITEM_BYTES[entry["input_dtypes"][0]]
            assert row["bytes"] == item * max(row["in_numel"], row["out_numel"])
        frames = entry.get("frames")
        assert (row["stack_id"] is None) == (not frames)
        if frames:
            stack = store.frame("SELECT frames FROM stack_texts WHERE stack_id = ?", [row["stack_id"]]).item()
            assert list(stack) == [f"{f['name']} ({f['filename']}:{f['line']})" for f in frames]


@pytest.mark.parametrize("case", ["healthy", "pg_order", "size_mismatch", "straggler"])
def test_real_gloo_dumps_become_the_rows_that_they_hold(case: str, tmp_path: Path) -> None:
    _, store = loaded(dumps.SAMPLES / case / "fr", tmp_path)
    with store:
        for path in (dumps.SAMPLES / case / "fr").iterdir():
            assert_same(store, int(path.name.rsplit("_", 1)[1]), dumps.unpickled(path))


@pytest.mark.parametrize("case", ["gpu_error", "lock_gil"])
def test_real_nccl_dumps_become_the_rows_that_they_hold(case: str, tmp_path: Path) -> None:
    _, store = loaded(dumps.NCCL_SAMPLES / case, tmp_path)
    with store:
        for path in (dumps.NCCL_SAMPLES / case).glob("_dump_*"):
            assert_same(store, int(path.name.rsplit("_", 1)[1]), dumps.unpickled(path))


@pytest.mark.parametrize("case", ["healthy", "sigkill"])
def test_json_says_the_same_as_the_pickle_but_for_the_stacks(case: str, tmp_path: Path) -> None:
    _, store = loaded(dumps.SAMPLES / case / "fr_json", tmp_path)
    with store:
        paths = sorted((dumps.SAMPLES / case / "fr_json").iterdir())
        assert len(paths) >= 7
        for path in paths:
            assert_same(store, int(path.stem.rsplit("_", 1)[1]), dumps.unpickled(path))
        assert store.frame("SELECT count(stack_id) FROM coll_ops").item() == 0


LAYOUTS = ("list", "1.4", *(f"2.{minor}" for minor in range(1, 11)))
SWITCHED = [(version, flag) for version in ("list", "1.4", "2.1", "2.10") for flag in ("--timing", "--no-frames")]


@pytest.mark.parametrize(("version", "more"), [*((version, "") for version in LAYOUTS), *SWITCHED])
def test_every_layout_becomes_the_rows_that_it_holds(version: str, more: str, tmp_path: Path) -> None:
    source = dumps.generate(tmp_path / "in", "--fr-version", version, *more.split())
    _, store = loaded(source, tmp_path)
    with store:
        for rank in (0, 5, 15):
            assert_same(store, rank, dumps.unpickled(source / "fr" / f"nccl_trace_rank_{rank}"))
        versions = store.frame("SELECT DISTINCT version FROM rank_dumps")["version"].to_list()
        assert versions == [version]
        sizes = store.frame("SELECT kind, size FROM communicators WHERE seen_size > 0 ORDER BY size DESC").rows()
        assert sizes[0] == ("world", 16)
        # Groups of 8 (DP of 4 each), 8 (TP of 2 each), 8 (PP of 2 each) and the world, in every layout.
        assert len(sizes) == 1 + 4 + 8 + 8


@pytest.mark.parametrize("version", ["1.4", "2.1", "2.4", "2.9", "2.10"])
def test_groups_need_no_topology_file(version: str, tmp_path: Path) -> None:
    source = dumps.generate(tmp_path / "in", "--fr-version", version)
    _, with_file = loaded(source, tmp_path)
    groups = """
    SELECT m.rank, list(c.size ORDER BY c.comm_id)
    FROM members AS m
    JOIN communicators AS c USING (comm_id)
    GROUP BY ALL
    ORDER BY ALL
    """
    with with_file:
        wanted = sorted(map(str, with_file.frame(groups).rows()))
    (source / "job.json").unlink()
    _, without = loaded(source, tmp_path)
    with without:
        assert len(wanted) == 16
        assert [sorted(row[1]) for row in without.frame(groups).rows()] == [[2, 2, 4, 16]] * 16


def test_json_of_the_generator_matches_its_pickles(tmp_path: Path) -> None:
    source = dumps.generate(tmp_path / "in", "--json", "--timing", "--batched-p2p", "--no-frames")
    wanted = "SELECT * EXCLUDE (file_id) FROM coll_ops ORDER BY rank, line"
    _, store = loaded(source / "fr", tmp_path)
    with store:
        pickles = store.frame(wanted)
    _, store = loaded(source / "fr_json", tmp_path)
    with store:
        assert store.frame(wanted).equals(pickles)


def test_protocols_4_and_5_of_pythons_own_pickler_are_read(tmp_path: Path) -> None:
    reference = dumps.unpickled(dumps.NCCL_SAMPLES / "gpu_error" / "_dump_9")
    for protocol in (2, 3, 4, 5):
        source = tmp_path / str(protocol)
        dumps.write(source / "_dump_9", reference, protocol=protocol)
        _, store = loaded(source, tmp_path)
        with store:
            assert_same(store, 9, reference)


# ---- groups ---------------------------------------------------------------------------------


def test_pg_status_of_the_real_dumps_belongs_to_groups_by_numeric_order(tmp_path: Path) -> None:
    _, store = loaded(dumps.NCCL_SAMPLES / "gpu_error", tmp_path)
    with store:
        sql = """
        SELECT c.name, s.last_enqueued, s.last_completed
        FROM group_status AS s JOIN communicators AS c USING (comm_id)
        WHERE s.rank = 9 ORDER BY c.name::INTEGER
        """
        assert store.frame(sql).rows() == [
            ("0", 13996, 13995),
            ("6", 580, 580),
            ("33", 145, 145),
            ("37", 87760, 87748),
            ("42", 13998, 13997),
            ("43", 30, 30),
            ("64", 14959, 14958),
            ("69", 7502, 7501),
            ("72", 44790, 44787),
            ("90", 7473, 7472),
            ("91", 29, 29),
            ("101", 493, 493),
            ("108", 116, 116),
        ]


def test_roles_of_a_megatron_job_are_recognised(tmp_path: Path) -> None:
    _, store = loaded(dumps.NCCL_SAMPLES / "gpu_error", tmp_path)
    with store:
        roles = dict(store.frame('SELECT DISTINCT "desc", kind FROM communicators').rows())
        keys = store.frame("SELECT key FROM communicators")["key"]
        assert keys.n_unique() == len(keys) == 59
    assert roles["default_pg"] == "world"
    assert roles["TENSOR_MODEL_PARALLEL_GROUP"] == "tp"
    assert roles["PIPELINE_MODEL_PARALLEL_GROUP"] == "pp"
    assert roles["DATA_PARALLEL_GROUP_WITH_CP"] == "dp"
    assert roles["EXPERT_MODEL_PARALLEL_GROUP"] == "ep"
    assert roles["EXPERT_DATA_PARALLEL_GROUP"] == "edp"


def test_members_of_gloo_groups_come_from_the_entries_where_nobody_lists_them(tmp_path: Path) -> None:
    _, store = loaded(dumps.SAMPLES / "healthy" / "fr", tmp_path)
    with store:
        sql = """
        SELECT c.name, c.size, list(m.rank ORDER BY m.rank), any_value(m.source), any_value(m.comm_rank)
        FROM communicators AS c JOIN members AS m USING (comm_id) WHERE c.name = '9' GROUP BY ALL
        """
        assert store.frame(sql).rows() == [("9", None, [0, 4], "entries", None)]


def test_two_groups_of_one_name_stay_apart_by_their_members(tmp_path: Path) -> None:
    for rank, ranks in enumerate([[0, 1], [0, 1], [2, 3], [2, 3]]):
        config = {**dumps.group("0", "default_pg", [0, 1, 2, 3]), **dumps.group("7", "split", ranks)}
        entries = [dumps.entry(process_group=("7", "split"), pg_id=1)]
        dumps.write(tmp_path / "in" / f"trace_{rank}", dumps.dump(entries, config))
    _, store = loaded(tmp_path / "in", tmp_path)
    with store:
        sql = "SELECT comm_id, list(DISTINCT rank ORDER BY rank) FROM coll_ops GROUP BY comm_id ORDER BY comm_id"
        assert [row[1] for row in store.frame(sql).rows()] == [[0, 1], [2, 3]]


def test_ranks_are_a_list_of_numbers_or_nothing() -> None:
    assert parse_ranks("[0, 1, 15]") == (0, 1, 15)
    assert parse_ranks(" [ 3 ] ") == (3,)
    assert parse_ranks("[]") == ()
    for text in (
        "[0, __import__('os')]",
        "[1,]",
        "[-1]",
        "[1 2]",
        "(0, 1)",
        "[0, 0]",
        "[99999999999]",
        "[5000000000]",
        "",
    ):
        assert parse_ranks(text) is None, text


# ---- send and receive, coalesced groups -------------------------------------------------------


def test_the_partner_of_a_send_is_a_global_rank(tmp_path: Path) -> None:
    config = {**dumps.group("0", "default_pg", list(range(16))), **dumps.group("4", "pp", [3, 7, 11])}
    p2p = {"process_group": ("4", "pp"), "is_p2p": True, "collective_seq_id": 0}
    entries = [
        dumps.entry(**p2p, profiling_name="nccl:send 1->2", p2p_seq_id=1),
        dumps.entry(**p2p, profiling_name="nccl:recv 1<-0", p2p_seq_id=2),
        dumps.entry(**p2p, profiling_name="nccl:send 1->2", p2p_seq_id=3),
        dumps.entry(**p2p, profiling_name="nccl:send 1->9", p2p_seq_id=4),
        dumps.entry(**p2p, profiling_name="nccl:recvAnySource", p2p_seq_id=5),
    ]
    dumps.write(tmp_path / "in" / "trace_7", dumps.dump(entries, config))
    _, store = loaded(tmp_path / "in", tmp_path)
    with store:
        rows = store.frame("SELECT op_kind, op_seq, peer, pair_seq FROM coll_ops ORDER BY line").rows()
    assert rows == [
        ("send", 1, 11, 0),
        ("recv", 2, 3, 0),
        ("send", 3, 11, 1),
        ("send", 4, None, 0),
        ("recv", 5, None, None),
    ]


def test_partners_of_groups_that_the_dump_does_not_list_come_from_the_topology(tmp_path: Path) -> None:
    entries = [dumps.entry(process_group=("4", "pp"), is_p2p=True, profiling_name="nccl:send 1->0", p2p_seq_id=1)]
    dumps.write(tmp_path / "in" / "trace_7", dumps.dump(entries))
    (tmp_path / "in" / "job.json").write_text(
        '{"world_size": 8, "groups": [{"name": "4", "desc": "pp", "ranks": [3, 7]}]}'
    )
    _, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT peer FROM coll_ops").item() == 3


def test_members_of_a_batch_of_sends_are_told_from_their_closing_entry(tmp_path: Path) -> None:
    p2p = {"is_p2p": True, "collective_seq_id": 6, "p2p_seq_id": 3}
    entries = [
        dumps.entry(collective_seq_id=6, p2p_seq_id=2),
        dumps.entry(**p2p, profiling_name="nccl:send 0->1"),
        dumps.entry(**p2p, profiling_name="nccl:recv 0<-1"),
        dumps.entry(
            profiling_name="nccl:coalesced", collective_seq_id=6, p2p_seq_id=3, state="completed", retired=True
        ),
        dumps.entry(is_p2p=True, collective_seq_id=6, p2p_seq_id=4, profiling_name="nccl:send 0->1"),
    ]
    dumps.write(tmp_path / "in" / "trace_0", dumps.dump(entries))
    _, store = loaded(tmp_path / "in", tmp_path)
    with store:
        rows = store.frame("SELECT op_kind, op_seq, is_p2p, coalesced FROM coll_ops ORDER BY line").rows()
    assert rows == [
        ("all_reduce", 6, False, False),
        ("send", 3, True, True),
        ("recv", 3, True, True),
        ("coalesced", 3, True, False),
        ("send", 4, True, False),
    ]


def test_members_of_coalesced_collectives_are_told_from_their_closing_entry(tmp_path: Path) -> None:
    entries = [
        dumps.entry(collective_seq_id=1, profiling_name="nccl:_all_gather_base"),
        dumps.entry(collective_seq_id=2, profiling_name="nccl:_all_gather_base"),
        dumps.entry(collective_seq_id=2, profiling_name="nccl:_all_gather_base"),
        dumps.entry(collective_seq_id=2, profiling_name="nccl:ALLGATHER_coalesced"),
    ]
    dumps.write(tmp_path / "in" / "trace_0", dumps.dump(entries))
    _, store = loaded(tmp_path / "in", tmp_path)
    with store:
        rows = store.frame("SELECT op_kind, op_seq, is_p2p, coalesced FROM coll_ops ORDER BY line").rows()
    assert rows == [
        ("all_gather", 1, False, False),
        ("all_gather", 2, False, True),
        ("all_gather", 2, False, True),
        ("coalesced", 2, False, False),
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl:all_reduce", "all_reduce"),
        ("nccl:allreduce_coalesced", "all_reduce"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("gloo:barrier", "barrier"),
        ("nccl2:_all_gather_base", "all_gather"),
        ("nccl:all_gather_into_tensor_coalesced", "all_gather"),
        ("xccl:_reduce_scatter_base", "reduce_scatter"),
        ("nccl:reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("nccl:_broadcast_oop", "broadcast"),
        ("nccl:_reduce_oop", "reduce"),
        ("nccl:all_to_all", "all_to_all"),
        ("nccl:alltoall_base", "all_to_all"),
        ("nccl:gather", "gather"),
        ("nccl:scatter", "scatter"),
        ("nccl:coalesced", "coalesced"),
        ("nccl:REDUCE_SCATTER_coalesced", "coalesced"),
        ("anything:else", "other"),
        ("no prefix at all: x", "other"),
    ],
)
def test_kinds_of_operations_are_known_by_name_with_any_backend(name: str, kind: str, tmp_path: Path) -> None:
    dumps.write(tmp_path / "in" / "trace_0", dumps.dump([dumps.entry(profiling_name=name)]))
    _, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT op_kind FROM coll_ops").item() == kind


# ---- which rank, which dump -------------------------------------------------------------------


def test_the_groups_of_a_dump_correct_a_misleading_name(tmp_path: Path) -> None:
    config = {**dumps.group("0", "default_pg", [0, 1, 2, 3]), **dumps.group("9", "self", [2])}
    dumps.write(tmp_path / "in" / "trace_77", dumps.dump([dumps.entry()], config))
    summary, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT rank FROM rank_dumps").item() == 2
    assert summary.problems == [("trace_77", "its name says rank 77, its groups say rank 2: taken as 2")]


def test_a_dump_without_any_rank_is_listed_with_the_reason(tmp_path: Path) -> None:
    dumps.write(tmp_path / "in" / "dump", dumps.dump([dumps.entry()]))
    summary, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT count(*) FROM coll_ops").item() == 0
    assert "its name holds no rank" in summary.problems[0][1]


def test_the_pickle_of_a_moment_is_taken_and_its_json_is_not_counted_twice(tmp_path: Path) -> None:
    summary, store = loaded(dumps.SAMPLES / "straggler", tmp_path)
    with store:
        _, pickles = loaded(dumps.SAMPLES / "straggler" / "fr", tmp_path / "only")
        with pickles:
            count = "SELECT count(*) FROM coll_ops"
            assert store.frame(count).item() == pickles.frame(count).item()
        used = store.frame("SELECT f.path FROM rank_dumps JOIN files AS f USING (file_id)")["path"]
        assert all(path.startswith("fr/") for path in used)
    notes = [problem for name, problem in summary.problems if name == "fr_json/fr_trace_rank_3.json"]
    assert notes == ["not used: rank 3 is taken from fr/nccl_trace_rank_3, which says more of the same moment"]


def test_of_two_dumps_of_one_rank_the_later_counts(tmp_path: Path) -> None:
    early = dumps.dump([dumps.entry()])
    late = dumps.dump([dumps.entry(), dumps.entry(collective_seq_id=2, time_created_ns=1_760_000_100_000_000_000)])
    dumps.write(tmp_path / "in" / "b_first" / "trace_1", early)
    dumps.write(tmp_path / "in" / "a_second" / "trace_1.json", late)
    summary, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT max(op_seq) FROM coll_ops").item() == 2
    assert (
        "b_first/trace_1",
        "not used: rank 1 is taken from a_second/trace_1.json, which is later",
    ) in summary.problems


def test_a_whole_json_counts_before_a_pickle_cut_short(tmp_path: Path) -> None:
    content = dumps.dump([dumps.entry(collective_seq_id=seq) for seq in range(1, 6)])
    dumps.write(tmp_path / "in" / "fr" / "trace_1", content)
    dumps.write(tmp_path / "in" / "fr_json" / "trace_1.json", content)
    whole = (tmp_path / "in" / "fr" / "trace_1").read_bytes()
    (tmp_path / "in" / "fr" / "trace_1").write_bytes(whole[:-300])
    summary, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT op_seq FROM coll_ops")["op_seq"].to_list() == [1, 2, 3, 4, 5]
    assert any("taken from fr_json/trace_1.json" in problem for _, problem in summary.problems)


def test_of_two_recorders_of_one_process_the_one_with_events_counts(tmp_path: Path) -> None:
    nccl = dumps.dump([dumps.entry(state="completed", retired=True)])
    late = 1_760_000_900_000_000_000
    gloo = dumps.dump([dumps.entry(profiling_name="gloo:barrier", time_created_ns=late, retired=True)])
    dumps.write(tmp_path / "in" / "nccl_trace_rank_1", nccl)
    dumps.write(tmp_path / "in" / "gloo_trace_rank_1", gloo)
    summary, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT backend, has_events FROM rank_dumps").rows() == [("nccl", True)]
    taken = "not used: rank 1 is taken from nccl_trace_rank_1, whose recorder sees starts and ends"
    assert summary.problems == [("gloo_trace_rank_1", taken)]


def test_one_broken_dump_leaves_the_others_alone(tmp_path: Path) -> None:
    for rank in range(4):
        dumps.write(tmp_path / "in" / f"trace_{rank}", dumps.dump([dumps.entry()]))
    whole = (tmp_path / "in" / "trace_2").read_bytes()
    (tmp_path / "in" / "trace_2").write_bytes(whole[:-1] + b"\xff")
    summary, store = loaded(tmp_path / "in", tmp_path)
    with store:
        assert store.frame("SELECT rank FROM coll_ops ORDER BY rank")["rank"].to_list() == [0, 1, 3]
    assert [name for name, _ in summary.problems] == ["trace_2"]
    assert "byte " in summary.problems[0][1]


def test_a_pickle_of_something_else_is_unread_and_says_so(tmp_path: Path) -> None:
    dumps.write(tmp_path / "in" / "model_config.pkl", {"hidden": 4096})
    summary, store = loaded(tmp_path / "in", tmp_path)
    store.close()
    assert summary.unread == [
        ("model_config.pkl", "is plain data without the keys of a Flight Recorder dump (entries, pg_config)")
    ]


# ---- what a recorder can see --------------------------------------------------------------------


def flags(path: Path, tmp_path: Path) -> set[tuple[bool | None, bool | None, bool | None]]:
    _, store = loaded(path, tmp_path)
    with store:
        return set(store.frame("SELECT has_events, has_timing, only_active FROM rank_dumps").rows())


def test_gloo_sees_neither_starts_nor_ends(tmp_path: Path) -> None:
    assert flags(dumps.SAMPLES / "healthy" / "fr", tmp_path) == {(False, False, False)}


def test_real_nccl_dumps_hold_only_what_was_active(tmp_path: Path) -> None:
    assert flags(dumps.NCCL_SAMPLES / "gpu_error", tmp_path) == {(True, False, True)}


def test_timing_is_seen_in_the_dump(tmp_path: Path) -> None:
    assert flags(dumps.generate(tmp_path / "a") / "fr", tmp_path) == {(True, False, False)}
    assert flags(dumps.generate(tmp_path / "b", "--timing") / "fr", tmp_path) == {(True, True, False)}


def test_names_of_kinds_and_states_agree_with_the_compiled_reader() -> None:
    reader = DumpReader()
    for kind in schema.OP_KINDS:
        name = {"all_to_all": "all_to_all", "other": "?"}.get(kind, kind)
        content = dumps.dump([dumps.entry(profiling_name=f"nccl:{name}")])
        _, batch = reader.read_bytes(pickle.dumps(content, protocol=2))
        assert schema.OP_KINDS[pl.DataFrame(batch)["op_kind"].item()] == kind
    for state in ("scheduled", "started", "completed"):
        content = dumps.dump([dumps.entry(state=state)])
        _, batch = reader.read_bytes(pickle.dumps(content, protocol=2))
        assert schema.OP_STATES[pl.DataFrame(batch)["state"].item()] == state
