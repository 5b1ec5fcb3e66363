"""Traces as Parquet, Arrow and JSON lines: what goes out comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mycroft.tracer import Recorder, Trace, export_trace, open_trace, read_export
from mycroft.tracer.export import FORMATS, ExportError, export_schema
from mycroft.tracer.trace import TABLES
from tests.tracer.comparison import rows
from tests.tracer.tools import ROOT


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """Two processes with every kind of value: sends, receives, open and finished operations, NULLs."""
    folder = tmp_path_factory.mktemp("traces")
    found = []
    for rank in range(2):
        with Recorder(directory=folder, ring_mb=1, rank=rank, world_size=2, sampler=False) as r:
            comm = r.comm(f"group «{rank}»", rank=rank, size=2)
            with r.op(comm, "all_reduce", size_bytes=1 << 40, dtype="bfloat16", channels=2) as op:
                flow = op.flow(peer=1 - rank, send=rank == 0, total=3)
                flow.reach(posted=2, moved=1, ready=1, done=1, size=99)
                r.tick()
                flow.stop()
            comm.start("send", peer=1)
            r.tick()
            found.append(open_trace(r.path))
    return found


@pytest.mark.parametrize("format_", FORMATS)
def test_export_reads_back_as_it_was(traces: list[Trace], tmp_path: Path, format_: str) -> None:
    path = tmp_path / f"trace.{format_}"
    written = export_trace(traces, path, format_=format_)

    back = read_export(path)

    assert len(back) == 2
    for trace, again in zip(traces, back, strict=True):
        assert again.process == trace.process
        assert again.communicators == trace.communicators
        assert (again.closed, again.last_tick_ns, again.interval_ms) == (False, trace.last_tick_ns, 100)
        for kind in TABLES:
            assert rows(again.tables[kind]) == rows(trace.tables[kind])
    records = sum(t.tables[kind].num_rows for t in traces for kind in TABLES)
    assert written == records + sum(1 + len(t.communicators) for t in traces)


def test_unknown_format_is_refused_with_the_known_ones(traces: list[Trace], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="expected one of parquet, arrow, jsonl"):
        export_trace(traces, tmp_path / "x", format_="csv")


def test_damaged_lines_are_counted_and_the_others_kept(traces: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    export_trace(traces[:1], path, format_="jsonl")
    lines = path.read_text().splitlines()
    op = next(i for i, line in enumerate(lines) if '"kind": "op"' in line)
    lines[op] = lines[op][:40]
    lines += ['{"kind": "state", "trace": 0, "peer": "three"}', '{"kind": "state", "trace": 0, "ts": 1e300}', "[1]", ""]
    path.write_text("\n".join(lines) + "\n")

    (trace,) = read_export(path)

    assert trace.losses == {"damaged": 5}
    assert trace.tables["op"].num_rows == traces[0].tables["op"].num_rows - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 is not"),
        ("not json\n", "line 1 is not"),
        ('{"schema": "other"}\n', "line 1 is not"),
        ('{"schema": "mycroft.trace", "version": 9}\n', "export version 9, this build reads 1"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ExportError, match=message):
        read_export(path)


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_cut_file_is_refused_by_name(traces: list[Trace], tmp_path: Path, format_: str) -> None:
    path = tmp_path / f"trace.{format_}"
    export_trace(traces, path, format_=format_)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ExportError, match=rf"trace\.{format_}: .*export the trace again"):
        read_export(path)


def test_parquet_of_somebody_else_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"kind": ["communicator", "process"]}), path)
    with pytest.raises(ExportError, match=r"no mycroft\.trace in its metadata"):
        read_export(path)


def test_parquet_without_a_column_is_refused_by_its_name(traces: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    export_trace(traces, path, format_="parquet")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["moved"]), path)
    with pytest.raises(ExportError, match="state rows lack the column moved"):
        read_export(path)


def test_columns_of_an_export_are_on_the_page() -> None:
    page = (ROOT / "docs/record-format.md").read_text()
    records = {
        name
        for name in export_schema().names
        if name not in ("closed", "last_tick_ns", "interval_ms") and not name.startswith("comm_")
    }
    from dataclasses import fields

    from mycroft.tracer import Communicator, Process

    dimensions = {f.name for kind in (Process, Communicator) for f in fields(kind)}
    assert {name for name in records - dimensions if f"`{name}`" not in page} == set()


def test_first_line_of_json_says_what_it_is(traces: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    export_trace(traces, path, format_="jsonl")
    with path.open() as file:
        head, process = json.loads(file.readline()), json.loads(file.readline())
    assert head == {"schema": "mycroft.trace", "version": 1}
    assert (process["kind"], process["rank"]) == ("process", 0)


def test_lines_that_are_nested_without_end_are_counted_and_the_others_read(traces: list[Trace], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    export_trace(traces, path, format_="jsonl")
    with path.open("a") as file:
        file.write("[" * 100_000 + "\n")
    assert sum(trace.losses.get("damaged", 0) for trace in read_export(path)) == 1
    path.write_text('{"schema": ' * 100_000)
    with pytest.raises(ExportError, match="is no exported trace"):
        read_export(path)
