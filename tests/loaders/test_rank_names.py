"""Which rank a dump is of, by names met in the field."""

from __future__ import annotations

import pytest

from mycroft.loaders.rank_names import ranks_of

FIELD = {
    "torch": [f"nccl_trace_rank_{r}" for r in range(12)],
    "newer torch": [f"comm_lib_trace_rank_{r}" for r in range(12)],
    "short": [f"_dump_{r}" for r in range(12)],
    "endings": [f"trace_{r}.pickle.gz" for r in range(12)],
    "json": [f"fr_json/fr_trace_rank_{r}.json" for r in range(12)],
    "hash": [f"9f31c2_rank_{r}" for r in range(12)],
    "host and rank": [f"nccl_trace_rank_host{r // 4}_{r}" for r in range(12)],
    "address and rank": [f"nccl_trace_rank_10.0.0.{r // 4}_{r}" for r in range(12)],
    "rank and date": [f"rank_{r}_20260302.pkl" for r in range(12)],
    "rank and process": [f"rank{r}_pid{4000 + 7 * r}" for r in range(12)],
    "folder": [f"rank_{r}/fr_trace" for r in range(12)],
    "folder and version": [f"run/rank_{r}/trace_v2.pickle" for r in range(12)],
    "folder of a number": [f"attempt_0/{r}/dump.pickle" for r in range(12)],
    "in an archive": [f"node-{r // 4}.tgz!fr/nccl_trace_rank_{r}" for r in range(12)],
    "archive per rank": [f"dumps!rank-{r}.tar!nccl_trace" for r in range(12)],
    "plain number": [str(r) for r in range(12)],
    "file ending of a number": [f"nccl_trace.{r}" for r in range(12)],
}


@pytest.mark.parametrize("names", FIELD.values(), ids=FIELD.keys())
def test_the_rank_is_the_number_that_tells_the_files_apart(names: list[str]) -> None:
    assert ranks_of(names) == list(range(12))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_7", 7),
        ("trace_rank_3_1764000001.pickle", 3),
        ("dump_h100_5", 5),
        ("fr/rank_12/trace", 12),
        ("dump", None),
        ("dump_20260302T101112123", None),
    ],
)
def test_a_single_file_is_known_by_its_most_telling_number(name: str, rank: int | None) -> None:
    assert ranks_of([name]) == [rank]


def test_two_dumps_of_each_rank_keep_their_ranks() -> None:
    names = [f"{when}/nccl_trace_rank_{r}" for when in ("dump_0", "dump_1") for r in range(8)]
    assert ranks_of(names) == [*range(8), *range(8)]


def test_pickles_and_json_of_the_same_ranks_do_not_disturb_each_other() -> None:
    names = [f"fr/trace_{r}" for r in range(8)] + [f"fr_json/rank{r}_v2.json" for r in range(8)]
    assert ranks_of(names) == [*range(8), *range(8)]


def test_the_order_of_the_files_does_not_matter() -> None:
    names = FIELD["rank and date"]
    assert ranks_of(names[::-1]) == list(range(12))[::-1]
