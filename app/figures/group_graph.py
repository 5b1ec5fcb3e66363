"""Who waits for whom as a graph of groups: operations that stand still, and the ranks through which one holds another.

A box is one operation of one group; an arrow leads from an operation to what the rank waits for that it lacks: another
operation, of another group mostly, and in the end the rank to blame. The walk is the verdict's; only its form is made
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mycroft.app import words
from mycroft.app.figures import svg

BOX_WIDTH: Final = 176
BOX_HEIGHT: Final = 58
RANK_WIDTH: Final = 108
GAP_X: Final = 86
GAP_Y: Final = 22
TOP: Final = 8
NODES_MAX: Final = 40
"""Boxes that are drawn, the nearest to the root cause first; what is left is said."""

Step = Mapping[str, Any]
Key = tuple[str, str, str]


@dataclass
class Node:
    """One operation of one group, or a rank at the end of the walk (`rank` is then set)."""

    key: Key
    step: Step | None = None
    rank: int | None = None
    waiters: set[int] = field(default_factory=set[int])
    leads: dict[Key, dict[int, Step]] = field(default_factory=dict[Key, "dict[int, Step]"])


def _key(step: Step) -> Key:
    """Return what makes links be of one operation; a send or receive, or one without a record, is of its rank."""
    group = str(step.get("comm") or step.get("group") or "")
    is_own = not group or step.get("seq") is None or not {"send", "recv"}.isdisjoint(str(step.get("op")).split("/"))
    number = f"{step.get('seq')} of {step['waiter']}" if is_own else str(step["seq"])
    return (group, str(step.get("op") or ""), number)


def graph_of(chain: Sequence[Step], culprits: Sequence[int]) -> dict[Key, Node]:
    """Return the operations of a chain and what each leads to; `leads` maps to the rank and the link between them."""
    nodes: dict[Key, Node] = {}
    waits_in: dict[int, set[Key]] = {}
    for step in chain:
        node = nodes.setdefault(_key(step), Node(_key(step), step=step))
        node.waiters.add(int(step["waiter"]))
        waits_in.setdefault(int(step["waiter"]), set()).add(node.key)
    guilty = set(culprits)
    for step in chain:
        own, blocker = _key(step), int(step["blocker"])
        targets = set() if blocker in guilty else waits_in.get(blocker, set()) - {own}
        if not targets:
            # The walk ends here: at the root cause, or where the evidence does.
            end = ("", "rank", str(blocker))
            nodes.setdefault(end, Node(end, rank=blocker))
            targets = {end}
        for target in targets:
            nodes[own].leads.setdefault(target, {}).setdefault(blocker, step)
    return nodes


def groups_in(nodes: Mapping[Key, Node]) -> int:
    """Return how many groups take part, as far as they are known."""
    return len({node.key[0] for node in nodes.values() if node.rank is None} - {""})


def columns_of(nodes: Mapping[Key, Node]) -> dict[Key, int]:
    """Return the steps from each box to the end of its walk, 0 for the end itself; cycles are cut where they close."""
    before: dict[Key, list[Key]] = {key: [] for key in nodes}
    for node in nodes.values():
        for target in node.leads:
            before[target].append(node.key)
    ends = [key for key, node in nodes.items() if not node.leads] or list(nodes)[:1]
    steps = dict.fromkeys(ends, 0)
    front = ends
    while front:
        reached: list[Key] = []
        for key in front:
            for source in before[key]:
                if source not in steps:
                    steps[source] = steps[key] + 1
                    reached.append(source)
        front = reached
    # What leads to no end is part of a cycle of its own.
    for key in nodes:
        steps.setdefault(key, 0)
    return steps


def drawn_of(nodes: Mapping[Key, Node]) -> list[Key]:
    """Return the boxes that are drawn, the nearest to the end first."""
    steps = columns_of(nodes)
    return sorted(nodes, key=lambda key: (steps[key], nodes[key].rank is None, key))[:NODES_MAX]


def group_graph_svg(
    nodes: Mapping[Key, Node],
    *,
    culprits: Sequence[int],
    sure: bool,
    hosts: Mapping[int, str],
    rank_href: Callable[[int], str],
    op_href: Callable[[Step], str | None],
    record_href: Callable[[Step], str | None],
) -> str:
    """Return the picture, the symptom on the left and the root cause on the right.

    Args:
        nodes: from `graph_of`.
        culprits: ranks of the root cause; only they are drawn in its hue.
        sure: whether all of them are to blame; False draws them outlined.
        hosts: host name of each rank that is known.
        rank_href: address of a rank.
        op_href: address of the operation of a link; None: the verdict does not say which.
        record_href: address of what a link of the chain rests on; None: nowhere.
    """
    shown = drawn_of(nodes)
    steps = columns_of(nodes)
    most = max((steps[key] for key in shown), default=0)
    rows: dict[int, int] = {}
    places: dict[Key, tuple[float, float]] = {}
    for key in shown:
        column = most - steps[key]
        row = rows.get(column, 0)
        rows[column] = row + 1
        places[key] = (1.0 + column * (BOX_WIDTH + GAP_X), TOP + row * (BOX_HEIGHT + GAP_Y))
    guilty = frozenset(culprits)
    edges: list[str] = []
    boxes: list[str] = []
    for key in shown:
        node = nodes[key]
        for target, through in node.leads.items():
            if target in places:
                to_culprit = nodes[target].rank in guilty
                edges.append(_edge(places[key], places[target], through, to_culprit, record_href))
        box = _rank_box(node.rank, places[key], guilty, sure, hosts, rank_href) if node.rank is not None else None
        boxes.append(box or _operation_box(node, places[key], op_href))
    width = max(x + (BOX_WIDTH if nodes[key].rank is None else RANK_WIDTH) for key, (x, _) in places.items()) + 2
    height = TOP + max(rows.values()) * (BOX_HEIGHT + GAP_Y) + 6
    count = words.plural(sum(node.rank is None for node in nodes.values()), "operation")
    label = f"{count} that wait for each other, and for {words.named_ranks(culprits)}"
    return svg.picture(width, height, *edges, *boxes, label=label)


def _operation_box(node: Node, place: tuple[float, float], op_href: Callable[[Step], str | None]) -> str:
    x, y = place
    step = node.step or {}
    named = " ".join(part for part in (str(step.get("op") or "operation"), _seq(step)) if part)
    comm = str(step.get("comm") or "")
    role = words.role(comm.rpartition("-")[0] or None) if comm else "group unknown"
    group = str(step.get("group") or comm)
    place_text = " · ".join(part for part in (role, group) if part)
    waiting = f"{words.plural(len(node.waiters), 'rank')} waiting" if len(node.waiters) > 1 else _only(node.waiters)
    shapes = [
        svg.element("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=4, class_="chain-box chain-box--wait"),
        svg.text(x + 10, y + 19, svg.fit(named, BOX_WIDTH - 20, 12), "chain-op"),
        svg.text(x + 10, y + 34, svg.fit(place_text, BOX_WIDTH - 20, 11), "chain-group"),
        svg.text(x + 10, y + 49, svg.fit(waiting, BOX_WIDTH - 20, 11), "chain-group"),
        svg.title(f"{named}, {place_text}: {words.named_ranks(sorted(node.waiters))} waiting"),
    ]
    address = op_href(step) if node.step else None
    if address is not None:
        return svg.anchor(address, *shapes)
    return svg.element("g", *shapes)


def _only(waiters: set[int]) -> str:
    return f"rank {next(iter(waiters))} waiting" if waiters else ""


def _seq(step: Step) -> str:
    return "" if step.get("seq") is None else str(step["seq"])


def _rank_box(
    rank: int,
    place: tuple[float, float],
    guilty: frozenset[int],
    sure: bool,
    hosts: Mapping[int, str],
    rank_href: Callable[[int], str],
) -> str:
    x, y = place
    if rank in guilty:
        kind, mark, says = ("cause" if sure else "suspect"), "▲ ", "root cause" if sure else "suspect"
    else:
        kind, mark, says = "wait", "", "what it waits for is not in the evidence"
    host = hosts.get(rank, "host unknown")
    middle = x + RANK_WIDTH / 2
    box = svg.element(
        "rect", x=x, y=y, width=RANK_WIDTH, height=BOX_HEIGHT, rx=4, class_=f"chain-box chain-box--{kind}"
    )
    return svg.anchor(
        rank_href(rank),
        box,
        svg.text(middle, y + 26, f"{mark}rank {rank}", f"chain-name chain-name--{kind}", anchor="middle"),
        svg.text(middle, y + 43, svg.fit(host, RANK_WIDTH - 10, 11), f"chain-host chain-host--{kind}", anchor="middle"),
        svg.title(f"rank {rank}, {host}: {says}"),
    )


def _edge(
    start: tuple[float, float],
    end: tuple[float, float],
    through: Mapping[int, Step],
    to_culprit: bool,
    record_href: Callable[[Step], str | None],
) -> str:
    kind = "cause" if to_culprit else "wait"
    x0, y0 = start[0] + BOX_WIDTH + 2, start[1] + BOX_HEIGHT / 2
    x1, y1 = end[0] - 10, end[1] + BOX_HEIGHT / 2
    bend = max(40.0, (x1 - x0) / 2) if x1 > x0 else 90.0
    path = f"M{x0:g} {y0:g} C{x0 + bend:g} {y0:g} {x1 - bend:g} {y1:g} {x1:g} {y1:g}"
    ranks = sorted(through)
    named = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    step = through[ranks[0]]
    middle = (x0 + x1) / 2, (y0 + y1) / 2
    shapes = [
        svg.element("path", d=path, class_=f"chain-edge chain-edge--{kind}"),
        svg.element("path", d=f"M{x1 - 2:g} {y1 - 5:g} l8 5 l-8 5 z", class_=f"chain-arrow chain-arrow--{kind}"),
        svg.text(middle[0], middle[1] - 6, named, "chain-op", anchor="middle"),
        svg.title(f"{words.named_ranks(ranks)}: {step.get('why') or 'has not come'}"),
    ]
    href = record_href(step)
    return svg.anchor(href, *shapes) if href is not None else svg.element("g", *shapes)
