"""The page of one rank: where it is, how far it came, what it did last, its stack and its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from mycroft.app import words
from mycroft.app.figures.graph import graph
from mycroft.app.figures.lateness import lateness_figure
from mycroft.app.pages import ranks_grid
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, details, empty, facts, link, panel, tag, unknown
from mycroft.app.pages.stack_view import frames_list
from mycroft.app.pages.timeline_panel import timeline_panel
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.reads import evidence, ranks
from mycroft.app.reads.ranks import RankRow

OPS_MAX: Final = 2000
LOG_LINES: Final = 40
LATENESS_MAX: Final = 1000
LATENESS_MIN: Final = 8
"""Collectives from which a chart says more than the table."""

GROUP_COLUMNS: Final = (
    Col("key", "Group", 140),
    Col("desc", "Description", flex=2),
    Col("comm_rank", "In group", 84, numeric=True, help="Rank inside the group"),
    Col("enqueued", "Enqueued", 98, numeric=True, help="Last enqueued, as the dump or log says it"),
    Col("completed", "Completed", 102, numeric=True, help="Last completed, as the dump or log says it"),
    Col("last", "Newest", 84, numeric=True, help="Greatest sequence number among its entries"),
    Col("behind", "Behind", 80, numeric=True, help="How far its newest entry is behind the furthest member's"),
    Col("open", "Open", 70, numeric=True, help="Entries that it issued and did not finish"),
)
OP_COLUMNS: Final = (
    Col("record", "Entry", 92, numeric=True, help="Order inside the dump of this rank"),
    Col("op", "Operation", 170),
    Col("group", "Group", flex=2),
    Col("state", "State", 124),
    Col("time", "Enqueued", 124, help="UTC, by the clock of its host"),
    Col("dur", "Time inside", 112),
    Col("bytes", "Size", 100),
    Col("sizes", "Sizes in", 150),
    Col("dtype", "Type", 100),
    Col("peer", "Peer", 76, numeric=True),
)


def _says(page: TracePage, rank: int) -> Child:
    """Return what the verdict says of a rank, with the way to it; None where it names it nowhere."""
    rows: list[Child] = []
    for finding in page.verdict["findings"] if page.verdict else ():
        role = ranks_grid.roles(finding).get(rank)
        if role is not None:
            rows.append(
                html.Div(
                    [tag(role[0], role[1]), html.A(finding["summary"], href=page.links.incident(finding["id"]))],
                    className="said",
                )
            )
    return html.Div(rows, className="saids") if rows else None


def _identity_panel(page: TracePage, row: RankRow) -> html.Section:
    dumps = ranks.dumps_of(page.reader, row.rank)
    shown: list[Child] = []
    for dump in dumps:
        entries = words.plural(dump["entries"] or 0, "entry", "entries")
        kept = f"{words.source(dump['kind'])}, layout {dump['version'] or words.UNKNOWN}, {entries}"
        if dump["first_record"]:
            kept += f", {dump['first_record']:,} older ones overwritten"
        shown.append(html.Div(link(kept, page.links.file(dump["file_id"]))))
    claims = ranks.identity_of(page.reader, row.rank)
    conflicts = [claim for claim in claims if claim["ambiguous"]]
    return panel(
        "Where it is",
        facts(
            [
                ("Host", link(row.host, page.links.host(row.host)) if row.host else None),
                ("GPU", row.gpu),
                ("Local rank", None if row.local_rank is None else str(row.local_rank)),
                ("Process", None if row.pid is None else str(row.pid)),
                ("Place", row.place),
                ("Dump", shown or tag("no dump", "nolog")),
            ]
        ),
        details(
            f"Why we believe so, {words.plural(len(claims), 'claim')}"
            + (f", {len(conflicts)} in doubt" if conflicts else ""),
            html.Ul([_claim(page, claim) for claim in claims], className="bullets"),
        )
        if claims
        else None,
    )


def _claim(page: TracePage, claim: Mapping[str, Any]) -> html.Li:
    place: Child = None
    if claim["file_id"] is not None:
        name = words.shorten(claim["path"] or "file", 60) + (f":{claim['line']}" if claim["line"] is not None else "")
        place = html.A(name, href=page.links.file(claim["file_id"], claim["line"]), className="mono")
    doubt = [" ", tag("in doubt", "nolog")] if claim["ambiguous"] else []
    return html.Li(
        [
            f"{claim['attribute'].replace('_', ' ')} ",
            html.Code(claim["value"]),
            *doubt,
            html.Div([claim["reason"] or "", " ", place], className="muted"),
        ]
    )


def _group_rows(page: TracePage, rank: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for group in ranks.groups_of(page.reader, rank):
        last, furthest = group["last_seq"], group["furthest_seq"]
        made.append(
            {
                "key": group["key"],
                "key_href": page.links.comm(group["key"]),
                "desc": group["desc"] or group["name"],
                "comm_rank": group["comm_rank"],
                "enqueued": group["last_enqueued"],
                "enqueued_plain": True,
                "completed": group["last_completed"],
                "completed_plain": True,
                "last": last,
                "last_plain": True,
                "last_href": page.links.op(group["key"], last) if last is not None else None,
                "behind": None if last is None or furthest is None else furthest - last,
                "open": group["open_ops"],
            }
        )
    return made


def _op_rows(page: TracePage, found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for op in found:
        done = op["state"] == "completed" or op["retired"]
        made.append(
            {
                "record": op["record"],
                "record_plain": True,
                "op": f"{op['kind'] or 'other'} {op['seq'] if op['seq'] is not None else ''}".strip(),
                "op_href": page.links.op(op["comm"], op["seq"]) if op["comm"] and op["seq"] is not None else None,
                "group": op["group"] or op["comm"],
                "state": "finished" if done else (op["state"] or words.UNKNOWN),
                "state_kind": None if done else "wait",
                "time": words.time_of(op["enq_ns"]) if op["enq_ns"] is not None else None,
                "dur": words.duration(op["dur_ns"]) if op["dur_ns"] is not None else None,
                "bytes": words.size(op["bytes"]) if op["bytes"] is not None else None,
                "sizes": op["in_sizes"],
                "dtype": op["dtype"],
                "peer": op["peer"],
                "peer_plain": True,
                "peer_href": page.links.rank(op["peer"]) if op["peer"] is not None else None,
                "is_open": not done,
            }
        )
    return made


def _stack_panel(page: TracePage, rank: int) -> html.Section:
    found = evidence.stacks_of(page.reader, rank)
    if not found:
        return panel("Stack", empty("No stack of this rank was taken.", html.P("py-spy dump --pid … while it hangs.")))
    threads = [
        details(
            [
                html.Strong(stack["thread"] or "thread"),
                html.Span(f" {stack['state'] or ''} · {stack['tool'] or ''}", className="muted"),
            ],
            frames_list(stack["frames"]),
            html.A(
                f"{words.shorten(stack['path'] or 'file', 70)}:{stack['line']}",
                href=page.links.file(stack["file_id"], stack["line"]),
                className="mono",
            )
            if stack["file_id"] is not None
            else None,
            opened=index == 0,
        )
        for index, stack in enumerate(found)
    ]
    return panel("Stack", *threads, note=words.plural(len(found), "thread"))


def _log_panel(page: TracePage, rank: int) -> html.Section:
    found = ranks.log_tail(page.reader, rank, limit=LOG_LINES)
    if not found:
        return panel("Log", empty("No log line is known to be of this rank."))
    lines = [
        html.Div(
            [
                html.A(
                    str(event["line"]) if event["line"] is not None else "·",
                    href=page.links.file(event["file_id"], event["line"]),
                    className="log__number",
                    **attributes(aria_label=f"line {event['line']} of {event['path']}"),
                )
                if event["file_id"] is not None
                else html.Span("·", className="log__number"),
                html.Span(event["text"] or event["kind"], className=f"log__text log__text--{event['level'] or 'none'}"),
            ],
            className="log__line",
        )
        for event in found
    ]
    return panel(
        "Log", html.Div(html.Div(lines), className="log log--tail", tabIndex="0"), note=f"the last {len(lines)} lines"
    )


def _lateness_panel(page: TracePage, rank: int) -> Child:
    rows = ranks.lateness_of(page.reader, rank, limit=LATENESS_MAX)
    if len(rows) < LATENESS_MIN:
        return None
    note = f"{words.plural(len(rows), 'collective')} of groups of three and more · by each host's own clock"
    return panel("Arrival after the median", graph("rank-lateness", lateness_figure(rows), height=220), note=note)


def layout(ctx: PageContext, trace: str, rank: int) -> Component:
    """Return the page of a global rank."""
    page = open_trace(ctx, trace)
    row = next((row for row in ranks.all_ranks(page.reader) if row.rank == rank), None)
    if row is None:
        missing = panel("No such rank", empty(f"Nothing in this trace speaks of rank {rank}."))
        return page.frame("rank", missing, crumbs=[(f"rank {rank}", None)])
    found, total = ranks.operations_of(page.reader, rank, limit=OPS_MAX)
    groups = _group_rows(page, rank)
    note = words.plural(total, "entry", "entries") + (f", the newest {OPS_MAX:,} shown" if total > len(found) else "")
    last: Child = unknown("no operation of it is known")
    if row.last_op:
        text = f"last issued {row.last_op} of {row.last_group or row.last_comm}"
        text += f" at {words.time_of(row.last_enq_ns)}" if row.last_enq_ns is not None else ""
        last = text
    if not row.dumps:
        operations_table: Child = empty(
            "This rank left no dump.", html.P("What it did last is unknown; the pages of its groups show it hatched.")
        )
    else:
        operations_table = grid(
            "rank-ops",
            OP_COLUMNS,
            _op_rows(page, found),
            label="Operations, newest first",
            rows_shown=16,
            row_class={"row--odd": "params.data.is_open"},
        )
    return page.frame(
        "rank",
        html.Div([html.H1(f"Rank {rank}"), html.P(last)], className="page-title"),
        _says(page, rank),
        html.Div(
            [
                _identity_panel(page, row),
                panel(
                    "Groups",
                    grid("rank-groups", GROUP_COLUMNS, groups, label="Groups of this rank", rows_shown=8)
                    if groups
                    else empty("No source names a group of this rank."),
                    note="those with open operations first",
                    class_name="panel--flush",
                ),
            ],
            className="columns columns--narrow-left",
        ),
        html.Div([_stack_panel(page, rank), _log_panel(page, rank)], className="columns columns--even"),
        timeline_panel(page.reader, page.links, height=200, title="Timeline of all ranks, this one marked", rank=rank),
        _lateness_panel(page, rank),
        panel("Operations, newest first", operations_table, note=note, class_name="panel--flush"),
        crumbs=[(f"rank {rank}", None)],
    )


PAGE = Page(name="rank", layout=layout, title=lambda ctx, trace, rank: f"Rank {rank} of {trace}")
