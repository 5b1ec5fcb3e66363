"""The catalogue gives every generation its own file and never a half one."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mycroft.loaders.catalogue import Catalogue, CatalogueError, new_trace_id


def finished(folder: Path, content: str) -> Path:
    path = folder / f"{content}.tmp"
    path.write_text(content)
    return path


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return Catalogue(tmp_path / "data")


def test_a_published_file_is_moved_under_its_generation(catalogue: Catalogue, tmp_path: Path) -> None:
    source = finished(tmp_path, "one")
    assert catalogue.publish("run-1a", source, title="Run", summary={"status": "hang"}) == 1
    assert not source.exists()
    assert catalogue.path("run-1a").read_text() == "one"
    assert catalogue.path("run-1a").name == "run-1a.1.duckdb"


def test_a_new_generation_leaves_the_old_file_alone(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.publish("run-1a", finished(tmp_path, "one"), title="Run", summary={})
    assert catalogue.publish("run-1a", finished(tmp_path, "two"), title="Run again", summary={"n": 2}) == 2
    assert catalogue.generations("run-1a") == (1, 2)
    assert catalogue.path("run-1a", 1).read_text() == "one"
    assert catalogue.path("run-1a").read_text() == "two"
    entry = catalogue.get("run-1a")
    assert (entry.title, entry.generation, entry.summary, entry.size_bytes) == ("Run again", 2, {"n": 2}, 3)


def test_traces_are_listed_with_their_newest_generation(catalogue: Catalogue, tmp_path: Path) -> None:
    for name in ("a-1", "b-1", "a-1"):
        catalogue.publish(name, finished(tmp_path, name), title=name, summary={})
    assert [(e.trace_id, e.generation) for e in catalogue.list()] == [("a-1", 2), ("b-1", 1)]


def test_other_processes_see_the_same(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.publish("run-1a", finished(tmp_path, "one"), title="Run", summary={})
    assert [e.trace_id for e in Catalogue(tmp_path / "data").list()] == ["run-1a"]


def test_a_removed_trace_is_gone_with_its_files(catalogue: Catalogue, tmp_path: Path) -> None:
    for content in ("one", "two"):
        catalogue.publish("run-1a", finished(tmp_path, content), title="Run", summary={})
    catalogue.remove("run-1a")
    assert catalogue.list() == []
    assert list(catalogue.traces_dir.iterdir()) == []
    with pytest.raises(CatalogueError, match="there is no trace 'run-1a'"):
        catalogue.path("run-1a")
    with pytest.raises(CatalogueError, match="there is no trace"):
        catalogue.remove("run-1a")


def test_an_unknown_generation_is_named(catalogue: Catalogue, tmp_path: Path) -> None:
    catalogue.publish("run-1a", finished(tmp_path, "one"), title="Run", summary={})
    with pytest.raises(CatalogueError, match="trace run-1a has no generation 7"):
        catalogue.path("run-1a", 7)


@pytest.mark.parametrize("trace_id", ["../evil", "a/b", "", "A", "a.b", "-a", "a" * 90, "a\n", "a%2f"])
def test_an_id_that_could_leave_the_folder_is_refused(trace_id: str, catalogue: Catalogue, tmp_path: Path) -> None:
    source = finished(tmp_path, "one")
    with pytest.raises(CatalogueError):
        catalogue.publish(trace_id, source, title="", summary={})
    assert source.exists()
    with pytest.raises(CatalogueError):
        catalogue.path(trace_id)


def test_a_file_left_by_a_crash_is_not_overwritten(catalogue: Catalogue, tmp_path: Path) -> None:
    left = catalogue.traces_dir / "run-1a.1.duckdb"
    left.write_text("left by a crash between rename and commit")
    assert catalogue.publish("run-1a", finished(tmp_path, "one"), title="Run", summary={}) == 2
    assert left.read_text().startswith("left")


def test_a_publication_that_fails_leaves_no_trace(catalogue: Catalogue, tmp_path: Path) -> None:
    source = finished(tmp_path, "one")
    with pytest.raises(TypeError):
        catalogue.publish("run-1a", source, title="Run", summary={"x": object()})
    assert catalogue.list() == []
    assert source.exists()


def test_many_publish_at_once_and_each_gets_its_own_generation(catalogue: Catalogue, tmp_path: Path) -> None:
    sources = [finished(tmp_path, f"content-{i}") for i in range(16)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda s: catalogue.publish("run-1a", s, title="Run", summary={}), sources))
    assert sorted(made) == list(range(1, 17))
    for source, generation in zip(sources, made, strict=True):
        assert catalogue.path("run-1a", generation).read_text() == source.stem


@pytest.mark.parametrize("name", ["My Run/7 é!", "../../etc", "", "训练", "x" * 300, "UPPER_case.tar.gz"])
def test_an_id_is_safe_readable_and_the_same_for_the_same_evidence(name: str) -> None:
    made = new_trace_id(name, "sha256:ab")
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", made)
    assert made == new_trace_id(name, "sha256:ab")
    assert made != new_trace_id(name, "sha256:cd")
    assert new_trace_id("My Run/7 é!", "sha256:ab").startswith("my-run-7-e-")
