"""Where every rank stands: a cell per rank in the shape of the job, equal stacks in one look."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mycroft.app.figures import svg

CELL: Final = 30
SMALL_CELL: Final = 14
BLOCK_GAP: Final = 18
LEFT: Final = 112
TOP: Final = 22
MAX_WIDTH: Final = 900
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank; `group` is the index of its stack's group (0 the largest), None where it left no stack."""

    rank: int
    row: str
    column: int
    block: str
    group: int | None
    is_culprit: bool = False


def letter(group: int) -> str:
    """Return the letter of a group: A to Z, then A1, B1 and so on."""
    return LETTERS[group % 26] + (str(group // 26) if group >= 26 else "")


def look(group: int, sizes: Sequence[int]) -> str:
    """Return the class of a group: the large ones have a colour of their own, the small ones stand out by contrast."""
    total = sum(sizes)
    # A group of few, beside one that holds most, is what the reader came to see.
    if group > 0 and sizes[group] <= max(1, total // 8):
        return "stack-odd"
    return f"stack-{min(group, 3)}"


def stack_grid_svg(
    cells: Sequence[Cell],
    *,
    sizes: Sequence[int],
    href: Callable[[Cell], str],
    describe: Mapping[int, str],
    column_title: str,
) -> str:
    """Return the grid: blocks side by side as far as they fit, each with its rows and columns.

    Args:
        cells: one per rank.
        sizes: number of ranks of each group, largest first.
        href: address that a cell leads to.
        describe: what a group is doing, by index.
        column_title: what the columns are, such as `TP`.
    """
    blocks: dict[str, list[Cell]] = {}
    for cell in cells:
        blocks.setdefault(cell.block, []).append(cell)
    side = CELL if len(cells) <= 512 else SMALL_CELL
    parts = [_defs()]
    x, y, row_height, widest = 0.0, 0.0, 0.0, 0.0
    for name, members in blocks.items():
        rows = list(dict.fromkeys(cell.row for cell in members))
        columns = sorted({cell.column for cell in members})
        width = LEFT + len(columns) * side + BLOCK_GAP
        if x and x + width > MAX_WIDTH:
            x, y, row_height = 0.0, y + row_height, 0.0
        parts.append(_block(name, members, rows, columns, x, y, side, sizes, href, describe, column_title))
        x += width
        widest = max(widest, x)
        row_height = max(row_height, TOP + 16 + len(rows) * side + 14)
    counts = ", ".join(f"{letter(n)} {size}" for n, size in enumerate(sizes))
    silent = sum(cell.group is None for cell in cells)
    label = f"Stacks of {len(cells)} ranks. Groups of equal stacks: {counts or 'none'}. Without a stack: {silent}"
    return svg.picture(widest, y + row_height, *parts, label=label)


def _block(
    name: str,
    cells: Sequence[Cell],
    rows: Sequence[str],
    columns: Sequence[int],
    x: float,
    y: float,
    side: int,
    sizes: Sequence[int],
    href: Callable[[Cell], str],
    describe: Mapping[int, str],
    column_title: str,
) -> str:
    parts = [svg.text(x, y + 14, name, "stack-block")]
    for index, column in enumerate(columns):
        if side == CELL or index % 4 == 0:
            title = f"{column_title} {column}" if index == 0 else str(column)
            anchor = "end" if index == 0 and column_title else "middle"
            middle = x + LEFT + (index + 0.5) * side
            at = middle + 5 if anchor == "end" else middle
            parts.append(svg.text(at, y + TOP + 10, title, "axis-label", anchor=anchor))
    row_at = {row: n for n, row in enumerate(rows)}
    column_at = {column: n for n, column in enumerate(columns)}
    for row, n in row_at.items():
        if side == CELL or n % 2 == 0:
            label = svg.fit(row, LEFT - 12, 11)
            parts.append(
                svg.text(x + LEFT - 8, y + TOP + 16 + n * side + side / 2 + 4, label, "axis-label", anchor="end")
            )
    for cell in cells:
        left = x + LEFT + column_at[cell.column] * side
        top = y + TOP + 16 + row_at[cell.row] * side
        parts.append(_cell(cell, left, top, side, sizes, href, describe))
    return svg.element("g", *parts)


def _cell(
    cell: Cell,
    x: float,
    y: float,
    side: int,
    sizes: Sequence[int],
    href: Callable[[Cell], str],
    describe: Mapping[int, str],
) -> str:
    kind = "stack-none" if cell.group is None else look(cell.group, sizes)
    says = "no stack" if cell.group is None else f"stack {letter(cell.group)}, {describe[cell.group]}"
    says = f"rank {cell.rank}: {says}{', root cause' if cell.is_culprit else ''}"
    shapes = [
        svg.element(
            "rect",
            x=x + 1,
            y=y + 1,
            width=side - 2,
            height=side - 2,
            rx=3 if side == CELL else 1,
            class_=f"stack-cell {kind}",
        )
    ]
    if side == CELL:
        mark = "–" if cell.group is None else letter(cell.group)
        shapes.append(svg.text(x + side / 2, y + 14, str(cell.rank), f"stack-rank {kind}-text", anchor="middle"))
        shapes.append(svg.text(x + side / 2, y + 25, mark, f"stack-letter {kind}-text", anchor="middle"))
    if cell.is_culprit:
        shapes.append(svg.element("rect", x=x, y=y, width=side, height=side, rx=3, class_="stack-cause"))
        shapes.append(svg.element("path", d=f"M{x + side - 9:g} {y:g} h9 v9 z", class_="cause-mark"))
    return svg.anchor(href(cell), *shapes, svg.title(says))


def _defs() -> str:
    line = svg.element("path", d="M0 6 L6 0", class_="hatch-line")
    return svg.element(
        "defs", svg.element("pattern", line, id="hatch-stack", width=6, height=6, patternUnits="userSpaceOnUse")
    )
