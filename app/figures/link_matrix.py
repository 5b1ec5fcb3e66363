"""Sender by receiver as a heat map: rows send, columns receive, a cell is a link; what is odd is outlined and said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mycroft.analysis.link_matrix import Link, Matrix
from mycroft.app.figures import svg

CELL: Final = 34
SMALL_CELL: Final = 16
TINY_CELL: Final = 8
LEFT: Final = 120
TOP: Final = 96
MAX_NAMES: Final = 96
"""Ends drawn; of more, those that are odd and the first ones."""
STEPS: Final = (0.75, 1.2, 1.5, 2.0, 3.0)
"""Factors at which the next darker step begins."""


def step_of(factor: float) -> int:
    """Return the step of the heat scale, 0 to 5."""
    return sum(factor >= limit for limit in STEPS)


def names_shown(matrix: Matrix) -> tuple[str, ...]:
    """Return the ends that are drawn, in their order."""
    if len(matrix.names) <= MAX_NAMES:
        return matrix.names
    wanted = [name for odd in matrix.odd for name in (odd.src, odd.dst) if name]
    kept = set(list(dict.fromkeys([*wanted, *matrix.names]))[:MAX_NAMES])
    return tuple(name for name in matrix.names if name in kept)


def link_matrix_svg(matrix: Matrix, *, href: Callable[[str], str | None], describe: Callable[[Link], str]) -> str:
    """Return the picture. `href` gives the page of an end, `describe` what a cell says."""
    names = names_shown(matrix)
    side = CELL if len(names) <= 20 else SMALL_CELL if len(names) <= 48 else TINY_CELL
    at = {name: index for index, name in enumerate(names)}
    width, height = LEFT + side * len(names) + 16, TOP + side * len(names) + 52
    parts: list[str] = [
        svg.text(LEFT - 8, TOP - 74, "sends ↓   receives →", "axis-label", anchor="end"),
        *_headings(matrix, names, side, href),
    ]
    for link in matrix.links:
        if link.src in at and link.dst in at:
            parts.append(_cell(link, LEFT + at[link.dst] * side, TOP + at[link.src] * side, side, describe))
    for odd in matrix.odd:
        if odd.kind in ("row", "both") and odd.src in at:
            parts.append(_outline(LEFT, TOP + at[odd.src] * side, side * len(names), side))
        column = odd.dst if odd.kind == "column" else odd.src if odd.kind == "both" else ""
        if column in at:
            parts.append(_outline(LEFT + at[column] * side, TOP, side, side * len(names)))
        if odd.kind == "cell" and odd.src in at and odd.dst in at:
            parts.append(_outline(LEFT + at[odd.dst] * side, TOP + at[odd.src] * side, side, side))
    parts.append(_legend(TOP + side * len(names) + 18))
    said = "; ".join(odd.text for odd in matrix.odd[:3]) or "no row, column or cell stands out"
    label = f"Links between {len(matrix.names)} {matrix.ends}, sender by receiver: {said}"
    return svg.picture(max(width, LEFT + 420), height, *parts, label=label)


def _headings(matrix: Matrix, names: tuple[str, ...], side: int, href: Callable[[str], str | None]) -> list[str]:
    odd_rows = {odd.src for odd in matrix.odd if odd.kind in ("row", "both")}
    odd_columns = {odd.dst if odd.kind == "column" else odd.src for odd in matrix.odd if odd.kind in ("column", "both")}
    every = 1 if side > TINY_CELL else 4
    parts: list[str] = []
    for index, name in enumerate(names):
        marked = name in odd_rows or name in odd_columns
        if index % every and not marked:
            continue
        middle = (index + 0.5) * side
        for is_row in (True, False):
            kind = "heat-name--odd" if name in (odd_rows if is_row else odd_columns) else "axis-label"
            shown = svg.fit(name, LEFT - 16 if is_row else TOP - 18, 11)
            x, y = (LEFT - 8, TOP + middle + 4) if is_row else (LEFT + middle + 4, TOP - 8)
            turned = None if is_row else f"rotate(-60 {x:.1f} {y:.1f})"
            text = svg.element(
                "text", shown, x=x, y=y, class_=kind, text_anchor="end" if is_row else "start", transform=turned
            )
            target = href(name)
            parts.append(svg.anchor(target, text, svg.title(name)) if target else text)
    return parts


def _cell(link: Link, x: float, y: float, side: int, describe: Callable[[Link], str]) -> str:
    step = step_of(link.factor)
    shapes = [svg.element("rect", x=x + 0.5, y=y + 0.5, width=side - 1, height=side - 1, class_=f"heat heat-{step}")]
    if side == CELL:
        number = f"{link.factor:.1f}" if link.factor < 10 else f"{link.factor:.0f}"
        kind = "heat-number heat-number--light" if step >= 3 else "heat-number"
        shapes.append(svg.text(x + side / 2, y + side / 2 + 4, number, kind, anchor="middle"))
    return svg.element("g", *shapes, svg.title(describe(link)))


def _outline(x: float, y: float, width: float, height: float) -> str:
    return svg.element("rect", x=x - 1, y=y - 1, width=width + 2, height=height + 2, class_="heat-odd")


def _legend(y: float) -> str:
    parts: list[str] = []
    words = ("faster", "usual", f"{STEPS[1]:g}×", f"{STEPS[2]:g}×", f"{STEPS[3]:g}×", f"{STEPS[4]:g}× and more")
    x = float(LEFT)
    for step, word in enumerate(words):
        parts.append(svg.element("rect", x=x, y=y, width=14, height=14, class_=f"heat heat-{step}"))
        parts.append(svg.text(x + 18, y + 11, word, "axis-label"))
        x += 28 + svg.measure(word, 11) + 6
    return svg.element("g", *parts)
