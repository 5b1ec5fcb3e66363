"""Traces that are in memory already -> a trace in memory: the way of a file without the files."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import polars as pl

from mycroft.loaders import schema
from mycroft.loaders.base import EvidenceFile
from mycroft.loaders.context import RowsWriter, TraceContext
from mycroft.loaders.ring import TraceExportLoader, add_traces
from mycroft.loaders.shown import ShownStore
from mycroft.loaders.store import MemoryStore, MemoryWriter
from mycroft.scratch import scratch_folder
from mycroft.tracer import Trace


def load_traces(traces: Iterable[Trace], *, name: str) -> MemoryStore:
    """Load traces of one job, one per process, into a store in memory, by the loader that reads their files.

    Args:
        traces: as the tracer's decoder or the simulator makes them.
        name: what the file of evidence would be called; equal traces give equal stores.
    """
    writer = MemoryWriter()
    _load(traces, writer, name)
    return writer.store()


def show_traces(traces: Iterable[Trace], *, name: str) -> ShownStore:
    """Do as `load_traces`, for a store that is asked a few things once: its rows are not copied.

    Use it as a context, and one at a time in a thread.
    """
    shown = ShownStore()
    _load(traces, shown, name)
    return shown


def _load(traces: Iterable[Trace], writer: RowsWriter, name: str) -> None:
    file = EvidenceFile(0, name, Path(name), 0, "", b"")
    with scratch_folder() as spill:
        context = TraceContext(spill)
        report = add_traces(traces, context, file)
        files = pl.DataFrame(
            {
                "file_id": [0],
                "job_id": [0],
                "loader": [TraceExportLoader.name],
                "path": [name],
                "rows": [report.rows],
                "dropped": [sum(report.dropped.values())],
                "problems": ["\n".join(report.problems) or None],
            }
        )
        meta = {
            "schema_version": str(schema.SCHEMA_VERSION),
            "engine": metadata.version("mycroft-trace"),
            "digest": "",
            "files": "1",
            "jobs": "1",
        }
        context.write(writer, files=files, meta=meta)
