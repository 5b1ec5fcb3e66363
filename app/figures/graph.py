"""The one way to a Plotly chart: quiet, in our fonts, and without the buttons that would send data elsewhere."""

from __future__ import annotations

from typing import Any, Final

from dash import dcc

# plotly.js would otherwise show its maker's logo and offer to upload the chart to a cloud service.
CONFIG: Final[Any] = {
    "displaylogo": False,
    "showSendToCloud": False,
    "showEditInChartStudio": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "responsive": True,
}


def graph(id: str, figure: Any, *, height: int) -> dcc.Graph:  # noqa: A002 - the name Dash gives it
    """Return a chart `height` px high; `assets/modules/charts.mjs` gives it the colours of the theme.

    For distributions and comparisons of up to about a thousand marks; larger pictures are drawn otherwise.
    """
    figure.update_layout(
        height=height,
        margin={"l": 56, "r": 12, "t": 8, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "Inter, system-ui, sans-serif", "size": 12},
        showlegend=False,
        hoverlabel={"font": {"family": "Inter, system-ui, sans-serif", "size": 12}},
    )
    return dcc.Graph(id=id, figure=figure, config=CONFIG, className="chart", style={"height": f"{height}px"})
