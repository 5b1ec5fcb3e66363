"""The stack grid: where the main thread of every rank stands, in the shape of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

from mycroft.analysis.stacks import WORDS, call_site, classify
from mycroft.app import words
from mycroft.app.figures import stack_grid
from mycroft.app.figures.stack_grid import Cell
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, details, empty, figure, link, panel, tag
from mycroft.app.pages.stack_view import frames_list
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.reads import evidence, operations, ranks
from mycroft.app.reads.ranks import RankRow

GROUPS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks whose main threads have equal frames."""

    frames: tuple[str, ...]
    ranks: tuple[int, ...]
    doing: str
    site: str


def groups_of(stacks: Sequence[Mapping[str, Any]], frames: Mapping[int, Sequence[str]]) -> list[StackGroup]:
    """Return the groups of equal stacks, the largest first."""
    by_frames: dict[tuple[str, ...], list[int]] = {}
    for stack in stacks:
        by_frames.setdefault(tuple(frames.get(stack["stack_id"], ())), []).append(stack["rank"])
    made = [
        StackGroup(key, tuple(found), WORDS.get(classify(key)[0], ""), call_site(key))
        if key
        else StackGroup(key, tuple(found), "no frames", "")
        for key, found in by_frames.items()
    ]
    return sorted(made, key=lambda group: (-len(group.ranks), group.ranks))


def shape(rows: Sequence[RankRow]) -> str:
    """Return how the ranks are laid out: `parallel`, `host` or `plain`.

    Parallel coordinates where every rank has some and no two ranks share them, else hosts where all are known.
    """
    places = [(row.dp, row.pp, row.tp, row.ep) for row in rows]
    if rows and all(any(at is not None for at in place) for place in places) and len(set(places)) == len(places):
        return "parallel"
    if rows and all(row.host is not None for row in rows):
        return "host"
    return "plain"


def cells_of(
    rows: Sequence[RankRow], group_of: Mapping[int, int], culprits: Mapping[int, str]
) -> tuple[list[Cell], str]:
    """Return a cell per rank, and what the columns are."""
    layout_kind = shape(rows)
    cells: list[Cell] = []
    per_host: Counter[str] = Counter()
    for row in rows:
        if layout_kind == "parallel":
            block = f"DP {row.dp}" if row.dp is not None else ""
            line = f"PP {row.pp}" if row.pp is not None else ""
            line += f" · EP {row.ep}" if row.ep is not None else ""
            column = row.tp or 0
            block, line = (block, line) if row.pp is not None else ("", block)
        elif layout_kind == "host":
            host = str(row.host)
            block, line = "", host
            column = row.local_rank if row.local_rank is not None else per_host[host]
            per_host[host] += 1
        else:
            block, line, column = "", f"{row.rank // 16 * 16}–", row.rank % 16
        cells.append(
            Cell(
                rank=row.rank,
                row=line.strip(" ·"),
                column=column,
                block=block,
                group=group_of.get(row.rank),
                is_culprit=culprits.get(row.rank) == "root cause",
            )
        )
    title = {"parallel": "TP", "host": "local rank", "plain": "+"}[layout_kind]
    cells.sort(key=lambda cell: (_natural(cell.block), _natural(cell.row), cell.column))
    return cells, title


def _natural(text: str) -> tuple[Any, ...]:
    digits, made = "", list[Any]()
    for char in text + " ":
        if char.isdigit():
            digits += char
            continue
        if digits:
            made.append((1, int(digits), ""))
            digits = ""
        made.append((0, 0, char))
    return tuple(made)


def _legend(page: TracePage, groups: Sequence[StackGroup], silent: Sequence[int]) -> Child:
    sizes = [len(group.ranks) for group in groups]
    items: list[Child] = []
    for index, group in enumerate(groups[:GROUPS_MAX]):
        letter = stack_grid.letter(index)
        guilty = [rank for rank in group.ranks if rank in page.culprits]
        head: list[Child] = [
            html.Span(letter, className=f"swatch swatch--{stack_grid.look(index, sizes)}"),
            html.Strong(words.plural(len(group.ranks), "rank")),
            html.Span(f"{group.doing}: " if group.doing else ""),
            html.Code(words.shorten(group.site, 70)),
        ]
        if guilty:
            head.append(
                tag(page.culprits[guilty[0]], "cause" if page.culprits[guilty[0]] == "root cause" else "suspect")
            )
        who: list[Child] = [words.named_ranks(group.ranks, limit=24), ": "]
        for n, rank in enumerate(group.ranks[:8]):
            who += [", " if n else "", link(f"open rank {rank}" if n == 0 else str(rank), page.links.rank(rank))]
        items.append(
            html.Li(
                details(
                    head,
                    html.P(who, className="muted"),
                    frames_list(group.frames),
                    opened=index > 0 and len(group.ranks) <= max(1, sum(sizes) // 8) and index < 6,
                    class_name="stack-group",
                ),
                id=f"stack-{letter}",
            )
        )
    if len(groups) > GROUPS_MAX:
        items.append(html.Li(f"{len(groups) - GROUPS_MAX:,} more groups, of a rank or a few each", className="muted"))
    if silent:
        items.append(
            html.Li(
                [
                    html.Span("–", className="swatch swatch--stack-none"),
                    html.Span(
                        [html.Strong(words.plural(len(silent), "rank")), f" without a stack: {words.ranks(silent)}"]
                    ),
                ],
                className="stack-silent",
                id="stack-none",
            )
        )
    return html.Ul(items, className="stack-groups")


def layout(ctx: PageContext, trace: str) -> Component:
    """Return the stack grid of a trace."""
    page = open_trace(ctx, trace)
    rows = ranks.all_ranks(page.reader)
    stacks = evidence.main_stacks(page.reader)
    if not stacks:
        missing = panel(
            "No stacks",
            empty(
                "No stack of any rank is in the evidence.",
                html.P(
                    "While the job hangs: py-spy dump --pid PID, for each rank, and load its output with the dumps."
                ),
            ),
        )
        return page.frame("stacks", missing, crumbs=[("Stacks", None)], tab="stacks")
    frames = operations.frames_of(page.reader, sorted({stack["stack_id"] for stack in stacks}))
    groups = groups_of(stacks, frames)
    group_of = {rank: index for index, group in enumerate(groups) for rank in group.ranks}
    cells, title = cells_of(rows, group_of, page.culprits)
    silent = [row.rank for row in rows if row.rank not in group_of]
    picture = stack_grid.stack_grid_svg(
        cells,
        sizes=[len(group.ranks) for group in groups],
        href=lambda cell: "#stack-none" if cell.group is None else f"#stack-{stack_grid.letter(cell.group)}",
        describe={index: group.doing or group.site for index, group in enumerate(groups)},
        column_title=title,
    )
    how = {"TP": "by parallel coordinates", "local rank": "by host", "+": "by rank: no source says where they run"}[
        title
    ]
    return page.frame(
        "stacks",
        html.H1("Stacks", className="sr-only"),
        html.Div(
            [
                panel(
                    "Where every rank stands",
                    figure(picture),
                    note=f"equal letters: equal stacks · reversed: few stand there · hatched: no stack · {how}",
                ),
                panel(
                    "Groups of equal stacks",
                    _legend(page, groups, silent),
                    note=f"{words.plural(len(groups), 'group')} of {words.plural(len(stacks), 'rank')}",
                ),
            ],
            className="columns",
        ),
        crumbs=[("Stacks", None)],
        tab="stacks",
    )


PAGE = Page(name="stacks", layout=layout, title=lambda ctx, trace: f"Stacks of {trace}")
