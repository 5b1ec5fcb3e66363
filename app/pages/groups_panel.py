"""The walk of a finding as a graph of groups: which operation holds which, and through which rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mycroft.app import words
from mycroft.app.figures import group_graph
from mycroft.app.pages.panel import Child, figure, panel
from mycroft.app.pages.verdict_band import Context, Finding


def record_of(finding: Finding, step: Mapping[str, Any], context: Context) -> str | None:
    """Return where the record lies that a link of the chain rests on: a line of a file, the claim, or the operation."""
    claims = {claim["id"]: claim for claim in finding["evidence"]}
    for name in step["evidence"]:
        claim = claims.get(name)
        if claim is not None and claim.get("file") in context.files:
            return context.links.file(context.files[claim["file"]], claim.get("line"))
    for name in step["evidence"]:
        if name in claims:
            return f"#claim-{name}"
    return context.op(step, (step["waiter"], step["blocker"]))


def groups_panel(finding: Finding, context: Context) -> Child:
    """Return the panel; None where the walk stays in one operation, which the chain shows as well."""
    cause = finding["root_cause"]
    nodes = group_graph.graph_of(finding["chain"], cause["ranks"])
    operations = sum(node.rank is None for node in nodes.values())
    if operations < 2:
        return None
    picture = group_graph.group_graph_svg(
        nodes,
        culprits=cause["ranks"],
        sure=not cause["one_of"],
        hosts={rank: known.host for rank, known in context.ranks.items() if known.host},
        rank_href=context.links.rank,
        op_href=lambda step: context.op(step, (step["waiter"], step["blocker"])),
        record_href=lambda step: record_of(finding, step, context),
    )
    left = len(nodes) - len(group_graph.drawn_of(nodes))
    cut = f" · {words.plural(left, 'box', 'boxes')} farther away not drawn" if left else ""
    return panel(
        "Across the groups",
        figure(picture),
        note=f"{words.plural(operations, 'operation')}, {words.plural(group_graph.groups_in(nodes), 'group')} · "
        f"box: operation · arrow: the rank that it lacks, and its record{cut}",
    )
