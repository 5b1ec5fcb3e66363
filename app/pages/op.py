"""The page of one collective: who entered it, who finished, with what, in which order, and who is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from mycroft.app.figures import arrivals
from mycroft.app.figures.arrivals import Arrival
from mycroft.app.pages import words
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, details, empty, facts, figure, link, panel, tag, unknown
from mycroft.app.pages.stack_view import frames_list
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.reads import operations

Row = Mapping[str, Any]

# What must be equal on every member of a collective.
SIGNATURE: Final = (
    ("kind", "operation"),
    ("in_sizes", "sizes in"),
    ("out_sizes", "sizes out"),
    ("dtype", "type"),
    ("root", "root"),
    ("redop", "reduction"),
)
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
    "not_entered": ("did not enter", "neutral"),
    "no_dump": ("no dump", "nolog"),
}


def is_finished(entry: Row) -> bool:
    """Whether the source says that an entry ended."""
    return entry["state"] == "completed" or entry["retired"]


def usual(entries: Sequence[Row]) -> dict[str, Any]:
    """Return the value that most entries have, of each field of `SIGNATURE`; a field without a majority is absent."""
    found: dict[str, Any] = {}
    for field, _ in SIGNATURE:
        counts = Counter(entry[field] for entry in entries).most_common(2)
        if len(counts) == 1 or (len(counts) == 2 and counts[0][1] > counts[1][1]):
            found[field] = counts[0][0]
    return found


def differences(entry: Row, common: Mapping[str, Any]) -> list[str]:
    """Return in what an entry is not like most."""
    return [name for field, name in SIGNATURE if field in common and entry[field] != common[field]]


def split_fields(entries: Sequence[Row]) -> list[str]:
    """Return the fields in which entries differ and no value has a majority: nobody can be called the odd one."""
    common = usual(entries)
    return [name for field, name in SIGNATURE if field not in common and len({entry[field] for entry in entries}) > 1]


def member_states(members: Sequence[Row], entries: Sequence[Row]) -> dict[int, arrivals.State]:
    """Return what each member did with the operation. Without a dump nothing is known, whatever the others say."""
    by_rank: dict[int, list[Row]] = {}
    for entry in entries:
        by_rank.setdefault(entry["rank"], []).append(entry)
    found: dict[int, arrivals.State] = {}
    for rank in [member["rank"] for member in members] + list(by_rank):
        mine = by_rank.get(rank)
        dumps = next((member["dumps"] for member in members if member["rank"] == rank), 1)
        if mine:
            found[rank] = "finished" if all(is_finished(entry) for entry in mine) else "open"
        else:
            found[rank] = "not_entered" if dumps else "no_dump"
    return found


def arrivals_of(
    members: Sequence[Row], entries: Sequence[Row], culprits: Mapping[int, str], odd: frozenset[int]
) -> list[Arrival]:
    """Return the members as the picture shows them; of several entries of a rank, its first arrival and last end."""
    hosts = {member["rank"]: member["host"] for member in members}
    made: list[Arrival] = []
    for rank, state in member_states(members, entries).items():
        mine = [entry for entry in entries if entry["rank"] == rank]
        starts = [t for entry in mine if (t := start_of(entry)) is not None]
        ends = [t for entry in mine if (t := end_of(entry)) is not None]
        made.append(
            Arrival(
                rank=rank,
                host=hosts.get(rank),
                state=state,
                start_ns=min(starts, default=None),
                end_ns=max(ends, default=None) if state == "finished" else None,
                is_culprit=rank in culprits,
                is_odd=rank in odd,
            )
        )
    return made


def start_of(entry: Row) -> int | None:
    """Return the arrival of an entry: its start, else its enqueue."""
    return entry["start_ns"] if entry["start_ns"] is not None else entry["enq_ns"]


def end_of(entry: Row) -> int | None:
    """Return the end of an entry as far as it is known: measured, else when a poll saw it."""
    start = start_of(entry)
    if start is not None and entry["dur_ns"] is not None:
        return start + entry["dur_ns"]
    return entry["seen_end_ns"]


def arrival_text(after_ns: int) -> str:
    """Return how long after the first arrival another came."""
    return "first" if after_ns == 0 else f"+{words.duration(after_ns)}"


def _sizes(entry: Row) -> str:
    left = entry["in_sizes"] or words.UNKNOWN
    right = entry["out_sizes"]
    return left if right is None or right == left else f"{left} → {right}"


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
                "shown": "finished" if is_finished(entry) else "open",
                "order": (1, start if start is not None else -1, entry["rank"]),
                "arrival": None if start is None or first is None else arrival_text(start - first),
                "dur": words.duration(entry["dur_ns"]) if entry["dur_ns"] is not None else None,
                "kind": entry["kind"],
                "sizes": _sizes(entry),
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
    states = member_states(members, entries)
    common = usual(entries)
    odd = frozenset(entry["rank"] for entry in entries if differences(entry, common))
    split = split_fields(entries)
    drawn = arrivals_of(members, entries, page.culprits, odd)
    kinds = sorted({entry["kind"] for entry in entries if entry["kind"]})
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
    stacks = operations.frames_of(
        page.reader, sorted({e["stack_id"] for e in entries if e["stack_id"] is not None})[:20]
    )
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
        _call_sites(entries, stacks),
        crumbs=crumbs,
    )


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


PAGE = Page(name="op", layout=layout, title=lambda ctx, trace, comm, seq: f"Operation {seq} of {comm}, {trace}")
