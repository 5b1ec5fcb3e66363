"""The chart of an answer of the SQL console: bars, lines or points over one of its columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from mycroft.app.figures.lateness import NEUTRAL

MARKS_MAX: Final = 1000
"""Marks that are drawn; what is more is said beside the chart."""
KINDS: Final = ("bar", "line", "points")


def is_number(value: Any) -> bool:
    """Whether a value can be drawn as a height."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def axes(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[int], list[int]]:
    """Return which columns can go across, and which up: any, and those of numbers; positions in `names`."""
    across = list(range(len(names)))
    up = [n for n in across if any(row[n] is not None for row in rows) and all(_fits(row[n]) for row in rows)]
    return across, up


def _fits(value: Any) -> bool:
    return value is None or is_number(value)


def first_choice(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[str, str] | None:
    """Return the columns to begin with: the first that is a name or a time, and the last of numbers; None: no chart."""
    _, up = axes(names, rows)
    if not rows or not up:
        return None
    height = up[-1]
    others = [n for n in range(len(names)) if n != height]
    named = [n for n in others if n not in up]
    return names[(named or others or [height])[0]], names[height]


def _text(value: Any) -> str:
    """Return a value as a label: short, and never taken for markup or a template by the chart."""
    return escape(str(value)[:60], quote=False).replace("%{", "% {")


def _each_once(names: Sequence[str]) -> list[str]:
    """Return the names with a number behind those that were there before: bars of one name would be stacked."""
    seen: Counter[str] = Counter()
    made: list[str] = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made


def query_figure(names: Sequence[str], rows: Sequence[Sequence[Any]], *, kind: str, across: str, up: str) -> Any:
    """Return the chart of at most `MARKS_MAX` rows in their order; rows without a height are left out."""
    import plotly.graph_objects as go

    at_x, at_y = list(names).index(across), list(names).index(up)
    kept = [row for row in rows[:MARKS_MAX] if row[at_y] is not None]
    # Lists and whole numbers that name something (ranks) are categories as text, each where it stands.
    xs = [row[at_x] if is_number(row[at_x]) and kind != "bar" else _text(row[at_x]) for row in kept]
    ys = [row[at_y] for row in kept]
    if kind == "bar":
        xs = _each_once(xs)
    hover = f"{_text(across)} %{{x}}<br>{_text(up)} %{{y}}<extra></extra>"
    trace = (
        go.Bar(x=xs, y=ys, marker={"color": NEUTRAL}, hovertemplate=hover)
        if kind == "bar"
        else go.Scatter(
            x=xs,
            y=ys,
            mode="lines+markers" if kind == "line" else "markers",
            line={"color": NEUTRAL},
            marker={"color": NEUTRAL, "size": 6},
            hovertemplate=hover,
        )
    )
    chart = go.Figure(trace)
    is_time = all(isinstance(x, str) and len(x) > 18 and x[10] == "T" and x.endswith("Z") for x in xs) and bool(xs)
    chart.update_xaxes(title_text=_text(across), type="date" if is_time else "category" if kind == "bar" else None)
    chart.update_yaxes(title_text=_text(up), rangemode="tozero")
    return chart
