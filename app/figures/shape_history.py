"""One measure of one shape of operation over time, with the band in which it usually lies, and its distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mycroft.analysis.measures import Band
from mycroft.app.figures.lateness import NEUTRAL

BAND_FILL: Final = "rgba(116, 130, 154, 0.18)"
BINS: Final = 30


def history_figure(
    rows: Sequence[Mapping[str, Any]], *, measure: str, title: str, unit: float, band: Band | None, marked: int | None
) -> Any:
    """Return the chart: a mark per operation on the left, how often which value is on the right.

    Args:
        rows: `seq` and the measure of each operation, in order; those without a value are left out.
        measure: name of the value in `rows`.
        title: title of the axis, with the unit.
        unit: what the values are divided by for that unit.
        band: the usual range; None: too few values for one.
        marked: number of the operation that the page is of.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    known = [(row["seq"], row[measure] / unit) for row in rows if row[measure] is not None]
    chart = make_subplots(rows=1, cols=2, shared_yaxes=True, column_widths=[0.8, 0.2], horizontal_spacing=0.02)
    is_marked = [seq == marked for seq, _ in known]
    chart.add_trace(
        go.Scatter(
            x=[seq for seq, _ in known],
            y=[value for _, value in known],
            mode="markers",
            # The one that the page is of stands out by size and form; no hue accuses it.
            marker={
                "color": NEUTRAL,
                "opacity": 1,
                "size": [13 if here else 5 for here in is_marked],
                "symbol": ["diamond-open" if here else "circle" for here in is_marked],
                "line": {"width": [2.5 if here else 0 for here in is_marked]},
            },
            hovertemplate="operation %{x}<br>%{y:.3f}<extra></extra>",
        ),
        row=1,
        col=1,
    )
    chart.add_trace(
        go.Histogram(
            y=[value for _, value in known],
            nbinsy=BINS,
            marker={"color": NEUTRAL},
            hovertemplate="%{y}<br>%{x} operations<extra></extra>",
        ),
        row=1,
        col=2,
    )
    if band is not None:
        # Both halves share the axis of values, of which the second goes by the name y2.
        low, middle, high = (value / unit for value in (band.low, band.middle, band.high))
        for axis in ("", "2"):
            place = {"xref": f"x{axis} domain", "yref": f"y{axis}", "x0": 0, "x1": 1}
            chart.add_shape(
                type="rect", y0=low, y1=high, fillcolor=BAND_FILL, line={"width": 0}, layer="below", **place
            )
            chart.add_shape(
                type="line", y0=middle, y1=middle, line={"color": NEUTRAL, "width": 1, "dash": "dot"}, **place
            )
    chart.update_xaxes(title_text="number of the operation", zeroline=False, row=1, col=1)
    chart.update_xaxes(title_text="operations", row=1, col=2)
    chart.update_yaxes(title_text=title, zeroline=False, row=1, col=1)
    return chart
