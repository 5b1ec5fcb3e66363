"""The ranks of a trace as a table, in the order of blame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mycroft.app import words
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, panel
from mycroft.app.reads.ranks import RankRow

ROWS_MAX: Final = 5000

COLUMNS: Final = (
    Col("rank", "Rank", 84, numeric=True),
    Col("role", "Role", 196, help="From the verdict: root cause, suspect, or whom it waits for"),
    Col("host", "Host", 130),
    Col("last", "Last operation", flex=2, help="The newest operation that this rank issued"),
    Col("open", "Open", 84, numeric=True, help="Operations that it issued and did not finish"),
    Col("dump", "Dump", 110, help="Flight Recorder dump or ring of this rank"),
    Col("log", "Log lines", 104, numeric=True, help="Lines of logs that are of this rank"),
    Col("stack", "Stack", 84, help="Whether a stack of it was taken"),
)
_ORDER: Final = {"cause": 0, "suspect": 1, "nolog": 2, "wait": 3, "neutral": 4}


def roles(finding: Mapping[str, Any] | None) -> dict[int, tuple[str, str]]:
    """Return the role of each rank that a finding names, and the kind of its tag."""
    found: dict[int, tuple[str, str]] = {}
    if finding is None:
        return found
    for rank in finding["victims"]["ranks"]:
        found[rank] = ("waits" if finding["status"] != "slow" else "slowed", "wait")
    for step in finding["chain"]:
        found[step["waiter"]] = (f"waits for {step['blocker']}", "wait")
    cause = finding["root_cause"]
    for rank in cause["ranks"]:
        found[rank] = ("suspect", "suspect") if cause["one_of"] else ("root cause", "cause")
    return found


def rows(ranks: Sequence[RankRow], finding: Mapping[str, Any] | None, links: TraceLinks) -> list[dict[str, Any]]:
    """Return one row per rank, the most blamed first."""
    known = roles(finding)
    made: list[dict[str, Any]] = []
    for rank in ranks:
        missing = ("no dump", "nolog") if not rank.dumps else ("not named" if finding else None, "neutral")
        role, kind = known.get(rank.rank, missing)
        made.append(
            {
                "rank": rank.rank,
                "rank_href": links.rank(rank.rank),
                "rank_plain": True,
                "role": role,
                "role_kind": kind,
                "host": rank.host,
                "host_href": links.host(rank.host) if rank.host else None,
                "last": f"{rank.last_op} · {rank.last_group or rank.last_comm}" if rank.last_op else None,
                "last_href": links.op(rank.last_comm, rank.last_seq)
                if rank.last_comm and rank.last_seq is not None
                else None,
                "open": rank.open_ops,
                "dump": "yes" if rank.dumps else "no dump",
                "dump_kind": None if rank.dumps else "nolog",
                "log": rank.log_rows or None,
                "stack": "yes" if rank.stacks else None,
                "order": _ORDER[kind],
            }
        )
    made.sort(key=lambda row: (row["order"], row["rank"]))
    return made


def ranks_panel(
    ranks: Sequence[RankRow], finding: Mapping[str, Any] | None, links: TraceLinks, *, title: str = "Ranks by blame"
) -> Child:
    """Return the table in its panel; what is cut is said."""
    made = rows(ranks, finding, links)
    shown = made[:ROWS_MAX]
    note = words.plural(len(made), "rank")
    if len(shown) < len(made):
        note += f", the first {len(shown):,} shown"
    return panel(
        title,
        grid(
            "ranks-grid",
            COLUMNS,
            shown,
            label=title,
            row_class={
                "row--cause": "params.data.role_kind == 'cause'",
                "row--suspect": "params.data.role_kind == 'suspect'",
                "row--nolog": "params.data.role_kind == 'nolog'",
            },
        ),
        note=note,
        class_name="panel--flush",
    )
