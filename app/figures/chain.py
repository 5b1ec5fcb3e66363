"""The chain of a cascade: who waits for whom, drawn from the symptom on the left to the culprit on the right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mycroft.app.figures import svg

BOX_WIDTH: Final = 108
BOX_HEIGHT: Final = 46
EDGE_WIDTH: Final = 166
ROW_HEIGHT: Final = 104
TOP: Final = 6
MAX_LINKS: Final = 4
"""Links drawn in one row; the middle of a longer chain is folded, and the list beside the picture has all."""
MAX_ROWS: Final = 5

Step = Mapping[str, Any]


def rows_of(chain: Sequence[Step]) -> list[list[Step]]:
    """Split the links of a verdict into rows in which each blocker is the next waiter."""
    rows: list[list[Step]] = []
    for step in chain:
        if rows and rows[-1][-1]["blocker"] == step["waiter"]:
            rows[-1].append(step)
        else:
            rows.append([step])
    return rows


def is_cycle(row: Sequence[Step]) -> bool:
    """Whether the last one waited for waits for the first: a deadlock."""
    return len(row) > 1 and row[-1]["blocker"] == row[0]["waiter"]


def operation(step: Step) -> str:
    """Return the operation of a link in words; empty where the verdict names none."""
    named = [str(step["op"])] if step.get("op") else []
    named += [str(step["seq"])] if step.get("seq") is not None else []
    return " ".join(named)


def chain_svg(
    chain: Sequence[Step],
    *,
    culprits: Sequence[int],
    sure: bool,
    hosts: Mapping[int, str],
    rank_href: Callable[[int], str],
    op_href: Callable[[Step], str | None],
) -> str:
    """Return the picture of a chain.

    Args:
        chain: links of the verdict, in its order.
        culprits: ranks of the root cause; only they are drawn in the hue of the root cause.
        sure: whether all of them are to blame; False (one of several) draws them outlined.
        hosts: host name of each rank that is known.
        rank_href: address of a rank.
        op_href: address of the operation of a link; None: the verdict does not say which.
    """
    rows = rows_of(chain)
    drawn = rows[:MAX_ROWS]
    guilty = frozenset(culprits)
    parts: list[str] = []
    widest = 0.0
    y = float(TOP)
    for row in drawn:
        row_parts, width = _row(row, y, guilty, sure, hosts, rank_href, op_href)
        parts += row_parts
        widest = max(widest, width)
        y += ROW_HEIGHT + (26 if is_cycle(row) else 0)
    names = "; ".join(
        " waits for ".join([f"rank {row[0]['waiter']}", *(f"rank {step['blocker']}" for step in row)]) for row in drawn
    )
    return svg.picture(widest + 2, y - ROW_HEIGHT + BOX_HEIGHT + 32, *parts, label=f"Chain of waiting: {names}")


def _row(
    row: Sequence[Step],
    y: float,
    guilty: frozenset[int],
    sure: bool,
    hosts: Mapping[int, str],
    rank_href: Callable[[int], str],
    op_href: Callable[[Step], str | None],
) -> tuple[list[str], float]:
    hidden = len(row) - 3 if len(row) > MAX_LINKS else 0
    x = 1.0
    parts = [_box(x, y, int(row[0]["waiter"]), guilty, sure, hosts, rank_href)]
    for index, step in enumerate(row):
        if hidden and 0 < index < hidden:
            continue
        edge_x = x + BOX_WIDTH
        x = edge_x + EDGE_WIDTH
        if hidden and index == hidden:
            # The fold stands for the links 1 to `hidden`; it ends at the rank that the next link starts from.
            parts.append(_fold(edge_x, y, hidden))
        else:
            parts.append(_edge(edge_x, y, step, int(step["blocker"]) in guilty, op_href))
        parts.append(_box(x, y, int(step["blocker"]), guilty, sure, hosts, rank_href))
    if is_cycle(row):
        parts.append(_return_edge(x, y))
    return parts, x + BOX_WIDTH


def _box(
    x: float,
    y: float,
    rank: int,
    guilty: frozenset[int],
    sure: bool,
    hosts: Mapping[int, str],
    rank_href: Callable[[int], str],
) -> str:
    host = hosts.get(rank, "host unknown")
    if rank in guilty:
        kind, mark, says = ("cause" if sure else "suspect"), "▲ ", "root cause" if sure else "suspect"
    else:
        kind, mark, says = "wait", "", "waits"
    middle = x + BOX_WIDTH / 2
    return svg.anchor(
        rank_href(rank),
        svg.element("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=4, class_=f"chain-box chain-box--{kind}"),
        svg.text(middle, y + 19, f"{mark}rank {rank}", f"chain-name chain-name--{kind}", anchor="middle"),
        svg.text(middle, y + 35, svg.fit(host, BOX_WIDTH - 10, 11), f"chain-host chain-host--{kind}", anchor="middle"),
        svg.title(f"rank {rank}, {host}: {says}"),
    )


def _edge(x: float, y: float, step: Step, to_culprit: bool, op_href: Callable[[Step], str | None]) -> str:
    middle_y = y + BOX_HEIGHT / 2
    middle_x = x + EDGE_WIDTH / 2
    kind = "cause" if to_culprit else "wait"
    shapes = [
        svg.element(
            "line", x1=x + 4, y1=middle_y, x2=x + EDGE_WIDTH - 10, y2=middle_y, class_=f"chain-edge chain-edge--{kind}"
        ),
        svg.element(
            "path",
            d=f"M{x + EDGE_WIDTH - 12:g} {middle_y - 5:g} l8 5 l-8 5 z",
            class_=f"chain-arrow chain-arrow--{kind}",
        ),
    ]
    if to_culprit:
        # A cross as a second sign beside the hue: nothing gets past this point.
        shapes.append(
            svg.element(
                "path",
                d=f"M{middle_x - 5:g} {middle_y - 5:g} l10 10 m0 -10 l-10 10",
                class_="chain-cross",
            )
        )
    named = operation(step)
    group = str(step.get("group") or "")
    above = svg.text(middle_x, middle_y - 11, svg.fit(named, EDGE_WIDTH - 16, 12), "chain-op", anchor="middle")
    address = op_href(step)
    if address is not None:
        above = svg.anchor(address, above)
    lines = [(svg.fit(group, EDGE_WIDTH - 10, 11), "chain-group")] if group else []
    reason = str(step.get("why") or "")
    lines += [(line, "chain-why") for line in svg.wrap(reason, EDGE_WIDTH - 8, 11, lines=2 if group else 3)]
    below = [
        svg.text(middle_x, middle_y + 19 + 15 * n, line, kind, anchor="middle") for n, (line, kind) in enumerate(lines)
    ]
    return svg.element(
        "g",
        *shapes,
        above,
        *below,
        svg.title(
            f"rank {step['waiter']} waits for rank {step['blocker']} in {named} of {group}: {step.get('why') or ''}"
        ),
    )


def _fold(x: float, y: float, count: int) -> str:
    middle_y = y + BOX_HEIGHT / 2
    return svg.element(
        "g",
        svg.element("line", x1=x + 4, y1=middle_y, x2=x + EDGE_WIDTH - 4, y2=middle_y, class_="chain-edge--fold"),
        svg.element("rect", x=x + 48, y=middle_y - 13, width=EDGE_WIDTH - 96, height=26, rx=13, class_="chain-pill"),
        svg.text(x + EDGE_WIDTH / 2, middle_y + 4, f"{count:,} more steps", "chain-more", anchor="middle"),
    )


def _return_edge(x: float, y: float) -> str:
    bottom = y + BOX_HEIGHT
    low = bottom + 34
    left = 1.0 + BOX_WIDTH / 2
    right = x + BOX_WIDTH / 2
    return svg.element(
        "g",
        svg.element(
            "path",
            d=f"M{right:g} {bottom + 2:g} V{low:g} H{left:g} V{bottom + 8:g}",
            class_="chain-edge chain-edge--cause chain-edge--return",
        ),
        svg.element("path", d=f"M{left - 5:g} {bottom + 10:g} l5 -8 l5 8 z", class_="chain-arrow chain-arrow--cause"),
        svg.text((left + right) / 2, low + 15, "the same rank again: a cycle", "chain-why", anchor="middle"),
    )
