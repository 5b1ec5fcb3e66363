"""Making, listing and ending the share links of a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from flask import current_app, request, url_for

from mycroft.app import access, shares, urls, words
from mycroft.app.live.state import LiveState
from mycroft.app.pages.panel import Child, attributes, html_table, problem, tag
from mycroft.app.state import now

DIALOG_ID: Final = "share-dialog"
DAYS: Final = (("1", "1 day"), ("7", "1 week"), ("14", "2 weeks"), ("90", "90 days"))


def _state() -> Any:
    return current_app.extensions["mycroft"][1]


def dialog(trace: str) -> html.Dialog:
    """Return the dialog, closed; only for visitors who may share."""
    return html.Dialog(
        [
            html.Div(
                [
                    html.H2("Share this page", id="share-title"),
                    html.Button("Close", type="button", className="button button--small", **attributes(data_close="")),
                ],
                className="dialog__head",
            ),
            html.Div(
                [
                    html.P(
                        "Whoever has the link can read this trace and its incidents, and nothing else, until it "
                        "expires or is revoked. It opens the page that you see now."
                    ),
                    html.Fieldset(
                        [
                            html.Legend("Valid for"),
                            dcc.RadioItems(
                                [{"label": text, "value": value} for value, text in DAYS],
                                "14",
                                id="share-days",
                                inline=True,
                                className="choices",
                            ),
                        ],
                        className="field",
                    ),
                    html.Div(
                        [
                            html.Label("Note, for the list below", htmlFor="share-note"),
                            dcc.Input(
                                id="share-note",
                                type="text",
                                maxLength=shares.NOTE_MAX,
                                placeholder="for the network team",
                            ),
                        ],
                        className="field",
                    ),
                    html.Div(
                        html.Button("Create link", id="share-create", type="button", className="button button--main"),
                    ),
                    dcc.Store(id="share-seen"),
                    html.Div(id="share-made", **attributes(aria_live="polite")),
                    html.Div(share_list(trace), id="share-list"),
                ],
                className="dialog__body",
            ),
        ],
        id=DIALOG_ID,
        className="dialog",
        **attributes(aria_labelledby="share-title"),
    )


def share_list(trace: str) -> Child:
    """Return the shares of a trace, newest first, with a way to end those that are open."""
    found = shares.of_trace(_state(), trace)
    if not found:
        return html.P("No link to this trace has been made yet.", className="muted")
    rows: list[Child] = []
    for share in found:
        is_open = share.revoked is None and share.expires > now()
        state = "open" if is_open else "revoked" if share.revoked is not None else "expired"
        button = html.Button(
            "Revoke",
            id={"type": "share-revoke", "share": share.share_id},
            type="button",
            className="button button--small",
            **attributes(aria_label=f"Revoke the link made {words.day_and_time(share.created)}"),
        )
        rows.append(
            html.Tr(
                [
                    html.Td(words.day_and_time(share.created), className="nowrap"),
                    html.Td(share.note or html.Span("no note", className="muted")),
                    html.Td(tag(state, "info" if is_open else "neutral")),
                    html.Td(f"until {words.day_and_time(share.expires)}" if is_open else "", className="nowrap"),
                    html.Td(button if is_open else ""),
                ]
            )
        )
    return html_table(("Made", "Note", "State", "Expires", ""), rows)


def made(link: str) -> Child:
    """Return the new link, shown this once, with a button that copies it."""
    return html.Div(
        [
            html.Label("Link, shown only now", htmlFor="share-link"),
            html.Div(
                [
                    dcc.Input(id="share-link", value=link, readOnly=True),
                    html.Button("Copy", type="button", className="button", **attributes(data_copy=link)),
                ],
                className="share-link",
            ),
        ],
        className="field",
    )


_TAKE_ADDRESS: Final = """
function(clicks) {
    if (!clicks) { return window.dash_clientside.no_update; }
    const shown = document.querySelector("[data-generation]");
    const generation = Number(shown ? shown.getAttribute("data-generation") : NaN);
    return {
        address: window.location.pathname + window.location.search,
        generation: Number.isInteger(generation) && generation > 0 ? generation : null,
        clicks: clicks,
    };
}
"""


def target_of(seen: Any) -> str:
    """Return the address that a link is to lead to, from what the browser says it shows: pinned to what is shown.

    Of a trace its generation, of a live incident the revision that is the newest now; anything else is left as it is.
    """
    told: dict[str, Any] = seen if isinstance(seen, dict) else {}
    text, generation = told.get("address"), told.get("generation")
    if not isinstance(text, str):
        return ""
    address = urls.parse(text)
    known = isinstance(generation, int) and 0 < generation <= urls.MAX_INT
    if known and address.page not in (None, "live_incident") and "g" not in address.view:
        return urls.build(replace(address, view={**address.view, "g": generation}))
    return pinned(address, text)


def pinned(address: urls.Address, target: str) -> str:
    """Return the address that a link leads to: of an incident the revision that is the newest now, which stays."""
    if address.page != "live_incident" or "rev" in address.view:
        return target
    revisions = LiveState(_state()).incident(str(address.params["incident"])).revisions
    return urls.build(replace(address, view={**address.view, "rev": revisions}))


def register_callbacks(app: Dash) -> None:
    """Let the dialog make and end links; it stands on every page of a trace."""
    # Pan, zoom and slider change the address without Dash: only the browser itself knows what is shown.
    app.clientside_callback(
        _TAKE_ADDRESS, Output("share-seen", "data"), Input("share-create", "n_clicks"), prevent_initial_call=True
    )

    @app.callback(
        Output("share-made", "children"),
        Output("share-list", "children"),
        Input("share-seen", "data"),
        Input({"type": "share-revoke", "share": ALL}, "n_clicks"),
        State("url", "pathname"),
        State("share-days", "value"),
        State("share-note", "value"),
        prevent_initial_call=True,
    )
    def change(  # pyright: ignore[reportUnusedFunction]
        seen: Any, revoke: list[int | None], pathname: str, days: str, note: str | None
    ) -> tuple[Any, Any]:
        trace = shares.trace_of(urls.parse(pathname))
        if trace is None or not (seen or any(revoke)):
            return no_update, no_update
        access.check(request, trace, write=True)
        triggered = ctx.triggered_id
        if isinstance(triggered, dict):
            try:
                shares.revoke(_state(), trace=trace, share_id=str(triggered["share"]))
            except shares.ShareError as error:
                return problem(f"{error}."), share_list(trace)
            return html.P("Revoked: that link opens nothing any more.", className="muted"), share_list(trace)
        target = target_of(seen)
        if days not in dict(DAYS) or not shares.covers(target, trace=trace):
            return problem("This page cannot be shared."), no_update
        _, token = shares.create(_state(), trace=trace, target=target, expiry_s=int(days) * 86400, note=str(note or ""))
        return made(request.host_url.rstrip("/") + url_for("login.open_share", token=token)), share_list(trace)
