"""The page of one collective: who entered it, who finished, with what, in which order, and who is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from mycroft.app import words
from mycroft.app.figures import arrivals
from mycroft.app.pages import shape_panel
from mycroft.app.pages.flow_panel import flow_panel
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.op_entries import (
    Row,
    arrival_text,
    arrivals_of,
    differences,
    entry_state,
    member_states,
    sizes_text,
    split_fields,
    start_of,
    usual,
)
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import (
    Child,
    attributes,
    details,
    empty,
    facts,
    figure,
    html_table,
    link,
    panel,
    tag,
    unknown,
)
from mycroft.app.pages.stack_view import frames_list
from mycroft.app.pages.timeline_panel import timeline_panel
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.reads import operations

COLUMNS: Final = (
    Col("rank", "Rank", 84, numeric=True),
    Col("comm_rank", "In group", 92, numeric=True, help="Rank inside the group"),
    Col("host", "Host", 120),
    Col("state", "State", 150),
    Col("arrival", "Arrival", 112, help="After the first arrival, by each rank's own clock"),
    Col("dur", "Time inside", 112, help="From arrival to the end, as far as it is known"),
    Col("kind", "Operation", 124),
    Col("sizes", "Sizes in → out", flex=2),
    Col("dtype", "Type", 100),
    Col("peer", "Peer", 80, numeric=True),
    Col("differs", "Differs in", 120, help="What is not as on most members"),
)
_STATES: Final = {
    "finished": ("finished", "done"),
    "open": ("entered, open", "wait"),
    "coalesced": ("in a coalesced group", "neutral"),
    "not_entered": ("did not enter", "neutral"),
    "no_dump": ("no dump", "nolog"),
}


def table_rows(
    page: TracePage, members: Sequence[Row], entries: Sequence[Row], states: Mapping[int, arrivals.State]
) -> list[dict[str, Any]]:
    """Return one row per entry, and one per member without any; the absent first, then by arrival."""
    common = usual(entries)
    known = {member["rank"]: member for member in members}
    first = min((t for entry in entries if (t := start_of(entry)) is not None), default=None)
    made: list[dict[str, Any]] = []
    present = {entry["rank"] for entry in entries}
    for rank, state in states.items():
        if rank not in present:
            made.append({"rank": rank, "order": (0, 0, rank), "shown": state})
    for entry in entries:
        start = start_of(entry)
        made.append(
            {
                "rank": entry["rank"],
                "shown": entry_state(entry),
                "order": (1, start if start is not None else -1, entry["rank"]),
                "arrival": None if start is None or first is None else arrival_text(start - first),
                "dur": words.duration(entry["dur_ns"]) if entry["dur_ns"] is not None else None,
                "kind": entry["kind"],
                "sizes": sizes_text(entry),
                "dtype": entry["dtype"],
                "peer": entry["peer"],
                "peer_plain": True,
                "differs": ", ".join(differences(entry, common)) or None,
            }
        )
    made.sort(key=lambda row: row.pop("order"))
    for row in made:
        member = known.get(row["rank"], {})
        text, kind = _STATES[row["shown"]]
        row |= {
            "rank_href": page.links.rank(row["rank"]),
            "rank_plain": True,
            "comm_rank": member.get("comm_rank"),
            "host": member.get("host"),
            "host_href": page.links.host(member["host"]) if member.get("host") else None,
            "state": text,
            "state_kind": kind,
            "is_culprit": row["rank"] in page.culprits,
        }
    return made


def _summary(states: Mapping[int, arrivals.State], size: int | None) -> list[tuple[str, Child]]:
    counts = Counter(states.values())
    named: dict[str, list[int]] = {}
    for rank, state in states.items():
        named.setdefault(state, []).append(rank)
    entered = counts["finished"] + counts["open"]

    def of(state: arrivals.State, mark: Child) -> Child:
        return [mark, " ", words.named_ranks(named[state])] if named.get(state) else "none"

    return [
        ("Entered", f"{entered:,} of {size:,}" if size is not None else [f"{entered:,}, ", unknown("of unknown")]),
        ("Finished", f"{counts['finished']:,}"),
        ("Entered, open", of("open", f"{counts['open']:,}:")),
        ("Did not enter", of("not_entered", f"{counts['not_entered']:,}:")),
        ("No dump", of("no_dump", tag(str(counts["no_dump"]), "nolog"))),
    ]


def _neighbours(page: TracePage, comm: str, comm_id: int, seq: int) -> Child:
    before, after = operations.neighbours(page.reader, comm_id, seq)
    return html.Nav(
        [
            link(f"← {before}", page.links.op(comm, before), class_name="button") if before is not None else None,
            link(f"{after} →", page.links.op(comm, after), class_name="button") if after is not None else None,
        ],
        className="neighbours",
        **attributes(aria_label="Operations before and after"),
    )


def layout(ctx: PageContext, trace: str, comm: str, seq: int) -> Component:
    """Return the page of one operation of one communicator."""
    page = open_trace(ctx, trace)
    group = operations.communicator(page.reader, comm)
    if group is None:
        missing = panel("No such group", empty(f"No group of this trace has the key {comm}."))
        return page.frame("op", missing, crumbs=[(comm, None)])
    crumbs = [(group["desc"] or comm, page.links.comm(comm)), (f"operation {seq}", None)]
    entries = operations.operation(page.reader, group["comm_id"], seq)
    members = operations.members(page.reader, group["comm_id"])
    if not entries:
        missing = panel(
            "No such operation",
            empty(
                f"No rank left an entry of operation {seq} of {comm}.",
                html.P("It was never issued, or it is older than what the ranks still had in their dumps."),
                html.P(link("All operations of the group", page.links.comm(comm))),
            ),
        )
        return page.frame("op", missing, crumbs=crumbs)
    collective = [entry for entry in entries if not entry["is_p2p"]]
    kinds = sorted({entry["kind"] for entry in collective or entries if entry["kind"]})
    stack_ids = sorted({entry["stack_id"] for entry in entries if entry["stack_id"] is not None})
    stacks = operations.frames_of(page.reader, stack_ids[:20])
    return page.frame(
        "op",
        html.Div(
            [
                html.H1(f"{', '.join(kinds) or 'Operation'} {seq}"),
                html.P(["of ", link(group["desc"] or comm, page.links.comm(comm)), f" · {comm}"]),
                _neighbours(page, comm, group["comm_id"], seq),
            ],
            className="page-title",
        ),
        flow_panel(page.reader, comm, seq),
        *(_collective_panels(page, group, members, collective) if collective else ()),
        timeline_panel(page.reader, page.links, around_ns=_first_start(entries)),
        _shape_panel(page, group, collective, seq) if collective else None,
        _pairs_panel(page, comm, operations.other_sides(page.reader, group["comm_id"], seq)),
        _call_sites(entries, stacks),
        crumbs=crumbs,
    )


def _shape_panel(page: TracePage, group: Row, entries: Sequence[Row], seq: int) -> Child:
    """Return the history of the shape that most members gave this operation."""
    found = Counter((entry["kind"], entry["bytes"], entry["dtype"]) for entry in entries).most_common(1)[0][0]
    sizes = [entry["bytes"] for entry in entries if entry["bytes"] is not None]
    shape = (found[0], max(sizes, default=None), found[2])
    return shape_panel.shape_panel(page, group["key"], group["comm_id"], seq=seq, entry=shape)


def _first_start(entries: Sequence[Row]) -> int | None:
    """Return the first arrival, ns since the epoch; None where no entry has a time."""
    return min((t for entry in entries if (t := start_of(entry)) is not None), default=None)


def _collective_panels(page: TracePage, group: Row, members: Sequence[Row], entries: Sequence[Row]) -> list[Child]:
    states = member_states(members, entries)
    common = usual(entries)
    odd = frozenset(entry["rank"] for entry in entries if differences(entry, common))
    split = split_fields(entries)
    drawn = arrivals_of(members, entries, page.culprits, odd)
    cut = max(0, len(drawn) - arrivals.MAX_ROWS)
    clocks = (
        "clocks of the hosts were put together"
        if operations.clocks_are_known(page.reader)
        else "each host's own clock: between hosts, differences may be the clocks'"
    )
    remark: Child = None
    if split:
        remark = html.P(
            [tag("no majority", "neutral"), f" The members differ in {', '.join(split)}, and no value has a majority."],
            className="line",
        )
    elif odd:
        remark = html.P(
            [html.Strong("Differs: "), f"{words.named_ranks(sorted(odd))}, see the table."], className="line"
        )
    return [
        panel("Members", facts(_summary(states, group["size"]), class_name="facts--wide"), remark),
        panel(
            "Order of arrival",
            figure(arrivals.arrivals_svg(drawn, rank_href=page.links.rank)),
            html.P(f"{cut:,} ranks that arrived earlier are only in the table.", className="muted") if cut else None,
            note=f"line: arrival · bar: time inside · hatched: no dump · {clocks}",
        ),
        panel(
            "Entries",
            grid(
                "op-grid",
                COLUMNS,
                table_rows(page, members, entries, states),
                label="Entries of the operation",
                row_class={
                    "row--cause": "params.data.is_culprit",
                    "row--nolog": "params.data.shown == 'no_dump'",
                    "row--odd": "params.data.differs",
                },
            ),
            note=words.plural(len(entries), "entry", "entries"),
            class_name="panel--flush",
        ),
    ]


def _pairs_panel(page: TracePage, comm: str, pairs: Sequence[Row]) -> Child:
    """Return the sends and receives with this number; None where there are none."""
    if not pairs:
        return None
    rows: list[Child] = []
    for pair in pairs:
        verb = "sends to" if pair["kind"] == "send" else "receives from"
        peer: Child = unknown() if pair["peer"] is None else link(f"rank {pair['peer']}", page.links.rank(pair["peer"]))
        rows.append(
            html.Tr(
                [
                    html.Td([link(f"rank {pair['rank']}", page.links.rank(pair["rank"])), f" {verb} ", peer]),
                    html.Td(_other_side(page, comm, pair)),
                    html.Td(html.Code(words.shorten(pair["other_sizes"] or "", 60))),
                ]
            )
        )
    return panel(
        "Sends and receives with this number",
        html_table(("This side", "The other side", "Its sizes"), rows),
        note="each rank numbers its own; both sides are matched by their order in the pair",
    )


def _other_side(page: TracePage, comm: str, pair: Row) -> Child:
    if pair["other_seq"] is None:
        return tag("not in its dump", "neutral") if pair["peer_has_dump"] else tag("no dump", "nolog")
    entry = {
        "state": pair["other_state"],
        "retired": pair["other_retired"],
        "coalesced": pair["other_coalesced"],
    }
    text, kind = _STATES[entry_state(entry)]
    other = "recv" if pair["kind"] == "send" else "send"
    return [link(f"{other} {pair['other_seq']}", page.links.op(comm, pair["other_seq"])), " ", tag(text, kind)]


def _call_sites(entries: Sequence[Row], stacks: Mapping[int, list[str]]) -> Child:
    if not stacks:
        return None
    by_stack: dict[int, list[int]] = {}
    for entry in entries:
        if entry["stack_id"] in stacks:
            by_stack.setdefault(entry["stack_id"], []).append(entry["rank"])
    groups = sorted(by_stack.items(), key=lambda item: (-len(item[1]), item[1]))
    return panel(
        "Called from",
        *[
            details(words.named_ranks(ranks), frames_list(stacks[stack]), opened=len(groups) <= 2)
            for stack, ranks in groups
        ],
        note=words.plural(len(groups), "call site"),
    )


PAGE = Page(
    name="op",
    layout=layout,
    title=lambda ctx, trace, comm, seq: f"Operation {seq} of {comm}, {trace}",
    register_callbacks=shape_panel.register_callbacks,
)
