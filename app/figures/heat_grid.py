"""One measure of every rank, in the shape of the job: a cell per rank, shaded by where its value lies among all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mycroft.app.figures import svg
from mycroft.app.figures.stack_grid import CELL, SMALL_CELL, Cell

LEVELS: Final = 6
LEFT: Final = 92
TOP: Final = 20
BLOCK_GAP: Final = 16
MAX_WIDTH: Final = 1180
LINKS_MAX: Final = 2048
"""Cells up to which each is a link with its value; of more, the table has them."""
_LOW_SHARE: Final = 0.01


def scale_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the scale: the 1 % and the 99 % quantile of the values, so that one hides no other."""
    ordered = sorted(values)
    if not ordered:
        return 0.0, 0.0
    last = len(ordered) - 1
    return ordered[round(last * _LOW_SHARE)], ordered[round(last * (1 - _LOW_SHARE))]


def level_of(value: float, scale: tuple[float, float]) -> int:
    """Return the step of the ramp, 0 to `LEVELS` - 1; values outside of the scale have the step of its end."""
    low, high = scale
    if high <= low:
        return 0
    return min(LEVELS - 1, max(0, int((value - low) / (high - low) * LEVELS)))


def steps_of(scale: tuple[float, float]) -> list[tuple[float, float]]:
    """Return the values that each step stands for, for the legend; one step where all values are equal."""
    low, high = scale
    if high <= low:
        return [(low, high)]
    width = (high - low) / LEVELS
    return [(low + n * width, low + (n + 1) * width) for n in range(LEVELS)]


def heat_grid_svg(
    cells: Sequence[Cell],
    values: Mapping[int, float | None],
    *,
    scale: tuple[float, float],
    name: str,
    shown: Callable[[float], str],
    href: Callable[[int], str],
    column_title: str,
) -> str:
    """Return the grid, laid out as the grid of stacks: blocks side by side as far as they fit.

    Args:
        cells: one per rank; their `group` is not used.
        values: the measure by rank; None or absent is drawn hatched, never as zero.
        scale: ends of the ramp, from `scale_of`.
        name: what is measured.
        shown: writes a value with its unit.
        href: address of a rank.
        column_title: what the columns are, such as `TP`.
    """
    blocks: dict[str, list[Cell]] = {}
    for cell in cells:
        blocks.setdefault(cell.block, []).append(cell)
    side = CELL if len(cells) <= 512 else SMALL_CELL
    parts = [hatch()]
    x = y = row_height = widest = 0.0
    for block, members in blocks.items():
        rows = list(dict.fromkeys(cell.row for cell in members))
        columns = sorted({cell.column for cell in members})
        width = LEFT + len(columns) * side + BLOCK_GAP
        if x and x + width > MAX_WIDTH:
            x, y, row_height = 0.0, y + row_height, 0.0
        parts.append(_heads(block, rows, columns, x, y, side, column_title))
        row_at = {row: n for n, row in enumerate(rows)}
        column_at = {column: n for n, column in enumerate(columns)}
        for cell in members:
            left, top = x + LEFT + column_at[cell.column] * side, y + TOP + 14 + row_at[cell.row] * side
            value = values.get(cell.rank)
            says = f"rank {cell.rank}: {'not measured' if value is None else shown(value)}"
            drawn = _cell(cell, left, top, side, value, scale)
            if len(cells) <= LINKS_MAX:
                parts.append(svg.anchor(href(cell.rank), *drawn, svg.title(says + _guilt(cell))))
            else:
                parts += drawn
        x += width
        widest = max(widest, x)
        row_height = max(row_height, TOP + 14 + len(rows) * side + 12)
    known = [value for value in values.values() if value is not None]
    worst = max(((value, rank) for rank, value in values.items() if value is not None), default=None)
    label = f"{name} of {len(known)} ranks"
    if worst is not None:
        label += f", greatest at rank {worst[1]}: {shown(worst[0])}"
    return svg.picture(widest, y + row_height, *parts, label=label)


def _guilt(cell: Cell) -> str:
    return ", root cause" if cell.is_culprit else ""


def _heads(
    block: str, rows: Sequence[str], columns: Sequence[int], x: float, y: float, side: int, column_title: str
) -> str:
    parts = [svg.text(x, y + 13, block, "stack-block")]
    for n, column in enumerate(columns):
        if side == CELL or n % 4 == 0:
            title = f"{column_title} {column}" if n == 0 else str(column)
            anchor = "end" if n == 0 and column_title else "middle"
            middle = x + LEFT + (n + 0.5) * side
            parts.append(svg.text(middle + 5 * (anchor == "end"), y + TOP + 9, title, "axis-label", anchor=anchor))
    for n, row in enumerate(rows):
        if side == CELL or n % 2 == 0:
            at = y + TOP + 14 + n * side + side / 2 + 4
            parts.append(svg.text(x + LEFT - 8, at, svg.fit(row, LEFT - 12, 11), "axis-label", anchor="end"))
    return svg.element("g", *parts)


def _cell(cell: Cell, x: float, y: float, side: int, value: float | None, scale: tuple[float, float]) -> list[str]:
    kind = "heat-none" if value is None else f"heat-{level_of(value, scale)}"
    rounded = 3 if side == CELL else 1
    shapes = [
        svg.element("rect", x=x + 1, y=y + 1, width=side - 2, height=side - 2, rx=rounded, class_=f"heat-cell {kind}")
    ]
    if side == CELL:
        shapes.append(
            svg.text(x + side / 2, y + side / 2 + 4, str(cell.rank), f"heat-rank {kind}-text", anchor="middle")
        )
    if cell.is_culprit:
        shapes.append(svg.element("rect", x=x, y=y, width=side, height=side, rx=rounded, class_="stack-cause"))
        shapes.append(svg.element("path", d=f"M{x + side - 9:g} {y:g} h9 v9 z", class_="cause-mark"))
    return shapes


def hatch() -> str:
    """Return the pattern of what nothing is known of."""
    line = svg.element("path", d="M0 6 L6 0", class_="hatch-line")
    return svg.element(
        "defs", svg.element("pattern", line, id="hatch-heat", width=6, height=6, patternUnits="userSpaceOnUse")
    )
