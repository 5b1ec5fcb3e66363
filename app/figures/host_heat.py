"""Hosts over time as a picture: a row per host, or per several beside each other, a column per bin of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mycroft.app.figures import heat_grid, svg

LEVELS: Final = heat_grid.LEVELS
LEFT: Final = 190
TOP: Final = 6
BOTTOM: Final = 22
WIDTH: Final = 1180
ROW: Final = 14
NOTHING: Final = -1


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One row: its name, what a reader is told of it, and where it leads, if anywhere."""

    name: str
    says: str
    href: str | None = None


def thresholds(greatest: int) -> list[int]:
    """Return the least value of each step above the first, at most `LEVELS` - 1 of them, rising.

    Steps are of equal ratio: one host that stood for an hour leaves visible who stood for a minute. A value of zero is
    in the first step.
    """
    if greatest <= 0:
        return []
    # Of small numbers several steps would begin at one value.
    return sorted({max(1, round((greatest + 1) ** (step / LEVELS) - 1)) for step in range(1, LEVELS)})


def levels(values: Any, steps: Sequence[int]) -> Any:
    """Return the step of each value, the darkest for the greatest; -1 where nothing was told."""
    found = np.searchsorted(np.asarray(steps, dtype=np.int64), values, side="right")
    spread = LEVELS - 1 - len(steps)
    found = np.where(found > 0, found + spread, 0)
    return np.where(values < 0, NOTHING, found)


def legend(steps: Sequence[int], greatest: int, shown: Callable[[int], str]) -> list[tuple[int, str]]:
    """Return each step that there is, with its values in words."""
    if not steps:
        return [(0, shown(0))]
    spread = LEVELS - 1 - len(steps)
    items = [(0, shown(0) if steps[0] <= 1 else f"below {shown(steps[0])}")]
    items += [(number + 1 + spread, f"from {shown(step)}") for number, step in enumerate(steps)]
    last = shown(greatest)
    items[-1] = (items[-1][0], last if steps[-1] == greatest else f"{shown(steps[-1])} to {last}")
    return items


def host_heat_svg(
    rows: Sequence[HeatRow], found: Any, *, ticks: Sequence[tuple[int, str]], row_px: int = ROW, label: str
) -> str:
    """Return the picture.

    Args:
        rows: names, from above.
        found: NumPy, rows by columns, as `levels` returns them.
        ticks: columns under which a time stands.
        row_px: height of a row.
        label: its name for readers.
    """
    count, columns = found.shape
    cell = (WIDTH - LEFT) / max(1, columns)
    parts = [heat_grid.hatch()]
    for level in (NOTHING, *range(LEVELS)):
        drawn = _runs(found == level, cell, row_px)
        if drawn:
            kind = "heat-none" if level == NOTHING else f"heat-{level}"
            parts.append(svg.element("path", d=drawn, class_=f"{kind} heat-run"))
    height = TOP + count * row_px
    for column, text in ticks:
        x = LEFT + column * cell
        parts.append(svg.element("path", d=f"M{x:.1f} {TOP} V{height + 4}", class_="heat-tick"))
        parts.append(svg.text(x + 3, height + 15, text, "axis-label"))
    for number, row in enumerate(rows):
        y = TOP + number * row_px
        name = svg.text(LEFT - 8, y + row_px / 2 + 4, svg.fit(row.name, LEFT - 14, 11), "axis-label", anchor="end")
        # Its place is as wide as the picture, so that resting anywhere on a row says what it is.
        place = svg.element("rect", x=0, y=y, width=WIDTH, height=row_px, class_="heat-row")
        told = svg.title(f"{row.name}: {row.says}")
        if row.href is None:
            parts.append(svg.element("g", name, place, told))
        else:
            parts.append(svg.element("a", name, place, told, href=row.href, class_="svg-link", data_reload=""))
    return svg.picture(WIDTH, height + BOTTOM, *parts, label=label)


def _runs(chosen: Any, cell: float, row_px: int) -> str:
    """Return the path of all cells that are chosen, those beside each other as one."""
    padded = np.zeros((chosen.shape[0], chosen.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = chosen
    edges = np.diff(padded, axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == NOTHING)
    found: list[str] = []
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        left = LEFT + start * cell
        found.append(f"M{left:.1f} {TOP + row * row_px}h{(end - start) * cell:.1f}v{row_px - 1}H{left:.1f}z")
    return "".join(found)
