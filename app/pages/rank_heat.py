"""The panel of ranks in the shape of the job, shaded by a measure: who comes late, waits, takes long, moves little."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update

from mycroft.analysis.measures import RANK_MEASURES, rank_measures
from mycroft.app import urls, words
from mycroft.app.figures import heat_grid
from mycroft.app.pages.panel import Child, attributes, empty, figure, panel, select
from mycroft.app.pages.stacks import cells_of
from mycroft.app.pages.trace_page import TracePage
from mycroft.app.queries import TraceReader, queries_of
from mycroft.app.reads import ranks, verdicts

NAMES: Final[Mapping[str, str]] = {
    "late": "arrival after the median",
    "wait": "time inside beyond the quickest",
    "duration": "time inside",
    "busbw": "bus bandwidth",
}
_SHOWN: Final[Mapping[str, Callable[[float], str]]] = {
    "late": words.duration,
    "wait": words.duration,
    "duration": words.duration,
    "busbw": lambda value: f"{value:,.2f} GB/s",
}


def measures_of(reader: TraceReader) -> list[dict[str, Any]]:
    """Return the measures of every rank with collectives, kept with the trace's generation."""
    return reader.cached("rank_measures", (), rank_measures)


def heat_panel(page: TracePage) -> Child:
    """Return the panel; None where no rank has a collective."""
    if not measures_of(page.reader):
        return None
    asked = page.ctx.address.view.get("m") if page.ctx is not None else None
    chosen = str(asked) if asked in RANK_MEASURES else RANK_MEASURES[0]
    return panel(
        "Ranks in the shape of the job",
        html.Div(heat(page, chosen), id="heat-place"),
        dcc.Store(id="heat-choice", data={"m": chosen}),
        note="median over its collectives · hatched: not measured",
        actions=select(
            "Measure", [(name, NAMES[name]) for name in RANK_MEASURES], chosen, store="heat-choice", key="m"
        ),
    )


def heat(page: TracePage, measure: str) -> Child:
    """Return the picture of one measure with its legend."""
    rows = ranks.all_ranks(page.reader)
    values: dict[int, float | None] = {row["rank"]: row[measure] for row in measures_of(page.reader)}
    known = [value for value in values.values() if value is not None]
    if not known:
        return empty(
            f"No source measures the {NAMES[measure]} of any rank.",
            html.P("Durations need a recorder with timing (TORCH_NCCL_ENABLE_TIMING=1) or the tracer."),
        )
    cells, column_title = cells_of(rows, {}, page.culprits)
    scale = heat_grid.scale_of(known)
    shown = _SHOWN[measure]
    picture = heat_grid.heat_grid_svg(
        cells,
        values,
        scale=scale,
        name=NAMES[measure],
        shown=shown,
        href=page.links.rank,
        column_title=column_title,
    )
    # An outlier beyond the scale has the colour of its end; the legend says how far it goes.
    return [figure(picture), _legend(heat_grid.steps_of(scale), shown, lowest=min(known), highest=max(known))]


def _legend(
    steps: Sequence[tuple[float, float]], shown: Callable[[float], str], *, lowest: float, highest: float
) -> Child:
    items: list[Child] = []
    for n, (low, high) in enumerate(steps):
        bottom = min(low, lowest) if n == 0 else low
        top = max(high, highest) if n == len(steps) - 1 else high
        text = shown(bottom) if bottom == top else f"{shown(bottom)} to {shown(top)}"
        items.append(html.Li([html.Span(className=f"heat-swatch heat-swatch--{n}"), text]))
    return html.Ul(items, className="heat-legend", **attributes(aria_label="Legend"))


def register_callbacks(app: Dash) -> None:
    """Draw another measure."""

    @app.callback(
        Output("heat-place", "children"),
        Input("heat-choice", "data"),
        State("url", "pathname"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def draw(choice: Any, pathname: str, search: str | None) -> Any:  # pyright: ignore[reportUnusedFunction]
        address = urls.parse(pathname + (search or ""))
        measure = choice.get("m") if isinstance(choice, dict) else None
        if address.trace is None or measure not in RANK_MEASURES:
            return no_update
        reader = queries_of(app).trace(address.trace, address.generation)
        page = TracePage.of_reader(reader, verdicts.verdict_of(reader), address.generation)
        kept = html.Div(hidden=True, **attributes(data_view=json.dumps({"m": measure})))
        return [kept, html.Div(heat(page, str(measure)))]
