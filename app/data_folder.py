"""Finds the trace that a command names: a file, or the id of a trace in the data folder."""

from __future__ import annotations

from pathlib import Path

from mycroft.app.open_stores import OpenStores
from mycroft.app.queries import TraceReader
from mycroft.errors import MycroftError
from mycroft.loaders.catalogue import STATE_FILE, Catalogue, CatalogueError


class NoTraceError(MycroftError):
    """A name that is neither a trace file nor a trace of the data folder."""


def locate(name: str, data_dir: Path) -> TraceReader:
    """Return an uncached reader of a trace file, or of the newest generation of a trace.

    Raises:
        NoTraceError: it is neither.
    """
    path = Path(name)
    if path.is_file():
        return TraceReader(trace=path.stem, title=path.stem, generation=1, path=path, stores=OpenStores())
    if not (data_dir / STATE_FILE).is_file():
        raise NoTraceError(f"{name}: no such file, and no traces in {data_dir}; see --data and `mycroft load`")
    catalogue = Catalogue(data_dir)
    try:
        entry = catalogue.get(name)
        found = catalogue.path(name)
    except CatalogueError as error:
        known = [entry.trace_id for entry in catalogue.list()[:5]]
        listed = f"; it has {', '.join(known)}" if known else ""
        raise NoTraceError(f"{name}: neither a trace file nor a trace in {data_dir}{listed}") from error
    finally:
        catalogue.close()
    return TraceReader(
        trace=entry.trace_id, title=entry.title, generation=entry.generation, path=found, stores=OpenStores()
    )
