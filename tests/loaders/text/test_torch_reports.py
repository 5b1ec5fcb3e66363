"""Reports in which torch compares ranks: rows are of the ranks spoken of, not of the one that speaks."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

from tests.loaders.text.recorder import read

DESYNC = """\
[rank0]:[E217 09:14:03.1 p.cpp:1] Watchdog …
\t - [0] Timeout at collective: ALLREDUCE, #4523
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [2, 5] joined but didn't finish collective #4411 (count from 1)
\t     [6] finished collective #4410, but didn't join collective #4411 (count from 1)
\t - Snapshot of ranks' latest states:
\t   #4410 finished ranks:
\t     [6] finished ALLREDUCE
\t   #4523 started ranks:
\t     [0, 1, 3] started ALLREDUCE
"""


def test_a_desync_report_names_who_did_not_join(tmp_path: Path) -> None:
    rows = read(tmp_path, DESYNC).rows(kind="desync_report")
    by_name = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append((row["comm_rank"], row["seq"]))
    assert by_name == {
        "not_finished": [(2, 4411), (5, 4411)],
        "not_joined": [(6, 4411)],
        "finished": [(6, 4410)],
        "started": [(0, 4523), (1, 4523), (3, 4523)],
    }
    assert all("rank" not in row for row in rows)


def test_ranks_that_never_joined_anything(tmp_path: Path) -> None:
    text = " - To our best knowledge, ranks [3, 7] are the lagging ranks that caused this timeout. They never joined any collectives\n"
    rows = read(tmp_path, text).rows(kind="desync_report")
    assert [(row["comm_rank"], row["name"]) for row in rows] == [(3, "never_joined"), (7, "never_joined")]


def fingerprint(number: str, shape: str, op: str = "_ALLGATHER_BASE") -> str:
    return f"CollectiveFingerPrint({number}OpType={op}, TensorShape=[{shape}], TensorDtypes=BFloat16, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda))"


def test_a_fingerprint_mismatch_is_a_row_for_each_of_the_two(tmp_path: Path) -> None:
    text = (
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        f"{fingerprint('SequenceNumber=77, ', '192, 1, 1728, 16')}, but Rank 2 is running collective: "
        f"{fingerprint('SequenceNumber=77, ', '192, 1, 1731, 16')}.Collectives differ in the following aspects: \t Tensor shapes\n"
    )
    first, second = read(tmp_path, text).rows(kind="fingerprint_mismatch")
    assert (first["comm_rank"], first["seq"], first["in_numel"], first["peer"]) == (1, 77, 192 * 1728 * 16, "2")
    assert (second["comm_rank"], second["in_numel"], second["dtype"]) == (2, 192 * 1731 * 16, "BFloat16")
    assert first["peer_rank"] == 1


def test_older_fingerprints_lack_parts(tmp_path: Path) -> None:
    text = (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running inconsistent collective: "
        "CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[1], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(x)).\n"
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=1OpType=BARRIER), but Rank 2 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[4, 2], TensorDtypes=Float, X).\n"
    )
    rows = read(tmp_path, text).rows(kind="fingerprint_mismatch")
    assert [(row["comm_rank"], row["op_kind"], row.get("seq"), row.get("in_numel")) for row in rows] == [
        (0, "all_reduce", None, 1),
        (3, "barrier", 1, None),
        (2, "all_reduce", 1, 8),
    ]


def test_monitored_barrier_names_the_absent(tmp_path: Path) -> None:
    text = (
        "RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 30000 ms\n"
        "RuntimeError: [Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 30000 ms\n"
    )
    rows = read(tmp_path, text).rows(kind="join_timeout")
    assert [(row["comm_rank"], row["dur_ms"]) for row in rows] == [(3, 30000.0), (4, 30000.0), (5, 30000.0)]


def test_ddp_models_that_differ(tmp_path: Path) -> None:
    text = (
        "RuntimeError: DDP expects same model across all ranks, but Rank 2 has 161 params, while rank 0 has inconsistent 158 params.\n"
        "RuntimeError: [1]: params[4] in this process with sizes [2, 3] appears not to match sizes of the same param in process 0.\n"
    )
    rows = read(tmp_path, text).rows(kind="fingerprint_mismatch")
    assert [(row["name"], row["comm_rank"], row.get("value"), row.get("in_numel")) for row in rows] == [
        ("ddp_params", 2, 161.0, None),
        ("ddp_params", 0, 158.0, None),
        ("ddp_shape", 1, None, 6),
    ]


ANALYSIS = """\
Collective sequence number: 77 has errors
internal record id: 76
group info: 0:default_pg
collective: nccl:all_reduce
missing ranks: {6}
input sizes: [[3, 4]]
output sizes: [[3, 4]]
world size: 8
expected ranks: {0, 1, 2, 3, 4, 5, 6, 7}
collective state: scheduled
Collective 39 at entry 38 errors
group info: 4:mesh_tp
collective: nccl:_all_gather_base
error msg: Culprit rank 22; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[4]]' does not match found input sizes: '[[5]]'
"""


def test_the_analyser_s_opinion_is_kept_as_such(tmp_path: Path) -> None:
    missing, culprit = read(tmp_path, ANALYSIS).rows(kind="fr_analysis")
    assert (missing["rank"], missing["name"], missing["seq"], missing["op_kind"], missing["group_name"]) == (
        6,
        "missing",
        77,
        "all_reduce",
        "0",
    )
    assert (culprit["rank"], culprit["name"], culprit["seq"], culprit["group_desc"]) == (
        22,
        "size_or_syntax_mismatch",
        39,
        "mesh_tp",
    )
