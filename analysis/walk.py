"""The walk from who waits to what waits for nobody: nodes, edges that say `cannot go on before`, and where they end.

There is one walk, whatever the edges come from. What dumps know of calls (`waitgraph`) leads from ranks to operations
and ends at a rank; what a tracer knows of flows (`flow_graph`) goes on from there, to one stage of one flow. Nodes are
values, not classes of their own, so that a further source adds kinds of nodes and no code here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Node(NamedTuple):
    """One node: its kind, and what it names; the sources of edges say which kinds there are."""

    kind: str
    key: tuple[int, ...]


class Edge(NamedTuple):
    """`src` cannot go on before `dst` does, because `why`."""

    src: Node
    dst: Node
    why: str


def rank_node(rank: int) -> Node:
    """Return the node of a rank: the kind that every source has, and where walks begin."""
    return Node("rank", (rank,))


@dataclass(frozen=True, slots=True)
class Way:
    """All that leads to some nodes, walked back from them, the nearest first."""

    goal: frozenset[Node]
    steps: Mapping[Node, Edge]
    """The first edge of a shortest way, of every node that is not there yet."""
    depth: Mapping[Node, int]
    """Length of that way; 0 at the goal."""

    def ranks(self) -> tuple[int, ...]:
        """Return the ranks from which the walk comes here, those that are there among them."""
        return tuple(sorted(n.key[0] for n in self.depth if n.kind == "rank"))

    def longest(self) -> tuple[Edge, ...]:
        """Return the way from the rank that is furthest off: the whole cascade, symptom first; empty: there is none."""
        ranks = [n for n in self.depth if n.kind == "rank" and n not in self.goal]
        if not ranks:
            return ()
        node = min(ranks, key=lambda n: (-self.depth[n], n.key))
        path: list[Edge] = []
        while node not in self.goal:
            path.append(self.steps[node])
            node = self.steps[node].dst
        return tuple(path)


@dataclass(frozen=True)
class Walk:
    """A graph that is complete: the edges out of every node."""

    edges: Mapping[Node, Sequence[Edge]]

    @cached_property
    def back(self) -> Mapping[Node, Sequence[Edge]]:
        """The edges into every node."""
        found: dict[Node, list[Edge]] = {}
        for out in self.edges.values():
            for edge in out:
                found.setdefault(edge.dst, []).append(edge)
        return found

    def ends(self) -> list[tuple[Node, ...]]:
        """Return where walks end: nodes that wait for nothing, and circles that nothing leads out of."""
        still = [n for n in {*self.edges, *self.back} if not self.edges.get(n)]
        # Circles are only where no way leads to such a node: few or none.
        leads_on, near = set(still), list(still)
        for here in near:
            more = [edge.src for edge in self.back.get(here, ()) if edge.src not in leads_on]
            leads_on.update(more)
            near += dict.fromkeys(more)
        circling = {n: out for n, out in self.edges.items() if n not in leads_on}
        circles = [tuple(sorted(c)) for c in strongly_connected(circling)] if circling else []
        return sorted([*((n,) for n in still), *(c for c in circles if not self._leads_out(c))])

    def _leads_out(self, circle: tuple[Node, ...]) -> bool:
        inside = set(circle)
        return any(edge.dst not in inside for node in circle for edge in self.edges.get(node, ()))

    def to(self, goal: Iterable[Node]) -> Way:
        """Return all that leads to some nodes."""
        there = sorted(goal)
        depth = dict.fromkeys(there, 0)
        steps: dict[Node, Edge] = {}
        queue = deque(depth)
        while queue:
            here = queue.popleft()
            for edge in self.back.get(here, ()):
                if edge.src not in depth:
                    depth[edge.src] = depth[here] + 1
                    steps[edge.src] = edge
                    queue.append(edge.src)
        return Way(frozenset(there), steps, depth)


def strongly_connected(edges: Mapping[Node, Sequence[Edge]]) -> list[list[Node]]:
    """Return the strongly connected components (Tarjan 1972), iteratively: graphs of a thousand ranks are deep."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    on_stack: set[Node] = set()
    stack: list[Node] = []
    components: list[list[Node]] = []
    nodes = sorted({*edges, *(e.dst for out in edges.values() for e in out)})
    for start in nodes:
        if start in index:
            continue
        work: list[tuple[Node, int]] = [(start, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            descend = False
            out = edges.get(node, ())
            for i in range(at, len(out)):
                other = out[i].dst
                if other not in index:
                    work += [(node, i + 1), (other, 0)]
                    descend = True
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            if descend:
                continue
            if low[node] == index[node]:
                component: list[Node] = []
                while True:
                    other = stack.pop()
                    on_stack.discard(other)
                    component.append(other)
                    if other == node:
                        break
                components.append(component)
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return components
