"""Which evidence each rank left behind: one strip per kind of evidence, one cell per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mycroft.app import words
from mycroft.app.figures import svg

LABEL_WIDTH: Final = 120
COUNT_WIDTH: Final = 120
STRIP_WIDTH: Final = 940
STRIP_HEIGHT: Final = 16
ROW: Final = 24
MAX_CELLS: Final = 470
"""Cells drawn in a strip; of more ranks several share one, and a cell counts as missing if any of them is."""


def coverage_svg(world: int, strips: Sequence[tuple[str, frozenset[int]]], *, culprits: Mapping[int, str]) -> str:
    """Return the picture of `world` ranks.

    Args:
        world: number of ranks, 0 to `world` - 1.
        strips: name of a kind of evidence, and the ranks that left some.
        culprits: ranks of the root cause, marked under the strips, with the word for each.
    """
    per_cell = -(-world // MAX_CELLS)
    cells = -(-world // per_cell)
    width = STRIP_WIDTH / cells
    gap = 1.0 if width > 4 else 0.0
    parts = [_defs()]
    for row, (name, present) in enumerate(strips):
        y = 4 + row * ROW
        parts.append(svg.text(LABEL_WIDTH - 12, y + 12, name, "coverage-label", anchor="end"))
        for cell in range(cells):
            ranks = range(cell * per_cell, min((cell + 1) * per_cell, world))
            missing = [rank for rank in ranks if rank not in present]
            x = LABEL_WIDTH + cell * width
            parts.append(
                svg.element(
                    "rect",
                    svg.title(
                        f"rank {ranks[0]}"
                        if len(ranks) == 1
                        else f"ranks {ranks[0]}–{ranks[-1]}, {len(missing)} missing"
                    ),
                    x=x,
                    y=y,
                    width=max(width - gap, 0.8),
                    height=STRIP_HEIGHT,
                    class_="coverage-none" if missing else "coverage-some",
                )
            )
        have = sum(rank in present for rank in range(world))
        parts.append(svg.text(LABEL_WIDTH + STRIP_WIDTH + 12, y + 12, f"{have:,} of {world:,} ranks", "coverage-count"))
    bottom = 4 + len(strips) * ROW
    for rank, says in culprits.items():
        if rank < world:
            x = LABEL_WIDTH + (rank // per_cell + 0.5) * width
            parts.append(
                svg.element(
                    "path",
                    svg.title(f"rank {rank}: {says}"),
                    d=f"M{x - 5:.1f} {bottom + 9} l5 -9 l5 9 z",
                    class_="cause-mark",
                )
            )
    parts.append(svg.text(LABEL_WIDTH, bottom + 24, "rank 0", "axis-label"))
    parts.append(svg.text(LABEL_WIDTH + STRIP_WIDTH, bottom + 24, f"rank {world - 1:,}", "axis-label", anchor="end"))
    if len(culprits) == 1 and (rank := next(iter(culprits))) < world:
        x = LABEL_WIDTH + (rank // per_cell + 0.5) * width
        if LABEL_WIDTH + 60 < x < LABEL_WIDTH + STRIP_WIDTH - 80:
            parts.append(svg.text(x, bottom + 24, f"rank {rank}, {culprits[rank]}", "cause-label", anchor="middle"))
    label = "; ".join(f"{name}: {sum(r in present for r in range(world))} of {world} ranks" for name, present in strips)
    return svg.picture(
        LABEL_WIDTH + STRIP_WIDTH + COUNT_WIDTH, bottom + 30, *parts, label=f"Evidence per rank. {label}"
    )


def _defs() -> str:
    line = svg.element("path", d="M0 6 L6 0", class_="hatch-line")
    return svg.element(
        "defs", svg.element("pattern", line, id="hatch-cover", width=6, height=6, patternUnits="userSpaceOnUse")
    )


def missing_text(world: int, strips: Sequence[tuple[str, frozenset[int]]]) -> list[str]:
    """Return the ranks that each kind of evidence lacks, in words; kinds that lack none or have none are left out."""
    found: list[str] = []
    for name, present in strips:
        missing = [rank for rank in range(world) if rank not in present]
        if present and missing:
            found.append(f"{name}: {words.named_ranks(missing)}")
    return found
