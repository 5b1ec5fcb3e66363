"""The page of one communicator: its members and how far each came, and its operations."""

from __future__ import annotations

from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from mycroft.app import words
from mycroft.app.pages import shape_panel
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import empty, facts, panel, unknown
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.reads import operations

OPS_MAX: Final = 5000

MEMBER_COLUMNS: Final = (
    Col("rank", "Rank", 84, numeric=True),
    Col("comm_rank", "In group", 92, numeric=True),
    Col("host", "Host"),
    Col("enqueued", "Last enqueued", 132, numeric=True),
    Col("completed", "Last completed", 136, numeric=True),
    Col("last", "Last entry", 106, numeric=True),
    Col("behind", "Behind", 92, numeric=True, help="Behind the furthest member"),
    Col("open", "Open", 84, numeric=True),
    Col("dump", "Dump", 110),
)
OP_COLUMNS: Final = (
    Col("seq", "Number", 100, numeric=True),
    Col("kind", "Operation"),
    Col("entered", "Entered", 110),
    Col("finished", "Finished", 96, numeric=True),
    Col("spread", "Arrivals within", 140, help="From the first to the last arrival, by the hosts' own clocks"),
    Col("first", "First arrival", 130),
    Col("bytes", "Size", 110),
    Col("shapes", "Shapes", 92, numeric=True, help="Different sizes and types among the members"),
)


def _member_rows(page: TracePage, members: list[dict[str, Any]]) -> list[dict[str, Any]]:
    furthest = max((m["last_seq"] for m in members if m["last_seq"] is not None), default=None)
    key_of = {True: "yes", False: "no dump"}
    return [
        {
            "rank": m["rank"],
            "rank_href": page.links.rank(m["rank"]),
            "rank_plain": True,
            "comm_rank": m["comm_rank"],
            "host": m["host"],
            "host_href": page.links.host(m["host"]) if m["host"] else None,
            "enqueued": m["last_enqueued"],
            "enqueued_plain": True,
            "completed": m["last_completed"],
            "completed_plain": True,
            "last": m["last_seq"],
            "last_plain": True,
            "behind": None if m["last_seq"] is None or furthest is None else furthest - m["last_seq"],
            "open": m["open_ops"],
            "dump": key_of[bool(m["dumps"])],
            "dump_kind": None if m["dumps"] else "nolog",
            "is_culprit": m["rank"] in page.culprits,
        }
        for m in members
    ]


def layout(ctx: PageContext, trace: str, comm: str) -> Component:
    """Return the page of a communicator, by its key."""
    page = open_trace(ctx, trace)
    group = operations.communicator(page.reader, comm)
    if group is None:
        missing = panel("No such group", empty(f"No group of this trace has the key {comm}."))
        return page.frame("comm", missing, crumbs=[(comm, None)])
    members = operations.members(page.reader, group["comm_id"])
    found, total = operations.operations_of_comm(page.reader, group["comm_id"], limit=OPS_MAX)
    is_sized = group["size"] is not None
    size = group["size"] if is_sized else len(members)
    rows = [
        {
            "seq": op["seq"],
            "seq_plain": True,
            "seq_href": page.links.op(comm, op["seq"]) if op["seq"] is not None else None,
            "kind": op["kind"],
            "entered": f"{op['entered']:,}" if op["is_p2p"] else f"{op['entered']:,} of {size:,}",
            "finished": op["finished"],
            "spread": words.duration(op["spread_ns"]) if op["spread_ns"] is not None else None,
            "first": words.time_of(op["first_ns"]) if op["first_ns"] is not None else None,
            "bytes": words.size(op["bytes"]) if op["bytes"] is not None else None,
            "shapes": op["shapes"],
            "is_open": op["finished"] < op["entered"] or (op["entered"] < size and not op["is_p2p"]),
        }
        for op in found
    ]
    note = words.plural(total, "operation") + (f", the newest {OPS_MAX:,} shown" if total > len(found) else "")
    return page.frame(
        "comm",
        html.Div(
            [html.H1(group["desc"] or group["name"] or comm), html.P(f"{comm} · {words.role(group['kind'])}")],
            className="page-title",
        ),
        panel(
            "Group",
            facts(
                [
                    (
                        "Members",
                        f"{size:,}" if group["size"] is not None else [f"{size:,} seen, ", unknown("size unknown")],
                    ),
                    ("Seen", None if group["seen_size"] is None else words.number(group["seen_size"])),
                    ("Name", group["name"]),
                    ("Backend", group["backend"]),
                ],
                class_name="facts--wide",
            ),
        ),
        panel(
            "Members",
            grid(
                "comm-members",
                MEMBER_COLUMNS,
                _member_rows(page, members),
                label="Members",
                rows_shown=12,
                row_class={"row--cause": "params.data.is_culprit", "row--nolog": "params.data.dump_kind == 'nolog'"},
            )
            if members
            else empty("No source lists its members."),
            class_name="panel--flush",
        ),
        shape_panel.shape_panel(page, comm, group["comm_id"]),
        panel(
            "Operations, newest first",
            grid(
                "comm-ops",
                OP_COLUMNS,
                rows,
                label="Operations of the group",
                rows_shown=18,
                row_class={"row--odd": "params.data.is_open"},
            )
            if rows
            else empty("No operation of this group is in the evidence."),
            note=note,
            class_name="panel--flush",
        ),
        crumbs=[(group["desc"] or comm, None)],
    )


PAGE = Page(name="comm", layout=layout, title=lambda ctx, trace, comm: f"{comm} of {trace}")
