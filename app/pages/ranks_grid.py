"""The ranks of a trace as a table, in the order of blame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mycroft.app import words
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, panel
from mycroft.app.queries import TraceReader
from mycroft.app.reads import blame
from mycroft.app.reads.blame import Sent
from mycroft.app.reads.ranks import RankRow

ROWS_MAX: Final = 5000

COLUMNS: Final = (
    Col("rank", "Rank", 84, numeric=True),
    Col("role", "Role", 156, help="From the verdict: root cause, suspect, or whom it waits for"),
    Col("host", "Host", 130),
    Col("last", "Last operation", flex=2, help="The newest operation that this rank issued"),
    Col("open", "Open", 80, numeric=True, help="Operations that it issued and did not finish"),
    Col("dump", "Dump", 104, help="Flight Recorder dump or ring of this rank"),
    Col("log", "Log lines", 100, numeric=True, help="Lines of logs that are of this rank"),
    Col("stack", "Stack", 76, help="Whether a stack of it was taken"),
)
SENT_COLUMNS: Final = (
    Col("sent_ready", "G", 52, numeric=True, help="Chunks filled by the GPU, on that send which is furthest behind"),
    Col("sent_moved", "T", 52, numeric=True, help="Chunks of it handed to the network"),
    Col("sent_done", "D", 52, numeric=True, help="Chunks of it acknowledged"),
    Col("sent_total", "of", 52, numeric=True, help="Chunks that it has to send there in all"),
)
WAITS_OPEN: Final = "From when its oldest open operation began to the last state that the tracer wrote"
WAITS_USUALLY: Final = "Median time inside the collectives of that group beyond the quickest member"
_PROGRESS_AT: Final = 4
"""How many of `COLUMNS` stand before those of the progress."""
_ORDER: Final = {"cause": 0, "suspect": 1, "nolog": 2, "wait": 3, "neutral": 4}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far ranks came in what stands, and how long each waits, ns; ranks that are not known are left out.

    `usual` says that the waits are medians of operations that ended, not of those that are open.
    """

    sent: Mapping[int, Sent] = field(default_factory=dict[int, Sent])
    waits: Mapping[int, int] = field(default_factory=dict[int, int])
    usual: bool = False

    def columns(self) -> tuple[Col, ...]:
        """Return the columns that have something to say."""
        help_text = WAITS_USUALLY if self.usual else WAITS_OPEN
        waits = (Col("waits", "Waits", 96, numeric=True, shown="waits_text", help=help_text),) if self.waits else ()
        return (*(SENT_COLUMNS if self.sent else ()), *waits)

    def cells(self, rank: int) -> dict[str, Any]:
        """Return what stands in those columns for a rank."""
        sent, waits_ns = self.sent.get(rank), self.waits.get(rank)
        return {
            "sent_ready": sent.ready if sent else None,
            "sent_moved": sent.moved if sent else None,
            "sent_done": sent.done if sent else None,
            "sent_total": sent.total if sent else None,
            "waits": waits_ns,
            "waits_text": None if waits_ns is None else words.duration(waits_ns),
        }


def progress_of(
    reader: TraceReader, finding: Mapping[str, Any] | None, stalled: tuple[str, int] | None
) -> Progress | None:
    """Return how far each rank came and how long it waits, for what a finding is about; None without a finding.

    `stalled` is the operation that it is about, by the key of its group and the number that pages give it.
    """
    if finding is None:
        return None
    sent = blame.sent_by_rank(reader, *stalled, finding["root_cause"]["flow"]) if stalled else {}
    if finding["status"] != "slow":
        return Progress(sent, blame.open_waits(reader))
    comm = (finding.get("collective") or {}).get("comm")
    return Progress(sent, blame.usual_waits(reader, comm) if comm else {}, usual=True)


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


def rows(
    ranks: Sequence[RankRow],
    finding: Mapping[str, Any] | None,
    links: TraceLinks,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
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
                **(progress.cells(rank.rank) if progress else {}),
            }
        )
    made.sort(key=lambda row: (row["order"], row["rank"]))
    return made


def ranks_panel(
    ranks: Sequence[RankRow],
    finding: Mapping[str, Any] | None,
    links: TraceLinks,
    *,
    title: str = "Ranks by blame",
    progress: Progress | None = None,
    selects: bool = False,
    selected: int | None = None,
) -> Child:
    """Return the table in its panel; what is cut is said.

    With `selects` choosing a row selects its rank in the pictures of the page; `selected` is the rank that is so now.
    """
    made = rows(ranks, finding, links, progress)
    shown = made[:ROWS_MAX]
    note = words.plural(len(made), "rank")
    if len(shown) < len(made):
        note += f", the first {len(shown):,} shown"
    return panel(
        title,
        grid(
            "ranks-grid",
            (*COLUMNS[:_PROGRESS_AT], *(progress.columns() if progress else ()), *COLUMNS[_PROGRESS_AT:]),
            shown,
            label=title,
            row_class={
                "row--cause": "params.data.role_kind == 'cause'",
                "row--suspect": "params.data.role_kind == 'suspect'",
                "row--nolog": "params.data.dump_kind == 'nolog'",
            },
            selects="r" if selects else None,
            selected=selected,
        ),
        note=note,
        class_name="panel--flush",
    )
