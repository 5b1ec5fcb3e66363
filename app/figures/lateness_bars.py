"""Who comes late: the median arrival of each rank after the median of its group, the latest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mycroft.app import words
from mycroft.app.figures import svg
from mycroft.app.figures.arrivals import ticks

LABEL_WIDTH: Final = 150
PLOT_WIDTH: Final = 820
NOTE_WIDTH: Final = 230
ROW: Final = 20
TOP: Final = 24
MAX_ROWS: Final = 12
"""Rows drawn; of the ranks that are left out it is said how late the latest of them is."""


def lateness_bars_svg(
    rows: Sequence[Mapping[str, Any]],
    *,
    culprits: Mapping[int, str],
    hosts: Mapping[int, str],
    rank_href: Callable[[int], str],
) -> str:
    """Return the picture of `rows`: `rank`, `median_ns`, `p90_ns`, the latest first.

    A rank that is early has no bar: only being late makes others wait.
    """
    drawn = rows[:MAX_ROWS]
    span = float(max([1, *(max(row["median_ns"], row["p90_ns"]) for row in drawn)]))
    bottom = TOP + ROW * len(drawn)
    parts: list[str] = []
    for tick in ticks(span):
        x = LABEL_WIDTH + tick / span * PLOT_WIDTH
        parts.append(svg.element("line", x1=x, y1=TOP - 4, x2=x, y2=bottom, class_="axis-line"))
        label = "0" if tick == 0 else words.duration(tick)
        parts.append(svg.text(x, TOP - 9, label, "axis-label", anchor="middle"))
    for index, row in enumerate(drawn):
        parts.append(_row(row, TOP + ROW * index, span, culprits, hosts, rank_href))
    names = ", ".join(f"rank {row['rank']} {words.duration(row['median_ns'])}" for row in drawn[:3])
    label = f"Median arrival after the median of the group. Latest: {names}"
    return svg.picture(LABEL_WIDTH + PLOT_WIDTH + NOTE_WIDTH, bottom + 6, *parts, label=label)


def _row(
    row: Mapping[str, Any],
    y: float,
    span: float,
    culprits: Mapping[int, str],
    hosts: Mapping[int, str],
    rank_href: Callable[[int], str],
) -> str:
    rank = row["rank"]
    is_culprit = rank in culprits
    kind = " lateness-bar--cause" if is_culprit else ""
    name = f"{'▲ ' if is_culprit else ''}rank {rank} {hosts.get(rank, '')}".strip()
    width = max(row["median_ns"], 0) / span * PLOT_WIDTH
    note = f"{words.duration(row['median_ns'])}, 90 % within {words.duration(row['p90_ns'])}"
    shapes = [
        svg.element("rect", x=0, y=y, width=LABEL_WIDTH + PLOT_WIDTH + NOTE_WIDTH, height=ROW, class_="arrival-hit"),
        svg.text(
            LABEL_WIDTH - 10,
            y + 14,
            svg.fit(name, LABEL_WIDTH - 14, 11.5),
            "arrival-name arrival-name--cause" if is_culprit else "arrival-name",
            anchor="end",
        ),
        svg.element("rect", x=LABEL_WIDTH, y=y + 4, width=max(width, 1.5), height=12, class_=f"lateness-bar{kind}"),
    ]
    if row["p90_ns"] > row["median_ns"] >= 0:
        end = LABEL_WIDTH + row["p90_ns"] / span * PLOT_WIDTH
        path = f"M{LABEL_WIDTH + width:.1f} {y + 10:g} H{end:.1f} M{end:.1f} {y + 6:g} V{y + 14:g}"
        shapes.append(svg.element("path", d=path, class_="lateness-whisker"))
    shapes.append(svg.text(LABEL_WIDTH + PLOT_WIDTH + 10, y + 14, note, "arrival-note"))
    return svg.anchor(rank_href(rank), *shapes, svg.title(f"rank {rank}: median {note}"))


def left_out(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what is to be said of the ranks that the picture leaves out; None where it has all."""
    hidden = rows[MAX_ROWS:]
    if not hidden:
        return None
    return f"{words.plural(len(hidden), 'other rank')}: {words.duration(hidden[0]['median_ns'])} at most."
