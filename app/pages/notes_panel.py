"""Notes on a diagnosis, and the incidents that were like it: what others found out, here or before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from flask import current_app, request

from mycroft.app import access, notes, similar, urls, words
from mycroft.app.pages import frame
from mycroft.app.pages.links import TraceLinks
from mycroft.app.pages.panel import Child, attributes, html_table, link, panel, problem, tag
from mycroft.app.pages.trace_page import TracePage
from mycroft.app.queries import queries_of
from mycroft.app.reads import verdicts

SHOWN: Final = 8
"""Similar incidents that are listed."""


def _state() -> Any:
    return current_app.extensions["mycroft"][1]


def notes_panel(page: TracePage, incident: str) -> Child:
    """Return the notes on an incident, and for whoever may write a way to add one."""
    can_write = page.ctx is not None and page.ctx.grant.can_write
    children: list[Child] = [
        html.Div(
            note_list(page.reader.trace, incident, can_write=can_write),
            id="notes-list",
            **attributes(aria_live="polite"),
        )
    ]
    if can_write:
        user = page.ctx.grant.user if page.ctx is not None else None
        children.append(_form(user))
    return panel("Notes", *children, note="kept with this incident; whoever has a link can read them", id="notes")


def _form(user: str | None) -> html.Div:
    who: Child = (
        html.P(f"You write as {user}.", className="muted")
        if user
        else html.Div(
            [
                html.Label("Name", htmlFor="notes-author"),
                dcc.Input(id="notes-author", type="text", maxLength=notes.AUTHOR_MAX, persistence=True),
            ],
            className="field",
        )
    )
    return html.Div(
        [
            html.Div(
                [
                    html.Label("Note", htmlFor="notes-text"),
                    html.Div(
                        dcc.Textarea(
                            id="notes-text",
                            className="input notes__text",
                            maxLength=notes.TEXT_MAX,
                            rows=3,
                        ),
                        **attributes(data_submit="notes-add"),
                    ),
                ],
                className="field",
            ),
            html.Div(
                [who, html.Button("Add note", id="notes-add", type="button", className="button button--main")],
                className="notes__row",
            ),
            # Where the proxy names the visitor there is no field, and yet the callback reads one.
            dcc.Store(id="notes-author") if user else None,
            html.Div(id="notes-problem"),
        ],
        className="notes__form",
    )


def note_list(trace: str, incident: str, *, can_write: bool) -> Child:
    """Return the notes, the oldest first; with a way to delete each for whoever may."""
    found = notes.of_trace(_state(), trace, incident)
    if not found:
        return html.P("No notes yet.", className="muted")
    return html.Ol([_note(item, can_write=can_write) for item in found], className="notes")


def _note(item: notes.Note, *, can_write: bool) -> html.Li:
    when = words.day_and_time(item.created)
    head: list[Child] = [
        html.Strong(item.author or "somebody"),
        html.Span(when, className="muted"),
    ]
    if can_write:
        head.append(
            html.Button(
                "Delete",
                id={"type": "note-delete", "note": item.note_id},
                type="button",
                className="button button--small notes__delete",
                **attributes(aria_label=f"Delete the note of {item.author or 'somebody'}, {when}"),
            )
        )
    return html.Li([html.Div(head, className="notes__head"), html.P(item.text, className="notes__said")])


def similar_panel(page: TracePage, finding: Mapping[str, Any] | None) -> Child:
    """Return the incidents that were like a finding; None where there is no finding or the visitor sees one trace."""
    if finding is None or page.ctx is None or not page.ctx.grant.can_write:
        return None
    found = similar.similar(finding, page.ctx.queries.traces(), trace=page.reader.trace)
    compared = f"{words.plural(found.incidents, 'other incident')} of {words.plural(found.traces, 'trace')} compared"
    if not found.found:
        return panel("Seen before", html.P("Nothing like it is in the traces here.", className="muted"), note=compared)
    rows: list[Child] = [_row(page.reader.trace, item) for item in found.found[:SHOWN]]
    left = len(found.found) - len(rows)
    return panel(
        "Seen before",
        html_table(("Incident", "When", "Alike in"), rows),
        html.P(f"{left:,} more are alike.", className="muted") if left > 0 else None,
        note=f"by the shape of who waits for whom, and by place · {compared}",
    )


def _row(trace: str, item: similar.Earlier) -> html.Tr:
    address = TraceLinks(item.trace).incident(item.incident.incident)
    time, day = words.clock(item.incident.since)
    when = (
        f"{day.removesuffix(' UTC')} {time}" if item.incident.since else f"loaded {words.day_and_time(item.published)}"
    )
    return html.Tr(
        [
            html.Td(
                [
                    link(words.shorten(item.incident.summary, 140), address),
                    html.Div("this trace" if item.trace == trace else item.title, className="muted"),
                ]
            ),
            html.Td(when, className="nowrap"),
            html.Td(_alike(item)),
        ]
    )


def _alike(item: similar.Earlier) -> Child:
    alike = item.alike
    said: list[Child] = []
    if alike.devices:
        said.append(tag(f"same device: {', '.join(alike.devices[:3])}", "info"))
    if alike.hosts:
        said.append(tag(f"same host: {', '.join(alike.hosts[:3])}", "info"))
    if alike.same_category:
        said.append(tag(words.category(item.incident.category)))
    if alike.same_shape:
        said.append(tag("same shape of waiting"))
    elif alike.same_category and item.incident.edges:
        said.append(tag(f"{round(100 * alike.share)} % of the kinds of waiting"))
    return html.Div(said, className="alike")


def register_callbacks(app: Dash) -> None:
    """Add and delete notes."""

    @app.callback(
        Output("notes-list", "children"),
        Output("notes-problem", "children"),
        Output("notes-text", "value"),
        Output(frame.COPY_SUMMARY, "data-copy"),
        Input("notes-add", "n_clicks"),
        Input({"type": "note-delete", "note": ALL}, "n_clicks"),
        State("notes-text", "value"),
        State("notes-author", "value"),
        State("url", "pathname"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def change(  # pyright: ignore[reportUnusedFunction]
        add: int | None,
        delete: list[int | None],
        text: str | None,
        author: str | None,
        pathname: str,
        search: str | None,
    ) -> tuple[Any, Any, Any, Any]:
        address = urls.parse(pathname + (search or ""))
        trace, incident = address.trace, address.params.get("incident")
        if trace is None or incident is None or not (add or any(delete)):
            return no_update, no_update, no_update, no_update
        grant = access.check(request, trace, write=True)
        queries_of(app).entry(trace)
        try:
            if isinstance(ctx.triggered_id, dict):
                notes.remove(_state(), trace=trace, note_id=str(ctx.triggered_id["note"]))
                kept: Any = no_update
            else:
                who = grant.user or str(author or "")
                notes.add(_state(), trace=trace, incident=str(incident), author=who, text=str(text or ""))
                kept = ""
        except notes.NoteError as error:
            return no_update, problem(f"{error}."), no_update, no_update
        reader = queries_of(app).trace(trace, address.generation)
        summary = TracePage.of_reader(reader, verdicts.verdict_of(reader), address.generation).summary()
        return note_list(trace, str(incident), can_write=True), None, kept, summary
