"""A launcher's description of the job, in the shapes that launchers write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mycroft.loaders import LoadSummary, load, open_store
from tests.loaders import dumps


def loaded(
    content: Any, tmp_path: Path, name: str = "job.json"
) -> tuple[LoadSummary, dict[str, list[tuple[Any, ...]]]]:
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    out = tmp_path / "t.duckdb"
    out.unlink(missing_ok=True)
    summary = load([folder], out)
    with open_store(out) as store:
        return summary, {
            "groups": store.frame(
                'SELECT name, "desc", kind, size, seen_size FROM communicators ORDER BY comm_id'
            ).rows(),
            "members": store.frame("SELECT rank, comm_rank, source FROM members ORDER BY ALL").rows(),
            "ranks": store.frame("SELECT rank, tp, pp, dp, local_rank FROM ranks ORDER BY rank").rows(),
            "jobs": store.frame("SELECT world_size, name FROM jobs").rows(),
        }


def test_explicit_groups_are_believed(tmp_path: Path) -> None:
    job = {
        "world_size": 4,
        "groups": [{"name": "0", "desc": "default_pg", "ranks": [0, 1, 2, 3]}, {"name": 7, "ranks": [3, 1]}],
    }
    summary, tables = loaded(job, tmp_path)
    assert summary.world_size == 4
    assert tables["groups"] == [("0", "default_pg", "world", 4, 0), ("7", None, "other", 2, 0)]
    # The order of a group's list is the order of its ranks inside.
    assert (3, 0, "topology") in tables["members"]
    assert (1, 1, "topology") in tables["members"]


@pytest.mark.parametrize(
    "groups",
    [{"tp_0": [0, 1], "tp_1": [2, 3]}, {"tp_0": {"ranks": [0, 1]}, "tp_1": {"ranks": [2, 3]}}],
    ids=["lists", "objects"],
)
def test_groups_may_be_an_object_by_name(groups: Any, tmp_path: Path) -> None:
    _, tables = loaded({"world_size": 4, "process_groups": groups}, tmp_path)
    assert [(name, size) for name, _, _, size, _ in tables["groups"]] == [("tp_0", 2), ("tp_1", 2)]


def test_coordinates_follow_the_order_that_the_file_names(tmp_path: Path) -> None:
    job = {"world_size": 8, "tp": 2, "pp": 2, "dp": 2, "rank_order": "tp-pp-dp (tp fastest)", "ranks_per_node": 4}
    _, tables = loaded(job, tmp_path)
    assert tables["ranks"][5] == (5, 1, 0, 1, 1)
    _, tables = loaded({**job, "rank_order": "tp-dp-pp"}, tmp_path)
    assert tables["ranks"][5] == (5, 1, 1, 0, 1)


def test_sizes_without_an_order_give_no_coordinates(tmp_path: Path) -> None:
    # Every framework has its own order of ranks: a guess would be wrong for half of them.
    summary, tables = loaded(
        {"world_size": 8, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 4}, tmp_path
    )
    assert summary.formats == {"topology": 1}
    assert tables["ranks"] == []
    assert tables["jobs"] == [(8, None)]


def test_sizes_that_do_not_make_up_the_world_are_said_and_not_used(tmp_path: Path) -> None:
    summary, tables = loaded({"world_size": 8, "tp": 3, "rank_order": "tp-dp"}, tmp_path)
    assert tables["ranks"] == []
    assert "do not make up the world size" in summary.problems[0][1]


@pytest.mark.parametrize(
    "group",
    [
        {"name": "a", "ranks": [0, "1"]},
        {"name": "a", "ranks": [0, -1]},
        {"name": "a", "ranks": [0, 0]},
        {"name": "a", "ranks": [True]},
        {"name": "a", "ranks": "[0, 1]"},
        {"name": ["a"], "ranks": [0]},
        {"ranks": [0]},
        {"name": "a", "ranks": []},
        {"name": "a", "ranks": [10**9]},
    ],
)
def test_a_group_that_is_none_is_dropped_and_counted(group: Any, tmp_path: Path) -> None:
    summary, tables = loaded({"world_size": 4, "groups": [group, {"name": "b", "ranks": [0, 1]}]}, tmp_path)
    assert [name for name, *_ in tables["groups"]] == ["b"]
    assert summary.dropped == {"group without name, or with ranks that are none": 1}


@pytest.mark.parametrize("content", ['{"world_size": 8, "tp": ', '{"world_size": 8, "tp":' + "[" * 100_000])
def test_a_broken_description_is_said_and_takes_nothing_down(content: str, tmp_path: Path) -> None:
    dumps.write(tmp_path / "in" / "trace_0", dumps.dump([dumps.entry()]))
    summary, _ = loaded(content, tmp_path)
    assert summary.rows["coll_ops"] == 1
    assert "is no JSON that can be read" in summary.problems[0][1]


def test_a_description_is_known_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    summary, _ = loaded({"world_size": 2, "groups": []}, tmp_path, name="notes.txt")
    assert summary.formats == {"topology": 1}
    (tmp_path / "in" / "notes.txt").unlink()
    summary, _ = loaded({"lr": 0.1}, tmp_path, name="job.json")
    assert "topology" not in summary.formats
