"""The panel of one shape of operation: its history and distribution, with the band in which it usually lies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update

from mycroft.analysis.measures import Band, band_of, history_of, shapes_of
from mycroft.app import urls, words
from mycroft.app.figures.graph import graph
from mycroft.app.figures.shape_history import history_figure
from mycroft.app.pages.panel import Child, attributes, empty, panel, select
from mycroft.app.pages.trace_page import TracePage
from mycroft.app.queries import TraceReader, queries_of
from mycroft.app.reads import operations

MARKS_MAX: Final = 1000
SHAPES_MAX: Final = 200
MEASURES: Final[Mapping[str, tuple[str, str, float]]] = {
    "duration": ("time of the last to arrive", "ms", 1e6),
    "arrival": ("first to last arrival", "ms", 1e6),
    "busbw": ("bus bandwidth", "GB/s", 1.0),
}
Shape = tuple[str, int | None, str | None]


def shapes(reader: TraceReader, comm_id: int) -> list[Shape]:
    """Return the shapes of a communicator, the most frequent first."""
    kept = reader.cached("shapes", (comm_id,), lambda store: shapes_of(store, comm_id))
    return [(row["op_kind"], row["bytes"], row["dtype"]) for row in kept[:SHAPES_MAX]]


def shape_key(shape: Shape) -> str:
    """Return a shape as it stands in an address: `all_reduce:33554432:Float`."""
    kind, size, dtype = shape
    return f"{kind}:{'' if size is None else size}:{dtype or ''}"


def shape_name(shape: Shape) -> str:
    """Return a shape in words."""
    kind, size, dtype = shape
    return ", ".join([kind, *([words.size(size)] if size is not None else []), *([dtype] if dtype else [])])


def shape_panel(
    page: TracePage, comm: str, comm_id: int, *, seq: int | None = None, entry: Shape | None = None
) -> Child:
    """Return the panel of a communicator; None where it has no collective.

    With `seq` and `entry` it is of the shape of that operation, which is marked; else its shape can be chosen.
    """
    known = shapes(page.reader, comm_id)
    if not known or (entry is not None and entry not in known):
        return None
    address = page.ctx.address if page.ctx is not None else None
    asked = dict(address.extra).get("shape") if address is not None else None
    by_key = {shape_key(shape): shape for shape in known}
    shape = entry if entry is not None else by_key.get(asked or "", known[0])
    wanted = address.view.get("m") if address is not None else None
    measure = str(wanted) if wanted in MEASURES else _first_measure(page.reader, comm_id, shape)
    choices = [select("Measure", [(m, MEASURES[m][0]) for m in MEASURES], measure, store="shape-choice", key="m")]
    if entry is None:
        choices.insert(
            0,
            select(
                "Shape",
                [(key, shape_name(one)) for key, one in by_key.items()],
                shape_key(shape),
                store="shape-choice",
                key="shape",
            ),
        )
    fixed = {"comm": comm, "seq": seq, "fixed": shape_key(shape) if entry is not None else None}
    return panel(
        "This shape of operation" if entry is not None else "History by shape of operation",
        html.Div(history(page.reader, comm_id, shape, measure, seq), id="shape-place"),
        dcc.Store(id="shape-choice", data={"m": measure, "shape": shape_key(shape)}),
        dcc.Store(id="shape-of", data=fixed),
        note=shape_name(shape) if entry is not None else None,
        actions=html.Div(choices, className="choice-row"),
    )


def _rows(reader: TraceReader, comm_id: int, shape: Shape) -> list[dict[str, Any]]:
    kind, size, dtype = shape
    return reader.cached(
        "shape_history",
        (comm_id, *shape),
        lambda store: history_of(store, comm_id, op_kind=kind, size=size, dtype=dtype, limit=MARKS_MAX + 1),
    )


def _first_measure(reader: TraceReader, comm_id: int, shape: Shape) -> str:
    """Return the first measure that the shape has any value of."""
    rows = _rows(reader, comm_id, shape)
    return next((name for name in MEASURES if any(row[name] is not None for row in rows)), "duration")


def band_text(band: Band | None, unit: str, scale: float) -> str:
    """Return the healthy band in words, or why there is none."""
    if band is None:
        return "no usual range: fewer than eight operations have it, or their values fall apart"
    low, high = band.low / scale, band.high / scale
    middle = f"median {band.middle / scale:,.3g}, three deviations to both sides, {band.n:,} operations"
    return f"usual: {low:,.3g} to {high:,.3g} {unit} ({middle})"


def outside(rows: Sequence[Mapping[str, Any]], measure: str, band: Band | None) -> list[int]:
    """Return the numbers of the operations whose value is outside of the band."""
    if band is None:
        return []
    return [row["seq"] for row in rows if row[measure] is not None and not band.low <= row[measure] <= band.high]


def history(reader: TraceReader, comm_id: int, shape: Shape, measure: str, seq: int | None) -> Child:
    """Return the chart of one measure of one shape, and what it shows in words."""
    rows = _rows(reader, comm_id, shape)
    cut = len(rows) > MARKS_MAX
    rows = rows[-MARKS_MAX:]
    name, unit, scale = MEASURES[measure]
    known = [row[measure] for row in rows if row[measure] is not None]
    if not known:
        return empty(
            f"The {name} of {shape_name(shape)} is in no source.",
            html.P(
                "It needs times of every member: a recorder with timing (TORCH_NCCL_ENABLE_TIMING=1) or the tracer."
            ),
        )
    band = band_of(known)
    odd = outside(rows, measure, band)
    said = [band_text(band, unit, scale)]
    if odd:
        said.append(f"{words.plural(len(odd), 'operation')} outside: {words.ranks(odd, limit=8)}")
    mine = next((row[measure] for row in rows if row["seq"] == seq), None)
    if seq is not None:
        said.append(f"this one ◇: {'not measured' if mine is None else f'{mine / scale:,.4g} {unit}'}")
    if cut:
        said.append(f"the newest {MARKS_MAX:,} operations")
    figure = history_figure(rows, measure=measure, title=f"{name}, {unit}", unit=scale, band=band, marked=seq)
    return [
        html.P(" · ".join(said), className="muted"),
        html.Div(
            graph("shape-figure", figure, height=260),
            role="group",
            **attributes(aria_label=f"{name}: {'; '.join(said)}"),
        ),
    ]


def register_callbacks(app: Dash) -> None:
    """Draw another measure or shape; for the pages of operations and of communicators."""

    @app.callback(
        Output("shape-place", "children"),
        Input("shape-choice", "data"),
        State("shape-of", "data"),
        State("url", "pathname"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def draw(choice: Any, of: Any, pathname: str, search: str | None) -> Any:  # pyright: ignore[reportUnusedFunction]
        address = urls.parse(pathname + (search or ""))
        if address.trace is None or not isinstance(choice, dict) or not isinstance(of, dict):
            return no_update
        reader = queries_of(app).trace(address.trace, address.generation)
        group = operations.communicator(reader, str(of.get("comm")))
        measure = choice.get("m")
        if group is None or measure not in MEASURES:
            return no_update
        wanted = of.get("fixed") or choice.get("shape")
        shape = next((one for one in shapes(reader, group["comm_id"]) if shape_key(one) == wanted), None)
        if shape is None:
            return no_update
        seq = of.get("seq")
        view: dict[str, Any] = {"m": measure} if of.get("fixed") else {"m": measure, "shape": shape_key(shape)}
        kept = html.Div(hidden=True, **attributes(data_view=json.dumps(view)))
        return [
            kept,
            html.Div(history(reader, group["comm_id"], shape, str(measure), seq if isinstance(seq, int) else None)),
        ]
