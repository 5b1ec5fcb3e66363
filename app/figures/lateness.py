"""How late one rank came to its collectives: a mark per operation, against the median of its group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mycroft.app import words

NEUTRAL: Final = "#74829a"
"""Grey that shows on both themes; lateness accuses nobody, so the hue of the root cause is not used."""


def lateness_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the chart of `rows`: `at_ns` (arrival), `late_ns` (after the median), `comm`, `seq`, `kind`."""
    import plotly.graph_objects as go

    chart = go.Figure(
        go.Scatter(
            x=[row["at_ns"] / 1e6 for row in rows],
            y=[row["late_ns"] / 1e6 for row in rows],
            mode="markers",
            marker={"size": 6, "color": NEUTRAL},
            customdata=[
                [
                    f"{row['kind']} {row['seq']} of {row['comm']}",
                    words.time_of(row["at_ns"]),
                    words.duration(row["late_ns"]),
                ]
                for row in rows
            ],
            hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]} after the median<extra></extra>",
        )
    )
    chart.update_xaxes(type="date", title_text="arrival, UTC", hoverformat="%H:%M:%S.%L")
    chart.update_yaxes(title_text="after the median, ms", zeroline=True, rangemode="tozero")
    return chart
