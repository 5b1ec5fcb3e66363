"""The place of a chunk flow in a page: the browser draws it from one JSON."""

from __future__ import annotations

from dash import html

from mycroft.app import words
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, attributes, link, panel
from mycroft.app.queries import TraceReader
from mycroft.app.reads import flows, operations

SHAPES = {"ring": "ring order", "tree": "tree", "pairs": "sender and receiver"}


def address(reader: TraceReader, comm: str, seq: int) -> str:
    """Return where the JSON of an operation's chunk flow is."""
    return f"/api/v1/traces/{reader.trace}/g/{reader.generation}/flow/{comm}/{seq}"


def flow_panel(reader: TraceReader, comm: str, seq: int, *, links: TraceLinks | None = None) -> Child:
    """Return the panel of an operation's chunk flow; None where no source shows its flows.

    With `links` its title leads to the page of the operation.
    """
    group = operations.communicator(reader, comm)
    if group is None or not flows.has_flows(reader, group["comm_id"], seq):
        return None
    flow = flows.flow_of(reader, comm, seq)
    if flow is None:
        return None
    ranks = {rank for half in flow["halves"] for rank in half[1:3]}
    named = f"{flow['kind']} {seq}"
    where: list[Child] = [
        link(named, links.op(comm, seq)) if links is not None else named,
        f" · {group['desc'] or comm} · {words.plural(len(flow['channels']), 'channel')}"
        f" · {words.plural(len(ranks), 'rank')}",
    ]
    return panel(
        f"Chunk flow, {SHAPES[flow['shape']]}",
        html.Div(html.P("Reading the flow…", className="muted"), **attributes(data_flow=address(reader, comm, seq))),
        note=where,
        id="flow",
    )
