"""Ends of the walk over flows as causes: what is one fault although the walk ends at several places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mycroft.analysis.flow import FlowKey
from mycroft.analysis.flow_graph import Cause, flow_node, flow_of, op_of
from mycroft.analysis.walk import Node

# Sinks that name a rank and may be of a whole host.
OF_RANKS: Final = ("crash", "silent", "stopped")


def grouped(causes: Sequence[Cause]) -> list[Cause]:
    """Stuck flows of one fault are one cause: all `net` ends that share a rank, and every sink of one rank once."""
    causes = _without_credit(causes)
    nets = [c for c in causes if c.kind == "net"]
    rest = [c for c in causes if c.kind != "net"]
    groups: list[list[Cause]] = []
    for cause in nets:
        ends = set(ends_of(cause))
        touching = [g for g in groups if any(ends & set(ends_of(c)) for c in g)]
        merged = [cause, *(c for g in touching for c in g)]
        groups = [g for g in groups if g not in touching] + [merged]
    joined = [
        Cause(
            tuple(sorted({n for c in group for n in c.nodes})),
            tuple(sorted({r for c in group for r in c.blocked})),
            max((c.path for c in group), key=lambda path: (path[-1:] and path[-1].dst.kind == "net", len(path))),
        )
        for group in groups
    ]
    return sorted([*joined, *rest], key=lambda c: (-len(c.blocked), c.nodes))


def unsent(cause: Cause) -> FlowKey | None:
    """Return the flow whose sender has data and, as the receiver says, credit; None: another kind of cause."""
    last = cause.path[-1] if cause.path else None
    return flow_of(last.src) if cause.kind == "proxy" and last is not None and last.src.kind == "flow" else None


def _without_credit(causes: Sequence[Cause]) -> list[Cause]:
    """Take senders that do not send for a dead link where one of the two ranks has another flow that stands.

    The receiver's word of what it posted travels over the same link: one that is down can keep it from the sender.
    """
    held = {cause.nodes: flow for cause in causes if (flow := unsent(cause)) is not None}
    found: list[Cause] = []
    for cause in causes:
        flow = held.get(cause.nodes)
        others = {r for c in causes if c.kind == "net" for r in ends_of(c)}
        others |= {r for nodes, f in held.items() if nodes != cause.nodes for r in (f.src, f.dst)}
        if flow is not None and others & {flow.src, flow.dst}:
            cause = Cause((Node("net", flow_node(flow).key),), cause.blocked, cause.path)
        found.append(cause)
    return found


def of_hosts(causes: Sequence[Cause], hosts: Mapping[int, str | None], traced: frozenset[int]) -> list[Cause]:
    """All traced ranks of a host gone at once are one cause: the host."""
    found = list(causes)
    for kind in ("crash", "silent", "stopped"):
        by_host: dict[str, list[Cause]] = {}
        for cause in causes:
            host = hosts.get(cause.nodes[0].key[0]) if cause.kind == kind else None
            if host is not None:
                by_host.setdefault(host, []).append(cause)
        for host, gone in by_host.items():
            members = {r for r, h in hosts.items() if h == host and r in traced}
            if len(gone) < 2 or {c.nodes[0].key[0] for c in gone} != members:
                continue
            found = [c for c in found if c not in gone]
            found.append(
                Cause(
                    tuple(sorted(n for c in gone for n in c.nodes)),
                    tuple(sorted({r for c in gone for r in c.blocked})),
                    max((c.path for c in gone), key=len),
                )
            )
    return sorted(found, key=lambda c: (-len(c.blocked), c.nodes))


def ends_of(cause: Cause) -> list[int]:
    """Return sender and receiver of every flow that the network holds, as often as they occur."""
    return [r for n in cause.nodes if n.kind == "net" for r in (flow_of(n).src, flow_of(n).dst)]


def one_operation(cause: Cause) -> bool:
    """A circle inside one operation is missing evidence, no deadlock."""
    ops = {flow_of(n).op for n in cause.nodes if n.kind == "flow"} | {op_of(n) for n in cause.nodes if n.kind == "op"}
    flows = any(n.kind == "flow" for n in cause.nodes)
    return flows and len({op.comm for op in ops}) == 1


def kind_of(cause: Cause) -> str:
    """Return the kind of sink, also where several of one kind are one cause."""
    kinds = {n.kind for n in cause.nodes}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= {"net", *OF_RANKS} else cause.kind
