"""One file of the evidence: its text with the claims that rest on it, or the entries that were taken from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from mycroft.app import urls, words
from mycroft.app.pages.page import Page, PageContext
from mycroft.app.pages.panel import Child, attributes, empty, facts, html_table, link, panel, problem, tag, unknown
from mycroft.app.pages.trace_page import TracePage, open_trace
from mycroft.app.queries import queries_of
from mycroft.app.reads import evidence, verdicts
from mycroft.errors import MycroftError

WINDOW: Final = 400
"""Lines shown at once, about half of them before the line that was asked for."""

Claims = Mapping[int, list[tuple[str, str]]]


def claims_of(verdict: Mapping[str, Any] | None, path: str) -> dict[int, list[tuple[str, str]]]:
    """Return the claims that rest on lines of a file: by line, (incident, claim)."""
    found: dict[int, list[tuple[str, str]]] = {}
    for finding in verdict["findings"] if verdict else ():
        for claim in finding["evidence"]:
            if claim.get("file") == path and claim.get("line") is not None:
                found.setdefault(claim["line"], []).append((finding["id"], claim["claim"]))
    return found


def line_of(hash_: str | None) -> int | None:
    """Return the line that `#L<line>` names."""
    if not hash_ or not hash_.startswith("#L"):
        return None
    text = hash_[2:]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def window_of(line: int | None, total: int) -> tuple[int, int]:
    """Return the first and last line to show, from 1."""
    first = max(1, min((line or 1) - WINDOW // 2, total - WINDOW + 1))
    return first, min(first + WINDOW - 1, max(total, 1))


def _pager(first: int, last: int, low: int, high: int, noun: str) -> html.Nav:
    """Return the ways to the parts before and after; `low` and `high` are the first and last there are."""
    size = WINDOW // 2
    links: list[Child] = [html.Span(f"{noun} {first:,} to {last:,} of {low:,} to {high:,}", className="muted")]
    if first > low:
        links.append(html.A("First", href=f"#L{low}", className="button button--small"))
        links.append(html.A("Earlier", href=f"#L{max(low, first - size)}", className="button button--small"))
    if last < high:
        links.append(html.A("Later", href=f"#L{min(high, last + size)}", className="button button--small"))
        links.append(html.A("Last", href=f"#L{high}", className="button button--small"))
    return html.Nav(links, className="pager", **attributes(aria_label="Parts of the file"))


def _claim_marks(claims: list[tuple[str, str]], page: TracePage) -> Child:
    return [
        html.Div([tag("claim", "info"), html.A(claim, href=page.links.incident(incident))], className="text__claim")
        for incident, claim in claims
    ]


def text_view(page: TracePage, file: Mapping[str, Any], line: int | None, claims: Claims) -> Child:
    """Return a part of the text of a file; None where the trace keeps no text of it."""
    total = evidence.text_of(page.reader, file["file_id"], first=1, last=0).total
    if not total:
        return None
    first, last = window_of(line, total)
    window = evidence.text_of(page.reader, file["file_id"], first=first, last=last)
    rows: list[Child] = []
    for number, text in enumerate(window.lines, start=window.first):
        mark = " text__line--claim" if number in claims else ""
        rows.append(
            html.Div(
                [
                    html.A(str(number), href=f"#L{number}", className="text__number", tabIndex="-1"),
                    unknown("the trace kept no text of this line")
                    if text is None
                    else html.Span(text or " ", className="text__content"),
                ],
                id=f"L{number}",
                className=f"text__line{mark}",
            )
        )
        if number in claims:
            rows.append(html.Div(_claim_marks(claims[number], page)))
    return [_pager(first, last, 1, total, "lines"), html.Div(rows, className="text", tabIndex="0")]


def entries_view(page: TracePage, file: Mapping[str, Any], line: int | None, claims: Claims) -> Child:
    """Return a part of the operations that were taken from a file; None where there are none."""
    low, high, count = evidence.entries_extent(page.reader, file["file_id"])
    if not count or low is None or high is None:
        return None
    at = min(max(line if line is not None else low, low), high)
    first = max(low, min(at - WINDOW // 2, high - WINDOW + 1))
    last = min(first + WINDOW - 1, high)
    body: list[Child] = []
    for entry in evidence.entries_of(page.reader, file["file_id"], first=first, last=last):
        number = entry["line"]
        done = entry["state"] == "completed" or entry["retired"]
        seq, peer = entry["seq"], entry["peer"]
        op: Child = f"{entry['kind'] or 'other'} {seq if seq is not None else ''}".strip()
        if entry["comm"] and seq is not None:
            op = link(op, page.links.op(entry["comm"], seq))
        body.append(
            html.Tr(
                [
                    html.Td(html.A(str(number), href=f"#L{number}"), className="num"),
                    html.Td(op, className="nowrap"),
                    html.Td(entry["group"] or entry["comm"] or words.UNKNOWN),
                    html.Td("finished" if done else tag(entry["state"] or words.UNKNOWN, "wait")),
                    html.Td(words.time_of(entry["enq_ns"]), className="nowrap"),
                    html.Td(html.Code(words.shorten(entry["in_sizes"] or "", 60))),
                    html.Td(entry["dtype"] or words.UNKNOWN),
                    html.Td(None if peer is None else link(f"rank {peer}", page.links.rank(peer))),
                ],
                id=f"L{number}",
                className="entry--claim" if number in claims else "",
            )
        )
        if number in claims:
            body.append(html.Tr(html.Td(_claim_marks(claims[number], page), colSpan=8)))
    names = ("Entry", "Operation", "Group", "State", "Enqueued", "Sizes in", "Type", "Peer")
    return [_pager(first, last, low, high, "entries"), html_table(names, body)]


def content(page: TracePage, file: Mapping[str, Any], line: int | None) -> Child:
    """Return what the trace has of a file: its text, else its entries, else why there is neither."""
    claims = claims_of(page.verdict, file["path"])
    found = text_view(page, file, line, claims) or entries_view(page, file, line, claims)
    if found is not None:
        return found
    if file["problems"]:
        return problem("Nothing of this file could be used", html.Pre(file["problems"], className="frames"))
    return empty(
        "The trace keeps no text of this file.",
        html.P(
            "It is not text, or nothing was taken from it. Its checksum above tells whether another copy is the same."
        ),
    )


def layout(ctx: PageContext, trace: str, file: int) -> Component:
    """Return the page of a file; the part with the line comes once the browser has said which."""
    page = open_trace(ctx, trace)
    known = evidence.file(page.reader, file)
    crumbs: list[tuple[str, str | None]] = [("Evidence", page.links.files())]
    if known is None:
        missing = panel("No such file", empty(f"This trace has no file number {file}."))
        return page.frame("file", missing, crumbs=[*crumbs, (f"file {file}", None)], tab="files")
    rows: list[tuple[str, Child]] = [
        ("Format", words.source(known["loader"]) if known["loader"] else tag("not read", "nolog")),
        ("Rank", None if known["rank"] is None else link(f"rank {known['rank']}", page.links.rank(known["rank"]))),
        ("Size", words.size(known["size_bytes"])),
        ("Rows taken", words.number(known["rows"])),
        ("Dropped", words.number(known["dropped"])),
        ("SHA-256", html.Code(words.shorten(known["sha256"] or words.UNKNOWN, 20), title=known["sha256"] or "")),
    ]
    return page.frame(
        "file",
        html.Div(html.H1(known["path"], className="mono file__name"), className="page-title"),
        panel("File", facts(rows, class_name="facts--wide"), _problems(known)),
        page.file_elsewhere(known["job"], known["file_id"]),
        dcc.Location(id="file-place", refresh=False),
        panel("Content", html.Div(content(page, known, None), id="file-content"), class_name="panel--text"),
        crumbs=[*crumbs, (words.shorten(known["path"], 60), None)],
        tab="files",
    )


def _problems(file: Mapping[str, Any]) -> Child:
    if not file["problems"] or file["loader"] is None:
        return None
    lines = file["problems"].split("\n")
    return problem(
        words.plural(len(lines), "problem"),
        html.Ul([html.Li(line) for line in lines[:50]], className="bullets"),
        html.P(f"{len(lines) - 50:,} more") if len(lines) > 50 else None,
    )


def register_callbacks(app: Dash) -> None:
    """Show the part of the file with the line that the address names."""

    @app.callback(
        Output("file-content", "children"),
        Input("file-place", "hash"),
        State("file-place", "pathname"),
        State("file-place", "search"),
    )
    def show(hash_: str | None, pathname: str, search: str | None) -> Any:  # pyright: ignore[reportUnusedFunction]
        address = urls.parse(pathname + (search or ""))
        line = line_of(hash_)
        if address.page != "file" or address.trace is None or line is None:
            return no_update
        try:
            reader = queries_of(app).trace(address.trace, address.generation)
            known = evidence.file(reader, int(address.params["file"]))
            if known is None:
                return no_update
            page = TracePage.of_reader(reader, verdicts.verdict_of(reader), address.generation)
            return content(page, known, line)
        except MycroftError as error:
            return problem(f"{error}.")


PAGE = Page(
    name="file",
    layout=layout,
    title=lambda ctx, trace, file: f"File {file} of {trace}",
    register_callbacks=register_callbacks,
)
