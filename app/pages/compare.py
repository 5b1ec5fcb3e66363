"""Two traces side by side, or two windows of one: what stands out first, then every rank and shape."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dash import dcc, html
from dash.development.base_component import Component

from mycroft.analysis.compare import Change, Profile, Sums, compare
from mycroft.app import words
from mycroft.app.pages import frame, links
from mycroft.app.pages.grid import Col, grid
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, empty, facts, link, note, panel, unknown
from mycroft.app.queries import TraceReader
from mycroft.app.reads import compared, verdicts
from mycroft.app.reads.extent import extent_of
from mycroft.app.urls import MAX_INT

CHANGES_MAX: Final = 500
ROWS_MAX: Final = 5000
_SECONDS: Final = re.compile(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*-\s*(\d{1,9}(?:\.\d{1,6})?)\s*s?\s*")
_MICROSECONDS: Final = re.compile(r"(\d{1,16})-(\d{1,16})")

MEASURES: Final = {
    "late": "median arrival",
    "duration": "median duration",
    "tail": "95 % of durations",
    "rate": "entries a second",
    "only": "on one side only",
}
CHANGE_COLUMNS: Final = (
    Col("what", "What", flex=2),
    Col("measure", "Measure", 190),
    Col("a", "A", 130),
    Col("b", "B", 130),
    Col("change", "Change", 150),
)
RANK_COLUMNS: Final = (
    Col("rank", "Rank", 84, numeric=True),
    Col("n_a", "Operations A", 128, numeric=True),
    Col("n_b", "B", 92, numeric=True),
    Col("late_a", "Median arrival A", 150, numeric=True, help="After the median of its groups, ms"),
    Col("late_b", "B", 92, numeric=True, help="After the median of its groups, ms"),
    Col("late", "Later by, ms", 130, numeric=True),
    Col("dur_a", "Median time inside A", 176, numeric=True, help="ms"),
    Col("dur_b", "B", 92, numeric=True, help="ms"),
)
SHAPE_COLUMNS: Final = (
    Col("shape", "Operation", flex=2),
    Col("n_a", "Count A", 100, numeric=True),
    Col("n_b", "B", 84, numeric=True),
    Col("p50_a", "Median A", 110, numeric=True, help="ms"),
    Col("p50_b", "B", 92, numeric=True, help="ms"),
    Col("p95_a", "95 % A", 100, numeric=True, help="ms"),
    Col("p95_b", "B", 92, numeric=True, help="ms"),
    Col("lag_a", "Arrival lag A", 124, numeric=True, help="95 % quantile after the median of the operation, ms"),
    Col("lag_b", "B", 92, numeric=True, help="95 % quantile after the median of the operation, ms"),
)


def window_from(text: str | None) -> tuple[int, int] | None:
    """Return a window, µs from the start of the trace: `0-20s` and `1.5-3` are seconds, `t` of addresses as it is.

    None: the text is no window. In addresses (`ta=`, `tb=`) whole numbers without a unit are µs, as in `t=`.
    """
    if not text:
        return None
    exact = _MICROSECONDS.fullmatch(text)
    if exact:
        start, end = int(exact[1]), int(exact[2])
    else:
        found = _SECONDS.fullmatch(text)
        if not found:
            return None
        start, end = (round(float(part) * 1e6) for part in found.groups())
    start, end = min(start, MAX_INT), min(end, MAX_INT)
    return (start, end) if start <= end else (end, start)


def window_text(window: tuple[int, int] | None) -> str:
    """Return a window for the field of the form, in seconds; empty for the whole trace."""
    if window is None:
        return ""
    return "-".join(f"{part / 1e6:.6f}".rstrip("0").rstrip(".") for part in window) + "s"


@dataclass(frozen=True, slots=True)
class Side:
    """One side: the trace, its window (µs from its start; None: all of it), and its sums."""

    name: str
    reader: TraceReader
    window: tuple[int, int] | None
    profile: Profile

    @property
    def links(self) -> TraceLinks:
        """Return what makes addresses inside the trace."""
        return TraceLinks(self.reader.trace)


def shape_text(key: tuple[str, str, int | None, str | None]) -> str:
    """Return a shape in words: `all_reduce of tensor parallel, 32.0 MiB BFloat16`."""
    role, kind, size, dtype = key
    more = " ".join(part for part in (words.size(size) if size is not None else "", dtype or "") if part)
    return f"{kind} of {words.role(role or None)}" + (f", {more}" if more else "")


def change_row(change: Change, a: Side, b: Side) -> dict[str, Any]:
    """Return one row of what stands out."""
    row: dict[str, Any] = {
        "measure": MEASURES[change.measure],
        "a": _value(change.measure, change.a),
        "b": _value(change.measure, change.b),
        "change": _change(change),
    }
    if isinstance(change.key, int):
        row["what"] = f"rank {change.key}"
        side = b if change.b is not None else a
        row["what_href"] = side.links.rank(change.key)
    else:
        row["what"] = shape_text(change.key)
    return row


def _value(measure: str, value: float | None) -> str:
    if value is None:
        return "none"
    if measure == "only":
        return words.plural(int(value), "entry", "entries")
    return f"{words.number(value)} /s" if measure == "rate" else words.duration(value)


def _change(change: Change) -> str:
    if change.a is None or change.b is None:
        return "only in B" if change.a is None else "only in A"
    if change.measure == "late":
        moved = change.b - change.a
        return f"{words.duration(abs(moved))} {'later' if moved > 0 else 'earlier'}"
    if not change.a:
        return "from none"
    ratio = change.b / change.a
    return f"× {ratio:.2f}"


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value / 1e6, 3)


def rank_rows(a: Side, b: Side) -> list[dict[str, Any]]:
    """Return one row per rank of either side, the one that moved most first."""
    rows: list[dict[str, Any]] = []
    for rank in a.profile.ranks.keys() | b.profile.ranks.keys():
        one, other = a.profile.ranks.get(rank), b.profile.ranks.get(rank)
        late_a, late_b = _ms(one.late_p50 if one else None), _ms(other.late_p50 if other else None)
        rows.append(
            {
                "rank": rank,
                "rank_plain": True,
                "rank_href": (b if other else a).links.rank(rank),
                "n_a": one.n if one else None,
                "n_b": other.n if other else None,
                "late_a": late_a,
                "late_b": late_b,
                "late": None if late_a is None or late_b is None else round(late_b - late_a, 3),
                "dur_a": _ms(one.dur_p50 if one else None),
                "dur_b": _ms(other.dur_p50 if other else None),
            }
        )
    return sorted(rows, key=lambda row: (-abs(row["late"] or 0), row["rank"]))


def shape_rows(a: Side, b: Side) -> list[dict[str, Any]]:
    """Return one row per shape of operation of either side, the most frequent first."""

    def cells(sums: Sums | None, side: str) -> dict[str, Any]:
        if sums is None:
            return {f"n_{side}": None, f"p50_{side}": None, f"p95_{side}": None, f"lag_{side}": None}
        return {
            f"n_{side}": sums.n,
            f"p50_{side}": _ms(sums.dur_p50),
            f"p95_{side}": _ms(sums.dur_p95),
            f"lag_{side}": _ms(sums.late_p95),
        }

    rows = [
        {"shape": shape_text(key), **cells(a.profile.shapes.get(key), "a"), **cells(b.profile.shapes.get(key), "b")}
        for key in a.profile.shapes.keys() | b.profile.shapes.keys()
    ]
    return sorted(rows, key=lambda row: (-(row["n_a"] or 0) - (row["n_b"] or 0), row["shape"]))


def _form(ctx: PageContext, a: Side | None, b: Side | None) -> Child:
    """Return the choice of both sides; a plain form, so that what is compared is in the address and Back works."""
    known = [(entry.trace_id, words.shorten(entry.title, 60)) for entry in ctx.queries.traces()]

    def side(name: str, chosen: Side | None) -> Child:
        trace = chosen.reader.trace if chosen else ""
        return html.Div(
            [
                html.Label(
                    [
                        html.Span(name.upper(), className="choice__label"),
                        html.Select(
                            [html.Option("choose a trace", value=""), *[html.Option(t, value=i) for i, t in known]],
                            name=name,
                            className="input",
                            **attributes(data_value=trace),
                        ),
                    ],
                    className="choice",
                ),
                html.Label("from-to, seconds from its start", htmlFor=f"compare-t{name}", className="choice__label"),
                dcc.Input(
                    id=f"compare-t{name}",
                    name=f"t{name}",
                    type="text",
                    value=window_text(chosen.window if chosen else None),
                    placeholder="all of it",
                    maxLength=40,
                ),
            ],
            className="choice-row",
        )

    return panel(
        "Compare",
        html.Form(
            [
                side("a", a),
                side("b", b),
                html.Div(html.Button("Compare", type="submit", className="button button--main")),
            ],
            action="/compare",
            method="GET",
            className="compare__form",
        ),
        note="two traces, or two windows of one: 0-20s against 20-40s",
    )


def _facts(side: Side) -> Child:
    verdict = verdicts.verdict_of(side.reader)
    window = unknown("no times") if side.profile.span_ns is None else words.duration(side.profile.span_ns)
    incident = verdict["findings"][0]["id"] if verdict and verdict["findings"] else "verdict"
    answer: Child = link(words.shorten(verdict["summary"], 200), side.links.incident(incident)) if verdict else None
    return panel(
        f"{side.name}: {words.shorten(side.reader.title, 80)}",
        facts(
            [
                ("Trace", link(side.reader.trace, side.links.overview())),
                ("Answer", answer),
                ("Window", window_text(side.window) or "all of it"),
                ("From", words.time_of(side.profile.first_ns) if side.profile.first_ns is not None else None),
                ("Lasts", window),
                ("Ranks", words.number(len(side.profile.ranks))),
            ]
        ),
    )


def _what_stands_out(changes: Sequence[Change], a: Side, b: Side) -> Child:
    if not a.profile.ranks or not b.profile.ranks:
        bare = a if not a.profile.ranks else b
        return panel("What stands out", empty(f"{bare.name} holds no operation; nothing can be compared."))
    if not changes:
        return panel(
            "What stands out",
            empty(
                "Nothing.",
                html.P("No median moved beyond its spread, nothing became more or less frequent, nobody is missing."),
            ),
        )
    shown = changes[:CHANGES_MAX]
    said = words.plural(len(changes), "change") + (
        f", the strongest {len(shown):,} shown" if changes[CHANGES_MAX:] else ""
    )
    return panel(
        "What stands out",
        grid(
            "compare-changes", CHANGE_COLUMNS, [change_row(change, a, b) for change in shown], label="What stands out"
        ),
        note=f"{said} · larger than a quarter and beyond four standard errors of its median",
        class_name="panel--flush",
    )


def _side(ctx: PageContext, name: str, problems: list[str]) -> Side | None:
    trace = ctx.address.view.get(name)
    if not isinstance(trace, str):
        return None
    given = dict(ctx.address.extra).get(f"t{name}")
    window = window_from(given)
    if given and window is None:
        problems.append(f"t{name}={given[:40]} is no window and is ignored; 0-20s was expected")
    reader = ctx.queries.trace(trace)
    extent = extent_of(reader)
    if window is not None and extent is not None and window[0] * 1000 > extent[1] - extent[0]:
        problems.append(f"t{name} begins after the last operation of {trace}")
    return Side(name.upper(), reader, window, compared.profile_of(reader, window))


def layout(ctx: PageContext) -> Component:
    """Return the comparison; without both sides, the choice of them."""
    problems = list(ctx.address.problems)
    a, b = _side(ctx, "a", problems), _side(ctx, "b", problems)
    content: list[Child] = [html.H1("Compare", className="sr-only"), _form(ctx, a, b)]
    if a is not None and b is not None:
        content += _both(a, b)
    way: list[tuple[str, str | None]] = [("Traces", links.traces())] if ctx.grant.can_write else []
    return frame.page(
        "compare",
        *content,
        crumbs=[*way, ("Compare", None)],
        top=frame.actions(can_share=False, exports=[], is_shared=not ctx.grant.can_write),
        banner=note(*[html.Div(said) for said in problems]) if problems else None,
    )


def _both(a: Side, b: Side) -> list[Child]:
    ranks, shapes = rank_rows(a, b), shape_rows(a, b)

    def table(title: str, id_: str, cols: Sequence[Col], rows: Sequence[dict[str, Any]], one: str) -> Child:
        said = words.plural(len(rows), one) + (f", the first {ROWS_MAX:,} shown" if rows[ROWS_MAX:] else "")
        shown = grid(id_, cols, rows[:ROWS_MAX], label=title) if rows else empty("None on either side.")
        return panel(title, shown, note=said, class_name="panel--flush")

    return [
        _what_stands_out(compare(a.profile, b.profile), a, b),
        html.Div([_facts(a), _facts(b)], className="columns"),
        table("Ranks, the most moved first", "compare-ranks", RANK_COLUMNS, ranks, "rank"),
        table("Shapes of operations", "compare-shapes", SHAPE_COLUMNS, shapes, "shape"),
    ]


PAGE = Page(name="compare", layout=layout, title=lambda ctx: "Compare")
