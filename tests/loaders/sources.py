"""What tests of single loaders share: load some bytes with one loader and look at the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mycroft.loaders import Store, load, open_store
from mycroft.loaders.base import Loader
from tests.loaders.text.recorder import Recorder, evidence


def load_with(loader: Loader, folder: Path, contents: dict[str, bytes], *, sniffed: bool = True) -> Recorder:
    """Load files that the loader must take for its own."""
    folder.mkdir(exist_ok=True)
    recorder = Recorder()
    files = evidence(folder, contents)
    if sniffed:
        assert [file.name for file in files if not loader.sniff(file)] == []
    recorder.reports = loader.load(files, recorder)
    assert sorted(report.file_id for report in recorder.reports) == sorted(file.file_id for file in files)
    return recorder


def ns(found: Recorder, column: str, table: str = "coll_ops") -> list[int | None]:
    """Return a time column in whole ns, which Python's own times cannot hold."""
    return found.frame(table)[column].dt.epoch("ns").to_list()


def columns(found: Recorder, *names: str, table: str = "coll_ops", **wanted: Any) -> list[tuple[Any, ...]]:
    """Return some columns of the rows that have the wanted values."""
    return [tuple(row.get(name) for name in names) for row in found.rows(table, **wanted)]


def dropped(found: Recorder) -> dict[str, int]:
    """Return what was left out, over all files."""
    total: dict[str, int] = {}
    for report in found.reports:
        for reason, count in report.dropped.items():
            total[reason] = total.get(reason, 0) + count
    return total


def problems(found: Recorder) -> str:
    """Return all that loaders had to say."""
    return "\n".join(problem for report in found.reports for problem in report.problems)


@contextmanager
def loaded(folder: Path, contents: Mapping[str, str | bytes]) -> Iterator[Store]:
    """Load files as a user would and open the trace."""
    base = folder / "evidence"
    for name, content in contents.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    load([base], folder / "trace.duckdb")
    with open_store(folder / "trace.duckdb") as store:
        yield store
