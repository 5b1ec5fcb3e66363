"""Row, column or cell: whose fault a slow transfer is."""

# Records are as long as they are.

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from mycroft.analysis.link_matrix import Matrix, has_links, hosts_matrix, ranks_matrix, read_matrices
from tests.analysis import incidents as make
from tests.loaders.sources import loaded

SIZE = 6


def transfers(
    time_ms: Callable[[int, int], float],
    *,
    late: int | None = None,
    times: int = 12,
    sizes: tuple[int, ...] = (1 << 20,),
) -> pl.DataFrame:
    """Every rank sends to every other, both sides measure; `late` comes 50 ms after its peers each time."""
    dice = random.Random(4)
    rows = []
    for number in range(times):
        for size in sizes:
            for a in range(SIZE):
                for b in range(SIZE):
                    if a != b:
                        ms = time_ms(a, b) * size / (1 << 20) * dice.uniform(0.95, 1.05)
                        rows.append((a, b, "send", size, ms + 50 * (b == late), number, 0, 1))
                        rows.append((b, a, "recv", size, ms + 50 * (a == late), number, 0, 1))
    names = ("rank", "peer", "kind", "bytes", "ms", "series", "file", "line")
    return pl.DataFrame(rows, schema=list(names), orient="row")


def odd(matrix: Matrix | None) -> list[tuple[str, str, str]]:
    assert matrix is not None
    return [(o.kind, o.src, o.dst) for o in matrix.odd]


def test_a_slow_sender_is_a_row() -> None:
    assert odd(ranks_matrix(transfers(lambda a, b: 3.0 if a == 2 else 1.0))) == [("row", "rank 2", "")]


def test_a_slow_receiver_is_a_column() -> None:
    assert odd(ranks_matrix(transfers(lambda a, b: 3.0 if b == 4 else 1.0))) == [("column", "", "rank 4")]


def test_who_is_slow_either_way_is_one_end() -> None:
    assert odd(ranks_matrix(transfers(lambda a, b: 3.0 if 1 in (a, b) else 1.0))) == [("both", "rank 1", "")]


def test_one_slow_cell_is_the_path() -> None:
    assert odd(ranks_matrix(transfers(lambda a, b: 3.0 if (a, b) == (0, 5) else 1.0))) == [("cell", "rank 0", "rank 5")]


def test_who_comes_late_is_no_slow_end() -> None:
    assert odd(ranks_matrix(transfers(lambda a, b: 1.0, late=3))) == []


def test_sizes_are_not_compared_with_each_other() -> None:
    both = transfers(lambda a, b: 1.0, sizes=(1 << 20, 1 << 26))
    small = pl.col("bytes") == 1 << 20
    # One sender has small messages only, another large ones only.
    kept = both.filter(~((pl.col("rank") == 0) & ~small) & ~((pl.col("rank") == 1) & small))
    assert odd(ranks_matrix(kept)) == []


def test_a_link_says_since_when() -> None:
    calls = iter(range(10**6))
    matrix = ranks_matrix(transfers(lambda a, b: 4.0 if (a, b) == (0, 1) and next(calls) >= 12 else 1.0, times=40))
    assert matrix is not None
    assert next(link.since for link in matrix.links if link.factor > 2) == "since operation 13 of 40"


def test_few_links_accuse_nobody() -> None:
    frame = transfers(lambda a, b: 9.0 if a == 0 else 1.0).filter((pl.col("rank") < 2) & (pl.col("peer") < 2))
    assert odd(ranks_matrix(frame)) == []


@pytest.mark.parametrize(
    ("slow", "found"),
    [((lambda a, b: 2 in (a, b)), [("both", "n2", "")]), ((lambda a, b: (a, b) == (0, 1)), [("cell", "n0", "n1")])],
)
def test_pairs_of_hosts(slow: Callable[[int, int], bool], found: list[tuple[str, str, str]]) -> None:
    rows = [
        (f"n{a},n{b}", 1 << 27, 40.0 if slow(a, b) else 150.0, 0, 1) for a in range(4) for b in range(a + 1, 4)
    ]  # fmt: skip
    assert (
        odd(hosts_matrix(pl.DataFrame(rows, schema=["hosts", "bytes", "gbs", "file", "line"], orient="row"))) == found
    )


def test_nothing_measured_is_no_matrix(tmp_path: Path) -> None:
    with loaded(tmp_path, {"nccl.log": make.start_up(4)}) as store:
        assert not has_links(store)
        assert read_matrices(store) == ()


def inspected(slow: Callable[[int, int], bool], size: int = 4) -> dict[str, str]:
    """Inspector's records of sends between all ranks."""
    files: dict[str, str] = {}
    for rank in range(size):
        lines: list[str] = []
        for peer in range(size):
            for sn in range(6 if peer != rank else 0):
                record = {
                    "header": {"id": "0xab12", "rank": rank, "n_ranks": size, "nnodes": 2},
                    "metadata": {
                        "inspector_output_format_version": "v5.0",
                        "hostname": f"n{rank // 2}",
                        "pid": 50 + rank,
                    },
                    "p2p_perf": {
                        "p2p": "Send",
                        "p2p_sn": sn,
                        "p2p_peer": peer,
                        "p2p_msg_size_bytes": 1 << 20,
                        "p2p_exec_time_us": 900 if slow(rank, peer) else 300,
                    },
                }
                lines.append(make.json.dumps(record))
        files[f"n{rank // 2}-pid{50 + rank}.log"] = "\n".join(lines) + "\n"
    return files


def test_inspector_s_records_are_read(tmp_path: Path) -> None:
    with loaded(tmp_path, inspected(lambda a, _b: a == 3)) as store:
        assert has_links(store)
        (matrix,) = read_matrices(store)
    assert (matrix.ends, odd(matrix)) == ("ranks", [("row", "rank 3", "")])
    assert matrix.odd[0].factor == pytest.approx(3)


def test_a_slow_sender_is_a_finding(tmp_path: Path) -> None:
    found = make.named(make.verdict_of(tmp_path, inspected(lambda a, _b: a == 3)))
    assert found[:3] == ("slow_nic", "medium", (3,))


def test_a_slow_path_is_one_of_its_ends(tmp_path: Path) -> None:
    verdict = make.verdict_of(tmp_path, inspected(lambda a, b: (a, b) == (0, 3)))
    assert make.named(verdict)[:3] == ("network_congestion", "medium", (0, 3))
    assert verdict.findings[0].root_cause.one_of


def test_even_links_are_no_finding(tmp_path: Path) -> None:
    assert not make.verdict_of(tmp_path, inspected(lambda _a, _b: False)).findings
