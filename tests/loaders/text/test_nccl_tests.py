"""Tables of nccl-tests of all ages."""

# Log lines are as long as they are.
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence_wrappers import WRAPPERS
from tests.loaders.text.recorder import Recorder, read

DATA = Path(__file__).parents[2] / "data"
HEAD = "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
RANKS = {
    "new": "#  Rank  0 Group  0 Pid   5092 on       n1 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n#  Rank  1 Group  0 Pid   5093 on       n2 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n",
    "2.13": "#  Rank  0 Group  0 Pid   5092 on       n1 device  0 [0x1b] NVIDIA H100 80GB HBM3\n#  Rank  1 Group  0 Pid   5093 on       n2 device  0 [0x1b] NVIDIA H100 80GB HBM3\n",
    "old": "#   Rank  0 Pid   5092 on       n1 device  0 [0x1b] NVIDIA A100-SXM4-80GB\n#   Rank  1 Pid   5093 on       n2 device  0 [0x1b] NVIDIA A100-SXM4-80GB\n",
}  # fmt: skip
ROWS = {
    "new": "   134217728      33554432     float     sum      -1    857.6  156.51  293.46      0    819.6  163.76  307.05      0\n",
    "no root": "   134217728      33554432     float     sum    857.6  156.51  293.46      0    819.6  163.76  307.05      0\n",
    "old": "   134217728      33554432     float     sum    857.6  156.51  293.46  0e+00    819.6  163.76  307.05  0e+00\n",
    "gather": "   134217728      33554432     float    857.6  156.51  293.46  0e+00    819.6  163.76  307.05  0e+00\n",
    "not checked": "   134217728      33554432     float     sum      -1    857.6  156.51  293.46    N/A    819.6  163.76  307.05    N/A\n",
}  # fmt: skip
TAIL = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 150.04\n"


def bench(found: Recorder) -> list[tuple[object, ...]]:
    return [(r["bytes"], r["dur_ms"], r["value"], r["detail"]) for r in found.rows(kind="bench_row") if "bytes" in r]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("ranks", RANKS)
def test_tables_of_every_age(tmp_path: Path, ranks: str, row: str) -> None:
    found = read(tmp_path, HEAD + RANKS[ranks] + "#\n" + ROWS[row] + TAIL, "all_reduce_n1_n2.txt")
    assert bench(found) == [(134217728, 0.8576, 293.46, "out-of-place"), (134217728, 0.8196, 307.05, "in-place")]
    first = found.rows(kind="bench_row")[0]
    assert (first["group_desc"], first["op_kind"], first["dtype"]) == ("n1,n2", "all_reduce", "float")
    who = [(r["comm_rank"], r["pid"], r["device"], found.host_name(r)) for r in found.rows(kind="identity")]
    assert who == [(0, 5092, "0000:1b:00.0", "n1"), (1, 5093, "0000:1b:00.0", "n2")]
    assert found.event("bench_row", name="average")["value"] == 150.04


def test_wrong_results_are_errors(tmp_path: Path) -> None:
    bad = ROWS["new"].replace("293.46      0", "293.46     17")
    found = read(tmp_path, HEAD + RANKS["new"] + bad + "# Out of bounds values : 1 FAILED\n")
    assert [(r["code"], r["level"]) for r in found.rows(kind="bench_row") if "bytes" in r] == [
        (17, "error"),
        (0, "info"),
    ]
    assert found.event("bench_row", name="wrong")["code"] == 1


def test_a_table_that_never_begins(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + RANKS["new"])
    assert found.event("bench_row")["name"] == "unfinished"


def test_a_failure(tmp_path: Path) -> None:
    text = "n1: Test NCCL failure common.cu:958 'remote process exited or there was a network error / '\n"
    row = read(tmp_path, HEAD + RANKS["new"] + text).event("bench_row", name="failure")
    assert "common.cu:958" in row["detail"]


def test_nccl_s_own_lines_in_between(tmp_path: Path) -> None:
    noise = "n1:5092:5092 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.5<0>\n"
    found = read(tmp_path, HEAD + RANKS["new"] + noise + ROWS["new"] + noise.replace("0.5", "0.6") + ROWS["new"])
    assert len(bench(found)) == 4
    assert len(found.rows(kind="identity", name="address")) == 2


def test_two_runs_in_one_file(tmp_path: Path) -> None:
    found = read(tmp_path, 2 * (HEAD + RANKS["new"] + ROWS["new"] + TAIL))
    assert len({r["group_name"] for r in found.rows(kind="bench_row") if "bytes" in r}) == 2


@pytest.mark.parametrize("name", ["nccl_allreduce.log", "nccl_alltoall.log"])
def test_public_tables(tmp_path: Path, name: str) -> None:
    content = (DATA / "public" / "nccl_tests" / name).read_bytes()
    found = read(tmp_path, content, name)
    rows = bench(found)
    assert len(rows) >= 40
    assert all(isinstance(value, float) and value >= 0 for _, _, value, _ in rows)


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_wrappers_change_nothing(tmp_path: Path, wrapper: str) -> None:
    found = read(tmp_path, WRAPPERS[wrapper](HEAD + RANKS["new"] + ROWS["new"] + TAIL))
    assert [row[2] for row in bench(found)] == [293.46, 307.05]


def test_an_average_that_two_writers_tore_is_no_number(tmp_path: Path) -> None:
    torn = "# nThread 1 nGpus 1 minBytes 8 maxBytes 128 step: 2(factor) warmup iters: 5 iters: 20\n# Avg bus bandwidth    : {}\n"
    assert not read(tmp_path, torn.format("2.013.02")).rows(kind="bench_row", name="average")
    (tmp_path / "whole").mkdir()
    assert read(tmp_path / "whole", torn.format("150.04")).event("bench_row", name="average")["value"] == 150.04
